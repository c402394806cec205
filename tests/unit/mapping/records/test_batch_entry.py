"""Batch entries, rule by rule."""

from __future__ import annotations

import io
from typing import Any

import pytest
from fastavro import schemaless_reader, schemaless_writer

from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.records.batch_entry import SCHEMA, BatchMessage, decode_batch, encode_batch

EMPTY: dict[str, Any] = {field["name"]: None for field in SCHEMA["fields"]}


def columns_of(messages: list[BatchMessage]) -> dict[str, Any]:
    columns = schemaless_reader(io.BytesIO(encode_batch(messages)), SCHEMA, None)
    assert isinstance(columns, dict)
    return columns


def written(**columns: Any) -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, SCHEMA, {**EMPTY, **columns})
    return out.getvalue()


def test_a_column_that_no_message_needs_is_null() -> None:
    assert columns_of([BatchMessage(b"a"), BatchMessage(b"b")]) == {**EMPTY, "payloads": [b"a", b"b"]}


def test_a_null_payload_is_not_an_empty_one() -> None:
    columns = decode_batch(encode_batch([BatchMessage(None), BatchMessage(b"")]), 2)
    assert [columns.payload(0), columns.payload(1)] == [None, b""]


def test_absent_keys_are_listed_by_index() -> None:
    columns = columns_of([BatchMessage(b"", b"k"), BatchMessage(b""), BatchMessage(b"", b"")])
    assert (columns["keys"], columns["null_keys"]) == ([b"k", b"", b""], [1])


def test_empty_properties_are_none() -> None:
    columns = decode_batch(
        encode_batch([BatchMessage(b"", properties={}), BatchMessage(b"", properties={"a": "b"})]), 2
    )
    assert [columns.message(0).properties, columns.message(1).properties] == [None, {"a": "b"}]


def test_sequence_ids_may_be_left_to_the_record() -> None:
    columns = decode_batch(encode_batch([BatchMessage(b""), BatchMessage(b"", sequence_id=0)]), 2)
    assert [columns.message(0).sequence_id, columns.message(1).sequence_id] == [None, 0]


@pytest.mark.parametrize("index", [-1, 2])
def test_a_message_outside_the_batch_is_an_index_error(index: int) -> None:
    columns = decode_batch(encode_batch([BatchMessage(b"a"), BatchMessage(b"b")]), 2)
    with pytest.raises(IndexError):
        columns.message(index)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [BatchMessage(b"", sequence_id=-1)],
        [BatchMessage(b"", sequence_id=2**63)],
        [BatchMessage(b"", event_time_ms=2**63)],
        [BatchMessage(b"", properties={"a": "\ud800"})],
        [BatchMessage("text")],  # type: ignore[arg-type]
    ],
)
def test_what_no_batch_can_hold_is_refused(messages: list[BatchMessage]) -> None:
    with pytest.raises(MappingError):
        encode_batch(messages)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b"", "cannot be read"),
        (b"\xff" * 30, "cannot be read"),
        (written(payloads=[b"a"]) + b"\x00", "expected 18|ends at byte"),
        (written(payloads=[]), "has 0 messages, expected 1"),
        (written(payloads=[b"a", b"b"]), "has 2 messages, expected 1"),
        (written(payloads=[b"a"], keys=[b"a", b"b"]), "has 2 keys"),
        (written(payloads=[b"a"], event_times=[]), "has 0 event_times"),
        (written(payloads=[b"a"], null_payloads=[0]), "calls 0 of payloads null"),
        (written(payloads=[b""], null_payloads=[1]), "calls 1 of payloads null"),
        (written(payloads=[b""], null_payloads=[-1]), "calls -1 of payloads null"),
        (written(payloads=[b"a"], null_keys=[0]), "calls 0 of keys null"),
    ],
)
def test_what_is_no_batch_of_one_is_corrupt(value: bytes, told: str) -> None:
    with pytest.raises(CorruptRecord, match=told):
        decode_batch(value, 1)
