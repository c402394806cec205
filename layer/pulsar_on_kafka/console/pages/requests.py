"""Requests of browsers are parsed: whole numbers, forms, and pages of a list. They are well-formed for any input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs

from starlette.requests import Request

from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.names.topic_name import TopicName

T = TypeVar("T")

_MAX_FORM_BYTES: Final = 65_536
FOREIGN_FORM: Final = "this form is not of this console, or of one that ended since: load the page again\n"
PARTITIONS: Final = 50
"""Partitions of a subscription, and ledgers of a partition, that are listed at once."""


def whole(text: str | None) -> int | None:
    """A whole number that a user typed; None for anything else, and for numbers beyond every offset."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None


def topic_of(request: Request) -> str:
    """The full name of the topic that a request names; as the user typed it where it is none."""
    typed = request.query_params.get("topic", "")
    try:
        return str(TopicName.parse(typed).base)
    except MappingError:
        return typed


def listed(found: Sequence[T], page: int) -> Mapping[str, Any]:
    """A page of many, and where the one before and the one behind begin."""
    first = min(page, max(0, len(found) - 1)) // PARTITIONS * PARTITIONS
    return {
        "shown": found[first : first + PARTITIONS],
        "first": first,
        "of": len(found),
        "before": first - PARTITIONS if first else None,
        "behind": first + PARTITIONS if first + PARTITIONS < len(found) else None,
    }


async def form_of(request: Request) -> dict[str, list[str]] | None:
    """The fields of a form; None where it is longer than ours are."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MAX_FORM_BYTES:
            return None
    return parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=1000)
