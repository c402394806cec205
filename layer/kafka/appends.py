"""Appending many records at once and hearing what became of all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial as bound
from typing import Any, Final, NamedTuple

from layer.deadline import Deadline
from layer.errors import (
    AppendFailed,
    AppendOutcomeUnknown,
    LayerError,
    NoSuchTopic,
    NotAuthenticated,
    NotAuthorized,
    RecordTooLarge,
)
from layer.kafka.producer import Headers, KafkaProducer
from layer.kafka.records import KafkaRecord

_QUEUE_FULL_PAUSE_S: Final = 0.05
_CERTAINLY_NOT_WRITTEN: Final = (AppendFailed, NoSuchTopic, NotAuthenticated, NotAuthorized, RecordTooLarge)


class NewRecord(NamedTuple):
    """A record to append; its timestamp, where it is 0, is the time at which it is handed over."""

    key: bytes | None
    value: bytes | None
    headers: Headers | None = None
    timestamp_ms: int = 0


def append_all(
    producer: Callable[[], KafkaProducer],
    kafka_topic: str,
    partition: int,
    records: Sequence[NewRecord],
    deadline: Deadline,
) -> list[int]:
    """Append in this order, wait until every in-sync replica has all of them, and give their offsets.

    `producer` gives the one to use now: its owner may have had to replace it. An append whose deadline passed may still
    reach the log until the producer's `message.timeout.ms` is over.

    Raises:
        DeadlineExceeded, AppendFailed, NotAuthorized, RecordTooLarge: certainly none was written.
        AppendOutcomeUnknown: any of them may have been, or may still be.
    """
    appends = _Appends(len(records), kafka_topic, f"append to {kafka_topic}-{partition}")
    deadline.check(appends.what)
    for index, record in enumerate(records):
        _hand_over(producer, kafka_topic, partition, record, appends, index, deadline)
    producer().wake()
    return appends.offsets_in(deadline)


def _hand_over(
    producer: Callable[[], KafkaProducer],
    kafka_topic: str,
    partition: int,
    record: NewRecord,
    appends: _Appends,
    index: int,
    deadline: Deadline,
) -> None:
    while True:
        used = producer()
        delivered = bound(appends.delivered, index, used)
        try:
            used.enqueue(
                kafka_topic, partition, record.key, record.value, delivered, record.headers, record.timestamp_ms
            )
        except BufferError as full:
            used.wake()
            if deadline.passed():
                raise appends.not_handed_over(index, AppendFailed("the local queue is full")) from full
            used.poll_inline(min(_QUEUE_FULL_PAUSE_S, deadline.remaining_s()))
        except LayerError as refused:
            raise appends.not_handed_over(index, refused) from refused
        else:
            return


class _Appends:
    """What became of records that were handed over together. Callbacks come one at a time, from another thread."""

    def __init__(self, count: int, kafka_topic: str, what: str) -> None:
        self.what = what
        self._kafka_topic = kafka_topic
        self._offsets = [-1] * count
        self._failures: list[LayerError] = []
        self._open = count
        self._settled = threading.Event()
        if count == 0:
            self._settled.set()

    def delivered(self, index: int, producer: KafkaProducer, error: Any, record: KafkaRecord) -> None:
        if error is None:
            self._offsets[index] = record.offset() or 0
        else:
            self._failures.append(producer.why_refused(error, self._kafka_topic, self.what))
        self._open -= 1
        if self._open == 0:
            self._settled.set()

    def not_handed_over(self, index: int, reason: LayerError) -> LayerError:
        """The error to raise when record `index` did not even reach the queue: the ones before it did."""
        if index > 0:
            return AppendOutcomeUnknown(f"{self.what}: {index} records are under way, the next is not: {reason}")
        return self._not_written(reason)

    def offsets_in(self, deadline: Deadline) -> list[int]:
        if not self._settled.wait(deadline.remaining_s()):
            raise AppendOutcomeUnknown(f"{self.what} was not answered in time")
        if not self._failures:
            return self._offsets
        first = self._failures[0]
        none_was_written = len(self._failures) == len(self._offsets) and all(
            isinstance(failure, _CERTAINLY_NOT_WRITTEN) for failure in self._failures
        )
        raise self._not_written(first) if none_was_written else AppendOutcomeUnknown(str(first))

    def _not_written(self, reason: LayerError) -> LayerError:
        if isinstance(reason, (AppendFailed, NotAuthorized, RecordTooLarge)):
            return reason
        return AppendFailed(f"{self.what}: {reason}")
