"""What worker processes have written down (see `worker.py` for the lines), read while it grows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

Position: TypeAlias = tuple[int, int]
"""(partition, offset)"""


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
class Said:
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
    said: list[Said] = field(default_factory=list)
    acknowledged: dict[Position, float] = field(default_factory=dict)
    """When an acknowledgement was first about to be made."""
    durable: dict[Position, float] = field(default_factory=dict)
    """When it was first known to be durable."""
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
        kind, _, rest = line.partition(" ")
        if kind == "r":
            began, at, partition, offset, redeliveries = rest.split()
            position = (int(partition), int(offset))
            self.receipts.append(
                Receipt(self.worker, self._lines, float(began), float(at), position, int(redeliveries))
            )
            return
        time, _, text = rest.partition(" ")
        at_s = float(time)
        if kind == "a":
            partition, offset = text.split()
            self.acknowledged.setdefault((int(partition), int(offset)), at_s)
        elif kind == "d":
            for item in text.split():
                partition, _, offset = item.partition(":")
                self.durable.setdefault((int(partition), int(offset)), at_s)
        else:
            self.said.append(Said(kind, self._lines, at_s, text))

    def of_kind(self, kind: str) -> Iterator[Said]:
        return (said for said in self.said if said.kind == kind)

    def count(self, kind: str) -> int:
        return sum(1 for _ in self.of_kind(kind))

    def last(self, kinds: str) -> Said | None:
        return next((said for said in reversed(self.said) if said.kind in kinds), None)
