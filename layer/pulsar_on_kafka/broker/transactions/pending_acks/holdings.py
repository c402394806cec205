"""Messages that open transactions hold of one cursor are not delivered, and no other transaction may acknowledge them.
Pure.

In Pulsar's words: ack sets have a bit set for what is *not* acknowledged, two acks of one batch merge by AND, and
taking one transaction's part back is `current OR NOT its set` within the batch's size; when all bits are set again the
entry is dropped. Here a bit is set for what *is* acknowledged, as in our cursors: OR, `current AND NOT its set`, none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from pyroaring import BitMap64

from pulsar_on_kafka.base.errors import InvalidCursorPosition, TransactionConflict
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.transactions.pending_acks import CumulativeAck, TxnAck


@dataclass(slots=True)
class _Held:
    """One transaction's."""

    whole: BitMap64 = field(default_factory=BitMap64)
    batches: dict[int, BatchAckSet] = field(default_factory=dict)
    cumulative: CumulativeAck | None = None

    def as_ack(self) -> TxnAck:
        return TxnAck(self.whole.copy(), self.batches.copy(), self.cumulative)


class Holdings:
    """Memory: compressed bitmaps, some 500 bytes for each transaction and each batch entry that it has part of."""

    def __init__(self) -> None:
        self._of: dict[TxnId, _Held] = {}
        self._whole = BitMap64()
        self._batches: dict[int, BatchAckSet] = {}
        self._cumulative: dict[TxnId, CumulativeAck] = {}
        self._overlap = False
        """Two transactions hold the same: only when one of them was left over from before (see `PendingAcks`)."""

    def __contains__(self, txn: TxnId) -> bool:
        return txn in self._of

    def __iter__(self) -> Iterator[TxnId]:
        return iter(self._of)

    def __bool__(self) -> bool:
        return bool(self._of)

    def of(self, txn: TxnId) -> TxnAck:
        """All that a transaction holds, together; nothing of an unknown one."""
        held = self._of.get(txn)
        return TxnAck() if held is None else held.as_ack()

    def whole_in(self, start: int, end: int) -> BitMap64:
        """The offsets in [start, end) that are held as a whole, one by one or by a cumulative ack."""
        found = self._whole & BitMap64(range(start, end)) if self._whole else BitMap64()
        held_below = max((_whole_below(ack) for ack in self._cumulative.values()), default=0)
        if held_below > start:
            found.add_range(start, min(end, held_below))
        return found

    def is_held(self, offset: int) -> bool:
        """Whether the entry at `offset` is held as a whole."""
        return offset in self._whole or any(offset < _whole_below(ack) for ack in self._cumulative.values())

    def batch(self, offset: int) -> BatchAckSet | None:
        """The held messages of a batch entry that is not held as a whole."""
        found = self._batches.get(offset)
        for ack in self._cumulative.values():
            if ack.offset == offset and ack.batch_size:
                found = BatchAckSet(ack.batch_size, ack.acked).and_also(found)
        return found

    def in_batches(self) -> set[int]:
        """The offsets of which `batch` may know something."""
        return {*self._batches, *(ack.offset for ack in self._cumulative.values() if ack.batch_size)}

    def check(self, txn: TxnId, ack: TxnAck, cursor: CursorState) -> None:
        """Checks that a transaction may hold this acknowledgement: no part of it is acknowledged or held, not even by
        the transaction itself.

        Source: PendingAckHandleImpl. Differs from Pulsar: an ack also conflicts with what another transaction holds
        cumulatively, and a cumulative one with what another holds below it. (There, when the other one aborts, what it
        held is acknowledged nevertheless.)

        Raises:
            TransactionConflict: it may not.
            InvalidCursorPosition: a batch entry has another size.
            StoreError: the cursor's state is not in memory and cannot be read back.
        """
        cursor.need([*ack.whole, *ack.batches])
        for offset in ack.whole:
            self._check_whole(txn, offset, cursor)
        for offset, (size, acked) in ack.batches.items():
            self._check_batch(txn, offset, BatchAckSet(size, acked), cursor)
        if ack.cumulative is not None:
            self._check_cumulative(txn, ack.cumulative, cursor)

    def _check_whole(self, txn: TxnId, offset: int, cursor: CursorState) -> None:
        if cursor.is_acknowledged(offset):
            raise _conflict(txn, offset, "is acknowledged already")
        if offset in self._whole or offset in self._batches:
            raise _conflict(txn, offset, "is held by a transaction already")
        if any(other != txn and offset <= ack.offset for other, ack in self._cumulative.items()):
            raise _conflict(txn, offset, "is held by another transaction's cumulative acknowledgement")

    def _check_batch(self, txn: TxnId, offset: int, requested: BatchAckSet, cursor: CursorState) -> None:
        if cursor.is_acknowledged(offset):
            raise _conflict(txn, offset, "is acknowledged already")
        for known, what in ((cursor.batches.get(offset), "acknowledged"), (self._batches.get(offset), "held")):
            if known is None:
                continue
            if known.batch_size != requested.batch_size:
                raise InvalidCursorPosition(
                    f"batch at offset {offset} has {known.batch_size} messages, got an ack of {requested.batch_size}"
                )
            if known.acked & requested.acked:
                raise _conflict(txn, offset, f"has messages that are {what} already")
        if offset in self._whole:
            raise _conflict(txn, offset, "is held by a transaction already")
        for other, ack in self._cumulative.items():
            below = offset < _whole_below(ack)
            if other != txn and (below or (offset == ack.offset and ack.acked & requested.acked)):
                raise _conflict(txn, offset, "is held by another transaction's cumulative acknowledgement")

    def _check_cumulative(self, txn: TxnId, requested: CumulativeAck, cursor: CursorState) -> None:
        offset = requested.offset
        if offset < cursor.next_unacked:
            raise _conflict(txn, offset, f"is not above mark-delete {cursor.mark_delete}")
        own = self._cumulative.get(txn)
        if own is not None and _reach(requested) <= _reach(own):
            raise _conflict(txn, offset, f"is not above its acknowledgement up to {own.offset}")
        if self._cumulative.keys() - {txn}:
            raise _conflict(txn, offset, "comes after another transaction's cumulative acknowledgement")
        held = self._of.get(txn, _Held())
        others = self._whole - held.whole
        if others and int(others.min()) <= offset:
            raise _conflict(txn, int(others.min()), "below its cumulative acknowledgement is held by another one")
        for other, acks in self._batches.items():
            mine = held.batches.get(other)
            theirs = acks.acked & ~(0 if mine is None else mine.acked)
            if not theirs:
                continue
            if other < _whole_below(requested) or (other == offset and theirs & requested.acked):
                raise _conflict(txn, other, "below its cumulative acknowledgement is held by another one")

    def hold(self, txn: TxnId, ack: TxnAck) -> None:
        held = self._of.setdefault(txn, _Held())
        self._overlap = self._overlap or self._overlaps(txn, held, ack)
        held.whole |= ack.whole
        self._whole |= ack.whole
        for offset, (size, acked) in ack.batches.items():
            for batches in (held.batches, self._batches):
                batches[offset] = BatchAckSet(size, acked).and_also(batches.get(offset))
        cumulative = ack.cumulative
        if cumulative is not None and (held.cumulative is None or _reach(cumulative) > _reach(held.cumulative)):
            held.cumulative = self._cumulative[txn] = cumulative

    def release(self, txn: TxnId) -> TxnAck:
        """The transaction is over; gives what it held."""
        held = self._of.pop(txn, _Held())
        self._cumulative.pop(txn, None)
        if self._overlap:
            self._add_up_again()
        else:
            self._whole -= held.whole
            for offset, acks in held.batches.items():
                left = self._batches[offset].acked & ~acks.acked
                if left:
                    self._batches[offset] = BatchAckSet(acks.batch_size, left)
                else:
                    del self._batches[offset]
        return held.as_ack()

    def _overlaps(self, txn: TxnId, held: _Held, ack: TxnAck) -> bool:
        others = self._whole - held.whole
        if not others.isdisjoint(ack.whole):
            return True
        for offset, (_, acked) in ack.batches.items():
            known, own = self._batches.get(offset), held.batches.get(offset)
            if known is not None and known.acked & ~(0 if own is None else own.acked) & acked:
                return True
        return False

    def _add_up_again(self) -> None:
        transactions, self._of = self._of, {}
        self._whole, self._batches, self._cumulative, self._overlap = BitMap64(), {}, {}, False
        for txn, held in transactions.items():
            self.hold(txn, held.as_ack())


def has(held: TxnAck, ack: TxnAck) -> bool:
    """Whether all single messages of `ack` are among those of `held`; False for a cumulative one."""
    if ack.cumulative is not None or not ack.whole.issubset(held.whole):
        return False
    for offset, (size, acked) in ack.batches.items():
        known_size, known = held.batches.get(offset, (size, 0))
        if known_size != size or acked & ~known:
            return False
    return True


def apply_to(cursor: CursorState, ack: TxnAck, through: Callable[[int], object] | None = None) -> None:
    """Acknowledge everything that a committed transaction held; again if need be, which changes nothing.

    `through`, if not the cursor itself, acknowledges everything up to an offset (inclusive).

    Raises:
        StoreError: what the cursor knows is out of memory and cannot be read back; nothing was changed.
    """
    cursor.need([*ack.whole, *ack.batches, *(() if ack.cumulative is None else (ack.cumulative.offset + 1,))])
    batches = {offset: BatchAckSet(size, acked) for offset, (size, acked) in ack.batches.items()}
    if ack.cumulative is not None:
        offset, size, acked = ack.cumulative
        (through or cursor.acknowledge_cumulative)(_whole_below(ack.cumulative) - 1)
        if size:
            batches[offset] = BatchAckSet(size, acked).and_also(batches.get(offset))
    cursor.acknowledge(list(ack.whole))
    if batches:
        cursor.acknowledge_batches(batches)


def positions(ack: TxnAck, cursor: CursorState) -> BitMap64:
    cursor.need([*ack.whole, *ack.batches])
    found = ack.whole | BitMap64(ack.batches)
    found = BitMap64(offset for offset in found if not cursor.is_acknowledged(offset))
    if ack.cumulative is not None:
        found |= cursor.unacknowledged(0, ack.cumulative.offset + 1)
    return found


def _whole_below(ack: CumulativeAck) -> int:
    """Every entry below is acknowledged as a whole."""
    complete = ack.batch_size == 0 or ack.acked == (1 << ack.batch_size) - 1
    return ack.offset + complete


def _reach(ack: CumulativeAck) -> tuple[int, int]:
    return (_whole_below(ack), ack.acked.bit_length() if _whole_below(ack) == ack.offset else 0)


def _conflict(txn: TxnId, offset: int, why: str) -> TransactionConflict:
    return TransactionConflict(
        f"transaction {txn.most_bits}:{txn.least_bits} cannot acknowledge: the entry at offset {offset} {why}"
    )


def together(acks: Iterable[TxnAck], txn: TxnId) -> TxnAck:
    """The union of the acks of one transaction."""
    all_of_it = Holdings()
    for ack in acks:
        all_of_it.hold(txn, ack)
    return all_of_it.of(txn)
