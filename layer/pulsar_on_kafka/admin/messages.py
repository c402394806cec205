"""Messages: the part of `AdminClient` that reads topics without a subscription, and leaves no trace."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pulsar_on_kafka.admin.context import AdminContext, raising_pulsar_errors
from pulsar_on_kafka.admin.stored.shown_messages import ShownMessage, shown
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.client.connection.connection import ClientOptions
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.reader.reader import Reader, ReaderOptions, open_reader
from pulsar_on_kafka.client.receiving.start_position import TopicPositions
from pulsar_on_kafka.client.values.enums import ConsumerCryptoFailureAction
from pulsar_on_kafka.exceptions import Timeout
from pulsar_on_kafka.schema.generic import AutoConsumeSchema
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.names.topic_name import TopicName

INBOX: Final = 100
"""Messages that are read ahead."""


class TopicReading:
    """A reading goes through the messages of a topic as readers see them, in order. Memory: `INBOX` messages, and see
    `Tail`."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def next(self, timeout_ms: int) -> ShownMessage | None:
        """The next message, None when none came in time. Raises as `Reader.read_next`."""
        try:
            return shown(self._reader.read_next(timeout_ms))
        except Timeout:
            return None

    def is_more(self) -> bool:
        """Whether there is a message without waiting for its sender. Raises the errors of
        `Reader.has_message_available`."""
        return self._reader.has_message_available()


@raising_pulsar_errors
class MessageAdmin(AdminContext):
    """Nothing is created, registered or acknowledged, and no group is joined."""

    @contextmanager
    def read_messages(
        self, topic: str, *, start: NativeMessageId | int | Mapping[int, int] = NativeMessageId.earliest
    ) -> Iterator[TopicReading]:
        """Read a topic, or one partition of it, from a message id on (that message included), or from a time on (Unix
        ms). An id that names a partition has that one read alone, and offsets by partition have those read. What is
        encrypted comes encrypted.

        Raises:
            TopicNotFound: there is none.
            InvalidMessage: the id is of another topic.
            InvalidConfiguration: there are no offsets, or one is below 0.
        """
        with pulsar_errors():
            name, place, starts = self._beginning(topic, start, self._deadline())
        with self._session() as session:
            yield TopicReading(reader_of(session, name, place, starts))

    def _beginning(
        self, topic: str, start: NativeMessageId | int | Mapping[int, int], deadline: Deadline
    ) -> tuple[str, NativeMessageId, dict[int, int] | None]:
        """The topic or partition that is read, and where it begins: at an id, or at offsets."""
        found = self._topic_around(topic, deadline)
        name = TopicName.parse(topic)
        partitions = [name.partition] if name.partition >= 0 else list(range(found.partitions))
        if not set(partitions) <= set(range(found.partitions)):
            raise errors.NoSuchTopic(f"topic {name.base} has {counted(found.partitions, 'partition')}, none is {name}")
        if isinstance(start, Mapping):
            if not start or min(start.values()) < 0:
                raise errors.InvalidOption(f"offsets by partition are {dict(start)}, expected one or more from 0 on")
            if not start.keys() <= set(partitions):
                raise errors.NoSuchTopic(f"{name} has no partition {max(start.keys() - set(partitions))}")
            return str(name), NativeMessageId.earliest, dict(start)
        if isinstance(start, int):
            starts = TopicPositions(self.node, found).at_time(partitions, start, deadline)
            return str(name), NativeMessageId.earliest, starts
        if start in (NativeMessageId.earliest, NativeMessageId.latest):
            return str(name), start, None
        partition = max(0, start.partition())
        found.layout.kafka_offset(partition, start.ledger_id(), start.entry_id())  # refuses another topic's
        if partition not in partitions:
            raise errors.InvalidCursorPosition(f"id {start} names partition {partition}, {name} has {partitions}")
        return found.partition_names[partition] if found.partitioned else str(name), start, None

    def peek_messages(
        self,
        topic: str,
        count: int = 10,
        *,
        start: NativeMessageId | int = NativeMessageId.earliest,
        key: str | None = None,
    ) -> list[ShownMessage]:
        """The next `count` messages (of one partition key, with `key`), fewer where there are no more. Memory: all of
        them are the caller's. Raises: as `read_messages`."""
        found: list[ShownMessage] = []
        with self.read_messages(topic, start=start) as reading:
            while len(found) < count and reading.is_more():
                message = reading.next(round(self._timeout_s * 1000))
                if message is None:
                    raise Timeout(f"the next message of {topic} was not read in {self._timeout_s:g} s")
                if key is None or message.key == key:
                    found.append(message)
        return found

    @contextmanager
    def _session(self, *, transactions: bool = False) -> Iterator[Session]:
        """Readers, consumers and producers of this administrator's own, closed at the end."""
        options = ClientOptions(
            operation_timeout_seconds=max(1, math.ceil(self._timeout_s)),
            stats_interval_in_seconds=0,
            enable_transaction=transactions,
            stand_in=False,
        )
        session = Session(options, self.node.settings)
        try:
            yield session
        finally:
            session.close()


def reader_of(session: Session, topic: str, start: NativeMessageId, starts: dict[int, int] | None) -> Reader:
    """A reader of a topic that is there, from a message id or from these offsets on."""
    return open_reader(
        ReaderOptions(
            topic,
            start,
            schema=AutoConsumeSchema(),
            receiver_queue_size=INBOX,
            start_message_id_inclusive=start != NativeMessageId.latest,
            crypto_failure_action=ConsumerCryptoFailureAction.CONSUME,
        ),
        session,
        starts,
    )
