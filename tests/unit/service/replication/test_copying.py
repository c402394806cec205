"""Copies of records for another cluster, and their headers."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.service.replication.copying import Copying
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records import record_headers as names
from pulsar_on_kafka_mapping.records.message_record import (
    BatchInfo,
    ChunkInfo,
    Codec,
    CompressionInfo,
    Headers,
    MessageMetadata,
    decode_headers,
    encode_headers,
)
from pulsar_on_kafka_mapping.records.original_position import OriginalPosition
from pulsar_on_kafka_mapping.records.record_headers import MarkerType


class Record:
    """A record in confluent-kafka's form."""

    def __init__(self, headers: Headers | None, offset: int = 7, timestamp_ms: int = 1000) -> None:
        self._headers, self._offset, self._timestamp_ms = headers, offset, timestamp_ms

    def headers(self) -> Headers | None:
        return self._headers

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, self._timestamp_ms


def copy_of(copying: Copying, record: Record) -> Headers | None:
    """Its headers."""
    (found,) = copying.headers_of([record])
    return found


@pytest.fixture
def met() -> list[dict[str, bool]]:
    return []


@pytest.fixture
def copying(met: list[dict[str, bool]]) -> Copying:
    return Copying("eu", "us", 3, 11, 5, lambda version: bytes(reversed(version)), lambda **told: met.append(told))


def test_a_plain_kafka_record_gets_its_origin(copying: Copying) -> None:
    said = decode_headers(copy_of(copying, Record(None)))
    assert (said.replicated_from, said.original_id, said.publish_time_ms) == (
        "eu", OriginalPosition(7, 3, 11, 5), 1000,
    )  # fmt: skip


def test_what_consumers_see_stays_and_what_is_the_origins_own_goes(
    copying: Copying, met: list[dict[str, bool]]
) -> None:
    metadata = MessageMetadata(
        properties={"a": "b", "__pulsar.x": "y"}, event_time_ms=1, deliver_at_ms=2, ordering_key=b"o",
        schema_version=bytes(range(8)), txn=TxnId(1, 2), chunk=ChunkInfo(0, 2, 9, "u"), replicate_to=("us",),
        batch=BatchInfo(2, 3), compression=CompressionInfo(Codec.LZ4, 9), pulsar_fields=b"kept",
    )  # fmt: skip
    headers: Headers = [(names.PRODUCER, b"4:2:p"), (names.FENCE, b""), *encode_headers(metadata)]
    said = decode_headers(copy_of(copying, Record(headers)))
    assert (said.producer_name, said.producer_epoch, said.sequence_id) == ("p", 2, 4)
    assert said.properties == metadata.properties
    assert (said.event_time_ms, said.deliver_at_ms, said.ordering_key, said.chunk) == (1, 2, b"o", metadata.chunk)
    assert said.schema_version == bytes(reversed(range(8)))
    assert (said.batch, said.compression, said.pulsar_fields) == (metadata.batch, metadata.compression, b"kept")
    assert said.txn is None
    assert names.FENCE not in dict(copy_of(copying, Record(headers)) or ())
    assert met == [{"chunk": True, "raw": True}] * 2


def test_what_readers_of_the_copies_have_to_know_is_told_first(copying: Copying, met: list[dict[str, bool]]) -> None:
    for headers in (
        MessageMetadata(properties={"a": "b"}),
        MessageMetadata(batch=BatchInfo(1, 3)),
        MessageMetadata(batch=BatchInfo(2, 3)),
        MessageMetadata(batch=BatchInfo(3, 1), compression=CompressionInfo(Codec.ZSTD, 9)),
        MessageMetadata(chunk=ChunkInfo(0, 2, 9, "u")),
    ):
        copy_of(copying, Record(encode_headers(headers)))
    assert met == [{"chunk": False, "raw": True}] * 2 + [{"chunk": True, "raw": False}]


@pytest.mark.parametrize(
    ("metadata", "copied"),
    [
        (MessageMetadata(replicated_from="asia"), False),
        (MessageMetadata(marker=MarkerType.TXN_COMMIT), False),
        (MessageMetadata(marker=MarkerType.REPLICATOR), False),
        (MessageMetadata(marker=MarkerType.SNAPSHOT), False),
        (MessageMetadata(marker=MarkerType.SNAPSHOT_REQUEST), False),
        (MessageMetadata(replicate_to=()), False),
        (MessageMetadata(replicate_to=("asia",)), False),
        (MessageMetadata(replicate_to=("asia", "us")), True),
        (MessageMetadata(properties={"us": "eu"}), True),
    ],
)
def test_what_is_not_copied(copying: Copying, metadata: MessageMetadata, copied: bool) -> None:
    assert (copy_of(copying, Record(encode_headers(metadata))) is not None) is copied
