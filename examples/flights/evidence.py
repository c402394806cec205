"""Read what the consuming processes have written down (see `worker.py` for the form of the lines)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from flights.data import FlightId

RECEIVED = "r"
DURABLE = "d"


class Event(NamedTuple):
    """Something that one process did with these flights."""

    kind: str
    at_s: float
    flights: tuple[FlightId, ...]


class Follower:
    """Reads an evidence file while it grows."""

    def __init__(self, path: Path) -> None:
        self.events: list[Event] = []
        """Everything read so far, in the order it was written."""
        self._path = path
        self._position = 0

    def read_on(self) -> list[Event]:
        """What was added since the last call. A line that a SIGKILL cut off was never said."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._position)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._position += len(whole)
        events = [_event(line) for line in whole.decode().splitlines()]
        self.events += events
        return events


def _event(line: str) -> Event:
    kind, at_s, *flights = line.split()
    return Event(kind, float(at_s), tuple(map(int, flights)))
