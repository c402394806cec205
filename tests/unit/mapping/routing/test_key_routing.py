"""A key goes to the partition that its CRC-32 says."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.mapping.errors import MappingError
from pulsar_on_kafka.mapping.routing.sticky_hash import partition_for_key


def test_the_partition_is_the_unsigned_crc32_modulo_their_number() -> None:
    assert partition_for_key(b"123456789", 1000) == 0xCBF43926 % 1000


def test_an_empty_key_goes_to_partition_zero() -> None:
    assert partition_for_key(b"", 7) == 0


@pytest.mark.parametrize("partitions", [0, -1])
def test_a_topic_without_partitions_takes_no_key(partitions: int) -> None:
    with pytest.raises(MappingError, match=f"one of {partitions} partitions"):
        partition_for_key(b"k", partitions)
