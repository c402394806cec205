"""Sends the events that ask for deletions, as any program on this SDK would."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import AppendOutcomeUnknown, DeadlineExceeded, StoreError
from pulsar_on_kafka.client.client import Client
from pulsar_on_kafka.client.producer.producer import Producer
from pulsar_on_kafka.exceptions import PulsarException, Result
from pulsar_on_kafka.ledgers.deletion_topics import DEAD_LETTERS, OPERATOR, RETRIES, event_of, event_schema
from pulsar_on_kafka.ledgers.group import EVENTS, WORKER
from pulsar_on_kafka.ledgers.model import Ledger
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.node.services import Services

PARTITIONS: Final = 4
"""Pulsar's default number of parallel deletions."""
VISIBLE_AFTER_S: Final = 5.0
"""An event is sent before the ledger leaves its list, and the worker would have to put off what comes too soon."""
_PENDING: Final = 1_000


def make_topics(services: Services, deadline: Deadline) -> None:
    """Make what is missing of topics and subscriptions. Raises LayerErrors; a second call goes on."""
    for name, subscription in ((EVENTS, WORKER), (RETRIES, WORKER), (DEAD_LETTERS, OPERATOR)):
        parsed = TopicName.parse(name)
        topic = services.topics.find(parsed, deadline)
        if topic is None:
            try:
                topic = services.topics.create(parsed, PARTITIONS, deadline)
            except errors.AlreadyExists:
                topic = services.topics.open(parsed, deadline)
        if services.subscriptions.find(topic, subscription, deadline) is None:
            starts = services.admin.start_offsets(topic.kafka_topic, range(topic.partitions), deadline)
            try:
                services.subscriptions.create(topic, subscription, starts, deadline)
            except errors.AlreadyExists:
                continue


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
            raise StoreError(f"a deletion could not be asked for: {failure}") from failure
        answers.wait(deadline)

    def close(self) -> None:
        """A second call does nothing."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def _opened(self, deadline: Deadline) -> Producer:
        if self._producer is None:
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
    """Thread-safe."""

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
                raise DeadlineExceeded(f"{self._missing} deletions that were asked for had no answer in time")
            if self._failure is not None:
                raise AppendOutcomeUnknown(f"deletions may not have been asked for: {self._failure.name}")
