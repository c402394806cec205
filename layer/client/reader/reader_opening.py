"""Making a Reader: its options, and where it begins."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.reader.reader import Reader, ReaderListener
from pulsar_on_kafka.client.receiving.incoming_schema import incoming_values
from pulsar_on_kafka.client.receiving.reading_admission import admit_reading
from pulsar_on_kafka.client.receiving.start_position import inside_batches, start_offsets
from pulsar_on_kafka.client.values.errors import pulsar_errors
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.client.values.options import check_range, check_schema, check_type, check_type_or_none
from pulsar_on_kafka.mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.node.readers import compacted_ranges
from pulsar_on_kafka.schema.plain import Schema
from pulsar_on_kafka.subscriptions.records.batches import Begun
from pulsar_on_kafka.subscriptions.records.endpoint import Endpoint
from pulsar_on_kafka.subscriptions.records.sealed import Unsealing


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """The official options of `create_reader`, but for topic and start."""

    schema: Schema
    listener: ReaderListener | None
    receiver_queue_size: int
    name: str | None
    role_prefix: str | None
    read_compacted: bool
    inclusive: bool
    unsealing: Unsealing

    def check(self) -> None:
        """Raises ValueError or InvalidConfiguration, naming the value and what was expected."""
        check_schema(self.schema)
        if self.listener is not None and not callable(self.listener):
            raise ValueError(f"reader_listener must be callable, got {self.listener!r:.60}")
        check_type(int, "receiver_queue_size", self.receiver_queue_size)
        check_range("receiver_queue_size", self.receiver_queue_size, 0)
        check_type_or_none(str, "reader_name", self.name)
        check_type_or_none(str, "subscription_role_prefix", self.role_prefix)
        check_type(bool, "is_read_compacted", self.read_compacted)
        check_type(bool, "start_message_id_inclusive", self.inclusive)


def open_reader(
    topic: str,
    start: NativeMessageId,
    options: ReaderOptions,
    session: Session,
    starts: dict[int, int] | None = None,
) -> Reader:
    """A reader that has begun to read; `starts` (offsets by partition) take the place of `start`. Raises what
    `Client.create_reader` says."""
    with pulsar_errors():
        reader = _begin(session, TopicName.parse(topic), start, options, starts)
    session.reader_opened(reader)
    return reader


def _begin(
    session: Session,
    name: TopicName,
    start: NativeMessageId,
    options: ReaderOptions,
    given: dict[int, int] | None,
) -> Reader:
    node = session.node()
    deadline = session.deadline()
    topic = node.topics.open(name, deadline)
    partitions = [name.partition] if name.partition >= 0 else list(range(topic.partitions))
    if not name.is_persistent:  # only what is sent from now on, wherever one wants to begin
        if options.read_compacted:
            raise errors.InvalidOption(f"is_read_compacted: {name} is not persistent, so there is nothing to compact")
        start = NativeMessageId.latest
    admit_reading(node, topic, options.schema, deadline)
    starts = given or {}
    begun: dict[int, Begun] = {}
    if given is None:
        starts = start_offsets(node.admin, topic, partitions, start, inclusive=options.inclusive, deadline=deadline)
        starts, begun = inside_batches(node, topic, starts, start, inclusive=options.inclusive, deadline=deadline)
    compacted = compacted_ranges(node, topic, partitions, deadline) if options.read_compacted else {}
    endpoint = Endpoint(
        options.name or f"{options.role_prefix or 'reader'}-{secrets.token_hex(5)}",
        options.receiver_queue_size,
        delivery_type=Message,
        schema=options.schema,
        values=incoming_values(options.schema, name.base, node.schemas, session.operation_timeout_s),
        unsealing=options.unsealing,
    )
    return Reader(
        node,
        name,
        topic,
        node.readers.open_tail(topic, starts, endpoint, compacted, begun),
        endpoint,
        starts=dict(starts),
        inclusive=options.inclusive,
        operation_timeout_s=session.operation_timeout_s,
        listener=options.listener,
        threads=session.threads,
        on_close=session.reader_closed,
    )
