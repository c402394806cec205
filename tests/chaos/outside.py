"""Kafka is asked with plain Kafka clients: its messages, and the committed offsets over time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from pyroaring import BitMap64

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka_mapping.records.batch_entry import decode_batch
from pulsar_on_kafka_mapping.records.message_record import batch_info
from pulsar_on_kafka_mapping.records.transaction_headers import MARKER_KEY
from pulsar_on_kafka_mapping.state.cursors.cursor_marker import decode_index, open_marker, page_contents
from pulsar_on_kafka_mapping.state.cursors.cursor_state import (
    CommitMetadata,
    Holes,
    decode_commit_metadata,
    decode_segment,
)
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_topics import CURSORS
from tests.chaos.evidence import Position
from tests.foreign_records import UNREADABLE
from tests.kafka_records import headers_of, place_of

_SAMPLE_EVERY_S = 0.01


def read_topic(bootstrap: str, kafka_topic: str, partitions: int) -> dict[Position, bytes]:
    """Every message there is now, batch entries unpacked."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "chaos-truth",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    found: dict[Position, bytes] = {}
    try:
        deadline = Deadline.after(60)
        ends = {
            p: consumer.get_watermark_offsets(TopicPartition(kafka_topic, p), timeout=20)[1] for p in range(partitions)
        }
        consumer.assign([TopicPartition(kafka_topic, p, 0) for p in range(partitions)])
        while any(where.offset < ends[where.partition] for where in _positions(consumer, kafka_topic, partitions)):
            deadline.check(f"{kafka_topic} to be read")
            for message in consumer.consume(5000, 0.2):
                if message.error() is None:
                    for index, payload in enumerate(_payloads(message)):
                        found[Position(*place_of(message), index)] = payload
    finally:
        consumer.close()
    return found


def _payloads(record: Message) -> list[bytes]:
    if record.key() in (UNREADABLE, MARKER_KEY):
        return []
    batch = batch_info(headers_of(record))
    value = record.value() or b""
    return [value] if batch is None else decode_batch(value, batch.messages).payloads


def _positions(consumer: Consumer, kafka_topic: str, partitions: int) -> list[TopicPartition]:
    asked = consumer.position([TopicPartition(kafka_topic, p) for p in range(partitions)])
    return [TopicPartition(where.topic, where.partition, max(0, where.offset)) for where in asked]


def read_at(
    bootstrap: str, kafka_topic: str, partition: int, offsets: Iterable[int], *, tombstones: bool = False
) -> dict[int, bytes]:
    """The records at these offsets, as far as they are still there; with `tombstones` these as well, as empty ones."""
    wanted = set(offsets)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "chaos-truth",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    found: dict[int, bytes] = {}
    try:
        consumer.assign([TopicPartition(kafka_topic, partition, min(wanted, default=0))])
        deadline = Deadline.after(10)
        reached = -1
        while wanted and reached < max(wanted) and not deadline.passed():
            for message in consumer.consume(1000, 0.2):
                _, offset = place_of(message)
                value = message.value()
                reached = max(reached, offset)
                if message.error() is None and offset in wanted and (tombstones or value is not None):
                    found[offset] = value or b""
    finally:
        consumer.close()
    return found


@dataclass(frozen=True, slots=True)
class Entries:
    """Acknowledged entries of a partition by one state: everything below `below`, these entries, and these messages of
    batches."""

    below: int
    acked: BitMap64 = field(default_factory=BitMap64)
    batches: Mapping[int, int] = field(default_factory=dict)
    """By offset, a bit for each message."""

    def has(self, position: Position) -> bool:
        offset = position.offset
        if offset < self.below or offset in self.acked:
            return True
        return bool(self.batches.get(offset, 0) >> position.index & 1)


@dataclass(frozen=True, slots=True)
class Sample:
    """A committed offset with its metadata, first seen by an answer that was asked for at `asked` and came at `at`."""

    asked: float
    at: float
    partition: int
    offset: int
    metadata: str

    def state(self) -> CommitMetadata | None:
        return decode_commit_metadata(self.metadata)

    def in_commit(self) -> Entries:
        """What is acknowledged according to the commit alone."""
        state = self.state()
        if state is None or state.holes is None:
            return Entries(self.offset)
        return _entries(self.offset, self.offset, state.holes)

    def acknowledged(self, bootstrap: str, topic: str, entries_per_ledger: int) -> Entries:
        """The same with what lies in its segments, if they are still there."""
        found = self.in_commit()
        acked, batches = BitMap64(found.acked), dict(found.batches)
        for record in self._segments(bootstrap, topic, []).values():
            segment = decode_segment(record)
            more = _entries(self.offset, segment.ledger_index * entries_per_ledger, segment.holes)
            acked |= more.acked
            for offset, bits in more.batches.items():
                batches[offset] = batches.get(offset, 0) | bits
        return Entries(self.offset, acked, batches)

    def missing(self, bootstrap: str, topic: str) -> list[str]:
        """What this commit refers to, directly or not, and `cursors` has no more: `marker 5`, `segment 7`."""
        gone: list[str] = []
        self._segments(bootstrap, topic, gone)
        return gone

    def _segments(self, bootstrap: str, topic: str, gone: list[str]) -> dict[int, bytes]:
        """The segments by their offsets in `cursors`; what is not there, or its marker, is added to `gone`."""
        state = self.state()
        if state is None or state.marker_offset is None:
            return {}

        def read(what: str, offsets: Sequence[int]) -> dict[int, bytes]:
            found = read_at(bootstrap, Instance().state_topic(CURSORS), CURSORS.partition_for(topic), offsets)
            gone.extend(f"{what} {offset}" for offset in offsets if offset not in found)
            return found

        for marker in read("marker", [state.marker_offset]).values():
            index = open_marker(marker)
            if not isinstance(index, bytes):
                pages = read("page", index)
                if len(pages) < len(index):
                    break
                index = b"".join(page_contents(pages[offset]) for offset in index)
            return read("segment", [part.kafka_offset for ledger in decode_index(index).live for part in ledger.parts])
        return {}


def _entries(below: int, base: int, holes: Holes) -> Entries:
    acked = BitMap64(base + relative for relative in holes.acked)
    return Entries(below, acked, {base + relative: bits for relative, (_, bits) in holes.batches.items()})


class Sampler:
    """Reads a group's committed offsets all the time, from outside the group, and keeps every change it sees.

    With OffsetFetch of a Consumer that joins nothing. An AdminClient sends the same request, but librdkafka 2.16 aborts
    the process when the broker goes away under it (`rd_kafka_enq_once_del_source_return: refcnt > 0`).
    """

    def __init__(self, bootstrap: str, group: str, kafka_topic: str, partitions: int) -> None:
        self.samples: list[Sample] = []
        self.answers = 0
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
        )
        self._wanted = [TopicPartition(kafka_topic, p) for p in range(partitions)]
        self._last: dict[int, tuple[int, str]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"sampler {group}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(_SAMPLE_EVERY_S):
            self._look()

    def _look(self) -> None:
        asked = time.monotonic()
        try:
            answer = self._consumer.committed(self._wanted, timeout=2)
        except KafkaException:
            return  # the broker is away
        at = time.monotonic()
        self.answers += 1
        for where in answer:
            if where.error is not None or where.offset < 0:
                continue
            seen = (where.offset, where.metadata or "")
            if self._last.get(where.partition) != seen:
                self._last[where.partition] = seen
                self.samples.append(Sample(asked, at, where.partition, *seen))

    def close(self) -> None:
        """Look once more and end; a second call does nothing."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._thread.join(10)
            self._look()
            self._consumer.close()
