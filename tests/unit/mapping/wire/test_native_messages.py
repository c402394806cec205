"""An entry is taken apart into messages that were as good as sent alone, or stays as it came."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import pytest
from msgspec import structs

from pulsar_on_kafka_mapping.records.message_record import Codec
from pulsar_on_kafka_mapping.records.record_headers import (
    BATCH,
    COMPRESSION,
    DELIVER_AT,
    EVENT_TIME,
    METADATA,
    ORDERING_KEY,
    SCHEMA_VERSION,
    TXN,
)
from pulsar_on_kafka_mapping.wire.entries import MAX_ENTRY_BYTES
from pulsar_on_kafka_mapping.wire.message_metadata import Field, PulsarMetadata, encode_fields
from pulsar_on_kafka_mapping.wire.native_messages import NativeMessage, taken_apart
from pulsar_on_kafka_mapping.wire.stored_entries import EntryRecord, record_of

BATCHED = PulsarMetadata(producer_name="p", sequence_id=5, publish_time_ms=7, messages=3)


def batch(*singles: tuple[Sequence[Field], bytes]) -> bytes:
    found = b""
    for fields, payload in singles:
        metadata = encode_fields([*fields, (3, len(payload))])
        found += len(metadata).to_bytes(4, "big") + metadata + payload
    return found


PLAIN = batch(([], b"a"), ([], b"b"), ([], b"c"))


def records(metadata: PulsarMetadata, payload: bytes) -> list[EntryRecord]:
    found = taken_apart(metadata, payload, MAX_ENTRY_BYTES)
    assert found is not None
    return [record_of(*each, epoch=0, now_ms=7) for each in found]


def test_each_message_has_its_own_and_what_is_said_of_the_batch() -> None:
    metadata = structs.replace(
        BATCHED, schema_version=bytes(8), txn_most=1, txn_least=2, deliver_at_ms=99, partition_key=b"of the first",
        event_time_ms=4, others=[(30, 1), (31, b"later")],
    )  # fmt: skip
    first, second, third = records(
        metadata,
        batch(
            ([(2, b"k"), (7, b"o"), (5, 77), (1, encode_fields([(1, b"n"), (2, b"v")]))], b"one"),
            ([(2, b"/w=="), (6, 1), (8, 40)], b"two"),
            ([(9, 1), (10, 1), (8, 41)], b""),
        ),
    )
    assert (first.key, first.value, second.key, second.value) == (b"k", b"one", b"\xff", b"two")
    assert (third.key, third.value) == (None, None)
    for each in (first, second, third):
        headers = dict(each.headers)
        assert headers[SCHEMA_VERSION] == bytes(8)
        assert {TXN: headers[TXN], DELIVER_AT: headers[DELIVER_AT]} == {TXN: b"1:2", DELIVER_AT: b"99"}
        assert not {BATCH, COMPRESSION} & headers.keys()
    assert (dict(first.headers)["n"], dict(first.headers)[ORDERING_KEY]) == (b"v", b"o")
    assert dict(first.headers)[EVENT_TIME] == b"77"
    assert EVENT_TIME not in dict(second.headers)
    assert dict(second.headers)[METADATA] == encode_fields([(31, b"later")])
    assert dict(third.headers)[METADATA] == encode_fields([(31, b"later"), (30, 1)])
    assert [each.headers[0][1] for each in (first, second, third)] == [b"5:0:p", b"40:0:p", b"41:0:p"]


def test_one_message_is_decompressed() -> None:
    metadata = structs.replace(BATCHED, messages=None, compression=Codec.ZLIB, uncompressed_bytes=300)
    (found,) = records(metadata, zlib.compress(b"x" * 300))
    assert found.value == b"x" * 300
    assert not {BATCH, COMPRESSION} & dict(found.headers).keys()


@pytest.mark.parametrize(
    ("fields", "payload"),
    [
        ({"messages": None}, b"sent alone"),
        ({"messages": None, "null_value": 1, "compression": 2}, b""),
        ({"encryption": [(15, b"x" * 12)]}, PLAIN),
        ({"messages": None, "chunks": 2, "compression": 2, "uncompressed_bytes": 9}, b"half"),
        ({"messages": 4}, PLAIN),
        ({"messages": 0}, PLAIN),
        ({"compression": 2, "uncompressed_bytes": len(PLAIN)}, b"no zlib"),
        ({"compression": 9, "uncompressed_bytes": len(PLAIN)}, PLAIN),
        ({"compression": 2, "uncompressed_bytes": MAX_ENTRY_BYTES + 1}, zlib.compress(PLAIN)),
        ({"messages": 1}, batch(([(2, b"no base64"), (6, 1)], b"a"))),
    ],
)
def test_an_entry_that_is_no_messages_here_stays_as_it_came(fields: dict[str, object], payload: bytes) -> None:
    assert taken_apart(structs.replace(BATCHED, **fields), payload, MAX_ENTRY_BYTES) is None


@pytest.mark.parametrize(
    ("first", "highest", "ids", "apart"),
    [
        (5, None, [None, None, None], True),
        (5, 7, [5, 6, 7], True),
        (5, 9, [5, 7, 9], True),
        (5, None, [5, 7, 9], False),  # by key, of the C++ client
        (9, 9, [5, 7, 9], False),  # by key, of Java's
        (5, 7, [5, 5, 7], False),
        (5, 7, [5, 8, 7], False),
    ],
)
def test_with_deduplication_only_batches_are_that_have_the_ids_they_name(
    first: int, highest: int | None, ids: list[int | None], apart: bool
) -> None:
    metadata = structs.replace(BATCHED, sequence_id=first, highest_sequence_id=highest)
    payload = batch(*(([] if each is None else [(8, each)], b"a") for each in ids))
    assert (taken_apart(metadata, payload, MAX_ENTRY_BYTES, deduplicated=True) is not None) is apart
    assert taken_apart(metadata, payload, MAX_ENTRY_BYTES) is not None


def test_a_message_that_does_not_fit_into_a_record_keeps_its_batch() -> None:
    payload = batch(([], b"short"), ([], b"x" * 100))
    metadata = structs.replace(BATCHED, messages=2)
    assert taken_apart(metadata, payload, 99) is None
    assert taken_apart(metadata, payload, 100) == [
        NativeMessage(structs.replace(BATCHED, messages=None, properties=(), others=[], sequence_id=number), data)
        for number, data in ((5, b"short"), (6, b"x" * 100))
    ]
