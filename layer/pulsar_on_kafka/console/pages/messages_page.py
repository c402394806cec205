"""The page of a topic's messages: a window of them, searched in values, keys and properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response

from pulsar_on_kafka.admin import PartitionCursor
from pulsar_on_kafka.console.formatting import link
from pulsar_on_kafka.console.message_data import window_of
from pulsar_on_kafka.console.message_window import MAX_ROWS, MessageRequest, MessageWindow, WindowStart, state_for
from pulsar_on_kafka.console.pages.renderer import PageRenderer, Problem, query
from pulsar_on_kafka.console.pages.requests import topic_of

_DELAYING: tuple[str, ...] = ("Shared", "Key_Shared")
MAX_SUBSCRIPTIONS = 200
"""The limit of the subscriptions that the page's form offers."""


def messages_page(renderer: PageRenderer, request: Request) -> Response:
    site, parameters = renderer.site, request.query_params
    topic, name = topic_of(request), parameters.get("name", "")
    now_ms = site.clock.now_ms()
    problems: list[Problem] = []
    wrong, window = "", None
    requested = MessageRequest(topic)
    try:
        requested = MessageRequest.of({**parameters, "topic": topic}, now_ms)
    except ValueError as failure:
        wrong = str(failure)
    else:
        window = query(problems, window_of, site, requested)
    cursors = query(problems, site.cursors, topic, name) if name and window is not None else None
    overview = site.look().overview
    found = renderer.overview_of(topic, name)
    return renderer.page(
        "messages.html",
        request,
        topic=topic,
        name=name,
        requested=requested,
        given={each: parameters.get(each, "") for each in ("partition", "from", "at", "key", "text", "property")},
        begins=list(WindowStart),
        wrong=wrong,
        window=None if window is None else window.value,
        states=[]
        if window is None or not name
        else _states(
            window.value,
            () if cursors is None else cursors.value,
            found is not None and found.type in _DELAYING,
            now_ms,
        ),
        partitions=next((e.partitions for e in (() if overview is None else overview.topics) if e.topic == topic), 1),
        subscriptions=[
            each.subscription for each in (() if overview is None else overview.subscriptions) if each.topic == topic
        ][:MAX_SUBSCRIPTIONS],
        problems=list(dict.fromkeys(problems)),
        next_page=None if window is None or not window.value.places else _with(parameters, on=window.value.on),
        earlier=None if window is None else _earlier(requested, window.value, parameters),
    )


def _states(window: MessageWindow, cursors: Sequence[PartitionCursor], delays: bool, now_ms: int) -> list[str]:
    by_partition: Mapping[int, PartitionCursor] = {each.partition: each for each in cursors}
    return [state_for(by_partition.get(row.partition), row, delays=delays, now_ms=now_ms) for row in window.rows]


def _with(parameters: Mapping[str, str], **changed: object) -> str:
    return link("/messages", **{**parameters, **changed})


def _earlier(requested: MessageRequest, window: MessageWindow, parameters: Mapping[str, str]) -> str | None:
    """The address of the messages before a window of one partition; None for a search."""
    if requested.filtered or len(window.begins) != 1:
        return None
    ((partition, begin),) = window.begins.items()
    if begin == 0:
        return None
    at = max(0, begin - MAX_ROWS)
    return _with(parameters, partition=partition, at=at, on="", **{"from": WindowStart.OFFSET.value})
