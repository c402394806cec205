"""Records, schemas and policies that the tests of topics with schemas share."""

from __future__ import annotations

from typing import Any

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.schema import AvroSchema, Integer, Record, Schema, String
from pulsar_on_kafka.schema_compat import SchemaInfo
from pulsar_on_kafka_mapping.names.topic_name import TopicName


class Order(Record):
    item = String()
    amount = Integer()


class OrderByText(Record):
    """A schema that cannot follow `Order`: a field has another type."""

    item = Integer(required=True)
    amount = String(required=True)


def second_version() -> Schema:
    """What a program of a later day has for `Order`."""
    definition: dict[str, Any] = Order.schema()
    note = {"name": "note", "type": "string", "default": "none"}
    return AvroSchema(None, {**definition, "fields": [*definition["fields"], note]})


def soon() -> Deadline:
    return Deadline.after(20)


def registered(admin: AdminClient, topic: str) -> list[SchemaInfo]:
    """The topic's live schemas, oldest first."""
    return [stored.info for stored in admin.node.schemas.versions(TopicName.parse(topic), soon())]


def latest_version(admin: AdminClient, topic: str) -> int | None:
    latest = admin.node.schemas.latest(TopicName.parse(topic), soon())
    return None if latest is None else latest.version.number


def set_policies(admin: AdminClient, topic: str, **policies: Any) -> None:
    """Of the topic itself; it is made when it does not exist."""
    name = TopicName.parse(topic)
    admin.node.topics.open(name, soon())
    admin.node.topics.change_policies(name, lambda before: {**before, **policies}, soon())


def shown(version: int) -> str:
    """What `Message.schema_version` says of it."""
    return version.to_bytes(8, "big").decode("latin-1")


def receive_one(consumer: pulsar.Consumer) -> pulsar.Message:
    return consumer.receive(15_000)
