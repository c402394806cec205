"""Delayed delivery, compression, encryption, access modes, schemas."""

from __future__ import annotations

from datetime import timedelta

from pulsar_on_kafka.base.clock import SystemClock
from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import scenario

DELAYED, COMPRESSION, ENCRYPTION = "delayed", "compression", "encryption"
ACCESS, SCHEMAS = "access modes", "schemas"

# Delayed delivery -----------------------------------------------------------------------------------------------------


@scenario(area=DELAYED, title="deliver_after: not before its time, while others come")
def after(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic, kind="Shared")
    producer = run.producer(topic)
    producer.send(b"late", deliver_after=timedelta(seconds=4))
    producer.send(b"now")
    run.record_messages("first", run.receive(consumer, 1))
    run.record_messages("at once", run.rest(consumer, 1000))
    run.record_messages("in time", run.receive(consumer, 1), "data", "redelivery_count")


@scenario(area=DELAYED, title="deliver_at: messages come in the order of their times")
def at(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic, kind="Shared")
    producer = run.producer(topic)
    start = SystemClock().now_ms()
    for delay_ms in (6000, 2000, 4000):
        producer.send(str(delay_ms).encode(), deliver_at=start + delay_ms)
    run.record_messages("received", run.receive(consumer, 3))


@scenario(area=DELAYED, title="On Key_Shared a delayed message does not hold its key")
def on_key_shared(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic, kind="KeyShared")
    producer = run.producer(topic)
    producer.send(b"late", deliver_after=timedelta(seconds=4), partition_key="k")
    producer.send(b"now", partition_key="k")
    run.record_messages("received", run.receive(consumer, 2), "data", "partition_key")


@scenario(area=DELAYED, title="A time that has passed is now")
def passed(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic, kind="Shared")
    producer = run.producer(topic)
    producer.send(b"past", deliver_at=1)
    producer.send(b"zero", deliver_after=timedelta(0))
    run.record_messages("received", run.receive(consumer, 2))


@scenario(area=DELAYED, title="Exclusive does not wait")
def on_exclusive(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    producer = run.producer(topic)
    producer.send(b"late", deliver_after=timedelta(seconds=30))
    producer.send(b"now")
    run.record_messages("received", run.receive(consumer, 2))


@scenario(area=DELAYED, title="A delay survives the consumer")
def survives(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic, kind="Shared")
    producer = run.producer(topic)
    producer.send(b"late", deliver_after=timedelta(seconds=4))
    producer.send(b"now")
    run.receive_acked(consumer, 1)
    consumer.close()
    run.record_messages("received", run.receive(run.consumer(topic, kind="Shared"), 1))


@scenario(area=DELAYED, title="A reader does not wait")
def reader(run: ScenarioRun) -> None:
    topic = run.topic()
    run.producer(topic).send(b"late", deliver_after=timedelta(seconds=30))
    run.record_messages("read", run.read(run.reader(topic, run.sdk.MessageId.earliest), 1))


@scenario(area=DELAYED, title="Messages of a batching producer, on several consumers")
def batching_producer(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic, kind="Shared")
    producer = run.producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1000)
    for text in ("late", "later"):
        producer.send_async(text.encode(), None, deliver_after=timedelta(seconds=3 if text == "late" else 5))
    producer.send_async(b"now", None)
    producer.flush()
    run.record_messages("received", run.receive(consumer, 3))


@scenario(area=DELAYED, title="Refused, it comes at once: its time has passed")
def refused(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic, kind="Shared", negative_ack_redelivery_delay_ms=200)
    run.producer(topic).send(b"x", deliver_after=timedelta(seconds=3))
    consumer.negative_acknowledge(run.receive(consumer, 1)[0])
    run.record_messages("again", run.receive(consumer, 1), "data", "redelivery_count")


# Compression ----------------------------------------------------------------------------------------------------------


@scenario(area=COMPRESSION, title="Every compression type")
def types(run: ScenarioRun) -> None:
    payload = b"compressible " * 1000
    for name in ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"):
        topic = run.topic(name)
        consumer = run.consumer(topic)
        run.producer(topic, compression_type=getattr(run.sdk.CompressionType, name)).send(payload)
        run.record(name, run.receive(consumer, 1)[0].data() == payload)


@scenario(area=COMPRESSION, title="Producers of different types in one topic")
def mixed(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    for name in ("LZ4", "ZSTD", "NONE"):
        run.send(topic, [name], compression_type=getattr(run.sdk.CompressionType, name))
    run.record_messages("received", run.receive(consumer, 3))


@scenario(area=COMPRESSION, title="Random bytes and empty payloads")
def incompressible(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    producer = run.producer(topic, compression_type=run.sdk.CompressionType.LZ4)
    payloads = [b"", bytes(range(256)) * 40, b"x"]
    for payload in payloads:
        producer.send(payload)
    run.record("equal", [message.data() for message in run.receive(consumer, 3)] == payloads)


# Schemas --------------------------------------------------------------------------------------------------------------


@scenario(area=SCHEMAS, title="StringSchema")
def text(run: ScenarioRun) -> None:
    topic, schema = run.topic(), run.sdk.schema.StringSchema()
    consumer = run.consumer(topic, schema=schema)
    producer = run.producer(topic, schema=schema)
    for value in ("plain", "ümläut 日本", ""):
        producer.send(value)
    run.record("values", [message.value() for message in run.receive(consumer, 3)])
    run.attempt("bytes", lambda: producer.send(b"bytes"))
    run.attempt("number", lambda: producer.send(5))


@scenario(area=SCHEMAS, title="BytesSchema")
def raw(run: ScenarioRun) -> None:
    topic, schema = run.topic(), run.sdk.schema.BytesSchema()
    consumer = run.consumer(topic, schema=schema)
    producer = run.producer(topic, schema=schema)
    producer.send(b"\x00\x01")
    message = run.receive(consumer, 1)[0]
    run.record("value", message.value() == message.data() == b"\x00\x01")
    run.attempt("text", lambda: producer.send("text"))


@scenario(area=SCHEMAS, title="A plain consumer of a topic of texts gets bytes")
def text_as_bytes(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    run.producer(topic, schema=run.sdk.schema.StringSchema()).send("text")
    run.record_messages("received", run.receive(consumer, 1))
