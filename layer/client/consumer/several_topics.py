"""Making a consumer of several topics, and keeping a pattern's topics up to date."""

from __future__ import annotations

import logging
import re
import secrets
from dataclasses import replace

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.consumer.consumer import Consumer, ConsumerOptions
from pulsar_on_kafka.client.consumer.consumer_opening import open_consumer
from pulsar_on_kafka.client.consumer.letters import LetterProducers
from pulsar_on_kafka.client.consumer.merged_inbox import MergedInbox
from pulsar_on_kafka.client.consumer.multi_topics import MultiTopicsConsumer
from pulsar_on_kafka.client.consumer.retry_letters import RetryLetterWriter, RetryTopics
from pulsar_on_kafka.client.consumer.topic_pattern import TopicPattern
from pulsar_on_kafka.client.values.enums import ConsumerType, InitialPosition
from pulsar_on_kafka.exceptions import ConsumerBusy, InvalidConfiguration, PulsarException
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.mapping.state.metadata.metadata_records import TopicRecord
from pulsar_on_kafka.sending.arguments import check_range
from pulsar_on_kafka.sending.official_errors import pulsar_errors

_log = logging.getLogger(__name__)


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
            pattern = TopicPattern.of(topics, options.regex_subscription_mode)
        consumer = _consumer(str(pattern.name), options, session, topics_come_and_go=True)
        _PatternWatch(pattern, consumer, session).begin(float(max(1, options.pattern_auto_discovery_period)))
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
    check_range("max_total_receiver_queue_size_across_partitions", max_total, 0)
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

    def __init__(self, pattern: TopicPattern, consumer: MultiTopicsConsumer, session: Session) -> None:
        self._pattern = pattern
        self._consumer = consumer
        self._session = session
        self._began_ms = 0
        self._refused = 0
        self._lives: dict[str, int] = {}
        """When the topics that are open were made: one of that name may be gone and made again."""
        consumer.before_close = self.end

    def begin(self, period_s: float) -> None:
        """Open what matches now, then look again every `period_s`.

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
        self._session.scheduler.every(period_s, self.look)

    def end(self) -> None:
        self._session.scheduler.cancel(self.look)

    def look(self) -> None:
        """Bring the consumer's topics up to date. One topic that cannot be opened keeps nobody from the others."""
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
            except PulsarException as failure:  # tried again next time
                _log.warning("pattern=%s topic=%s not opened: %s", self._pattern.expression.pattern, name, failure)

    def _matching(self) -> dict[str, TopicRecord]:
        try:
            listed = self._session.node().topics.list(self._pattern.namespace, self._session.deadline())
        except errors.NoSuchNamespace:
            return {}
        records = {record.name: record for record in listed}
        return {name: records[name] for name in self._pattern.matching(records)}
