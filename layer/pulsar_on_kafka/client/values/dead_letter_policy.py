"""Policies of redelivery: how long each one is delayed, when a message counts as dead, and where it goes then. The
delay is ours beyond the official Python client, with the Java client's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pulsar_on_kafka.broker.publishing.arguments import of_type
from pulsar_on_kafka_mapping.names.subscription_group import check_subscription_name
from pulsar_on_kafka_mapping.names.topic_name import TopicName


@runtime_checkable
class RedeliveryBackoff(Protocol):
    """Anything with this method will do. Source: org.apache.pulsar.client.api.RedeliveryBackoff."""

    def next(self, redelivery_count: int) -> int:
        """Milliseconds until the next delivery of a message that was delivered again `redelivery_count` times."""


class MultiplierRedeliveryBackoff:
    """`min_delay_ms * multiplier ** redelivery_count`, at most `max_delay_ms`.

    Defaults and meaning are those of org.apache.pulsar.client.impl.MultiplierRedeliveryBackoff.

    Raises:
        ValueError: a negative minimum, a maximum below it, or a multiplier below 1.
    """

    def __init__(self, min_delay_ms: int = 10_000, max_delay_ms: int = 600_000, multiplier: float = 2.0) -> None:
        if not 0 <= min_delay_ms <= max_delay_ms:
            raise ValueError(f"expected 0 <= min_delay_ms <= max_delay_ms, got {min_delay_ms} and {max_delay_ms}")
        if multiplier < 1:
            raise ValueError(f"multiplier must be at least 1, got {multiplier}")
        self._min = min_delay_ms
        self._max = max_delay_ms
        self._multiplier = multiplier

    def next(self, redelivery_count: int) -> int:
        """Milliseconds until the next delivery, at most the maximum."""
        try:
            return min(self._max, int(self._min * self._multiplier ** max(0, redelivery_count)))
        except OverflowError:
            return self._max


@dataclass(frozen=True, slots=True)
class DeadLetterPolicy:
    """The policy holds what `DeadLetterPolicyBuilder` was given. Source: `_pulsar.DeadLetterPolicy`."""

    _max_redeliver_count: int
    _dead_letter_topic: str = ""
    _initial_subscription_name: str = ""

    def getMaxRedeliverCount(self) -> int:  # noqa: N802 - the official name
        return self._max_redeliver_count

    def getDeadLetterTopic(self) -> str:  # noqa: N802
        return self._dead_letter_topic

    def getInitialSubscriptionName(self) -> str:  # noqa: N802
        return self._initial_subscription_name


class DeadLetterPolicyBuilder:
    """A builder checks the settings of a `DeadLetterPolicy` one by one. Source: `_pulsar.DeadLetterPolicyBuilder`."""

    def __init__(self) -> None:
        self._count = 2**31 - 1
        self._topic = ""
        self._subscription = ""

    def maxRedeliverCount(self, count: int) -> DeadLetterPolicyBuilder:  # noqa: N802
        """Raises TypeError for anything but an int."""
        self._count = of_type(int, "maxRedeliverCount", count)
        return self

    def deadLetterTopic(self, topic: str) -> DeadLetterPolicyBuilder:  # noqa: N802
        """The topic of the dead letters."""
        self._topic = of_type(str, "deadLetterTopic", topic)
        return self

    def initialSubscriptionName(self, name: str) -> DeadLetterPolicyBuilder:  # noqa: N802
        """A subscription that is created with the topic."""
        self._subscription = of_type(str, "initialSubscriptionName", name)
        return self

    def build(self) -> DeadLetterPolicy:
        """Raises ValueError when the count is below 1."""
        if self._count < 1:
            raise ValueError(f"maxRedeliverCount must be greater than 0, got {self._count}")
        return DeadLetterPolicy(self._count, self._topic, self._subscription)


class ConsumerDeadLetterPolicy:
    """`max_redeliver_count` redeliveries (1 or more), then the message goes to the dead letter topic.

    The topic is `<topic>-<subscription>-DLQ` unless named, on a partitioned topic one for each partition. It is made
    with the first dead letter, and with it the subscription `initial_subscription_name`, from the beginning, if named.
    Source: `pulsar.ConsumerDeadLetterPolicy`; works on Shared and Key_Shared subscriptions only, as officially.

    Ours beyond the official arguments: `retry_letter_topic`, where `reconsume_later` puts copies off to, instead of
    `<topic>-<subscription>-RETRY`. Source: Java's `DeadLetterPolicy.retryLetterTopic`.

    Raises:
        ValueError: `max_redeliver_count` is below 1.
        TypeError: `retry_letter_topic` is no text.
    """

    def __init__(
        self,
        max_redeliver_count: int,
        dead_letter_topic: str | None = None,
        initial_subscription_name: str | None = None,
        *,
        retry_letter_topic: str | None = None,
    ) -> None:
        if type(max_redeliver_count) is not int or max_redeliver_count < 1:
            raise ValueError(f"max_redeliver_count must be greater than 0, got {max_redeliver_count}")
        builder = DeadLetterPolicyBuilder().maxRedeliverCount(max_redeliver_count)
        if dead_letter_topic is not None:
            builder.deadLetterTopic(dead_letter_topic)
        if initial_subscription_name is not None:
            builder.initialSubscriptionName(initial_subscription_name)
        self._policy = builder.build()
        self._retry_letter_topic = (
            "" if retry_letter_topic is None else of_type(str, "retry_letter_topic", retry_letter_topic)
        )

    @property
    def retry_letter_topic(self) -> str:
        """'' for the default."""
        return self._retry_letter_topic

    @property
    def dead_letter_topic(self) -> str:
        """'' for the default."""
        return self._policy.getDeadLetterTopic()

    @property
    def max_redeliver_count(self) -> int:
        """The redeliveries after which a message becomes a dead letter."""
        return self._policy.getMaxRedeliverCount()

    @property
    def initial_subscription_name(self) -> str:
        """'' for none."""
        return self._policy.getInitialSubscriptionName()

    def check_names(self) -> None:
        """Raises MappingError: a topic or the subscription that it names cannot have that name."""
        for topic in filter(None, (self.dead_letter_topic, self.retry_letter_topic)):
            TopicName.parse(topic)
        if self.initial_subscription_name:
            check_subscription_name(self.initial_subscription_name)

    def policy(self) -> DeadLetterPolicy:
        """The policy as the extension's class, as officially."""
        return self._policy
