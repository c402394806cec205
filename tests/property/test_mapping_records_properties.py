"""Headers, batch entries and state keys: round trips, and garbage raises CorruptRecord and nothing else."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, cast

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records import record_headers as names
from pulsar_on_kafka_mapping.records.batch_entry import BatchMessage, decode_batch, encode_batch
from pulsar_on_kafka_mapping.records.message_record import (
    BatchInfo,
    ChunkInfo,
    Codec,
    CompressionInfo,
    MessageMetadata,
    decode_headers,
    encode_headers,
    is_plain,
    key_text,
)
from pulsar_on_kafka_mapping.records.original_position import OriginalPosition
from pulsar_on_kafka_mapping.records.record_headers import (
    PREFIX,
    PRODUCER,
    SCHEMA_VERSION,
    TXN,
    MarkerType,
    producer_suffix,
)
from pulsar_on_kafka_mapping.state.state_keys import Key, decode_key, encode_key
from tests.seeds import examples

TEXT = st.text(max_size=12)
NAMES = (st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=10)) | st.sampled_from(
    ["__pulsar.producer", "__pulsar.p.", "__pulsar.p.a", "__pulsar."]
)
PROPERTIES = st.dictionaries(NAMES, TEXT, max_size=4)
MILLIS = st.integers(0, 2**64 - 1)
U64 = st.integers(0, 2**64 - 1)
NUMBERS = st.integers(0, 2**63 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
CLUSTERS = st.text(st.sampled_from("ab,%2C") | st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
CHUNKS = st.integers(1, 1000).flatmap(
    lambda chunks: st.builds(ChunkInfo, st.integers(0, chunks - 1), st.just(chunks), st.integers(0, 2**40), TEXT)
)


@st.composite
def metadata(draw: st.DrawFn) -> MessageMetadata:
    key_is_ordering_key = draw(st.booleans())
    return MessageMetadata(
        properties=draw(PROPERTIES),
        event_time_ms=draw(MILLIS),
        deliver_at_ms=draw(st.none() | MILLIS),
        publish_time_ms=draw(st.none() | MILLIS),
        ordering_key=None if key_is_ordering_key else draw(st.none() | st.binary(max_size=8)),
        key_is_ordering_key=key_is_ordering_key,
        schema_version=draw(st.none() | st.binary(min_size=8, max_size=8)),
        txn=draw(st.none() | st.builds(TxnId, U64, U64)),
        chunk=draw(st.none() | CHUNKS),
        replicated_from=draw(TEXT),
        original_id=draw(st.none() | st.builds(OriginalPosition, NUMBERS, st.integers(0, 8191), NUMBERS, NUMBERS)),
        replicate_to=draw(st.none() | st.lists(CLUSTERS, max_size=3).map(tuple)),
        marker=draw(st.none() | st.sampled_from(MarkerType)),
        batch=draw(st.none() | st.builds(BatchInfo, st.integers(1, 9), st.integers(1, 10**6))),
        compression=draw(st.none() | st.builds(CompressionInfo, st.sampled_from(Codec), U64)),
        pulsar_fields=draw(st.binary(max_size=8)),
    )


@given(metadata(), LONGS, st.integers(0, 2**31), TEXT)
def test_headers_are_reversible(sent: MessageMetadata, sequence_id: int, epoch: int, producer: str) -> None:
    headers = [(PRODUCER, f"{sequence_id}{producer_suffix(epoch, producer)}".encode()), *encode_headers(sent)]
    read = decode_headers(headers)
    assert (read.sequence_id, read.producer_epoch, read.producer_name) == (sequence_id, epoch, producer)
    for field in MessageMetadata.__struct_fields__:
        assert getattr(read, field) == getattr(sent, field), field


SYSTEM_HEADERS = st.sampled_from(sorted(v for k, v in vars(names).items() if k.isupper() and isinstance(v, str)))
VALUES = st.none() | st.binary(max_size=20) | st.text("0123456789:-", max_size=24).map(str.encode)


@settings(max_examples=examples(500))
@given(st.lists(st.tuples(SYSTEM_HEADERS | TEXT, VALUES), max_size=4))
def test_garbage_in_headers_is_a_corrupt_record(headers: list[tuple[str, bytes | None]]) -> None:
    with suppress(CorruptRecord):
        decode_headers(headers)


@given(st.lists(st.tuples(SYSTEM_HEADERS | NAMES, VALUES), max_size=4))
def test_plain_is_a_record_with_no_system_header_but_the_producers(headers: list[tuple[str, bytes | None]]) -> None:
    system = {name for name, _ in headers if name.startswith(PREFIX)}
    assert is_plain(headers) == (system <= {PRODUCER, SCHEMA_VERSION, TXN})


@given(st.none() | st.binary(max_size=20))
def test_a_kafka_key_always_has_a_text(key: bytes | None) -> None:
    key_text(key).encode("utf-8")


MESSAGES = st.builds(
    BatchMessage,
    payload=st.none() | st.binary(max_size=20),
    key=st.none() | st.binary(max_size=5),
    ordering_key=st.none() | st.binary(max_size=5),
    properties=st.none() | st.dictionaries(TEXT, TEXT, min_size=1, max_size=3),
    event_time_ms=st.just(0) | LONGS,
    sequence_id=st.none() | st.integers(0, 2**63 - 1),
)
BATCHES = st.lists(MESSAGES, min_size=1, max_size=8)


@settings(max_examples=examples(300))
@given(BATCHES)
def test_batches_are_reversible(messages: list[BatchMessage]) -> None:
    columns = decode_batch(encode_batch(messages), len(messages))
    assert len(columns) == len(messages)
    assert [columns.message(index) for index in range(len(columns))] == messages
    assert [columns.payload(index) for index in range(len(columns))] == [message.payload for message in messages]


@given(BATCHES, st.data())
def test_a_damaged_batch_is_read_or_a_corrupt_record(messages: list[BatchMessage], data: st.DataObject) -> None:
    value = bytearray(encode_batch(messages))
    at = data.draw(st.integers(0, len(value) - 1))
    value[at] = data.draw(st.integers(0, 255))
    _read_whole(bytes(value), len(messages))


@settings(max_examples=examples(500))
@given(st.binary(max_size=60), st.integers(0, 5))
def test_garbage_is_no_batch(value: bytes, expected_count: int) -> None:
    _read_whole(value, expected_count)


@given(BATCHES, st.integers(1, 20))
def test_a_batch_cut_short_is_a_corrupt_record(messages: list[BatchMessage], missing: int) -> None:
    value = encode_batch(messages)[:-missing]
    try:
        decode_batch(value, len(messages))
    except CorruptRecord:
        return
    raise AssertionError(f"{value!r} was read")


def _read_whole(value: bytes, expected_count: int) -> None:
    try:
        columns = decode_batch(value, expected_count)
    except CorruptRecord:
        return
    assert len(columns) == expected_count
    for index in range(expected_count):
        columns.message(index)


KINDS = {str(kind.__struct_config__.tag): kind for kind in Key.__subclasses__()}


def test_no_two_kinds_of_keys_have_one_tag() -> None:
    assert len(KINDS) == len(Key.__subclasses__()) > 30


@st.composite
def keys(draw: st.DrawFn) -> Key:
    kind: Any = draw(st.sampled_from(list(KINDS.values())))
    values = [draw(TEXT if field.type is str else LONGS) for field in msgspec.structs.fields(kind)]
    return cast("Key", kind(*values))


@settings(max_examples=examples(300))
@given(keys())
def test_state_keys_are_reversible(key: Key) -> None:
    assert decode_key(encode_key(key)) == key


@given(keys(), keys())
def test_state_keys_are_injective(one: Key, other: Key) -> None:
    assert (encode_key(one) == encode_key(other)) == (one == other)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT | st.sampled_from(sorted(KINDS)),
    lambda inner: st.lists(inner, max_size=5),
)


@settings(max_examples=examples(500))
@given(st.binary(max_size=40) | JSON.map(lambda value: repr(value).replace("'", '"').encode("utf-8", "replace")))
def test_only_canonical_state_keys_are_read(data: bytes) -> None:
    try:
        key = decode_key(data)
    except CorruptRecord:
        return
    assert encode_key(key) == data
