"""Bytes of Kafka's `consumer` protocol: a member's subscription in JoinGroup, and its assignment in SyncGroup. Pure.

Source: ConsumerProtocolSubscription and ConsumerProtocolAssignment, as JSON files of Kafka's clients. librdkafka and
the Java client write versions 1 to 3. A later version appends fields, so a reader takes the fields that are known here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from pulsar_on_kafka.kafka.wire.fields import NULL, FieldReader, array, int16, int32, sized, string
from pulsar_on_kafka_mapping.errors import CorruptRecord

COOPERATIVE_STICKY: Final = "cooperative-sticky"
"""The protocol's name, which all members of a group must share: librdkafka's."""
NO_GENERATION: Final = -1
_SUBSCRIPTION_VERSION: Final = 3
_ASSIGNMENT_VERSION: Final = 0
_JAVA_USER_DATA_BYTES: Final = 4
_YIELDS: Final = b"pok:yields"
"""The user data of a member that yields. Other clients ignore the user data of versions 2 and 3."""

TopicPartitions = tuple[tuple[str, int], ...]


class MemberSubscription(NamedTuple):
    """The subscription of one member. `generation` is the one in which `owned` was assigned, -1 where unknown. A member
    that `yields` gets no partitions while others can have them."""

    topics: tuple[str, ...]
    owned: TopicPartitions
    generation: int
    yields: bool = False


def encode_subscription(topic: str, owned: Collection[int], generation: int, *, yields: bool = False) -> bytes:
    """The subscription of a member to one topic, in version 3, without rack."""
    return b"".join(
        (
            int16(_SUBSCRIPTION_VERSION),
            array([string(topic)]),
            sized(_YIELDS if yields else b""),
            _topic_partitions(topic, owned),
            int32(generation),
            NULL,
        )
    )


def decode_subscription(metadata: bytes) -> MemberSubscription:
    """The subscription of any member.

    Raises:
        CorruptRecord: the bytes are cut off, or are no subscription.
    """
    reader = FieldReader(metadata, "a member's subscription")
    version = reader.int16()
    topics = tuple([reader.string() for _ in reader.array(2)])
    user_data = reader.nullable_sized()  # null as the Java client writes it without user data
    owned = _read_topic_partitions(reader) if version >= 1 else ()
    generation = reader.int32() if version >= 2 else _generation_of(user_data)
    return MemberSubscription(topics, owned, generation, version >= 2 and user_data == _YIELDS)


def encode_assignment(topic: str, partitions: Collection[int]) -> bytes:
    """The assignment of these partitions; without any it names no topic."""
    return int16(_ASSIGNMENT_VERSION) + _topic_partitions(topic, partitions) + sized(b"")


def decode_assignment(assignment: bytes) -> TopicPartitions:
    """The assigned partitions with their topics. No bytes are no partitions: a leader may leave a member out.

    Raises:
        CorruptRecord: the bytes are cut off, or are no assignment.
    """
    if not assignment:
        return ()
    reader = FieldReader(assignment, "a member's assignment")
    reader.int16()
    return _read_topic_partitions(reader)


def _generation_of(user_data: bytes) -> int:
    """The generation at the end of the user data of version 1: Java's has nothing else, librdkafka's follows the
    partitions."""
    reader = FieldReader(user_data, "a member's user data")
    try:
        if len(user_data) != _JAVA_USER_DATA_BYTES:
            _read_topic_partitions(reader)
        return reader.int32()
    except CorruptRecord:
        return NO_GENERATION


def _topic_partitions(topic: str, partitions: Collection[int]) -> bytes:
    return array([string(topic) + array(map(int32, sorted(partitions)))] if partitions else [])


def _read_topic_partitions(reader: FieldReader) -> TopicPartitions:
    found: list[tuple[str, int]] = []
    for _ in reader.array(6):
        topic = reader.string()
        found += [(topic, reader.int32()) for _ in reader.array(4)]
    return tuple(found)
