"""Events of librdkafka's consumers: records, the log's end, and failures of reading.

Every reader of Kafka uses them, whether its partitions are assigned by hand or by a group.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeAlias

from confluent_kafka import Consumer, KafkaError

from pulsar_on_kafka.base.errors import LayerError, OffsetOutOfRange
from pulsar_on_kafka.kafka.errors import is_no_such_topic, is_not_authorized, translate
from pulsar_on_kafka.kafka.rights import Right

_OUT_OF_RANGE: Final = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)


_NONE: Final = -1
"""librdkafka's number for no partition, of which confluent-kafka makes None."""


class KafkaPartition(NamedTuple):
    """A partition of a topic, by Kafka's name; -1 stands for no particular one."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}" if self.partition != _NONE else self.topic


class Records(NamedTuple):
    """Records of a partition that came one after the other, in offset order; at least one."""

    where: KafkaPartition
    records: list[Any]


class EndOfLog(NamedTuple):
    """The log ends at `offset`, and was read up to there."""

    where: KafkaPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A failure after which librdkafka retries. `where` has partition -1 when it is about more than one."""

    where: KafkaPartition
    failure: LayerError

    def raise_or_log(self, log: logging.Logger, who: str) -> None:
        """Raises the failure of a `Stopped`; logs others, for readers that continue."""
        log.warning("%s: %s", who, self.failure)


@dataclass(frozen=True, slots=True)
class OutOfRange(Failed):
    """The log does not have `offset`, where reading was to go on; of this partition nothing more is fetched."""

    offset: int


@dataclass(frozen=True, slots=True)
class Stopped(Failed):
    def raise_or_log(self, log: logging.Logger, who: str) -> None:
        raise self.failure


@dataclass(frozen=True, slots=True)
class Gone(Stopped):
    """The topic or the partition is not there."""


@dataclass(frozen=True, slots=True)
class Forbidden(Stopped):
    """A right is missing; the failure names it."""


@dataclass(frozen=True, slots=True)
class GaveUp(Stopped):
    """The handle does nothing more, for no partition."""


Event: TypeAlias = Records | EndOfLog | Failed


def inside(log: tuple[int, int], position: int, who: str) -> int:
    """The position at which `who` continues in a log that does not contain `position`: the log's start, if the position
    lies before it.

    Raises:
        OffsetOutOfRange: the position lies behind the end.
    """
    low, high = log
    if position > high:
        raise OffsetOutOfRange(f"{who} stands at offset {position}, the log ends at {high}: the cluster lost data")
    return max(position, low)


def next_batch(consumer: Consumer, limit: int, timeout_s: float) -> list[Any]:
    """Up to `limit` records and error events, waiting for the first one only.

    `consume(limit, timeout)` alone would wait until it has all of them or the time is over.
    """
    first = consumer.poll(timeout_s)
    if first is None:
        return []
    return [first, *consumer.consume(limit - 1, 0)] if limit > 1 else [first]


def events_of(batch: list[Any], topic: str | None, needed: Callable[[str], tuple[Right, ...]]) -> list[Event]:
    """The events of a batch, in its order. No line of Python is spent on a record of a single `topic`'s reader.

    `topic`: of all that is read; None where they differ. `needed`: the rights that reading one needs.
    """
    if not batch:
        return []
    events: list[Event] = []
    kind = type(batch[0])
    for found, group in groupby(batch, _place if topic is None else kind.partition):
        where = KafkaPartition(*found) if topic is None else KafkaPartition(topic, _NONE if found is None else found)
        run = list(group)
        if not any(map(kind.error, run)):
            events.append(Records(where, run))
            continue
        for failed, some in groupby(run, _is_no_record):
            if failed:
                events += filter(None, (_event(where, record, needed) for record in some))
            else:
                events.append(Records(where, list(some)))
    return events


def _place(record: Any) -> tuple[str, int]:
    return record.topic() or "", _NONE if record.partition() is None else record.partition()


def _is_no_record(record: Any) -> bool:
    return record.error() is not None


def _event(where: KafkaPartition, record: Any, needed: Callable[[str], tuple[Right, ...]]) -> Event | None:
    error, offset = record.error(), record.offset()
    if record.topic() is not None:  # perhaps one that was read before
        where = KafkaPartition(*_place(record))
    if error.code() == KafkaError._PARTITION_EOF:
        return EndOfLog(where, offset)
    rights = needed(where.topic)
    if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED and all(right.kind != "group" for right in rights):
        return None  # librdkafka looks for a coordinator that is never used here
    failure = translate(error, f"reading {where}", *rights)
    if error.code() in _OUT_OF_RANGE:
        return OutOfRange(where, failure, offset)
    if is_no_such_topic(error):
        return Gone(where, failure)
    if is_not_authorized(error):
        return Forbidden(where, failure)
    return GaveUp(where, failure) if error.fatal() else Failed(where, failure)
