"""Chunked messages beside a naive truth: whatever the interleaving, the deaths, the repeats and the crashes."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.cursor.saved_cursor import SavedCursor
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import PartitionTerms
from pulsar_on_kafka.broker.subscriptions.records.chunks import ChunkAssembly, ChunkRules
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery, Endpoint, PartitionAcks
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.records.message_record import ChunkInfo
from pulsar_on_kafka_mapping.records.record_headers import CHUNK
from tests.clocks import SetClock
from tests.seeds import examples

Log = list["Record"]


class Record:
    def __init__(self, offset: int, info: ChunkInfo | None) -> None:
        self.at = offset
        self.info = info

    def __len__(self) -> int:
        return 3

    def __repr__(self) -> str:
        return f"{self.at}:{self.info and (self.info.uuid, self.info.chunk_id, self.info.chunks)}"

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes:
        return b"%3d" % self.at

    def headers(self) -> list[tuple[str, bytes | None]]:
        if self.info is None:
            return []
        return [(CHUNK, b"%d:%d:%d:%b" % (*self.info[:3], self.info.uuid.encode()))]


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """What producers wrote at once: messages of some chunks, plain ones, and those of a producer that died."""
    under_way: list[list[ChunkInfo | None]] = []
    for number in range(draw(st.integers(1, 8))):
        count = draw(st.integers(0, 5))
        written = count if draw(st.booleans()) else draw(st.integers(0, count))
        chunks = [ChunkInfo(each, count, 3 * count, f"u{number}") for each in range(written)]
        under_way.append([None] if count == 0 else list(chunks))
    log: Log = []
    while under_way := [queue for queue in under_way if queue]:
        queue = draw(st.sampled_from(under_way))
        log.append(Record(len(log), queue.pop(0)))
    return log


def messages_in(log: Log) -> list[tuple[int, ...]]:
    """The offsets of every complete message, by the place of its last chunk."""
    chunks: dict[str, list[int]] = {}
    found: list[tuple[int, ...]] = []
    for record in log:
        if record.info is None:
            found.append((record.at,))
            continue
        chunks.setdefault(record.info.uuid, []).append(record.at)
        if len(chunks[record.info.uuid]) == record.info.chunks:
            found.append(tuple(chunks[record.info.uuid]))
    return found


RULES = st.builds(ChunkRules, st.integers(0, 3), st.just(value=False), st.just(60.0))


@settings(max_examples=examples(1000))
@given(logs(), RULES)
def test_every_message_comes_once_and_nothing_is_left(log: Log, rules: ChunkRules) -> None:
    clock = SetClock()
    assembly = ChunkAssembly(lambda: rules, clock.monotonic)
    found: list[tuple[int, ...]] = []
    for record in log:
        if record.info is None:
            found.append((record.at,))
        elif (whole := assembly.add(record.at, record.info, record)) is not None:
            found.append(tuple(whole.offsets))
            if whole.present:
                assert whole.value() == b"".join(b"%3d" % offset for offset in whole.offsets)
                assert rules.max_pending == 0 or assembly.pending_bytes <= 3 * 5 * (rules.max_pending + 1)
    assert found == messages_in(log)
    assert assembly.given_up == []
    clock.seconds = 60.0
    assembly.expire(len(log), lambda: len(log))
    half = {record.at for record in log}.difference(*found)
    assert set(assembly.take_given_up("test")) == half
    assert (assembly.pending, assembly.pending_bytes) == (0, 0)


@settings(max_examples=examples(1000))
@given(logs(), st.data())
def test_in_any_order_every_message_comes_once(log: Log, data: st.DataObject) -> None:
    chunks = [record for record in log if record.info is not None]
    repeated = data.draw(st.lists(st.sampled_from(chunks), max_size=5)) if chunks else []
    given_order = data.draw(st.permutations(chunks + repeated))
    assembly = ChunkAssembly()
    assembly.in_order = False
    found: set[tuple[int, ...]] = set()
    done: set[int] = set()
    for record in given_order:
        if record.at in done:
            continue  # what is complete is filtered by the cursor, or known by its last chunk
        assert record.info is not None
        whole = assembly.add(record.at, record.info, record)
        if whole is not None:
            found.add(tuple(whole.offsets))
            done.update(whole.offsets)
    assert found == {offsets for offsets in messages_in(log) if log[offsets[0]].info is not None}
    assert assembly.given_up == []


@settings(max_examples=examples(300))
@given(logs(), st.data())
def test_broken_streams_lose_no_chunk_silently(log: Log, data: st.DataObject) -> None:
    """Missing, repeated and swapped chunks: each is in a message, waits, or is given up, and never two of these."""
    broken: Log = []
    for record in log:
        if record.info is None or data.draw(st.integers(0, 9)) == 0:
            continue
        times = 2 if data.draw(st.integers(0, 9)) == 0 else 1
        broken += [Record(0, record.info) for _ in range(times)]
    if len(broken) > 1 and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(broken) - 2))
        broken[at], broken[at + 1] = broken[at + 1], broken[at]
    clock = SetClock()
    assembly = ChunkAssembly(now_s=clock.monotonic)
    assembly.in_order = data.draw(st.booleans())
    complete: list[int] = []
    for offset, record in enumerate(broken):
        assert record.info is not None
        whole = assembly.add(offset, record.info, Record(offset, record.info))
        if whole is not None:
            complete += whole.offsets
            infos = [broken[each].info for each in whole.offsets]
            assert [info.chunk_id for info in infos if info is not None] == list(range(record.info.chunks))
    clock.seconds = 60.0
    assembly.expire(len(broken), lambda: len(broken))
    lost = assembly.take_given_up("test")
    assert sorted(complete + lost) == list(range(len(broken)))


EXPIRE_S = 60.0


@settings(max_examples=examples(1000))
@given(
    logs(), st.booleans(), st.lists(st.sampled_from(["append", "append", "read", 1.0, 59.0, 61.0, 200.0]), max_size=40)
)
def test_a_message_outlives_any_pause_of_its_reader(log: Log, in_order: bool, moves: list[str | float]) -> None:
    """Producers append, the application lets the reader go on: each in its own time. What is given up had no chunk for
    the whole time in the log; what is never completed is given up once the log was read for so long."""
    clock = SetClock()
    assembly = ChunkAssembly(lambda: ChunkRules(0, expire_s=EXPIRE_S), clock.monotonic)
    assembly.in_order = in_order
    appended: dict[str, list[float]] = {}
    dead: set[str] = set()
    end = position = 0

    def expire() -> None:
        assembly.expire(position, lambda: end)
        for uuid, _, _ in assembly.given_up:
            read = [log[offset].info for offset in range(position)]
            chunks = sum(info is not None and info.uuid == uuid for info in read)
            times = appended[uuid]
            later = times[chunks] if chunks < len(times) else clock.seconds
            assert later - times[chunks - 1] >= EXPIRE_S
            dead.add(uuid)
        assembly.given_up.clear()

    for move in [*moves, *["append", "read"] * len(log)]:
        if isinstance(move, float):
            clock.seconds += move
        elif move == "append" and end < len(log):
            info = log[end].info
            if info is not None:
                appended.setdefault(info.uuid, []).append(clock.seconds)
            end += 1
        elif move == "read" and position < end:
            info = log[position].info
            if info is not None and info.uuid not in dead:
                assembly.add(position, info, log[position])
            position += 1
        expire()
    assert position == len(log)
    for _ in range(2):
        clock.seconds += EXPIRE_S
        expire()
    assert assembly.pending == 0


class Subscription:
    """One partition of a subscription through crashes: a new owner has the cursor, and nothing else."""

    def __init__(self, log: Log, rules: ChunkRules, *, hold: bool) -> None:
        self.log = log
        self.rules = rules
        self.hold = hold
        self.cursor = CursorState(0, 4)
        self.now = 0.0
        self.take_over()

    def take_over(self) -> None:
        slot = PartitionAcks("persistent://public/default/t", 0, -1, LedgerLayout(1, 4))
        identity = CursorIdentity("persistent://public/default/t", 0, "s", "t", "x" * 22, 1, 2, 4)
        terms = PartitionTerms(self, chunks=ChunkAssembly(lambda: self.rules, lambda: self.now))
        self.owned = OwnedPartition(slot, identity, self.cursor, SavedCursor(identity.lineage(b"", 1, 0)), terms)
        self.endpoint = Endpoint("joe", 1000, delivery_type=Delivery)

    def log_end(self, partition: int) -> int:
        return len(self.log)

    def record(self, partition: int, offset: int) -> Any | None:
        records = {record.at: record for record in self.log}
        return self.owned.entries.chunks.put_together([offset], records, [])[0].get(offset)

    def read(self, count: int) -> None:
        run = [record for record in self.log if record.at >= self.owned.read_position][:count]
        if run:
            self.owned.intake.accept([record.at for record in run], list(run))

    def deliver(self) -> list[Delivery]:
        owned = self.owned
        while owned.buffered:
            offsets, records = owned.take(3)
            if not offsets:
                break
            owned.deliver(self.endpoint.feed(owned.slot), offsets, records, hold=self.hold)
        for offset in owned.redeliveries.lowest(10):
            owned.redeliveries.taken([offset])
            record = self.record(0, offset)
            assert record is not None
            owned.deliver(self.endpoint.feed(owned.slot), [offset], [record], hold=True)
        return self.endpoint.discard(None)


@settings(max_examples=examples(500))
@given(logs(), RULES, st.booleans(), st.data())
def test_nothing_is_lost_and_nothing_acknowledged_comes_again(
    log: Log, rules: ChunkRules, hold: bool, data: st.DataObject
) -> None:
    subscription = Subscription(log, rules, hold=hold)
    expected = {offsets[-1]: offsets for offsets in messages_in(log)}
    acknowledged: set[int] = set()
    for _ in range(data.draw(st.integers(0, 12))):
        move = data.draw(st.sampled_from(["read", "crash", "rewind" if not hold else "refuse"]))
        if move == "read":
            subscription.read(data.draw(st.integers(1, 6)))
        elif move == "crash":
            subscription.take_over()
        elif move == "rewind":
            subscription.owned.rewind()
        else:
            subscription.owned.redeliver(list(subscription.owned.in_flight.holders), subscription.endpoint)
        for delivery in subscription.deliver():
            offsets = expected[delivery.offset]
            assert delivery.offset not in acknowledged
            assert delivery.record.value() == b"".join(b"%3d" % offset for offset in offsets)
            choice = data.draw(st.sampled_from(["ack", "keep", "up to"]))
            if choice == "ack":
                subscription.owned.slot.ack(delivery.offset)
                acknowledged.add(delivery.offset)
            elif choice == "up to" and not hold:
                subscription.owned.slot.cumulative.append(delivery.offset)
                acknowledged.update(last for last in expected if last <= delivery.offset)
        subscription.owned.drain_acknowledgements(lambda: len(log))
        assert subscription.owned.cursor.next_unacked <= min(
            (min(offsets) for last, offsets in expected.items() if last not in acknowledged), default=len(log)
        )
    subscription.take_over()
    subscription.read(len(log))
    assert {delivery.offset for delivery in subscription.deliver()} == expected.keys() - acknowledged
    for offset in expected:
        subscription.owned.slot.ack(offset)
    subscription.owned.drain_acknowledgements(lambda: len(log))
    subscription.now = 100.0
    subscription.owned.intake.expire_chunks()
    assert subscription.cursor.next_unacked == len(log)
