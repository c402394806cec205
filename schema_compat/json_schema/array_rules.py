"""These rules compare arrays: items, tuples under a content model, `contains` (rules, sections 5.4 and 5.7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from pulsar_on_kafka.schema_compat.json_schema.bounds import compare_bound
from pulsar_on_kafka.schema_compat.json_schema.document_model import ArrayKeywords, Never, Number, Plain
from pulsar_on_kafka.schema_compat.json_schema.evaluation import evaluates_the_same
from pulsar_on_kafka.schema_compat.json_schema.fixed_point import Finding, Judge, Within
from pulsar_on_kafka.schema_compat.json_schema.object_rules import compare_rest

CONTAINS_BOUNDS: Final = ("maxContains", "minContains")


def compare_arrays(writer: Plain, reader: Plain, judge: Judge) -> Iterator[Finding | Within]:
    """Why the reader does not allow every array that the writer allows."""
    old, new = writer.arrays, reader.arrays
    if new.unique and not old.unique:
        yield Finding("/uniqueItems", "UNIQUE_ITEMS_ADDED", "the reader wants items to differ, the writer does not")
    for index, (was, now) in enumerate(zip(old.prefix, new.prefix, strict=False)):
        yield Within(f"/{new.prefix_keyword}/{index}", was.schema, now.schema)
    yield from _items_added(writer, reader, judge)
    yield from _items_removed(old, new, judge)
    yield from _compare_rest(writer, reader, judge)
    yield from _compare_contains(writer, reader, judge)


def _others_evaluate(plain: Plain) -> bool:
    """Whether `unevaluatedItems` is not alone in saying what the rest of the items may be."""
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
    """Without the 1 that `contains` asks for by itself."""
    return {name: bound for name, bound in plain.bounds.items() if (name, bound) != ("minContains", 1)}
