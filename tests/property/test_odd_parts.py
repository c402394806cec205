"""Odd parts spoil no neighbours: each field of a message, of a batch and of a foreign record is made absurd in turn.

The other messages arrive, and what cannot be read is reported, never acknowledged in silence.
"""

from __future__ import annotations

import io
import logging
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from fastavro import schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.subscriptions.records.batches import messages_of
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka_mapping.encoding.varint import varint
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.batch_entry import SCHEMA, decode_batch
from pulsar_on_kafka_mapping.records.message_record import decode_headers
from pulsar_on_kafka_mapping.wire.column_entries import UNREADABLE, as_columns
from pulsar_on_kafka_mapping.wire.message_metadata import PulsarMetadata, encode_fields
from pulsar_on_kafka_mapping.wire.native_messages import taken_apart
from pulsar_on_kafka_mapping.wire.stored_entries import EntryRecord, metadata_of, record_of
from tests.foreign_records import UNREADABLE as DECISIVE_KEY
from tests.foreign_records import absurd_records
from tests.unit.broker.subscriptions.partition.test_batches_of_a_partition import Record, a_consumer, a_partition, fill

NOT_UTF8 = b"caf\xe9.txt"
SIZE = 3
FIRST, ODD, LAST = b"first", b"odd", b"last"


def single(payload: bytes, metadata: bytes = b"", *, size: int | None = None) -> bytes:
    metadata += encode_fields([(3, len(payload) if size is None else size)])
    return struct.pack(">I", len(metadata)) + metadata + payload


def batch(odd: bytes) -> bytes:
    return single(FIRST) + odd + single(LAST)


def _odd_values() -> Iterator[bytes]:
    """Metadata in which each field in turn has each odd value; its payload size follows, and counts."""
    for number in range(1, 12):
        for value in (0, 2**63 - 1, 2**64 - 1):
            yield encode_fields([(number, value)])
        for data in (b"", NOT_UTF8, b"\x00", b"\xff" * 200, encode_fields([(1, NOT_UTF8), (2, b"\xff")])):
            yield encode_fields([(number, data)])
        yield varint(number << 3 | 5) + b"1234"
    yield encode_fields([(1, encode_fields([(1, b"name")]))])  # a property without its value
    yield encode_fields([(1, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")])  # one that is no Protobuf


def delivered(value: bytes, header: bytes) -> tuple[list[Any], dict[int, BatchAckSet], int]:
    """A consumer's messages of a batch; acknowledged messages, and entries that the partition counts as unreadable."""
    owned, consumer = a_partition(), a_consumer()
    fill(owned, Record(0, SIZE, value, header))
    offsets, records = owned.take(1000)
    owned.deliver(consumer.feed(owned.slot), offsets, records, hold=True)
    return list(consumer.queue), dict(owned.cursor.batches.items()), owned.intake.corrupt_entries


def read(value: bytes, header: bytes) -> list[Any]:
    return [*messages_of([_Placed(0, SIZE, value, header)], a_consumer().feed(a_partition().slot), None)]


class _Placed(Record):
    def offset(self) -> int:
        return self.at


def of_spark(value: bytes, header: bytes) -> list[bytes]:
    columns = decode_batch(as_columns(value, header, None), SIZE)
    return [columns.payloads[i] for i in range(SIZE) if columns.message(i).event_time_ms != UNREADABLE]


def check_neighbours(odd: bytes, *neighbours: bytes) -> None:
    value, header = batch(odd), b"2:%d" % SIZE
    messages, acked, unreadable = delivered(value, header)
    payloads = [_looked_over(message) for message in messages]
    assert set(neighbours) <= set(payloads)
    assert [_looked_over(message) for message in read(value, header)] == payloads
    assert of_spark(value, header) == payloads
    lost = SIZE - len(payloads)
    assert unreadable == bool(lost), "what is not delivered is counted"
    assert sum(each.acked.bit_count() for each in acked.values()) == lost, "and nothing else is acknowledged"


def _looked_over(message: Any) -> bytes:
    assert isinstance(message, Message)
    for name in ("properties", "partition_key", "ordering_key", "event_timestamp", "has_null_value", "record_key"):
        getattr(message, name)()
    for name, value in message.properties().items():
        (name + value).encode()  # no lone surrogates
    return message.data()


@pytest.mark.parametrize("metadata", [*_odd_values()], ids=lambda metadata: metadata[:12].hex())
def test_an_odd_field_of_a_message_costs_no_other_message_of_its_batch(metadata: bytes) -> None:
    check_neighbours(single(ODD, metadata), FIRST, LAST)


@given(st.binary(max_size=20))
def test_any_metadata_of_a_message_cost_no_message_before(metadata: bytes) -> None:
    check_neighbours(struct.pack(">I", len(metadata)) + metadata, FIRST)


@pytest.mark.parametrize("size", [2**31 - 1, 2**40, 5000])
def test_messages_before_one_without_an_end_arrive_and_those_after_it_are_reported(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        check_neighbours(single(ODD, size=size), FIRST)
    assert "skipped and acknowledged, it cannot be read: 2 of the 3 messages of its batch: " in caplog.text
    assert "is read without 2 of the 3 messages of its batch" in caplog.text


def test_a_property_keeps_its_bytes() -> None:
    pair = encode_fields([(1, encode_fields([(1, b"file"), (2, NOT_UTF8)]))])
    (message,) = (each for each in delivered(batch(single(ODD, pair)), b"2:3")[0] if each.data() == ODD)
    assert message.properties() == {"file": "caf\xe9.txt"}
    assert message.properties()["file"].encode("latin-1") == NOT_UTF8
    told = PulsarMetadata(producer_name="p", sequence_id=1, publish_time_ms=10**12, messages=SIZE)
    apart = taken_apart(told, batch(single(ODD, pair)), 1000)
    assert apart is not None
    assert apart[1].metadata.properties == [(b"file", NOT_UTF8)]


def test_a_property_of_the_sdk_s_own_batches_that_is_no_utf_8_costs_none_of_them() -> None:
    out = io.BytesIO()
    empty = dict.fromkeys((field["name"] for field in SCHEMA["fields"]), None)
    marks: Sequence[dict[str, str]] = [{}, {"file": "caf# #"}, {"shape": "ü"}]
    schemaless_writer(out, SCHEMA, {**empty, "payloads": [FIRST, ODD, LAST], "properties": marks})
    messages, acked, unreadable = delivered(out.getvalue().replace(b"# #", b"\xe9\xff\xfe"), b"1:3")
    assert [each.data() for each in messages] == [FIRST, ODD, LAST]
    assert [each.properties() for each in messages] == [{}, {"file": "caf\xe9\xff\xfe"}, {"shape": "ü"}]
    assert (acked, unreadable) == ({}, 0)


@pytest.mark.parametrize("foreign", [*absurd_records()], ids=lambda foreign: repr(foreign.headers)[:60])
def test_a_gateway_s_client_gets_what_the_sdk_s_consumers_get_of_a_foreign_record(foreign: Any) -> None:
    headers = [(name.decode("latin-1"), value) for name, value in foreign.headers]
    record = EntryRecord(foreign.key, foreign.value, headers, 10**12)
    if foreign.key == DECISIVE_KEY and not _is_readable(record):
        with pytest.raises(CorruptRecord):
            metadata_of(record)
        return
    said = decode_headers(headers, lambda _: None)
    found = metadata_of(record)
    assert (found.event_time_ms or 0, found.producer_name) == (said.event_time_ms, said.producer_name)
    assert dict(found.properties) == {
        name.removeprefix("__pulsar.p.").encode(): value or b"" for name, value in headers if _is_property(name)
    }


def _is_property(name: str) -> bool:
    return not name.startswith("__pulsar.") or name.startswith("__pulsar.p.")


def _is_readable(record: EntryRecord) -> bool:
    try:
        decode_headers([header for header in record.headers if header[0] != "__pulsar.producer"])
    except CorruptRecord:
        return False
    return True


def test_a_property_whose_name_no_header_can_have_is_the_message_s_all_the_same() -> None:
    properties = [(b"a\x00b", b"1"), (b"\xff", b"2"), (b"plain", b"3")]
    told = PulsarMetadata(producer_name="p", sequence_id=1, publish_time_ms=10**12, properties=properties)
    made = record_of(told, b"x", epoch=0, now_ms=10**12)

    class Read(_Placed):
        def headers(self) -> Any:
            return made.headers

    messages: list[Any] = messages_of([Read(0, 0)], a_consumer().feed(a_partition().slot), None)
    (message,) = messages
    assert message.properties() == {"a\x00b": "1", "\xff": "2", "plain": "3"}
