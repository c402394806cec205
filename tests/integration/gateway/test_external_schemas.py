"""Schemas whose definition is in a registry of the program's own: type 22 of Pulsar 5."""

from __future__ import annotations

import time

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.schema_compat import SchemaType
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type
from pulsar_on_kafka_mapping.wire.entries import read_entry
from pulsar_on_kafka_mapping.wire.message_metadata import PulsarMetadata, decode_metadata
from tests.integration.gateway.rest import Rest
from tests.integration.gateway.wire import Wire
from tests.steps import Unique

pytestmark = pytest.mark.kafka

EXTERNAL = {"name": "ext", "type": 22, "schema_data": b"any bytes"}
TEXT = {"name": "text", "type": 1, "schema_data": b""}


@pytest.mark.parametrize("entry_format", ["raw", "native"])
def test_messages_keep_their_schema_id_and_stamps(
    wire: Wire, admin: AdminClient, unique: Unique, entry_format: str
) -> None:
    topic = unique()
    admin.create_topic(topic)
    admin.set_policy(topic, "entry_format", entry_format)
    wire.connect()
    opened = wire.ask(
        Type.SUBSCRIBE, topic=topic, subscription="s", subType=1, consumer_id=1, request_id=1, schema=EXTERNAL
    )
    assert opened.request_id == 1
    producer = wire.ask(Type.PRODUCER, topic=topic, producer_id=1, request_id=2, schema=EXTERNAL)
    assert producer.schema_version == bytes(8)
    sent = PulsarMetadata(
        "p", 0, time.time_ns() // 1_000_000, schema_version=bytes(8), schema_id=b"\x00\x07", entry_hash_min=5,
        entry_hash_max=9,
    )  # fmt: skip
    wire.send_as(sent, 1, b"payload")
    assert wire.hear()[0] is Type.SEND_RECEIPT
    wire.say(Type.FLOW, consumer_id=1, messagePermits=1)
    assert wire.hear()[0] is Type.MESSAGE
    found = decode_metadata(read_entry(wire.entry).metadata)
    assert (found.schema_id, found.entry_hash_min, found.entry_hash_max) == (b"\x00\x07", 5, 9)
    assert wire.payload() == b"payload"


def test_an_external_schema_follows_its_type_only(
    wire: Wire, admin: AdminClient, client: pulsar.Client, unique: Unique
) -> None:
    topic, other = unique(), unique()
    wire.connect()
    assert wire.ask(Type.PRODUCER, topic=topic, producer_id=1, request_id=1, schema=EXTERNAL).request_id == 1
    assert wire.ask(Type.PRODUCER, topic=other, producer_id=2, request_id=2, schema=TEXT).request_id == 2
    for number, (name, schema) in enumerate([(topic, TEXT), (other, EXTERNAL)], 3):
        refused = wire.ask(Type.PRODUCER, topic=name, producer_id=number, request_id=number, schema=schema)
        assert refused.error == ServerError.INCOMPATIBLE_SCHEMA
    changed = {**EXTERNAL, "schema_data": b"other bytes"}
    assert wire.ask(Type.PRODUCER, topic=topic, producer_id=5, request_id=5, schema=changed).schema_version[-1] == 1
    assert admin.get_schema_info(topic).type is SchemaType.EXTERNAL
    with pytest.raises(pulsar.exceptions.IncompatibleSchema):
        client.create_producer(topic, schema=pulsar.schema.StringSchema())
    stored = wire.ask(Type.GET_SCHEMA, request_id=6, topic=topic).schema
    assert (stored.type, stored.schema_data) == (22, b"other bytes")


def test_rest_has_external_schemas(rest: Rest, unique: Unique) -> None:
    here = f"/admin/v2/schemas/public/default/{unique()}"
    body = {"type": "EXTERNAL", "schema": "any text", "properties": {}}
    assert rest.posts(f"{here}/schema", body) == {"version": {"version": 0}}
    assert (rest.get(f"{here}/schema")["type"], rest.get(f"{here}/schema")["data"]) == ("EXTERNAL", "any text")
