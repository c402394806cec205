"""A Pulsar batch's payload is a sequence of messages as they are on Pulsar's wire, uncompressed and in clear.

    repeated: length (uint32, big-endian) | metadata (Protobuf, that many bytes) | payload (metadata's payload_size)

Metadata is the Protobuf message `SingleMessageMetadata` of `PulsarApi.proto`:

    1 properties* {1 key, 2 value}   2 partition_key   3 payload_size   4 compacted_out   5 event_time
    6 partition_key_b64_encoded      7 ordering_key    8 sequence_id    9 null_value     10 null_partition_key

Compared with pulsar-client 3.13.0 in the tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pulsar_on_kafka.mapping.encoding.varint import Reader, text_of
from pulsar_on_kafka.mapping.errors import CorruptRecord

_PROPERTY, _PARTITION_KEY, _PAYLOAD_SIZE, _EVENT_TIME, _ORDERING_KEY, _NULL_VALUE = 1, 2, 3, 5, 7, 9
_MAX_PAYLOAD_BYTES: Final = 2**31 - 1

LEAST_BYTES: Final = 6
"""The least that one message takes: its length, and a payload size of 0."""


class SingleMessage(NamedTuple):
    """A message stands in the batch. `partition_key` is base64 when the sender's was binary; '' and b'' stand for
    none."""

    payload: bytes
    is_null: bool
    properties: Mapping[str, str]
    partition_key: str
    ordering_key: bytes
    event_time_ms: int


def decode_batch(payload: bytes, messages: int) -> list[SingleMessage]:
    """The first `messages` messages of a batch, as Pulsar does those that compaction has hidden, too.

    Raises:
        CorruptRecord: there are fewer, or they are no SingleMessageMetadata.
    """
    if messages * LEAST_BYTES > len(payload):
        raise CorruptRecord(f"a batch of {len(payload)} bytes cannot hold {messages} messages")
    reader = Reader(payload, "the batch")
    found = []
    for index in range(messages):
        reader.what = f"message {index} of the batch of {messages}"
        found.append(_single_message(reader))
    return found


def _single_message(batch: Reader) -> SingleMessage:
    metadata = Reader(batch.take(int.from_bytes(batch.take(4), "big")), f"the metadata of {batch.what}")
    numbers = {_EVENT_TIME: 0, _NULL_VALUE: 0}
    strings = {_PARTITION_KEY: b"", _ORDERING_KEY: b""}
    properties: dict[str, str] = {}
    for field, value in metadata.fields():
        if isinstance(value, int):
            numbers[field] = value
        elif field == _PROPERTY:
            key, text = _key_value(value, metadata.what)
            properties.setdefault(key, text)
        else:
            strings[field] = value
    if _PAYLOAD_SIZE not in numbers:
        raise CorruptRecord(f"{metadata.what} lacks payload_size")
    size = numbers[_PAYLOAD_SIZE]
    if size > _MAX_PAYLOAD_BYTES:
        raise CorruptRecord(f"{metadata.what} has payload_size {size}, expected 0 to {_MAX_PAYLOAD_BYTES}")
    return SingleMessage(
        batch.take(size),
        bool(numbers[_NULL_VALUE]),
        properties,
        text_of(strings[_PARTITION_KEY], metadata.what),
        strings[_ORDERING_KEY],
        numbers[_EVENT_TIME],
    )


def _key_value(data: bytes, what: str) -> tuple[str, str]:
    reader = Reader(data, f"a property in {what}")
    parts = {field: value for field, value in reader.fields() if isinstance(value, bytes)}
    if 1 not in parts or 2 not in parts:
        raise CorruptRecord(f"{reader.what} lacks its key or its value")
    return text_of(parts[1], reader.what), text_of(parts[2], reader.what)
