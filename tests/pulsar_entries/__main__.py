"""`python -m tests.pulsar_entries`: the official Python and Java clients write to a Pulsar of its own in every way, and
what it hands out becomes the files in `fixtures`."""

from __future__ import annotations

import base64
import json
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pulsar as official
from cryptography.hazmat.primitives import serialization

from tests.compat.harness.java import JavaRuntime, JavaSdk, known_jars
from tests.compat.pulsar_standalone import PulsarOptions, PulsarStandalone
from tests.pulsar_entries import FIXTURES, payload_text, private_key
from tests.pulsar_entries.raw_reader import RawReader

CODECS: Final = ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")
MAX_MESSAGE_BYTES: Final = 2000
EVENT_MS: Final = 1_700_000_000_000
TIMEOUT_MS: Final = 20_000

Made = dict[str, Any]


def main() -> None:
    options = PulsarOptions(start_timeout_s=300, heap_mb=1000, extra={"maxMessageSize": str(MAX_MESSAGE_BYTES)})
    with ExitStack() as stack:
        keys = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        make_keys(keys)
        standalone = stack.enter_context(PulsarStandalone(options))
        java = JavaSdk(stack.enter_context(JavaRuntime(known_jars())).address)
        stack.callback(java.end_jvm)
        url = standalone.service_url
        for name, made in (
            ("python", PythonCases(url, keys).made()),
            ("java", JavaCases(java, url, keys).made()),
        ):
            found = list(made)
            text = json.dumps(found, ensure_ascii=False, indent=0, sort_keys=True)
            (FIXTURES / f"{name}.json").write_text(text + "\n", encoding="utf-8")
            print(f"{name}: {len(found)} cases, {len(text)} bytes", flush=True)


def make_keys(folder: Path) -> None:
    private = private_key()
    key = serialization.load_pem_private_key(private, None)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (folder / "private.pem").write_bytes(private)
    (folder / "public.pem").write_bytes(public)


def raw(url: str, topic: str, count: int) -> list[str]:
    where = urlsplit(url)
    with RawReader(where.hostname or "", where.port or 0) as reader:
        return [base64.b64encode(entry).decode() for entry in reader.entries(topic, count)]


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def large(seed: int, size: int) -> bytes:
    """A quarter of it compresses."""
    return random.Random(seed).randbytes(size - size // 4) + b"a" * (size // 4)


class PythonCases:
    """What the official Python client writes, which is the C++ one."""

    def __init__(self, url: str, keys: Path) -> None:
        self._url = url
        logger = official.ConsoleLogger(official.LoggerLevel.Error)
        self._client = official.Client(url, logger=logger)
        self._reader = official.CryptoKeyReader(str(keys / "public.pem"), str(keys / "private.pem"))

    def made(self) -> Iterator[Made]:
        for codec in CODECS:
            packed = {"compression_type": getattr(official.CompressionType, codec)}
            sealed = {"encryption_key": "orders", "crypto_key_reader": self._reader}
            batches = {"batching_enabled": True, "batching_max_publish_delay_ms": 60_000}
            chunks = {"chunking_enabled": True}
            # The client's zlib cannot read again what it made of nothing, and discards the message.
            some = self._some if codec == "ZLib" else self._some_and_an_empty_one
            yield self._case(f"{codec} single", some, **packed)
            yield self._case(f"{codec} batch", self._several, **packed, **batches)
            yield self._case(f"{codec} chunks", self._large, **packed, **chunks)
            yield self._case(f"{codec} single encrypted", some, **packed, **sealed)
            yield self._case(f"{codec} batch encrypted", self._several, **packed, **batches, **sealed)
            yield self._case(f"{codec} chunks encrypted", self._large, **packed, **chunks, **sealed)
        key_based = {"batching_type": official.BatchingType.KeyBased}
        yield self._case("batches by key", self._several, **batches, **key_based)
        yield self._case("batch of one", self._alone, **batches, compression_type=official.CompressionType.LZ4)
        for kind in (official.schema.AvroSchema, official.schema.JsonSchema):
            yield self._case(f"{kind.__name__} batch", self._orders, schema=kind(Order), **batches, **packed)

    def _case(self, name: str, write: Callable[[Any], None], schema: Any = None, **options: Any) -> Made:
        topic = f"persistent://public/default/python-{name.replace(' ', '-')}"
        with_schema = {} if schema is None else {"schema": schema}
        consumer = self._client.subscribe(
            topic, "official", initial_position=official.InitialPosition.Earliest,
            crypto_key_reader=self._reader, **with_schema,
        )  # fmt: skip
        producer = self._client.create_producer(topic, producer_name="python", **options, **with_schema)
        write(producer)
        producer.flush()
        found: list[Any] = []
        while True:
            try:
                found.append(consumer.receive(TIMEOUT_MS if not found else 700))
            except official.Timeout:
                break
        ids = sorted({(each.message_id().ledger_id(), each.message_id().entry_id()) for each in found})
        consumer.close()
        producer.close()
        made: Made = {
            "name": name,
            "messages": [self._told(each, schema) for each in found],
            "entries": raw(self._url, topic, ids[-1][1] + 1),
        }
        if schema is not None:
            info = schema.schema_info()
            made["schema"] = {
                "type": str(info.schema_type()).rpartition(".")[2],
                "definition": b64(info.schema().encode()),
            }
        return made

    def _told(self, message: Any, schema: Any) -> Made:
        told = {
            "data": payload_text(message.data()),
            "properties": message.properties(),
            "partition_key": message.partition_key(),
            "ordering_key": message.ordering_key(),
            "event_timestamp": message.event_timestamp(),
            "publish_timestamp": message.publish_timestamp(),
            "producer_name": message.producer_name(),
            "batch_index": message.message_id().batch_index(),
        }
        if schema is not None:
            value = message.value()
            told["value"] = {"number": value.number, "note": value.note}
        return told

    def _some_and_an_empty_one(self, producer: Any) -> None:
        producer.send(b"")
        self._some(producer)

    def _some(self, producer: Any) -> None:
        producer.send(b"plain")
        producer.send(
            b"rich " * 40, properties={"a": "1", "naïve": "ja", "__pulsar.txn": "mine"}, partition_key="key",
            ordering_key="order", event_timestamp=EVENT_MS,
        )  # fmt: skip
        producer.send(b"ordered", ordering_key="order", disable_replication=True)

    def _several(self, producer: Any) -> None:
        for number in range(6):
            producer.send_async(b"%d" % number * 20, None, partition_key=f"key{number % 2}")
        producer.send_async(b"", None, properties={"a": "1"}, ordering_key="order", event_timestamp=EVENT_MS)

    def _alone(self, producer: Any) -> None:
        producer.send_async(b"alone " * 30, None, properties={"a": "1"})

    def _large(self, producer: Any) -> None:
        producer.send(large(1, 4000), properties={"a": "1"}, partition_key="key")

    def _orders(self, producer: Any) -> None:
        for number in range(3):
            producer.send_async(Order(number=number, note="ä" * 30), None)


class Order(official.schema.Record):
    number = official.schema.Integer()
    note = official.schema.String()


class JavaCases:
    """What the Java client writes."""

    def __init__(self, sdk: JavaSdk, url: str, keys: Path) -> None:
        self._url = url
        client = sdk.Client(url, enable_transaction=True)
        self._client = client
        self._bridge = client._bridge
        self._api = self._bridge.api
        self._keys = keys
        self._none: Any = None

    def made(self) -> Iterator[Made]:
        for codec in CODECS:
            for ending, sealed in (("", False), (" encrypted", True)):
                yield self._case(f"{codec} single{ending}", self._some, codec, sealed=sealed)
                yield self._case(f"{codec} batch{ending}", self._several, codec, sealed=sealed, batches=True)
                yield self._case(f"{codec} chunks{ending}", self._large, codec, sealed=sealed, chunk_bytes=700)
        yield self._case("batch of one", self._alone, "ZSTD", batches=True)
        yield self._case("batches by key", self._several, "NONE", batches=True, by_key=True)
        # What is sent first waits for its transaction to know of the partition, so flush does not send the batch.
        yield self._case("ZSTD batch in a transaction", self._in_transaction, "ZSTD", batches=True, delay_ms=1_000)
        yield self._case("LZ4 single in a transaction", self._in_transaction, "LZ4")
        record = self._bridge.jvm.org.apache.pulsar.client.api.schema.SchemaBuilder.record("Order")
        kinds = self._bridge.jvm.org.apache.pulsar.common.schema
        record.field("number").type(kinds.SchemaType.INT32)
        record.field("note").type(kinds.SchemaType.STRING)
        for kind in ("AVRO", "JSON"):
            schema = self._api.Schema.generic(record.build(kinds.SchemaType.valueOf(kind)))
            yield self._case(f"{kind} batch", self._orders, "LZ4", batches=True, schema=schema)
            yield self._case(f"{kind} single", self._orders, "LZ4", schema=schema)
            for encoding in ("SEPARATED", "INLINE"):
                both = self._api.Schema.KeyValue(
                    self._api.Schema.INT32, schema, kinds.KeyValueEncodingType.valueOf(encoding)
                )
                yield self._case(f"KEY_VALUE {encoding} {kind} batch", self._pairs, "ZLib", batches=True, schema=both)
                yield self._case(f"KEY_VALUE {encoding} {kind} single", self._pairs, "SNAPPY", schema=both)

    def _case(
        self,
        name: str,
        write: Callable[[Any, Any], None],
        codec: str,
        *,
        sealed: bool = False,
        batches: bool = False,
        by_key: bool = False,
        chunk_bytes: int = 0,
        delay_ms: int = 60_000,
        schema: Any = None,
    ) -> Made:
        topic = f"persistent://public/default/java-{name.replace(' ', '-')}"
        used = self._api.Schema.BYTES if schema is None else schema
        consuming = self._client.native.newConsumer(used).topic(self._bridge.texts(topic)).subscriptionName("official")
        consuming.subscriptionInitialPosition(self._api.SubscriptionInitialPosition.Earliest)
        consuming.defaultCryptoKeyReader(f"file://{self._keys}/private.pem")
        consumer = self._bridge.call(consuming.subscribe)
        producing = self._client.native.newProducer(used).topic(topic).producerName("java")
        producing.compressionType(self._api.CompressionType.valueOf(codec.upper())).enableBatching(batches)
        producing.batchingMaxPublishDelay(delay_ms, self._bridge.ms)
        if by_key:
            producing.batcherBuilder(self._api.BatcherBuilder.KEY_BASED)
        if chunk_bytes:
            producing.enableChunking(True).chunkMaxMessageSize(chunk_bytes)
        if sealed:
            producing.addEncryptionKey("orders").defaultCryptoKeyReader(f"file://{self._keys}/public.pem")
        producer = self._bridge.call(producing.create)
        write(producer, used)
        self._bridge.call(producer.flush)
        found: list[Any] = []
        while True:
            message = self._bridge.call(consumer.receive, TIMEOUT_MS if not found else 700, self._bridge.ms)
            if message is None:
                break
            found.append(message)
        last = max(int(each.getMessageId().getEntryId()) for each in found)
        messages = [self._told(each, schema) for each in found]
        self._bridge.call(consumer.close)
        self._bridge.call(producer.close)
        count = last + 1
        made: Made = {"name": name, "messages": messages, "entries": raw(self._url, topic, count)}
        if schema is not None:
            info = schema.getSchemaInfo()
            made["schema"] = {"type": str(info.getType()), "definition": b64(bytes(info.getSchema()))}
            made["schema"] |= {str(key): str(value) for key, value in info.getProperties().items()}
        return made

    def _told(self, message: Any, schema: Any) -> Made:
        data = message.getData()
        index = message.getMessageId()
        told: Made = {
            "data": payload_text(None if data is None else bytes(data)),
            "properties": {str(name): str(value) for name, value in message.getProperties().items()},
            "key": b64(bytes(message.getKeyBytes())) if message.hasKey() and message.getKey() is not None else None,
            "ordering_key": b64(bytes(message.getOrderingKey())) if message.hasOrderingKey() else None,
            "event_timestamp": int(message.getEventTime()),
            "publish_timestamp": int(message.getPublishTime()),
            "producer_name": str(message.getProducerName()),
            "batch_index": int(index.getBatchIndex()) if "Batch" in index.getClass().getSimpleName() else -1,
        }
        if schema is not None:
            value = message.getValue()
            if "KeyValue" in value.getClass().getSimpleName():
                pair: list[Any] = [int(value.getKey()), self._order(value.getValue())]
                told["value"] = pair
            else:
                told["value"] = self._order(value)
        return told

    def _order(self, record: Any) -> Made:
        return {"number": int(record.getField("number")), "note": str(record.getField("note"))}

    def _some(self, producer: Any, _: Any) -> None:
        new = producer.newMessage
        self._bridge.call(new().value(b"plain").send)
        self._bridge.call(new().value(b"").send)
        self._bridge.call(new().value(self._none).key("gone").send)
        rich = new().value(b"rich " * 40).property("a", "1").property("naïve", "ja").property("__pulsar.txn", "mine")
        self._bridge.call(rich.key("key").orderingKey(b"order").eventTime(EVENT_MS).send)
        self._bridge.call(new().value(b"binary").keyBytes(b"\xff\x00").disableReplication().send)
        self._bridge.call(new().value(b"text in base64").keyBytes(b"text").send)
        self._bridge.call(new().value(b"ordered").orderingKey(b"order").deliverAt(EVENT_MS).send)

    def _several(self, producer: Any, _: Any) -> None:
        new = producer.newMessage
        under_way = [new().value(b"%d" % number * 20).key(f"key{number % 2}").sendAsync() for number in range(6)]
        under_way.append(new().value(self._none).key("key0").sendAsync())
        rich = new().value(b"").property("a", "1").orderingKey(b"order").eventTime(EVENT_MS)
        under_way.append(rich.keyBytes(b"\xff").sendAsync())
        self._settle(producer, under_way)

    def _settle(self, producer: Any, under_way: list[Any]) -> None:
        self._bridge.call(producer.flush)
        for each in under_way:
            self._bridge.call(each.get)

    def _alone(self, producer: Any, _: Any) -> None:
        self._settle(producer, [producer.newMessage().value(b"alone " * 30).property("a", "1").sendAsync()])

    def _large(self, producer: Any, _: Any) -> None:
        self._bridge.call(producer.newMessage().value(large(2, 2400)).property("a", "1").key("key").send)

    def _in_transaction(self, producer: Any, _: Any) -> None:
        txn = self._client.new_transaction()
        made = self._bridge.call(producer.newMessage, txn.native)
        under_way = [made.value(b"first " * 20).sendAsync()]
        made = self._bridge.call(producer.newMessage, txn.native)
        under_way.append(made.value(b"second " * 20).key("key").sendAsync())
        for each in under_way:
            self._bridge.call(each.get)
        txn.commit()

    def _record(self, schema: Any, number: int) -> Any:
        return schema.newRecordBuilder().set("number", number).set("note", "ä" * 30).build()

    def _orders(self, producer: Any, schema: Any) -> None:
        new = producer.newMessage
        self._settle(producer, [new().value(self._record(schema, number)).sendAsync() for number in range(3)])

    def _pairs(self, producer: Any, schema: Any) -> None:
        pair = self._bridge.jvm.org.apache.pulsar.common.schema.KeyValue
        new = producer.newMessage
        under_way = [
            new().value(pair(number, self._record(schema.getValueSchema(), number))).sendAsync() for number in range(3)
        ]
        self._settle(producer, under_way)


if __name__ == "__main__":
    main()
