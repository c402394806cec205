"""Texts of the console's pages: numbers, ages, sizes and addresses as the templates write them. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from pulsar_on_kafka.admin.stored.shown_messages import ShownMessage
from pulsar_on_kafka.client.values.texts import (
    duration_text,
    member_text,
    message_id_text,
    payload_text,
    printable,
    process_text,
    time_text,
)

NOTHING: Final = "\N{EN DASH}"
MAX_CHARS: Final = 20_000
"""The limit of a shown value's characters."""
_SHORT_CHARS: Final = 2_000
"""The limit of the characters of a shown property."""


def number(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"


def count(value: int | None) -> str:
    """A number of a table in which most are zero."""
    return NOTHING if not value else f"{value:,}"


def rate(value: float | None) -> str:
    """The rate per second."""
    if value is None:
        return NOTHING
    return f"{value:,.1f}" if 0 < value < 10 else f"{value:,.0f}"


def size(value: int) -> str:
    """Bytes, with three digits."""
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:,.3g} TB"


def short_topic(name: str) -> str:
    """The name without the parts that most topics share."""
    return name.removeprefix("persistent://").removeprefix("public/default/")


def ago(at_ms: int | None, now_ms: int) -> str:
    return NOTHING if not at_ms else duration_text(max(0, now_ms - at_ms))


def link(path: str, **parameters: object) -> str:
    """The address of a page; parameters without a value are left out."""
    reported = {name: value for name, value in parameters.items() if value not in (None, "")}
    return f"{path}?{urlencode(reported)}" if reported else path


def value_text(message: ShownMessage) -> str:
    """The decoded value as JSON, or the payload; cut where it is long."""
    if message.payload is None:
        return "null"
    text = json.dumps(message.value, indent=2, ensure_ascii=False) if message.decoded else payload_text(message.payload)
    return shortened(text)


def cut(text: str) -> str:
    """A short text on one line, cut where it is long."""
    return printable(shortened(text, _SHORT_CHARS))


def shortened(text: str, most: int = MAX_CHARS) -> str:
    """A text of at most so many characters, and the number of all."""
    return text if len(text) <= most else f"{text[:most]} … ({len(text):,} characters)"


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "ago": ago,
    "count": count,
    "cut": cut,
    "duration": duration_text,
    "member": member_text,
    "message_id": message_id_text,
    "number": number,
    "printable": printable,
    "process": process_text,
    "rate": rate,
    "size": size,
    "time": time_text,
    "topic": short_topic,
    "value": value_text,
}
