"""Headers and keys, rule by rule."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records import record_headers as headers
from pulsar_on_kafka_mapping.records.message_record import (
    BatchInfo,
    ChunkInfo,
    MessageMetadata,
    RecordHeaders,
    decode_headers,
    encode_headers,
    is_plain,
    key_text,
)
from pulsar_on_kafka_mapping.records.original_position import OriginalPosition
from pulsar_on_kafka_mapping.records.record_headers import PRODUCER, MarkerType, producer_suffix


@pytest.mark.parametrize("nothing", [None, []])
def test_a_foreign_record_says_nothing(nothing: Any) -> None:
    assert decode_headers(nothing) == RecordHeaders()
    assert RecordHeaders().sequence_id == -1
    assert RecordHeaders().publish_time_ms is None


def test_a_producers_header_has_sequence_id_epoch_and_name() -> None:
    read = decode_headers([(PRODUCER, f"17{producer_suffix(2, 'a:b')}".encode())])
    assert (read.sequence_id, read.producer_epoch, read.producer_name) == (17, 2, "a:b")


@pytest.mark.parametrize(
    ("metadata", "header"),
    [
        (MessageMetadata(event_time_ms=5), (headers.EVENT_TIME, b"5")),
        (MessageMetadata(deliver_at_ms=0), (headers.DELIVER_AT, b"0")),
        (MessageMetadata(publish_time_ms=7), (headers.PUBLISH_TIME, b"7")),
        (MessageMetadata(key_is_ordering_key=True), (headers.ORDERING_KEY, None)),
        (MessageMetadata(ordering_key=b"o"), (headers.ORDERING_KEY, b"o")),
        (MessageMetadata(schema_version=bytes(8)), (headers.SCHEMA_VERSION, bytes(8))),
        (MessageMetadata(txn=TxnId(1, 2)), (headers.TXN, b"1:2")),
        (MessageMetadata(chunk=ChunkInfo(0, 3, 99, "p:1")), (headers.CHUNK, b"0:3:99:p:1")),
        (MessageMetadata(replicated_from="eu"), (headers.REPLICATED_FROM, b"eu")),
        (MessageMetadata(original_id=OriginalPosition(1, 2, 3, 4)), (headers.ORIGINAL_ID, b"1:2:3:4")),
        (MessageMetadata(replicate_to=("a,b", "c%")), (headers.REPLICATE_TO, b"a%2Cb,c%25")),
        (MessageMetadata(replicate_to=()), (headers.REPLICATE_TO, b"")),
        (MessageMetadata(marker=MarkerType.TXN_COMMIT), (headers.MARKER, b"txn_commit")),
        (MessageMetadata(batch=BatchInfo(1, 50)), (headers.BATCH, b"1:50")),
        (MessageMetadata(properties={"a": "ü"}), ("a", "ü".encode())),
        (MessageMetadata(properties={"__pulsar.txn": "x"}), ("__pulsar.p.__pulsar.txn", b"x")),
        (MessageMetadata(properties={"__key_schema_id": "x"}), ("__pulsar.p.__key_schema_id", b"x")),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_each_field_is_one_header(metadata: MessageMetadata, header: tuple[str, bytes | None]) -> None:
    assert encode_headers(metadata) == [header]
    read = decode_headers([header])
    assert all(getattr(read, name) == getattr(metadata, name) for name in MessageMetadata.__struct_fields__)


def test_nothing_said_needs_no_header() -> None:
    assert encode_headers(MessageMetadata()) == []


def test_of_several_headers_of_one_name_the_last_counts() -> None:
    read = decode_headers([("a", b"1"), ("a", b"2"), (headers.EVENT_TIME, b"1"), (headers.EVENT_TIME, b"2")])
    assert read.properties == {"a": "2"}
    assert read.event_time_ms == 2


def test_a_property_without_value_is_empty() -> None:
    assert decode_headers([("a", None)]).properties == {"a": ""}


def test_a_property_that_is_no_utf8_is_latin1() -> None:
    value = decode_headers([("a", b"gr\xf6\xdfe")]).properties["a"]
    assert value == "größe"
    assert value.encode("latin-1") == b"gr\xf6\xdfe"


def test_an_unknown_system_header_is_passed_over() -> None:
    assert decode_headers([("__pulsar.later", b"x")]) == RecordHeaders()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (PRODUCER, b"1:2"),
        (PRODUCER, b"x:0:p"),
        (PRODUCER, b"1:0:\xff"),
        (PRODUCER, None),
        (headers.SCHEMA_VERSION, b"1"),
        (headers.EVENT_TIME, b""),
        (headers.EVENT_TIME, b"-1"),
        (headers.EVENT_TIME, b"9" * 5000),
        (headers.TXN, b"1"),
        (headers.TXN, b"18446744073709551616:0"),
        (headers.CHUNK, b"3:3:9:u"),
        (headers.ORIGINAL_ID, b"1:2:3"),
        (headers.ORIGINAL_ID, b"-1:2:3:4"),
        (headers.REPLICATE_TO, b"a,,b"),
        (headers.REPLICATE_TO, b"%ff"),
        (headers.MARKER, b"nonsense"),
        (headers.BATCH, b"1:0"),
        (headers.BATCH, b"1"),
    ],
)
def test_a_system_header_that_cannot_be_read_is_corrupt(name: str, value: bytes | None) -> None:
    with pytest.raises(CorruptRecord, match=re.escape(name)) as caught:
        decode_headers([(name, value)])
    assert (repr(value[:100]) if value is not None else "null") in str(caught.value)


@pytest.mark.parametrize(
    "metadata",
    [
        MessageMetadata(key_is_ordering_key=True, ordering_key=b"o"),
        MessageMetadata(event_time_ms=-1),
        MessageMetadata(schema_version=b"1"),
        MessageMetadata(txn=TxnId(-1, 0)),
        MessageMetadata(chunk=ChunkInfo(3, 3, 9, "u")),
        MessageMetadata(replicate_to=("",)),
        MessageMetadata(original_id=OriginalPosition(-1, 0, 0, 0)),
        MessageMetadata(original_id=OriginalPosition(0, 0, -1, 0)),
        MessageMetadata(batch=BatchInfo(1, 0)),
        MessageMetadata(properties={"a\0": "b"}),
        MessageMetadata(properties={"a": "\ud800"}),
        MessageMetadata(properties={"\ud800": "a"}),
    ],
)
def test_what_fits_no_header_is_refused(metadata: MessageMetadata) -> None:
    with pytest.raises(MappingError):
        encode_headers(metadata)


@pytest.mark.parametrize(
    ("found", "plain"),
    [
        (None, True),
        ([], True),
        ([(PRODUCER, b"1:0:p")], True),
        ([("a", b"b"), (PRODUCER, b"1:0:p")], True),
        ([("a", b"b"), (PRODUCER, b"1:0:p"), (headers.SCHEMA_VERSION, bytes(8))], True),
        ([(PRODUCER, b"1:0:p"), (headers.MARKER, b"txn_commit")], False),
        ([("a", b"b"), (headers.TXN, b"1:2")], True),
        ([(headers.TXN, b"1:2"), (headers.MARKER, b"txn_commit")], False),
    ],
)
def test_plain_records_need_no_further_look(found: Any, plain: bool) -> None:
    assert is_plain(found) is plain


@pytest.mark.parametrize(("key", "text"), [(None, ""), (b"", ""), ("ü".encode(), "ü"), (b"\xff\x00", "/wA=")])
def test_text_of_a_key(key: bytes | None, text: str) -> None:
    assert key_text(key) == text


@pytest.mark.parametrize(("epoch", "name"), [(-1, "p"), (0, "\ud800")])
def test_an_impossible_producer_is_refused(epoch: int, name: str) -> None:
    with pytest.raises(MappingError):
        producer_suffix(epoch, name)


def test_a_transaction_id_names_its_coordinator() -> None:
    assert TxnId(3 << 48, 7).coordinator == 3


def test_ids_of_schemas_for_confluents_clients_are_no_properties() -> None:
    ids = [(headers.VALUE_SCHEMA_ID, b"\x01\xff"), (headers.KEY_SCHEMA_ID, b"\x00"), ("other", b"x")]
    assert decode_headers(ids).properties == {"other": "x"}
    assert is_plain(ids)
