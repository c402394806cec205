"""Entries of a partition are held when transactions acknowledge them, and settled when these end. No I/O, no threads.

Source: PendingAckHandleImpl with Consumer.individualAckWithTransaction: an entry that is held is in nobody's hands, and
comes again, its redelivery count raised, when the transaction is aborted.
"""

from __future__ import annotations

from functools import partial

from pyroaring import BitMap64

from pulsar_on_kafka.base.errors import InvalidCursorPosition
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.transactions.pending_acks.holdings import Holdings, apply_to
from pulsar_on_kafka.broker.transactions.pending_acks.pending_acks_machine import PendingAcks, SettledAck
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnAck, TxnOutcome


def complete(owned: OwnedPartition, held: Holdings, txn: TxnId, ack: TxnAck) -> TxnAck:
    """The same for entries: all chunks of messages that came in chunks. A cumulative one spares the chunks of messages
    that end behind it, so where there are some it names the others one by one."""
    chunks = owned.chunks
    whole = BitMap64(chunks.spread(ack.whole)) if chunks.known else ack.whole
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
    more = owned.cursor.unacknowledged(0, below) - BitMap64(spared) - own.whole
    if own.cumulative is not None:
        more.remove_range(0, own.cumulative.offset + 1)
    return TxnAck(whole | more, batches)


def highest(ack: TxnAck) -> int:
    """The last offset that it names. Raises InvalidCursorPosition when it names none."""
    named = [*ack.batches]
    if ack.whole:
        named.append(int(ack.whole.max()))
    if ack.cumulative is not None:
        named.append(ack.cumulative.offset)
    if not named:
        raise InvalidCursorPosition("an acknowledgement that names no message")
    return max(named)


def hold(owned: OwnedPartition, ack: TxnAck) -> None:
    """A transaction holds this from now on: it is in nobody's hands."""
    whole = list(ack.whole)
    in_flight = owned.in_flight
    held = [offset for offset in whole if offset in in_flight.holders]
    let_go = in_flight.given_to_transaction(owned.number, held, ack.batches)
    in_flight.let_go(let_go)
    owned.held.back |= BitMap64(let_go)
    if owned.keys is not None:
        owned.keys.acknowledged([*whole, *(offset for offset in let_go if offset in ack.batches)])
    owned.survived(whole)


def settle(owned: OwnedPartition, pending: PendingAcks) -> list[SettledAck]:
    """Bring outcomes to the cursor. What has to be delivered again, `deliver_again` lets come.

    Raises:
        StoreError: what the cursor knows is out of memory and cannot be read back; what waits is tried again.
    """
    settled = pending.settle(owned.cursor, partial(apply_to, through=owned.acknowledge_through))
    for each in settled:
        if each.outcome is TxnOutcome.COMMITTED:
            _committed(owned, each.ack)
    return settled


def _committed(owned: OwnedPartition, ack: TxnAck) -> None:
    cursor, chunks = owned.cursor, owned.chunks
    done = chunks.acknowledged(ack.whole) if chunks.known else list(ack.whole)
    done += [offset for offset in ack.batches if cursor.is_acknowledged(offset)]
    owned.settle(done)
    owned.meter.acknowledged += len(done)
    owned.held.back -= BitMap64(done)
    owned.held.back.remove_range(0, cursor.next_unacked)
    owned.passed(cursor.next_unacked - 1)


def deliver_again(owned: OwnedPartition, offsets: BitMap64) -> None:
    """Of what transactions held and hold no more, have that come again which would not come by itself (Shared)."""
    again: list[int] = []
    for offset in offsets:
        if offset in owned.holders:  # other messages of the same entry are
            owned.in_flight.let_go_of_one(offset)
            again.append(offset)
        elif offset in owned.held.back:
            again.append(offset)
    owned.held.back -= offsets
    owned.come_again(again)
