"""The page of one subscription: its partitions, holes, consumers and ledgers; and the page of one of its messages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from pulsar_on_kafka.admin import PartitionCursor, TransactionInPendingAck
from pulsar_on_kafka.admin.overview.records import SubscriptionOverview
from pulsar_on_kafka.admin.stats import waiting_keys_of
from pulsar_on_kafka.console.formatting import link
from pulsar_on_kafka.console.hole_map import hole_map
from pulsar_on_kafka.console.message_data import log_of
from pulsar_on_kafka.console.pages.renderer import PageRenderer, Problem, query
from pulsar_on_kafka.console.pages.requests import PARTITIONS, listed, whole
from pulsar_on_kafka.console.response_cache import CachedResponse

T = TypeVar("T")

MAX_RANGES: Final = 1_000
"""Acknowledged ranges of a partition, and batches acknowledged in part, that are listed."""


def subscription_page(renderer: PageRenderer, request: Request) -> Response:
    site, parameters = renderer.site, request.query_params
    topic, name = parameters.get("topic", ""), parameters.get("name", "")
    found = renderer.overview_of(topic, name)
    number = whole(parameters.get("partition")) or 0
    problems: list[Problem] = []
    cursors = query(problems, site.cursors, topic, name)
    chosen = _of(cursors, number)
    retained = query(problems, site.retained, topic)
    page = whole(parameters.get("list")) or 0
    read = query(problems, site.read_positions, topic, name)
    consumers = query(problems, site.consumers, topic, name)
    ranges = [] if chosen is None else list(islice(chosen.acknowledged_ranges(), MAX_RANGES + 1))
    return renderer.page(
        "subscription.html",
        request,
        topic=topic,
        name=name,
        found=found,
        number=number,
        cursors=cursors,
        cursor=chosen,
        read_position=None if read is None else read.value.get(number),
        ranges=ranges[:MAX_RANGES],
        more_ranges=len(ranges) > MAX_RANGES,
        batches=[] if chosen is None else list(islice(chosen.acknowledged_in_batches(), MAX_RANGES)),
        map=None if chosen is None else hole_map(chosen, whole(parameters.get("from")), whole(parameters.get("scale"))),
        partitions=listed([] if found is None else found.partitions, page),
        consumers=consumers,
        waiting_keys=[] if consumers is None else waiting_keys_of(consumers.value)[:MAX_RANGES],
        held=query(problems, site.held, topic, name),
        retained=retained,
        ledgers=[] if retained is None else [each for each in retained.value.ledgers if each.partition == number],
        max_ledgers=PARTITIONS,
        problems=list(dict.fromkeys(problems)),
        done=parameters.get("done", ""),
        here=lambda **changed: link(
            "/subscription", **{"topic": topic, "name": name, "partition": number, "list": page or None, **changed}
        ),
    )


def message_page(renderer: PageRenderer, request: Request) -> Response:
    """One entry of a topic; with a subscription also its state there."""
    site, parameters = renderer.site, request.query_params
    topic, name = parameters.get("topic", ""), parameters.get("name", "")
    number, offset = whole(parameters.get("partition")) or 0, whole(parameters.get("offset")) or 0
    problems: list[Problem] = []
    cursor = _of(query(problems, site.cursors, topic, name), number) if name else None
    log = cursor or _value(query(problems, log_of, site, topic, number) if not name else None)
    within = log is not None and log.start <= offset < log.end
    requested = log.message_id(offset) if log is not None and within else None
    held = query(problems, site.held, topic, name) if name else None
    owner = _owner(renderer.overview_of(topic, name), number)
    fate = cursor.fate(offset) if cursor is not None and within else None
    holds = owner and fate is not None and not fate.acknowledged
    holder = query(problems, site.holder, topic, name, number, offset) if holds else None
    return renderer.page(
        "message.html",
        request,
        topic=topic,
        name=name,
        number=number,
        offset=offset,
        log=log,
        requested=requested,
        messages=None if requested is None else query(problems, site.message, topic, requested),
        fate=fate,
        owner=owner,
        holder=_value(holder),
        holders=[each.txn for each in ([] if held is None else held.value) if _holds(each, number, offset)],
        problems=list(dict.fromkeys(problems)),
    )


def _value(found: CachedResponse[T] | None) -> T | None:
    return None if found is None else found.value


def _of(cursors: CachedResponse[Sequence[PartitionCursor]] | None, number: int) -> PartitionCursor | None:
    return None if cursors is None else next((each for each in cursors.value if each.partition == number), None)


def _owner(found: SubscriptionOverview | None, number: int) -> str:
    partitions = () if found is None else found.partitions
    return next((each.owner for each in partitions if each.partition == number), "")


def _holds(held: TransactionInPendingAck, number: int, offset: int) -> bool:
    """Whether a transaction is known to hold the entry at an offset."""
    if held.partition != number or held.ended:
        return False
    up_to = -1 if held.cumulative is None else held.cumulative
    return offset <= up_to or any(first <= offset <= last for first, last in held.ranges)
