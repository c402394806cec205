"""A history is what one side of a scenario did, and how it ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Side(str, Enum):
    """The sides of a scenario: Pulsar, and this package on Kafka; the value names the module that the scenario is
    given."""

    PULSAR = "pulsar"
    KAFKA = "pulsar_on_kafka"


class Ending(str, Enum):
    """Endings of a side."""

    DONE = "done"
    FAILED = "failed"
    """The scenario raised what it did not expect."""
    NOT_SUPPORTED = "not supported"
    """Our SDK said that it does not have this."""
    CRASHED = "crashed"
    TIMED_OUT = "timed out"
    NOT_PLAYED = "not played"
    """What it needs is not here."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that was recorded. `value` is JSON."""

    what: str
    value: Any

    def line(self) -> str:
        """For people and for comparing: equal lines are equal events."""
        return f"{self.what}: {json.dumps(self.value, ensure_ascii=False, sort_keys=True)}"


@dataclass(frozen=True, slots=True)
class SideResult:
    """`reason` says why the side did not end with DONE; `detail` is its traceback or the end of its output.

    `driven_by` says by what the side was moved: an official client ("python", "java"), "rest" when the REST API had a
    part in it, "pulsar_on_kafka" for our SDK.
    """

    ending: Ending
    events: tuple[Event, ...] = ()
    reason: str = ""
    detail: str = ""
    seconds: float = 0.0
    driven_by: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The history, one line an event; an ending other than DONE is the last line."""
        ended = [] if self.ending is Ending.DONE else [f"{self.ending.value}: {self.reason}"]
        return [event.line() for event in self.events] + ended


def read_result(lines: Sequence[str]) -> tuple[tuple[Event, ...], dict[str, Any] | None]:
    """The result that a worker wrote: its events, and its last word (None when it was cut off before)."""
    events: list[Event] = []
    for line in lines:
        try:
            found = json.loads(line)
        except ValueError:
            break  # cut off in the middle of a line
        if "ending" in found:
            return tuple(events), found
        events.append(Event(found["what"], found["value"]))
    return tuple(events), None
