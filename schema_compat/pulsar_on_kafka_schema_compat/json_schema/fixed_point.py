"""Pairs of schemas are judged once and again until nothing changes: the greatest fixed point.

Every pair counts as compatible until a difference is found in it. When a pair turns out incompatible, the pairs that
relied on it are judged again, so that no optimistic answer outlives what it was founded on. There is no recursion.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from pulsar_on_kafka_schema_compat.base.schema_model import Difference, UnreadableSchema
from pulsar_on_kafka_schema_compat.json_schema.document_model import Place, Schema

MAX_PAIRS: Final = 200_000
# How often one pair may be shown at different paths, all pairs together; beyond, each is shown once.
_MAX_REPEATED: Final = 2_000


@dataclass(frozen=True, slots=True)
class Finding:
    """A pair itself differs; `step` is added to the pair's path."""

    step: str
    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class Within:
    """The pair is compatible only if this one is, whose differences are shown at `step`."""

    step: str
    writer: Schema
    reader: Schema


class Judge(Protocol):
    """A judge answers about other pairs while a pair is judged."""

    def accepts(self, writer: Place, reader: Place) -> bool:
        """Whether `reader` allows everything that `writer` allows, as far as known so far."""
        ...

    def same(self, one: Place, other: Place) -> bool:
        """Whether both have the same meaning, regardless of the names of their definitions."""
        ...


Compare = Callable[[Schema, Schema, Judge], Iterator[Finding | Within]]
_Pair = tuple[Schema, Schema, bool]


class Pairs:
    """Pairs are checked with `compare`, and with `compare_same` where both must have the same meaning."""

    def __init__(self, compare: Compare, compare_same: Compare) -> None:
        self._compare = {False: compare, True: compare_same}
        self._incompatible: set[_Pair] = set()
        self._relying: dict[_Pair, set[_Pair]] = {}
        self._waiting: deque[_Pair] = deque()
        self._current: _Pair | None = None

    def differences(self, writer: Schema, reader: Schema) -> Iterator[Difference]:
        """Every difference below that pair, by path from `#`.

        Raises:
            UnreadableSchema: more than `MAX_PAIRS` pairs would have to be compared.
        """
        root = (writer, reader, False)
        self._require(root)
        self._settle()
        if root in self._incompatible:
            yield from self._shown(root)

    def accepts(self, writer: Place, reader: Place) -> bool:
        return self._require((writer.schema, reader.schema, False))

    def same(self, one: Place, other: Place) -> bool:
        return self._require((one.schema, other.schema, True))

    def _require(self, pair: _Pair) -> bool:
        relying = self._relying.get(pair)
        if relying is None:
            if len(self._relying) >= MAX_PAIRS:
                raise UnreadableSchema(f"to compare the two takes more than {MAX_PAIRS} pairs of schemas")
            relying = self._relying[pair] = set()
            self._waiting.append(pair)
        if self._current is not None:
            relying.add(self._current)
        return pair not in self._incompatible

    def _settle(self) -> None:
        while self._waiting:
            self._current = self._waiting.popleft()
            if self._current not in self._incompatible and not self._holds(self._current):
                self._incompatible.add(self._current)
                self._waiting += self._relying[self._current] - self._incompatible
        self._current = None

    def _holds(self, pair: _Pair) -> bool:
        """False at the first difference; the others are looked for when they are to be shown."""
        writer, reader, same = pair
        return all(
            isinstance(found, Within) and self._require((found.writer, found.reader, same))
            for found in self._compare[same](writer, reader, self)
        )

    def _findings(self, pair: _Pair) -> list[Finding | Within]:
        """All that is found in `pair`, with every pair within it judged too."""
        writer, reader, same = pair
        while True:
            known = len(self._incompatible)
            found = list(self._compare[same](writer, reader, self))
            for one in found:
                if isinstance(one, Within):
                    self._require((one.writer, one.reader, same))
            self._settle()
            if len(self._incompatible) == known:
                return found

    def _shown(self, root: _Pair) -> Iterator[Difference]:
        """The differences of `root` and of the pairs within it, nearest first; no pair is entered within itself."""
        met: set[_Pair] = set()
        repeated = 0
        waiting: deque[tuple[str, _Pair, frozenset[_Pair]]] = deque([("#", root, frozenset())])
        while waiting:
            path, pair, around = waiting.popleft()
            if pair in around or (pair in met and repeated >= _MAX_REPEATED):
                continue
            repeated += pair in met
            met.add(pair)
            inside = around | {pair} if len(around) < 100 else around
            for found in self._findings(pair):
                if isinstance(found, Finding):
                    yield Difference(path + found.step, found.rule, found.message)
                elif (found.writer, found.reader, pair[2]) in self._incompatible:
                    waiting.append((path + found.step, (found.writer, found.reader, pair[2]), inside))
