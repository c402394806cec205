"""A moving reader goes with its tenant from cluster to cluster."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.following.home import TenantHome
from pulsar_on_kafka.client.following.metadata_ahead import topic_ahead
from pulsar_on_kafka.client.reader.reader import Reader, ReaderListener, ReaderOptions
from pulsar_on_kafka.client.reader.reader_opening import open_reader
from pulsar_on_kafka.client.values.message import BatchedMessage, Message
from pulsar_on_kafka.client.values.message_id import native
from pulsar_on_kafka.client.values.stats_log import StatsLine
from pulsar_on_kafka.exceptions import AlreadyClosed, InvalidMessage, PulsarException, Timeout
from pulsar_on_kafka.lookup.copies import Copies
from pulsar_on_kafka.mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka.mapping.ids.native_message_id import NativeMessageId, StoredMessageId
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.metadata.topics import Topic
from pulsar_on_kafka.sending.official_errors import pulsar_errors
from pulsar_on_kafka.subscriptions.records.endpoint import Values

_log: Final = logging.getLogger(__name__)
_T = TypeVar("_T")


class _Given(NamedTuple):
    """The last message given of a partition: the whole record, or so many messages of its batch entry."""

    offset: int
    messages: int = 0


class MovingReader(Reader):
    """The moving reader reads with an inner reader on the cluster that has the tenant. Thread-safe.

    On the next cluster it goes on behind the copy of the last message that it gave, in each partition, also inside a
    batch; where nothing was given, behind the copy of the last one before its start.
    """

    def __init__(self, options: ReaderOptions, home: TenantHome) -> None:
        # Its parts are the inner one's.
        self._asked = options.topic
        self._options = options
        self._home = home
        self._inner: Reader | None = None
        self._last: Reader | None = None
        self._left: str = ""
        """The cluster on which `_given` is."""
        self._gone = False
        self._close_called = False
        self._listening_with: ReaderListener | None = None
        self._former: list[LedgerLayout] = []
        self._given: dict[int, _Given] = {}
        self._skipped: dict[int, _Given] = {}
        """Of the batch entries at which it began here: so many messages were given on the cluster before."""
        self._told_at_close: list[Callable[[Reader], None]] = []
        self._changing = threading.Condition()
        home.join(self)
        if options.reader_listener is not None:
            self.listen(options.reader_listener)

    # Moving -------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        with self._changing:
            self._inner = None

    def depart(self) -> None:
        last = self._last
        if last is None or self._gone:
            return
        for partition, start in last.starts.items():
            self._given.setdefault(partition, _Given(start - 1))
        self._former.append(last.opened_topic.layout)
        self._home.part(partial(self._leave_behind, last))

    def _leave_behind(self, last: Reader) -> None:
        try:
            last.leave()
        except PulsarException as failure:
            _log.warning("topic=%s a reader leaves its cluster: %s", self._asked, failure)

    def look_ahead(self, session: Session) -> None:
        topic_ahead(self._asked, session)

    def arrive(self, session: Session) -> None:
        with pulsar_errors():
            cluster = self._home.cluster_of(session)
        options = replace(self._options, reader_listener=None)
        if self._last is None:
            inner = open_reader(options, session)
        else:
            with pulsar_errors():
                starts = self._starts(session, self._last.opened_topic, cluster)
            inner = open_reader(options, session, starts)
        self._left = cluster
        with self._changing:
            self._last = inner
            self._inner = None if self._gone else inner
            self._changing.notify_all()
        if self._gone:
            inner.leave()
        elif self._listening_with is not None:
            inner.listen(self._heard)

    def _starts(self, session: Session, former: Topic, cluster: str) -> dict[int, int]:
        """Where to go on in each partition, found by the places of the originals."""
        if cluster == self._left:  # it did not go in the end
            stayed, self._given = self._given, {}
            self._skipped = {p: each for p, each in stayed.items() if each.messages}
            return {p: each.offset + (0 if each.messages else 1) for p, each in stayed.items()}
        node, deadline = session.node(), session.deadline()
        name = TopicName.parse(self._asked)
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

    def expire(self) -> None:
        """Nothing: whoever waits for a message has a deadline of its own."""

    def _call(self, call: Callable[[Reader], _T], deadline: Deadline) -> _T:
        """On the cluster that has the tenant, again when that is left meanwhile. Raises Timeout, AlreadyClosed."""
        while True:
            with self._changing:
                if not self._changing.wait_for(lambda: self._gone or self._inner is not None, deadline.remaining_s()):
                    raise Timeout(f"reader of {self._asked} is between two clusters")
                inner = self._inner
            if inner is None:
                raise AlreadyClosed(f"reader of {self._asked} is closed")
            try:
                return call(inner)
            except AlreadyClosed:
                if self._inner is inner:
                    raise

    # Reading ------------------------------------------------------------------------------------------------------

    def read_next(self, timeout_millis: int | None = None) -> Message:
        """The next message; between two clusters it is waited for as where there is none. Raises as
        `Reader.read_next`."""
        deadline = Deadline.never() if timeout_millis is None else Deadline.after_ms(timeout_millis)

        def read(inner: Reader) -> Message:
            left_ms = None if timeout_millis is None else int(1000 * deadline.remaining_s())
            message = inner.read_next(left_ms)
            if inner is not self._inner:  # the next cluster has it as well, and nobody noted that it was given
                raise AlreadyClosed(f"reader of {self._asked} moved")
            return message

        while True:
            message = self._call(read, deadline)
            if self._note(message):
                return message

    def _note(self, message: Message) -> bool:
        """Whether it is the application's: the cluster before did not give it."""
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
        """Have `listener` called with every message from now on, on every cluster."""
        self._listening_with = listener
        inner = self._inner
        if inner is not None:
            inner.listen(self._heard)

    def _heard(self, inner: Reader, message: Message) -> None:
        if inner is self._inner and self._listening_with is not None and self._note(message):
            self._listening_with(self, message)

    def has_message_available(self) -> bool:
        """Whether the cluster that has the tenant has a message for `read_next`. Raises as
        `Reader.has_message_available`."""
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

    # Itself -------------------------------------------------------------------------------------------------------

    def topic(self) -> str:
        return self._known().topic()

    @property
    def opened_topic(self) -> Topic:
        return self._known().opened_topic

    @property
    def values(self) -> Values | None:
        return self._known().values

    def when_closed(self, told: Callable[[Reader], None]) -> None:
        self._told_at_close.append(told)

    def stats_line(self) -> StatsLine:
        return self._known().stats_line()

    def is_connected(self) -> bool:
        """False between two clusters."""
        inner = self._inner
        return inner is not None and inner.is_connected()

    def grow(self, partitions: int, deadline: Deadline) -> None:
        """The inner one is told by its own client."""

    def close(self) -> None:
        if self._close_called:
            raise ValueError(f"reader of {self._asked} is closed already")
        self._close_called = True
        self.leave()

    def leave(self) -> None:
        """`close` on the client's behalf; a second call does nothing."""
        if self._gone:
            return
        self._home.leave(self)
        inner = self._inner
        self.abandon()
        if inner is not None:
            inner.leave()

    def abandon(self) -> None:
        with self._changing:
            self._gone = True
            self._inner = None
            self._changing.notify_all()
        for told in self._told_at_close:
            told(self)

    def _known(self) -> Reader:
        assert self._last is not None  # noqa: S101 - it was opened in the constructor
        return self._last

    def _patience(self) -> Deadline:
        return Deadline.after(self._home.operation_timeout_s)
