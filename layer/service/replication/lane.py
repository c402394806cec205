"""One partition on its way to another cluster: what was read and may be copied, and what is under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

from pulsar_on_kafka.kafka.errors import ours
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka.mapping.records.epoch_fences import Fence
from pulsar_on_kafka.node.sides.target import Copied, Target, produce_with_room
from pulsar_on_kafka.service.replication.copying import Copying, Headers
from pulsar_on_kafka.service.replication.cursor import ReplicationCursor
from pulsar_on_kafka.subscriptions.records.read_committed import ReadCommitted
from pulsar_on_kafka.subscriptions.records.readable import Readable

_STEP: Final = 50
"""Records, of which some thousands are under way: so many are reported as one, and then reports are asked for. Less
often, and the producer's own thread would wait for the GIL at each report."""
_FULL_S: Final = 30.0


class RecordsAsTheyAre:
    """Chunks are copied as the records that they are: this stands in the place of `ReaderChunks`."""

    def together(self, _partition: int, records: list[Any]) -> list[Any]:
        return records

    def forget(self, _partition: int) -> None:
        """Nothing is kept."""


class Lane:
    """Owned by the replicator's thread; delivery reports come from whichever thread serves the producer.

    Memory: three numbers for each step under way, and what `ReadCommitted` keeps of open transactions.
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
        self.copied_records = self.copied_bytes = 0
        self._reported: dict[Any, Any] = {None: None}
        """None, and what librdkafka said of records that it could not store."""
        self._report: Callable[[Any, Any], Any] = self._reported.setdefault
        """Takes what is said of each record but the last of a step. A call of Python's own C code costs a tenth of what
        one of ours does, and that is a tenth of all that a record costs."""
        self._firsts: deque[int] = deque()
        self._lengths: deque[int] = deque()
        self._sizes: deque[int] = deque()
        """Of each step under way, in order: its first offset, how many records, how many bytes."""
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
    def failure(self) -> Any:
        """What librdkafka said of a record that it could not store; None as long as it could."""
        errors_too = list(self._reported)  # in one go: reports come while this is asked
        return errors_too[1] if len(errors_too) > 1 else None

    @property
    def under_way(self) -> int:
        return self._sent_records - self.copied_records

    @property
    def bytes_under_way(self) -> int:
        return self._sent_bytes - self.copied_bytes

    def send(self, records: list[Any], target: Target, producer: KafkaProducer) -> None:
        """Hand records that may be read to the producer, in order. The lane is of no more use once this has failed.

        Raises:
            LayerError: a record cannot be copied now, or the producer does not take it.
        """
        topic = target.topic.kafka_topic
        for at in range(0, len(records), _STEP):
            step = records[at : at + _STEP]
            try:
                copied, headers = self._copies(step)
            except Exception as failure:  # a record's content may raise anything; where it stops must be known
                if len(step) > 1:  # what is before the one that cannot be copied can
                    for record in step:
                        self.send([record], target, producer)
                    continue
                offset = self._stopped_at = step[0].offset()
                _raise(failure, f"copying offset {offset} to {topic}-{self.partition}")
            if copied:
                self._send_step(copied, headers, topic, producer)
            if len(step) == _STEP:
                producer.poll_inline()

    def _copies(self, records: list[Any]) -> tuple[list[Any], list[Headers]]:
        """Those that are to be copied, and the headers of each copy."""
        assert self.copying is not None  # noqa: S101 - nothing is read before
        present = self.copied.present
        if present:
            records = [record for record in records if record.offset() not in present]
        found = list(self.copying.headers_of(records))
        headers = [each for each in found if each is not None]
        if len(headers) < len(found):
            records = [record for record, each in zip(records, found, strict=True) if each is not None]
        return records, headers

    def _send_step(self, records: list[Any], headers: list[Headers], topic: str, producer: KafkaProducer) -> None:
        """One or more records, as one: the last one's report says that all are there. Of a step that is refused in the
        middle what was taken stays under way."""
        size = sum(map(len, records))
        self._firsts.append(records[0].offset())
        self._lengths.append(len(records))
        self._sizes.append(size)
        self._sent_records += len(records)
        self._sent_bytes += size
        partition, produce, report = self.partition, producer.produce, self._report
        last = records[-1]
        taken = 0
        try:
            for record, its_headers in zip(records, headers, strict=True):
                if record is last:
                    report = self._delivered
                try:
                    produce(topic, record.value(), record.key(), partition, report, None, 0, its_headers)
                except BufferError:
                    produce_with_room(
                        producer, _FULL_S, topic, record.value(), record.key(), partition, report, None, 0, its_headers
                    )
                taken += 1
        except Exception as failure:  # where it stops must be known, whatever it was
            offset = records[taken].offset()
            self._stopped_at = offset
            if not taken:
                self._firsts.pop()
                self._sent_records -= self._lengths.pop()
                self._sent_bytes -= self._sizes.pop()
            _raise(failure, f"copying offset {offset} to {topic}-{partition}")

    def _delivered(self, error: Any, record: Any) -> None:
        """Reports come in the order of sending, since one request at a time is under way and none is given up."""
        self._reported.setdefault(error, record)
        if len(self._reported) > 1:
            return
        self._firsts.popleft()  # before the place that it got counts: see `done_upto`
        place = record.offset()
        if place is not None and place >= 0:  # unknown of what an earlier try had stored
            self._target_next = place + 1
        self.copied_records += self._lengths.popleft()
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
            first = self._firsts[0]
        except IndexError:
            first = self.read_position if self._stopped_at is None else self._stopped_at
        committed = self.readable.committed.get(self.partition)
        waits_from = None if committed is None else committed.waits_from
        return first if waits_from is None else min(first, waits_from)


def _raise(failure: Exception, what: str) -> NoReturn:
    translated = ours(failure, what)
    if translated is failure:
        raise failure
    raise translated from failure
