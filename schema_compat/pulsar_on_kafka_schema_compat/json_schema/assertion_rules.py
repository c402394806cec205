"""These rules compare two schemas' own assertions, keyword by keyword (rules, sections 5.1, 5.2 and 5.7).

A keyword speaks of one type of value, so it counts only where the writer allows that type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Final

from pulsar_on_kafka_schema_compat.json_schema.bounds import compare_bound
from pulsar_on_kafka_schema_compat.json_schema.document_model import (
    ANY_ARRAY,
    ANY_OBJECT,
    TYPES,
    ArrayKeywords,
    Never,
    Number,
    Plain,
)
from pulsar_on_kafka_schema_compat.json_schema.evaluation import evaluates_the_same
from pulsar_on_kafka_schema_compat.json_schema.fixed_point import Finding, Judge, Within
from pulsar_on_kafka_schema_compat.json_schema.object_rules import compare_objects, compare_rest

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
    required = " or ".join(sorted(reader.types))
    message = f"the reader has {required}, the writer {' or '.join(sorted(allowed))}"
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


CONTAINS_BOUNDS: Final = ("maxContains", "minContains")


def compare_arrays(writer: Plain, reader: Plain, judge: Judge) -> Iterator[Finding | Within]:
    """Why the reader does not allow every array that the writer allows."""
    old, new = writer.arrays, reader.arrays
    if new.unique and not old.unique:
        yield Finding("/uniqueItems", "UNIQUE_ITEMS_ADDED", "the reader requires items to differ, the writer does not")
    for index, (was, now) in enumerate(zip(old.prefix, new.prefix, strict=False)):
        yield Within(f"/{new.prefix_keyword}/{index}", was.schema, now.schema)
    yield from _items_added(writer, reader, judge)
    yield from _items_removed(old, new, judge)
    yield from _compare_rest(writer, reader, judge)
    yield from _compare_contains(writer, reader, judge)


def _others_evaluate(plain: Plain) -> bool:
    """Whether other keywords than `unevaluatedItems` constrain the rest of the items."""
    return bool(plain.beside or plain.arrays.contains)


def _items_added(writer: Plain, reader: Plain, judge: Judge) -> Iterator[Finding]:
    old, new = writer.arrays, reader.arrays
    rest = old.rest if old.rest_given or _others_evaluate(writer) else old.unevaluated
    for index in range(len(old.prefix), len(new.prefix)):
        step, now = f"/{new.prefix_keyword}/{index}", new.prefix[index]
        if rest is None:
            if not (isinstance(now.schema, Plain) and now.schema.allows_everything):
                yield Finding(
                    step, "ITEM_ADDED_TO_OPEN_CONTENT_MODEL", "the reader has a schema, the writer allows any"
                )
        elif not judge.accepts(rest, now):
            yield Finding(
                step,
                "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
                "the reader's schema allows less than the writer's for items that are not listed",
            )


def _items_removed(old: ArrayKeywords, new: ArrayKeywords, judge: Judge) -> Iterator[Finding]:
    rest = new.rest if new.rest_given else new.unevaluated
    for index in range(len(new.prefix), len(old.prefix)):
        step, was = f"/{old.prefix_keyword}/{index}", old.prefix[index]
        if rest is None or isinstance(was.schema, Never):
            continue
        if isinstance(rest.schema, Never):
            message = "the writer allows an item there, the reader none"
            yield Finding(step, "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", message)
        elif not judge.accepts(was, rest):
            yield Finding(
                step,
                "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
                "the writer's schema allows more than the reader's for items that are not listed",
            )


def _compare_rest(writer: Plain, reader: Plain, judge: Judge) -> Iterator[Finding | Within]:
    """Items that are not listed: by `items` or `additionalItems`, else by `unevaluatedItems`."""
    old, new = writer.arrays, reader.arrays
    if not old.prefix and not new.prefix:
        yield from _compare_idle(old, new)
    by_items = new.rest_given
    now = new.rest if by_items else new.unevaluated
    if now is None:
        return
    keyword = new.rest_keyword if by_items else "unevaluatedItems"
    others_evaluate = not old.rest_given and _others_evaluate(writer)
    was = old.rest
    if not old.rest_given and not (by_items and others_evaluate):
        was = old.unevaluated
    is_list = bool(old.prefix or new.prefix) or not by_items
    if was is None and not is_list and not isinstance(now.schema, Never):
        yield Finding(f"/{keyword}", "SCHEMA_ADDED", "the reader has a schema for items, the writer allows any")
    else:
        rule_keyword = "additionalItems" if by_items else keyword
        yield from compare_rest(keyword, was, now, rule_keyword)
    if others_evaluate and not by_items and not evaluates_the_same(writer, reader, judge):
        yield Finding(f"/{keyword}", "UNEVALUATED_ITEMS_NARROWED", "which items it is left with has changed")


def _compare_idle(old: ArrayKeywords, new: ArrayKeywords) -> Iterator[Finding | Within]:
    """`additionalItems` without a list: validators ignore it, so only its own change is of interest."""
    if new.idle_rest is not None and not new.rest_given:
        yield from compare_rest("additionalItems", old.idle_rest, new.idle_rest)


def _compare_contains(writer: Plain, reader: Plain, judge: Judge) -> Iterator[Finding | Within]:
    was, now = writer.arrays.contains, reader.arrays.contains
    for keyword in CONTAINS_BOUNDS:
        yield from compare_bound(keyword, _contains_bounds(writer), _contains_bounds(reader))
    if now is None:
        return
    if was is None:
        yield Finding("/contains", "CONTAINS_ADDED", "the reader has `contains`, the writer does not")
        return
    if writer.bounds.get("minContains") == 0 and reader.bounds.get("minContains", 1) == 1:
        yield Finding("/minContains", "MIN_CONTAINS_INCREASED", "the reader has 1, as without it, the writer 0")
    yield Within("/contains", was.schema, now.schema)
    if "maxContains" in reader.bounds and not judge.accepts(now, was):
        yield Finding(
            "/contains", "CONTAINS_EXTENDED", "under `maxContains` the reader counts items that the writer does not"
        )


def _contains_bounds(plain: Plain) -> Mapping[str, Number]:
    """The bounds without the 1 that `contains` implies."""
    return {name: bound for name, bound in plain.bounds.items() if (name, bound) != ("minContains", 1)}
