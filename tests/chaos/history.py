"""The history of acknowledgements, and of seeks that undo them, as far as it can be told from outside. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable

from tests.chaos.evidence import NEVER, Acknowledgement, Position, Seek

_BEGINNING = -1.0


class History:
    """Every acknowledgement has a time when it was about to be made and one when it was known to be durable; every seek
    a beginning and an end. What happened between is taken the way that accuses nobody. `leased`: an acknowledgement
    travels to the partition's owner, and counts there although a seek was done meanwhile, as any late one."""

    def __init__(
        self,
        sent: Iterable[Position],
        by_worker: Iterable[Iterable[Acknowledgement]],
        seeks: Iterable[Seek],
        *,
        leased: bool = False,
    ) -> None:
        self._leased = leased
        self._sent: dict[int, list[Position]] = defaultdict(list)
        for position in sorted(sent):
            self._sent[position.partition].append(position)
        self._seeks: dict[int, list[Seek]] = defaultdict(list)
        for seek in seeks:
            self._seeks[seek.after.partition].append(seek)
        self._made: dict[Position, list[Acknowledgement]] = defaultdict(list)
        self._seen: dict[Position, list[tuple[float, float]]] = defaultdict(list)
        for acknowledgements in by_worker:
            self._take(acknowledgements)

    def _take(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        cumulative: dict[int, Acknowledgement] = {}
        for made in acknowledgements:
            if not made.cumulative:
                self._made[made.position].append(made)
                continue
            before = cumulative.get(made.position.partition)
            cumulative[made.position.partition] = made
            for position in self._covered(made, before):
                self._made[position].append(made)

    def _covered(self, made: Acknowledgement, before: Acknowledgement | None) -> list[Position]:
        """What a cumulative acknowledgement may have changed since the same process's last one."""
        there = self._sent[made.position.partition]
        start = 0
        if before is not None:
            undone = [seek.after for seek in self._seeks[made.position.partition] if seek.end > before.made]
            start = bisect_right(there, min([before.position, *undone]))
        return there[start : bisect_right(there, made.position)]

    def saw(self, position: Position, asked: float, at: float) -> None:
        """An answer of Kafka's calls it acknowledged."""
        self._seen[position].append((asked, at))

    def seek_between(self, partition: int, began: float, ended: float) -> bool:
        return any(seek.begin < ended and seek.end > began for seek in self._seeks[partition])

    def seeks_begun(self, partition: int, at: float) -> int:
        return sum(seek.begin < at for seek in self._seeks[partition])

    def reset_between(self, position: Position, began: float, ended: float) -> bool:
        return any(
            seek.resets(position) and seek.begin < ended and seek.end > began
            for seek in self._seeks[position.partition]
        )

    def is_acknowledged(self, position: Position, asked: float, at: float) -> bool:
        """Whether it may be, in a state that an answer asked for at `asked` and given at `at` tells."""
        seeks = self._seeks[position.partition]
        since = max((seek.begin for seek in seeks if seek.resets(position) and seek.end < asked), default=_BEGINNING)

        def in_force(made: Acknowledgement) -> float:
            return made.durable if self._leased else made.done

        return any(in_force(made) > since and made.made < at for made in self._made.get(position, ())) or any(
            not seek.resets(position) and seek.begin < at and seek.end > since for seek in seeks
        )

    def durable_since(self, position: Position, at: float) -> float | None:
        """Since when it is certain at `at` that it is acknowledged for good; None when it is not."""
        said = ((made.handed, made.durable) for made in self._made.get(position, ()))
        return min(
            (
                durable
                for since, durable in (*said, *self._seen.get(position, ()))
                if durable < at and not self.reset_between(position, since, at)
            ),
            default=None,
        )

    def said(self, position: Position) -> list[float]:
        """When processes were about to acknowledge it."""
        return [made.made for made in self._made.get(position, ())]

    def acknowledged(self) -> set[Position]:
        return set(self._made)

    def durable(self) -> set[Position]:
        """What a process has said to be durable."""
        return {position for position, made in self._made.items() if any(one.durable < NEVER for one in made)}
