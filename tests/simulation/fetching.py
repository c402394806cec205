"""Brokers with logs, leaders and fetch sessions, as far as a Fetch and a request for metadata show them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

from pulsar_on_kafka.kafka.reading.events import KafkaPartition
from pulsar_on_kafka.kafka.wire.cluster_messages import (
    NO_TOPIC_ID,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)
from pulsar_on_kafka.kafka.wire.error_codes import ErrorCode
from pulsar_on_kafka.kafka.wire.fetch_messages import (
    EpochEnd,
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    PartitionToFetch,
)
from tests.kafka_batches import batch, control

NODES: Final = (1, 2, 3)
MAX_BATCH_BYTES: Final = 2_000
Key = tuple[bytes, int]


@dataclass(slots=True)
class Log:
    topic_id: bytes
    leader: int
    epoch: int = 0
    start: int = 0
    end: int = 0
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    """The offset behind each batch, and its bytes."""
    values: dict[int, bytes] = field(default_factory=dict)
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """Leader epochs and the offsets where they begin."""

    def append(self, rng: random.Random) -> None:
        """A batch of one to five records, or the marker of a transaction."""
        if rng.random() < 0.1:
            self.end += 1
            self.batches.append((self.end, control(self.end - 1, 5, commit=True, epoch=self.epoch)))
            return
        values = [b"%s %d " % (self.topic_id, self.end + each) * 5 for each in range(rng.randint(1, 5))]
        self.values.update(enumerate(values, self.end))
        whole = batch([(1, None, value, []) for value in values], self.end, epoch=self.epoch)
        self.end += len(values)
        self.batches.append((self.end, whole))

    def move(self, leader: int) -> None:
        self.leader, self.epoch = leader, self.epoch + 1
        self.epochs.append((self.epoch, self.end))

    def truncate(self, batches: int) -> None:
        """The last batches are lost, and a new leader goes on."""
        kept = self.batches[: len(self.batches) - batches]
        self.batches, self.end = kept, kept[-1][0] if kept else 0
        self.values = {offset: value for offset, value in self.values.items() if offset < self.end}
        self.move(self.leader)

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """The largest epoch up to `epoch` that the log has, and its end."""
        known = [each for each in self.epochs if each[0] <= epoch]
        later = [begin for number, begin in self.epochs if number > epoch]
        return EpochEnd(known[-1][0], min(later, default=self.end))

    def read(self, position: int, max_bytes: int, *, whole: bool) -> bytes:
        """Batches from `position` on; at least one if `whole`."""
        found = b""
        for end, each in self.batches:
            if end > position:
                if len(found) + len(each) > max_bytes and not (whole and not found):
                    break
                found += each
        return found


@dataclass(slots=True)
class _Session:
    epoch: int
    partitions: dict[Key, PartitionToFetch]
    ends: dict[Key, int] = field(default_factory=dict)
    """The high watermarks that the client knows."""


@dataclass(slots=True)
class Pending:
    """A request that a broker has, and answers when it has records or the time is over."""

    request: FetchRequest
    node: int
    since_s: float
    session_id: int
    session: _Session | None
    error: ErrorCode = ErrorCode.NONE
    full: bool = True


class Cluster:
    def __init__(self, rng: random.Random, max_sessions: int) -> None:
        self._rng = rng
        self._max_sessions = max_sessions
        self.sessions: dict[int, dict[int, _Session]] = {node: {} for node in NODES}
        self.logs: dict[KafkaPartition, Log] = {}
        self._last_session = 0

    def create(self, topic: str, partitions: int) -> None:
        """A topic, also in the place of one with this name."""
        topic_id = self._rng.randbytes(16)
        for number in range(partitions):
            self.logs[KafkaPartition(topic, number)] = Log(topic_id, self._rng.choice(NODES))

    def metadata(self, topics: tuple[str, ...]) -> MetadataResponse:
        found = []
        for topic in topics:
            partitions = [
                PartitionMetadata(0, where.partition, log.leader, log.epoch)
                for where, log in self.logs.items()
                if where.topic == topic
            ]
            ids = [log.topic_id for where, log in self.logs.items() if where.topic == topic]
            error = ErrorCode.NONE if ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            found.append(TopicMetadata(error, topic, ids[0] if ids else NO_TOPIC_ID, tuple(partitions)))
        return MetadataResponse(0, (), None, 1, tuple(found))

    def receive(self, node: int, request: FetchRequest, now_s: float) -> Pending:
        sessions = self.sessions[node]
        added = {(topic_id, each.partition): each for topic_id, partitions in request.topics for each in partitions}
        if request.session_epoch <= 0:
            sessions.pop(request.session_id, None)
            session = _Session(1, added)
            number = 0
            if request.session_epoch == 0 and len(sessions) < self._max_sessions:
                self._last_session += 1
                number = self._last_session
                sessions[number] = session
            return Pending(request, node, now_s, number, session)
        found = sessions.get(request.session_id)
        if found is None:
            return Pending(request, node, now_s, 0, None, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if found.epoch != request.session_epoch:
            return Pending(request, node, now_s, 0, None, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        found.epoch += 1
        found.partitions.update(added)
        for topic_id, partitions in request.forgotten_topics:
            for each in partitions:
                assert (topic_id, each) not in added
                del found.partitions[topic_id, each]
                found.ends.pop((topic_id, each), None)
        if not found.partitions:
            del sessions[request.session_id]
            return Pending(request, node, now_s, 0, found)
        return Pending(request, node, now_s, request.session_id, found, full=False)

    def answer(self, pending: Pending, now_s: float) -> FetchResponse | None:
        """The response, or None while the broker waits."""
        if pending.session is None:
            return FetchResponse(0, pending.error, 0, ())
        session, room = pending.session, pending.request.max_bytes
        topics: dict[bytes, list[FetchedPartition]] = {}
        ends: dict[Key, int] = {}
        urgent = False
        for key, each in list(session.partitions.items()):
            result = self._read(pending.node, key, each, room, whole=room == pending.request.max_bytes)
            room = max(0, room - len(result.records))
            news = bool(result.error_code or result.records or result.diverging_epoch)
            urgent = urgent or news
            if pending.full or news or session.ends.get(key) != result.high_watermark:
                topics.setdefault(key[0], []).append(result)
                ends[key] = result.high_watermark
            if result.records:  # Kafka moves partitions with records back
                session.partitions[key] = session.partitions.pop(key)
        if not urgent and now_s - pending.since_s < pending.request.max_wait_ms / 1000:
            return None
        session.ends |= ends
        found = tuple((topic_id, tuple(partitions)) for topic_id, partitions in topics.items())
        return FetchResponse(0, 0, pending.session_id, found)

    def throttled(self, pending: Pending) -> FetchResponse:
        """The response to a client above its quota: no partitions, and no session where one was to begin."""
        if pending.session is None:
            return FetchResponse(0, pending.error, 0, ())
        if pending.full:
            self.sessions[pending.node].pop(pending.session_id, None)
        return FetchResponse(200, 0, 0 if pending.full else pending.session_id, ())

    def _read(self, node: int, key: Key, each: PartitionToFetch, room: int, *, whole: bool) -> FetchedPartition:
        log = next((log for where, log in self.logs.items() if (log.topic_id, where.partition) == key), None)
        error, records, diverging = ErrorCode.NONE, b"", None
        if log is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID
        elif log.leader != node:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif each.current_leader_epoch < log.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif each.fetch_offset < log.start:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        elif each.last_fetched_epoch >= 0 and log.end_of_epoch(each.last_fetched_epoch) < (
            each.last_fetched_epoch,
            each.fetch_offset,
        ):
            diverging = log.end_of_epoch(each.last_fetched_epoch)
        elif each.fetch_offset > log.end:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            records = log.read(each.fetch_offset, min(room, each.partition_max_bytes), whole=whole)
        end = -1 if error or log is None else log.end
        return FetchedPartition(key[1], error, end, end, 0, (), -1, memoryview(records), diverging, None)
