"""Our schema registry under Confluent's clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.http_server import ServerTls
from pulsar_on_kafka.integrations.schema_registry.server import SchemaRegistryServer


@contextmanager
def a_schema_registry(admin: AdminClient) -> Iterator[str]:
    """The URL of a registry in this process, of the administrator's cluster."""
    server = SchemaRegistryServer("127.0.0.1", 0, ServerTls())
    try:
        server.connect(admin.node)
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.close()


@contextmanager
def confluents_client(url: str, **more: str) -> Iterator[SchemaRegistryClient]:
    """Confluent's client of a registry."""
    found = SchemaRegistryClient({"url": url, **{name.replace("_", "."): value for name, value in more.items()}})
    try:
        yield found
    finally:
        found.close()


def records_of(bootstrap: str, kafka_topic: str, count: int) -> list[Message]:
    """The first records of a topic with one partition, as a Kafka program reads them."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "foreign"})
    consumer.assign([TopicPartition(kafka_topic, 0, 0)])
    found: list[Message] = []
    try:
        while len(found) < count:
            got = consumer.consume(count - len(found), timeout=60)
            assert got, f"{len(found)} of {count} records in {kafka_topic}"
            found += got
    finally:
        consumer.close()
    return found


def deserialized(record: Message, deserializer: Callable[..., Any], field: MessageField = MessageField.VALUE) -> Any:
    """Key or value of a record, as a program with Confluent's deserializer gets it."""
    data = record.value() if field == MessageField.VALUE else record.key()
    return deserializer(data, SerializationContext(str(record.topic()), field, record.headers() or []))
