"""A Pulsar batch's payload is a sequence of messages as they are on Pulsar's wire, uncompressed and in clear.

    repeated: length (uint32, big-endian) | metadata (Protobuf, that many bytes) | payload (metadata's payload_size)

Metadata is the Protobuf message `SingleMessageMetadata` of `PulsarApi.proto`:

    1 properties* {1 key, 2 value}   2 partition_key   3 payload_size   4 compacted_out   5 event_time
    6 partition_key_b64_encoded      7 ordering_key    8 sequence_id    9 null_value     10 null_partition_key

Compared with pulsar-client 3.13.0 in the tests. A message that a broker's compaction took out counts, as an empty one,
as with the official Python client.

A message that cannot be read costs no neighbour: a property may hold any bytes, and a broken field costs its message.
The messages after one whose end is unknown cannot be found.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pulsar_on_kafka_mapping.encoding.varint import ByteReader, text_or_latin1
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.batch_entry import BatchMessage
from pulsar_on_kafka_mapping.wire.key_values import decode_key_value

_PROPERTY, _PARTITION_KEY, _PAYLOAD_SIZE, _EVENT_TIME, _IN_BASE64 = 1, 2, 3, 5, 6
_ORDERING_KEY, _SEQUENCE_ID, _NULL_VALUE, _NULL_KEY = 7, 8, 9, 10
_MAX_PAYLOAD_BYTES: Final = 2**31 - 1
_NO_STRINGS: Final[Mapping[int, bytes]] = {}

MIN_BYTES: Final = 6
"""The least that one message takes: its length, and a payload size of 0."""
MAX_IN_BATCH: Final = 1_000_000
"""The limit of one entry: more do not fit into a frame. An acknowledgement needs a bit for each."""


class SingleMessage(NamedTuple):
    """A message stands in the batch. Keys and sequence id are None where there is none; `partition_key` is as the
    client wrote it, in base64 if `in_base64`."""

    payload: bytes
    is_null: bool = False
    properties: Sequence[tuple[bytes, bytes]] = ()
    """Any bytes: some clients write what is no UTF-8."""
    partition_key: bytes | None = None
    in_base64: bool = False
    ordering_key: bytes | None = None
    event_time_ms: int = 0
    sequence_id: int | None = None
    has_null_key: bool = False
    """Whether its partition key is explicitly null."""

    def property_texts(self) -> dict[str, str]:
        """Properties as text (`text_or_latin1`); of several of one name the first counts."""
        found: dict[str, str] = {}
        for name, value in self.properties:
            found.setdefault(text_or_latin1(name), text_or_latin1(value))
        return found


_UNREADABLE: Final = SingleMessage(b"", is_null=True)


class PulsarBatch:
    """A Pulsar batch that was taken apart, with the face of `BatchColumns`."""

    __slots__ = ("_messages", "payloads", "unreadable")

    def __init__(self, payload: bytes, messages: int) -> None:
        """Raises CorruptRecord: none of the messages can be read."""
        self.unreadable: dict[int, CorruptRecord] = {}
        """Messages that cannot be read, by batch index."""
        self._messages = decode_batch(payload, messages, self.unreadable)
        self.payloads: list[bytes] = [b"" if each.is_null else each.payload for each in self._messages]
        """Payloads by batch index; b'' for a null one."""

    def __len__(self) -> int:
        return len(self._messages)

    def payload(self, index: int) -> bytes | None:
        """Payload of the message with batch index `index` (0 to len - 1)."""
        return None if self._messages[index].is_null else self.payloads[index]

    def message(self, index: int) -> BatchMessage:
        """The message with batch index `index` (0 to len - 1). Raises IndexError beyond."""
        if not 0 <= index < len(self._messages):
            raise IndexError(f"batch index is {index}, expected 0 to {len(self._messages) - 1}")
        found = self._messages[index]
        return BatchMessage(
            self.payload(index),
            kafka_key(found.partition_key, in_base64=found.in_base64),
            found.ordering_key,
            found.property_texts() or None,
            found.event_time_ms,
            found.sequence_id,
        )


def kafka_key(partition_key: bytes | None, *, in_base64: bool) -> bytes | None:
    """The key's own bytes; a key that is marked as base64 and is none counts unchanged."""
    if partition_key is None or not in_base64:
        return partition_key
    try:
        return base64.b64decode(partition_key, validate=True)
    except binascii.Error:
        return partition_key


def decode_batch(
    payload: bytes, messages: int, unreadable: dict[int, CorruptRecord] | None = None
) -> list[SingleMessage]:
    """The first `messages` messages of a batch, as Pulsar does those that compaction has hidden, too.

    Args:
        unreadable: receives the messages that cannot be read, by batch index; each is an empty one in the result. None:
            they are raised.
    Raises:
        CorruptRecord: there are fewer, or they are no SingleMessageMetadata; with `unreadable`, if no message can be
            read.
    """
    if messages * MIN_BYTES > len(payload):
        raise CorruptRecord(f"a batch of {len(payload)} bytes cannot hold {messages} messages")
    found: list[SingleMessage] = []
    at = 0
    for index in range(messages):
        what = f"message {index} of the batch of {messages}"
        try:
            fields, stop, end = _extent(payload, at, what)
        except CorruptRecord as lost:
            if unreadable is None or len(unreadable) == index:
                raise
            unreadable.update((each, lost) for each in range(index, messages))
            return found + [_UNREADABLE] * (messages - index)
        at = end
        try:
            found.append(_message(fields, payload[stop:end], what))
        except CorruptRecord as broken:
            if unreadable is None:
                raise
            unreadable[index] = broken
            found.append(_UNREADABLE)
    if unreadable and len(unreadable) == messages:
        raise unreadable[0]
    return found


def _extent(payload: bytes, at: int, what: str) -> tuple[_Fields, int, int]:
    """The fields of the message at a byte, and where its payload begins and ends. Raises CorruptRecord."""
    start = at + 4
    stop = start + int.from_bytes(payload[at:start], "big")
    fields = _fields(payload, start, stop) if stop <= len(payload) else None
    if fields is None:  # whatever is wrong, is found by the reader, and named
        reader = ByteReader(payload, what)
        reader.take(at)
        metadata = ByteReader(reader.take(int.from_bytes(reader.take(4), "big")), f"the metadata of {what}")
        fields = _read_fields(metadata)
        stop = reader.position
    size = fields[0].get(_PAYLOAD_SIZE, -1)
    if not 0 <= size <= len(payload) - stop:
        raise CorruptRecord(_wrong_size(size, stop, len(payload), what))
    return fields, stop, stop + size


def _message(fields: _Fields, payload: bytes, what: str) -> SingleMessage:
    """Raises CorruptRecord: a property is no KeyValue."""
    numbers, strings, properties = fields
    return SingleMessage(
        payload,
        bool(numbers.get(_NULL_VALUE)),
        [decode_key_value(pair, f"a property in the metadata of {what}") for pair in properties] if properties else (),
        strings.get(_PARTITION_KEY),
        bool(numbers.get(_IN_BASE64)),
        strings.get(_ORDERING_KEY),
        numbers.get(_EVENT_TIME, 0),
        numbers.get(_SEQUENCE_ID),
        bool(numbers.get(_NULL_KEY)),
    )


_Fields = tuple[dict[int, int], Mapping[int, bytes], list[bytes]]
"""The fields of one SingleMessageMetadata: numbers and strings, of several of one number the last; and the
properties."""


def _fields(data: bytes, at: int, stop: int) -> _Fields | None:
    """The fields of metadata whose numbers have up to 56 bits and whose tags one byte, as all clients write it; None of
    any other. It takes a third of a Reader's time."""
    numbers: dict[int, int] = {}
    strings: dict[int, bytes] | None = None
    properties: list[bytes] = []
    while at < stop:
        tag = data[at]
        if not 8 <= tag < 0x80:
            return None
        value = shift = 0
        while True:
            at += 1
            if at >= stop or shift > 49:
                return None
            byte = data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        at += 1
        if tag & 7 == 0:
            numbers[tag >> 3] = value
        elif tag & 7 == 2 and at + value <= stop:
            part = data[at : at + value]
            at += value
            if tag >> 3 == _PROPERTY:
                properties.append(part)
            elif strings is None:
                strings = {tag >> 3: part}
            else:
                strings[tag >> 3] = part
        else:
            return None
    return numbers, strings or _NO_STRINGS, properties


def _read_fields(metadata: ByteReader) -> _Fields:
    numbers: dict[int, int] = {}
    strings: dict[int, bytes] = {}
    properties: list[bytes] = []
    for field, value in metadata.fields():
        if isinstance(value, int):
            numbers[field] = value
        elif field == _PROPERTY:
            properties.append(value)
        else:
            strings[field] = value
    return numbers, strings, properties


def _wrong_size(size: int, at: int, end: int, what: str) -> str:
    if size < 0:
        return f"the metadata of {what} lacks payload_size"
    if size > _MAX_PAYLOAD_BYTES:
        return f"the metadata of {what} has payload_size {size}, expected 0 to {_MAX_PAYLOAD_BYTES}"
    return f"{what} ends at byte {end}, expected {size} more from byte {at}"
