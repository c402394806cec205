"""These rules compare two schemas' own assertions, keyword by keyword (rules, sections 5.1, 5.2 and 5.7).

A keyword speaks of one type of value, so it counts only where the writer allows that type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Final

from pulsar_on_kafka.schema_compat.json_schema.array_rules import CONTAINS_BOUNDS, compare_arrays
from pulsar_on_kafka.schema_compat.json_schema.bounds import compare_bound
from pulsar_on_kafka.schema_compat.json_schema.document_model import ANY_ARRAY, ANY_OBJECT, TYPES, Plain
from pulsar_on_kafka.schema_compat.json_schema.fixed_point import Finding, Judge, Within
from pulsar_on_kafka.schema_compat.json_schema.object_rules import compare_objects

_BOUNDS_OF: Final = {
    "string": ("maxLength", "minLength"),
    "number": ("maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"),
    "object": ("maxProperties", "minProperties"),
    "array": ("maxItems", "minItems"),
}
_ALL_TYPES: Final = TYPES - {"integer"}


def compare_plain(writer: Plain, reader: Plain, judge: Judge) -> Iterator[Finding | Within]:
    """Why not everything that `writer` allows is allowed by `reader`."""
    allowed = _allowed_types(writer)
    if not allowed:
        return
    types_changed = list(_compare_types(writer, allowed, reader))
    yield from types_changed
    if types_changed and writer.allows_everything:
        return
    yield from _compare_values(writer, reader)
    common = {
        name for name in allowed if _reads(reader.types, name) or (name == "number" and _reads(reader.types, "integer"))
    }
    for kind, keywords in _BOUNDS_OF.items():
        if kind in common or (kind == "number" and "integer" in common):
            for keyword in keywords:
                yield from compare_bound(keyword, writer.bounds, reader.bounds)
    if common & {"number", "integer"}:
        yield from _compare_multiple_of(writer, reader)
    if "string" in common:
        yield from _compare_pattern(writer.pattern, reader.pattern)
    if "object" in common and reader.objects is not ANY_OBJECT:
        yield from compare_objects(writer, reader, judge)
    if "array" in common and not (reader.arrays is ANY_ARRAY and reader.bounds.keys().isdisjoint(CONTAINS_BOUNDS)):
        yield from compare_arrays(writer, reader, judge)


def _allowed_types(plain: Plain) -> frozenset[str]:
    """The types of what `plain` allows."""
    named = _ALL_TYPES if plain.types is None else plain.types
    if plain.values is None:
        return named
    return frozenset(
        name for name in plain.value_types if _reads(named, name) or (name == "number" and "integer" in named)
    )


def _reads(types: frozenset[str] | None, name: str) -> bool:
    return types is None or name in types or (name == "integer" and "number" in types)


def _compare_types(writer: Plain, allowed: frozenset[str], reader: Plain) -> Iterator[Finding]:
    missing = sorted(name for name in allowed if not _reads(reader.types, name))
    if not missing or reader.types is None:
        return
    wanted = " or ".join(sorted(reader.types))
    message = f"the reader has {wanted}, the writer {' or '.join(sorted(allowed))}"
    if writer.types is None and writer.values is None:
        rule = "TYPE_CHANGED"
    elif (
        missing == ["number"] and "integer" in reader.types and (len(allowed) == 1 or len(reader.types) == len(allowed))
    ):
        rule = "TYPE_NARROWED" if len(allowed) == 1 else "COMBINED_TYPE_SUBSCHEMAS_CHANGED"
    elif len(allowed) == 1 or (len(missing) == len(allowed) and len(reader.types) == 1):
        rule = "TYPE_CHANGED"
    else:
        rule = "SUM_TYPE_NARROWED" if len(reader.types) < len(allowed) else "COMBINED_TYPE_SUBSCHEMAS_CHANGED"
    yield Finding("", rule, message)


def _compare_values(writer: Plain, reader: Plain) -> Iterator[Finding]:
    if reader.values is None:
        return
    step = f"/{reader.values_keyword}"
    allowed = f"the reader allows {_listed(reader.values.values())}"
    if writer.values is None:
        yield Finding(step, "ENUM_ARRAY_NARROWED", f"{allowed}, the writer any value")
        return
    missing = [text for key, text in writer.values.items() if key not in reader.values]
    if missing:
        narrowed = reader.values.keys() < writer.values.keys()
        rule = "ENUM_ARRAY_NARROWED" if narrowed else "ENUM_ARRAY_CHANGED"
        yield Finding(step, rule, f"{allowed}, the writer also {_listed(missing)}")


def _listed(texts: Iterable[str]) -> str:
    listed = list(texts)
    return ", ".join(listed[:8]) + (f" and {len(listed) - 8} more" if len(listed) > 8 else "") if listed else "nothing"


def _compare_pattern(writer: str | None, reader: str | None) -> Iterator[Finding]:
    if reader is None or reader == writer:
        return
    if writer is None:
        yield Finding("/pattern", "PATTERN_ADDED", f"the reader has {reader!r:.60}, the writer none")
    else:
        yield Finding("/pattern", "PATTERN_CHANGED", f"the reader has {reader!r:.60}, the writer {writer!r:.60}")


def _compare_multiple_of(writer: Plain, reader: Plain) -> Iterator[Finding]:
    new, old = reader.bounds.get("multipleOf"), writer.bounds.get("multipleOf")
    if new is None or (old is not None and Fraction(old) % Fraction(new) == 0):
        return
    if old is None:
        rule = "MULTIPLE_OF_ADDED"
    else:
        rule = "MULTIPLE_OF_EXPANDED" if Fraction(new) % Fraction(old) == 0 else "MULTIPLE_OF_CHANGED"
    yield Finding("/multipleOf", rule, f"the reader has {new}, the writer {'none' if old is None else old}")
