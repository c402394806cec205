"""The properties of a dead letter, sorted for its page: those of its message, the records of its death, and stacks.
Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.admin.letters import OF_THE_POLICY, DeadLetter
from pulsar_on_kafka.console.formatting import shortened

MAX_PROPERTIES: Final = 100
"""Properties that are shown."""


@dataclass(frozen=True, slots=True)
class ShownLetter:
    """The texts of a letter. `stacks` are properties of several lines, such as the stack of an exception."""

    reason: str
    stacks: tuple[tuple[str, str], ...]
    properties: tuple[tuple[str, str], ...]
    """Other properties of its message."""
    records: tuple[tuple[str, str], ...]
    """Properties that the dead letter policy has added."""
    left_out: int
    """Properties that are not shown."""


def shown_letter(letter: DeadLetter) -> ShownLetter:
    """The texts of a letter. A property that is the reason is not repeated."""
    everything = sorted((name, shortened(value)) for name, value in letter.message.properties.items())
    reason = shortened(letter.reason)
    own = [(name, value) for name, value in everything if name not in OF_THE_POLICY and value != reason]
    stacks = [each for each in own if "\n" in each[1].strip()]
    plain = [each for each in own if "\n" not in each[1].strip()]
    return ShownLetter(
        reason,
        tuple(stacks[:MAX_PROPERTIES]),
        tuple(plain[:MAX_PROPERTIES]),
        tuple(each for each in everything if each[0] in OF_THE_POLICY),
        max(0, len(stacks) - MAX_PROPERTIES) + max(0, len(plain) - MAX_PROPERTIES),
    )
