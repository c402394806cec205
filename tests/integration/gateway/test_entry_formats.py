"""The policy `entry_format`: batches of official clients as records that any Kafka client reads."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import pulsar_on_kafka as sdk
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.gateway.server import Gateway
from pulsar_on_kafka_mapping.records.message_record import Codec
from pulsar_on_kafka_mapping.wire.commands import Type, command
from pulsar_on_kafka_mapping.wire.entries import WireEntry, write_entry
from pulsar_on_kafka_mapping.wire.frames import frame
from pulsar_on_kafka_mapping.wire.message_metadata import PulsarMetadata, encode_fields, encode_metadata
from tests.integration.client.test_encryption import key_pair
from tests.integration.gateway.wire import ABORT, COMMIT, Wire, begun
from tests.steps import SHARED, Unique, nothing_comes, payloads, receive
from tests.waiting import until

pulsar: Any = pytest.importorskip("pulsar", reason="the official client, pulsar-client, is not installed")

pytestmark = pytest.mark.kafka

PATIENCE_MS = 60_000
EARLIEST = pulsar.InitialPosition.Earliest


@pytest.fixture
def official(gateway: Gateway) -> Iterator[Any]:
    client = pulsar.Client(gateway.address(), logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


@pytest.fixture
def native(admin: AdminClient, unique: Unique) -> Callable[..., str]:
    """A new topic with the policy, and with others."""

    def made(**policies: Any) -> str:
        topic = unique()
        admin.create_topic(topic)
        for name, value in {"entry_format": "native", **policies}.items():
            admin.set_policy(topic, name, value)
        return topic

    return made


def in_kafka(bootstrap: str, topic: str, namespace: str = "public.default") -> list[Any]:
    """What a plain Kafka client reads."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "plain", "enable.partition.eof": False})
    place = TopicPartition(f"{namespace}.{topic}", 0, 0)
    try:
        consumer.assign([place])
        _, end = consumer.get_watermark_offsets(place, timeout=60)
        found: list[Any] = []
        while not found or found[-1].offset() + 1 < end:
            found += [record for record in consumer.consume(1_000, 1.0) if record.error() is None]
        return found
    finally:
        consumer.close()


def batches(official: Any, topic: str, **options: Any) -> Any:
    return official.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=60_000, batching_max_messages=1_000, **options
    )


def send(producer: Any, texts: list[bytes], **options: Any) -> list[Any]:
    """As one batch; the ids that its client has of them."""
    ids: list[Any] = []
    for number, text in enumerate(texts):
        producer.send_async(
            text, lambda _, message_id: ids.append(message_id), partition_key=f"k{number % 3}",
            properties={"n": str(number)}, event_timestamp=1_000 + number, **options,
        )  # fmt: skip
    producer.flush()
    return ids


@pytest.mark.parametrize("codec", ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"])
def test_each_message_of_a_batch_is_a_record_and_everybody_reads_it(
    official: Any, client: sdk.Client, bootstrap: str, native: Callable[..., str], codec: str
) -> None:
    topic = native()
    theirs = official.subscribe(topic, "theirs", pulsar.ConsumerType.Shared, initial_position=EARLIEST)
    ours = client.subscribe(topic, "ours", SHARED, initial_position=sdk.InitialPosition.Earliest)
    producer = batches(official, topic, compression_type=pulsar.CompressionType.__members__[codec])
    texts = [b"%d" % number for number in range(50)]
    given = send(producer, texts)
    records = in_kafka(bootstrap, topic)
    assert [record.value() for record in records] == texts
    assert [record.key() for record in records[:4]] == [b"k0", b"k1", b"k2", b"k0"]
    assert dict(records[7].headers())["n"] == b"7"
    found = [theirs.receive(PATIENCE_MS) for _ in texts]
    assert [message.data() for message in found] == texts
    assert [(message.properties(), message.event_timestamp()) for message in found] == [
        ({"n": str(number)}, 1_000 + number) for number in range(50)
    ]
    ids = [message.message_id() for message in found]
    assert [(each.entry_id(), each.batch_index()) for each in ids] == [(number, -1) for number in range(50)]
    assert {each.entry_id() for each in given} == {0}, "the receipt has the first one's id"
    assert sorted(each.batch_index() for each in given) == list(range(50))
    got = receive(ours, 50)
    assert payloads(got) == [text.decode() for text in texts]
    assert [each.message_id().entry_id() for each in got] == list(range(50))
    for message in found[::2]:
        theirs.acknowledge(message)
    theirs.close()
    left = official.subscribe(topic, "theirs", pulsar.ConsumerType.Shared)
    assert [left.receive(PATIENCE_MS).data() for _ in range(25)] == texts[1::2]


def test_namespaces_have_it_and_open_producers_follow(
    official: Any, admin: AdminClient, bootstrap: str, unique: Unique
) -> None:
    namespace = f"public/{unique('ns')}"
    admin.create_namespace(namespace)
    topic = f"persistent://{namespace}/orders"
    producer = batches(official, topic)

    def kafka() -> list[Any]:
        return in_kafka(bootstrap, "orders", namespace.replace("/", "."))

    send(producer, [b"a", b"b"])
    assert len(kafka()) == 1
    admin.set_policy(namespace, "entry_format", "native")

    def taken_apart() -> bool:
        send(producer, [b"c", b"d"])
        return [record.value() for record in kafka()[-2:]] == [b"c", b"d"]

    until(taken_apart, "the producer to follow")


def test_what_is_encrypted_stays_as_it_came(
    official: Any, bootstrap: str, native: Callable[..., str], tmp_path: Path
) -> None:
    topic = native()
    key_pair(tmp_path, "ours")
    keys = pulsar.CryptoKeyReader(str(tmp_path / "ours.public.pem"), str(tmp_path / "ours.private.pem"))
    consumer = official.subscribe(topic, "s", initial_position=EARLIEST, crypto_key_reader=keys)
    producer = batches(official, topic, crypto_key_reader=keys, encryption_key="k1")
    send(producer, [b"a", b"b"])
    assert [consumer.receive(PATIENCE_MS).data() for _ in range(2)] == [b"a", b"b"]
    (record,) = in_kafka(bootstrap, topic)
    assert dict(record.headers())["__pulsar.batch"] == b"2:2"


class Batches:
    """Batches of numbers that no client would send so, under the sequence ids that are the numbers."""

    def __init__(self, wire: Wire, topic: str, **options: Any) -> None:
        self._wire = wire
        wire.connect()
        opened = wire.ask(
            Type.PRODUCER, topic=f"persistent://public/default/{topic}", producer_id=1, request_id=1,
            producer_name="numbers", user_provided_producer_name=True, **options,
        )  # fmt: skip
        self.last_sequence_id = opened.last_sequence_id

    def send(self, *numbers: int, **fields: Any) -> Any:
        """The answer."""
        self.say(*numbers, **fields)
        return self._wire.hear()[1]

    def say(self, *numbers: int, **fields: Any) -> None:
        payload = b""
        for number in numbers:
            said = encode_fields([(3, len(b"%d" % number)), (8, number)])
            payload += len(said).to_bytes(4, "big") + said + b"%d" % number
        packed = zlib.compress(payload)
        metadata = PulsarMetadata(
            producer_name="numbers", sequence_id=numbers[0], publish_time_ms=time.time_ns() // 1_000_000,
            compression=Codec.ZLIB, uncompressed_bytes=len(payload), messages=len(numbers),
            highest_sequence_id=numbers[-1], txn_most=fields.get("txnid_most_bits"),
            txn_least=fields.get("txnid_least_bits"),
        )  # fmt: skip
        said = command(
            Type.SEND, producer_id=1, sequence_id=numbers[0], num_messages=len(numbers),
            highest_sequence_id=numbers[-1], **fields,
        )  # fmt: skip
        self._wire.write(frame(said, write_entry(WireEntry(encode_metadata(metadata), packed))))


def test_a_batch_that_was_half_stored_is_completed_by_its_retry(
    wire: Wire, bootstrap: str, native: Callable[..., str]
) -> None:
    topic = native(deduplication=True)
    sent = Batches(wire, topic)
    assert sent.send(0, 1).message_id.entryId == 0
    receipt = sent.send(0, 1, 2, 3)
    assert (receipt.sequence_id, receipt.highest_sequence_id, receipt.message_id.entryId) == (0, 3, 2)
    again = sent.send(0, 1, 2, 3)
    assert again.message_id.entryId == 2**64 - 1, "all of it is stored"
    assert sent.send(4, 7).message_id.entryId == 4
    assert [record.value() for record in in_kafka(bootstrap, topic)] == [b"0", b"1", b"2", b"3", b"4", b"7"]
    wire.ask(Type.CLOSE_PRODUCER, producer_id=1, request_id=2)
    with_name = wire.ask(
        Type.PRODUCER, topic=f"persistent://public/default/{topic}", producer_id=2, request_id=3,
        producer_name="numbers", user_provided_producer_name=True,
    )  # fmt: skip
    assert with_name.last_sequence_id == 7


def test_a_batch_of_a_transaction_is_seen_with_its_end_or_never(
    wire: Wire, client: sdk.Client, bootstrap: str, native: Callable[..., str]
) -> None:
    topic = native()
    consumer = client.subscribe(topic, "s", initial_position=sdk.InitialPosition.Earliest)
    sent = Batches(wire, topic)
    for number, outcome in ((0, ABORT), (10, COMMIT)):
        bits = begun(wire)
        assert sent.send(number, number + 1, number + 2, **bits).message_id.entryId >= 0
        assert nothing_comes(consumer)
        wire.ask(Type.END_TXN, request_id=12 + number, txn_action=outcome, **bits)
    assert payloads(receive(consumer, 3)) == ["10", "11", "12"]
    assert nothing_comes(consumer)


def test_a_batch_of_the_sdk_is_converted_once_for_all_who_get_it(
    official: Any, client: sdk.Client, gateway: Gateway, unique: Unique
) -> None:
    topic = unique()
    consumers = [
        official.subscribe(
            topic, f"s{number}", pulsar.ConsumerType.Shared, initial_position=EARLIEST,
            negative_ack_redelivery_delay_ms=100,
        )
        for number in range(3)
    ]  # fmt: skip
    before = gateway.context.entries.converted
    producer = client.create_producer(topic, batching_enabled=True, batching_max_messages=50)
    for number in range(100):
        producer.send_async(b"%d" % number, None)
    producer.flush()
    texts = sorted(b"%d" % number for number in range(100))
    for consumer in consumers:
        found = [consumer.receive(PATIENCE_MS) for _ in texts]
        assert sorted(message.data() for message in found) == texts
        for message in found:
            consumer.negative_acknowledge(message)
        again: set[bytes] = set()
        while again != set(texts):  # an entry comes for each of its messages that was refused a while after another
            again.add(consumer.receive(PATIENCE_MS).data())
    assert gateway.context.entries.converted - before == len({message.message_id().entry_id() for message in found})


def test_an_encrypted_batch_of_the_sdk_waits_for_the_sdk_s_consumers(
    official: Any, client: sdk.Client, unique: Unique, tmp_path: Path
) -> None:
    topic, keys = unique(), key_pair(tmp_path, "ours")
    theirs = official.subscribe(topic, "s", pulsar.ConsumerType.Shared, initial_position=EARLIEST)
    sealed = client.create_producer(topic, batching_enabled=True, encryption_key="k1", crypto_key_reader=keys)
    for number in range(3):
        sealed.send_async(b"%d" % number, None)
    sealed.flush()
    client.create_producer(topic).send(b"plain")
    message = theirs.receive(PATIENCE_MS)
    assert message.data() == b"plain"
    theirs.acknowledge(message)
    theirs.close()
    ours = client.subscribe(topic, "s", SHARED, crypto_key_reader=keys)
    assert payloads(receive(ours, 3)) == ["0", "1", "2"]
    assert nothing_comes(ours)
