"""Encodes entries as MESSAGE frames, and records with common headers as both at once, by hand.

The frame of such a record has the same bytes as by `metadata_of`, `encode_metadata`, `write_entry` and Protobuf's
command. Those functions encode all other records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import google_crc32c

from pulsar_on_kafka_mapping.encoding.varint import cached_varint, varint
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.records.message_record import SCHEMA_VERSION_BYTES, Codec
from pulsar_on_kafka_mapping.records.record_headers import (
    ALONE,
    BATCH,
    COMPRESSION,
    DELIVER_AT,
    EVENT_TIME,
    FENCE,
    ORDERING_KEY,
    PREFIX,
    PRODUCER,
    PUBLISH_TIME,
    SCHEMA_IDS,
    SCHEMA_VERSION,
    VERSION,
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
_MIN_PART_BYTES: Final = 4096
"""A smaller value is cheaper to copy than to be a part of a frame."""
_MAX_COMMANDS: Final = 100
"""The limit of cached commands of one consumer."""
_COMMON: Final = frozenset(
    (PRODUCER, SCHEMA_VERSION, EVENT_TIME, DELIVER_AT, PUBLISH_TIME, ORDERING_KEY, BATCH, COMPRESSION, FENCE)
)
_FOREIGN: Final = b"0:0:"
"""The producer of a record that another program wrote."""
_BATCH_FORM: Final = b"%d" % PayloadFormat.PULSAR_BATCH
_FORMS: Final = (_BATCH_FORM, b"%d" % PayloadFormat.PULSAR_MESSAGE)
_CODECS: Final = {each.name.encode(): b"\x40%c" % each for each in Codec}
_VERSION_TAG: Final = b"\x82\x01\x08"
"""The tag and the length of a schema version of eight bytes."""
_VERSION_START: Final = 1
_VERSION_END: Final = _VERSION_START + SCHEMA_VERSION_BYTES

_CHECKSUM: Final = b"\x0e\x01"
"""The tag before an entry's checksum."""

_Headers = Mapping[str, bytes | None]
_Command = tuple[int, bytes, bytes, bytes]
"""The size of a command and of its size, the bytes of both before the entry id, those behind that id, and the latter
with the tag of the checksum."""


class _Uncommon(Exception):
    """The record is left to the general functions."""


def command_fields(redelivery_count: int, ack_set: Sequence[int] = (), consumer_epoch: int | None = None) -> bytes:
    """The optional fields of a MESSAGE command. A redelivery count of 0 is omitted."""
    fields = b"\x18" + varint(redelivery_count) if redelivery_count else b""
    if ack_set:
        fields += b"".join([b"\x20" + varint(word % 2**64) for word in ack_set])
    return fields if consumer_epoch is None else fields + b"\x28" + varint(consumer_epoch)


class MessageFrames:
    """Encodes the MESSAGE frames of one consumer and partition. For one thread.

    The parts of a command that repeat within a ledger are cached. Memory: `_MAX_COMMANDS` of them.
    """

    def __init__(self, consumer_id: int, layout: LedgerLayout, partition: int, partition_field: int) -> None:
        """`partition_field`: the partition in message ids, -1 of a topic without partitions."""
        self._consumer = varint(consumer_id)
        self._layout = layout
        self._partition = partition
        self._partition_field = varint(partition_field % 2**64)
        self._first = self._behind = 0
        """The ledger's first offset, and the first one behind the ledger."""
        self._ledger = b""
        self._commands: dict[tuple[int, bytes], _Command] = {}
        """By the size of the entry id, and the optional fields."""

    def append_entry(self, out: list[bytes], offset: int, entry: bytes, fields: bytes = b"") -> None:
        """Append the frame of an entry, in two parts. `fields`: see `command_fields`. Raises as
        `LedgerLayout.position`."""
        entry_id, (size, before, after, _) = self._command(offset, fields)
        out += b"".join(((size + len(entry)).to_bytes(4, "big"), before, entry_id, after)), entry

    def append_record(
        self,
        out: list[bytes],
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] | bytes | None,
        timestamp_ms: int,
        fields: bytes = b"",
    ) -> int | None:
        """Append the frame of a record, whose headers may be packed, and return the size of its batch (0: no batch). A
        large value is a part of its own, which is not copied. `fields`: see `command_fields`.

        Nothing is appended, and None returned, for a record with a header that is uncommon, unreadable or repeated, and
        for one that is too large. Raises as `LedgerLayout.position`.
        """
        payload = value or b""
        bytes_here = size = len(payload)
        messages, before, after, common = 0, b"", b"", None
        try:
            if type(headers) is bytes and headers[:1] == ALONE:
                producer = headers[1:]
            elif type(headers) is bytes and headers[:1] == VERSION and len(headers) > _VERSION_END:
                producer, after = headers[_VERSION_END:], _VERSION_TAG + headers[_VERSION_START:_VERSION_END]
            else:
                producer, common, before = _split_headers(headers)
            number, _, rest = producer.partition(b":")
            if timestamp_ms < 0 or len(rest) > _MAX_NAME_BYTES or not number.isdigit() or len(number) > _MAX_DIGITS:
                return None
            sequence_id = int(number)
            if common:
                more, size, after, messages = _other_fields(key, common, size, sequence_id)
                before += more
                if PUBLISH_TIME in common:
                    timestamp_ms = _number(common[PUBLISH_TIME])
            elif key is not None:
                more, in_base64 = _key_fields(key)
                before += more
                after += in_base64
            metadata = b"".join((
                _producer_name(rest), varint(sequence_id), b"\x18", cached_varint(timestamp_ms), before,
                b"\x48", varint(size), after, b"" if value is not None else b"\xc8\x01\x01",
            ))  # fmt: skip
        except _Uncommon:
            return None
        size = len(metadata)
        if size + bytes_here > MAX_MESSAGE_ENTRY_BYTES:
            return None
        metadata = size.to_bytes(4, "big") + metadata
        crc = google_crc32c.extend(google_crc32c.value(metadata), payload)
        entry_id, (command_size, before, _, after) = self._command(offset, fields)
        total = (command_size + size + bytes_here + 10).to_bytes(4, "big")
        if bytes_here < _MIN_PART_BYTES:
            out.append(b"".join((total, before, entry_id, after, crc.to_bytes(4, "big"), metadata, payload)))
        else:
            out += b"".join((total, before, entry_id, after, crc.to_bytes(4, "big"), metadata)), payload
        return messages

    def _command(self, offset: int, fields: bytes) -> tuple[bytes, _Command]:
        """The entry id, and what surrounds it in a frame."""
        if not self._first <= offset < self._behind:
            ledger, entry = self._layout.position(self._partition, offset)
            self._first, self._behind = offset - entry, offset - entry + self._layout.entries_per_ledger
            self._ledger = varint(ledger)
            self._commands.clear()
        entry_id = varint(offset - self._first)
        try:
            return entry_id, self._commands[len(entry_id), fields]
        except KeyError:
            return entry_id, self._new_command(len(entry_id), fields)

    def _new_command(self, entry_id_size: int, fields: bytes) -> _Command:
        ledger, partition = self._ledger, self._partition_field
        place = len(ledger) + entry_id_size + len(partition) + 3
        start = b"\x08%b\x12%b\x08%b\x10" % (self._consumer, varint(place), ledger)
        end = b"\x18%b%b" % (partition, fields)
        start = b"\x08\x09\x4a%b%b" % (varint(len(start) + entry_id_size + len(end)), start)
        size = len(start) + entry_id_size + len(end)
        if len(self._commands) >= _MAX_COMMANDS:
            self._commands.clear()
        found: _Command = size + 4, size.to_bytes(4, "big") + start, end, end + _CHECKSUM
        self._commands[entry_id_size, fields] = found
        return found


def _split_headers(headers: Sequence[tuple[str, bytes | None]] | bytes | None) -> tuple[bytes, _Headers, bytes]:
    """The producer, the other headers of this product, and the properties' fields."""
    common: dict[str, bytes | None] = {}
    properties: list[bytes] = []
    for name, data in unpack(headers) if isinstance(headers, bytes) else headers or ():
        field = _property_name(name)
        if field is not None:
            data = data or b""
            size = varint(len(data))
            properties += b"\x22", varint(len(field) + len(size) + len(data)), field, size, data
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
    codec, size, messages = _payload_form(common, size)
    if SCHEMA_VERSION in common:
        after = _schema_version(common[SCHEMA_VERSION]) + after
    if EVENT_TIME in common and (event_time_ms := _number(common[EVENT_TIME])):
        after = b"\x60" + varint(event_time_ms) + after
    if ordering_key is not None:
        after += b"\x92\x01" + varint(len(ordering_key)) + ordering_key
    if DELIVER_AT in common:
        after += b"\x98\x01" + varint(_number(common[DELIVER_AT]))
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
    return _VERSION_TAG + version


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
def _property_name(name: str) -> bytes | None:
    """The field of a property's name, and the tag of its value; None for a header of this product or of Confluent's."""
    if name.startswith(PREFIX) or name in SCHEMA_IDS:
        return None
    if len(name) > _MAX_NAME_BYTES:
        raise _Uncommon
    data = name.encode()
    return b"\x0a%b%b\x12" % (varint(len(data)), data)
