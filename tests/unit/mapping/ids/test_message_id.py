"""Serialized message ids beside the official client's."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_on_kafka_mapping.errors import InvalidMessageId
from pulsar_on_kafka_mapping.ids.message_id import (
    EARLIEST,
    LATEST,
    FirstChunk,
    MessageIdParts,
    decode_message_id,
    encode_message_id,
)
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId

NUMBERS = [
    EARLIEST,
    LATEST,
    MessageIdParts(0, 0),
    MessageIdParts(1, 2, 0),
    MessageIdParts(1, 2, 0, 0),
    MessageIdParts(1, 2, -1, 0),
    MessageIdParts(343_597_383_680, 49_999, 7, 999),
    MessageIdParts(2**62, 2**40, 5, -1),
    MessageIdParts(-5, -7, -2, -2),
    MessageIdParts(1, 1, 2**31 - 1, 2**31 - 1),
]
CHUNKED = [
    MessageIdParts(28, 3, -1, first_chunk=FirstChunk(28, 1)),
    MessageIdParts(2**40, 0, 3, -1, 0, FirstChunk(7, 9)),
]


@pytest.mark.parametrize("parts", NUMBERS)
def test_bytes_equal_the_official_clients(parts: MessageIdParts) -> None:
    pulsar = pytest.importorskip("pulsar", reason="pulsar-client is not installed")
    official = pulsar.MessageId(parts.partition, parts.ledger_id, parts.entry_id, parts.batch_index)
    assert encode_message_id(*parts) == official.serialize()


@pytest.mark.parametrize("parts", NUMBERS)
def test_the_official_client_reads_ours(parts: MessageIdParts) -> None:
    pulsar = pytest.importorskip("pulsar", reason="pulsar-client is not installed")
    official = pulsar.MessageId.deserialize(encode_message_id(*parts))
    assert (official.ledger_id(), official.entry_id(), official.partition(), official.batch_index()) == parts[:4]


@pytest.mark.parametrize("parts", CHUNKED)
def test_a_chunked_messages_id_survives_the_official_client(parts: MessageIdParts) -> None:
    pulsar = pytest.importorskip("pulsar", reason="pulsar-client is not installed")
    official = pulsar.MessageId.deserialize(encode_message_id(*parts))
    assert official.serialize() == encode_message_id(*parts)
    assert parts.first_chunk is not None
    first = f"({parts.first_chunk.ledger_id},{parts.first_chunk.entry_id},{parts.partition},-1)"
    assert str(official) == f"{first};({parts.ledger_id},{parts.entry_id},{parts.partition},-1)"
    assert str(NativeMessageId.deserialize(official.serialize())) == str(official)


def test_the_bytes_of_a_chunked_messages_id() -> None:
    assert encode_message_id(*CHUNKED[0]).hex() == "081c10033a04081c1001"  # seen on Pulsar 4.0.7


def test_a_batch_size_survives_the_official_client() -> None:
    pulsar = pytest.importorskip("pulsar", reason="pulsar-client is not installed")
    ours = encode_message_id(1, 2, -1, 3, 5)
    assert pulsar.MessageId.deserialize(ours).serialize() == ours


def test_earliest_and_latest_equal_the_official_clients() -> None:
    pulsar = pytest.importorskip("pulsar", reason="pulsar-client is not installed")
    assert encode_message_id(*EARLIEST) == pulsar.MessageId.earliest.serialize()
    assert encode_message_id(*LATEST) == pulsar.MessageId.latest.serialize()


@pytest.mark.parametrize("parts", [*NUMBERS, *CHUNKED])
def test_decode_is_the_inverse(parts: MessageIdParts) -> None:
    assert decode_message_id(encode_message_id(*parts)) == parts


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        ("10020801", MessageIdParts(1, 2)),
        ("0801080510021003", MessageIdParts(5, 3)),
        ("080110022800", MessageIdParts(1, 2)),
        ("080110023a0408011001", MessageIdParts(1, 2, first_chunk=FirstChunk(1, 1))),
        ("08011002f8ff01099d0000000000000000", None),
        ("08011002850100000000", MessageIdParts(1, 2)),
    ],
    ids=["any order", "last wins", "ack set", "first chunk", "truncated fixed64", "unknown fixed32"],
)
def test_fields_are_read_as_protobuf_has_them(data: str, parts: MessageIdParts | None) -> None:
    if parts is None:
        with pytest.raises(InvalidMessageId):
            decode_message_id(bytes.fromhex(data))
    else:
        assert decode_message_id(bytes.fromhex(data)) == parts


@pytest.mark.parametrize("data", ["", "0801", "1001", "ff", "08", "08011002ff", "0a01", "0801100218", "080110020003"])
def test_garbage_is_refused_as_by_the_official_client(data: str) -> None:
    pulsar = pytest.importorskip("pulsar", reason="pulsar-client is not installed")
    with pytest.raises(ValueError, match="Failed to parse"):
        pulsar.MessageId.deserialize(bytes.fromhex(data))
    with pytest.raises(InvalidMessageId):
        decode_message_id(bytes.fromhex(data))


@pytest.mark.parametrize("parts", [(2**63, 0), (0, -(2**63) - 1), (0, 0, 2**31), (0, 0, 0, 2**31), (0, 0, 0, 0, 2**31)])
def test_numbers_that_do_not_fit_are_refused(parts: Any) -> None:
    with pytest.raises(InvalidMessageId):
        encode_message_id(*parts)
