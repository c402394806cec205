"""The checker of Avro text parses definitions, caches the small ones, and reports where and why a reader's schema
cannot read a writer's.

The resolution of two schemas is the set of pairs of types that are readable: the greatest that does not contradict
itself. A pair needs other pairs: all of its parts, or one branch of the reader's union. Each counts as readable until a
contradiction; then its dependents are examined again. So a pair that needs itself is readable if nothing else is wrong,
a too optimistic result never lasts, and no depth costs recursion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Final

from pulsar_on_kafka_schema_compat.avro.avro_parsing import parse_avro
from pulsar_on_kafka_schema_compat.avro.avro_types import (
    ROOT,
    AvroEnum,
    AvroRecord,
    AvroType,
    Fixed,
    Pointer,
    Union,
    candidates,
    described,
    has_default,
    kind_of,
    mismatch,
    missing_fields,
    names_match,
    parts,
)
from pulsar_on_kafka_schema_compat.avro.defaults import Defaults
from pulsar_on_kafka_schema_compat.base.schema_model import Difference, SchemaInfo, UnreadableSchema

Pair = tuple[AvroType, AvroType]
"""A reader's and a writer's type."""

MAX_STEPS: Final = 1_000_000
"""Looks at a field, a branch or a part in one comparison: above that two schemas are too large to be compared."""


class Resolution:
    """A resolution is the verdict on a reader's and a writer's schema and on every pair of types that it rests on.

    Args:
        assumed: pairs that count as readable, whatever speaks against them.
        max_steps: how many looks it may take.
    Raises:
        UnreadableSchema: it takes more than `max_steps`.
    """

    def __init__(
        self,
        reader: AvroType,
        writer: AvroType,
        *,
        defaults: Defaults | None = None,
        assumed: Collection[Pair] = (),
        max_steps: int = MAX_STEPS,
    ) -> None:
        self.defaults = defaults or Defaults()
        self.steps = 0
        self._assumed = assumed
        self._max_steps = max_steps
        self._refused: set[Pair] = set()
        self._needed_by: dict[Pair, list[Pair]] = {}
        self._choices: dict[Pair, Iterator[AvroType]] = {}
        self._to_meet: list[Pair] = []
        self._need((reader, writer), None)
        while self._to_meet:
            self._meet(self._to_meet.pop())

    def reads(self, reader: AvroType, writer: AvroType) -> bool:
        """True when `reader` can read what was written as `writer`; both are types of the two schemas that met."""
        return (reader, writer) not in self._refused

    def _need(self, pair: Pair, by: Pair | None) -> None:
        """Note that `by` holds only as long as `pair` does."""
        self._spend(1)
        if pair not in self._needed_by:
            self._needed_by[pair] = []
            self._to_meet.append(pair)
        if by is not None:
            self._needed_by[pair].append(by)

    def _spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > self._max_steps:
            raise UnreadableSchema(f"the two schemas are too large to be compared in {self._max_steps} steps")

    def _meet(self, pair: Pair) -> None:
        reader, writer = pair
        if pair in self._assumed:
            return
        if isinstance(writer, Union):
            needed = [(reader, branch) for branch in writer.branches]
        elif isinstance(reader, Union):
            self._choices[pair] = candidates(reader, writer)
            if not self._rest_on_next_branch(pair):
                self._refuse(pair)
            return
        else:
            if isinstance(reader, AvroRecord):
                self._spend(len(reader.fields))
            if mismatch(reader, writer) or self._lacks_defaults(reader, writer):
                self._refuse(pair)
            needed = [(inner, written) for _, inner, written in parts(reader, writer)]
        for one in needed:
            self._need(one, pair)
            if one in self._refused:
                self._refuse(pair)

    def _lacks_defaults(self, reader: AvroType, writer: AvroType) -> bool:
        return any(not has_default(field) or self.defaults.misfit(field) for _, field in missing_fields(reader, writer))

    def _rest_on_next_branch(self, pair: Pair) -> bool:
        """Rest the pair of a reader's union on its next branch that is not refused; False when there is none left."""
        for branch in self._choices[pair]:
            if (branch, pair[1]) not in self._refused:
                self._need((branch, pair[1]), pair)
                return True
        return False

    def _refuse(self, pair: Pair) -> None:
        """Take a pair out, and with it all that rests on it."""
        refused = [pair]
        while refused:
            one = refused.pop()
            if one in self._refused or (one in self._choices and self._rest_on_next_branch(one)):
                continue
            self._refused.add(one)
            refused += self._needed_by[one]


MAX_PATH_CHARACTERS: Final = 4_000_000
"""The limit of all paths of a comparison together; at least one difference is always reported."""
_CAUSES_EXPLAINED: Final = 200
_STEPS_TO_CAUSE: Final = 50
_STEPS_TO_LEAVE_OUT: Final = 300_000


def differences(reader: AvroType, writer: AvroType) -> list[Difference]:
    """Everything in `reader` that cannot read what was written with `writer`; nothing when it can read it.

    A pair of records is reported where the reader meets it first. Where it is met again inside itself it counts as
    readable, so that a union that leads back to it is not reported for what is wrong elsewhere.

    Raises:
        UnreadableSchema: the two are too large to be compared.
    """
    found: list[Difference] = []
    characters = 0
    for one in _Report(Resolution(reader, writer)).below(reader, writer):
        found.append(one)
        characters += len(one.path)
        if characters > MAX_PATH_CHARACTERS:
            break
    return found


@dataclass(frozen=True, eq=False, slots=True)
class _Inside:
    """The walk is inside of these pairs of records, innermost first."""

    pair: Pair
    outer: _Inside | None

    def pairs(self) -> set[Pair]:
        found = {self.pair}
        outer = self.outer
        while outer is not None:
            found.add(outer.pair)
            outer = outer.outer
        return found


class _Report:
    def __init__(self, resolution: Resolution) -> None:
        self._resolution = resolution
        self._causes_left = _CAUSES_EXPLAINED
        self._steps_left = _STEPS_TO_LEAVE_OUT

    def below(self, reader: AvroType, writer: AvroType) -> Iterator[Difference]:
        for pair, at, inside in self._refused_below(reader, writer):
            yield from self._of(pair, at, inside)

    def _refused_below(self, reader: AvroType, writer: AvroType) -> Iterator[tuple[Pair, Pointer, _Inside | None]]:
        """The refused pairs that lead from these two to what is wrong, in the reader's order."""
        records: set[Pair] = set()
        stack: list[tuple[Pair, Pointer, _Inside | None]] = [((reader, writer), ROOT, None)]
        while stack:
            pair, at, inside = stack.pop()
            if self._resolution.reads(*pair) or pair in records:
                continue
            yield pair, at, inside
            if isinstance(pair[0], AvroRecord):
                records.add(pair)
                inside = _Inside(pair, inside)
            if not any(isinstance(side, Union) for side in pair):
                below = [((inner, written), at.to(*steps), inside) for steps, inner, written in parts(*pair)]
                stack += reversed(below)

    def _follows_from(self, inside: _Inside | None, pair: Pair) -> bool:
        """True when nothing is wrong with the pair but that it leads back to one that the walk is inside of."""
        if inside is None or self._steps_left <= 0:
            return False
        assumed = inside.pairs()
        try:
            resolution = Resolution(
                *pair, defaults=self._resolution.defaults, assumed=assumed, max_steps=self._steps_left
            )
        except UnreadableSchema:
            self._steps_left = 0  # rather something twice than nothing
            return False
        self._steps_left -= resolution.steps + len(assumed)
        return resolution.reads(*pair)

    def _of(self, pair: Pair, at: Pointer, inside: _Inside | None) -> Iterator[Difference]:
        reader, writer = pair
        if isinstance(writer, Union):
            for index, branch in enumerate(writer.branches):
                if not self._resolution.reads(reader, branch) and not self._follows_from(inside, (reader, branch)):
                    yield Difference(
                        str(at.to(index)),
                        "MISSING_UNION_BRANCH",
                        f"the reader's {described(reader)} does not read branch {index} of the writer's union, "
                        f"{described(branch)}{self._cause(reader, branch)}",
                    )
        elif isinstance(reader, Union):
            if not self._follows_from(inside, pair):
                yield Difference(
                    str(at),
                    "MISSING_UNION_BRANCH",
                    f"no branch of the reader's {described(reader)} reads the writer's {described(writer)}"
                    f"{self._cause(reader, writer)}",
                )
        else:
            for rule, member in mismatch(reader, writer):
                yield Difference(str(at.to(member) if member else at), rule, _facing(reader, writer, member))
            yield from self._defaults(reader, writer, at)

    def _defaults(self, reader: AvroType, writer: AvroType, at: Pointer) -> Iterator[Difference]:
        for index, field in missing_fields(reader, writer):
            what = (
                f"the reader's {described(reader)} has the field {field.name:.100} of type {described(field.type)}, "
                f"the writer's {described(writer)} does not, and "
            )
            if not has_default(field):
                rule, why, place = "READER_FIELD_MISSING_DEFAULT_VALUE", "it has no default", at.to("fields", index)
            elif reason := self._resolution.defaults.misfit(field):
                rule, why = "INVALID_DEFAULT", f"its default is not of its type: {reason}"
                place = at.to("fields", index, "default")
            else:
                continue
            yield Difference(str(place), rule, what + why)

    def _cause(self, reader: AvroType, writer: AvroType) -> str:
        """The first fault of the intended branch, where it can be found in few steps."""
        if isinstance(reader, Union):
            meant = next(candidates(reader, writer), None)
            if meant is None or not _same_name(meant, writer):
                return ""
            reader = meant
        if self._causes_left == 0 or kind_of(reader) != kind_of(writer):
            return ""
        self._causes_left -= 1
        for (inner, written), at, _ in islice(self._refused_below(reader, writer), _STEPS_TO_CAUSE):
            if isinstance(inner, Union) or isinstance(written, Union):
                return f"; there, {at} differs: {described(inner)} and {described(written)}"
            for one in self._of((inner, written), at, None):
                return f"; there, {one.rule} at {one.path}: {one.message}"
        return ""


def _same_name(reader: AvroType, writer: AvroType) -> bool:
    if isinstance(reader, AvroEnum | Fixed | AvroRecord) and isinstance(writer, AvroEnum | Fixed | AvroRecord):
        return names_match(reader, writer)
    return kind_of(reader) == kind_of(writer)


def _facing(reader: AvroType, writer: AvroType, member: str) -> str:
    if member == "size" and isinstance(reader, Fixed) and isinstance(writer, Fixed):
        return f"the reader's {described(reader)} has {reader.size} bytes, the writer's {writer.size}"
    return f"the reader has {described(reader)}, the writer {described(writer)}"


_KEPT_BYTES: Final = 32_768


@dataclass(frozen=True, eq=False, slots=True)
class ParsedAvroSchema:
    """A definition defines a type."""

    text: bytes
    type: AvroType


class AvroChecker:
    """The checker judges definitions that are Avro text: AVRO, PROTOBUF and most of JSON."""

    def parse(self, schema: SchemaInfo) -> ParsedAvroSchema:
        parse = _parse_small if len(schema.schema) <= _KEPT_BYTES else _parse
        return parse(schema.schema)

    def differences(self, reader: ParsedAvroSchema, writer: ParsedAvroSchema) -> list[Difference]:
        return [] if reader.text == writer.text else differences(reader.type, writer.type)


def _parse(text: bytes) -> ParsedAvroSchema:
    return ParsedAvroSchema(text, parse_avro(text))


# A registry checks the same versions repeatedly.
_parse_small = lru_cache(maxsize=64)(_parse)

AVRO_CHECKER = AvroChecker()
