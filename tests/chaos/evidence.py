"""Worker processes write evidence down (see `worker.py` for the lines); it is read while it grows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

NEVER = float("inf")
_OF_THE_MEMBER = "holvt"
"""What the member's thread says, not the application's."""


class Position(NamedTuple):
    """One message: `index` is its place in a batch entry, 0 in an entry of its own."""

    partition: int
    offset: int
    index: int = 0  # type: ignore[assignment]  # a method of tuples that nobody asks a message for

    @classmethod
    def parse(cls, text: str) -> Position:
        return cls(*map(int, text.split(":")))

    def __str__(self) -> str:
        return f"{self.partition}:{self.offset}:{self.index}"


@dataclass(frozen=True, slots=True)
class Receipt:
    """One message received; `line` is its place among everything its process said."""

    worker: str
    line: int
    began: float
    at: float
    position: Position
    redeliveries: int


@dataclass(frozen=True, slots=True)
class HandOut:
    """One message put into a consumer's inbox."""

    worker: str
    line: int
    at: float
    position: Position


@dataclass(slots=True)
class Acknowledgement:
    """About to be made at `made`, done at `done`, known to be durable at `durable`. A cumulative one covers all before
    it, too. Its process was handed the message at `handed`: a seek since then makes the acknowledgement void."""

    position: Position
    cumulative: bool
    made: float
    handed: float
    done: float = NEVER
    durable: float = NEVER


@dataclass(slots=True)
class Seek:
    """A seek in one partition: `after` and what is before it count as acknowledged, all behind as not.

    `end` is infinite when nobody knows whether it was done.
    """

    after: Position
    begin: float
    end: float = NEVER

    def resets(self, position: Position) -> bool:
        return position > self.after


@dataclass(frozen=True, slots=True)
class EvidenceLine:
    """Any other line."""

    kind: str
    line: int
    at: float
    text: str


@dataclass
class Testimony:
    """Everything one process has said so far."""

    worker: str
    path: Path
    receipts: list[Receipt] = field(default_factory=list)
    hand_outs: list[HandOut] = field(default_factory=list)
    said: list[EvidenceLine] = field(default_factory=list)
    acknowledgements: list[Acknowledgement] = field(default_factory=list)
    seeks: list[Seek] = field(default_factory=list)
    acknowledged: dict[Position, float] = field(default_factory=dict)
    """When an acknowledgement of a message (not cumulative) was first about to be made."""
    durable: dict[Position, float] = field(default_factory=dict)
    """When it was first known to be durable."""
    _newest: dict[str, Acknowledgement] = field(default_factory=dict)
    _handed: dict[Position, float] = field(default_factory=dict)
    _received: dict[Position, float] = field(default_factory=dict)
    """When what was received last had been handed out."""
    _seeking: Seek | None = None
    _position: int = 0
    _lines: int = 0

    def read_on(self) -> None:
        """Take in what was added. A line that a SIGKILL cut off was never said."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._position)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._position += len(whole)
        for line in whole.decode().splitlines():
            self._take(line)

    def _take(self, line: str) -> None:
        self._lines += 1
        kind, time, *words = line.split(" ")
        at = float(time)
        if kind not in _OF_THE_MEMBER and self.acknowledgements:
            self.acknowledgements[-1].done = min(at, self.acknowledgements[-1].done)
        if kind == "r":
            received, place, redeliveries = words
            position = Position.parse(place)
            self._received[position] = self._handed.get(position, at)
            self.receipts.append(Receipt(self.worker, self._lines, at, float(received), position, int(redeliveries)))
        elif kind == "h":
            handed = [HandOut(self.worker, self._lines, at, Position.parse(word)) for word in words]
            self.hand_outs += handed
            self._handed |= dict.fromkeys((one.position for one in handed), at)
        elif kind in "aA":
            position = Position.parse(words[0])
            made = Acknowledgement(position, kind == "A", at, self._received.get(position, at))
            self.acknowledgements.append(made)
            self._newest[kind + words[0]] = made
            if kind == "a":
                self.acknowledged.setdefault(position, at)
        elif kind == "d":
            for word in words:
                made = self._newest[word]
                made.durable = min(made.durable, at)
                if not made.cumulative:
                    self.durable.setdefault(made.position, at)
        elif kind == "k":
            self._seeking = Seek(Position.parse(words[0]), at)
            self.seeks.append(self._seeking)
        else:
            if kind == "K" and self._seeking is not None:
                self._seeking.end = at
            self.said.append(EvidenceLine(kind, self._lines, at, " ".join(words)))

    def of_kind(self, kind: str) -> Iterator[EvidenceLine]:
        return (said for said in self.said if said.kind == kind)

    def count(self, kind: str) -> int:
        return sum(1 for _ in self.of_kind(kind))

    def last(self, kinds: str) -> EvidenceLine | None:
        return next((said for said in reversed(self.said) if said.kind in kinds), None)
