"""Texts of schema definitions, and the difference between two, line by line and rule by rule. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from typing import Final

from pulsar_on_kafka.client.values.texts import printable
from pulsar_on_kafka_schema_compat import CompatibilityStrategy, SchemaInfo, check_compatibility

MAX_CHARS: Final = 200_000
"""The limit of the shown characters of a definition. A comparison of longer ones would take too long."""
MAX_LINES: Final = 5_000
_LINE_CHARS: Final = 500
_MAX_REASONS: Final = 20
_STRATEGIES: Final = (CompatibilityStrategy.BACKWARD, CompatibilityStrategy.FORWARD)


@dataclass(frozen=True, slots=True)
class NumberedSchema:
    """A version and its definition."""

    number: int
    info: SchemaInfo


@dataclass(frozen=True, slots=True)
class DifferentLine:
    """A line of a difference; `kind` is added, removed, same, or place (the lines that follow)."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class SchemaVerdict:
    """Whether a strategy accepts the new version after the old one, and at most 20 reasons why not."""

    strategy: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SchemaTexts:
    """A definition, cut to `MAX_CHARS`; and, with an earlier version, the difference from it."""

    number: int
    type_name: str
    definition: str
    cut: bool
    before: int | None = None
    lines: tuple[DifferentLine, ...] = ()
    verdicts: tuple[SchemaVerdict, ...] = ()
    too_long: bool = False
    """Whether the two are not compared line by line, because one of them is too long."""


def schema_texts(new: NumberedSchema, before: NumberedSchema | None = None) -> SchemaTexts:
    text = definition_text(new.info)
    shown, cut = text[:MAX_CHARS], len(text) > MAX_CHARS
    if before is None:
        return SchemaTexts(new.number, new.info.type.name, shown, cut)
    old = definition_text(before.info)
    too_long = any(len(each) > MAX_CHARS or each.count("\n") >= MAX_LINES for each in (old, text))
    return SchemaTexts(
        new.number,
        new.info.type.name,
        shown,
        cut,
        before.number,
        () if too_long else tuple(_lines(_header(before.info, old), _header(new.info, text))),
        () if too_long else tuple(_verdicts(before.info, new.info)),
        too_long,
    )


def definition_text(info: SchemaInfo) -> str:
    """The definition, JSON with one field a line; base64 where it is no text; '' for primitive types."""
    try:
        text = info.schema.decode("utf-8")
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(info.schema).decode('ascii')}"
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return "\n".join(map(printable, text.splitlines()))


def _header(info: SchemaInfo, text: str) -> list[str]:
    properties = [f"property {name}: {value}" for name, value in sorted(info.properties.items())]
    return [f"type {info.type.name}", *map(printable, properties), *text.splitlines()]


def _lines(old: Sequence[str], new: Sequence[str]) -> Iterator[DifferentLine]:
    kinds = {"+": "added", "-": "removed", "@": "place"}
    for number, line in enumerate(unified_diff(old, new, lineterm="")):
        if number >= 2:  # the first two name files
            kind = kinds.get(line[:1], "same")
            yield DifferentLine(kind, line[:_LINE_CHARS] if kind == "place" else line[1:][:_LINE_CHARS])


def _verdicts(old: SchemaInfo, new: SchemaInfo) -> Iterator[SchemaVerdict]:
    for strategy in _STRATEGIES:
        found = check_compatibility(new, [old], strategy).incompatibilities[:_MAX_REASONS]
        yield SchemaVerdict(strategy.name, tuple(str(each)[:_LINE_CHARS] for each in found))
