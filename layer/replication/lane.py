"""One partition on its way to another cluster: what was read and may be copied, and what is under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from layer import errors
from layer.deadline import Deadline
from layer.dispatch.read_committed import ReadCommitted
from layer.dispatch.readable import Readable
from layer.kafka.errors import ours
from layer.kafka.producer import KafkaProducer
from layer.replication.copying import Copying
from layer.replication.cursor import ReplicationCursor
from layer.replication.target import Copied, Target
from mapping.fence import Fence

_POLL_EVERY: Final = 50
"""Records, of which some thousands are under way. Less often, and the producer's own thread would wait for the GIL at
each report."""
_ROOM_S: Final = 0.01
_FULL_S: Final = 30.0


class RecordsAsTheyAre:
    """In the place of `ReaderChunks`: a chunk is copied as the record that it is."""

    def together(self, _partition: int, records: list[Any]) -> list[Any]:
        return records

    def forget(self, _partition: int) -> None:
        """Nothing is kept."""


class Lane:
    """Owned by the replicator's thread; delivery reports come from whichever thread serves the producer.

    Memory: an offset and a size for each record under way, and what `ReadCommitted` keeps of open transactions.
    """

    def __init__(
        self,
        partition: int,
        cursor: ReplicationCursor,
        fences: Callable[[int], Iterable[Fence]],
        committed: Callable[[int], ReadCommitted],
    ) -> None:
        self.partition = partition
        self.cursor = cursor
        self.readable = Readable(fences, committed, (partition,), RecordsAsTheyAre())
        self.read_position = cursor.next_offset
        self.saved_upto = cursor.next_offset
        self.copying: Copying | None = None
        """None until the target is ready."""
        self.copied = Copied(-1, 0)
        self.failure: Any = None
        """What librdkafka said of a record that it could not store."""
        self.copied_bytes = 0
        self._offsets: deque[int] = deque()
        self._sizes: deque[int] = deque()
        """Of what is under way, in order; no tuples, which Python's garbage collector would walk through."""
        self._sent_records = 0
        self._stopped_at: int | None = None
        """The source offset that could not be handed over; nothing is after it."""
        self._sent_bytes = 0
        self._target_next = 0

    def begin(self, copying: Copying, copied: Copied) -> int:
        """The target is ready; gives where to read."""
        self.copying, self.copied = copying, copied
        self._target_next = copied.upto
        self.read_position = max(self.cursor.next_offset, copied.highest + 1)
        self.saved_upto = self.read_position
        return self.read_position

    @property
    def under_way(self) -> int:
        return len(self._offsets)

    @property
    def bytes_under_way(self) -> int:
        return self._sent_bytes - self.copied_bytes

    @property
    def copied_records(self) -> int:
        return self._sent_records - len(self._offsets)

    def send(self, records: list[Any], target: Target, producer: KafkaProducer) -> None:
        """Hand records that may be read to the producer, in order. The lane is of no more use once this has failed.

        Raises:
            LayerError: a record cannot be copied now, or the producer does not take it.
        """
        assert self.copying is not None  # noqa: S101 - nothing is read before
        headers_of, present = self.copying.headers_of, self.copied.present
        offsets, sizes = self._offsets, self._sizes
        topic, partition, produce, delivered = (
            target.topic.kafka_topic,
            self.partition,
            producer.produce,
            self._delivered,
        )
        offset = -1
        try:
            for record in records:
                offset = record.offset()
                if present and offset in present:
                    continue
                headers = headers_of(record)
                if headers is None:
                    continue
                value = record.value()
                size = len(record)
                self._sent_bytes += size
                sizes.append(size)
                offsets.append(offset)
                try:
                    produce(topic, value, record.key(), partition, delivered, None, 0, headers)
                except BufferError:
                    produce_with_room(
                        producer, _FULL_S, topic, value, record.key(), partition, delivered, None, 0, headers
                    )
                self._sent_records += 1
                if self._sent_records % _POLL_EVERY == 0:
                    producer.poll_inline()
        except Exception as failure:
            self._stop_at(offset)
            translated = ours(failure, f"copying offset {offset} to {topic}-{partition}")
            if translated is failure:
                raise
            raise translated from failure

    def _stop_at(self, offset: int) -> None:
        """What is done ends before it, whatever was read or let go behind."""
        self._stopped_at = offset
        if self._offsets and self._offsets[-1] == offset:  # nobody will report it
            self._offsets.pop()
            self._sent_bytes -= self._sizes.pop()

    def _delivered(self, error: Any, record: Any) -> None:
        """Reports come in the order of sending, since one request at a time is under way and none is given up."""
        if error is not None:
            self.failure = self.failure or error
            return
        if self.failure is None:
            self._offsets.popleft()  # before the place that it got counts: see `done_upto`
            place = record.offset()
            if place is not None and place >= 0:  # unknown of what an earlier try had stored
                self._target_next = place + 1
            self.copied_bytes += self._sizes.popleft()

    def done_upto(self) -> Copied:
        """What is copied now, as a snapshot says it. Only of the replicator's thread."""
        upto = self._target_next  # first: what is not done by then lies there or behind
        highest = self._next_undone() - 1
        present = self.copied.present
        if present and present.max() > highest:  # a former owner's, and not passed yet
            upto = self.copied.upto
        return Copied(highest, upto)

    def _next_undone(self) -> int:
        try:
            first = self._offsets[0]
        except IndexError:
            first = self.read_position if self._stopped_at is None else self._stopped_at
        committed = self.readable.committed.get(self.partition)
        waits_from = None if committed is None else committed.waits_from
        return first if waits_from is None else min(first, waits_from)


def produce_with_room(producer: KafkaProducer, within_s: float, topic: str, *record: Any) -> None:
    """`produce`, once the queue that all who copy to the cluster share has room. Raises AppendFailed after so long."""
    deadline = Deadline.after(within_s)
    while not deadline.passed():
        producer.wait_for_reports(_ROOM_S)
        try:
            producer.produce(topic, *record)
        except BufferError:
            continue
        return
    raise errors.AppendFailed(f"{topic}: the queue to its cluster was full for {within_s:.0f} s")
