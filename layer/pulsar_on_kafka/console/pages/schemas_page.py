"""The page of a topic's schemas: its versions, a definition, and the difference between two versions."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from pulsar_on_kafka.admin import RegisteredSchema, RegistrationState
from pulsar_on_kafka.console.formatting import link
from pulsar_on_kafka.console.pages.renderer import PageRenderer, Problem, query
from pulsar_on_kafka.console.pages.requests import topic_of, whole
from pulsar_on_kafka.console.topic_data import schema_versions, texts_of


def schemas_page(renderer: PageRenderer, request: Request) -> Response:
    site, parameters = renderer.site, request.query_params
    topic = topic_of(request)
    problems: list[Problem] = []
    found = query(problems, schema_versions, site, topic)
    readable = [] if found is None else [each for each in found.value.versions if _is_readable(each)]
    number = _chosen(parameters.get("version"), readable[0].number if readable else None)
    before = _chosen(parameters.get("with"), next((e.number for e in readable if number and e.number < number), None))
    texts = None if number is None else query(problems, texts_of, site, topic, number, before)
    return renderer.page(
        "schemas.html",
        request,
        topic=topic,
        found=None if found is None else found.value,
        readable=[each.number for each in readable],
        number=number,
        before=before,
        texts=None if texts is None else texts.value,
        problems=list(dict.fromkeys(problems)),
        here=lambda **changed: link("/schemas", **{"topic": topic, "version": number, "with": before, **changed}),
    )


def _is_readable(version: RegisteredSchema) -> bool:
    return version.state in (RegistrationState.LIVE, RegistrationState.DELETED)


def _chosen(text: str | None, otherwise: int | None) -> int | None:
    """The version that a user chose; `otherwise` where that is no number."""
    number = whole(text)
    return otherwise if number is None else number
