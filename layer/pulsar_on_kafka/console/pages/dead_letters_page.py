"""The page of dead letters."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from pulsar_on_kafka.console.pages.renderer import PageRenderer, Problem, query
from pulsar_on_kafka.console.view_model import MAX_DEAD_LETTERS_SHOWN


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
