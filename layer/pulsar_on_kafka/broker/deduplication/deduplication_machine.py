"""The deduplication machine judges sequence ids of one producer name in one partition. Pure.

Pulsar's rule: a message is new when its sequence id is above the highest one of its producer name. The machine applies
it, with better information about failures than Pulsar's broker: an id that certainly was not stored may be resent, also
when higher ones were stored meanwhile (Pulsar discards it as a duplicate). So may the ids of an aborted transaction;
while it is open only the transaction itself knows whether its ids are stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.codecs.layouts import compressed

MAX_ABSENT_BYTES: Final = 64 * 1024
"""Limit of the compressed bitmap of the ids of one name in one partition that failed, or were given back by an aborted
transaction, and were not sent again: in memory and on record. The lowest ids are forgotten first, and what has one of
these is refused from then on."""
_LISTED_TOGETHER: Final = 100_000
"""Ids of one record that are listed one by one."""


class DeduplicationVerdict(Enum):
    """NEW: to be stored. DUPLICATE: stored already. PENDING: the answer of what is under way decides. UNKNOWN: a send
    failed that may have been stored; the log has to be read (`found`). UNDECIDED: it depends on transactions of others,
    whose outcome has to be looked up (`undecided`, `decided`). FORGOTTEN: too many ids were free again to remember
    whether this one is stored or free."""

    NEW = "new"
    DUPLICATE = "duplicate"
    PENDING = "pending"
    UNKNOWN = "unknown"
    UNDECIDED = "undecided"
    FORGOTTEN = "forgotten"


def _listed(sequences: Sequence[int]) -> Sequence[int]:
    """The ids of a record. Of a range above `_LISTED_TOGETHER` the first and the last one, by which the record is
    judged: a writer may put any number into a header."""
    first, last = sequences[0], sequences[-1]
    whole = not isinstance(sequences, range) or last - first < _LISTED_TOGETHER
    return sequences if whole else (first, last)


class SequenceIds:
    """A set of sequence ids. Up to `forgotten_upto` some ids of the set may be missing; -1: none is missing."""

    __slots__ = ("forgotten_upto", "ids")

    def __init__(self, ids: Iterable[int] = (), forgotten_upto: int = -1) -> None:
        self.ids = BitMap64(ids)
        self.forgotten_upto = forgotten_upto

    def add(self, sequences: Sequence[int]) -> None:
        """Add the ids of a record."""
        listed = _listed(sequences)
        if listed is not sequences:
            self.forgotten_upto = max(self.forgotten_upto, listed[-1] - 1)
        self.ids.update(each for each in listed if each >= 0)

    def update(self, other: SequenceIds) -> None:
        """Add the ids of another set."""
        self.ids |= other.ids
        self.forgotten_upto = max(self.forgotten_upto, other.forgotten_upto)

    def shrink(self) -> None:
        """Forget the lowest ids until the others fit into `MAX_ABSENT_BYTES`."""
        while len(compressed(self.ids)) > MAX_ABSENT_BYTES:
            at = len(self.ids) // 10
            self.forgotten_upto = max(self.forgotten_upto, int(self.ids[at]))
            self.ids = self.ids[at + 1 :]

    def remove_range(self, first: int, last: int) -> None:
        if self.ids:
            self.ids.remove_range(max(0, first), last + 1)


class Undecided:
    """Sequence ids that a transaction stored whose outcome is not known, and an offset that none of its records lies
    below."""

    __slots__ = ("offset", "sequences")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.sequences = SequenceIds()

    @property
    def ids(self) -> BitMap64:
        return self.sequences.ids


class PartitionSequences:
    """Sequence ids of one producer name in one partition. One caller at a time.

    Memory: an int for each message that is under way, again after a failure or in a transaction, at most
    `max_pending_messages`; for all that failed or were aborted without being sent again a bitmap of `MAX_ABSENT_BYTES`;
    a compressed bitmap of the ids of each transaction whose outcome was not looked up yet.
    """

    def __init__(
        self, stored: int = -1, read_from: int = 0, absent: Iterable[int] = (), forgotten_upto: int = -1
    ) -> None:
        """`stored`: the highest id in the log, -1 for none. `read_from`: the offset from which records of this producer
        may be unknown. `absent`: ids that are not in the log, whatever is stored above them; up to `forgotten_upto`
        some may be missing."""
        self.stored = stored
        self.pushed = stored
        self.read_from = read_from
        """The offset from which to read the records that a failed send may have left."""
        self.unanswered = 0
        self.gave_up = False
        """A send failed that was not known to be stored, nor not to be: its request may still arrive."""
        self._absent = SequenceIds(absent, forgotten_upto)
        self._again: set[int] = set()
        self._doubtful: dict[int, tuple[Sequence[int], TxnId | None]] = {}
        """Records that failed and may have been stored, by their first id: their ids and transaction."""
        self._sent_in: dict[int, TxnId] = {}
        """The transactions of messages under way."""
        self._undecided: dict[TxnId, Undecided] = {}

    @property
    def settled(self) -> bool:
        """Everything that was sent is known to be stored or not."""
        return not self.unanswered and not self._doubtful

    @property
    def doubtful(self) -> bool:
        """The log has to be read to know what was stored."""
        return bool(self._doubtful)

    @property
    def absent(self) -> BitMap64:
        """Ids that failed, and may be sent again."""
        return self._absent.ids.copy()

    @property
    def forgotten_upto(self) -> int:
        """Up to this id some may be absent that `absent` lacks."""
        return self._absent.forgotten_upto

    @property
    def undecided(self) -> Collection[TxnId]:
        """Transactions that stored something and whose outcome is not known."""
        return self._undecided.keys()

    def known_upto(self, end: int) -> int:
        """Below which offset everything is known, when the log ends at `end`. The request of a send that was given up
        may have arrived since the log was last read."""
        end = min(end, self.read_from) if self.gave_up else end
        return min([end, *(held.offset for held in self._undecided.values())])

    def judge(self, sequence: int, txn: TxnId | None = None) -> DeduplicationVerdict:
        """The verdict on a message of the transaction `txn`, or of none."""
        if self._doubtful:
            return DeduplicationVerdict.UNKNOWN
        if sequence in self._absent.ids:
            return DeduplicationVerdict.NEW
        if sequence in self._again:
            return DeduplicationVerdict.PENDING
        if self._undecided and sequence <= self.pushed:
            depends_on = self.depends_on(sequence)
            stored_by = {each for each in depends_on if sequence in self._undecided[each].ids}
            if txn in (stored_by or depends_on):
                is_known = stored_by or sequence > self._absent.forgotten_upto
                return DeduplicationVerdict.DUPLICATE if is_known else DeduplicationVerdict.FORGOTTEN
            if depends_on:
                return DeduplicationVerdict.UNDECIDED
        if sequence > self.pushed:
            return DeduplicationVerdict.NEW
        if sequence > self.stored:
            return DeduplicationVerdict.PENDING
        if sequence <= self._absent.forgotten_upto:
            return DeduplicationVerdict.FORGOTTEN
        return DeduplicationVerdict.DUPLICATE

    def depends_on(self, sequence: int) -> set[TxnId]:
        """Transactions whose outcome decides whether the id counts as stored: those that stored it, or, while no other
        stored a higher one, one that is higher."""
        higher = sequence > self.stored
        return {
            txn
            for txn, held in self._undecided.items()
            if sequence in held.ids or (higher and held.ids.max() > sequence)
        }

    def taken_together(self, sequences: Sequence[int], txn: TxnId | None = None) -> None:
        """A record is on its way that has all ids from the first of these, which was NEW, to the last; it is answered
        by these."""
        self._absent.remove_range(sequences[0], sequences[-1])
        for sequence in _listed(sequences):
            self.taken(sequence, txn)

    def new_in(self, first: int, last: int, txn: TxnId | None) -> Sequence[int]:
        """The NEW ids of a record that has all from `first`, which is NEW, to `last`."""
        if first > self.pushed or last - first >= _LISTED_TOGETHER:
            return range(first, last + 1)
        new = DeduplicationVerdict.NEW
        return [each for each in range(first, last + 1) if self.judge(each, txn) is new]

    def taken(self, sequence: int, txn: TxnId | None = None) -> None:
        """A NEW one is on its way."""
        self.unanswered += 1
        if txn is not None:
            self._sent_in[sequence] = txn
        self._absent.remove_range(sequence, sequence)
        if sequence > self.pushed:
            self.pushed = sequence
        else:
            self._again.add(sequence)

    def stored_at(self, sequences: Sequence[int], offset: int | None) -> None:
        """Records that the record with these ids is in the log; `offset` None: at an unknown offset."""
        self._is_stored(sequences, self._answered(sequences), self.read_from if offset is None else offset)
        if offset is not None and not self._doubtful:
            # Reports come in the order of sending: what may be left of earlier ones lies before this one.
            self.read_from = max(self.read_from, offset + 1)
        self._settle()

    def _is_stored(self, sequences: Sequence[int], txn: TxnId | None, offset: int) -> None:
        if txn is None:
            self.stored = max(self.stored, *_listed(sequences))
        else:
            held = self._undecided.setdefault(txn, Undecided(offset))
            held.offset = min(held.offset, offset)
            held.sequences.add(sequences)
            self.pushed = max(self.pushed, *_listed(sequences))

    def hold(self, txn: TxnId, held: Undecided) -> None:
        """A transaction has stored these ids before, and its outcome is not known."""
        self._undecided[txn] = held
        self.pushed = max(self.pushed, int(held.ids.max()))

    def decided(self, txn: TxnId, *, committed: bool) -> None:
        """The outcome of one of the `undecided`."""
        held = self._undecided.pop(txn)
        if committed:
            self.stored = max(self.stored, held.ids.max())
        else:
            self._absent.update(held.sequences)
            self._absent.shrink()
        self._settle()

    def failed(self, sequences: Sequence[int], *, certainly: bool) -> None:
        """The record with these ids failed, `certainly` without being stored."""
        txn = self._answered(sequences)
        if certainly:
            self._remember_absent(sequences)
        else:
            self._doubtful[sequences[0]] = sequences, txn
            self.gave_up = True
        self._settle()

    def found(self, firsts: Collection[tuple[int, TxnId | None]], end: int) -> None:
        """The log was read from `read_from` to `end`: our records there begin with these ids, in these transactions (an
        aborted one may have the same ids)."""
        for first, (sequences, txn) in self._doubtful.items():
            if (first, txn) in firsts:
                self._is_stored(sequences, txn, self.read_from)
            else:
                self._remember_absent(sequences)
        self._doubtful.clear()
        if not self.unanswered:  # else one that is stored below the end may still fail
            self.read_from = max(self.read_from, end)
        self._settle()

    def _answered(self, sequences: Sequence[int]) -> TxnId | None:
        """Gives the transaction that they were sent in."""
        sequences = _listed(sequences)
        self.unanswered -= len(sequences)
        if self._again:
            self._again.difference_update(sequences)
        txn: TxnId | None = None
        if self._sent_in:
            for sequence in sequences:
                txn = self._sent_in.pop(sequence, txn)
        return txn

    def _remember_absent(self, sequences: Sequence[int]) -> None:
        """A record with these ids is not stored."""
        self._absent.add(sequences)
        self._absent.shrink()

    def _settle(self) -> None:
        if not self.unanswered and not self._doubtful:
            # Nothing above is under way: new, whether it was tried before or not.
            self.pushed = max([self.stored, *(held.ids.max() for held in self._undecided.values())])
