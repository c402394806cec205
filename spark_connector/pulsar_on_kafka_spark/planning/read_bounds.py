"""The options bound a read: offsets by partition, and places inside of batch entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.ids.message_id import EARLIEST, LATEST, decode_message_id
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_spark.base.errors import InvalidReadOption
from pulsar_on_kafka_spark.options.read_options import Bound, ReadOptions
from pulsar_on_kafka_spark.planning.offset_ranges import Range


@dataclass(frozen=True, slots=True)
class Edge:
    """A read begins at an offset, or ends before it; of a batch entry there it begins, or ends, with message `index`
    (None: it has all of it)."""

    offset: int
    index: int | None = None


@dataclass(frozen=True, slots=True)
class RequestedRange:
    """The requested range of one partition; None: no bound on that side."""

    begin: Edge | None = None
    end: Edge | None = None

    def within(self, log: Range) -> Range:
        """`log` with these bounds in the place of its own."""
        start = log.start if self.begin is None else self.begin.offset
        return Range(start, log.end if self.end is None else self.end.offset)


def check_names(options: ReadOptions, topics: Sequence[TopicName]) -> None:
    """Raises InvalidReadOption when a bound names a topic that is not read."""
    bases = {topic.base for topic in topics}
    for name in [*options.starting.places, *options.ending.places]:
        if _parsed(name).base not in bases:
            raise InvalidReadOption(f"{name} has a bound and is not read; read are {', '.join(map(str, bases))}")


def requested_ranges(
    node: Node,
    topic: Topic,
    partitions: Sequence[int],
    ends: Mapping[int, int],
    options: ReadOptions,
    deadline: Deadline,
) -> dict[int, RequestedRange]:
    """Both ends are inclusive: the messages that ids name are read.

    Raises:
        InvalidReadOption: an id is of another topic, an end lies beyond the partition's, or a start behind its end.
    """
    found = {}
    for partition in partitions:
        begin = _edge(node, topic, partition, ends[partition], options.starting, deadline, first=True)
        end = _edge(node, topic, partition, ends[partition], options.ending, deadline, first=False)
        start_offset = 0 if begin is None else begin.offset
        end_offset = ends[partition] if end is None else end.offset
        if start_offset > end_offset:
            raise InvalidReadOption(
                f"{topic.name}, partition {partition}: the read starts at offset {start_offset} and ends before "
                f"{end_offset}, expected a start that is not behind the end"
            )
        found[partition] = RequestedRange(begin, end)
    return found


def _edge(
    node: Node, topic: Topic, partition: int, log_end: int, bound: Bound, deadline: Deadline, *, first: bool
) -> Edge | None:
    reported = _requested_bound(topic, partition, bound)
    if isinstance(reported, int):
        found = node.fetcher.offset_at_time(topic.kafka_topic, partition, reported, deadline)
        return Edge(log_end if found is None else min(found, log_end))
    if reported is None or decode_message_id(reported)[:2] == (EARLIEST if first else LATEST)[:2]:
        return None
    offset, index = _place(topic, partition, reported, first_chunk=first)
    if first:
        return Edge(offset, index if index > 0 else None)
    if offset >= log_end:
        raise InvalidReadOption(
            f"{topic.name}, partition {partition}: the read is to end with offset {offset}, the last one is "
            f"{log_end - 1}"
        )
    return Edge(offset + 1, index if index >= 0 else None)


def _requested_bound(topic: Topic, partition: int, bound: Bound) -> bytes | int | None:
    found: bytes | int | None = bound.whole if isinstance(bound.whole, int) else None
    for name, place in bound.places.items():
        parsed = _parsed(name)
        if parsed.base != topic.name.base:
            continue
        number = parsed.partition
        if number < 0 and isinstance(place, bytes):
            try:
                number = decode_message_id(place).partition
            except MappingError as wrong:
                raise InvalidReadOption(f"the bound of {name}: {wrong}") from wrong
            if number < 0 and topic.partitioned and decode_message_id(place)[:2] not in (EARLIEST[:2], LATEST[:2]):
                raise InvalidReadOption(f"the message id for {name} names no partition, expected {name}-partition-N")
        if number < 0 or number == partition:
            found = place
    return found


def _place(topic: Topic, partition: int, message_id: bytes, *, first_chunk: bool) -> tuple[int, int]:
    """Offset and batch index (-1: none) of a message id; of a message in chunks the first or the last one's."""
    try:
        parts = decode_message_id(message_id)
        ledger, entry = (parts.first_chunk if first_chunk else None) or parts[:2]
        return topic.layout.kafka_offset(partition, ledger, entry), parts.batch_index
    except MappingError as wrong:
        raise InvalidReadOption(f"the message id for {topic.name}, partition {partition}: {wrong}") from wrong


def _parsed(name: str) -> TopicName:
    try:
        return TopicName.parse(name)
    except MappingError as wrong:
        raise InvalidReadOption(str(wrong)) from wrong
