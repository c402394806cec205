"""A moving reader goes with its tenant from cluster to cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.lookup.replica_index import Copies
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Values
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.failover.preconnect import topic_ahead
from pulsar_on_kafka.client.failover.switchable import Moving
from pulsar_on_kafka.client.failover.tenant_connection import TenantHome
from pulsar_on_kafka.client.reader.reader import Reader, ReaderListener, ReaderOptions, open_reader
from pulsar_on_kafka.client.values.message import BatchedMessage, Message
from pulsar_on_kafka.client.values.message_id import native
from pulsar_on_kafka.exceptions import AlreadyClosed, InvalidMessage
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId, StoredMessageId
from pulsar_on_kafka_mapping.names.topic_name import TopicName


class _Given(NamedTuple):
    """The last message given of a partition: the whole record, or so many messages of its batch entry."""

    offset: int
    messages: int = 0


class MovingReader(Moving[Reader], Reader):
    """The moving reader reads with an inner reader on the cluster that has the tenant. Thread-safe.

    On the next cluster it continues behind the copy of the last message that it returned, in each partition, also
    inside a batch; without any, behind the copy of the last one before its start.
    """

    def __init__(self, options: ReaderOptions, home: TenantHome) -> None:
        # The parts of a Reader are the inner one's.
        super().__init__(f"reader of {options.topic}", home, lambda inner: inner.leave())
        self._options = options
        self._left: str = ""
        """The cluster on which `_given` is."""
        self._listening_with: ReaderListener | None = None
        self._former: list[LedgerLayout] = []
        self._given: dict[int, _Given] = {}
        self._skipped: dict[int, _Given] = {}
        """The batch entries at which reading began here, with the number of messages that the former cluster
        delivered."""
        self._close_listeners: list[Callable[[Reader], None]] = []
        home.join(self)
        if options.reader_listener is not None:
            self.listen(options.reader_listener)

    def depart(self) -> None:
        last = self._last
        if last is None or self._gone:
            return
        for partition, start in last.starts.items():
            self._given.setdefault(partition, _Given(start - 1))
        self._former.append(last.opened_topic.layout)
        self._part(last)

    def look_ahead(self, session: Session) -> None:
        topic_ahead(self._options.topic, session)

    def arrive(self, session: Session) -> None:
        with pulsar_errors():
            cluster = self._home.cluster_of(session)
            starts = None if self._last is None else self._starts(session, self._last.opened_topic, cluster)
        inner = open_reader(replace(self._options, reader_listener=None), session, starts)
        self._left = cluster
        self._use(inner)
        if not self._gone and self._listening_with is not None:
            inner.listen(self._receive_message)

    def _starts(self, session: Session, former: Topic, cluster: str) -> dict[int, int]:
        """The start in each partition, found by the places of the originals."""
        if cluster == self._left:  # it did not go in the end
            stayed, self._given = self._given, {}
            self._skipped = {p: each for p, each in stayed.items() if each.messages}
            return {p: each.offset + (0 if each.messages else 1) for p, each in stayed.items()}
        node, deadline = session.node(), session.deadline()
        name = TopicName.parse(self._options.topic)
        topic = node.topics.open(name, deadline)
        partitions = [name.partition] if name.partition >= 0 else list(range(topic.partitions))
        low = node.admin.start_offsets(topic.kafka_topic, partitions, deadline)
        end = node.admin.end_offsets(topic.kafka_topic, partitions, deadline)
        starts: dict[int, int] = {}
        self._skipped = {}
        for partition in partitions:
            given = self._given.pop(partition, _Given(-1))
            copies = Copies(node.fetcher, topic.kafka_topic, partition, self._left)
            life = (former.layout.incarnation, given.offset)
            starts[partition] = copies.behind(life, low[partition], end[partition], deadline)
            if given.messages:
                entry = copies.of(life, low[partition], end[partition], deadline)
                if entry is not None:
                    starts[partition] = entry
                    self._skipped[partition] = _Given(entry, given.messages)
        self._given = {}
        return starts

    def read_next(self, timeout_millis: int | None = None) -> Message:
        """The next message; between two clusters it is waited for as where there is none."""
        deadline = Deadline.never() if timeout_millis is None else Deadline.after_ms(timeout_millis)

        def read(inner: Reader) -> Message:
            left_ms = None if timeout_millis is None else int(1000 * deadline.remaining_s())
            message = inner.read_next(left_ms)
            if inner is not self._inner:  # the next cluster has the message as well, and its delivery was not recorded
                raise AlreadyClosed(f"{self._what} moved")
            return message

        while True:
            message = self._call(read, deadline)
            if self._note(message):
                return message

    def _note(self, message: Message) -> bool:
        """Whether to deliver the message: the former cluster did not deliver it."""
        partition = message.feed.slot.number
        messages = 0
        if isinstance(message, BatchedMessage):
            skipped = self._skipped.get(partition)
            if skipped is not None and skipped.offset == message.offset and message.batch_index < skipped.messages:
                return False
            if message.batch_index + 1 < message.entry.size:
                messages = message.batch_index + 1
        self._given[partition] = _Given(message.offset, messages)
        return True

    def listen(self, listener: ReaderListener) -> None:
        """Registers `listener` for every message from now on, on every cluster."""
        self._listening_with = listener
        inner = self._inner
        if inner is not None:
            inner.listen(self._receive_message)

    def _receive_message(self, inner: Reader, message: Message) -> None:
        if inner is self._inner and self._listening_with is not None and self._note(message):
            self._listening_with(self, message)

    def has_message_available(self) -> bool:
        return self._call(Reader.has_message_available, self._patience())

    def seek(self, messageid: NativeMessageId | Any) -> None:
        """Seek on the cluster that has the tenant. Raises as `Reader.seek`, and:

        Raises:
            InvalidMessage: an id of a cluster that was left.
        """
        found = native(messageid)
        if isinstance(found, StoredMessageId) and any(found.layout is each for each in self._former):
            raise InvalidMessage(f"id {messageid} is of a cluster that its tenant has left")

        def sought(inner: Reader) -> None:
            inner.seek(messageid)
            self._given, self._skipped = {}, {}

        self._call(sought, self._patience())

    def topic(self) -> str:
        return self._known().topic()

    @property
    def opened_topic(self) -> Topic:
        return self._known().opened_topic

    @property
    def values(self) -> Values | None:
        return self._known().values

    def when_closed(self, reported: Callable[[Reader], None]) -> None:
        self._close_listeners.append(reported)

    def abandon(self) -> None:
        super().abandon()
        for reported in self._close_listeners:
            reported(self)
