"""An ordinary program as users write it: `mypy --strict` and pyright find no error in it. Nothing runs it."""

from __future__ import annotations

import asyncio
from enum import Enum

import pulsar_on_kafka as pulsar
import pulsar_on_kafka.asyncio as pulsar_asyncio
from pulsar_on_kafka._pulsar import MessageId as NativeMessageId
from pulsar_on_kafka.schema import (
    Array,
    AvroSchema,
    Boolean,
    Bytes,
    CustomEnum,
    Double,
    Float,
    Integer,
    JsonSchema,
    Long,
    Map,
    Record,
    String,
    StringSchema,
)


class Colour(Enum):
    RED = 1
    BLUE = 2


class Address(Record):
    street = String()
    number = Integer()


class Order(Record):
    id = Integer()
    name = String(required=True)
    price = Double()
    weight = Float()
    count = Long(default=1)
    paid = Boolean()
    raw = Bytes()
    colour = Colour
    address = Address()
    size = CustomEnum(Colour)
    tags = Array(String())
    lines = Array(Address())
    amounts = Map(Double())


def sent(result: pulsar.Result, message_id: pulsar.MessageId) -> None:
    print(result == pulsar.Result.Ok, message_id.ledger_id())


def sent_with_native_id(result: pulsar.Result, message_id: NativeMessageId) -> None:
    print(result, message_id)


def listen(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
    consumer.acknowledge(message)


def read(reader: pulsar.Reader, message: pulsar.Message) -> None:
    print(reader.topic(), message.data().decode(), message.properties().get("k", ""))


def send(client: pulsar.Client) -> pulsar.MessageId:
    producer = client.create_producer(
        "orders",
        schema=AvroSchema(Order),
        batching_enabled=True,
        compression_type=pulsar.CompressionType.LZ4,
        properties={"team": "billing"},
    )
    order = Order(id=1, name="x")
    order.id = 5
    total: int = order.id % 50 + order.count
    first: str = order.name.upper() + order.tags[0] + order.address.street
    cost: float = order.price * order.amounts["tax"] + order.weight
    raw: bytes = order.raw or (b"paid" if order.paid else b"")
    print(first, cost, raw, order.size.name, order.lines[0].number)
    order.name = None
    producer.send_async(order, sent)
    producer.send_async(order, sent_with_native_id, properties={"k": "v"}, partition_key=str(total))
    producer.send_async(order, callback=None)
    producer.flush()
    stored: pulsar.MessageId = producer.send(order, event_timestamp=1)
    producer.close()
    text = client.create_producer("lines", schema=StringSchema())
    text.send("one")
    client.create_producer("json", schema=JsonSchema(Order)).close()
    return stored


def consume(client: pulsar.Client, stored: pulsar.MessageId) -> None:
    consumer = client.subscribe(
        ["orders", "returns"],
        "billing",
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(3, "orders-dead"),
        batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(10, 1024, 100),
        negative_ack_redelivery_delay_ms=1000,
    )
    client.subscribe("orders", "listening", message_listener=listen)
    try:
        message = consumer.receive(timeout_millis=1000)
    except pulsar.Timeout:
        return
    here: pulsar.MessageId = message.message_id()
    native: NativeMessageId = message.message_id()
    consumer.acknowledge(message)
    consumer.acknowledge(here)
    consumer.acknowledge(native)
    consumer.acknowledge_cumulative(message.message_id())
    consumer.negative_acknowledge(message)
    consumer.negative_acknowledge(here)
    for each in consumer.batch_receive():
        consumer.acknowledge(each)
    kept: bytes = here.serialize()
    again: pulsar.MessageId = pulsar.MessageId.deserialize(kept)
    assert again == here
    assert stored <= here
    newest = max([here, again], key=lambda each: (each.ledger_id(), each.entry_id(), each.batch_index()))
    consumer.seek(newest)
    consumer.seek(pulsar.MessageId.earliest)
    consumer.seek(1_700_000_000_000)
    last: pulsar.MessageId = consumer.get_last_message_id()
    print(last, message.publish_timestamp(), message.partition_key(), message.redelivery_count())
    consumer.unsubscribe()
    consumer.close()


def listen_to_orders(consumer: pulsar.Consumer[Order], message: pulsar.Message[Order]) -> None:
    consumer.acknowledge(message)
    print(message.value().name.upper())


def typed(client: pulsar.Client) -> int:
    """Values have the schema's type."""
    orders: pulsar.Consumer[Order] = client.subscribe("orders", "typed", schema=AvroSchema(Order))
    lines = client.subscribe("lines", "typed", schema=StringSchema())
    fields = client.subscribe("raw", "typed", schema=AvroSchema(None, {"type": "record", "name": "R", "fields": []}))
    client.subscribe("orders", "typed", schema=JsonSchema(Order), message_listener=listen_to_orders)
    client.subscribe("orders", "untyped", schema=JsonSchema(Order), message_listener=listen)
    keys: list[str] = list(fields.receive().value())
    text: str = lines.batch_receive()[0].value().strip() + keys[0]
    reader = client.create_reader("orders", pulsar.MessageId.earliest, JsonSchema(Order))
    prices = client.create_table_view("prices", schema=StringSchema())
    price = prices.get("apples")
    print(text, price.upper() if price is not None else "", reader.read_next().value().tags)
    return orders.receive(1000).value().id % 50


async def typed_asynchronous(client: pulsar_asyncio.Client) -> str:
    consumer = await client.subscribe("orders", "billing", schema=AvroSchema(Order))
    message = await consumer.receive()
    return message.value().name


def look(client: pulsar.Client, start: pulsar.MessageId) -> None:
    first: pulsar.MessageId = pulsar.MessageId.earliest
    reader = client.create_reader("orders", first, reader_listener=read)
    reader.seek(start)
    while reader.has_message_available():
        print(reader.read_next(1000).value())
    reader.close()
    view = client.create_table_view("prices", schema=StringSchema())
    price = view.get("apples")
    print(price, len(view))
    view.for_each(lambda key, value: print(key, value))
    view.close()


def together(client: pulsar.Client, consumer: pulsar.Consumer, producer: pulsar.Producer) -> None:
    transaction: pulsar.Transaction = client.new_transaction(60_000)
    try:
        message = consumer.receive()
        producer.send(message.data(), txn=transaction)
        consumer.acknowledge(message, txn=transaction)
        transaction.commit()
    except pulsar.PulsarException as failure:
        print(str(failure))
        transaction.abort()


async def asynchronous() -> None:
    client = pulsar_asyncio.Client("kafka://localhost:9092")
    producer = await client.create_producer("orders")
    stored: pulsar.MessageId = await producer.send(b"x")
    consumer = await client.subscribe("orders", "billing")
    message = await consumer.receive()
    await consumer.acknowledge(message)
    await consumer.seek(stored)
    await client.close()


def main() -> None:
    client = pulsar.Client(
        "kafka://localhost:9092",
        authentication=pulsar.AuthenticationToken("token"),
        operation_timeout_seconds=30,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn),
    )
    stored = send(client)
    consume(client, stored)
    look(client, stored)
    typed(client)
    client.close()
    asyncio.run(asynchronous())
