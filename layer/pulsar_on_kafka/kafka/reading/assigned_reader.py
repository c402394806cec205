"""The assigned reader reads partitions that are assigned to it by hand, outside of any group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError, StoreError
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.kafka import handles
from pulsar_on_kafka.kafka.errors import ErrorEvents, translate
from pulsar_on_kafka.kafka.reading.events import Event, Gone, KafkaPartition, events_of, next_batch
from pulsar_on_kafka.kafka.rights import Right, on_topic

_NOWHERE: Final = KafkaPartition("", -1)
LOG_START: Final = OFFSET_BEGINNING
LOG_END: Final = OFFSET_END
"""The high watermark. librdkafka requests either as if it were a timestamp."""
_EDGES: Final = {LOG_START: "the start", LOG_END: "the end"}
_LEARN_S: Final = 1.0
"""No longer than librdkafka's own interval between two looks for leaders."""


class AssignedReader(OfOneProcess):
    """Reads partitions from given offsets on. Commits nothing, joins nothing. Used by one thread at a time.

    The first call that needs librdkafka's handle opens it, also after `release`. Memory: the handle's fetch queue,
    bounded by `queued.max.messages.kbytes` of the configuration, and the name of each topic that was read.
    """

    def __init__(self, config: dict[str, Any], what: str, *, reserved: bool = True) -> None:
        """`what` it is, in words, for the log. `reserved`: see `handles.opened`."""
        self._reserved = reserved
        self._config = config
        self._what = what
        self._handle: Consumer | None = None
        self._errors = ErrorEvents(what)
        self._assigned: set[KafkaPartition] = set()
        self._topic: str | None = None
        """The topic of all assigned partitions; None with several, or none."""
        self._known: set[str] = set()
        """Topics whose leaders the handle has requested."""

    def open(self) -> Consumer:
        """Make the handle, unless it is there. Raises TooManyHandles."""
        if self._handle is None:
            self._errors = ErrorEvents(self._what)
            config = {**self._config, "error_cb": self._errors}
            self._handle = handles.opened(lambda: Consumer(config), reserved=self._reserved)
        return self._handle

    def add(self, starts: Mapping[KafkaPartition, int]) -> None:
        """Reads these partitions, too, from these offsets on.

        The first partition of a topic requests its leaders, in one second for all topics of a call: librdkafka alone
        looks up new topics once a second.
        """
        deadline = Deadline.after(_LEARN_S)
        for topic in sorted({where.topic for where in starts} - self._known):
            if not deadline.passed() and self.learn(topic, deadline.remaining_s()):
                self._known.add(topic)
        self.open().incremental_assign([TopicPartition(*where, offset) for where, offset in starts.items()])
        self._note(self._assigned.union(starts))

    def drop(self, partitions: Iterable[KafkaPartition]) -> None:
        """Read these, which are being read, no more."""
        dropped = list(partitions)
        if self._is_open():
            self.open().incremental_unassign([TopicPartition(*where) for where in dropped])
        self._note(self._assigned.difference(dropped))

    def drop_all(self) -> None:
        if self._is_open():
            self.open().unassign()
        self._note(set())

    def _is_open(self) -> bool:
        return self._handle is not None and handles.is_ours(self._handle)

    def _note(self, assigned: set[KafkaPartition]) -> None:
        topics = {where.topic for where in assigned}
        self._assigned, self._topic = assigned, topics.pop() if len(topics) == 1 else None

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
        """The next events, up to `limit` records and other events; waits for the first one only.

        The event of a deleted topic with no records left here has no name, and repeats.
        """
        batch = next_batch(self.open(), limit, timeout_s)
        if not batch and self._errors.no_topic is not None:
            return [Gone(_NOWHERE, self._errors.no_topic)]
        return events_of(batch, self._topic, _rights)

    # Offsets ------------------------------------------------------------------------------------------------------

    def watermarks(self, where: KafkaPartition, timeout_s: float) -> tuple[int, int]:
        """(log start, high watermark) as the leader reports now, for two requests. Raises StoreError, NoSuchTopic."""
        return watermarks(self.open(), where, timeout_s, _rights(where.topic))

    def known_end(self, where: KafkaPartition) -> int:
        """The high watermark as it came with the last fetch; -1 before the first. Costs no request."""
        return known_end(self.open(), where)

    def offsets(
        self, required: Mapping[KafkaPartition, int], timeout_s: float
    ) -> dict[KafkaPartition, int | LayerError]:
        """Offsets as the leaders report now, for one request to each: for LOG_START and LOG_END these, otherwise that
        of the first record whose timestamp is at or above the given one, in ms; -1 without one.

        A partition's own error is its result. Raises StoreError, NoSuchTopic: an error of all partitions.
        """
        requested = [TopicPartition(*where, timestamp) for where, timestamp in required.items()]
        try:
            answers = self.open().offsets_for_times(requested, timeout=timeout_s)
        except KafkaException as failure:
            rights = chain.from_iterable(_rights(topic) for topic in dict.fromkeys(where.topic for where in required))
            raise translate(failure, f"requesting {_named(required)}", *rights) from failure
        return {where: _offset(where, required[where], each) for where, each in zip(required, answers, strict=True)}

    def learn(self, topic: str, timeout_s: float) -> bool:
        """Requests the leaders of a topic from a broker now; librdkafka itself uses its last reply, and looks for new
        topics once a second. Returns whether a broker knows the topic. Reading reports errors."""
        with suppress(KafkaException):
            return self.open().list_topics(topic, timeout=timeout_s).topics[topic].error is None
        return False

    def release(self) -> None:
        """Give the handle up, and with it what is assigned; a second call does nothing."""
        handle, self._handle = self._handle, None
        self._known.clear()
        self._note(set())
        if handle is not None and handles.is_ours(handle):
            handle.close()
            handles.release(handle)


def _named(required: Mapping[KafkaPartition, int]) -> str:
    return ", ".join(f"{_EDGES.get(timestamp, f'{timestamp} ms')} of {where}" for where, timestamp in required.items())


def _offset(where: KafkaPartition, timestamp: int, answer: TopicPartition) -> int | LayerError:
    what = f"requesting {_named({where: timestamp})}"
    if answer.error is not None:
        failure = translate(answer.error, what, *_rights(where.topic))
        failure.__cause__ = KafkaException(answer.error)
        return failure
    if answer.offset < 0 and timestamp in _EDGES:
        return StoreError(f"{what}: the broker's reply does not contain it")
    return int(answer.offset)


def _rights(topic: str) -> tuple[Right, ...]:
    return (on_topic("Read", topic),)


def watermarks(
    consumer: Consumer, where: KafkaPartition, timeout_s: float, needed: tuple[Right, ...]
) -> tuple[int, int]:
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(*where), timeout=timeout_s)
    except KafkaException as failure:
        raise translate(failure, f"requesting the end of {where}", *needed) from failure
    return low, high


def known_end(consumer: Consumer, where: KafkaPartition) -> int:
    _, high = consumer.get_watermark_offsets(TopicPartition(*where), cached=True)
    return int(high) if high >= 0 else -1
