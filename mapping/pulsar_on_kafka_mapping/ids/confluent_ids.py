"""Ids of schemas as Confluent's registry and its clients have them.

    GUID         a UUID of version 8 of the first 16 bytes of SHA-256("pulsar-on-kafka schema\\n<type>\\n<SHA-256 of the
                 definition, hex>"): equal definitions of one type share it, in every process and every cluster
    integer id   1 + part + 2 * (partition + 8 * offset), 31 bits: the place of the version's record in the state topic
                 `schemas`, which compaction keeps; part is 1 for the key of a KEY_VALUE schema, otherwise 0
    header       01, the 16 bytes of the GUID; of a Protobuf schema then the path of its message in its file: the number
                 of steps and each step as zigzag varints, and 00 for the file's first message

Decision: mapping/decisions/0034.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from typing import Final, NamedTuple

from pulsar_on_kafka_mapping.encoding.varint import varint
from pulsar_on_kafka_mapping.errors import MappingError

MAX_ID: Final = 2**31 - 1
_GUID_VERSION: Final = b"\x01"
_DOMAIN: Final = b"pulsar-on-kafka schema\n"
_PARTITIONS: Final = 8
_PARTS: Final = 2


class SchemaPlace(NamedTuple):
    """The place of a version's record in the state topic `schemas`, and the part of a KEY_VALUE schema."""

    partition: int
    offset: int
    of_key: bool = False


def schema_guid(type_name: str, sha256: str) -> uuid.UUID:
    """The GUID of a definition of this type (`AVRO`, `JSON`, `PROTOBUF_NATIVE`), by the SHA-256 of its bytes in
    hexadecimal."""
    digest = hashlib.sha256(_DOMAIN + type_name.encode() + b"\n" + sha256.encode()).digest()
    number = int.from_bytes(digest[:16], "big")
    number = number & ~(0xF << 76) | 8 << 76  # the version
    return uuid.UUID(int=number & ~(0x3 << 62) | 2 << 62)  # the variant


def schema_id(place: SchemaPlace) -> int:
    """The integer id. Raises MappingError: the offset is too high for 31 bits, after 134 million registrations."""
    found = 1 + place.of_key + _PARTS * (place.partition + _PARTITIONS * place.offset)
    if not 0 <= place.partition < _PARTITIONS or not 0 < found <= MAX_ID:
        raise MappingError(
            f"partition is {place.partition} and offset {place.offset}, expected a schema's place below offset "
            f"{MAX_ID // (_PARTITIONS * _PARTS):,} of {_PARTITIONS} partitions"
        )
    return found


def place_of_id(found: int) -> SchemaPlace:
    """The inverse. Raises MappingError for a number outside of 1 to 2,147,483,647."""
    if not 0 < found <= MAX_ID:
        raise MappingError(f"schema id is {found}, expected 1 to {MAX_ID:,}")
    place, part = divmod(found - 1, _PARTS)
    offset, partition = divmod(place, _PARTITIONS)
    return SchemaPlace(partition, offset, part == 1)


def header_value(guid: uuid.UUID, message_path: Sequence[int] | None = None) -> bytes:
    """The value of a header; `message_path` is that of a Protobuf schema's message in its file, outermost first."""
    found = _GUID_VERSION + guid.bytes
    if message_path is None:
        return found
    if list(message_path) == [0]:
        return found + b"\x00"
    return found + b"".join(varint(2 * number) for number in (len(message_path), *message_path))
