"""The checker of JSON Schema documents reads two and compares them, by their sorts, combinations and conjunctions
(rules, section 5.1 and 5.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from pulsar_on_kafka_schema_compat.base.json_text import NotJson, parse_json
from pulsar_on_kafka_schema_compat.base.schema_model import Difference, SchemaInfo, UnreadableSchema
from pulsar_on_kafka_schema_compat.json_schema.assertion_rules import compare_plain
from pulsar_on_kafka_schema_compat.json_schema.document_model import (
    Combined,
    Condition,
    Conjunction,
    Criterion,
    Document,
    Never,
    Not,
    Place,
    Plain,
    Schema,
)
from pulsar_on_kafka_schema_compat.json_schema.document_reading import read_document
from pulsar_on_kafka_schema_compat.json_schema.evaluation import compare_same
from pulsar_on_kafka_schema_compat.json_schema.fixed_point import Finding, Judge, Pairs, Within


def matching_size(left_size: int, fits: Callable[[int], Iterator[int]]) -> int:
    """The largest number of items on the left with partners of their own on the right.

    Args:
        left_size: the left side is 0 to `left_size`, exclusive.
        fits: the possible partners on the right of one on the left; consumed no further than needed.
    """
    partner: dict[int, int] = {}
    return sum(_augment(left, fits, partner) for left in range(left_size))


def _augment(start: int, fits: Callable[[int], Iterator[int]], partner: dict[int, int]) -> bool:
    """Give `start` a partner, moving others to free ones if need be; `partner` maps right to left."""
    came_from: dict[int, int] = {}
    waiting = [start]
    for left in waiting:
        for right in fits(left):
            if right in came_from:
                continue
            came_from[right] = left
            if right not in partner:
                _rematch(right, start, came_from, partner)
                return True
            waiting.append(partner[right])
    return False


def _rematch(free: int, start: int, came_from: dict[int, int], partner: dict[int, int]) -> None:
    given = {left: right for right, left in partner.items()}
    right = free
    while came_from[right] != start:
        left = came_from[right]
        partner[right] = left
        right = given[left]
    partner[right] = start


_ANYTHING: Final = Plain(allows_everything=True)


def compare_schemas(writer: Schema, reader: Schema, judge: Judge) -> Iterator[Finding | Within]:
    """Why not everything that `writer` allows is allowed by `reader`."""
    match writer, reader:
        case (Never(), _) | (_, Plain(allows_everything=True)):
            return
        case Plain(), Plain():
            yield from compare_plain(writer, reader, judge)
        case Not(unwanted), Not(still_unwanted):
            if not judge.accepts(still_unwanted, unwanted):
                yield Finding("/not", "NOT_TYPE_EXTENDED", "the reader's `not` excludes more than the writer's")
        case Condition(), Condition():
            yield from _compare_conditions(writer, reader, judge)
        case (Conjunction(), _) | (_, Conjunction()):
            yield from _compare_conjunctions(writer, reader, judge)
        case Combined(), Combined():
            yield from _compare_combined(writer, reader, judge)
        case Combined(), _:
            yield from _single_after_combined(writer, reader, judge)
        case _, Combined():
            yield from _combined_after_single(writer, reader, judge)
        case _:
            yield _type_changed(writer, reader)


def _type_changed(writer: Schema, reader: Schema) -> Finding:
    return Finding("", "TYPE_CHANGED", f"the reader has {describe(reader)}, the writer {describe(writer)}")


def describe(schema: Schema) -> str:
    """A few words for messages."""
    match schema:
        case Never():
            return "false"
        case Plain(types=None):
            return "any type"
        case Plain(types=types):
            return " or ".join(sorted(types or ()))
        case Combined(criterion, members):
            return f"{criterion.value} of {len(members)}"
        case Conjunction(parts):
            return " with ".join(
                describe(part.schema) for part in parts[:4] if not isinstance(part.schema, Conjunction)
            )
        case _:
            return type(schema).__name__.lower()


def _compare_conditions(writer: Condition, reader: Condition, judge: Judge) -> Iterator[Finding | Within]:
    if not judge.same(writer.condition, reader.condition):
        yield Finding("/if", "CONDITION_CHANGED", "the two have different conditions")
    for keyword, rule, old, new in (
        ("then", "THEN_ADDED", writer.then, reader.then),
        ("else", "ELSE_ADDED", writer.otherwise, reader.otherwise),
    ):
        if new is not None and old is None:
            yield Finding(f"/{keyword}", rule, f"the reader has `{keyword}`, the writer none")
        elif new is not None and old is not None:
            yield Within(f"/{keyword}", old.schema, new.schema)


def _by_type(plain: Plain) -> Combined | None:
    """`type: [a, b]` as an anyOf of a and b, always the same one; None for a single type or none."""
    if plain.by_type is None and plain.types is not None and len(plain.types) > 1:
        members = [
            Place("", Plain(frozenset({name}), plain.values, plain.value_types, plain.values_keyword, plain.bounds,
                            plain.pattern, plain.objects, plain.arrays, beside=plain.beside))
            for name in sorted(plain.types)
        ]  # fmt: skip
        plain.by_type = Combined(Criterion.ANY, tuple(members))
    return plain.by_type


def _single_after_combined(writer: Combined, reader: Schema, judge: Judge) -> Iterator[Finding]:
    if isinstance(reader, Plain) and writer.criterion is not Criterion.ALL and (union := _by_type(reader)):
        yield from _compare_combined(writer, union, judge)
        return
    accepted = sum(judge.accepts(member, Place("", reader)) for member in writer.members)
    if accepted and writer.criterion is Criterion.ALL:
        return
    if accepted:
        yield Finding(
            "", "SUM_TYPE_NARROWED", f"the reader has {describe(reader)} alone, the writer {describe(writer)}"
        )
    else:
        yield _type_changed(writer, reader)


def _combined_after_single(writer: Schema, reader: Combined, judge: Judge) -> Iterator[Finding]:
    if reader.criterion is not Criterion.ALL:
        if any(judge.accepts(Place("", writer), member) for member in reader.members):
            return
        if isinstance(writer, Plain) and (union := _by_type(writer)):
            yield from _compare_combined(union, reader, judge)
            return
    elif any(judge.accepts(Place("", writer), member) for member in reader.members):
        yield Finding("", "PRODUCT_TYPE_EXTENDED", f"the reader has {describe(reader)}, the writer {describe(writer)}")
        return
    yield _type_changed(writer, reader)


def _compare_combined(writer: Combined, reader: Combined, judge: Judge) -> Iterator[Finding]:
    old, new = writer.criterion, reader.criterion
    if old is not new and new is not Criterion.ANY:
        yield Finding("", "COMBINED_TYPE_CHANGED", f"the reader has {describe(reader)}, the writer {describe(writer)}")
        return
    count = f"the reader has {len(reader.members)} members, the writer {len(writer.members)}"
    if new is Criterion.ALL and len(reader.members) > len(writer.members):
        yield Finding("", "PRODUCT_TYPE_EXTENDED", count)
    elif new is not Criterion.ALL and len(reader.members) < len(writer.members):
        yield Finding("", "SUM_TYPE_NARROWED", count)

    def readers(index: int) -> Iterator[int]:
        member = writer.members[index]
        # Most often a member has kept its place.
        nearest_first = sorted(range(len(reader.members)), key=lambda other: other != index)
        return (other for other in nearest_first if judge.accepts(member, reader.members[other]))

    smaller = min(len(writer.members), len(reader.members))
    if matching_size(len(writer.members), readers) < smaller:
        yield Finding(
            "", "COMBINED_TYPE_SUBSCHEMAS_CHANGED", f"of {count} fewer than {smaller} fit together one to one"
        )


def _parts(schema: Schema) -> tuple[Place, ...]:
    return schema.parts if isinstance(schema, Conjunction) else (Place("", schema),)


def _compare_conjunctions(writer: Schema, reader: Schema, judge: Judge) -> Iterator[Finding | Within]:
    """Each part of the reader has to be satisfied by a part of the writer, or by the writer as a whole."""
    whole = Place("", writer)
    if _has_condition(writer) and not _has_condition(reader):
        yield Finding("/if", "CONDITION_CHANGED", "the reader has no `if`, the writer has")
    for required in _parts(reader):
        if any(judge.accepts(part, required) for part in _parts(writer)):
            continue
        if isinstance(required.schema, Combined) and _whole_fits(whole, required.schema, judge):
            continue
        counterpart = next((part for part in _parts(writer) if _same_sort(part.schema, required.schema)), None)
        if counterpart is not None:
            yield Within("", counterpart.schema, required.schema)
        elif isinstance(required.schema, Plain):
            yield Within("", _ANYTHING, required.schema)
        elif isinstance(required.schema, Not):
            yield Finding("/not", "NOT_TYPE_EXTENDED", "the reader has `not`, the writer none")
        elif isinstance(required.schema, Condition):
            yield from _condition_added(required.schema)
        else:
            yield Finding(
                "",
                "PRODUCT_TYPE_EXTENDED",
                f"the reader also has {describe(required.schema)}, the writer {describe(writer)}",
            )


def _has_condition(schema: Schema) -> bool:
    return any(isinstance(part.schema, Condition) for part in _parts(schema))


def _condition_added(added: Condition) -> Iterator[Finding]:
    yield Finding("/if", "CONDITION_CHANGED", "the reader has `if`, the writer none")
    if added.then is not None:
        yield Finding("/then", "THEN_ADDED", "the reader has `then`, the writer none")
    if added.otherwise is not None:
        yield Finding("/else", "ELSE_ADDED", "the reader has `else`, the writer none")


def _whole_fits(whole: Place, required: Combined, judge: Judge) -> bool:
    fits = (judge.accepts(whole, member) for member in required.members)
    return all(fits) if required.criterion is Criterion.ALL else any(fits)


def _same_sort(one: Schema, other: Schema) -> bool:
    if isinstance(one, Combined) and isinstance(other, Combined):
        return one.criterion is other.criterion
    return type(one) is type(other) and not isinstance(one, Conjunction)


class JsonSchemaChecker:
    """The checker judges documents of any dialect, also against one another; `legacy`: definitions that Jackson
    made."""

    def __init__(self, *, legacy: bool = False) -> None:
        self._legacy = legacy

    def parse(self, schema: SchemaInfo) -> Document:
        try:
            return read_document(parse_json(schema.schema), legacy=self._legacy)
        except NotJson as error:
            raise UnreadableSchema(f"no JSON: {error}") from None

    def differences(self, reader: Document, writer: Document) -> Iterator[Difference]:
        return document_differences(reader, writer)


def document_differences(reader: Document, writer: Document) -> Iterator[Difference]:
    """Every reason why `reader` does not allow all that `writer` allows; paths are JSON pointers, `#` the root.

    Raises:
        UnreadableSchema: the two are too large to be compared.
    """
    if reader.digest == writer.digest:
        return iter(())
    return Pairs(compare_schemas, compare_same).differences(writer.root.schema, reader.root.schema)
