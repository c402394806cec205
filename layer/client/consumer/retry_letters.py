"""Retry letters are copies of messages that an application wants to see again later. Ours beyond the official
client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from pulsar_on_kafka.client.consumer.dead_letters import DLQ_SUFFIX
from pulsar_on_kafka.client.consumer.letters import ORIGIN_MESSAGE_ID, LetterProducers, origin_as_java
from pulsar_on_kafka.client.values.dead_letter_policy import ConsumerDeadLetterPolicy
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.exceptions import InvalidMessage
from pulsar_on_kafka.mapping.encoding.decimals import decimal_or_none
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.sending.arguments import check_range, check_type, check_type_or_none

DELAY_TIME: Final = "DELAY_TIME"
RECONSUMETIMES: Final = "RECONSUMETIMES"
RETRY_SUFFIX: Final = "-RETRY"
DEFAULT_MAX_REDELIVER_COUNT: Final = 16
"""Java's, for a consumer with `retry_enable` and no dead letter policy."""

MAX_DELAY_MS: Final = 10 * 365 * 86_400_000
"""Ten years."""


def check_retry(message: object, delay_ms: object, properties: dict[str, str] | None) -> None:
    """Raises what `Consumer.reconsume_later` says of its arguments."""
    if not isinstance(message, Message):
        raise TypeError(f"reconsume_later takes a message, got {type(message).__name__}: {message!r:.60}")
    check_type(int, "delay_ms", delay_ms)
    assert isinstance(delay_ms, int)  # noqa: S101 - checked
    check_range("delay_ms", delay_ms, 0, MAX_DELAY_MS)
    check_type_or_none(dict, "properties", properties)
    for key, value in (properties or {}).items():
        check_type(str, "a key of properties", key)
        check_type(str, f"properties[{key!r}]", value)


@dataclass(frozen=True, slots=True)
class RetryTopics:
    """One consumer's letters go to the retry topic, and after so many retries to the dead letter topic. Source:
    ConsumerBuilderImpl.subscribeAsync."""

    subscription: str
    retry_topic: str
    dead_letters: ConsumerDeadLetterPolicy
    """Always with a topic."""

    @classmethod
    def of(cls, topic: str, subscription: str, policy: ConsumerDeadLetterPolicy | None) -> RetryTopics:
        """`topic`: full name of the consumer's first topic, after which both topics are named that the policy does not
        name. Raises MappingError: what it names is no topic."""
        count = DEFAULT_MAX_REDELIVER_COUNT if policy is None else policy.max_redeliver_count
        dead = (policy and policy.dead_letter_topic) or f"{topic}-{subscription}{DLQ_SUFFIX}"
        initial = (policy and policy.initial_subscription_name) or None
        retry = (policy and policy.retry_letter_topic) or f"{topic}-{subscription}{RETRY_SUFFIX}"
        return cls(subscription, str(TopicName.parse(retry)), ConsumerDeadLetterPolicy(count, dead, initial))

    def letter(
        self, properties: Mapping[str, str], origin: Mapping[str, str], delay_ms: int, extra: Mapping[str, str]
    ) -> Letter:
        """What becomes of a message with these properties and this origin. A letter of a letter keeps its origin.

        Raises:
            InvalidMessage: its property RECONSUMETIMES is no number.
        """
        combined = {**origin, **properties, **extra}
        before = combined.get(RECONSUMETIMES, "0")
        times = decimal_or_none(before)
        if times is None:
            raise InvalidMessage(
                f"message {origin[ORIGIN_MESSAGE_ID]}: property {RECONSUMETIMES} must be a number, got {before!r:.60}"
            )
        times += 1
        combined |= {RECONSUMETIMES: str(times), DELAY_TIME: str(delay_ms)}
        if times > self.dead_letters.max_redeliver_count:
            return Letter(
                self.dead_letters.dead_letter_topic, self.dead_letters.initial_subscription_name, combined, None
            )
        return Letter(self.retry_topic, "", combined, timedelta(milliseconds=delay_ms))


@dataclass(frozen=True, slots=True)
class Letter:
    """A letter has a topic, properties and a delay of its own; payload, keys and event time are its message's."""

    topic: str
    initial_subscription: str
    """'' for none."""
    properties: dict[str, str]
    deliver_after: timedelta | None
    """None for at once."""


class RetryLetterWriter:
    """The writer publishes the retry letters of one consumer. Thread-safe. Source: ConsumerImpl.doReconsumeLater of
    Java's client.

    Memory: two producers at most; each caller waits for its letter, so what is under way is bounded by their number.
    """

    def __init__(self, topics: RetryTopics, producers: LetterProducers) -> None:
        self._topics = topics
        self._producers = producers
        self.close = producers.close

    def publish(self, message: Message, delay_ms: int, extra: Mapping[str, str]) -> None:
        """Return when every in-sync replica has the letter; any PulsarException when it is not sure to be there."""
        origin = origin_as_java(message, self._topics.subscription, put_off=True)
        letter = self._topics.letter(message.properties(), origin, delay_ms, extra)
        with self._producers.copying(message, letter.topic, letter.initial_subscription) as producer:
            producer.send(
                message.payload(),
                properties=letter.properties,
                partition_key=message.record_key(),
                ordering_key=message.ordering_key() or None,
                event_timestamp=message.event_timestamp() or None,
                deliver_after=letter.deliver_after,
            )
