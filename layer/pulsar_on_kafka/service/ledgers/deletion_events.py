"""Sends the events that request deletions, in the same way as any program on this SDK."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import AppendOutcomeUnknown, DeadlineExceeded, StoreError
from pulsar_on_kafka.broker.managed_ledger.deletion_topics import (
    DEAD_LETTERS,
    EVENTS,
    OPERATOR,
    REASON,
    RETRIES,
    WORKER,
    event_of,
    event_schema,
)
from pulsar_on_kafka.broker.managed_ledger.model import Ledger
from pulsar_on_kafka.broker.node.services import Services
from pulsar_on_kafka.client.client import Client
from pulsar_on_kafka.client.consumer.dead_letters import DELAY_TIME, RECONSUMETIMES
from pulsar_on_kafka.client.producer.producer import Producer
from pulsar_on_kafka.client.values.enums import ConsumerType, InitialPosition
from pulsar_on_kafka.exceptions import PulsarException, Result, Timeout
from pulsar_on_kafka_mapping.names.topic_name import TopicName

PARTITIONS: Final = 4
"""Pulsar's default number of parallel deletions."""
VISIBLE_AFTER_S: Final = 5.0
"""An event is sent before the ledger leaves its list, and the worker would have to put off what comes too soon."""
_PENDING: Final = 1_000


def make_topics(services: Services, deadline: Deadline) -> None:
    """Creates the missing topics and subscriptions. Raises LayerErrors; a second call continues."""
    for name, subscription in ((EVENTS, WORKER), (RETRIES, WORKER), (DEAD_LETTERS, OPERATOR)):
        topic = services.topics.find_or_create(TopicName.parse(name), PARTITIONS, deadline)
        services.subscriptions.find_or_create(topic, subscription, deadline)


class KafkaDeletionEvents:
    """Implements `DeletionEvents`. For one thread; the topics are made with the first event.

    Memory: 1,000 events under way.
    """

    def __init__(self, client: Client, services: Services, *, visible_after_s: float = VISIBLE_AFTER_S) -> None:
        self._client = client
        self._services = services
        self._visible_after = timedelta(seconds=visible_after_s)
        self._producer: Producer | None = None

    def send(self, ledgers: Sequence[Ledger], deadline: Deadline) -> None:
        """One event for each, each a record of its own, those of one partition in one partition; return when all are
        durable. Raises StoreError: some are perhaps not."""
        try:
            producer = self._opened(deadline)
            answers = _Answers(len(ledgers))
            for ledger in ledgers:
                producer.send_async(
                    event_of(ledger),
                    answers.take,
                    partition_key=f"{ledger.record.topic}-{ledger.fields.partition}",
                    deliver_after=self._visible_after,
                )
        except PulsarException as failure:
            raise StoreError(f"a deletion could not be requested: {failure}") from failure
        answers.wait(deadline)

    def close(self) -> None:
        """A second call does nothing."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def _opened(self, deadline: Deadline) -> Producer:
        if self._producer is None or not self._producer.is_connected():
            make_topics(self._services, deadline)
            self._producer = self._client.create_producer(
                EVENTS,
                schema=event_schema(),
                batching_enabled=False,
                max_pending_messages=_PENDING,
                block_if_queue_full=True,
            )
        return self._producer


class _Answers:
    def __init__(self, expected: int) -> None:
        self._missing = expected
        self._failure: Result | None = None
        self._changed = threading.Condition()

    def take(self, result: Result, _message_id: Any) -> None:
        with self._changed:
            self._missing -= 1
            if result is not Result.Ok:
                self._failure = self._failure or result
            self._changed.notify_all()

    def wait(self, deadline: Deadline) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: not self._missing, deadline.remaining_s()):
                raise DeadlineExceeded(f"{self._missing} requested deletions had no reply in time")
            if self._failure is not None:
                raise AppendOutcomeUnknown(f"deletions may not have been requested: {self._failure.name}")


_DROPPED: Final = (RECONSUMETIMES, DELAY_TIME, REASON)
_QUIET_MS: Final = 5_000


def replay(client: Client, most: int, reported: Callable[[int], None] = lambda more: None) -> int:
    """Publishes up to `most` dead letters as events again, each with all its attempts, and acknowledges them; returns
    their number. A crash between the two leaves both, which does no harm.

    Ends before `most` when none arrived for 5 s: another process has the rest. `reported` is called for each. Raises
    PulsarExceptions: the replayed events stay.
    """
    consumer = client.subscribe(DEAD_LETTERS, OPERATOR, ConsumerType.Shared, initial_position=InitialPosition.Earliest)
    producer = client.create_producer(EVENTS, block_if_queue_full=True)
    done = 0
    try:
        while done < most:
            try:
                letter = consumer.receive(_QUIET_MS)
            except Timeout:
                break
            properties = {name: value for name, value in letter.properties().items() if name not in _DROPPED}
            producer.send(letter.data(), properties=properties, partition_key=letter.partition_key() or None)
            consumer.acknowledge(letter)
            done += 1
            reported(1)
    finally:
        producer.close()
        consumer.close()
    return done
