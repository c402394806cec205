"""A key goes to the partition that its hash says: CRC-32, or one of Pulsar's clients."""

from __future__ import annotations

import pytest

from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.routing.key_hashes import HASHES, KeyHash, base64_key, group_partition, partition_for_key


def test_the_partition_is_the_unsigned_crc32_modulo_their_number() -> None:
    assert partition_for_key(b"123456789", 1000) == 0xCBF43926 % 1000


def test_an_empty_key_goes_to_partition_zero() -> None:
    assert partition_for_key(b"", 7) == 0


@pytest.mark.parametrize("partitions", [0, -1])
def test_a_topic_without_partitions_takes_no_key(partitions: int) -> None:
    with pytest.raises(MappingError, match=f"one of {partitions} partitions"):
        partition_for_key(b"k", partitions)


@pytest.mark.parametrize(
    ("scheme", "key", "hashed"),
    [
        # Pulsar's HashTest, of the Java and the C++ client: one that overflows, one that is negative with its sign.
        (KeyHash.JAVA_STRING, "keykeykeykeykey1", 434_058_482),
        (KeyHash.JAVA_STRING, "keykeykey2", 42_978_643),
        (KeyHash.JAVA_STRING, "zoë", 120_918),
        (KeyHash.JAVA_STRING, "\U0001f600", 1_772_899),  # two units of UTF-16
        (KeyHash.JAVA_STRING, "", 0),
        (KeyHash.MURMUR3_32, "k1", 2_110_152_746),
        (KeyHash.MURMUR3_32, "k2", 1_479_966_664),
        (KeyHash.MURMUR3_32, "key1", 462_881_061),
        (KeyHash.MURMUR3_32, "key2", 1_936_800_180),
        (KeyHash.MURMUR3_32, "key01", 39_696_932),
        (KeyHash.MURMUR3_32, "key02", 751_761_803),
        # What libpulsar of pulsar-client 3.13.0 gives.
        (KeyHash.BOOST, "", 2_133_126_054),
        (KeyHash.BOOST, "a", 2_135_870_748),
        (KeyHash.BOOST, "key1", 2_071_103_098),
        (KeyHash.BOOST, "keykeykeykeykey1", 504_830_233),
        (KeyHash.BOOST, "x" * 40, 742_812_691),
        (KeyHash.BOOST, "zoë", 1_382_255_594),
    ],
)
def test_hashes_are_those_of_pulsars_clients(scheme: KeyHash, key: str, hashed: int) -> None:
    assert HASHES[scheme](key.encode()) == hashed
    assert partition_for_key(key.encode(), 7, scheme) == hashed % 7


def test_a_key_that_is_bytes_is_hashed_in_base64() -> None:
    assert base64_key(b"\x00\xff") == b"AP8="


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [
        ("abc", 4),  # 96354
        ("zzzzzz", 14),  # -685785664
        ("polygenelubricants", 0),  # the least integer, of which Kafka makes 0
    ],
)
def test_a_group_is_stored_where_kafka_stores_it(group_id: str, partition: int) -> None:
    assert group_partition(group_id, 50) == partition
