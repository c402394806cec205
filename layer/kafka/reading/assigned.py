"""The assigned reader reads partitions that are assigned to it by hand, outside of any group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition

from pulsar_on_kafka.base.errors import StoreError
from pulsar_on_kafka.kafka import handles
from pulsar_on_kafka.kafka.errors import ErrorEvents, translate
from pulsar_on_kafka.kafka.reading.events import Event, Gone, KafkaPartition, events_of, next_batch
from pulsar_on_kafka.kafka.rights import Right, on_topic

_NOWHERE: Final = KafkaPartition("", -1)


class AssignedReader:
    """Reads partitions from given offsets on. Commits nothing, joins nothing. Used by one thread at a time.

    The first call that needs librdkafka's handle opens it, also after `release`. Memory: the handle's fetch queue,
    bounded by `queued.max.messages.kbytes` of the configuration.
    """

    def __init__(self, config: dict[str, Any], what: str) -> None:
        """`what` it is, in words, for the log."""
        self._config = config
        self._what = what
        self._handle: Consumer | None = None
        self._errors = ErrorEvents(what)
        self._topics: set[str] = set()
        """Those of which something was assigned to the handle."""

    def open(self) -> Consumer:
        """Make the handle, unless it is there."""
        if self._handle is None:
            self._errors = ErrorEvents(self._what)
            self._handle = Consumer({**self._config, "error_cb": self._errors})
            handles.track(self._handle)
        return self._handle

    def assign(self, starts: Mapping[KafkaPartition, int]) -> None:
        """Read these partitions from these offsets on, and no others; none: not even a handle is made for that."""
        self._topics = {where.topic for where in starts}
        if starts:
            self.open().assign([TopicPartition(*where, offset) for where, offset in starts.items()])
        elif self._handle is not None and handles.is_ours(self._handle):
            self._handle.unassign()

    def add(self, starts: Mapping[KafkaPartition, int]) -> None:
        self._topics.update(where.topic for where in starts)
        self.open().incremental_assign([TopicPartition(*where, offset) for where, offset in starts.items()])

    def drop(self, partitions: Iterable[KafkaPartition]) -> None:
        self.open().incremental_unassign([TopicPartition(*where) for where in partitions])

    def seek(self, offsets: Mapping[KafkaPartition, int]) -> None:
        """Go on at other offsets of partitions that are being read; what was fetched ahead is dropped."""
        self.drop(offsets)
        self.add(offsets)

    def pause(self, where: KafkaPartition) -> None:
        """Stop fetching; what was fetched ahead is dropped."""
        self.open().pause([TopicPartition(*where)])

    def resume(self, where: KafkaPartition) -> None:
        self.open().resume([TopicPartition(*where)])

    def poll(self, limit: int, timeout_s: float) -> list[Event]:
        """What comes, up to `limit` records and other events; waits for the first one only.

        That some topic is gone, and nothing of it left here, is said without its name, and again and again.
        """
        batch = next_batch(self.open(), limit, timeout_s)
        if not batch and self._errors.no_topic is not None:
            return [Gone(_NOWHERE, self._errors.no_topic)]
        topic = next(iter(self._topics)) if len(self._topics) == 1 else None
        return events_of(batch, topic, _rights)

    # Offsets ------------------------------------------------------------------------------------------------------

    def watermarks(self, where: KafkaPartition, timeout_s: float) -> tuple[int, int]:
        """(log start, high watermark) as the leader says now, for two requests. Raises StoreError, NoSuchTopic."""
        return watermarks(self.open(), where, timeout_s, _rights(where.topic))

    def known_end(self, where: KafkaPartition) -> int:
        """The high watermark as it came with the last fetch; -1 before the first. Costs no request."""
        return known_end(self.open(), where)

    def log_start(self, where: KafkaPartition, timeout_s: float) -> int:
        """The log start as the leader says now, for one request. Raises as `watermarks`."""
        return self._offset(where, OFFSET_BEGINNING, f"asking for the start of {where}", timeout_s)

    def log_end(self, where: KafkaPartition, timeout_s: float) -> int:
        """The high watermark as the leader says now, for one request. Raises as `watermarks`."""
        return self._offset(where, OFFSET_END, f"asking for the end of {where}", timeout_s)

    def _offset(self, where: KafkaPartition, edge: int, what: str, timeout_s: float) -> int:
        found = self._listed(where, edge, what, timeout_s)
        if found < 0:  # as it was asked for
            raise StoreError(f"{what}: the broker's answer does not tell")
        return found

    def offset_at_time(self, where: KafkaPartition, timestamp_ms: int, timeout_s: float) -> int | None:
        """Offset of the first record whose timestamp is at or above `timestamp_ms`; None when there is none."""
        found = self._listed(where, timestamp_ms, f"looking up {timestamp_ms} ms in {where}", timeout_s)
        return None if found < 0 else found

    def _listed(self, where: KafkaPartition, timestamp: int, what: str, timeout_s: float) -> int:
        """What ListOffsets answers, to which librdkafka's names of a log's ends are timestamps, too."""
        try:
            found = self.open().offsets_for_times([TopicPartition(*where, timestamp)], timeout=timeout_s)[0]
        except KafkaException as failure:
            raise translate(failure, what, *_rights(where.topic)) from failure
        if found.error is not None:
            raise translate(found.error, what, *_rights(where.topic))
        return int(found.offset)

    def learn(self, topic: str, timeout_s: float) -> bool:
        """Have librdkafka ask for the leaders of a topic now, of which it goes by what it heard last, and looks for new
        ones once a second; whether it was told. What is wrong is told by reading."""
        with suppress(KafkaException):
            self.open().list_topics(topic, timeout=timeout_s)
            return True
        return False

    def release(self) -> None:
        """Give the handle up, and with it what is assigned; a second call does nothing."""
        handle, self._handle = self._handle, None
        self._topics = set()
        if handle is not None and handles.is_ours(handle):
            handle.close()
            handles.release(handle)


def _rights(topic: str) -> tuple[Right, ...]:
    return (on_topic("Read", topic),)


def watermarks(
    consumer: Consumer, where: KafkaPartition, timeout_s: float, needed: tuple[Right, ...]
) -> tuple[int, int]:
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(*where), timeout=timeout_s)
    except KafkaException as failure:
        raise translate(failure, f"asking for the end of {where}", *needed) from failure
    return low, high


def known_end(consumer: Consumer, where: KafkaPartition) -> int:
    _, high = consumer.get_watermark_offsets(TopicPartition(*where), cached=True)
    return int(high) if high >= 0 else -1
