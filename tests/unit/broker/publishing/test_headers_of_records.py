"""Headers of records of producers with schemas. librdkafka is a list; the real one is in integration."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_on_kafka.broker.publishing.batching import Batching
from pulsar_on_kafka.broker.publishing.in_flight import SendsInFlight
from pulsar_on_kafka.broker.publishing.outgoing_schema import OutgoingSchema, TopicsLatest, outgoing_schema
from pulsar_on_kafka.broker.schema_registry.registry import SchemaRegistry
from pulsar_on_kafka.client.producer.producer import Producer
from pulsar_on_kafka.exceptions import InvalidMessage
from pulsar_on_kafka.schema import (
    AutoProduceBytesSchema,
    BytesSchema,
    KeyValue,
    KeyValueEncodingType,
    KeyValueSchema,
    StringSchema,
)
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.records.batch_entry import decode_batch
from pulsar_on_kafka_mapping.records.message_record import decode_headers
from pulsar_on_kafka_mapping.records.record_headers import FENCE, VALUE_SCHEMA_ID
from tests.memory_log import MemoryStateLog
from tests.producer_stage import OPENED, Kafka, Kind, Produced, Stage, hand_over_batches, sender_of
from tests.registries import TOPIC, process, soon

SEPARATED = KeyValueSchema(StringSchema(), StringSchema(), KeyValueEncodingType.SEPARATED)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def version(number: int) -> bytes:
    return number.to_bytes(8, "big")


KINDS = list(Kind)


def sent(producer: Producer, kafka: Kafka, *values: Any, **options: Any) -> list[Produced]:
    for value in values:
        producer.send_async(value, None, **options)
    if isinstance(sender_of(producer).way, Batching):
        hand_over_batches(producer)
    return kafka.records


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("exclusive", [False, True])
def test_every_record_names_the_version(stage: Stage, kind: Kind, exclusive: bool) -> None:
    producer = stage.producer(OutgoingSchema(StringSchema(), SchemaVersion(3)), kind, exclusive=exclusive)
    for record in sent(producer, stage.kafka, "a", "b" * 60_000):
        assert record.versions == [version(3)]
        assert any(name == FENCE for name, _ in record.headers) is exclusive


@pytest.mark.parametrize("kind", KINDS)
def test_records_of_bytes_name_none(stage: Stage, kind: Kind) -> None:
    producer = stage.producer(OutgoingSchema(BytesSchema(), None), kind)
    assert [record.versions for record in sent(producer, stage.kafka, b"a")] == [[]]


def test_every_chunk_names_the_version(stage: Stage) -> None:
    producer = stage.producer(OutgoingSchema(StringSchema(), SchemaVersion(3)), Kind.CHUNKS)
    records = sent(producer, stage.kafka, "a" * 250_000)
    assert [record.versions for record in records] == [[version(3)]] * 3
    assert all(decode_headers(record.headers[1:]).chunk for record in records)


@pytest.mark.parametrize("kind", KINDS)
def test_records_name_the_schema_for_confluents_clients_one_by_one(stage: Stage, kind: Kind) -> None:
    """Also where batches are requested; chunks do not."""
    ids = ((VALUE_SCHEMA_ID, b"id"),)
    producer = stage.producer(OutgoingSchema(StringSchema(), SchemaVersion(3), ids), kind)
    assert not isinstance(sender_of(producer).way, Batching)
    small = sent(producer, stage.kafka, "a", "b")
    assert [[each for each in record.headers if each in ids] for record in small] == [[*ids]] * 2
    if kind is Kind.CHUNKS:
        chunks = sent(producer, stage.kafka, "a" * 250_000)[len(small) :]
        assert not any(each in ids for record in chunks for each in record.headers)


def test_a_producer_that_librdkafka_gave_up_goes_on_with_its_version(stage: Stage) -> None:
    producer = stage.producer(OutgoingSchema(StringSchema(), SchemaVersion(3)))
    sent(producer, stage.kafka, "a")
    stage.kafka.poll_inline()
    stage.kafka.fatal = RuntimeError("given up")
    assert [record.versions for record in sent(producer, stage.next, "b")] == [[version(3)]]
    assert isinstance(sender_of(producer).outlet.in_flight, SendsInFlight)


@pytest.mark.parametrize("kind", KINDS)
def test_the_key_of_a_separated_key_value_is_the_records_key(stage: Stage, kind: Kind) -> None:
    producer = stage.producer(_registered(process(MemoryStateLog()), SEPARATED), kind)
    (record,) = sent(producer, stage.kafka, KeyValue("k", "v"))
    assert (record.key, record.versions) == (b"k", [version(0)])
    if kind is Kind.BATCHES:
        columns = decode_batch(record.value or b"", 1)
        assert (columns.message(0).key, columns.payload(0)) == (b"k", b"v")
    else:
        assert record.value == b"v"


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_has_one_version(stage: Stage, kind: Kind) -> None:
    schemas = process(MemoryStateLog())
    auto = _registered(schemas, AutoProduceBytesSchema())
    assert isinstance(auto, TopicsLatest)
    producer = stage.producer(auto, kind)
    for _ in range(2):
        producer.send_async(b"no schema", None)
    schemas.upload(TOPIC, StringSchema().schema_info(), soon())
    auto.look(soon())
    for _ in range(2):
        producer.send_async(b"text", None)
    with pytest.raises(InvalidMessage):
        producer.send_async(b"\xff", None)
    records = sent(producer, stage.kafka)
    found = [(record.versions, _messages(record)) for record in records]
    if kind is Kind.BATCHES:
        assert found == [([], [b"no schema"] * 2), ([version(0)], [b"text"] * 2)]
    else:
        assert found == [([], [b"no schema"])] * 2 + [([version(0)], [b"text"])] * 2


def _messages(record: Produced) -> list[bytes | None]:
    batch = decode_headers(record.headers[1:]).batch
    return [record.value] if batch is None else list(decode_batch(record.value or b"", batch.messages).payloads)


def _registered(schemas: SchemaRegistry, schema: Any) -> OutgoingSchema:
    return outgoing_schema(schema, OPENED, schemas, soon())
