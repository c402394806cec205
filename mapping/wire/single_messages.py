"""A Pulsar batch's payload is a sequence of messages as they are on Pulsar's wire, uncompressed and in clear.

    repeated: length (uint32, big-endian) | metadata (Protobuf, that many bytes) | payload (metadata's payload_size)

Metadata is the Protobuf message `SingleMessageMetadata` of `PulsarApi.proto`:

    1 properties* {1 key, 2 value}   2 partition_key   3 payload_size   4 compacted_out   5 event_time
    6 partition_key_b64_encoded      7 ordering_key    8 sequence_id    9 null_value     10 null_partition_key

Compared with pulsar-client 3.13.0 in the tests. A message that a broker's compaction took out counts, as an empty one,
as with the official Python client.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Final, NamedTuple

from pulsar_on_kafka.mapping.encoding.varint import Reader, text_of
from pulsar_on_kafka.mapping.errors import CorruptRecord
from pulsar_on_kafka.mapping.records.batch_entry import BatchMessage
from pulsar_on_kafka.mapping.wire.key_values import decode_key_value

_PROPERTY, _PARTITION_KEY, _PAYLOAD_SIZE, _EVENT_TIME, _IN_BASE64 = 1, 2, 3, 5, 6
_ORDERING_KEY, _SEQUENCE_ID, _NULL_VALUE, _NULL_KEY = 7, 8, 9, 10
_MAX_PAYLOAD_BYTES: Final = 2**31 - 1
_NOTHING: Final[Mapping[str, str]] = {}
_NO_STRINGS: Final[Mapping[int, bytes]] = {}

LEAST_BYTES: Final = 6
"""The least that one message takes: its length, and a payload size of 0."""
MOST_IN_BATCH: Final = 1_000_000
"""Of one entry: more do not fit into a frame. Whoever acknowledges them needs a bit for each."""


class SingleMessage(NamedTuple):
    """A message stands in the batch. Keys and sequence id are None where there is none; `partition_key` is as the
    client wrote it, in base64 if `in_base64`."""

    payload: bytes
    is_null: bool = False
    properties: Mapping[str, str] = _NOTHING
    partition_key: bytes | None = None
    in_base64: bool = False
    ordering_key: bytes | None = None
    event_time_ms: int = 0
    sequence_id: int | None = None
    has_null_key: bool = False
    """It says that its partition key is null."""


class PulsarBatch:
    """A Pulsar batch that was taken apart, with the face of `BatchColumns`."""

    __slots__ = ("_messages", "payloads")

    def __init__(self, messages: list[SingleMessage]) -> None:
        self._messages = messages
        self.payloads: list[bytes] = [each.payload for each in messages]
        """By batch index; b'' for a null one."""

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
            found.properties or None,
            found.event_time_ms,
            found.sequence_id,
        )


def kafka_key(partition_key: bytes | None, *, in_base64: bool) -> bytes | None:
    """The key's own bytes; what says that it is base64 and is none counts as they are."""
    if partition_key is None or not in_base64:
        return partition_key
    try:
        return base64.b64decode(partition_key, validate=True)
    except binascii.Error:
        return partition_key


def decode_batch(payload: bytes, messages: int) -> list[SingleMessage]:
    """The first `messages` messages of a batch, as Pulsar does those that compaction has hidden, too.

    Raises:
        CorruptRecord: there are fewer, or they are no SingleMessageMetadata.
    """
    if messages * LEAST_BYTES > len(payload):
        raise CorruptRecord(f"a batch of {len(payload)} bytes cannot hold {messages} messages")
    found = []
    at, end = 0, len(payload)
    for index in range(messages):
        start = at + 4
        stop = start + int.from_bytes(payload[at:start], "big")
        fields = _fields(payload, start, stop) if stop <= end else None
        if fields is None:  # whatever is wrong, is found by the reader, and named
            reader = Reader(payload, f"message {index} of the batch of {messages}")
            reader.take(at)
            metadata = Reader(reader.take(int.from_bytes(reader.take(4), "big")), f"the metadata of {reader.what}")
            fields = _read_fields(metadata)
            stop = reader.position
        numbers, strings, properties = fields
        size = numbers.get(_PAYLOAD_SIZE, -1)
        if not 0 <= size <= end - stop:
            raise CorruptRecord(_wrong_size(size, stop, end, f"message {index} of the batch of {messages}"))
        at = stop + size
        found.append(
            SingleMessage(
                payload[stop:at],
                bool(numbers.get(_NULL_VALUE)),
                _properties(properties, index) if properties else _NOTHING,
                strings.get(_PARTITION_KEY),
                bool(numbers.get(_IN_BASE64)),
                strings.get(_ORDERING_KEY),
                numbers.get(_EVENT_TIME, 0),
                numbers.get(_SEQUENCE_ID),
                bool(numbers.get(_NULL_KEY)),
            )
        )
    return found


_Fields = tuple[dict[int, int], Mapping[int, bytes], list[bytes]]
"""Of one SingleMessageMetadata: numbers and strings, of several of one number the last; and the properties."""


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


def _read_fields(metadata: Reader) -> _Fields:
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


def _properties(pairs: list[bytes], index: int) -> dict[str, str]:
    """Of several of one name the first counts."""
    what = f"a property in the metadata of message {index} of a batch"
    found: dict[str, str] = {}
    for pair in pairs:
        key, value = decode_key_value(pair, what)
        found.setdefault(text_of(key, what), text_of(value, what))
    return found
