"""Where a key goes: partitions and slots."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.mapping.errors import MappingError
from pulsar_on_kafka.mapping.routing.key_routing import partition_for_key
from pulsar_on_kafka.mapping.routing.sticky_hash import murmur3_32, sticky_key_hash


def test_the_partition_is_the_unsigned_crc32_modulo_their_number() -> None:
    assert partition_for_key(b"123456789", 1000) == 0xCBF43926 % 1000


def test_an_empty_key_goes_to_partition_zero() -> None:
    assert partition_for_key(b"", 7) == 0


@pytest.mark.parametrize("partitions", [0, -1])
def test_a_topic_without_partitions_takes_no_key(partitions: int) -> None:
    with pytest.raises(MappingError, match=f"one of {partitions} partitions"):
        partition_for_key(b"k", partitions)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"a", 0x3C2569B2),
        (b"hello", 0x248BFA47),
        (b"hello, world", 0x149BBB7F),
        (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723),
        (b"\xff\xff\xff\xff", 0x76293B50),
        (b"\x00\x00\x00\x00", 0x2362F9DE),
    ],
)
def test_murmur3_gives_the_published_values(data: bytes, expected: int) -> None:
    assert murmur3_32(data) == expected


def test_a_slot_drops_the_sign_and_is_modulo_65536() -> None:
    assert sticky_key_hash(b"hello") == 0x248BFA47 % 65_536


def test_slot_zero_is_one_as_in_pulsar() -> None:
    assert sticky_key_hash(b"") == 1
