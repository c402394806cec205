"""The resolution of two schemas is the set of pairs of types that are readable: the greatest that does not contradict
itself.

A pair needs other pairs: all of its parts, or one branch of the reader's union. Each counts as readable until something
speaks against it; then those that need it are looked at again. So a pair that needs itself is readable if nothing else
is wrong, an answer that was too optimistic never lasts, and no depth costs recursion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from pulsar_on_kafka.schema_compat.avro.avro_types import AvroType, Record, Union
from pulsar_on_kafka.schema_compat.avro.defaults import Defaults
from pulsar_on_kafka.schema_compat.avro.type_matching import candidates, has_default, mismatch, missing_fields, parts
from pulsar_on_kafka.schema_compat.base.schema_model import UnreadableSchema

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
            if isinstance(reader, Record):
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
