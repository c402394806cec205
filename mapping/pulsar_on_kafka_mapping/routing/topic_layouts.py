"""Layouts show the partitions of a topic to Pulsar 5's V5 clients, as segments.

Each segment covers a range of the 65,536 hash slots, but clients do not use the ranges here: each segment names its
partition as `legacy_topic_name`, so a key goes to the partition Murmur3 modulo their number. Source: the layouts that a
broker of Pulsar 5.0.1 sends for topics that are not scalable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.names.topic_name import PERSISTENT, SCALABLE, TopicName
from pulsar_on_kafka_mapping.routing.sticky_hash import SLOTS

_PARTITION_BITS: Final = 14
"""A topic has at most 8,192 partitions (mapping/decisions/0002)."""
MAX_PARTITIONS: Final = (1 << _PARTITION_BITS) - 1


@dataclass(frozen=True, slots=True)
class LayoutSegment:
    """A partition, or a topic without partitions. It covers the slots `hash_start` to `hash_end`, both inclusive."""

    segment_id: int
    hash_start: int
    hash_end: int
    topic: TopicName


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """The segments of one topic cover all slots. `epoch` becomes greater with each change of the topic."""

    topic: TopicName
    epoch: int
    segments: tuple[LayoutSegment, ...]

    @property
    def resolved_name(self) -> str:
        """The topic's name in the domain that V5 clients use: `topic://tenant/namespace/topic`."""
        return scalable_name(self.topic)


def topic_layout(topic: TopicName, partitions: int, incarnation: int) -> TopicLayout:
    """The layout of a topic with this number of partitions, 0 for a topic without partitions.

    Raises:
        MappingError: `topic` is a partition or not persistent, or a number is out of range.
    """
    if topic.partition >= 0 or topic.domain != PERSISTENT:
        raise MappingError(f"topic {topic} has no layout, expected a persistent topic without a partition's suffix")
    epoch = layout_epoch(topic, partitions, incarnation)
    if not partitions:
        return TopicLayout(topic, epoch, (LayoutSegment(0, 0, SLOTS - 1, topic),))
    width = SLOTS // partitions
    segments = tuple(
        LayoutSegment(
            number,
            number * width,
            SLOTS - 1 if number == partitions - 1 else (number + 1) * width - 1,
            topic.with_partition(number),
        )
        for number in range(partitions)
    )
    return TopicLayout(topic, epoch, segments)


def layout_epoch(topic: TopicName, partitions: int, incarnation: int) -> int:
    """The epoch of a topic's layout.

    It consists of the topic's incarnation and its partitions, which never become less. So all gateways send the same
    epochs without a state of their own.

    Raises:
        MappingError: a number is out of range.
    """
    if not 0 <= partitions <= MAX_PARTITIONS:
        raise MappingError(f"topic {topic} has {partitions} partitions, expected 0 to {MAX_PARTITIONS}")
    if incarnation < 0:
        raise MappingError(f"topic {topic} has incarnation {incarnation}, expected 0 or more")
    return incarnation << _PARTITION_BITS | partitions


def scalable_name(topic: TopicName) -> str:
    """A topic's name in the domain `topic`, in which V5 clients know every persistent topic."""
    return f"{SCALABLE}://{str(topic).partition('://')[2]}"
