"""A key goes to the partition that its CRC-32 says. Decision: mapping/decisions/0006."""

from __future__ import annotations

from zlib import crc32

from pulsar_on_kafka.mapping.errors import MappingError


def partition_for_key(key: bytes, partitions: int) -> int:
    """CRC-32 of the key modulo `partitions` (1 or more): 0 to `partitions` - 1.

    Source: librdkafka's `consistent` partitioner; Spark computes the same as `crc32(key) % partitions`.
    Differs from Pulsar: its clients hash with BoostHash or JavaStringHash, and not alike (mapping/decisions/0006).

    Raises:
        MappingError: there is no partition.
    """
    if partitions < 1:
        raise MappingError(f"key {key[:40]!r} goes to one of {partitions} partitions, expected 1 or more")
    return crc32(key) % partitions
