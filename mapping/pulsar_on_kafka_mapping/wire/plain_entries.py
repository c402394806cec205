"""Encodes records with common headers as entries, by hand.

Each entry has the same bytes as by `metadata_of`, `encode_metadata` and `write_entry`, which encode all other records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import google_crc32c

from pulsar_on_kafka_mapping.encoding.varint import cached_varint, varint
from pulsar_on_kafka_mapping.records.message_record import SCHEMA_VERSION_BYTES, Codec
from pulsar_on_kafka_mapping.records.record_headers import (
    ALONE,
    BATCH,
    COMPRESSION,
    EVENT_TIME,
    FENCE,
    ORDERING_KEY,
    PREFIX,
    PRODUCER,
    PUBLISH_TIME,
    SCHEMA_VERSION,
    PayloadFormat,
    unpack,
)
from pulsar_on_kafka_mapping.wire.entries import MAX_MESSAGE_ENTRY_BYTES
from pulsar_on_kafka_mapping.wire.single_messages import MAX_IN_BATCH
from pulsar_on_kafka_mapping.wire.stored_entries import key_as_sent

_MAX_NAME_BYTES: Final = 256
"""The limit of a cached name."""
_MAX_DIGITS: Final = 19
"""A number of more digits may exceed 64 bits."""
_PREFIX_CHARS: Final = len(PREFIX)
_COMMON: Final = frozenset(
    (PRODUCER, SCHEMA_VERSION, EVENT_TIME, PUBLISH_TIME, ORDERING_KEY, BATCH, COMPRESSION, FENCE)
)
_FOREIGN: Final = b"0:0:"
"""The producer of a record that another program wrote."""
_BATCH_FORM: Final = b"%d" % PayloadFormat.PULSAR_BATCH
_FORMS: Final = (_BATCH_FORM, b"%d" % PayloadFormat.PULSAR_MESSAGE)
_CODECS: Final = {each.name.encode(): b"\x40%c" % each for each in Codec}

_Headers = Mapping[str, bytes | None]
_NO_HEADERS: Final[_Headers] = {}


class _Uncommon(Exception):
    """The record is left to the general functions."""


def plain_entry(
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]] | bytes | None,
    timestamp_ms: int,
) -> tuple[bytes, int] | None:
    """The entry of a record, whose headers may be packed, and the size of its batch (0: no batch).

    None for a record with a header that is uncommon, unreadable or repeated, and for one that is too large.
    """
    payload = value or b""
    size, messages, after = len(payload), 0, b""
    try:
        if type(headers) is bytes and headers[:1] == ALONE:
            producer, common, before = headers[1:], _NO_HEADERS, b""
        else:
            producer, common, before = _split_headers(headers)
        number, _, rest = producer.partition(b":")
        if timestamp_ms < 0 or len(rest) > _MAX_NAME_BYTES:
            return None
        sequence_id = _number(number)
        if key is not None or common:
            fields, size, after, messages = _other_fields(key, common, size, sequence_id)
            before += fields
            if PUBLISH_TIME in common:
                timestamp_ms = _number(common[PUBLISH_TIME])
        metadata = b"".join((
            _producer_name(rest), varint(sequence_id), b"\x18", cached_varint(timestamp_ms), before,
            b"\x48", varint(size), after, b"" if value is not None else b"\xc8\x01\x01",
        ))  # fmt: skip
    except _Uncommon:
        return None
    if len(metadata) + len(payload) > MAX_MESSAGE_ENTRY_BYTES:
        return None
    start = len(metadata).to_bytes(4, "big") + metadata
    crc = google_crc32c.extend(google_crc32c.value(start), payload)
    return b"".join((b"\x0e\x01", crc.to_bytes(4, "big"), start, payload)), messages


def _split_headers(headers: Sequence[tuple[str, bytes | None]] | bytes | None) -> tuple[bytes, _Headers, bytes]:
    """The producer, the other headers of this product, and the properties' fields."""
    common: dict[str, bytes | None] = {}
    properties: list[bytes] = []
    for name, data in unpack(headers) if isinstance(headers, bytes) else headers or ():
        if name[:_PREFIX_CHARS] != PREFIX:
            if len(name) > _MAX_NAME_BYTES:
                raise _Uncommon
            data = data or b""
            pair = _property_name(name) + varint(len(data)) + data
            properties.append(b"\x22" + varint(len(pair)) + pair)
        elif name in common or name not in _COMMON:
            raise _Uncommon
        else:
            common[name] = data
    return common.pop(PRODUCER, _FOREIGN) or b"", common, b"".join(properties)


def _other_fields(key: bytes | None, common: _Headers, size: int, sequence_id: int) -> tuple[bytes, int, bytes, int]:
    """The fields before the uncompressed size, that size, the fields behind it, and the size of the batch."""
    ordering_key = common.get(ORDERING_KEY)
    if ordering_key is None and ORDERING_KEY in common:
        key, ordering_key = None, key
    before, after = _key_fields(key)
    if not common:
        return before, size, after, 0
    codec, size, messages = _payload_form(common, size)
    if SCHEMA_VERSION in common:
        after = _schema_version(common[SCHEMA_VERSION]) + after
    if EVENT_TIME in common and (event_time_ms := _number(common[EVENT_TIME])):
        after = b"\x60" + varint(event_time_ms) + after
    if ordering_key is not None:
        after += b"\x92\x01" + varint(len(ordering_key)) + ordering_key
    if messages:
        after = b"\x58" + varint(messages) + after + b"\xc0\x01" + varint(sequence_id + messages - 1)
    return before + codec, size, after, messages


def _key_fields(key: bytes | None) -> tuple[bytes, bytes]:
    in_base64 = None
    if key is not None and not key.isascii():
        key, in_base64 = key_as_sent(key, None)
    field = b"" if key is None else b"\x32" + varint(len(key)) + key
    return field, b"\x88\x01\x01" if in_base64 else b""


def _schema_version(version: bytes | None) -> bytes:
    if version is None or len(version) != SCHEMA_VERSION_BYTES:
        raise _Uncommon
    return b"\x82\x01\x08" + version


def _payload_form(common: _Headers, size: int) -> tuple[bytes, int, int]:
    """The field of the codec, the uncompressed size, and the size of the batch."""
    if BATCH not in common and COMPRESSION not in common:
        return b"", size, 0
    form, _, count = (common.get(BATCH) or b"").partition(b":")
    messages, codec = _number(count), b""
    if COMPRESSION in common:
        name, _, digits = (common[COMPRESSION] or b"").partition(b":")
        codec, size = _CODECS.get(name, b""), _number(digits)
    if form not in _FORMS or not 1 <= messages <= MAX_IN_BATCH or (COMPRESSION in common and not codec):
        raise _Uncommon
    return codec, size, messages if form == _BATCH_FORM else 0


def _number(text: bytes | None) -> int:
    if text is None or not text.isdigit() or len(text) > _MAX_DIGITS:
        raise _Uncommon
    return int(text)


@lru_cache(1024)
def _producer_name(rest: bytes) -> bytes:
    """The field of the name in a producer's header behind the sequence id, and the tag of the sequence id."""
    epoch, colon, name = rest.partition(b":")
    _number(epoch)
    try:
        name.decode("utf-8")
    except UnicodeDecodeError:
        raise _Uncommon from None
    if not colon:
        raise _Uncommon
    return b"\x0a%b%b\x10" % (varint(len(name)), name)


@lru_cache(1024)
def _property_name(name: str) -> bytes:
    """The field of a property's name, and the tag of its value."""
    data = name.encode()
    return b"\x0a%b%b\x12" % (varint(len(data)), data)
