"""A history is what one side of a scenario did, and how it ended.

Normalising removes what may differ between two runs of the same scenario. Topic names become `<label>`, message ids
"L<n>, entry, partition, batch index" with ledgers numbered in the order of their appearance within a partition, long
payloads their length and hash. What comes out is JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import PurePath
from typing import Any, Final

LONGEST_TEXT: Final = 400
"""Texts with more characters are recorded as their length and hash."""

_LATEST: Final = 2**63 - 1


class NotRecordable(TypeError):
    """A value of a type that has no form in a history."""


class Normaliser:
    """For one run of one scenario, on one side. Not thread-safe."""

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}
        self._ledgers: dict[int, dict[int, int]] = {}

    def call(self, name: str, label: str) -> None:
        """Call `name` `<label>` from now on, wherever it stands in a text."""
        self._labels[name] = f"<{label}>"

    def value(self, value: Any) -> Any:
        """Raises NotRecordable."""
        match value:
            case Enum():
                return value.name
            case None | bool() | int() | float():
                return value
            case str():
                return self._text(value)
            case bytes() | bytearray():
                return self._text(bytes(value).decode("utf-8", "backslashreplace"))
            case timedelta():
                return f"{value.total_seconds()} s"
            case PurePath():
                return self._text(value.name)
            case Counter() | Mapping():
                plain = {str(self.value(key)): self.value(item) for key, item in value.items()}
                return dict(sorted(plain.items()))
            case Set():
                return sorted((self.value(item) for item in value), key=repr)
            case _ if is_message_id(value):
                return self._message_id(value)
            case _ if type(value).__module__ == "_pulsar" and hasattr(value, "name"):
                return value.name  # the official client's enumerations are its C extension's
            case list() | tuple() | Iterable():
                return [self.value(item) for item in value]
            case _:
                raise NotRecordable(f"a history holds plain values and message ids, not {type(value).__name__}")

    def _text(self, text: str) -> str:
        # Longest first: one topic's name may begin with another's.
        for name in sorted(self._labels, key=len, reverse=True):
            text = text.replace(name, self._labels[name])
        if len(text) > LONGEST_TEXT:
            return f"<{len(text)} characters, {hashlib.sha256(text.encode()).hexdigest()[:12]}>"
        return text

    def _message_id(self, found: Any) -> str:
        ledger, entry = found.ledger_id(), found.entry_id()
        where = f"partition {found.partition()}, batch index {found.batch_index()}"
        if ledger == -1 and entry == -1:
            return f"earliest, {where}"
        if ledger == entry == _LATEST:
            return f"latest, {where}"
        ranks = self._ledgers.setdefault(found.partition(), {})
        return f"L{ranks.setdefault(ledger, len(ranks))}, entry {entry}, {where}"


def is_message_id(value: object) -> bool:
    """Both classes of ids of both sides have these two calls, and nothing else has."""
    return callable(getattr(value, "ledger_id", None)) and callable(getattr(value, "entry_id", None))


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
