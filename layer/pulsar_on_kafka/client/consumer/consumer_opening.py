"""Making a consumer of a topic, of several, or of those that match a pattern, which are kept up to date."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.publishing.arguments import check_range
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.broker.subscriptions.records.ack_timeouts import AckTimeouts
from pulsar_on_kafka.broker.subscriptions.records.chunks import ChunkRules
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import DeliveryRules, Endpoint
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.consumer.consumer import Consumer, ConsumerOptions
from pulsar_on_kafka.client.consumer.dead_letters import (
    DLQ_SUFFIX,
    DeadLetterWriter,
    LetterProducers,
    RetryLetterWriter,
    RetryTopics,
    check_letter_topic,
)
from pulsar_on_kafka.client.consumer.merged_inbox import MergedInbox
from pulsar_on_kafka.client.consumer.multi_topics import MultiTopicsConsumer
from pulsar_on_kafka.client.receiving.incoming_schema import IncomingValues, admit_reading, incoming_values
from pulsar_on_kafka.client.values.encryption import consumer_encryption
from pulsar_on_kafka.client.values.enums import (
    ConsumerType,
    InitialPosition,
    RegexSubscriptionMode,
    SubscriptionMode,
)
from pulsar_on_kafka.client.values.key_shared import key_shared_rule
from pulsar_on_kafka.client.values.message import ReceivedMessage
from pulsar_on_kafka.exceptions import ConsumerBusy, InvalidConfiguration
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import TopicRecord

_log = logging.getLogger(__name__)

_TYPES: Final = {
    ConsumerType.Exclusive: SubscriptionType.EXCLUSIVE,
    ConsumerType.Shared: SubscriptionType.SHARED,
    ConsumerType.Failover: SubscriptionType.FAILOVER,
    ConsumerType.KeyShared: SubscriptionType.KEY_SHARED,
}


def open_consumer(topic: str, options: ConsumerOptions, session: Session) -> Consumer:
    """A consumer of one topic. `options` are checked; those about several topics have no effect.

    Raises:
        PulsarException: see `Client.subscribe`.
    """
    with pulsar_errors():
        name = TopicName.parse(topic)
        node = session.node()
        deadline = session.deadline()
        if options.is_read_compacted and not name.is_persistent:
            raise errors.InvalidOption(f"is_read_compacted: {name} is not persistent, so there is nothing to compact")
        opened = node.topics.open(name, deadline)
        letters = None
        if options.dead_letter_policy is not None and name.is_persistent:  # no redelivery elsewhere
            if options.consumer_type in (ConsumerType.Shared, ConsumerType.KeyShared):
                dead = options.dead_letter_policy.dead_letter_topic
                what = f"dead letters of subscription {options.subscription_name!r}"
                check_letter_topic(session, what, dead or f"{name}-{options.subscription_name}{DLQ_SUFFIX}")
            letters = DeadLetterWriter(
                options.dead_letter_policy.policy(),
                options.subscription_name,
                LetterProducers(session, options.subscription_name),
                as_java=options.retry_enable,
            )
        partition = name.partition if name.partition >= 0 else None
        admit_reading(node, opened, options.schema, deadline)
        values = incoming_values(options.schema, name.base, node.schemas, session.operation_timeout_s)
        non_durable = options.subscription_mode is SubscriptionMode.NonDurable and name.is_persistent
        while True:
            inbox = _inbox(options, opened.partitions if partition is None else 1, letters, values, name.is_persistent)
            try:
                subscription, member = node.memberships.subscribe(
                    opened,
                    options.subscription_name,
                    _TYPES[options.consumer_type],
                    inbox,
                    from_earliest=options.initial_position is InitialPosition.Earliest,
                    ack_persist_interval_s=session.ack_persist_interval_s,
                    read_compacted=options.is_read_compacted,
                    deadline=deadline,
                    partition=partition,
                    properties=options.properties,
                    replicated=options.replicate_subscription_state_enabled,
                    non_durable=non_durable,
                    ordered=options.ordered_redelivery,
                )
            except errors.NoSuchSubscription:
                if not non_durable:
                    raise
                deadline.check(f"subscription {options.subscription_name} to be removed by its former consumers")
                continue
            break
        consumer = Consumer(node, session, subscription, member, inbox, options, letters)
    session.consumer_opened(consumer)
    return consumer


def _inbox(
    options: ConsumerOptions,
    partitions: int,
    letters: DeadLetterWriter | None,
    values: IncomingValues | None,
    persistent: bool,
) -> Endpoint:
    timeout_ms = options.unacked_messages_timeout_ms if persistent else None
    max_total = options.max_total_receiver_queue_size_across_partitions
    inbox = Endpoint(
        options.consumer_name or secrets.token_hex(5),
        inbox_capacity(options.receiver_queue_size, max_total, partitions),
        delivery_type=ReceivedMessage,
        schema=options.schema,
        values=values,
        rules=DeliveryRules(
            options.priority_level,
            options.max_unacked_messages_on_consumer,
            ack_timeouts=AckTimeouts(timeout_ms / 1000) if timeout_ms else None,
            dead_letters=letters,
            key_shared=key_shared_rule(options.key_shared_policy),
        ),
        chunk_rules=ChunkRules(
            options.max_pending_chunked_message,
            options.auto_ack_oldest_chunked_message_on_queue_full,
            options.expire_time_of_incomplete_chunked_message_ms / 1000,
        ),
        decryptor=consumer_encryption(options.crypto_key_reader, options.crypto_failure_action),
    )
    inbox.metadata = options.properties or {}
    return inbox


def inbox_capacity(receiver_queue_size: int, max_total: int, partitions: int) -> int:
    """Messages the inbox of a consumer takes: the official sizes are per partition, bounded over all of them."""
    if receiver_queue_size == 0:
        return 0
    return max(1, min(receiver_queue_size * partitions, max(max_total, receiver_queue_size)))


_DOMAINS = {
    RegexSubscriptionMode.PersistentOnly: (True,),
    RegexSubscriptionMode.NonPersistentOnly: (False,),
    RegexSubscriptionMode.AllTopics: (True, False),
}


@dataclass(frozen=True, slots=True)
class NamespacePattern:
    """The pattern matches the names of one namespace's topics with a regular expression."""

    name: TopicName
    """The pattern read as a topic's name; it contains the namespace, which therefore has to be written out."""
    expression: re.Pattern[str]
    """Matches a whole name without its domain: `tenant/namespace/topic`."""
    mode: RegexSubscriptionMode

    @classmethod
    def of(cls, pattern: re.Pattern[str], mode: RegexSubscriptionMode) -> NamespacePattern:
        """Source: the official client, which leaves the domain out on both sides: `mode` chooses that.

        Raises:
            InvalidTopicName: the pattern is no topic's name (its namespace is a pattern as well, for example).
        """
        _, separator, rest = pattern.pattern.partition("://")
        expression = rest if separator else pattern.pattern
        return cls(TopicName.parse(pattern.pattern), re.compile(expression, pattern.flags), mode)

    @property
    def namespace(self) -> str:
        return self.name.namespace_name

    def matching(self, topics: Iterable[str]) -> list[str]:
        """The names that match the pattern, of these full names (without partitions' suffixes)."""
        return [
            str(name)
            for name in map(TopicName.parse, topics)
            if name.is_persistent in _DOMAINS[self.mode]
            and self.expression.fullmatch(f"{name.namespace_name}/{name.local_name}")
        ]


def subscribed(options: ConsumerOptions, session: Session) -> Consumer:
    """A consumer of a topic, of several, or of those that match. `options` are checked.

    With `retry_enable` its retry topic is one of them. Source: ConsumerBuilderImpl.subscribeAsync of Java's client.

    Raises:
        InvalidConfiguration: `retry_enable` with a pattern or without a topic: there is none to name letters after.
    """
    topics = options.topic
    if isinstance(topics, str):
        if not options.retry_enable:
            return open_consumer(topics, options, session)
        topics = [topics]
    if options.retry_enable and (isinstance(topics, re.Pattern) or not topics):
        raise InvalidConfiguration(f"retry_enable takes a topic or a list of topics, got {topics!r:.100}")
    if isinstance(topics, re.Pattern):
        with pulsar_errors():
            pattern = NamespacePattern.of(topics, options.regex_subscription_mode)
        consumer = _consumer(str(pattern.name), options, session, topics_come_and_go=True)
        _PatternWatch(pattern, consumer, session).begin(float(options.pattern_auto_discovery_period))
        session.consumer_opened(consumer)
        return consumer
    if not all(isinstance(topic, str) for topic in topics):
        raise TypeError(f"a list of topics holds str, got {topics!r:.100}")
    topics = list(dict.fromkeys(topics))  # officially, too, the same text twice is one topic
    with pulsar_errors():
        names = [str(TopicName.parse(topic)) for topic in topics]
    if len(set(names)) < len(names) and options.consumer_type is ConsumerType.Exclusive:
        raise ConsumerBusy(f"an Exclusive consumer cannot subscribe to the same topic twice: {sorted(names)}")
    first = TopicName.parse(topics[0]).local_name if topics else ""
    letters = None
    if options.retry_enable:
        with pulsar_errors():
            retries = RetryTopics.of(names[0], options.subscription_name, options.dead_letter_policy)
            what = f"letters of subscription {options.subscription_name!r}"
            check_letter_topic(session, f"retry {what}", retries.retry_topic)
            check_letter_topic(session, f"dead {what}", retries.dead_letters.dead_letter_topic)
        letters = RetryLetterWriter(retries, LetterProducers(session, options.subscription_name))
        names.append(retries.retry_topic)
        options = replace(options, dead_letter_policy=retries.dead_letters)
    consumer = _consumer(
        f"persistent://public/default/{first}-TopicsConsumerFakeName-{secrets.token_hex(5)}",
        options,
        session,
        letters,
    )
    consumer.add_topics(list(dict.fromkeys(names)))
    consumer.start()
    session.consumer_opened(consumer)
    return consumer


def _consumer(
    shown_topic: str,
    options: ConsumerOptions,
    session: Session,
    retry_letters: RetryLetterWriter | None = None,
    *,
    topics_come_and_go: bool = False,
) -> MultiTopicsConsumer:
    queue_size = options.receiver_queue_size
    max_total = options.max_total_receiver_queue_size_across_partitions
    check_range("receiver_queue_size of a consumer of several topics", queue_size, 1)
    name = options.consumer_name or secrets.token_hex(5)
    each = replace(options, consumer_name=name, message_listener=None)

    def open_one(topic: str, queue_size: int, new: bool) -> Consumer:
        position = InitialPosition.Earliest if new else options.initial_position
        its_own = replace(
            each,
            receiver_queue_size=queue_size,
            max_total_receiver_queue_size_across_partitions=queue_size,
            initial_position=position,
        )
        return open_consumer(topic, its_own, session)

    inbox = MergedInbox(name, queue_size, max(1, max_total), topics_come_and_go=topics_come_and_go)
    return MultiTopicsConsumer(shown_topic, options, inbox, open_one, session, retry_letters)


class _PatternWatch:
    """The watch looks which topics match a pattern now, and has the consumer open the new ones and leave those that are
    gone."""

    def __init__(self, pattern: NamespacePattern, consumer: MultiTopicsConsumer, session: Session) -> None:
        self._pattern = pattern
        self._consumer = consumer
        self._session = session
        self._began_ms = 0
        self._refused = 0
        self._lives: dict[str, int] = {}
        """The incarnations of the open topics: one of that name may be deleted and recreated."""
        consumer.before_close = self.end

    def begin(self, period_s: float) -> None:
        """Open what matches now, then look again every `period_s`, never with 0 or less. Source:
        PatternMultiTopicsConsumerImpl::start of the official client.

        Raises:
            InvalidConfiguration: more topics match than a pattern may open.
        """
        with pulsar_errors():
            self._began_ms = self._session.node().clock.now_ms()
            matching = self._matching()
        if len(matching) > self._session.max_pattern_topics:
            raise InvalidConfiguration(
                f"pattern {self._pattern.expression.pattern} matches {len(matching)} topics, a pattern opens at most "
                f"{self._session.max_pattern_topics} (max_pattern_topics of the Client)"
            )
        self._consumer.add_topics(sorted(matching))
        self._lives = {name: record.created_ms for name, record in matching.items()}
        self._consumer.start()
        if period_s > 0:
            self._session.scheduler.every(period_s, self.look)

    def end(self) -> None:
        self._session.scheduler.cancel(self.look)

    def look(self) -> None:
        """Brings the consumer's topics up to date. A topic that cannot be opened does not affect the others."""
        matching = self._matching()
        opened = set(self._consumer.topics())
        have = {name for name in opened & matching.keys() if self._lives.get(name) == matching[name].created_ms}
        self._consumer.drop_topics(opened - have)
        self._lives = {name: self._lives[name] for name in have}
        found = sorted(matching.keys() - have)
        room = self._session.max_pattern_topics - len(have)
        refused, found = found[max(0, room) :], found[: max(0, room)]
        if len(refused) != self._refused:
            self._refused = len(refused)
            if refused:
                _log.error(
                    "pattern=%s opens no more than %d topics (max_pattern_topics of the Client); left out: %s",
                    self._pattern.expression.pattern, self._session.max_pattern_topics, ", ".join(refused),
                )  # fmt: skip
        for name in found:
            try:
                self._consumer.add_topics([name], new=matching[name].created_ms >= self._began_ms)
                self._lives[name] = matching[name].created_ms
            except Exception as failure:  # tried again next time
                _log.warning("pattern=%s topic=%s not opened: %s", self._pattern.expression.pattern, name, failure)

    def _matching(self) -> dict[str, TopicRecord]:
        try:
            listed = self._session.node().topics.list(self._pattern.namespace, self._session.deadline())
        except errors.NoSuchNamespace:
            return {}
        records = {record.name: record for record in listed}
        return {name: records[name] for name in self._pattern.matching(records)}
