"""`MessageBatch` against the official class, over thousands of random batches; and what it refuses."""

from __future__ import annotations

import random
import struct
from typing import Any

import pulsar
import pytest

import pulsar_on_kafka
from pulsar_on_kafka_mapping.encoding.varint import write_varint
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.wire.single_messages import decode_batch

ACCESSORS = (
    "data",
    "value",
    "has_null_value",
    "properties",
    "partition_key",
    "ordering_key",
    "event_timestamp",
    "publish_timestamp",
    "producer_name",
    "topic_name",
    "redelivery_count",
    "schema_version",
    "encryption_context",
)


def varint(number: int) -> bytes:
    out = bytearray()
    write_varint(out, number)
    return bytes(out)


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def single(metadata: bytes, payload: bytes) -> bytes:
    return struct.pack(">I", len(metadata)) + metadata + payload


def message(payload: bytes, *others: bytes) -> bytes:
    return single(b"".join((*others, field(3, len(payload)))), payload)


def text(random_: random.Random) -> bytes:
    return "".join(random_.choices("aäb✓", k=random_.randrange(4))).encode()


def random_message(random_: random.Random) -> bytes:
    """Any fields in any order, some twice, some unknown."""
    payload = random_.randbytes(random_.choice((0, 1, 5, 300)))
    possible = [
        field(1, field(1, text(random_)) + field(2, text(random_))),
        field(1, field(2, text(random_)) + field(1, text(random_)) + field(3, 7)),
        field(2, text(random_)),
        field(4, random_.randrange(2)),
        field(5, random_.choice((0, 1, 1_700_000_000_000, 2**64 - 1))),
        field(6, random_.randrange(2)),
        field(7, text(random_)),
        field(8, random_.randrange(2**64)),
        field(9, random_.randrange(2)),
        field(10, random_.randrange(2)),
        field(99, b"unknown"),
        varint(98 << 3 | 5) + b"four",
        varint(97 << 3 | 1) + b"eight...",
        field(2, 5),  # of another wire type: unknown
        field(5, b"no number"),
    ]
    chosen = [*random_.choices(possible, k=random_.randrange(8)), field(3, len(payload))]
    random_.shuffle(chosen)
    return single(b"".join(chosen), payload)


def seen(messages: list[Any]) -> list[tuple[object, ...]]:
    return [
        (*(getattr(each, name)() for name in ACCESSORS), str(each.message_id()), each.message_id().serialize())
        for each in messages
    ]


@pytest.mark.parametrize("seed", range(20))
def test_it_gives_what_the_official_class_gives(seed: int) -> None:
    random_ = random.Random(seed)
    for _ in range(100):
        size = random_.randrange(6)
        data = b"".join(random_message(random_) for _ in range(size)) + random_.randbytes(random_.choice((0, 3)))
        numbers = (random_.choice((-1, 0, 3)), random_.randrange(2**40), random_.randrange(100), -1)
        theirs = pulsar.MessageBatch().with_message_id(pulsar.MessageId(*numbers)).parse_from(data, size)
        ours = (
            pulsar_on_kafka.MessageBatch().with_message_id(pulsar_on_kafka.MessageId(*numbers)).parse_from(data, size)
        )
        assert seen(ours) == seen(theirs)


def test_every_message_has_its_batch_index() -> None:
    data = message(b"a") + message(b"b")
    batch = pulsar_on_kafka.MessageBatch().with_message_id(NativeMessageId(3, 10, 20, 7))
    assert [str(each.message_id()) for each in batch.parse_from(data, 2)] == ["(10,20,3,0)", "(10,20,3,1)"]
    assert [each.message_id().batch_size() for each in batch.parse_from(data, 2)] == [2, 2]
    assert str(pulsar_on_kafka.MessageBatch().parse_from(data, 1)[0].message_id()) == "(-1,-1,-1,0)"


def test_messages_are_messages() -> None:
    (parsed,) = pulsar_on_kafka.MessageBatch().parse_from(message(b"a"), 1)
    assert isinstance(parsed, pulsar_on_kafka.Message)
    assert "(-1,-1,-1,0)" in repr(parsed)


@pytest.mark.parametrize("data", [bytearray(message(b"a")), message(b"a").decode()])
def test_other_forms_of_bytes(data: Any) -> None:
    assert [each.data() for each in pulsar_on_kafka.MessageBatch().parse_from(data, 1)] == [b"a"]


@pytest.mark.parametrize(
    ("data", "size", "complaint"),
    [
        (message(b"a"), 2, "a batch of 7 bytes cannot hold 2 messages"),
        (message(b"a"), 3_000_000_000, "cannot hold 3000000000 messages"),
        (message(b"a") + b"\0" * 5, 2, "metadata of message 1 of the batch of 2 lacks payload_size"),
        (message(b"abcdef")[:-2], 1, "message 0 of the batch of 1 ends at byte 10"),
        (b"\xff" * 8, 1, "message 0 of the batch of 1 ends at byte 8"),
        (single(b"\xff\xff\xff", b"abc"), 1, "metadata of message 0 of the batch of 1 ends at byte 3"),
        (single(b"\x80" * 11, b""), 1, "more than ten bytes"),
        (single(field(3, 2**64 - 1), b"a"), 1, "payload_size 18446744073709551615"),
        (single(b"\x1b", b"abcde"), 1, "field 3 of wire type 3"),
        (single(b"\x00\x01", b"abcde"), 1, "field of number 0"),
        (message(b"a", field(1, field(1, b"key"))), 1, "lacks its key or its value"),
    ],
)
def test_malformed_data_is_refused(data: bytes, size: int, complaint: str) -> None:
    with pytest.raises(pulsar_on_kafka.exceptions.InvalidMessage, match=complaint):
        pulsar_on_kafka.MessageBatch().parse_from(data, size)


def test_any_bytes_are_messages_or_refused() -> None:
    random_ = random.Random(1)
    for _ in range(5_000):
        data = bytearray(b"".join(random_message(random_) for _ in range(3)))
        for _ in range(random_.randrange(1, 4)):
            data[random_.randrange(len(data))] = random_.randrange(256)
        del data[random_.randrange(len(data)) :]
        try:
            assert len(decode_batch(bytes(data), 2)) == 2
        except CorruptRecord:
            continue


@pytest.mark.parametrize(("data", "size"), [(5, 1), (None, 0), (b"", -1), (b"", 1.0), (b"", "0")])
def test_arguments_of_other_types(data: Any, size: Any) -> None:
    for module in (pulsar, pulsar_on_kafka):
        with pytest.raises(TypeError):
            module.MessageBatch().parse_from(data, size)


def test_an_id_of_another_type() -> None:
    for module in (pulsar, pulsar_on_kafka):
        with pytest.raises(TypeError):
            module.MessageBatch().with_message_id(5)
