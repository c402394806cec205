"""A member reads the records that it was leased: batch entries, messages in chunks, what is gone or cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import cramjam
import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import OffsetOutOfRange, StoreError, TooManyHandles
from pulsar_on_kafka.broker.subscriptions.leases.leased_records import LeasedRecords
from pulsar_on_kafka.broker.subscriptions.leases.lessee import Lessee
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint, PartitionAcks
from pulsar_on_kafka.client.values.message import BatchedMessage, ReceivedMessage
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.records.batch_entry import encode_columns
from pulsar_on_kafka_mapping.records.message_record import Headers
from pulsar_on_kafka_mapping.records.record_headers import BATCH, CHUNK, COMPRESSION
from pulsar_on_kafka_mapping.state.cursors.lease_records import Lease, LeasedEntry, Report, TakeOver, Welcome
from tests.clocks import SetClock
from tests.same_incarnation import SAME_INCARNATION
from tests.simulation.leases import LIFE

OWNER, NEXT_OWNER = b"o" * 16, b"n" * 16


class Record:
    def __init__(
        self, offset: int, value: bytes = b"", *, batch: int = 0, chunk: bytes = b"", headers: Headers | None = None
    ) -> None:
        self._offset = offset
        self._value = encode_columns([b"%d" % i for i in range(batch)]) if batch and not value else value
        self._headers: list[tuple[str, bytes | None]] = [(BATCH, b"1:%d" % batch)] if batch else []
        if chunk:
            self._headers = [(CHUNK, chunk)]
        if headers is not None:
            self._headers = headers

    def offset(self) -> int:
        return self._offset

    def headers(self) -> list[tuple[str, bytes | None]]:
        return self._headers

    def value(self) -> bytes:
        return self._value

    def __len__(self) -> int:
        return len(self._value)


class Member:
    """A member of one consumer, what owners leased to it, and the records that Kafka has from `start` on."""

    def __init__(self, *records: Record, start: int = 0) -> None:
        self.records = {record.offset(): record for record in records}
        self.start = start
        self.fails = False
        self.failure: StoreError = StoreError("no broker answers")
        self.clock = SetClock()
        self.slot = PartitionAcks("persistent://public/default/orders", 0, -1, LedgerLayout(1, 10))
        self.consumer = Endpoint("mine", 100, delivery_type=ReceivedMessage)
        self.lessee = Lessee(LIFE, "me", [self.consumer])
        self.lessee.requesting = True
        self.said()
        self.lessee.apply(None, Welcome(OWNER, self.lessee.id))
        self.reading = LeasedRecords("orders/audit", "orders", self, self.clock, self.lessee, SAME_INCARNATION)

    def read_at(self, topic: str, partition: int, offsets: Sequence[int], deadline: Deadline) -> Iterator[list[Any]]:
        if self.fails:
            raise self.failure
        if offsets and offsets[0] < self.start:
            raise OffsetOutOfRange("deleted")
        yield [self.records[offset] for offset in offsets if offset in self.records]

    def log_start(self, topic: str, partition: int, deadline: Deadline) -> int:
        return self.start

    def leave(self, partition: int | None = None) -> None:
        """Nothing is fetched ahead."""

    def close(self) -> None:
        """Nothing is open."""

    def lease(self, *entries: LeasedEntry, number: int = 1) -> None:
        self.lessee.apply(self.slot, Lease(OWNER, 1, self.lessee.id, number, 1, 100, entries))

    def received(self) -> list[tuple[int, int]]:
        """Offsets and batch indexes of what lies in the inbox now."""
        self.reading.read()
        found = [(d.offset, d.batch_index if isinstance(d, BatchedMessage) else -1) for d in self.consumer.queue]
        self.consumer.queue.clear()
        return found

    def said(self) -> Report:
        self.lessee.drain([self.slot])
        self.lessee.now_s += 1.0
        report = self.lessee.report()
        assert report is not None
        self.lessee.written(0)
        return report

    def held(self) -> list[int]:
        return sorted(self.lessee.partitions[0].in_flight.holders)


def test_messages_of_a_batch_that_are_acknowledged_do_not_come() -> None:
    member = Member(Record(5, batch=4), Record(6))
    member.lease(LeasedEntry(5, 0, 3, (4, 0b0010)), LeasedEntry(6))
    assert member.received() == [(5, 0), (5, 2), (5, 3), (6, -1)]
    assert member.consumer.unacked == 4


def test_what_a_client_of_pulsar_s_compressed_is_leased_as_anything_else() -> None:
    batch, alone = cramjam.snappy.compress_raw(b"\0\0\0\x02\x18\x01a" * 3), cramjam.snappy.compress_raw(b"alone")
    member = Member(
        Record(5, bytes(batch), headers=[(BATCH, b"2:3"), (COMPRESSION, b"SNAPPY:21")]),
        Record(6, bytes(alone), headers=[(BATCH, b"3:1"), (COMPRESSION, b"SNAPPY:5")]),
        Record(7, b"nothing of that kind", headers=[(BATCH, b"3:1"), (COMPRESSION, b"SNAPPY:5")]),
    )
    member.lease(LeasedEntry(5, 0, 2, (3, 0b010)), LeasedEntry(6), LeasedEntry(7))
    assert member.reading.read()
    found: list[Any] = list(member.consumer.queue)
    assert [(each.offset, each.data()) for each in found] == [(5, b"a"), (5, b"a"), (6, b"alone")]
    assert member.held() == [5, 6], "what cannot be read is given back as gone"


@pytest.mark.parametrize("compressed", [True, False], ids=["compressed", "plain"])
def test_leased_records_fill_an_inbox_up_to_its_bytes(compressed: bool) -> None:
    plain = bytes(2**20)
    value = bytes(cramjam.zstd.compress(plain)) if compressed else plain
    headers: Headers | None = [(BATCH, b"3:1"), (COMPRESSION, b"ZSTD:%d" % len(plain))] if compressed else None
    member = Member(*(Record(offset, value, headers=headers) for offset in range(100)))
    at_once = member.read_at
    one_by_one: Any = lambda *of: ([each] for batch in at_once(*of) for each in batch)  # noqa: E731
    member.read_at = one_by_one  # type: ignore[method-assign]
    member.lease(*(LeasedEntry(offset) for offset in range(100)))
    received: list[int] = []
    largest = 0
    while len(received) < 100:
        while member.reading.read():
            largest = max(largest, len(member.consumer.queue))
        received.append(member.consumer.queue.popleft().offset)
    assert received == [*range(100)]
    assert 60 <= largest <= (64 if compressed else 92), "60 MiB, and what is read or handed out at once"


def test_a_later_format_stays_with_the_consumer_and_is_not_skipped(caplog: pytest.LogCaptureFixture) -> None:
    member = Member(Record(5, headers=[(BATCH, b"9:3")]), Record(6))
    member.lease(LeasedEntry(5, 0, 3), LeasedEntry(6))
    assert member.received() == [(6, -1)]
    assert member.held() == [5, 6]
    assert "a newer one is needed" in caplog.text


def test_what_owners_lease_beyond_the_room_of_an_inbox_waits_until_there_is_room() -> None:
    """One was promised all of it before the other became known."""
    member = Member(*(Record(offset) for offset in range(200)))
    other = PartitionAcks("persistent://public/default/orders", 1, -1, LedgerLayout(1, 10))
    assert member.said().consumers[0].limits == {OWNER: 100}
    member.lessee.apply(None, Welcome(NEXT_OWNER, member.lessee.id))
    assert member.said().consumers[0].limits == {OWNER: 100, NEXT_OWNER: 50}
    member.lease(*(LeasedEntry(offset) for offset in range(100)))
    entries = tuple(LeasedEntry(offset) for offset in range(100, 150))
    member.lessee.apply(other, Lease(NEXT_OWNER, 1, member.lessee.id, 1, 1, 100, entries))
    while member.reading.read():
        assert len(member.consumer.queue) <= 100
    assert [delivery.offset for delivery in member.consumer.queue] == [*range(100)]
    member.lessee.now_s += 3.0
    assert member.said().consumers[0].limits == {OWNER: 100, NEXT_OWNER: 50}
    for left in (130, 150):
        for _ in range(30):
            member.consumer.queue.popleft()
        member.reading.read()
        assert member.consumer.queue[-1].offset == min(left, 150) - 1
    assert len(member.consumer.queue) == 90


def test_what_is_given_back_before_it_was_read_is_not_read() -> None:
    member = Member(Record(0), Record(1))
    member.lease(LeasedEntry(0))
    member.lessee.redeliver_all(member.consumer)
    member.said()
    member.lease(LeasedEntry(0, 1), LeasedEntry(1), number=2)
    assert member.received() == [(0, -1), (1, -1)]


def test_a_batch_is_held_until_its_last_message_is_acknowledged() -> None:
    member = Member(Record(5, batch=3))
    member.lease(LeasedEntry(5, 0, 3))
    member.received()
    member.slot.acks_in_batch.extend([(5, 0, 3), (5, 2, 3)])
    assert member.said().batch_acks == {0: {5: (3, 0b101)}}
    assert (member.held(), member.consumer.unacked) == ([5], 1)
    member.slot.acks_in_batch.append((5, 1, 3))
    assert member.said().batch_acks == {0: {5: (3, 0b010)}}
    assert (member.held(), member.consumer.unacked) == ([], 0)


def test_a_new_owner_hears_how_many_messages_of_a_batch_are_left() -> None:
    member = Member(Record(5, batch=3))
    member.lease(LeasedEntry(5, 2, 3))
    member.received()
    member.slot.acks_in_batch.append((5, 0, 3))
    member.lessee.drain([member.slot])
    member.lessee.apply(member.slot, TakeOver(LIFE, b"n" * 16, 2))
    answer = member.said().answers[0]
    assert (dict(answer.offsets), dict(answer.messages)) == ({(1, 2): BitMap64([5])}, {5: 2})


def test_a_message_in_chunks_is_one_and_is_acknowledged_with_all_of_them() -> None:
    chunks = [Record(offset, b"xy", chunk=b"%d:2:4:u" % number) for number, offset in enumerate((3, 7))]
    member = Member(*chunks)
    member.lease(LeasedEntry(7, 0, 2, None, (3, 7), 4))
    member.reading.read()
    (message,) = member.consumer.queue
    assert message.record.value() == b"xyxy"
    member.slot.ack(7)
    assert member.said().acks == {0: BitMap64([3, 7])}
    assert (member.held(), member.consumer.unacked) == ([], 0)


def test_a_message_in_chunks_stays_with_its_holder_under_a_new_owner() -> None:
    chunks = [Record(offset, b"xy", chunk=b"%d:2:4:u" % number) for number, offset in enumerate((3, 7))]
    member = Member(*chunks)
    member.lease(LeasedEntry(7, 0, 2, None, (3, 7), 4))
    member.reading.read()
    member.lessee.apply(member.slot, TakeOver(LIFE, b"n" * 16, 2))
    answer = member.said().answers[0]
    assert (answer.offsets, answer.chunked) == ({(1, 0): BitMap64([7])}, {7: ((3, 7), 4)})
    member.slot.ack(7)
    assert member.said().acks == {0: BitMap64([3, 7])}


def test_what_is_gone_and_what_cannot_be_read_counts_as_acknowledged() -> None:
    member = Member(Record(6, b"no batch", batch=3), Record(8), start=5)
    member.lease(LeasedEntry(2), LeasedEntry(6, 0, 3), LeasedEntry(7), LeasedEntry(8))
    assert member.received() == [(8, -1)]
    assert member.said().acks == {0: BitMap64([2, 6, 7])}
    assert member.held() == [8]


def test_what_cannot_be_read_just_now_is_tried_again() -> None:
    member = Member(Record(4))
    member.fails = True
    member.lease(LeasedEntry(4))
    assert member.received() == []
    member.fails = False
    assert member.received() == []
    member.clock.seconds += 1.0
    assert member.received() == [(4, -1)]


def test_a_member_without_room_for_a_handle_ends() -> None:
    member = Member(Record(4))
    member.fails, member.failure = True, TooManyHandles("900 handles")
    member.lease(LeasedEntry(4))
    with pytest.raises(TooManyHandles):
        member.received()


def test_what_was_refused_before_it_was_read_is_not_handed_out() -> None:
    member = Member(Record(4), Record(5))
    member.lease(LeasedEntry(4), LeasedEntry(5))
    member.slot.ack(4)
    member.lessee.drain([member.slot])
    assert member.received() == [(5, -1)]
