"""Random histories of fetch sessions: no record is lost, none comes twice, and all come in order."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import count

import pytest

from pulsar_on_kafka.kafka.reading import fetch_session, fetch_sessions
from pulsar_on_kafka.kafka.reading.events import EndOfLog, Gone, KafkaPartition, OutOfRange
from pulsar_on_kafka.kafka.reading.fetch_session import FetchKind, FetchSession
from pulsar_on_kafka.kafka.reading.fetch_sessions import Fetched, FetchEvent, FetchSessions, Reported
from pulsar_on_kafka.kafka.reading.record_batches import decode
from pulsar_on_kafka.kafka.wire.offset_messages import READ_COMMITTED, READ_UNCOMMITTED
from tests.seeds import in_three
from tests.simulation.fetching import MAX_BATCH_BYTES, NODES, Cluster, Log, Pending

BUDGET_BYTES = 300_000
WINDOW_BYTES = 1_500
EXCESS_BYTES = 20 * MAX_BATCH_BYTES
"""A response may exceed its limit by one batch, and so may those of all other sessions before the next request."""
TOPICS = [f"topic {number}" for number in range(4)]
PARTITIONS = [KafkaPartition(topic, number) for topic in TOPICS for number in range(3)]


@dataclass(slots=True)
class Reader:
    """The reader of a watch: it knows what must come next."""

    number: int
    generation: int
    where: KafkaPartition
    position: int
    log: Log
    is_open: bool = True
    window_bytes: int = WINDOW_BYTES
    is_known: bool = False
    """The sessions know the topic's id, by a look-up or from the reader; before that a reader may read either of two
    topics of one name."""
    end: int = -1
    """The offset of the last report that the log ends there."""
    waiting: list[Fetched] = field(default_factory=list)

    def has_room(self) -> bool:
        return self.is_open and sum(len(fetched.data) for fetched in self.waiting) < self.window_bytes

    def take(self, fetched: Fetched) -> None:
        for each in decode(fetched.where, fetched.data, fetched.position):
            for record in each.records:
                skipped = [offset for offset in range(self.position, record.offset()) if offset in self.log.values]
                assert not skipped, f"{self.where} lacks {skipped}"
                assert record.offset() >= self.position, f"{self.where} has {record.offset()} twice"
                assert record.value() == self.log.values[record.offset()]
                self.position = record.offset() + 1
            self.position = max(self.position, each.position)


class History:
    def __init__(self, seed: int, *, fails: bool = True) -> None:
        self.fails = fails
        self.rng = random.Random(seed)
        self.now_s = 0.0
        self.cluster = Cluster(self.rng, self.rng.choice([0, 2, 100]))
        self.budget_bytes = self.rng.choice([BUDGET_BYTES, BUDGET_BYTES, 66_000]) if fails else BUDGET_BYTES
        self.sessions = FetchSessions(self.budget_bytes)
        self.readers: dict[int, Reader] = {}
        self.pending: dict[FetchSession, Pending] = {}
        self.requested_bytes: dict[FetchSession, int] = {}
        """The limits of all requests under way, also of those that no broker received."""
        self.numbers = count(1)
        for topic in TOPICS:
            self.cluster.create(topic, 3)

    def delete_records(self, log: Log) -> None:
        """Deletes the beginning of a log: readers there are to seek."""
        batches = self.rng.randint(0, len(log.batches))
        log.start = log.batches[batches - 1][0] if batches else log.start
        log.batches = log.batches[batches:]

    def watch(self) -> None:
        where, number = self.rng.choice(PARTITIONS), next(self.numbers)
        log = self.cluster.logs[where]
        position = self.rng.randint(log.start, log.end)
        reader = self.readers[number] = Reader(number, number, where, position, log)
        reader.is_open = self.rng.random() < 0.8
        reader.is_known = self.rng.random() < 0.5
        topic_id = log.topic_id if reader.is_known else None
        level = self.rng.choice([READ_COMMITTED, READ_UNCOMMITTED])
        self.sessions.watch(number, number, where, position, WINDOW_BYTES if reader.is_open else 0, level, topic_id)

    def run(self) -> None:
        """Everything that is due, as a loop does it between two things that happen."""
        topics = self.sessions.topics_to_look_up(self.now_s)
        if topics and (not self.fails or self.rng.random() < 0.9):
            self.take(self.sessions.learn(self.cluster.metadata(topics).topics, self.now_s))
            for reader in self.readers.values():
                reader.is_known = reader.is_known or reader.where.topic in topics
        elif topics:
            self.sessions.look_up_failed()
        for session, request in self.sessions.requests(self.now_s):
            assert session not in self.pending
            assert len(session.watches) <= fetch_session.MAX_PARTITIONS
            self.requested_bytes[session] = request.max_bytes
            if self.fails and self.rng.random() < 0.03:
                continue  # the connection breaks, and the broker receives nothing
            pending = self.pending[session] = self.cluster.receive(session.node_id, request, self.now_s)
            if pending.session is not None:
                self.check_windows(pending)
        held = sum(len(fetched.data) for reader in self.readers.values() for fetched in reader.waiting)
        under_way = sum(self.requested_bytes.values())
        assert held == self.sessions.held_bytes
        assert held + under_way <= self.budget_bytes + EXCESS_BYTES

    def check_windows(self, pending: Pending) -> None:
        """Nothing is fetched that no reader has requested."""
        assert pending.session is not None
        wanted = {(each.log.topic_id, each.where.partition) for each in self.readers.values() if each.has_room()}
        assert pending.session.partitions.keys() <= wanted

    def answer_one(self) -> None:
        if not self.requested_bytes:
            return
        session = self.rng.choice(list(self.requested_bytes))
        if session not in self.pending or self.rng.random() < 0.03:
            self.fail(session)
        else:
            self.take(self.answer(session))

    def answer(self, session: FetchSession) -> list[FetchEvent]:
        """The events of the response, if the broker gives one now."""
        pending = self.pending[session]
        is_throttled = self.fails and self.rng.random() < 0.03
        response = self.cluster.throttled(pending) if is_throttled else self.cluster.answer(pending, self.now_s)
        if response is None:
            return []
        del self.pending[session], self.requested_bytes[session]
        return self.sessions.answered(session, response, self.now_s)

    def fail(self, session: FetchSession) -> None:
        self.pending.pop(session, None)
        del self.requested_bytes[session]
        self.sessions.failed(session, self.now_s)

    def take(self, events: list[FetchEvent]) -> None:
        for each in events:
            reader = self.readers.get(each.number)
            assert reader is not None
            if isinstance(each, Fetched):
                assert each.generation == reader.generation
                reader.waiting.append(each)
            elif isinstance(each.event, Gone):
                assert self.cluster.logs[reader.where] is not reader.log
                self.leave(reader)
            elif isinstance(each.event, OutOfRange):
                assert each.event.offset < reader.log.start
                if each.generation == reader.generation:
                    self.seek(reader, reader.log.start)
            else:
                assert isinstance(each.event, EndOfLog), each
                assert each.generation == reader.generation
                reader.end = each.event.offset

    def leave(self, reader: Reader) -> None:
        """Gives back what the reader holds."""
        self.sessions.forget(reader.number)
        for fetched in self.readers.pop(reader.number).waiting:
            self.sessions.hand_out(reader.number, len(fetched.data))

    def consume(self, reader: Reader) -> None:
        for fetched in reader.waiting:
            if fetched.generation == reader.generation:
                reader.take(fetched)
            self.sessions.hand_out(reader.number, len(fetched.data))
        reader.waiting.clear()

    def step(self) -> None:
        self.now_s += self.rng.choice([0.0, 0.001, 0.03, 1.0])
        drawn = self.rng.random()
        reader = self.rng.choice(list(self.readers.values())) if self.readers else None
        log = self.cluster.logs[self.rng.choice(PARTITIONS)]
        if drawn < 0.3:
            log.append(self.rng)
        elif drawn < 0.36 or reader is None:
            self.watch()
        elif drawn < 0.5:
            self.consume(reader)
        elif drawn < 0.54:
            self.seek(reader, self.rng.randint(reader.log.start, reader.log.end))
        elif drawn < 0.58:
            self.switch(reader)
        elif drawn < 0.6:
            self.leave(reader)
        elif drawn < 0.63:
            log.move(self.rng.choice(NODES))
        elif drawn < 0.65:
            self.cluster.sessions[self.rng.choice(NODES)].clear()
        elif drawn < 0.655:
            self.delete_records(log)
        elif drawn < 0.665:
            self.create_again(self.rng.choice(TOPICS))
        else:
            self.answer_one()
        self.run()

    def seek(self, reader: Reader, position: int) -> None:
        reader.generation, reader.position, reader.end = next(self.numbers), position, -1
        self.take(self.sessions.seek(reader.number, reader.generation, position))

    def create_again(self, topic: str) -> None:
        for reader in [*self.readers.values()]:
            if reader.where.topic == topic and not reader.is_known:
                self.leave(reader)
        self.cluster.create(topic, 3)

    def switch(self, reader: Reader) -> None:
        reader.is_open = not reader.is_open
        self.sessions.set_window(reader.number, WINDOW_BYTES if reader.is_open else 0)

    def settle(self) -> None:
        """Every open reader comes to the end of its log once nothing else happens."""
        self.fails = False
        for _ in range(3_000):
            if not self.is_behind():
                return
            self.now_s += 0.05
            self.take(self.answers())
            for reader in self.readers.values():
                self.consume(reader)
            self.run()
        raise AssertionError(f"not at the end: {self.is_behind()}")

    def answers(self) -> list[FetchEvent]:
        """The events of all responses that brokers give now."""
        for session in self.requested_bytes.keys() - self.pending.keys():
            self.fail(session)
        return [event for session in list(self.pending) for event in self.answer(session)]

    def exchange(self) -> None:
        """All requests that are due, and all responses to them."""
        self.run()
        self.take(self.answers())
        self.run()

    def is_behind(self) -> list[str]:
        return [
            f"{each.where} at {each.position} of {each.log.end}, reported: {each.end}"
            for each in self.readers.values()
            if each.is_open
            and (not each.position == each.end == each.log.end or self.cluster.logs[each.where] is not each.log)
        ]


def test_a_truncated_log_is_reported_and_a_seek_continues() -> None:
    history = History(0, fails=False)
    where, log = PARTITIONS[0], history.cluster.logs[PARTITIONS[0]]
    for _ in range(3):
        log.append(history.rng)
    reader = history.readers[1] = Reader(1, 1, where, 0, log)
    history.sessions.watch(1, 1, where, 0, WINDOW_BYTES)
    history.settle()
    read_to = reader.position
    log.truncate(2)
    log.append(history.rng)
    log.append(history.rng)
    log.append(history.rng)
    reported: list[FetchEvent] = []
    while not reported:
        history.now_s += 0.1
        history.run()
        reported = history.answers()
    (event,) = reported
    assert isinstance(event, Reported)
    assert isinstance(event.event, OutOfRange)
    assert event.event.offset == read_to
    end = log.epochs[1][1]
    assert f"topic 0-0 was read up to offset {read_to}, and its log was truncated at {end}" in str(event.event.failure)
    reader.generation, reader.position = 2, end
    history.sessions.seek(1, 2, end)
    history.settle()
    assert reader.position == log.end


def test_nothing_is_read_of_another_topic_of_the_name() -> None:
    history = History(0, fails=False)
    where, log = PARTITIONS[0], history.cluster.logs[PARTITIONS[0]]
    history.readers[1] = Reader(1, 1, where, 0, log)
    history.cluster.create(where.topic, 3)
    history.cluster.logs[where].append(history.rng)
    history.sessions.watch(1, 1, where, 0, WINDOW_BYTES, READ_COMMITTED, log.topic_id)
    for _ in range(40):  # a broker may not know the watched topic yet
        history.now_s += 0.1
        history.exchange()
    assert history.readers
    for _ in range(20):
        history.now_s += 0.1
        history.exchange()
    assert not history.readers


def test_a_backlog_does_not_delay_quiet_partitions() -> None:
    history = History(3, fails=False)
    one_leader = [where for where, log in history.cluster.logs.items() if log.leader == 2]
    busy, quiet = one_leader[:2]
    fill(history.cluster.logs[busy], history.rng, BUDGET_BYTES)
    for number, where in enumerate((busy, quiet)):
        log = history.cluster.logs[where]
        history.readers[number] = Reader(number, number, where, 0, log, window_bytes=BUDGET_BYTES)
        history.sessions.watch(number, number, where, 0, BUDGET_BYTES)
    history.exchange()
    found = {session.kind: set(session.watches) for session in history.pending}
    assert found == {FetchKind.BUSY: {key_of(history, busy)}, FetchKind.QUIET: {key_of(history, quiet)}}


def fill(log: Log, rng: random.Random, size: int) -> None:
    while size > 0:
        log.append(rng)
        size -= len(log.batches[-1][1])


def key_of(history: History, where: KafkaPartition) -> tuple[bytes, int]:
    return history.cluster.logs[where].topic_id, where.partition


def test_an_added_partition_does_not_wait_for_a_request_under_way() -> None:
    history = History(3, fails=False)
    first, second = [where for where, log in history.cluster.logs.items() if log.leader == 2][:2]
    for number, where in enumerate((first, second)):
        history.readers[number] = Reader(number, number, where, 0, history.cluster.logs[where])
        history.sessions.watch(number, number, where, 0, WINDOW_BYTES)
        history.exchange()
    assert [session.kind for session in history.pending] == [FetchKind.QUIET, FetchKind.NEW]
    history.now_s += 0.06
    history.exchange()
    history.now_s += 5.0
    history.exchange()
    ((session, pending),) = history.pending.items()
    assert session.kind is FetchKind.QUIET
    assert pending.session is not None
    assert pending.session.partitions.keys() == {key_of(history, first), key_of(history, second)}


def test_a_seek_to_the_end_is_reported_where_the_broker_has_no_news() -> None:
    history = History(0, fails=False)
    where, log = PARTITIONS[0], history.cluster.logs[PARTITIONS[0]]
    log.append(history.rng)
    reader = history.readers[1] = Reader(1, 1, where, log.end, log)
    history.sessions.watch(1, 1, where, log.end, WINDOW_BYTES)
    history.exchange()
    history.now_s += 0.1
    history.exchange()
    history.now_s += 5.0
    history.take(history.answers())
    assert reader.end == log.end
    history.seek(reader, log.end)
    assert reader.end == -1
    history.run()
    ((_, pending),) = history.pending.items()
    assert not pending.full
    history.now_s += 0.1
    history.exchange()
    assert reader.end == log.end


def test_a_full_window_is_fetched_for_when_half_of_it_is_free() -> None:
    history = History(0, fails=False)
    where, log = PARTITIONS[0], history.cluster.logs[PARTITIONS[0]]
    fill(log, history.rng, 50_000)
    history.sessions.watch(1, 1, where, 0, 10_000)
    history.readers[1] = Reader(1, 1, where, 0, log, window_bytes=10_000)
    for _ in range(100):
        history.exchange()
    held_bytes = history.sessions.held_bytes
    assert held_bytes >= 10_000
    assert not history.pending
    history.readers[1].waiting.clear()
    history.sessions.hand_out(1, held_bytes - 5_001)
    history.sessions.hand_out(1, 0)
    assert history.sessions.requests(history.now_s) == []
    history.sessions.hand_out(1, 1)
    ((_, request),) = history.sessions.requests(history.now_s)
    assert request.topics[0][1][0].fetch_offset > 0


def test_nothing_is_fetched_beyond_the_budget_and_that_is_shown() -> None:
    history = History(5, fails=False)
    where, log = PARTITIONS[0], history.cluster.logs[PARTITIONS[0]]
    fill(log, history.rng, 2 * BUDGET_BYTES)
    reader = history.readers[1] = Reader(1, 1, where, 0, log, window_bytes=10 * BUDGET_BYTES)
    history.sessions.watch(1, 1, where, 0, 10 * BUDGET_BYTES)
    history.run()
    for _ in range(100):
        history.exchange()
    assert BUDGET_BYTES / 2 < history.sessions.held_bytes < BUDGET_BYTES + MAX_BATCH_BYTES
    assert history.sessions.is_budget_reached
    assert not history.pending
    history.consume(reader)
    history.settle()
    assert not history.sessions.is_budget_reached


def test_many_topics_without_a_leader_are_looked_up_less_often() -> None:
    sessions, count, seconds = FetchSessions(), 6_000, 10
    for number in range(count):
        sessions.watch(number, 0, KafkaPartition(f"topic {number}", 0), 0, WINDOW_BYTES)
    looked_up: list[str] = []
    for turn in range(seconds * 20):
        looked_up += sessions.topics_to_look_up(turn / 20)
        sessions.look_up_failed()
    assert count < len(looked_up) <= count + 2_000 * seconds
    assert len(set(looked_up)) == count
    assert sessions.requests(seconds) == []


def test_slow_readers_leave_room_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("MAX_PARTITION_BYTES", "MAX_BUSY_PARTITION_BYTES"):  # small beside the budget, as the real ones are
        monkeypatch.setattr(fetch_session, limit, 20_000)
    history = History(0, fails=False)
    history.budget_bytes = 3_000_000
    history.sessions = FetchSessions(history.budget_bytes)
    slow, other = PARTITIONS[:3], PARTITIONS[3]
    for where in (*slow, other):
        fill(history.cluster.logs[where], history.rng, 1_500_000 if where in slow else 1_000)
    for number, where in enumerate(slow):
        log = history.cluster.logs[where]
        history.readers[number] = Reader(number, number, where, 0, log, window_bytes=history.budget_bytes)
        history.sessions.watch(number, number, where, 0, history.budget_bytes)
    for _ in range(200):
        history.exchange()
        history.now_s += 0.1
    assert history.sessions.is_budget_reached
    held = [sum(len(each.data) for each in reader.waiting) for reader in history.readers.values()]
    assert min(held) > history.budget_bytes / 8
    assert sum(held) < history.budget_bytes - 300_000
    last = history.readers[9] = Reader(9, 9, other, 0, history.cluster.logs[other])
    history.sessions.watch(9, 9, other, 0, WINDOW_BYTES)
    for _ in range(5):
        history.exchange()
        history.now_s += 0.1
    assert last.waiting
    history.settle()
    assert not history.sessions.is_budget_reached


@pytest.mark.parametrize("seeds", in_three(150, range(4_000)))
def test_readers_get_each_record_once_and_in_order(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (fetch_session, fetch_sessions):
        monkeypatch.setattr(module, "MAX_PARTITIONS", 3)
    monkeypatch.setattr(fetch_session, "MIN_PARTITION_BYTES", 500)
    for seed in seeds:
        history = History(seed)
        try:
            for _ in range(250):
                history.step()
            history.settle()
        except Exception as failure:
            raise AssertionError(f"seed {seed}: {failure}") from failure
