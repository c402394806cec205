"""What one producer knows of the sequence ids of its name in one partition. Pure.

Pulsar's rule: a message is new when its sequence id is above the highest one of its producer name. This keeps to it,
and knows more than Pulsar's broker about what failed: an id that certainly was not stored may be sent again, also when
higher ones were stored meanwhile (Pulsar takes it for a duplicate and loses it).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from typing import Final

MAX_ABSENT: Final = 100_000
"""Ids that failed and were not sent again, and are remembered as not stored; the lowest are forgotten first."""


class Verdict(Enum):
    """NEW: to be stored. DUPLICATE: stored already. PENDING: the answer of what is under way decides. UNKNOWN: a send
    failed that may have been stored; the log has to be read (`found`)."""

    NEW = "new"
    DUPLICATE = "duplicate"
    PENDING = "pending"
    UNKNOWN = "unknown"


class PartitionSequences:
    """Sequence ids of one producer name in one partition. One caller at a time.

    Memory: an int for each message that is under way again after a failure or failed without being sent again, at most
    `MAX_ABSENT` and `max_pending_messages`.
    """

    def __init__(self, stored: int = -1, read_from: int = 0) -> None:
        """`stored`: the highest id in the log, -1 for none. `read_from`: nothing of ours at or beyond this offset is
        unknown yet."""
        self.stored = stored
        self.pushed = stored
        self.read_from = read_from
        """Where reading has to begin to find what a failed send may have left."""
        self.unanswered = 0
        self._absent: set[int] = set()
        self._again: set[int] = set()
        self._doubtful: dict[int, Sequence[int]] = {}
        """By their first id, the ids of records that failed and may have been stored."""

    @property
    def doubtful(self) -> bool:
        return bool(self._doubtful)

    @property
    def settled(self) -> bool:
        """Everything that was sent is known to be stored or not."""
        return not self.unanswered and not self._doubtful

    def judge(self, sequence: int) -> Verdict:
        if self._doubtful:
            return Verdict.UNKNOWN
        if sequence > self.pushed or sequence in self._absent:
            return Verdict.NEW
        if sequence > self.stored or sequence in self._again:
            return Verdict.PENDING
        return Verdict.DUPLICATE

    def taken(self, sequence: int) -> None:
        """A NEW one is on its way."""
        self.unanswered += 1
        if self._absent:
            self._absent.discard(sequence)
        if sequence > self.pushed:
            self.pushed = sequence
        else:
            self._again.add(sequence)

    def stored_at(self, sequences: Sequence[int], offset: int | None) -> None:
        """The record with these ids is in the log; `offset` None: nobody knows where."""
        self._answered(sequences)
        self.stored = max(self.stored, max(sequences))
        if offset is not None and not self._doubtful:
            # Reports come in the order of sending: what may be left of earlier ones lies before this one.
            self.read_from = max(self.read_from, offset + 1)
        self._settle()

    def failed(self, sequences: Sequence[int], *, certainly: bool) -> None:
        """The record with these ids failed, `certainly` without being stored."""
        self._answered(sequences)
        if certainly:
            self._remember_absent(sequences)
        else:
            self._doubtful[sequences[0]] = sequences
        self._settle()

    def found(self, firsts: Collection[int], end: int) -> None:
        """The log was read from `read_from` to `end`: our records there begin with these ids."""
        for first, sequences in self._doubtful.items():
            if first in firsts:
                self.stored = max(self.stored, max(sequences))
            else:
                self._remember_absent(sequences)
        self._doubtful.clear()
        self.read_from = max(self.read_from, end)
        self._settle()

    def _answered(self, sequences: Sequence[int]) -> None:
        self.unanswered -= len(sequences)
        if self._again:
            self._again.difference_update(sequences)

    def _remember_absent(self, sequences: Iterable[int]) -> None:
        self._absent.update(sequences)
        if len(self._absent) > MAX_ABSENT:  # a tenth at once: sorting takes long
            self._absent = set(sorted(self._absent)[-MAX_ABSENT * 9 // 10 :])

    def _settle(self) -> None:
        if not self.unanswered and not self._doubtful:
            self.pushed = self.stored  # nothing above it is under way: new, whether it was tried before or not
