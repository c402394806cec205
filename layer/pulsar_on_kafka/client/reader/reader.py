"""`Reader`: reads a topic from a place of one's own, without a subscription."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, cast

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.node.readers import compacted_ranges
from pulsar_on_kafka.broker.publishing.arguments import check_type
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.broker.subscriptions.records.batches import Begun
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint, Values
from pulsar_on_kafka.broker.subscriptions.records.decryption import RecordDecryptor
from pulsar_on_kafka.broker.subscriptions.records.reader_thread import Tail
from pulsar_on_kafka.client.connection.listener import ListenerTask
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.receiving.batch_receive import Inbox, call_listener
from pulsar_on_kafka.client.receiving.incoming_schema import admit_reading, incoming_values
from pulsar_on_kafka.client.receiving.receiving import taken
from pulsar_on_kafka.client.receiving.start_position import TopicPositions
from pulsar_on_kafka.client.values.encryption import consumer_encryption
from pulsar_on_kafka.client.values.enums import ConsumerCryptoFailureAction
from pulsar_on_kafka.client.values.message import Message, ReceivedMessage
from pulsar_on_kafka.client.values.message_id import MessageId, native
from pulsar_on_kafka.client.values.option_tables import BYTES, ELSEWHERE, OptionRange, check_table
from pulsar_on_kafka.client.values.stats_log import StatsLine
from pulsar_on_kafka.crypto.keys import CryptoKeyReader
from pulsar_on_kafka.exceptions import AlreadyClosed, InvalidConfiguration, UnknownError
from pulsar_on_kafka.schema.plain import Schema
from pulsar_on_kafka.schema.value_type import V
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.names.topic_name import TopicName

ReaderListener = Callable[["Reader[V]", Message[V]], None]


@dataclass(frozen=True, slots=True)
class ReaderOptions(Generic[V]):
    """The official options of `create_reader`."""

    topic: str
    start_message_id: Annotated[NativeMessageId | MessageId, ELSEWHERE]
    schema: Schema[V] = BYTES
    reader_listener: ReaderListener[V] | None = None
    receiver_queue_size: Annotated[int, OptionRange(0)] = 1000
    reader_name: str | None = None
    subscription_role_prefix: str | None = None
    is_read_compacted: bool = False
    crypto_key_reader: Annotated[CryptoKeyReader | None, ELSEWHERE] = field(default=None, repr=False)
    start_message_id_inclusive: bool = False
    crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL

    def check(self) -> None:
        """Raises ValueError or InvalidConfiguration, naming the value and what was expected."""
        if native(self.start_message_id) is None:
            check_type(MessageId, "start_message_id", self.start_message_id)
        check_table(self)
        self.decryptor()

    @property
    def start(self) -> NativeMessageId:
        found = native(self.start_message_id)
        assert found is not None  # noqa: S101 - it was checked
        return found

    def decryptor(self) -> RecordDecryptor:
        return consumer_encryption(self.crypto_key_reader, self.crypto_failure_action)


class Reader(OfOneProcess, Generic[V]):
    """A reader reads every message behind a place, in order, and keeps no trace of it. Thread-safe. Source:
    `pulsar.Reader`.

    Its position is in memory only. It joins no group, so it starts without waiting for one and delays no consumer.
    Memory: an inbox of `receiver_queue_size` messages, and see its `Tail`.
    """

    _close_called = False

    def __init__(
        self,
        node: Node,
        session: Session,
        topic: Topic,
        tail: Tail,
        endpoint: Endpoint,
        options: ReaderOptions,
        starts: dict[int, int],
    ) -> None:
        """`options` contain the given `topic`, or one partition of it."""
        self._node = node
        self._name = TopicName.parse(options.topic)
        self._topic = topic
        self._positions = TopicPositions(node, topic)
        self._tail = tail
        self._inbox = endpoint
        self.starts = starts
        """The start, or the last seek, in each partition. Not in the official client, for clients that follow a map of
        tenants."""
        self._inclusive = options.start_message_id_inclusive
        self._operation_timeout_s = session.operation_timeout_s
        self._listener: ReaderListener | None = None
        self._threads = session.threads
        self._on_close: list[Callable[[Reader], None]] = [session.reader_closed]
        self._closed = False
        self._task: ListenerTask | None = None
        if options.reader_listener is not None:
            self.listen(options.reader_listener)

    def listen(self, listener: ReaderListener) -> None:
        """Registers `listener` for every message from now on. Not in the official client, for table views."""
        self._listener = listener
        self._inbox.expect(1)  # with a queue of size 0 it takes one message at a time
        self._task = self._threads.task(self._listen_once)
        self._inbox.on_available = self._task.schedule
        self._task.schedule()

    def topic(self) -> str:
        """The topic's full name."""
        return str(self._name)

    @property
    def opened_topic(self) -> Topic:
        """Ours, for the client."""
        return self._topic

    @property
    def values(self) -> Values | None:
        """The decoder of payloads, where the schema alone does not suffice. Not in the official client, for table
        views."""
        return self._inbox.values

    def when_closed(self, reported: Callable[[Reader], None]) -> None:
        """Registers `reported`, which is called with this reader when it is closed. Not in the official client, for
        table views."""
        self._on_close.append(reported)

    def stats_line(self) -> StatsLine:
        """The line of this reader in the log of statistics. Not in the official client."""
        inbox = self._inbox
        who = f"reader={inbox.name} topic={self._name}"
        return StatsLine(who, {"received": inbox.delivered}, {"inbox": len(inbox.queue)})

    def read_next(self, timeout_millis: int | None = None) -> Message[V]:
        """The next message, waited for (`timeout_millis` at most; None: for ever).

        Raises:
            Timeout: none came in time.
            Interrupted: SIGINT while waiting.
            AlreadyClosed: the reader was closed.
            InvalidConfiguration: a reader listener is set.
        """
        if timeout_millis is not None:
            check_type(int, "timeout_millis", timeout_millis)
        if self._listener is not None:
            raise InvalidConfiguration("read_next() cannot be used beside a reader listener")
        message = self._inbox.take_now()
        if message is None:
            self._check_open()
            return taken(
                cast("Inbox", self._inbox), timeout_millis, lambda: f"{self._name} (reader {self._inbox.name})"
            )
        return message  # type: ignore[return-value]  # this reader's endpoint makes Messages

    def _listen_once(self) -> bool:
        if self._closed or self._listener is None:
            return False
        return call_listener(cast("Inbox", self._inbox), self._listener, self)  # its endpoint makes Messages

    def has_message_available(self) -> bool:
        """Whether `read_next` has a message to give without waiting for one to be sent. Exact: the rest of the topic is
        read first where it may contain no message for the application. Messages of open transactions are not available.

        Raises:
            Timeout: Kafka did not reply in time.
            AlreadyClosed: the reader was closed, also by another thread meanwhile.
            TopicNotFound: the topic was deleted.
            UnknownError: the topic is not persistent, as officially.
        """
        self._check_open()
        if not self._name.is_persistent:
            raise UnknownError(f"has_message_available: {self._name} is not persistent, so it has no last message")
        deadline = self._deadline()
        tail = self._tail
        with pulsar_errors():
            if tail.has_messages_at_hand():
                return True
            self._node.incarnations.check(self._topic, deadline)
            ends = self._node.admin.end_offsets(self._topic.kafka_topic, tail.partitions(), deadline)
            since_s = self._node.clock.monotonic()

            def known() -> bool:
                return (
                    self._closed
                    or tail.failure is not None
                    or tail.has_reached(ends, since_s)
                    or tail.has_messages_at_hand()
                )

            if not wait_until(known, deadline):
                raise errors.DeadlineExceeded(f"reader of {self._name}: the end of the topic was not read in time")
            self._check_open()
            if tail.failure is not None:
                raise tail.failure
        return tail.has_messages_at_hand()

    def seek(self, messageid: NativeMessageId | Any) -> None:
        """Go on behind a message id (at it, when made with `start_message_id_inclusive`), or with the first message
        published at or after a time (`int`, Unix ms). Nothing from before the seek is delivered after it.

        On a partitioned topic an id moves the partition that it names; on a non-persistent one nothing happens.

        Raises:
            ValueError: neither an id nor an int.
        """
        self._check_open()
        deadline = self._deadline()
        message_id = native(messageid)
        if message_id is None:
            check_type(int, "messageid", messageid)
        if not self._name.is_persistent:
            return
        with pulsar_errors():
            begun: dict[int, Begun] = {}
            if message_id is None:
                assert isinstance(messageid, int)  # noqa: S101 - checked
                offsets = self._positions.at_time(self._tail.partitions(), messageid, deadline)
            else:
                offsets, begun = self._places_of(message_id, deadline)
            self._tail.seek(offsets, begun, deadline)
            self.starts = {**self.starts, **offsets}

    def _places_of(self, message_id: NativeMessageId, deadline: Deadline) -> tuple[dict[int, int], dict[int, Begun]]:
        partitions = self._tail.partitions()
        one = message_id.partition()
        if self._topic.partitioned and one >= 0:
            if one not in partitions:
                raise errors.InvalidCursorPosition(
                    f"id {message_id} names partition {one} of {self._name}, expected one of {partitions}"
                )
            partitions = [one]
        return self._positions.begin(partitions, message_id, deadline, inclusive=self._inclusive)

    def is_connected(self) -> bool:
        """Whether it is open."""
        return not self._closed and self._tail.failure is None

    def close(self) -> None:
        """Raises ValueError when `close` was called before (as the official client does)."""
        if self._close_called:
            raise ValueError(f"reader of {self.topic()} is closed already")
        self._close_called = True
        self.leave()

    def leave(self) -> None:
        """`close` on the client's behalf; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._inbox.close()
        for reported in self._on_close:
            reported(self)
        with pulsar_errors():
            self._node.readers.close_tail(self._tail, self._deadline())

    def grow(self, partitions: int, deadline: Deadline) -> None:
        """The topic has that many partitions now: read the new ones, too, from their beginning. Ours, for the client's
        discovery."""
        if not self._closed and self._name.partition < 0:
            self._tail.add(dict.fromkeys(range(partitions), 0), deadline)

    def _check_open(self) -> None:
        if self._closed:
            raise AlreadyClosed(f"reader {self._inbox.name} of {self._name} is closed")

    def _deadline(self) -> Deadline:
        return Deadline.after(self._operation_timeout_s)


def open_reader(options: ReaderOptions, session: Session, starts: dict[int, int] | None = None) -> Reader:
    """A reader that has begun to read; `starts` (offsets by partition) take the place of `start_message_id`. Raises the
    errors of `Client.create_reader`."""
    with pulsar_errors():
        reader = _begin(session, options, starts)
    session.reader_opened(reader)
    return reader


def _begin(session: Session, options: ReaderOptions, given: dict[int, int] | None) -> Reader:
    name, start = TopicName.parse(options.topic), options.start
    if not name.is_persistent:  # only messages sent from now on, whatever start is requested
        if options.is_read_compacted:
            raise errors.InvalidOption(f"is_read_compacted: {name} is not persistent, so there is nothing to compact")
        start = NativeMessageId.latest
    node = session.node()
    deadline = session.deadline()
    topic = node.topics.open(name, deadline)
    partitions = [name.partition] if name.partition >= 0 else list(range(topic.partitions))
    admit_reading(node, topic, options.schema, deadline)
    starts = given or {}
    begun: dict[int, Begun] = {}
    if given is None:
        inclusive = options.start_message_id_inclusive
        starts, begun = TopicPositions(node, topic).begin(partitions, start, deadline, inclusive=inclusive)
    compacted = compacted_ranges(node, topic, partitions, deadline) if options.is_read_compacted else {}
    endpoint = Endpoint(
        options.reader_name or f"{options.subscription_role_prefix or 'reader'}-{secrets.token_hex(5)}",
        options.receiver_queue_size,
        delivery_type=ReceivedMessage,
        schema=options.schema,
        values=incoming_values(options.schema, name.base, node.schemas, session.operation_timeout_s),
        decryptor=options.decryptor(),
    )
    tail = node.readers.open_tail(topic, starts, endpoint, compacted, begun)
    return Reader(node, session, topic, tail, endpoint, options, dict(starts))
