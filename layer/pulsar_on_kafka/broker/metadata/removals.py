"""Removals take data from a topic by the name of its Kafka topic, and Kafka may execute them long after they were sent.

Kafka has no such requests by id. So the topic's record names each request from before it is sent until it is answered.
While it names one, the next incarnation of the topic gets another Kafka topic, where the late request finds nothing.
The same holds for records of producers that have not reported their end.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final, Protocol

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.entities import Versioned
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.kafka.errors import is_answer
from pulsar_on_kafka.kafka.records import TopicDescription
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName, other_kafka_topic
from pulsar_on_kafka_mapping.state.metadata.metadata_records import LifeState, TopicRecord, decode_topic

_log: Final = logging.getLogger(__name__)

REQUESTS_ARRIVE_WITHIN_MS: Final = 3_600_000
"""A request that was not answered may be executed for so long after it was sent, whatever became of its sender."""
_MAX_LOOK_S: Final = 5.0
"""The longest time between the note of a request and the request itself."""
_ANSWERED_WITHIN_S: Final = 5.0
"""A request by the name of a topic that is made anew is waited for so long."""


class OpenedTopic(Protocol):
    """The part of `metadata.topics.Topic` that removals need."""

    @property
    def name(self) -> TopicName: ...
    @property
    def kafka_topic(self) -> str: ...
    @property
    def kafka_topic_id(self) -> str: ...
    @property
    def layout(self) -> LedgerLayout: ...


Amend = Callable[[TopicName, Callable[[TopicRecord], TopicRecord | None], Deadline], "Versioned | None"]
"""Changes a topic's record, and gives it as it is then; None where there is none."""
Look = Callable[[TopicRecord, Deadline], TopicDescription | None]
"""Gives what Kafka has of an incarnation; None when its Kafka topic is gone."""


class Removals:
    """Removes data of topics. Thread-safe."""

    def __init__(self, admin: KafkaAdmin, clock: Clock, amend: Amend, look: Look) -> None:
        """`clock` returns the brokers' time."""
        self._admin = admin
        self._clock = clock
        self._amend = amend
        self._look = look

    def delete_records(self, topic: OpenedTopic | TopicRecord, before: Mapping[int, int], deadline: Deadline) -> None:
        """Delete everything below these offsets of a topic's partitions.

        Raises:
            NoSuchTopic: the topic was deleted, and perhaps made anew.
            DeadlineExceeded: too much time went by since that was looked at. And other LayerErrors.
        """

        def delete() -> None:
            self._admin.delete_records(topic.kafka_topic, before, deadline)

        if not self._send(topic, delete, (), None, deadline):
            raise errors.NoSuchTopic(f"topic {topic.name} was deleted")

    def delete_topic(self, deleting: TopicRecord, senders: Collection[str], deadline: Deadline) -> None:
        """Delete the Kafka topic of an incarnation that is DELETING, which is DELETED then.

        Args:
            senders: an id for each process whose records may still arrive.
        Raises:
            NoSuchTopic: the incarnation is DELETED already.
            DeadlineExceeded: too much time went by since that was looked at. And other LayerErrors.
        """

        def delete() -> None:
            self._admin.delete_topic(deleting.kafka_topic, deadline)

        self._send(deleting, delete, senders, LifeState.DELETED, deadline)

    def _send(
        self,
        topic: OpenedTopic | TopicRecord,
        send: Callable[[], None],
        senders: Collection[str],
        then: LifeState | None,
        deadline: Deadline,
    ) -> bool:
        """Send a request that names the Kafka topic; False when Kafka does not have that any more."""
        name = TopicName.parse(topic.name) if isinstance(topic, TopicRecord) else topic.name.base
        request, noted_s, sent_ms = secrets.token_hex(8), self._clock.monotonic(), self._clock.now_ms()

        def noted(record: TopicRecord) -> TopicRecord | None:
            if not is_same(record, topic) or record.state not in (LifeState.ACTIVE, LifeState.DELETING):
                raise errors.NoSuchTopic(f"topic {topic.name} was deleted")
            if request in record.unanswered:
                return None  # a time-out had hidden that it was written
            kept = {each: at_ms for each, at_ms in record.unanswered.items() if _may_arrive(at_ms, sent_ms)}
            return replace(record, unanswered={**kept, **dict.fromkeys((request, *senders), sent_ms)})

        def take_off(state: LifeState | None) -> None:
            def taken_off(record: TopicRecord) -> TopicRecord | None:
                if not is_same(record, topic):
                    return None
                left = {each: at_ms for each, at_ms in record.unanswered.items() if each != request}
                deleting = record.state is LifeState.DELETING
                return replace(record, unanswered=left, state=state if state and deleting else record.state)

            self._amend(name, taken_off, deadline)

        on_record = self._amend(name, noted, deadline)
        if on_record is None:
            raise errors.NoSuchTopic(f"topic {topic.name} was deleted")
        there = self._look(decode_topic(on_record.value), deadline) is not None
        if there:
            if self._clock.monotonic() - noted_s > _MAX_LOOK_S:
                take_off(None)
                raise errors.DeadlineExceeded(f"looking at {topic.kafka_topic} took longer than {_MAX_LOOK_S:.0f} s")
            try:
                send()
            except errors.LayerError as failure:
                if is_answer(failure):
                    take_off(None)
                raise
        take_off(then)
        return there

    def name_of_next(
        self,
        given: str,
        former: TopicRecord,
        version: int,
        read: Callable[[], Versioned | None],
        until: Callable[[Callable[[], bool], Deadline], bool],
        deadline: Deadline,
    ) -> str:
        """The Kafka topic of the incarnation after `former`, whose record has this version: the `given` one unless a
        request that names it, or a record, may still arrive. The call waits for such a request.

        Args:
            read: returns the present record of the topic.
            until: repeats a check until it holds.
        """

        def all_answered() -> bool:
            now = read()
            if now is None or now.version < version:
                return True
            record, now_ms = decode_topic(now.value), self._clock.now_ms()
            arriving = any(_may_arrive(at_ms, now_ms) for at_ms in record.unanswered.values())
            return not arriving or record.state is not LifeState.DELETED

        if not former.unanswered:
            return given
        if until(all_answered, deadline.at_most(_ANSWERED_WITHIN_S)):
            return given
        other = other_kafka_topic(given, version)
        _log.warning(
            "topic=%s its Kafka topic is %s now: a request that removes data of %s, or a record of a producer that did "
            "not stop, may still arrive there (docs/differences.md)", former.name, other, given,
        )  # fmt: skip
        return other


def is_same(record: TopicRecord, topic: OpenedTopic | TopicRecord) -> bool:
    incarnation = topic.incarnation if isinstance(topic, TopicRecord) else topic.layout.incarnation
    return (record.incarnation, record.kafka_topic_id) == (incarnation, topic.kafka_topic_id)


def _may_arrive(sent_ms: int, now_ms: int) -> bool:
    return now_ms - sent_ms < REQUESTS_ARRIVE_WITHIN_MS
