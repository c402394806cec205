"""A small program as users write it: `mypy --strict` of `make check` finds no error in it. Nothing runs it."""

from __future__ import annotations

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.schema import AvroSchema, Integer, Record, String


class Order(Record):
    id = Integer()
    name = String()


def sent(result: pulsar.Result, message_id: pulsar.MessageId) -> None:
    print(result, message_id)


def listen(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
    consumer.acknowledge(message)


def main() -> None:
    client = pulsar.Client("kafka://localhost:9092")
    producer = client.create_producer("orders", schema=AvroSchema(Order))
    order = Order(id=1, name="x")
    order.id = 5
    total: int = order.id + 1
    producer.send_async(order, sent)
    consumer = client.subscribe("orders", "billing", message_listener=listen)
    try:
        message = consumer.receive(1000)
        consumer.acknowledge(message.message_id())
        consumer.seek(message.message_id())
    except pulsar.Timeout:
        print(total)
    client.create_reader("orders", pulsar.MessageId.earliest).close()
    client.close()
