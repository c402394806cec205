"""Appends many records at once and waits for the results of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial as bound
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaException

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import (
    AppendFailed,
    AppendOutcomeUnknown,
    LayerError,
    NoSuchTopic,
    NotAuthenticated,
    NotAuthorized,
    RecordTooLarge,
)
from pulsar_on_kafka.kafka.producer import DeliveryWait, Headers, KafkaProducer

_QUEUE_FULL_PAUSE_S: Final = 0.05
_CERTAINLY_NOT_WRITTEN: Final = (AppendFailed, NoSuchTopic, NotAuthenticated, NotAuthorized, RecordTooLarge)


class SomeNotAppended(AppendOutcomeUnknown):
    """Records of some groups were not written, or their outcome is unknown."""

    def __init__(self, groups: Sequence[int], reason: str) -> None:
        super().__init__(reason)
        self.groups = groups
        """Their numbers."""


class NewRecord(NamedTuple):
    """A record to append; its timestamp, where it is 0, is the time at which it is handed over."""

    key: bytes | None
    value: bytes | None
    headers: Headers | None = None
    timestamp_ms: int = 0


Group: TypeAlias = tuple[str, int, Sequence[NewRecord]]
"""Records for one partition of a topic, which is named as Kafka does."""


def append_all(
    producer: Callable[[], KafkaProducer],
    kafka_topic: str,
    partition: int,
    records: Sequence[NewRecord],
    deadline: Deadline,
    stamped: Callable[[int], None] = lambda stored_ms: None,
) -> list[int]:
    """Append in this order, wait until every in-sync replica has all of them, and give their offsets.

    `producer` gives the one to use now: its owner may have had to replace it. An append whose deadline passed may still
    reach the log until the producer's `message.timeout.ms` is over.

    Raises:
        DeadlineExceeded, AppendFailed, NotAuthorized, RecordTooLarge: certainly none was written.
        AppendOutcomeUnknown: any of them may have been, or may still be.
    """
    return append_apart(producer, [(kafka_topic, partition, records)], deadline, stamped)[0]


def append_apart(
    producer: Callable[[], KafkaProducer],
    groups: Sequence[Group],
    deadline: Deadline,
    stamped: Callable[[int], None] = lambda stored_ms: None,
) -> list[list[int]]:
    """The same for several partitions at once, which do not wait for one another: the offsets of each group. `stamped`
    receives the time of the last append, where Kafka reports it (LogAppendTime).

    Raises:
        SomeNotAppended: all records of the other groups were written.
        And the errors of `append_all`, for all of them.
    """
    appends = _Appends(groups, stamped)
    deadline.check(appends.what)
    places = [(kafka_topic, partition, record) for kafka_topic, partition, records in groups for record in records]
    used: dict[KafkaProducer, None] = {}
    begun = _hand_over_quickly(producer(), places, appends, used)
    for index, place in enumerate(places[begun:], begun):
        used[_hand_over(producer, *place, appends, index, deadline)] = None
    found = iter(appends.offsets_in(deadline, list(used)))
    return [list(islice(found, len(records))) for _, _, records in groups]


def _hand_over_quickly(
    producer: KafkaProducer,
    places: Sequence[tuple[str, int, NewRecord]],
    appends: _Appends,
    used: dict[KafkaProducer, None],
) -> int:
    """Hands over as many records as fit at once, and returns their number. Records that are handed over before
    librdkafka's thread wakes up go in one request; the rest would wait for the reply to it."""
    calls = [
        # topic, value, key, partition, callback, its alias, timestamp, headers
        (topic, record.value, record.key, partition, bound(appends.delivered, index, producer), None,
         record.timestamp_ms, record.headers)
        for index, (topic, partition, record) in enumerate(places)
    ]  # fmt: skip
    produce = producer.produce
    begun = 0
    with suppress(BufferError, KafkaException):  # the other way meets it again, and sees to it
        for call in calls:
            produce(*call)
            begun += 1
    if begun:
        used[producer] = None
    return begun


def _hand_over(
    producer: Callable[[], KafkaProducer],
    kafka_topic: str,
    partition: int,
    record: NewRecord,
    appends: _Appends,
    index: int,
    deadline: Deadline,
) -> KafkaProducer:
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
            used.wait_for_reports(min(_QUEUE_FULL_PAUSE_S, deadline.remaining_s()))
        except LayerError as refused:
            raise appends.not_handed_over(index, refused) from refused
        else:
            return used


class _Stored(Protocol):
    """The data of a record in a delivery report."""

    def offset(self) -> int | None:
        """The offset; None when Kafka does not report it."""
        ...

    def timestamp(self) -> tuple[int, int]: ...


class _Appends(DeliveryWait):
    """Outcomes of records that were handed over together. Callbacks come one at a time."""

    def __init__(self, groups: Sequence[Group], stamped: Callable[[int], None]) -> None:
        self._stamped = stamped
        self.what = "append to " + ", ".join(f"{topic}-{partition}" for topic, partition, _ in groups)
        self._topics = [topic for topic, _, records in groups for _ in records]
        self._groups = [number for number, (_, _, records) in enumerate(groups) for _ in records]
        self._offsets = [-1] * len(self._topics)
        self._failures: list[LayerError] = []
        self._open = len(self._topics)
        super().__init__()
        if not self._topics:
            self.settle()

    def delivered(self, index: int, producer: KafkaProducer, error: Any, record: _Stored) -> None:
        offset = record.offset()
        if error is not None:
            self._failures.append(producer.why_refused(error, self._topics[index], self.what))
        elif offset is None:  # a repeated request that a broker has long answered
            self._failures.append(AppendOutcomeUnknown(f"{self.what}: Kafka has it and does not report its offset"))
        else:
            self._offsets[index] = offset
        self._open -= 1
        if self._open == 0:
            self._report_time(error, record)
            self.settle()

    def _report_time(self, error: Any, record: _Stored) -> None:
        if error is None:
            kind, stored_ms = record.timestamp()
            if kind == TIMESTAMP_LOG_APPEND_TIME:
                self._stamped(stored_ms)

    def not_handed_over(self, index: int, reason: LayerError) -> LayerError:
        """The error to raise when record `index` did not even reach the queue: the ones before it did."""
        if index > 0:
            return AppendOutcomeUnknown(f"{self.what}: {index} records are under way, the next is not: {reason}")
        return self._not_written(reason)

    def offsets_in(self, deadline: Deadline, used: Sequence[KafkaProducer]) -> list[int]:
        """`used`: the producers that records were handed over to."""
        for other in used[1:]:
            other.wake()
        if used and not used[0].wait_for(self, deadline):
            raise self._some_not_appended() or AppendOutcomeUnknown(f"{self.what} was not answered in time")
        if not self._failures:
            return self._offsets
        first = self._failures[0]
        none_was_written = len(self._failures) == len(self._offsets) and all(
            isinstance(failure, _CERTAINLY_NOT_WRITTEN) for failure in self._failures
        )
        if none_was_written:
            raise self._not_written(first)
        raise self._some_not_appended() or AppendOutcomeUnknown(str(first))

    def _some_not_appended(self) -> SomeNotAppended | None:
        """None when no group is there as a whole."""
        missing = {number for number, offset in zip(self._groups, self._offsets, strict=True) if offset < 0}
        if len(missing) == len(set(self._groups)):
            return None
        reason = str(self._failures[0]) if self._failures else f"{self.what} was not answered in time"
        return SomeNotAppended(sorted(missing), reason)

    def _not_written(self, reason: LayerError) -> LayerError:
        if isinstance(reason, (AppendFailed, NotAuthorized, RecordTooLarge)):
            return reason
        return AppendFailed(f"{self.what}: {reason}")
