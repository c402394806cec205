"""Entries of a partition that transactions acknowledge are held until these end. No I/O, no threads.

Source: PendingAckHandleImpl with Consumer.individualAckWithTransaction. No consumer has an entry that is held. It is
redelivered, its redelivery count raised, when the transaction is aborted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyroaring import BitMap64

from pulsar_on_kafka.base.errors import InvalidCursorPosition
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.subscriptions.partition.in_flight import DeliveriesInFlight
from pulsar_on_kafka.broker.subscriptions.records.chunks import ChunkAssembly
from pulsar_on_kafka.broker.transactions.pending_acks.holdings import Holdings
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnAck


class TransactionHolds:
    """Keeps entries of a partition from being delivered while transactions that acknowledge them are open.

    A held entry stays where it is; it is put `back` when it would be delivered, or if it was delivered already. Entries
    put back are redelivered when their transaction is aborted; the others are read as usual.

    Memory: compressed bitmaps, besides what Holdings says.
    """

    def __init__(self, number: int, cursor: CursorState, chunks: ChunkAssembly, in_flight: DeliveriesInFlight) -> None:
        self._number = number
        self._cursor = cursor
        self._chunks = chunks
        self._in_flight = in_flight
        self.holdings = Holdings()
        """Those of the partition's `PendingAcks`, once there are any (`attach`)."""
        self.attached = False
        self.back = BitMap64()

    def attach(self, holdings: Holdings) -> None:
        """Transactions acknowledge on this partition from now on, and hold these entries."""
        self.holdings = holdings
        self.attached = True

    def __bool__(self) -> bool:
        return bool(self.holdings)

    def __contains__(self, offset: int) -> bool:
        """Held as a whole."""
        return self.holdings.is_held(offset)

    def without(
        self, offsets: list[int], records: list[Any], spared: Callable[[Any], bool] = lambda record: False
    ) -> tuple[list[int], list[Any]]:
        """Returns these entries, which ascend and are not empty, without those that are held as a whole and not
        `spared`; these are put back."""
        held = self.among(BitMap64(offsets))
        held -= BitMap64(o for o, record in zip(offsets, records, strict=True) if o in held and spared(record))
        if not held:
            return offsets, records
        self.back |= held
        keep = [i for i, offset in enumerate(offsets) if offset not in held]
        return [offsets[i] for i in keep], [records[i] for i in keep]

    def take_from(self, waiting: BitMap64) -> BitMap64:
        """Puts those of these entries back that are held, and returns them."""
        held = self.among(waiting)
        if held:
            self.back |= held
            waiting -= held
        return held

    def among(self, offsets: BitMap64) -> BitMap64:
        if not self.holdings or not offsets:
            return BitMap64()
        return self.holdings.whole_in(int(offsets.min()), int(offsets.max()) + 1) & offsets

    def acked_of(self, offset: int) -> BatchAckSet | None:
        """The messages of a batch entry that are acknowledged, or held."""
        acked = self._cursor.batches.get(offset)
        held = self.holdings.batch(offset) if self.holdings else None
        return acked if held is None else held.and_also(acked)

    def put_back(self, offset: int) -> None:
        """Puts an entry back of which transactions hold all that is not acknowledged."""
        if not self._cursor.is_acknowledged(offset):
            self.back.add(offset)

    def hold(self, ack: TxnAck) -> list[int]:
        """A transaction holds this from now on; returns the entries that their consumers lose."""
        in_flight = self._in_flight
        held = [offset for offset in ack.whole if offset in in_flight.holders]
        let_go = in_flight.given_to_transaction(self._number, held, ack.batches)
        in_flight.let_go(let_go)
        self.back |= BitMap64(let_go)
        return let_go

    def committed(self, ack: TxnAck) -> list[int]:
        """The cursor has this now; returns the entries that are acknowledged as a whole."""
        done = self._chunks.acknowledged(ack.whole) if self._chunks.known else list(ack.whole)
        done += [offset for offset in ack.batches if self._cursor.is_acknowledged(offset)]
        self.back -= BitMap64(done)
        self.back.remove_range(0, self._cursor.next_unacked)
        return done

    def release(self, offsets: BitMap64) -> list[int]:
        """Transactions do not hold these any more; returns those of them that are not read as usual (Shared)."""
        again: list[int] = []
        for offset in offsets:
            if offset in self._in_flight.holders:  # other messages of the same entry are
                self._in_flight.let_go_of_one(offset)
                again.append(offset)
            elif offset in self.back:
                again.append(offset)
        self.back -= offsets
        return again

    def complete(self, held: Holdings, txn: TxnId, ack: TxnAck) -> TxnAck:
        """Extends an acknowledgement of messages to entries: to all chunks of chunked messages. A cumulative one spares
        chunks of messages that end behind it; if there are any, the result names each entry. `held`: what transactions
        hold."""
        chunks = self._chunks
        whole = ack.whole
        if chunks.known:
            further = BitMap64(chunks.spread(ack.whole)) - whole - held.of(txn).whole
            # Some clients acknowledge each chunk by its own id.
            whole = whole | BitMap64(offset for offset in further if not self._cursor.is_acknowledged(offset))
        upto = ack.cumulative
        spared = [] if upto is None or not chunks else chunks.ending_behind(upto.offset)
        if upto is None or not spared:
            return TxnAck(whole, ack.batches, upto)
        batches = dict(ack.batches)
        below = upto.offset
        if upto.batch_size:
            batches[upto.offset] = (upto.batch_size, upto.acked)
        else:
            below += 1
        own = held.of(txn)
        more = self._cursor.unacknowledged(0, below) - BitMap64(spared) - own.whole
        if own.cumulative is not None:
            more.remove_range(0, own.cumulative.offset + 1)
        return TxnAck(whole | more, batches)


def highest(ack: TxnAck) -> int:
    """Returns the last offset of an acknowledgement. Raises InvalidCursorPosition if it names none."""
    named = [*ack.batches]
    if ack.whole:
        named.append(int(ack.whole.max()))
    if ack.cumulative is not None:
        named.append(ack.cumulative.offset)
    if not named:
        raise InvalidCursorPosition("an acknowledgement that names no message")
    return max(named)
