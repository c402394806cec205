"""Making a Reader: where it begins."""

from __future__ import annotations

import secrets

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.reader.reader import Reader, ReaderOptions
from pulsar_on_kafka.client.receiving.incoming_schema import incoming_values
from pulsar_on_kafka.client.receiving.reading_admission import admit_reading
from pulsar_on_kafka.client.receiving.start_position import inside_batches, start_offsets
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.node.readers import compacted_ranges
from pulsar_on_kafka.sending.official_errors import pulsar_errors
from pulsar_on_kafka.subscriptions.records.batches import Begun
from pulsar_on_kafka.subscriptions.records.endpoint import Endpoint


def open_reader(options: ReaderOptions, session: Session, starts: dict[int, int] | None = None) -> Reader:
    """A reader that has begun to read; `starts` (offsets by partition) take the place of `start_message_id`. Raises
    what `Client.create_reader` says."""
    with pulsar_errors():
        reader = _begin(session, options, starts)
    session.reader_opened(reader)
    return reader


def _begin(session: Session, options: ReaderOptions, given: dict[int, int] | None) -> Reader:
    name, start, inclusive = TopicName.parse(options.topic), options.start, options.start_message_id_inclusive
    node = session.node()
    deadline = session.deadline()
    topic = node.topics.open(name, deadline)
    partitions = [name.partition] if name.partition >= 0 else list(range(topic.partitions))
    if not name.is_persistent:  # only what is sent from now on, wherever one wants to begin
        if options.is_read_compacted:
            raise errors.InvalidOption(f"is_read_compacted: {name} is not persistent, so there is nothing to compact")
        start = NativeMessageId.latest
    admit_reading(node, topic, options.schema, deadline)
    starts = given or {}
    begun: dict[int, Begun] = {}
    if given is None:
        starts = start_offsets(node.admin, topic, partitions, start, inclusive=inclusive, deadline=deadline)
        starts, begun = inside_batches(node, topic, starts, start, inclusive=inclusive, deadline=deadline)
    compacted = compacted_ranges(node, topic, partitions, deadline) if options.is_read_compacted else {}
    endpoint = Endpoint(
        options.reader_name or f"{options.subscription_role_prefix or 'reader'}-{secrets.token_hex(5)}",
        options.receiver_queue_size,
        delivery_type=Message,
        schema=options.schema,
        values=incoming_values(options.schema, name.base, node.schemas, session.operation_timeout_s),
        unsealing=options.unsealing(),
    )
    tail = node.readers.open_tail(topic, starts, endpoint, compacted, begun)
    return Reader(node, session, topic, tail, endpoint, options, dict(starts))
