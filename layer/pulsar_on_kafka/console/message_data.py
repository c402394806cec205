"""Requests for the messages of a topic, for the pages that show them. Each raises Unanswered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.admin import AdminClient, ShownMessage
from pulsar_on_kafka.admin.messages import TopicReading
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.client.receiving.start_position import TopicPositions
from pulsar_on_kafka.console.message_window import MAX_PARTITIONS, MessageRequest, MessageWindow, WindowStart, search
from pulsar_on_kafka.console.response_cache import CachedResponse
from pulsar_on_kafka.console.view_model import Site
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.names.topic_name import TopicName

_READ_MS: Final = 5000
_LOOK_S: Final = 10.0


def window_of(site: Site, requested: MessageRequest) -> CachedResponse[MessageWindow]:
    def request(admin: AdminClient) -> MessageWindow:
        with pulsar_errors():
            topic = _topic(admin, requested.topic, requested.partition)
            begins = _begins(admin, topic, requested)
        with admin.read_messages(requested.topic, start=begins) as reading:
            return search(requested, _messages(reading), _place_of(topic), begins, site.clock)

    return site.query(("messages", requested), request)


@dataclass(frozen=True, slots=True)
class ShownLog:
    """The log of one partition: `start` is its first offset, `end` the one that the next message will have."""

    partition: int
    start: int
    end: int
    layout: LedgerLayout

    def message_id(self, offset: int) -> NativeMessageId:
        """The id of the entry at an offset; it names the partition, even if the topic has only one."""
        return NativeMessageId(self.partition, *self.layout.position(self.partition, offset), -1)


def log_of(site: Site, topic: str, partition: int) -> CachedResponse[ShownLog]:
    def request(admin: AdminClient) -> ShownLog:
        with pulsar_errors():
            found = _topic(admin, topic, partition)
            start, end = admin.node.fetcher.watermarks(found.kafka_topic, partition, Deadline.after(_LOOK_S))
            return ShownLog(partition, start, end, found.layout)

    return site.query(("log", topic, partition), request)


def _topic(admin: AdminClient, name: str, partition: int | None) -> Topic:
    found = admin.node.topics.find(TopicName.parse(name).base, Deadline.after(_LOOK_S))
    if found is None:
        raise errors.NoSuchTopic(f"topic {TopicName.parse(name)} does not exist")
    if partition is not None and partition >= found.partitions:
        raise errors.NoSuchTopic(f"topic {found.name} has no partition {partition}: it has {found.partitions}")
    if partition is None and found.partitions > MAX_PARTITIONS:
        raise errors.InvalidOption(
            f"topic {found.name} has {found.partitions} partitions, of which {MAX_PARTITIONS} are read at once: "
            "choose one"
        )
    return found


def _begins(admin: AdminClient, topic: Topic, requested: MessageRequest) -> Mapping[int, int]:
    deadline = Deadline.after(_LOOK_S)
    partitions = range(topic.partitions) if requested.partition is None else [requested.partition]
    starts = admin.node.admin.start_offsets(topic.kafka_topic, partitions, deadline)
    ends = admin.node.admin.end_offsets(topic.kafka_topic, partitions, deadline)
    if requested.places:
        return {partition: place.offset for partition, place in requested.places}
    match requested.begin:
        case WindowStart.NEWEST:
            return requested.newest(starts, ends)
        case WindowStart.EARLIEST:
            return starts
        case WindowStart.OFFSET:
            return {each: max(starts[each], min(ends[each], requested.at)) for each in partitions}
        case WindowStart.TIME:
            return TopicPositions(admin.node, topic).at_time(partitions, requested.at, deadline)


def _place_of(topic: Topic) -> Callable[[NativeMessageId], tuple[int, int]]:
    """Gives partition and offset of a message's id."""

    def place(message_id: NativeMessageId) -> tuple[int, int]:
        partition = max(0, message_id.partition())
        return partition, topic.layout.kafka_offset(partition, message_id.ledger_id(), message_id.entry_id())

    return place


def _messages(reading: TopicReading) -> Iterator[ShownMessage]:
    while reading.is_more():
        message = reading.next(_READ_MS)
        if message is None:
            return
        yield message
