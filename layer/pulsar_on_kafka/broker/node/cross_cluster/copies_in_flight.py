"""Copies on their way to another cluster: handed to its producer and not answered."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.errors import ours
from pulsar_on_kafka.kafka.producer import KafkaProducer

_ROOM_S: Final = 0.01


class NotTaken(NamedTuple):
    """The producer took so many records of a step and no more."""

    taken: int
    why: Exception


class CopiesUnderWay:
    """Copies in one partition, in steps: the report of a step's last record confirms the whole step. One thread sends.
    Reports come from the thread that serves the producer, in the order of sending, since one request at a time is under
    way and none is abandoned.

    Memory: three numbers for each step under way.
    """

    def __init__(self, topic: str, partition: int, full_s: float) -> None:
        """`topic` by Kafka's name. `full_s`: how long to wait for room in the queue that all share who copy there."""
        self._topic = topic
        self._partition = partition
        self._full_s = full_s
        self.next_offset = 0
        """The offset behind the last confirmed copy."""
        self.copied_records = self.copied_bytes = 0
        self._sent_records = self._sent_bytes = 0
        self._firsts: deque[int] = deque()
        self._lengths: deque[int] = deque()
        self._sizes: deque[int] = deque()
        """Each step under way, in order: its id, its number of records, its bytes."""
        self._reported: dict[Any, Any] = {None: None}
        """None, and librdkafka's errors of records that it could not store."""
        self._report: Callable[[Any, Any], Any] = self._reported.setdefault
        """Receives the report of each record except the last of a step. A call of Python's own C code costs a tenth of
        a Python call, and that is a tenth of the whole cost of a record."""

    def __str__(self) -> str:
        return f"{self._topic}-{self._partition}"

    @property
    def failure(self) -> Any:
        """librdkafka's error of a record that it could not store; None without failures."""
        errors_too = list(self._reported)  # in one go: reports arrive meanwhile
        return errors_too[1] if len(errors_too) > 1 else None

    @property
    def records(self) -> int:
        return self._sent_records - self.copied_records

    @property
    def bytes(self) -> int:
        return self._sent_bytes - self.copied_bytes

    def first(self, otherwise: int) -> int:
        """The id of the first step under way; `otherwise` without any."""
        try:
            return self._firsts[0]
        except IndexError:
            return otherwise

    def send(
        self, producer: KafkaProducer, first: int, step: Sequence[tuple[Any, Any, Any]], size: int
    ) -> NotTaken | None:
        """Hand records (value, key, headers; one at least) of so many bytes together to the producer as one step, which
        is called by `first`; None when it has taken all. Of a step that is refused in the middle what was taken stays
        under way, and nothing else may be sent."""
        self._firsts.append(first)
        self._lengths.append(len(step))
        self._sizes.append(size)
        self._sent_records += len(step)
        self._sent_bytes += size
        topic, partition, produce, report = self._topic, self._partition, producer.produce, self._report
        last = len(step) - 1
        taken = 0
        try:
            for value, key, headers in step:
                if taken == last:
                    report = self._delivered
                try:
                    produce(topic, value, key, partition, report, None, 0, headers)
                except BufferError:
                    self._produce_with_room(producer, value, key, partition, report, None, 0, headers)
                taken += 1
        except Exception as failure:  # of librdkafka, or of this product: the caller adds the context
            if not taken:
                self._firsts.pop()
                self._sent_records -= self._lengths.pop()
                self._sent_bytes -= self._sizes.pop()
            return NotTaken(taken, failure)
        return None

    def _produce_with_room(self, producer: KafkaProducer, *record: Any) -> None:
        deadline = Deadline.after(self._full_s)
        while not deadline.passed():
            producer.wait_for_reports(_ROOM_S)
            try:
                producer.produce(self._topic, *record)
            except BufferError:
                continue
            return
        raise errors.AppendFailed(f"{self._topic}: the queue to its cluster was full for {self._full_s:.0f} s")

    def _delivered(self, error: Any, record: Any) -> None:
        self._reported.setdefault(error, record)
        if len(self._reported) > 1:
            return
        self._firsts.popleft()  # before the confirmed place counts: readers of that place read this first
        place = record.offset()
        if place is not None and place >= 0:  # unknown of what an earlier try had stored
            self.next_offset = place + 1
        self.copied_records += self._lengths.popleft()
        self.copied_bytes += self._sizes.popleft()


def raise_ours(failure: Exception, what: str) -> NoReturn:
    translated = ours(failure, what)
    if translated is failure:
        raise failure
    raise translated from failure
