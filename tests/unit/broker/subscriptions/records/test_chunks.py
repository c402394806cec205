"""Chunks that become messages, and those that never do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pulsar_on_kafka.base.errors import StoreError
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.cursor.saved_cursor import SavedCursor
from pulsar_on_kafka.broker.subscriptions.partition.delivery_guard import DeliveryGuard
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import PartitionTerms
from pulsar_on_kafka.broker.subscriptions.records import chunks as chunks_module
from pulsar_on_kafka.broker.subscriptions.records.batches import messages_of
from pulsar_on_kafka.broker.subscriptions.records.chunks import (
    ChunkAssembly,
    ChunkRules,
    TooManyIncomplete,
    WholeMessage,
    joint_rules,
)
from pulsar_on_kafka.broker.subscriptions.records.compaction import CompactedRange
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery, Endpoint, PartitionAcks
from pulsar_on_kafka.broker.subscriptions.records.reader_filter import ReaderChunks
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.records.message_record import ChunkInfo
from pulsar_on_kafka_mapping.records.record_headers import CHUNK
from tests.clocks import SetClock


class Record:
    """A chunk such as `b2` at an offset; anything longer than two characters is a plain message."""

    def __init__(self, offset: int, name: str, *, chunks: int = 3, total: int | None = None) -> None:
        self.at = offset
        self.name = name
        self.info = None
        if len(name) == 2:
            self.info = ChunkInfo(int(name[1]), chunks, 2 * chunks if total is None else total, name[0])

    def __len__(self) -> int:
        return len(self.name)

    def __repr__(self) -> str:
        return self.name

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.name[:1].encode()

    def value(self) -> bytes:
        return self.name.encode()

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [] if self.info is None else [(CHUNK, b"%d:%d:%d:%b" % (*self.info[:3], self.info.uuid.encode()))]


def records(*names: str, start: int = 0) -> list[Any]:
    return [Record(start + number, name) for number, name in enumerate(names)]


def assembled(assembly: ChunkAssembly, given: Sequence[Any]) -> list[str]:
    found = []
    for record in given:
        whole = assembly.add(record.at, record.info, record)
        if whole is not None:
            found.append(whole.value().decode() if whole.present else "absent")
    return found


def given_up(assembly: ChunkAssembly) -> list[int]:
    return sorted(assembly.take_given_up("test"))


# The assembly ---------------------------------------------------------------------------------------------------------


def test_chunks_of_several_messages_are_told_apart() -> None:
    assembly = ChunkAssembly()
    assert assembled(assembly, records("a0", "b0", "b1", "a1", "b2", "a2")) == ["b0b1b2", "a0a1a2"]
    assert (assembly.pending, assembly.pending_bytes, given_up(assembly)) == (0, 0, [])
    assert {last: list(known.offsets) for last, known in assembly.known.items()} == {4: [1, 2, 4], 5: [0, 3, 5]}


def test_a_message_of_one_chunk() -> None:
    (whole,) = [ChunkAssembly().add(7, ChunkInfo(0, 1, 2, "a"), Record(7, "a0"))]
    assert whole is not None
    assert (whole.value(), list(whole.offsets), len(whole)) == (b"a0", [7], 2)


@pytest.mark.parametrize(
    ("given", "whole", "lost"),
    [
        ("a1 a2", [], [0, 1]),
        ("a0 a2 a1", [], [0, 1, 2]),
        ("a0 a1 a1 a2", ["a0a1a2"], [2]),
        ("a0 a1 a0 a1 a2", ["a0a1a2"], [0, 1]),
        ("a0 a1 a2 a2", ["a0a1a2"], [3]),
        ("a0 b1 a1 a2", ["a0a1a2"], [1]),
    ],
)  # fmt: skip
def test_in_order(given: str, whole: list[str], lost: list[int]) -> None:
    assembly = ChunkAssembly()
    assert assembled(assembly, records(*given.split())) == whole
    assert given_up(assembly) == lost
    assert assembly.given_up_chunks == len(lost)
    assert assembly.pending == 0


@pytest.mark.parametrize(
    ("given", "whole", "lost", "pending"),
    [
        ("a1 a2", [], [], 1),
        ("a1 a2 a0", ["a0a1a2"], [], 0),
        ("a0 a2 a1", ["a0a1a2"], [], 0),
        ("a2 a2 a0 a1", ["a0a1a2"], [1], 0),
    ],
)  # fmt: skip
def test_out_of_order(given: str, whole: list[str], lost: list[int], pending: int) -> None:
    assembly = ChunkAssembly()
    assembly.in_order = False
    assert assembled(assembly, records(*given.split())) == whole
    assert (given_up(assembly), assembly.pending) == (lost, pending)


def test_a_chunk_that_is_read_once_more_changes_nothing() -> None:
    assembly = ChunkAssembly()
    a0, a1, a2 = records("a0", "a1", "a2")
    assert assembled(assembly, [a0, a0, a1, a0, a1, a2]) == ["a0a1a2"]
    assert (given_up(assembly), assembly.pending_bytes) == ([], 0)


def test_chunks_that_disagree_are_no_message() -> None:
    assembly = ChunkAssembly()
    given = [Record(0, "a0"), Record(1, "a1", chunks=4), Record(2, "a0", chunks=2), Record(3, "a1", chunks=2)]
    assert assembled(assembly, given) == ["a0a1"]
    assert given_up(assembly) == [0, 1]
    assembly.in_order = False
    assert assembled(assembly, [Record(4, "b1"), Record(5, "b2", total=7)]) == []
    assert given_up(assembly) == [4, 5]


def test_payload_beyond_the_number_is_given_up_and_the_message_is_not() -> None:
    assembly = ChunkAssembly(lambda: ChunkRules(max_pending=2))
    assert assembled(assembly, records("a0", "b0", "c0")) == []
    assert (assembly.pending, assembly.pending_bytes) == (3, 4)
    assert assembled(assembly, records("a1", "b1", "a2", "c1", "b2", "c2", start=3)) == ["absent", "b0b1b2", "c0c1c2"]
    assert given_up(assembly) == []


def test_the_oldest_is_acknowledged_if_all_consumers_want_that() -> None:
    rules = ChunkRules(max_pending=1, auto_ack_oldest=True)
    assembly = ChunkAssembly(lambda: rules)
    assert assembled(assembly, records("a0", "b0", "a1", "b1", "a2", "b2")) == ["b0b1b2"]
    assert given_up(assembly) == [0, 2, 4]
    assert joint_rules([rules, ChunkRules(2, True, 5.0)]) == ChunkRules(3, True, 60.0)
    assert joint_rules([rules, ChunkRules()]) == ChunkRules(11, False, 60.0)
    assert joint_rules([rules, ChunkRules(0, True)]) == ChunkRules(0, True, 60.0)
    assert joint_rules([]) == ChunkRules()


def test_payload_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks_module, "MAX_PENDING_BYTES", 5)
    assembly = ChunkAssembly(lambda: ChunkRules(max_pending=0, auto_ack_oldest=True))
    assert assembled(assembly, records("a0", "b0", "c0", "d0")) == []
    assert (assembly.pending, assembly.pending_bytes) == (4, 4)
    assert assembled(assembly, [Record(9, "e0", chunks=9), *(Record(10 + n, f"e{n + 1}", chunks=9) for n in range(8))])
    assert assembly.pending_bytes <= 5
    assert given_up(assembly) == []


def test_a_full_index_refuses_what_completes_no_message_and_gives_up_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks_module, "MAX_INDEX_BYTES", 3 * 720)
    assembly = ChunkAssembly()
    assembled(assembly, records("a0", "a1", "b0"))
    assembled(assembly, records("c0", start=3))
    for name in ("d0", "b1"):
        with pytest.raises(TooManyIncomplete, match=r"^3 chunked messages are incomplete, .* the oldest one is 'a'"):
            assembled(assembly, records(name, start=4))
    assert assembled(assembly, records("a2", start=5)) == ["a0a1a2"]
    assembled(assembly, records("d0", start=6))
    assert (assembly.pending, given_up(assembly)) == (3, [])


def test_a_partition_stops_where_the_index_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks_module, "MAX_INDEX_BYTES", 720)
    owned = a_partition()
    given = records("plain", "a0", "b0", "a1")
    owned.intake.accept([0, 1, 2, 3], given)
    assert owned.take(10)[0] == [0]
    assert (owned.read_position, owned.cursor.backlog(4)) == (2, 4)
    assert owned.intake.stopped is not None
    assert owned.intake.stopped.startswith("offset 2: 1 chunked messages are incomplete")


def test_what_the_log_has_no_chunk_of_for_too_long_is_given_up() -> None:
    clock = SetClock(100.0)
    assembly = ChunkAssembly(lambda: ChunkRules(expire_s=60), clock.monotonic)
    assembled(assembly, records("a0", "b0"))
    clock.seconds += 59
    assert not assembly.expire(2, lambda: 2)
    assembled(assembly, records("a1", start=2))
    clock.seconds += 1
    assert assembly.expire(3, lambda: 3)
    assert given_up(assembly) == [1]
    clock.seconds += 58
    assert not assembly.expire(3, lambda: 3)
    clock.seconds += 1
    assert assembly.expire(3, lambda: 3)
    assert (given_up(assembly), assembly.pending, assembly.expire(3, lambda: 3)) == ([0, 2], 0, False)


def test_time_in_which_nothing_was_read_gives_up_no_message() -> None:
    clock = SetClock()
    assembly = ChunkAssembly(lambda: ChunkRules(expire_s=60), clock.monotonic)
    assembled(assembly, records("a0", "b0"))
    clock.seconds = 1000.0
    assert not assembly.expire(2, lambda: 4)
    clock.seconds = 2000.0
    assembled(assembly, records("a1", start=2))
    assert not assembly.expire(3, lambda: 9)
    assert assembly.expire(4, lambda: 9)
    assert given_up(assembly) == [1]
    clock.seconds = 2060.0
    assert assembly.expire(4, lambda: 4)
    assert given_up(assembly) == [0, 2]


def test_no_message_is_given_up_while_kafka_does_not_answer() -> None:
    clock, asked = SetClock(), [0]

    def log_end() -> int:
        asked[0] += 1
        if asked[0] < 3:
            raise StoreError("no answer")
        return 1

    assembly = ChunkAssembly(lambda: ChunkRules(expire_s=60), clock.monotonic)
    assembled(assembly, records("a0"))
    expired = []
    for seconds in (60.0, 60.5, 61.0, 61.5, 62.0):
        clock.seconds = seconds
        expired.append(assembly.expire(1, log_end))
    assert (expired, asked, given_up(assembly)) == ([False] * 4 + [True], [3], [0])


def test_known_messages_stand_for_their_chunks() -> None:
    assembly = ChunkAssembly()
    given = records("a0", "b0", "a1", "b1", "a2", "b2")
    assembled(assembly, given)
    by_offset = {record.at: record for record in given}
    assert list(assembly.spread([4, 7])) == [0, 2, 4, 7]
    found, gone = assembly.put_together([4, 5, 7], {**by_offset, 7: "plain"}, [])
    assert [found[4].value(), found[5].value(), found[7], gone] == [b"a0a1a2", b"b0b1b2", "plain", []]
    assert assembly.put_together([4, 5, 8], {0: by_offset[0]}, [1, 8]) == ({}, [5, 8])
    assert assembly.unacknowledged_below(5) == [1, 3]
    assert list(assembly.known) == [5]
    assert assembly.acknowledged([5, 9]) == [1, 3, 5, 9]
    assert not assembly


def test_what_is_read_again_at_a_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks_module, "MAX_REREAD_BYTES", 12)
    assembly = ChunkAssembly()
    assembled(assembly, records("a0", "a1", "a2", "b0", "b1", "b2", "c0", "c1", "c2"))
    assert assembly.affordable([1, 2, 5, 6, 8, 9]) == [1, 2, 5, 6]
    monkeypatch.setattr(chunks_module, "MAX_REREAD_BYTES", 1)
    assert assembly.affordable([8, 9]) == [8, 9]


def test_a_message_says_when_its_total_is_wrong() -> None:
    with pytest.raises(CorruptRecord, match="2 chunks hold 4 bytes, expected 5"):
        WholeMessage([0, 1], 5, None, records("a0", "a1")).check()


# A partition ----------------------------------------------------------------------------------------------------------


def a_partition(terms: PartitionTerms | None = None) -> OwnedPartition:
    slot = PartitionAcks("persistent://public/default/t", 0, -1, LedgerLayout(1, 10))
    identity = CursorIdentity("persistent://public/default/t", 0, "s", "t", "x" * 22, 1, 2, 10)
    return OwnedPartition(slot, identity, CursorState(0, 10), SavedCursor(identity.lineage(b"", 1, 0)), terms)


def fill(owned: OwnedPartition, *names: str, start: int = 0) -> None:
    given = records(*names, start=start)
    owned.intake.accept([record.at for record in given], given)


def delivered(owned: OwnedPartition, endpoint: Endpoint, *, hold: bool = True) -> list[str]:
    while owned.buffered:
        offsets, found = owned.take(10)
        if not offsets:
            break
        owned.deliver(endpoint.feed(owned.slot), offsets, found, hold=hold)
    return [(delivery.record.value() or b"").decode() for delivery in endpoint.discard(None)]


def drain(owned: OwnedPartition) -> None:
    owned.drain_acknowledgements(lambda: 1000)


def a_consumer() -> Endpoint:
    return Endpoint("joe", 1000, delivery_type=Delivery)


def test_a_whole_message_stands_at_its_last_chunk_and_counts_its_chunks() -> None:
    owned, joe = a_partition(), a_consumer()
    fill(owned, "a0", "one", "a1", "a2", "two")
    assert owned.buffered == 3
    assert delivered(owned, joe) == ["one", "a0a1a2", "two"]
    assert joe.unacked == owned.in_flight.messages() == 5
    owned.slot.ack(3)
    drain(owned)
    assert (joe.unacked, owned.cursor.next_unacked, list(owned.cursor.deleted)) == (2, 1, [2, 3])
    owned.slot.ack(1)
    owned.slot.ack(4)
    drain(owned)
    assert (joe.unacked, owned.cursor.next_unacked) == (0, 5)


def test_a_refused_message_waits_as_one_entry() -> None:
    owned, joe = a_partition(), a_consumer()
    fill(owned, "a0", "a1", "a2")
    delivered(owned, joe)
    owned.redeliver([2], joe)
    assert (joe.unacked, owned.redeliveries.lowest(10), owned.redeliveries.counts) == (0, [2], {2: 1})
    owned.slot.ack(2)
    drain(owned)
    assert (owned.redeliveries.lowest(10), owned.cursor.next_unacked) == ([], 3)


def test_a_rewound_partition_puts_the_message_together_again() -> None:
    owned, joe = a_partition(), a_consumer()
    fill(owned, "a0", "a1")
    assert owned.rewind() == 0
    fill(owned, "a0", "a1", "a2")
    assert delivered(owned, joe, hold=False) == ["a0a1a2"]
    assert owned.rewind() == 0
    owned.slot.ack(2)  # of what was delivered before
    drain(owned)
    assert owned.cursor.next_unacked == 3
    fill(owned, "a0", "a1", "a2", "b", start=0)
    assert delivered(owned, joe, hold=False) == ["b"]


def test_a_cumulative_acknowledgement_leaves_what_ends_behind_it() -> None:
    owned, joe = a_partition(), a_consumer()
    fill(owned, "a0", "b0", "c0", "a1", "a2", "b1", "one", "b2")
    assert delivered(owned, joe, hold=False) == ["a0a1a2", "one", "b0b1b2"]
    owned.slot.cumulative.append(6)
    drain(owned)
    assert owned.cursor.next_unacked == 1
    assert sorted({*range(8)}.difference(owned.cursor.deleted, {0})) == [1, 2, 5, 7]
    owned.slot.cumulative.append(7)
    drain(owned)
    assert (owned.cursor.next_unacked, list(owned.cursor.deleted)) == (2, [3, 4, 5, 6, 7])
    fill(owned, "c1", "c2", start=8)
    assert delivered(owned, joe, hold=False) == ["c0c1c2"]
    owned.slot.ack(9)
    drain(owned)
    assert owned.cursor.next_unacked == 10


def test_acknowledged_by_id_before_it_was_read() -> None:
    owned, joe = a_partition(), a_consumer()
    owned.slot.ack(2)
    owned.slot.ack(0)  # an id names its first and its last chunk
    drain(owned)
    fill(owned, "a0", "a1", "a2", "one")
    assert delivered(owned, joe) == ["one"]
    assert owned.cursor.next_unacked == 3


def test_a_seek_into_a_message_skips_it() -> None:
    owned, joe = a_partition(), a_consumer()
    fill(owned, "a0", "a1", "a2", "one")
    delivered(owned, joe)
    owned.seek(1)
    fill(owned, "a1", "a2", "one", start=1)
    assert delivered(owned, joe) == ["one"]
    assert owned.cursor.next_unacked == 3
    assert owned.entries.chunks.given_up_chunks == 2


def test_an_absent_payload_is_read_again_before_it_is_handed_out() -> None:
    chunks = ChunkAssembly(lambda: ChunkRules(max_pending=1))
    store = {record.at: record for record in records("a0", "b0", "a1", "one", "a2", "b1", "b2", "two")}
    asked = []
    can_be_read = False

    class Log:
        def log_end(self, partition: int) -> int:
            return len(store)

        def record(self, partition: int, offset: int) -> Any | None:
            asked.append(offset)
            return chunks.put_together([offset], store, [])[0].get(offset) if can_be_read else None

    owned, joe = a_partition(PartitionTerms(Log(), chunks=chunks)), a_consumer()
    owned.intake.accept(list(store), list(store.values()))
    assert delivered(owned, joe) == ["one"]  # what comes before it goes out
    assert asked == [4]
    assert owned.waits_for_room()
    can_be_read = True
    assert delivered(owned, joe) == ["a0a1a2", "b0b1b2", "two"]
    assert asked == [4, 4]


def test_with_counted_deliveries_chunks_come_in_any_order() -> None:
    """After a crash: what is below the hand-out limit comes by redelivery, the rest is read."""
    owned, joe = a_partition(), a_consumer()
    owned.count_deliveries(DeliveryGuard(0, dict))
    owned.entries.chunks.in_order = False
    owned.intake.passed_over.update([0, 1])
    owned.redeliveries.waiting.update([0, 1])
    fill(owned, "a0", "a1", "a2", "one")
    assert owned.entries.chunks.pending == 1
    a0, a1 = records("a0", "a1")
    assert owned.readable({0: a0}) == []
    owned.redeliveries.taken([0])
    assert owned.readable({1: a1}) == []
    owned.redeliveries.taken([1])
    assert owned.redeliveries.lowest(10) == [2]
    assert not joe.queue


def test_a_message_with_a_wrong_total_is_skipped() -> None:
    owned, joe = a_partition(), a_consumer()
    owned.intake.accept([0, 1], [Record(0, "a0", chunks=2, total=5), Record(1, "a1", chunks=2, total=5)])
    assert delivered(owned, joe) == []
    assert (owned.cursor.next_unacked, owned.intake.corrupt_entries) == (2, 1)


# Readers and compaction -----------------------------------------------------------------------------------------------


def test_a_reader_reads_again_what_it_could_not_keep() -> None:
    given = records("a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2")
    names = [chr(ord("d") + number) for number in range(11)]
    given[3:3] = records(*(f"{name}0" for name in names), start=100)
    asked = []

    def read_again(partition: int, offsets: Sequence[int]) -> dict[int, Any]:
        asked.append((partition, list(offsets)))
        return {record.at: record for record in given if record.at in offsets and record.name[0] != "b"}

    chunks = ReaderChunks("r", read_again, lambda partition: 0, lambda: 0.0)
    found = chunks.together(3, given)
    assert [record.value() for record in found] == [b"a0a1a2", b"c0c1c2"]  # of b nothing is there any more
    assert asked == [(3, [0, 3, 6]), (3, [1, 4, 7]), (3, [2, 5, 8])]
    chunks.forget(3)
    assert chunks.together(3, records("d1", "d2")) == []
    joe = a_consumer()
    slot = PartitionAcks("persistent://public/default/t", 0, -1, LedgerLayout(1, 10))
    wrong = chunks.together(3, [Record(0, "x0", chunks=1, total=9), Record(1, "plain")])
    assert [delivery.offset for delivery in messages_of(wrong, joe.feed(slot), None)] == [1]


def test_compaction_keeps_whole_messages_and_a_half_one_supersedes_nothing() -> None:
    compacted = CompactedRange(9)
    given = records("a0", "aplain", "a1", "a2", "bplain", "b0", "c0", "c1", "c2")
    compacted.fold(given)
    compacted.seal()
    together = ReaderChunks("r", lambda partition, offsets: {}, lambda partition: 0, lambda: 0.0).together(0, given)
    assert [record.value() for record in compacted.remaining(together)] == [b"a0a1a2", b"bplain", b"c0c1c2"]
