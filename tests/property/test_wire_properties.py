"""Entries of Pulsar's clients: what is written is read again, and what is cut, lengthened or random raises
CorruptRecord alone."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import cramjam
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from pulsar_on_kafka_mapping.encoding.varint import varint, write_varint
from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.records.message_record import Codec, CompressionInfo, decode_headers
from pulsar_on_kafka_mapping.wire.commands import Type, command, send_receipt
from pulsar_on_kafka_mapping.wire.compression import decompress
from pulsar_on_kafka_mapping.wire.entries import BrokerMetadata, WireEntry, read_entry, write_entry
from pulsar_on_kafka_mapping.wire.frames import frame
from pulsar_on_kafka_mapping.wire.message_metadata import (
    Field,
    PulsarMetadata,
    decode_metadata,
    decode_some,
    encode_fields,
    encode_metadata,
)
from pulsar_on_kafka_mapping.wire.single_messages import MAX_IN_BATCH, MIN_BYTES, decode_batch
from pulsar_on_kafka_mapping.wire.stored_entries import metadata_of, record_of
from tests.wire_decoders import DECODERS, SEEDS

U64 = st.integers(0, 2**64 - 1)
MILLIS = st.integers(0, 2**62)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
RAW = st.binary(max_size=10) | TEXT.map(str.encode)
PROPERTIES = st.lists(st.tuples(RAW | st.just(b"__pulsar.producer"), RAW), max_size=4)
FIELDS = st.lists(st.tuples(st.integers(35, 2**29 - 1), U64 | RAW), max_size=3)
KEYS = st.lists(st.tuples(st.just(13), st.just(encode_fields([(1, b"key"), (2, b"wrapped")]))), min_size=1, max_size=2)
ENCRYPTION: st.SearchStrategy[list[Field]] = st.just([]) | st.tuples(KEYS, RAW).map(
    lambda both: [*both[0], (15, both[1])]
)
COMPRESS: dict[Codec, Callable[[bytes], Any]] = {
    Codec.LZ4: lambda data: cramjam.lz4.compress_block(data, store_size=False),
    Codec.ZLIB: zlib.compress,
    Codec.ZSTD: cramjam.zstd.compress,
    Codec.SNAPPY: cramjam.snappy.compress_raw,
}


@st.composite
def metadata(draw: st.DrawFn) -> PulsarMetadata:
    """What a client may send, in the one form in which it comes back from a record."""
    chunks = draw(st.none() | st.integers(2, 100))
    messages = draw(st.none() | st.integers(1, MAX_IN_BATCH)) if chunks is None else None
    is_null = messages is None and draw(st.booleans())
    codec = draw(st.none() | st.sampled_from(Codec)) if not is_null else None
    key, in_base64 = draw(st.none() | RAW), draw(st.sampled_from([None, 1]))
    if key is not None and in_base64:
        key = base64.b64encode(key)
    first = draw(st.integers(0, 2**63))
    return PulsarMetadata(
        producer_name=draw(TEXT),
        sequence_id=first,
        publish_time_ms=draw(MILLIS),
        properties=sorted(draw(PROPERTIES), key=lambda pair: b"\0" in pair[0] or not _is_text(pair[0])),
        replicated_from=draw(st.none() | TEXT.filter(bool)),
        partition_key=key,
        replicate_to=tuple(draw(st.lists(TEXT.filter(bool), max_size=3))),
        compression=codec,
        uncompressed_bytes=draw(st.integers(0 if codec is None else MIN_BYTES * (messages or 0), 2**28)),
        messages=messages,
        event_time_ms=draw(st.none() | st.integers(1, 2**64 - 1)),
        encryption=[] if is_null else draw(ENCRYPTION),
        schema_version=draw(st.none() | st.binary(min_size=1, max_size=9)),
        in_base64=in_base64 if key is not None else None,
        ordering_key=draw(st.none() | RAW),
        deliver_at_ms=draw(st.none() | st.integers(-(2**63), 2**63 - 1)),
        txn_least=draw(st.none() | U64),
        txn_most=draw(st.none() | U64),
        highest_sequence_id=draw(U64) if messages is None else first + messages - 1 + draw(st.integers(0, 3)),
        null_value=1 if is_null else None,
        uuid=draw(TEXT) if chunks is not None else draw(st.none() | TEXT),
        chunks=chunks if chunks is not None else draw(st.sampled_from([None, 0, 1, -1])),
        chunked_bytes=draw(st.integers(0, 2**31 - 1)) if chunks is not None else None,
        chunk_id=draw(st.integers(0, chunks - 1)) if chunks is not None else draw(st.sampled_from([None, -1])),
        schema_id=draw(st.none() | st.binary(max_size=9)),
        entry_hash_min=draw(st.none() | U64),
        entry_hash_max=draw(st.none() | U64),
        others=draw(FIELDS),
    )


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(metadata())
def test_metadata_are_reversible(sent: PulsarMetadata) -> None:
    assert decode_metadata(encode_metadata(sent)) == _as_lists(sent)


def _as_lists(sent: PulsarMetadata) -> PulsarMetadata:
    """The same with lists where it has tuples, as reading has it; nothing for an empty one."""
    again = decode_some(b"")
    for name in PulsarMetadata.__struct_fields__:
        value = getattr(sent, name)
        setattr(again, name, (list(value) or ()) if isinstance(value, list | tuple) else value)
    return again


@given(metadata(), st.binary(max_size=20), st.integers(-70_000, 70_000), st.integers(0, 5))
def test_an_entry_comes_back_from_its_record_as_it_was(
    sent: PulsarMetadata, payload: bytes, late_ms: int, epoch: int
) -> None:
    natural = (sent.sequence_id or 0) + (sent.messages or 1) - 1
    if sent.messages is not None and sent.compression is None:
        payload += bytes(MIN_BYTES * sent.messages)
    record = record_of(sent, payload, epoch=epoch, now_ms=max(0, (sent.publish_time_ms or 0) + late_ms))
    found = metadata_of(record)
    if sent.messages is None and sent.highest_sequence_id == natural:
        found.highest_sequence_id = natural  # said by the record as a whole
    assert encode_metadata(found) == encode_metadata(sent)
    sent.uncompressed_bytes = None  # of clients that do not say it
    if sent.compression is None:
        assert metadata_of(record_of(sent, payload, epoch=epoch, now_ms=0)).uncompressed_bytes is not None
    assert record.value == (None if sent.null_value else payload)
    assert decode_headers(record.headers).producer_epoch == epoch


@given(st.dictionaries(TEXT, TEXT, max_size=3), TEXT, U64, st.booleans())
def test_protobuf_reads_and_writes_the_same_metadata(
    properties: dict[str, str], key: str, number: int, is_null: bool
) -> None:
    """By Google's library, for a message with fields of each kind."""
    theirs = _METADATA(producer_name="p", sequence_id=number, publish_time=5, partition_key=key, null_value=is_null)
    theirs.deliver_at_time = -number // 2
    for name, value in properties.items():
        theirs.properties.add(key=name, value=value)
    ours = decode_metadata(theirs.SerializeToString())
    assert (ours.producer_name, ours.sequence_id, ours.deliver_at_ms) == ("p", number, -number // 2)
    assert encode_metadata(ours) == theirs.SerializeToString(deterministic=True)


def _message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="some_fields.proto", package="test", syntax="proto2")
    pair, whole = file.message_type.add(name="KeyValue"), file.message_type.add(name="MessageMetadata")
    kinds = descriptor_pb2.FieldDescriptorProto
    for number, name in ((1, "key"), (2, "value")):
        pair.field.add(name=name, number=number, type=kinds.TYPE_STRING, label=kinds.LABEL_REQUIRED)
    for number, name, kind in (
        (1, "producer_name", kinds.TYPE_STRING),
        (2, "sequence_id", kinds.TYPE_UINT64),
        (3, "publish_time", kinds.TYPE_UINT64),
        (6, "partition_key", kinds.TYPE_STRING),
        (19, "deliver_at_time", kinds.TYPE_INT64),
        (25, "null_value", kinds.TYPE_BOOL),
    ):
        whole.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    whole.field.add(
        name="properties", number=4, type=kinds.TYPE_MESSAGE, label=kinds.LABEL_REPEATED, type_name=".test.KeyValue"
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.MessageMetadata"))


_METADATA = _message_class()


@given(
    st.binary(max_size=30),
    st.binary(max_size=30),
    st.none() | st.builds(BrokerMetadata, st.none() | MILLIS, st.none() | MILLIS),
)
def test_entries_are_reversible_and_a_changed_bit_is_seen(
    said: bytes, payload: bytes, broker: BrokerMetadata | None
) -> None:
    entry = WireEntry(said, payload, broker)
    data = write_entry(entry)
    assert read_entry(data, checksum_required=True) == entry
    at = len(data) - len(payload) - len(said) - 4
    for changed in range(at, len(data)):
        with pytest.raises(CorruptRecord, match="checksum"):
            read_entry(data[:changed] + bytes([data[changed] ^ 1]) + data[changed + 1 :])


@given(st.binary(max_size=2000).map(lambda data: data * 3), st.sampled_from(Codec), st.integers(1, 40), st.data())
def test_payloads_are_decompressed_to_their_size_alone(
    plain: bytes, codec: Codec, more: int, data: st.DataObject
) -> None:
    packed = bytes(COMPRESS[codec](plain))
    assert decompress(packed, CompressionInfo(codec, len(plain))) == plain
    for size in {len(plain) + more, max(0, len(plain) - more)} - {len(plain)}:
        with pytest.raises(CorruptRecord):
            decompress(packed, CompressionInfo(codec, size))
    at = data.draw(st.integers(0, len(packed) - 1))
    changed = packed[:at] + data.draw(st.binary(max_size=3)) + packed[at + data.draw(st.integers(0, 3)) :]
    with suppress(CorruptRecord):
        assert len(decompress(changed, CompressionInfo(codec, len(plain)))) == len(plain)


@given(st.binary(max_size=60), metadata(), st.integers(0, 5), st.data())
def test_any_bytes_are_read_or_corrupt(noise: bytes, sent: PulsarMetadata, count: int, data: st.DataObject) -> None:
    said = encode_metadata(sent)
    at = data.draw(st.integers(0, len(said)))
    for each in (noise, said[:at], said + noise, said[:at] + noise + said[at + len(noise) :]):
        with suppress(CorruptRecord):
            read_entry(each)
        with suppress(CorruptRecord):
            assert len(decode_batch(each, count)) == count
        DECODERS["pulsar messages"](bytes([count]) + each)
        with suppress(CorruptRecord):
            found = decode_metadata(each)
            with suppress(MappingError):
                metadata_of(record_of(found, noise, epoch=0, now_ms=0))


@pytest.mark.parametrize(("name", "seed"), SEEDS)
def test_what_the_fuzzer_begins_with_can_be_read(name: str, seed: bytes) -> None:
    with suppress(CorruptRecord):
        DECODERS[name](seed[:-1])
    DECODERS[name](seed)


@given(U64, U64, U64, U64, st.none() | U64)
def test_a_receipt_made_by_hand_is_that_of_protobuf(
    producer: int, sequence_id: int, ledger: int, entry: int, highest: int | None
) -> None:
    by_protobuf = command(
        Type.SEND_RECEIPT,
        producer_id=producer,
        sequence_id=sequence_id,
        message_id={"ledgerId": ledger, "entryId": entry},
        highest_sequence_id=highest,
    )
    assert send_receipt(varint(producer), varint(sequence_id), ledger, entry, highest) == frame(by_protobuf)


@given(U64, U64)
def test_a_varint_made_by_hand_is_that_of_the_writer(small: int, large: int) -> None:
    for value in (small % 2**21, large):
        written = bytearray()
        write_varint(written, value)
        assert varint(value) == bytes(written)
