"""The page of dead letters, and the form that redrives them."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.client.values.texts import parse_message_id
from pulsar_on_kafka.console.access import CSRF
from pulsar_on_kafka.console.formatting import link, short_topic
from pulsar_on_kafka.console.pages.renderer import PageRenderer, Problem, query
from pulsar_on_kafka.console.pages.requests import FOREIGN_FORM, form_of
from pulsar_on_kafka.console.response_cache import Unanswered
from pulsar_on_kafka.console.view_model import MAX_DEAD_LETTERS_SHOWN
from pulsar_on_kafka.exceptions import PulsarException
from pulsar_on_kafka_mapping.errors import MappingError


def dead_letters_page(renderer: PageRenderer, request: Request) -> Response:
    site, parameters = renderer.site, request.query_params
    topic = parameters.get("topic", "")
    problems: list[Problem] = []
    return renderer.page(
        "dead_letters.html",
        request,
        topic=topic,
        topics=query(problems, site.dead_letter_topics) if not topic else None,
        letters=query(problems, site.dead_letters, topic) if topic else None,
        most=MAX_DEAD_LETTERS_SHOWN,
        done=parameters.get("done", ""),
        problems=problems,
    )


async def redrive_form(renderer: PageRenderer, request: Request) -> Response:
    form = await form_of(request)
    if form is None or not renderer.access.is_own_form(request, form.get(CSRF, [""])[0]):
        return Response(FOREIGN_FORM, 403)
    topic = form.get("topic", [""])[0]
    try:
        ids = [parse_message_id(each) for each in form.get("id", [])]
        done = await run_in_threadpool(renderer.site.redrive, topic, ids)
    except (Unanswered, PulsarException, MappingError, ValueError) as failure:
        return renderer.page("failed.html", request, 502, what=f"redrive {short_topic(topic)}", failure=str(failure))
    went = ", ".join(f"{counted(number, 'letter')} to {short_topic(to)}" for to, number in done.to.items())
    left = f"; {counted(done.without_origin, 'letter')} without an origin left" if done.without_origin else ""
    reported = f"put back {went}{left}" if went else f"nothing was put back{left}"
    return RedirectResponse(link("/dead-letters", topic=topic, done=reported), 303)
