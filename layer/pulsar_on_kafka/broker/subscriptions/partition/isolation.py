"""Isolation: a suspect's last delivery happens alone in its process, beside the flow of messages that no one suspects.
No I/O, no clock.

A *process* here is one whose consumers get messages of the partition. What it is handed dies with it as a whole, so a
suspect that is alone there is the only one to blame. Everything else continues in the other processes, and in this one
between two bursts of suspects. A burst begins when the process has settled what it holds; it is busy until then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

BURST: Final = 16
"""Suspects that are delivered alone, one after the other, before other messages go to the process again."""
FLOW: Final = 128
"""Other entries that a process gets between two bursts, as far as there are any."""
BESIDE: Final = 64
"""Entries in the hands of a process at most where suspects go to it alone: they are before a suspect in its inboxes."""
UNBOUNDED: Final = 2**31
DRAIN_S: Final = 5.0
"""A process that settles nothing for so long gets other messages again; a burst is tried later."""
_UNSEEN: Final = 20


class ProcessLoad(NamedTuple):
    """A process as it is now. `out`: entries that this owner handed to it and that are not settled; `isolates`:
    suspects may go to it alone; `new`: messages that were never out could go to it."""

    process: str
    out: int
    isolates: bool
    new: bool
    now_s: float


class ProcessTurn(Enum):
    """The entries that a process may get."""

    FLOW = "everything but suspects at their last delivery"
    NOTHING = "nothing, until it has settled what it holds, or a save is accepted"
    ALONE = "one suspect"


@dataclass(slots=True)
class _Ward:
    turn: ProcessTurn = ProcessTurn.FLOW
    alone: int | None = None
    """The suspect that is out alone, or is to be as soon as a save counts it."""
    unseen: int = 0
    """The number of dispatches since then that did not find it, though it is not out."""
    burst: int = 0
    flowed: int = FLOW
    ended: int = 0
    """Suspects that were out alone here and are settled, or refused."""
    saved: int = 0
    """The number of these that an accepted save contains."""
    drained_to: int | None = None
    since_s: float = 0.0
    stalled: bool = False


class Isolation:
    """Memory: some numbers for each process."""

    def __init__(self) -> None:
        self._wards: dict[str, _Ward] = {}

    @property
    def in_use(self) -> bool:
        """Whether a suspect is alone in some process, or no accepted save contains yet how that ended."""
        return any(ward.alone is not None or ward.ended > ward.saved for ward in self._wards.values())

    @property
    def unsaved(self) -> bool:
        return any(ward.ended > ward.saved for ward in self._wards.values())

    def turn(self, place: ProcessLoad, *, lasts: bool, others: bool) -> ProcessTurn:
        """Returns what the process may get now. `lasts`: suspects at their last delivery wait, `others`: other
        entries."""
        ward = self._wards.setdefault(place.process, _Ward())
        ward.turn = self._turn(ward, place, lasts=lasts, others=others or place.new)
        return ward.turn

    def _turn(self, ward: _Ward, place: ProcessLoad, *, lasts: bool, others: bool) -> ProcessTurn:
        if ward.alone is not None:
            return ProcessTurn.ALONE
        rest = ProcessTurn.NOTHING if ward.ended > ward.saved else ProcessTurn.FLOW
        if not lasts or not place.isolates:
            ward.burst, ward.drained_to = 0, None
            return rest
        if not (ward.burst or ward.flowed >= FLOW or (not place.out and not others)):
            return rest
        if not place.out:
            ward.drained_to, ward.stalled = None, False
            return ProcessTurn.ALONE
        if ward.drained_to != place.out:
            ward.drained_to, ward.since_s = place.out, place.now_s
        elif place.now_s - ward.since_s >= DRAIN_S:
            ward.drained_to, ward.stalled = None, True
            ward.burst = ward.flowed = 0
            return rest
        return ProcessTurn.NOTHING

    def room(self, place: ProcessLoad) -> int:
        """Returns how many entries that are not delivered alone the process may get, by its last turn."""
        ward = self._wards.get(place.process)
        if ward is not None and ward.turn is not ProcessTurn.FLOW:
            return 0
        return max(0, BESIDE - place.out) if place.isolates else UNBOUNDED

    def is_stalled(self, process: str) -> bool:
        """Whether it did not settle what it holds, so that it got no suspect."""
        ward = self._wards.get(process)
        return ward is not None and ward.stalled

    def alone_in(self, process: str) -> int | None:
        return self._wards[process].alone

    def is_unsaved(self, process: str) -> bool:
        """Whether no accepted save contains yet how the last suspect ended that was alone there."""
        ward = self._wards[process]
        return ward.ended > ward.saved

    def alone(self) -> set[int]:
        return {ward.alone for ward in self._wards.values() if ward.alone is not None}

    def choose(self, process: str, offset: int) -> None:
        """This suspect is the next one that the process gets alone."""
        ward = self._wards[process]
        ward.alone, ward.unseen = offset, 0
        ward.flowed = 0
        ward.burst += 1

    def flowed(self, process: str, entries: int) -> None:
        ward = self._wards.get(process)
        if ward is not None and ward.alone is None:
            ward.flowed += entries

    def ends(self, offsets: Collection[int]) -> None:
        """These are settled, refused or given back."""
        for ward in self._wards.values():
            if ward.alone is not None and ward.alone in offsets:
                self._end(ward)

    def _end(self, ward: _Ward) -> None:
        ward.alone = None
        ward.ended += 1
        if ward.burst >= BURST:
            ward.burst = 0

    def begin(self, processes: Collection[str]) -> list[int]:
        """A dispatch to these processes begins. Returns suspects that were to go alone, and will not: their process is
        gone, or something of their key goes before them."""
        dropped = [self._wards.pop(process).alone for process in self._wards.keys() - processes]
        for ward in self._wards.values():
            ward.unseen += 1
            if ward.alone is not None and ward.unseen > _UNSEEN:
                dropped.append(ward.alone)
                self._end(ward)
        return [offset for offset in dropped if offset is not None]

    def sees(self, process: str) -> None:
        """The suspect is out, or could go out."""
        self._wards[process].unseen = 0

    def ended(self) -> Mapping[str, int]:
        """For a save: how many suspects have ended in each process."""
        return {process: ward.ended for process, ward in self._wards.items()}

    def accepted(self, ended: Mapping[str, int]) -> None:
        for process, number in ended.items():
            if process in self._wards:
                self._wards[process].saved = max(self._wards[process].saved, number)

    def clear(self) -> None:
        self._wards.clear()
