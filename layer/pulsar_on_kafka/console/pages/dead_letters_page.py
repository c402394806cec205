"""The pages of dead letters, and of one of them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from pulsar_on_kafka.client.values.texts import parse_message_id
from pulsar_on_kafka.console.dead_letter_texts import shown_letter
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


def dead_letter_page(renderer: PageRenderer, request: Request) -> Response:
    """One letter: its origin and reason, what it carries, and its value."""
    topic, name = request.query_params.get("topic", ""), request.query_params.get("id", "")
    problems: list[Problem] = []
    try:
        requested = parse_message_id(name)
    except ValueError as failure:
        return renderer.page("failed.html", request, 400, what="find this letter", failure=str(failure))
    found = query(problems, renderer.site.dead_letter, topic, requested)
    letter = None if found is None else found.value
    return renderer.page(
        "dead_letter.html",
        request,
        topic=topic,
        requested=requested,
        found=found,
        letter=letter,
        shown=None if letter is None else shown_letter(letter),
        problems=problems,
    )
