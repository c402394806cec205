"""`MultiTopicsConsumer`: one consumer of many topics, listed or matched by a pattern."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from threading import RLock
from typing import Any, Final
from weakref import WeakSet

from pulsar_on_kafka.base.worker import side_by_side
from pulsar_on_kafka.broker.publishing.arguments import check_type
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.broker.publishing.transactional_sends import Transaction
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint
from pulsar_on_kafka.broker.subscriptions.records.refusal_reasons import bounded
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.consumer.consumer import Consumer, ConsumerOptions
from pulsar_on_kafka.client.consumer.dead_letters import (
    REFUSAL_REASON,
    RetryLetterWriter,
    check_retry,
    retry_delay_ms,
)
from pulsar_on_kafka.client.consumer.merged_inbox import MergedInbox
from pulsar_on_kafka.client.consumer.transactional_acks import AckUnderWay, nothing_to_acknowledge
from pulsar_on_kafka.client.receiving.receiving import Receiving
from pulsar_on_kafka.client.values.message import Message, ParsedMessage
from pulsar_on_kafka.client.values.message_id import MessageId, ReceivedId, native
from pulsar_on_kafka.client.values.stats_log import StatsLine
from pulsar_on_kafka.exceptions import (
    AlreadyClosed,
    OperationNotSupported,
    PulsarException,
)
from pulsar_on_kafka.schema.value_type import V
from pulsar_on_kafka_mapping.errors import InvalidTopicName
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.names.topic_name import TopicName

_log = logging.getLogger(__name__)

_AT_A_TIME: Final = 8
"""Topics opened or closed at the same time."""

OpenOne = Callable[[str, int, bool], Consumer]
"""(topic, receiver queue size over all its partitions, it is new) to its consumer."""


class MultiTopicsConsumer(Consumer[V]):
    """The consumer receives the messages of all its topics in turns, and passes each call about a message on to the
    topic's own consumer.

    Each topic has a consumer of its own inside, with the same subscription name. Source: the official client's
    `MultiTopicsConsumerImpl`. Memory: that of its consumers; their inboxes share `max_total`.
    """

    def __init__(
        self,
        shown_topic: str,
        options: ConsumerOptions,
        inbox: MergedInbox,
        open_one: OpenOne,
        session: Session,
        retry_letters: RetryLetterWriter | None = None,
    ) -> None:
        Receiving.__init__(  # a Consumer of one topic is made of other things
            self, inbox, session, options.subscription_name, options.batch_receive_policy, options.message_listener
        )
        self._shown_topic = shown_topic
        self._merged = inbox
        self._open_one = open_one
        self._options = options
        self._on_close = session.consumer_closed
        self._retry_letters = retry_letters
        self._consumers: dict[str, Consumer] = {}
        """Consumers by the topic's full name."""
        self._by_endpoint: dict[Endpoint, Consumer] = {}
        self._of_gone_topics: WeakSet[Endpoint] = WeakSet()
        self._lock = RLock()
        self.before_close: Callable[[], None] = lambda: None
        """Called first of all by close and unsubscribe; ends the search for topics."""

    def endpoints(self) -> list[Endpoint]:
        return [consumer.endpoint for consumer in self._current()]

    def layouts(self) -> list[LedgerLayout]:
        return [layout for consumer in self._current() for layout in consumer.layouts()]

    def stats_lines(self) -> list[StatsLine]:
        """No lines of its own: its consumers have them."""
        return []

    def start(self) -> None:
        """The topics there are at first are open: begin to call the listener."""
        self._begin_to_listen()

    # Topics -------------------------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """Full names. Ours beyond the official client."""
        with self._lock:
            return sorted(self._consumers)

    def add_topics(self, names: Sequence[str], *, new: bool = False) -> None:
        """Receive from these topics, too. All or none of them.

        `new`: they were made after this consumer, so nothing of them is to be missed.
        """
        queue_size = self._merged.share(len(self._consumers) + len(names))

        def opened(name: str) -> Consumer | Exception:
            try:
                return self._open_one(name, queue_size, new)
            except Exception as failure:  # raised when all have been tried, and those that are open have left
                return failure

        with self._lock:
            if self._closed or self._draining:
                return
            made = side_by_side([partial(opened, name) for name in names], _AT_A_TIME)
            failures = [each for each in made if isinstance(each, Exception)]
            consumers = [each for each in made if isinstance(each, Consumer)]
            if failures:
                side_by_side([each.leave for each in consumers], _AT_A_TIME)
                raise failures[0]
            for consumer in consumers:
                self._consumers[consumer.topic()] = consumer
                self._by_endpoint[consumer.endpoint] = consumer
                self._merged.add(consumer.endpoint)

    def drop_topics(self, names: Iterable[str]) -> None:
        with self._lock:
            gone = [self._consumers.pop(name) for name in names if name in self._consumers]
            for consumer in gone:
                del self._by_endpoint[consumer.endpoint]
                self._of_gone_topics.add(consumer.endpoint)
                self._merged.remove(consumer.endpoint)
        for failure in self._all(Consumer.leave, gone):
            _log.warning("subscription=%s leaving a topic that is gone: %s", self._subscription_name, failure)

    def _current(self) -> list[Consumer]:
        with self._lock:
            return list(self._consumers.values())

    def _one(self, message: object, command: str) -> Consumer:
        """The consumer of the message's topic. Raises OperationNotSupported: the id does not name its topic, or names
        another one."""
        self._check_open()
        if type(message) is ParsedMessage:
            message = message.message_id()
        if isinstance(message, Message):
            consumer = self._by_endpoint.get(message.feed.endpoint)
            if consumer is not None:
                return consumer
            topic = message.topic_name()
        else:
            message_id = native(message)
            if message_id is None:
                raise TypeError(f"expected a message or a message id, got {type(message).__name__}: {message!r:.60}")
            topic = message_id.topic_of_message()
        found = self._consumers.get(topic) or self._consumers.get(_base_name(topic))
        if found is None:
            named = f"its topic {topic} is not one of them" if topic else "it does not name its topic"
            raise OperationNotSupported(f"{command} on a consumer of several topics: {named}")
        return found

    def _concerned(self, message: object, command: str) -> Consumer | None:
        """`_one`, or None where its topic was deleted since: there is nothing to acknowledge in the one that has its
        name now."""
        consumer = self._one(message, command)
        if not isinstance(message, Message) or type(message) is ParsedMessage:
            return consumer
        return None if message.feed.endpoint in self._of_gone_topics else consumer

    # Acknowledging ------------------------------------------------------------------------------------------------

    def acknowledge(
        self,
        message: Message | NativeMessageId | MessageId | Any,
        *,
        txn: Transaction | None = None,
        wait: bool = False,
    ) -> None:
        """Acknowledges the message with the consumer of its topic.

        Raises:
            OperationNotSupported: an id that does not name its topic (`message.message_id()` does, and
                `MessageId.deserialize` with a given topic), or names another one.
        """
        if (consumer := self._concerned(message, "acknowledge")) is not None:
            consumer.acknowledge(message, txn=txn, wait=wait)

    def begin_acknowledging(
        self, message: Message | NativeMessageId | MessageId | Any, txn: Transaction
    ) -> AckUnderWay:
        consumer = self._concerned(message, "acknowledge")
        return nothing_to_acknowledge() if consumer is None else consumer.begin_acknowledging(message, txn)

    def acknowledge_cumulative(
        self,
        message: Message | NativeMessageId | MessageId | Any,
        *,
        txn: Transaction | None = None,
        wait: bool = False,
    ) -> None:
        self._options.check_cumulative()
        if (consumer := self._concerned(message, "acknowledge_cumulative")) is not None:
            consumer.acknowledge_cumulative(message, txn=txn, wait=wait)

    def begin_acknowledging_cumulative(
        self, message: Message | NativeMessageId | MessageId | Any, txn: Transaction
    ) -> AckUnderWay:
        self._options.check_cumulative()
        consumer = self._concerned(message, "acknowledge_cumulative")
        return nothing_to_acknowledge() if consumer is None else consumer.begin_acknowledging_cumulative(message, txn)

    def negative_acknowledge(
        self, message: Message | NativeMessageId | MessageId, *, reason: str | None = None
    ) -> None:
        """Requests redelivery from the consumer of its topic. Raises OperationNotSupported as `acknowledge` does; does
        nothing on a closed consumer."""
        if not self._closed and (consumer := self._concerned(message, "negative_acknowledge")) is not None:
            consumer.negative_acknowledge(message, reason=reason)

    def reconsume_later(
        self,
        message: Message,
        delay_ms: int | None = None,
        properties: dict[str, str] | None = None,
        *,
        reason: str | None = None,
    ) -> None:
        self._check_open()
        if self._retry_letters is None:
            super().reconsume_later(message, delay_ms, properties, reason=reason)
            return
        check_retry(message, delay_ms, properties, reason)
        consumer = self._one(message, "reconsume_later")
        if delay_ms is None:
            delay_ms = retry_delay_ms(message, self._options.retry_letter_backoff)
        refused = {REFUSAL_REASON: bounded(reason)} if reason else {}
        self._retry_letters.publish(message, delay_ms, {**(properties or {}), **refused})
        consumer.acknowledge(message)

    def redeliver_unacknowledged_messages(self) -> None:
        for consumer in self._current():
            consumer.redeliver_unacknowledged_messages()

    def flush(self, timeout_millis: int | None = None) -> None:
        self._check_open()
        _raise_first(self._all(lambda consumer: consumer.flush(timeout_millis), self._current()))

    # Positions ----------------------------------------------------------------------------------------------------

    def seek(self, messageid: NativeMessageId | MessageId | Any) -> None:
        """Seeks every topic to earliest, latest or a time; or the topic that an id names to that id.

        Raises:
            OperationNotSupported: an id that does not name its topic, or names another one.
        """
        self._check_open()
        message_id = native(messageid)
        if message_id is None:
            check_type(int, "messageid", messageid)
        elif message_id not in (NativeMessageId.earliest, NativeMessageId.latest):
            self._one(message_id, "seek").seek(message_id)
            return
        _raise_first(self._all(lambda consumer: consumer.seek(messageid), self._current()))

    def get_last_message_id(self) -> ReceivedId:
        """Raises OperationNotSupported: there is not one last message (as officially)."""
        self._check_open()
        raise OperationNotSupported("get_last_message_id on a consumer of several topics")

    # Itself -------------------------------------------------------------------------------------------------------

    def topic(self) -> str:
        """The pattern, or a name made up for the list, as officially."""
        return self._shown_topic

    def is_connected(self) -> bool:
        return not self._closed and all(consumer.is_connected() for consumer in self._current())

    def unsubscribe(self) -> None:
        """Delete the subscription of every topic, and close this consumer.

        Raises:
            BrokerMetadataError: one of them has other consumers; those of other topics are deleted.
        """
        self._check_open()
        self.before_close()
        failures = self._all(Consumer.unsubscribe, self._current())
        if failures:
            raise failures[0]
        self.leave()

    def begin_draining(self) -> None:
        self.before_close()
        with self._lock:
            if self._closed or self._draining:
                return
            self._draining = True
        self._merged.close()
        self._wake_waiting()
        for consumer in self._current():
            consumer.begin_draining()

    def is_drained(self) -> bool:
        return self._listener_is_done() and all(consumer.is_drained() for consumer in self._current())

    def leave(self) -> None:
        self.before_close()
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.stop_receiving()
        self._wake_waiting()
        self._on_close(self)
        if self._retry_letters is not None:
            self._retry_letters.close()
        _raise_first(self._all(Consumer.leave, self._current()))

    def stop_receiving(self) -> None:
        self._merged.close()
        for consumer in self._current():
            consumer.stop_receiving()

    def _all(self, call: Callable[[Consumer], None], consumers: Sequence[Consumer]) -> list[Exception]:
        """Do the same with all of these; what went wrong, but for consumers that were closed meanwhile."""

        def called(consumer: Consumer) -> Exception | None:
            try:
                call(consumer)
            except AlreadyClosed:
                return None
            except PulsarException as failure:
                return failure
            return None

        failures = side_by_side([partial(called, each) for each in consumers], _AT_A_TIME)
        return [failure for failure in failures if failure is not None]


def _base_name(topic: str) -> str:
    """The full name of a topic without a partition's suffix; '' when it is not a full name."""
    if "://" not in topic:
        return ""
    try:
        return str(TopicName.parse(topic).base)
    except InvalidTopicName:
        return ""


def _raise_first(failures: Sequence[Exception]) -> None:
    with pulsar_errors():
        for failure in failures:
            raise failure
