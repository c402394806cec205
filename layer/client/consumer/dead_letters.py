"""The dead-letter writer publishes dead letters: copies of messages that were delivered often enough, for somebody to
look at."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.worker import QueueWorker
from pulsar_on_kafka.client.consumer.letters import LetterProducers, origin, origin_as_java
from pulsar_on_kafka.client.values.dead_letter_policy import DeadLetterPolicy
from pulsar_on_kafka.client.values.message import Message, acknowledge_in_slot
from pulsar_on_kafka.exceptions import Result
from pulsar_on_kafka.subscriptions.records.endpoint import Delivery

_log = logging.getLogger(__name__)

DLQ_SUFFIX: Final = "-DLQ"
_CLOSE_S: Final = 10.0

Kept = Callable[[Delivery], None]


class DeadLetterWriter:
    """The writer publishes one consumer's dead letters. A thread of its own opens topics and publishes, from the first
    letter on.

    A letter is acknowledged when every in-sync replica has it. It carries payload, key, ordering key and properties,
    and `REAL_TOPIC` and `ORIGIN_MESSAGE_ID` as properties. Source: ConsumerImpl.processPossibleToDLQ of the official
    client; like there, event times do not go along, and a letter that dies keeps its first origin. Differs from Pulsar:
    what was encrypted stays encrypted, and a letter's schema is the one that its message was written with (letters.py).

    With `as_java`, for consumers that have retry letters, they are as Java's client writes them, event time and all.

    Memory: the letters under way; the dispatcher bounds their number.
    """

    def __init__(
        self, policy: DeadLetterPolicy, subscription: str, producers: LetterProducers, *, as_java: bool = False
    ) -> None:
        self._policy = policy
        self._subscription = subscription
        self._as_java = as_java
        self._producers = producers
        self._letters: QueueWorker[tuple[Delivery, Kept]] = QueueWorker(
            f"pok-dead-letters {subscription}", self._publish_all, last=producers.close
        )
        self._until = Deadline.never()

    @property
    def max_redeliver_count(self) -> int:
        return self._policy.getMaxRedeliverCount()

    def publish_dead_letters(self, letters: Sequence[Delivery], kept: Kept) -> None:
        """Queue the letters for the writer's thread; a closed writer gives them to `kept` at once."""
        if not self._letters.put([(letter, kept) for letter in letters]):
            for letter in letters:
                kept(letter)

    def close(self) -> None:
        """Publish what is under way, as far as ten seconds reach, and end the thread; the rest stays where it is. Twice
        is fine."""
        self._until = Deadline.after(_CLOSE_S)
        if not self._letters.close(self._until):
            _log.warning("subscription=%s its last dead letters are not published yet", self._subscription)

    def _publish_all(self, letters: Sequence[tuple[Delivery, Kept]]) -> None:
        for letter, kept in letters:
            if self._until.passed():
                kept(letter)
                continue
            try:
                self._publish(letter, kept)
            except Exception as failure:  # the letter stays where it is and is tried again
                _log.warning("subscription=%s cannot publish a dead letter yet: %s", self._subscription, failure)
                kept(letter)

    def _publish(self, letter: Delivery, kept: Kept) -> None:
        assert isinstance(letter, Message)  # noqa: S101 - this consumer's endpoint makes Messages
        topic = self._policy.getDeadLetterTopic() or f"{letter.topic_name()}-{self._subscription}{DLQ_SUFFIX}"

        def stored(result: Result, _: Any) -> None:
            if result is Result.Ok:
                acknowledge_in_slot(letter)
                return
            _log.warning("subscription=%s dead letter of %s: %s", self._subscription, letter, result)
            kept(letter)

        with self._producers.copying(letter, topic, self._policy.getInitialSubscriptionName()) as producer:
            producer.send_async(
                letter.payload(),
                stored,
                properties=self._origin(letter) | letter.properties(),  # what it says of its origin itself counts
                partition_key=letter.record_key(),
                ordering_key=letter.ordering_key() or None,
                event_timestamp=(letter.event_timestamp() or None) if self._as_java else None,
            )

    def _origin(self, letter: Message) -> dict[str, str]:
        return origin_as_java(letter, self._subscription, put_off=False) if self._as_java else origin(letter)
