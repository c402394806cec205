"""A producer's schema shapes its messages, on registries over a log in memory."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.publishing import outgoing_schema as outgoing
from pulsar_on_kafka.broker.publishing.outgoing_message import OutgoingMessage, SendRequest
from pulsar_on_kafka.broker.publishing.outgoing_schema import (
    LetterSchema,
    Marks,
    OutgoingSchema,
    RecordKey,
    SeparatedKeys,
    TopicsLatest,
    outgoing_schema,
)
from pulsar_on_kafka.broker.schema_registry.registry import SchemaRegistry
from pulsar_on_kafka.exceptions import InvalidMessage
from pulsar_on_kafka.schema import (
    AutoProduceBytesSchema,
    AvroSchema,
    BytesSchema,
    KeyValue,
    KeyValueEncodingType,
    KeyValueSchema,
    Schema,
    StringSchema,
)
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.records.record_headers import SCHEMA_VERSION
from tests.memory_log import MemoryStateLog
from tests.registries import TOPIC, process, soon

OPENED = Topic(TOPIC, "t", "id", 1, False, LedgerLayout(1))
ONE: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "boolean"}]}
TWO: dict[str, Any] = {**ONE, "fields": [*ONE["fields"], {"name": "b", "type": "long", "default": 0}]}
SEPARATED = KeyValueSchema(StringSchema(), StringSchema(), KeyValueEncodingType.SEPARATED)


@pytest.fixture
def schemas() -> SchemaRegistry:
    return process(MemoryStateLog())


def opened(schemas: SchemaRegistry, schema: Schema) -> OutgoingSchema:
    return outgoing_schema(schema, OPENED, schemas, soon())


def version(number: int) -> Marks:
    return ((SCHEMA_VERSION, number.to_bytes(8, "big")),)


def test_the_version_is_a_header_made_once(schemas: SchemaRegistry) -> None:
    first, second = (opened(schemas, AvroSchema(None, definition)) for definition in (ONE, TWO))
    assert (first.marks, second.marks) == (version(0), version(1))
    assert not first.shapes


def test_bytes_and_copies_have_none(schemas: SchemaRegistry) -> None:
    opened(schemas, StringSchema())
    for schema in (BytesSchema(), LetterSchema()):
        assert opened(schemas, schema).marks == ()


def test_a_copy_is_for_every_topic_and_bytes_are_not() -> None:
    schemas = process(MemoryStateLog())
    opened(schemas, StringSchema())
    enforced = replace(OPENED, policies={"schema_validation_enforced": True}, namespace_policies={})
    with pytest.raises(errors.IncompatibleSchema, match="without a schema"):
        outgoing_schema(BytesSchema(), enforced, schemas, soon())
    outgoing_schema(LetterSchema(), enforced, schemas, soon())


def test_a_separated_key_becomes_the_key(schemas: SchemaRegistry) -> None:
    schema = opened(schemas, SEPARATED)
    assert isinstance(schema, SeparatedKeys)
    assert schema.shape(KeyValue("k", "v"), None) == (b"v", b"k", version(0))
    assert schema.shape(KeyValue(None, "v"), None) == (b"v", None, version(0))
    assert schema.shape(None, None) == (None, None, version(0))
    with pytest.raises(ValueError, match="'mine'"):
        schema.shape(KeyValue("k", "v"), "mine")
    with pytest.raises(TypeError, match="KeyValue"):
        schema.shape("text", None)


def test_an_empty_key_is_a_key(schemas: SchemaRegistry) -> None:
    key = opened(schemas, SEPARATED).shape(KeyValue("", "v"), None)[1]
    assert key == b""
    made, metadata = SendRequest(b"", None, partition_key=key).key_and_metadata(SystemClock().now_ms)
    assert (made, metadata) == (b"", None)
    made, metadata = SendRequest(b"", None, partition_key=key, ordering_key="order").key_and_metadata(
        SystemClock().now_ms
    )
    assert made == b""
    assert metadata is not None
    assert metadata.ordering_key == b"order"


def test_a_router_sees_the_key_as_text() -> None:
    assert OutgoingMessage(b"", None, RecordKey(b"k"), None, None).partition_key() == "k"
    assert OutgoingMessage(b"", None, RecordKey(b"\xff"), None, None).partition_key() == "/w=="


def test_bytes_are_no_key_of_an_application() -> None:
    given: Any = b"k"
    with pytest.raises(ValueError, match="partition_key"):
        SendRequest(b"", None, partition_key=given).key_and_metadata(SystemClock().now_ms)


def test_what_is_to_be_delivered_after_a_time_has_a_moment() -> None:
    now_ms = time.time_ns() // 1_000_000
    _, metadata = SendRequest(b"", None, deliver_after=timedelta(seconds=60)).key_and_metadata(SystemClock().now_ms)
    assert metadata is not None
    assert metadata.deliver_at_ms is not None
    assert now_ms + 60_000 <= metadata.deliver_at_ms < now_ms + 120_000
    milliseconds: Any = 7
    with pytest.raises(ValueError, match="deliver_after"):
        SendRequest(b"", None, deliver_after=milliseconds).key_and_metadata(SystemClock().now_ms)


# AUTO_PRODUCE_BYTES ---------------------------------------------------------------------------------------------------


def test_a_topic_without_a_schema_takes_any_bytes(schemas: SchemaRegistry) -> None:
    schema = opened(schemas, AutoProduceBytesSchema())
    assert schema.shape(b"anything", "k") == (b"anything", "k", ())
    assert schema.shape(None, None) == (None, None, ())
    with pytest.raises(TypeError, match="bytes"):
        schema.shape("text", None)


def test_bytes_that_fit_only_a_later_schema_bring_it(schemas: SchemaRegistry) -> None:
    one = AvroSchema(None, ONE)
    opened(schemas, one)
    auto = opened(schemas, AutoProduceBytesSchema())
    assert auto.shape(one.encode({"a": True}), None)[2] == version(0)
    with pytest.raises(InvalidMessage):
        auto.shape(b"", None)
    schemas.delete(TOPIC, soon())
    schemas.upload(TOPIC, StringSchema().schema_info(), soon())
    assert auto.shape(b"", None)[2] == version(2)


def test_a_later_schema_is_found_in_time(schemas: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (AvroSchema(None, definition) for definition in (ONE, TWO))
    opened(schemas, one)
    auto = opened(schemas, AutoProduceBytesSchema())
    assert isinstance(auto, TopicsLatest)
    opened(schemas, two)
    payload = two.encode({"a": True, "b": 5})
    assert auto.shape(payload, None)[2] == version(0)  # it can be read by the first, too
    monkeypatch.setattr(outgoing, "LATEST_FOR_S", 0.0)
    assert auto.shape(payload, None)[2] == version(1)


def test_bytes_of_a_schema_of_ones_own_are_registered(schemas: SchemaRegistry) -> None:
    schema = opened(schemas, AutoProduceBytesSchema(AvroSchema(None, ONE)))
    assert (schema.marks, schema.shapes) == (version(0), False)


@pytest.mark.parametrize(("sequence_id", "refused"), [(-1, ValueError), (2**63, TypeError), (10**60, TypeError)])
def test_a_sequence_id_that_pulsar_has_no_room_for_is_refused(sequence_id: int, refused: type[Exception]) -> None:
    """By the official client's errors."""
    SendRequest(b"", None, sequence_id=2**63 - 1).key_and_metadata(SystemClock().now_ms)
    with pytest.raises(refused, match=f"sequence_id must be .*, got {sequence_id}"):
        SendRequest(b"", None, sequence_id=sequence_id).key_and_metadata(SystemClock().now_ms)
