"""Key hashes choose the partition of a message with a key (mapping/decisions/0006): CRC-32, the default of this
package, and those that Pulsar's clients offer."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final
from zlib import crc32

from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.routing.sticky_hash import murmur3_32

_U31: Final = 0x7FFF_FFFF
_U64: Final = (1 << 64) - 1
_BOOST_Q: Final = 0x9E37_79B9_7F4A_7C15
_BOOST_K: Final = 0xDF44_2D22_CE48_59B9
"""Q * Q."""
_WORD: Final = 8


class KeyHash(str, Enum):
    """A hash of keys by its name in Pulsar's clients (`HashingScheme`); `CRC32` is this package's."""

    CRC32 = "Crc32Hash"
    BOOST = "BoostHash"
    JAVA_STRING = "JavaStringHash"
    MURMUR3_32 = "Murmur3_32Hash"

    def __str__(self) -> str:
        return self.value


def java_string_hash(key: bytes) -> int:
    """Java's `String.hashCode` of a key in UTF-8, without its sign; what is no UTF-8 is U+FFFD.

    Source: Pulsar JavaStringHash (Java). The C++ client's hash of this name is the same for ASCII alone: it has the
    bytes of UTF-8 in place of characters.
    """
    return _hash_code(key) & _U31


def group_partition(group_id: str, partitions: int) -> int:
    """The partition of Kafka's `__consumer_offsets` in which a group is stored, of so many.

    Source: Kafka GroupCoordinatorService.partitionFor, `Utils.abs(groupId.hashCode()) % partitions`.
    """
    hashed = _hash_code(group_id.encode())
    magnitude = hashed if hashed <= _U31 else (1 << 32) - hashed
    return 0 if magnitude > _U31 else magnitude % partitions  # the least integer has no positive counterpart


def _hash_code(key: bytes) -> int:
    """Java's `String.hashCode`, as an unsigned number of 32 bits."""
    hashed = 0
    if key.isascii():
        for byte in key:
            hashed = hashed * 31 + byte & 0xFFFF_FFFF
        return hashed
    units = key.decode("utf-8", "replace").encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = hashed * 31 + (high << 8 | low) & 0xFFFF_FFFF
    return hashed


def boost_hash(key: bytes) -> int:
    """`boost::hash` of a string of bytes, without the upper 33 bits, as Boost has it from 1.81 on, where `size_t` has
    64 bits.

    Source: Pulsar BoostHash (C++), and Boost's container_hash/detail/hash_range.hpp. Clients that were built with an
    older Boost have another hash of this name.
    """
    seed = _folded_product(_BOOST_Q, _BOOST_K)
    hashed = seed ^ len(key)
    whole = len(key) // _WORD * _WORD
    for at in range(0, whole + 1, _WORD):  # the last word has what is left, and may be empty
        seed = seed + _BOOST_Q & _U64
        hashed ^= _folded_product(int.from_bytes(key[at : at + _WORD], "little") + seed & _U64, _BOOST_K)
    return _folded_product(hashed + seed & _U64, _BOOST_K) & _U31


def _folded_product(one: int, other: int) -> int:
    product = one * other
    return (product ^ product >> 64) & _U64


HASHES: Final[Mapping[KeyHash, Callable[[bytes], int]]] = {
    KeyHash.CRC32: crc32,
    KeyHash.BOOST: boost_hash,
    KeyHash.JAVA_STRING: java_string_hash,
    KeyHash.MURMUR3_32: lambda key: murmur3_32(key) & _U31,
}
"""The hash of a key by scheme, of the key in the clients' form: UTF-8 of its text (see `base64_key`)."""


def base64_key(key: bytes) -> bytes:
    """A key of bytes in the form of Pulsar's clients, which they hash: in base64.

    Source: TypedMessageBuilderImpl.keyBytes (Java).
    """
    return b64encode(key)


def partition_for_key(key: bytes, partitions: int, scheme: KeyHash = KeyHash.CRC32) -> int:
    """The partition of a key, 0 to `partitions` - 1: its hash modulo their number (1 or more).

    Source: CRC-32: librdkafka's `consistent` partitioner; Spark computes the same as `crc32(key) % partitions`.
    Differs from Pulsar: its clients hash with BoostHash or JavaStringHash, and not alike (mapping/decisions/0006).

    Raises:
        MappingError: there is no partition.
    """
    if partitions < 1:
        raise MappingError(f"key {key[:40]!r} goes to one of {partitions} partitions, expected 1 or more")
    return HASHES[scheme](key) % partitions
