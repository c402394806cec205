"""A partition hands out entries that transactions hold in part, and gives them again when these are aborted."""

from __future__ import annotations

from collections.abc import Iterable

from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity, CursorName
from pulsar_on_kafka.broker.cursor.saved_cursor import SavedCursor
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.partition.transaction_holds import highest
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import (
    Delivery,
    Endpoint,
    PartitionAcks,
    PartitionConsumer,
)
from pulsar_on_kafka.broker.transactions.pending_acks.pending_acks_machine import PendingAcks
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.message_record import ChunkInfo
from pulsar_on_kafka_mapping.state.transactions.pending_acks import CumulativeAck, CursorIncarnation, TxnAck

ONE = TxnId(0, 1)
OTHER = TxnId(0, 2)


class Record:
    def __init__(self, at: int) -> None:
        self.at = at

    def __len__(self) -> int:
        return 10

    def offset(self) -> int:
        return self.at

    def headers(self) -> list[tuple[str, bytes]]:
        return []


def a_partition() -> OwnedPartition:
    slot = PartitionAcks("persistent://public/default/t", 0, -1, LedgerLayout(1, 10))
    identity = CursorIdentity("persistent://public/default/t", 0, "s", "t", "x" * 22, 1, 2, 10)
    owned = OwnedPartition(slot, identity, CursorState(0, 10), SavedCursor(identity.lineage(b"", 1, 0)))
    owned.held.attach(PendingAcks(CursorName(identity.topic, 0, "s"), CursorIncarnation(1, 2), "me", 1).held)
    return owned


def a_feed(owned: OwnedPartition) -> PartitionConsumer:
    return Endpoint("joe", 1000, delivery_type=Delivery).feed(owned.slot)


def fill(owned: OwnedPartition, offsets: Iterable[int]) -> None:
    offsets = list(offsets)
    owned.intake.accept(offsets, [Record(at) for at in offsets])


def hold(owned: OwnedPartition, txn: TxnId, *offsets: int) -> None:
    ack = TxnAck(BitMap64(offsets))
    owned.held.holdings.hold(txn, ack)
    owned.hold(ack)


def hand_out(owned: OwnedPartition, feed: PartitionConsumer, limit: int = 1000) -> list[int]:
    offsets, records = owned.take(limit)
    if offsets:
        owned.deliver(feed, offsets, records, hold=True)
    return offsets


def abort(owned: OwnedPartition, txn: TxnId) -> list[int]:
    owned.redeliver_released(owned.held.holdings.release(txn).whole)
    return list(owned.redeliveries.waiting)


def test_what_was_out_leaves_its_consumer_and_comes_again() -> None:
    owned = a_partition()
    feed = a_feed(owned)
    fill(owned, range(4))
    hand_out(owned, feed)
    hold(owned, ONE, 1, 2)
    assert owned.in_flight.held_by(feed) == [0, 3]
    assert feed.endpoint.unacked == 2
    owned.give_back(feed)
    assert owned.redeliveries.lowest(10) == [0, 3]
    assert abort(owned, ONE) == [0, 1, 2, 3]
    assert owned.redeliveries.counts == {1: 1, 2: 1}


def test_what_waits_is_put_back_when_it_would_go_out() -> None:
    owned = a_partition()
    feed = a_feed(owned)
    fill(owned, range(3))
    hold(owned, ONE, 1)
    assert hand_out(owned, feed) == [0, 2]
    assert abort(owned, ONE) == [1]


def test_what_waits_comes_by_itself_when_it_was_given_up_before() -> None:
    owned = a_partition()
    feed = a_feed(owned)
    fill(owned, range(3))
    hold(owned, ONE, 1)
    assert abort(owned, ONE) == []
    assert hand_out(owned, feed) == [0, 1, 2]


def test_what_was_not_read_is_passed_over_and_comes_again() -> None:
    owned = a_partition()
    hold(owned, ONE, 0, 5)
    fill(owned, range(3))
    assert hand_out(owned, a_feed(owned)) == [1, 2]
    assert abort(owned, ONE) == [0]  # 5 will be read
    fill(owned, range(3, 6))
    assert hand_out(owned, a_feed(owned)) == [3, 4, 5]


def test_a_redelivery_that_waits_is_held_as_well() -> None:
    owned = a_partition()
    feed = a_feed(owned)
    fill(owned, range(3))
    hand_out(owned, feed)
    owned.give_back(feed)
    hold(owned, ONE, 2)
    assert owned.redeliveries.lowest(10) == [0, 1]
    assert abort(owned, ONE) == [0, 1, 2]


def test_everything_up_to_a_position_is_passed_over() -> None:
    owned = a_partition()
    owned.held.holdings.hold(ONE, TxnAck(cumulative=CumulativeAck(2)))
    fill(owned, range(5))
    assert hand_out(owned, a_feed(owned)) == [3, 4]
    assert 2 in owned.held
    assert 3 not in owned.held


def test_reading_anew_forgets_what_was_put_back() -> None:
    owned = a_partition()
    feed = a_feed(owned)
    fill(owned, range(3))
    hand_out(owned, feed)
    hold(owned, ONE, 1)
    owned.rewind()
    assert abort(owned, ONE) == []
    fill(owned, range(3))
    assert hand_out(owned, feed) == [0, 1, 2]


def test_what_another_transaction_holds_stays() -> None:
    owned = a_partition()
    feed = a_feed(owned)
    fill(owned, range(3))
    hand_out(owned, feed)
    hold(owned, ONE, 0)
    hold(owned, OTHER, 1)
    assert abort(owned, ONE) == [0]
    assert abort(owned, OTHER) == [0, 1]


def test_messages_of_a_batch_are_counted_out_one_by_one() -> None:
    owned = a_partition()
    feed = a_feed(owned)
    owned.in_flight.hold_batch(7, feed, 3)
    for index in range(2):
        ack = TxnAck(batches={7: (3, 1 << index)})
        owned.held.holdings.hold(ONE, ack)
        owned.hold(ack)
    assert feed.endpoint.unacked == 1
    assert owned.in_flight.held_by(feed) == [7]
    ack = TxnAck(batches={7: (3, 0b100)})
    owned.held.holdings.hold(OTHER, ack)
    owned.hold(ack)
    assert feed.endpoint.unacked == 0
    assert owned.in_flight.held_by(feed) == []
    owned.redeliver_released(BitMap64([7]))
    assert list(owned.redeliveries.waiting) == [7]


def test_a_message_in_chunks_is_held_with_all_of_them() -> None:
    owned = a_partition()
    for chunk_id, offset in enumerate((1, 3)):
        owned.entries.chunks.add(offset, ChunkInfo(chunk_id, 2, 20, "uuid"), Record(offset))
    found = owned.held.complete(owned.held.holdings, ONE, TxnAck(BitMap64([3])))
    assert found == TxnAck(BitMap64([1, 3]))


def test_a_transaction_acknowledges_a_message_chunk_by_chunk() -> None:
    """Go's client does, in the order of the chunks."""
    owned = a_partition()
    for chunk_id, offset in enumerate((1, 3)):
        owned.entries.chunks.add(offset, ChunkInfo(chunk_id, 2, 20, "uuid"), Record(offset))
    hold(owned, ONE, 1)
    assert owned.held.complete(owned.held.holdings, ONE, TxnAck(BitMap64([3]))) == TxnAck(BitMap64([3]))
    owned.cursor.acknowledge([1])
    assert owned.held.complete(owned.held.holdings, OTHER, TxnAck(BitMap64([3]))) == TxnAck(BitMap64([3]))


def test_a_cumulative_one_spares_chunks_of_messages_that_end_behind_it() -> None:
    owned = a_partition()
    upto = TxnAck(cumulative=CumulativeAck(4))
    assert owned.held.complete(owned.held.holdings, ONE, upto) == upto
    for chunk_id, offset in enumerate((1, 3, 6)):
        owned.entries.chunks.add(offset, ChunkInfo(chunk_id, 3, 30, "uuid"), Record(offset))
    hold(owned, ONE, 2)
    found = owned.held.complete(owned.held.holdings, ONE, upto)
    assert found == TxnAck(BitMap64([0, 4]))
    assert highest(found) == 4
