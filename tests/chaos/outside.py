"""What Kafka itself says, asked with plain Kafka clients: its messages, and the committed offsets over time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from layer.deadline import Deadline
from mapping.state_records.cursor_state import CommitMetadata, decode_commit_metadata, decode_marker, decode_segment
from mapping.state_topics import CURSORS
from tests.chaos.evidence import Position

_SAMPLE_EVERY_S = 0.01


def read_topic(bootstrap: str, kafka_topic: str, partitions: int) -> dict[Position, bytes]:
    """Every message there is now."""
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
                    found[message.partition(), message.offset()] = message.value() or b""
    finally:
        consumer.close()
    return found


def _positions(consumer: Consumer, kafka_topic: str, partitions: int) -> list[TopicPartition]:
    asked = consumer.position([TopicPartition(kafka_topic, p) for p in range(partitions)])
    return [TopicPartition(where.topic, where.partition, max(0, where.offset)) for where in asked]


def read_at(bootstrap: str, kafka_topic: str, partition: int, offsets: Iterable[int]) -> dict[int, bytes]:
    """The records at these offsets, as far as they are still there."""
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
                reached = max(reached, message.offset())
                if message.error() is None and message.offset() in wanted and message.value() is not None:
                    found[message.offset()] = message.value()
    finally:
        consumer.close()
    return found


@dataclass(frozen=True, slots=True)
class Sample:
    """A committed offset with its metadata, first seen by an answer that came at `at`."""

    at: float
    partition: int
    offset: int
    metadata: str

    def state(self) -> CommitMetadata | None:
        return decode_commit_metadata(self.metadata)

    def acknowledged(self, bootstrap: str, topic: str, entries_per_ledger: int) -> set[Position]:
        """What this state says is acknowledged, with what lies in its segments if they are still there."""
        found = {(self.partition, offset) for offset in range(self.offset)}
        state = self.state()
        if state is None:
            return found
        if state.holes is not None:
            return found | {(self.partition, self.offset + relative) for relative in state.holes.acked}
        place = (bootstrap, CURSORS.kafka_name, CURSORS.partition_for(topic))
        for marker in read_at(*place, [state.marker_offset or 0]).values():
            references = decode_marker(marker).live
            for record in read_at(*place, [reference.kafka_offset for reference in references]).values():
                segment = decode_segment(record)
                base = segment.ledger_index * entries_per_ledger
                found.update((self.partition, base + entry) for entry in segment.holes.acked)
        return found


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
                self.samples.append(Sample(at, where.partition, *seen))

    def close(self) -> None:
        """Look once more and end; a second call does nothing."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._thread.join(10)
            self._look()
            self._consumer.close()
