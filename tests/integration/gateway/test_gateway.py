"""The official Python client on the gateway, and the SDK beside it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError

import pulsar_on_kafka as sdk
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.errors import StoreError
from pulsar_on_kafka.gateway.handlers import consumers, wire_consumer
from pulsar_on_kafka.gateway.handlers.wire_producer import USE, WireProducer
from pulsar_on_kafka.gateway.server import Gateway
from pulsar_on_kafka.schema_compat import SchemaType
from pulsar_on_kafka_mapping.routing.sticky_hash import sticky_key_hash
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type, command
from pulsar_on_kafka_mapping.wire.entries import read_entry
from pulsar_on_kafka_mapping.wire.frames import frame
from pulsar_on_kafka_mapping.wire.message_metadata import PulsarMetadata, decode_metadata
from tests.integration.gateway.wire import Wire
from tests.steps import Unique, payloads, receive
from tests.waiting import until

pulsar: Any = pytest.importorskip("pulsar", reason="the official client, pulsar-client, is not installed")

pytestmark = pytest.mark.kafka

PATIENCE_MS = 60_000
EARLIEST = pulsar.InitialPosition.Earliest
SHARED = pulsar.ConsumerType.Shared
CHANGED: Final = b"\x0e\x01" + b"\x00\x00\x00\x00" + b"\x00\x00\x00\x02ab" + b"payload"
"""An entry that is not what its checksum says."""


class Order(pulsar.schema.Record):
    number = pulsar.schema.Integer()


@pytest.fixture
def official(gateway: Gateway) -> Iterator[Any]:
    client = pulsar.Client(gateway.address(), logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


def received(consumer: Any, count: int) -> list[bytes]:
    found = []
    for _ in range(count):
        message = consumer.receive(PATIENCE_MS)
        found.append(message.data())
        consumer.acknowledge(message)
    return found


def send(producer: Any, *texts: bytes, **options: Any) -> None:
    for text in texts:
        producer.send_async(text, None, **options)
    producer.flush()


@pytest.mark.parametrize(
    "codec", [pulsar.CompressionType.NONE, pulsar.CompressionType.LZ4, pulsar.CompressionType.ZSTD]
)
def test_batches_are_taken_apart_by_clients_of_both_kinds(
    official: Any, client: sdk.Client, unique: Unique, codec: Any
) -> None:
    topic = unique()
    ours = client.subscribe(topic, "ours", sdk.ConsumerType.Shared, initial_position=sdk.InitialPosition.Earliest)
    theirs = official.subscribe(topic, "theirs", SHARED, initial_position=EARLIEST)
    producer = official.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=100, compression_type=codec
    )
    texts = [b"%d" % number for number in range(300)]
    send(producer, *texts)
    assert received(theirs, 300) == texts
    assert received(ours, 300) == texts


def test_what_the_sdk_sends_comes_to_official_clients(official: Any, client: sdk.Client, unique: Unique) -> None:
    topic = unique()
    theirs = official.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    batched = client.create_producer(topic, batching_enabled=True, batching_max_messages=50)
    send(batched, *(b"%d" % number for number in range(100)), properties={"a": "b"}, partition_key="k")
    for number in range(100):
        message = theirs.receive(PATIENCE_MS)
        assert (message.data(), message.properties(), message.partition_key()) == (b"%d" % number, {"a": "b"}, "k")
        theirs.acknowledge(message)
    single = client.create_producer(topic)
    single.send(b"alone")
    assert received(theirs, 1) == [b"alone"]


def test_a_reader_of_hash_ranges_gets_their_keys_alone(client: sdk.Client, wire: Wire, unique: Unique) -> None:
    topic, keys = unique(), [str(number) for number in range(20)]
    producer = client.create_producer(topic)
    for key in keys:
        producer.send(key.encode(), partition_key=key)
    producer.send(b"without")
    slots = {**{key: sticky_key_hash(key.encode()) for key in keys}, "without": sticky_key_hash(b"NONE_KEY")}
    first, last = min(slots["without"], 20_000), max(slots["without"], 40_000)
    wanted = [key.encode() for key, slot in slots.items() if first <= slot <= last]
    assert 1 < len(wanted) < len(slots)
    wire.connect()
    wire.say(
        Type.SUBSCRIBE,
        topic=topic,
        subscription="reader",
        subType=0,
        consumer_id=1,
        request_id=1,
        durable=False,
        start_message_id={"ledgerId": 2**64 - 1, "entryId": 2**64 - 1},
        keySharedMeta={"keySharedMode": 1, "hashRanges": [{"start": first, "end": last}]},
    )
    assert wire.hear()[0] is Type.SUCCESS
    wire.say(Type.FLOW, consumer_id=1, messagePermits=len(wanted))
    found = []
    for _ in wanted:
        assert wire.hear()[0] is Type.MESSAGE
        found.append(wire.payload())
    assert found == wanted


def test_a_seek_to_before_1970_is_to_the_first_message(client: sdk.Client, wire: Wire, unique: Unique) -> None:
    topic = unique()
    client.create_producer(topic).send(b"first")
    wire.connect()
    for number, durable in enumerate((True, False)):
        start = {} if durable else {"start_message_id": {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1}}
        said = {"topic": topic, "subscription": "s", "subType": 0, "consumer_id": number, "durable": durable, **start}
        wire.say(Type.SUBSCRIBE, request_id=1, **said)
        assert wire.hear()[0] is Type.SUCCESS
        wire.say(Type.SEEK, consumer_id=number, request_id=2, message_publish_time=2**64 - 60)
        assert [wire.hear()[0] for _ in range(2)] == [Type.CLOSE_CONSUMER, Type.SUCCESS]
        wire.say(Type.SUBSCRIBE, request_id=3, **said)
        assert wire.hear()[0] is Type.SUCCESS
        wire.say(Type.FLOW, consumer_id=number, messagePermits=1)
        assert wire.hear()[0] is Type.MESSAGE
        assert wire.payload() == b"first"


@pytest.mark.parametrize("ack_type", [0, 1])
def test_of_a_batch_that_was_not_sent_to_it_again_a_consumer_acknowledges_no_more_than_it_says(
    official: Any, wire: Wire, unique: Unique, ack_type: int
) -> None:
    """A client that was cut off acknowledges what it had before: how many messages the entry has is not known here."""
    topic = unique()
    producer = official.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    wire.connect()
    said = {"topic": topic, "subscription": "s", "subType": 0, "consumer_id": 0}
    wire.ask(Type.SUBSCRIBE, request_id=1, **said)
    send(producer, b"before")
    send(producer, b"a", b"b", b"c")
    send(producer, b"behind")
    wire.say(Type.FLOW, consumer_id=0, messagePermits=5)
    ids = [wire.hear()[1].message_id for _ in range(3)]
    wire.ask(Type.CLOSE_CONSUMER, consumer_id=0, request_id=2)
    wire.ask(Type.SUBSCRIBE, request_id=3, **said)
    batch = {"ledgerId": ids[1].ledgerId, "entryId": ids[1].entryId, "ack_set": [0b110]}
    answer = wire.ask(Type.ACK, consumer_id=0, ack_type=ack_type, message_id=[batch], request_id=4)
    assert not answer.HasField("error")
    wire.say(Type.FLOW, consumer_id=0, messagePermits=5)
    left = [wire.hear()[1].message_id.entryId for _ in range(2 if ack_type else 3)]
    assert left == [each.entryId for each in ids[ack_type:]]


def test_a_consumer_knows_the_sizes_of_the_batches_that_came_last(
    official: Any, wire: Wire, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may have acknowledged those before, which it gave back: there would be no end of them."""
    monkeypatch.setattr(wire_consumer, "MAX_SIZES", 2)
    topic = unique()
    producer = official.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    wire.connect()
    said = {"topic": topic, "subscription": "s", "subType": 1, "consumer_id": 0}
    wire.ask(Type.SUBSCRIBE, request_id=1, **said)
    for _ in range(3):
        send(producer, b"a", b"b", b"c")
    wire.say(Type.FLOW, consumer_id=0, messagePermits=9)
    ids = [wire.hear()[1].message_id for _ in range(3)]
    parts = [{"ledgerId": each.ledgerId, "entryId": each.entryId, "ack_set": [0b110]} for each in ids]
    assert not wire.ask(Type.ACK, consumer_id=0, ack_type=0, message_id=parts, request_id=2).HasField("error")
    wire.ask(Type.CLOSE_CONSUMER, consumer_id=0, request_id=3)
    wire.ask(Type.SUBSCRIBE, request_id=4, **said)
    wire.say(Type.FLOW, consumer_id=0, messagePermits=9)
    assert [list(wire.hear()[1].ack_set) for _ in range(3)] == [[], [0b110], [0b110]]


def test_a_reader_that_was_sought_goes_on_there_though_it_is_refused_once(
    client: sdk.Client, wire: Wire, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = unique()
    producer = client.create_producer(topic)
    producer.send(b"first")
    later_ms = time.time_ns() // 1_000_000 + 1
    until(lambda: time.time_ns() // 1_000_000 > later_ms, "the next message to be later")
    producer.send(b"second")
    wire.connect()
    start = {"ledgerId": 2**64 - 1, "entryId": 2**64 - 1}
    said = {"topic": topic, "subscription": "r", "subType": 0, "consumer_id": 0, "durable": False}
    said |= {"start_message_id": start}
    wire.ask(Type.SUBSCRIBE, request_id=1, **said)
    wire.say(Type.SEEK, consumer_id=0, request_id=2, message_publish_time=later_ms)
    assert [wire.hear()[0] for _ in range(2)] == [Type.CLOSE_CONSUMER, Type.SUCCESS]

    def refuse(*asked: object) -> None:
        raise StoreError("Kafka does not answer")

    with monkeypatch.context() as once:
        once.setattr(consumers, "open_consumer", refuse)
        assert wire.ask(Type.SUBSCRIBE, request_id=3, **said).message == "Kafka does not answer"
    wire.ask(Type.SUBSCRIBE, request_id=4, **said)
    wire.say(Type.FLOW, consumer_id=0, messagePermits=1)
    assert wire.hear()[0] is Type.MESSAGE
    assert wire.payload() == b"second"


def test_a_subscription_is_shared_with_the_sdk(official: Any, client: sdk.Client, unique: Unique) -> None:
    topic = unique()
    theirs = official.subscribe(topic, "s", SHARED, initial_position=EARLIEST, receiver_queue_size=10)
    ours = client.subscribe(
        topic, "s", sdk.ConsumerType.Shared, initial_position=sdk.InitialPosition.Earliest, receiver_queue_size=10
    )
    producer = client.create_producer(topic)
    texts = [b"%d" % number for number in range(200)]
    send(producer, *texts)
    found: dict[str, list[bytes]] = {"ours": [], "theirs": []}

    def all_there() -> bool:
        for name, consumer, nothing in (("ours", ours, sdk.Timeout), ("theirs", theirs, pulsar.Timeout)):
            try:
                message = consumer.receive(10)
            except nothing:
                continue
            consumer.acknowledge(message)
            found[name].append(message.data())
        return len(found["ours"]) + len(found["theirs"]) == len(texts)

    until(all_there, "every message to be received by one of both")
    assert sorted(found["ours"] + found["theirs"]) == sorted(texts)
    assert found["ours"]
    assert found["theirs"]


def test_a_producer_makes_a_topic_anew_that_was_deleted_elsewhere(
    official: Any, admin: AdminClient, unique: Unique
) -> None:
    """By another gateway, say; librdkafka alone tells 30 s after the next message that it is gone."""
    topic = unique()
    producer = official.create_producer(topic, send_timeout_millis=20_000)
    producer.send(b"gone")
    admin.delete_topic(topic, force=True)
    until(lambda: f"persistent://public/default/{topic}" in admin.list_topics(), "the producer to make its topic anew")
    producer.send(b"there")
    reader = official.create_reader(topic, pulsar.MessageId.earliest)
    assert reader.read_next(60_000).data() == b"there"


def test_a_message_above_the_limit_comes_in_chunks(official: Any, client: sdk.Client, unique: Unique) -> None:
    topic, large = unique(), bytes(range(256)) * 25_000
    theirs = official.subscribe(topic, "theirs", SHARED, initial_position=EARLIEST)
    ours = client.subscribe(topic, "ours", sdk.ConsumerType.Shared, initial_position=sdk.InitialPosition.Earliest)
    producer = official.create_producer(topic, batching_enabled=False, chunking_enabled=True)
    producer.send(large)
    assert received(theirs, 1) == [large]
    assert received(ours, 1) == [large]


def test_a_name_that_was_made_up_is_known_again(gateway: Gateway, admin: AdminClient, unique: Unique) -> None:
    """A client opens its producer anew by the name that it was told, here over another connection."""
    topic = unique()
    admin.create_topic(topic)
    admin.set_policy(f"persistent://public/default/{topic}", "deduplication", True)
    asked = {"topic": topic, "producer_id": 1, "user_provided_producer_name": False}
    with Wire(gateway) as wire:
        wire.connect()
        name = wire.ask(Type.PRODUCER, request_id=1, **asked).producer_name
        for number in (4, 5):
            wire.send(1, number, b"x")
            assert wire.hear()[1].message_id.ledgerId < 2**63
    with Wire(gateway) as wire:
        wire.connect()

        def opened() -> Any:
            wire.say(Type.PRODUCER, request_id=1, producer_name=name, epoch=1, **asked)
            kind, answer = wire.hear()
            assert kind is Type.PRODUCER_SUCCESS or answer.error == ServerError.PRODUCER_BUSY, answer
            return answer if kind is Type.PRODUCER_SUCCESS else None

        again = until(opened, "the gateway to see that the first connection is gone")
        assert (again.producer_name, again.last_sequence_id) == (name, 5)
        wire.send(1, 5, b"x")
        assert wire.hear()[1].message_id.ledgerId == 2**64 - 1  # it is there already
        other = wire.ask(Type.PRODUCER, request_id=2, **{**asked, "producer_id": 2})
        assert (other.producer_name != name, other.last_sequence_id) == (True, -1)


def test_a_message_that_failed_while_later_ones_were_stored_is_stored_when_it_comes_again(
    gateway: Gateway, admin: AdminClient, client: sdk.Client, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka refuses it by an error of its own, behind which librdkafka goes on."""
    topic = unique()
    admin.create_topic(topic)
    admin.set_policy(topic, "deduplication", True)
    kafka = gateway.context.node.producer("none", 0, USE)
    produce, refused = kafka.produce, list[Any]()

    def refuse() -> None:
        with kafka._poll_lock:
            refused[0](KafkaError(KafkaError.UNKNOWN), None)

    def refusing(topic: str, value: bytes, key: None, partition: int, report: Any, *more: Any) -> None:
        if value == b"1" and not refused:
            refused.append(report)
            return
        produce(topic, value, key, partition, report, *more)
        if value == b"3":
            threading.Thread(target=refuse).start()

    monkeypatch.setattr(kafka, "produce", refusing)
    asked = {"topic": topic, "producer_id": 1, "producer_name": "mine", "user_provided_producer_name": True}
    with Wire(gateway) as wire:
        wire.connect()
        wire.ask(Type.PRODUCER, request_id=1, **asked)
        for number in range(4):
            wire.send(1, number, b"%d" % number)
        told = [wire.hear() for _ in range(4)]
        assert [kind for kind, _ in told] == [*[Type.SEND_RECEIPT] * 3, Type.CLOSE_PRODUCER]
        assert {said.sequence_id for _, said in told[:3]} == {0, 2, 3}
        assert wire.ask(Type.PRODUCER, request_id=2, epoch=1, **asked).last_sequence_id == 3
        stored = []
        for number in (1, 2, 3, 1):
            wire.send(1, number, b"%d" % number)
            stored.append(wire.hear()[1].message_id.ledgerId < 2**63)
        assert stored == [True, False, False, False]
    seen = client.subscribe(topic, "s", initial_position=sdk.InitialPosition.Earliest)
    assert payloads(receive(seen, 4)) == ["0", "2", "3", "1"]


def test_schemas_are_registered_and_checked(official: Any, client: sdk.Client, unique: Unique) -> None:
    topic = unique()
    producer = official.create_producer(topic, schema=pulsar.schema.StringSchema())
    producer.send("text")
    ours = client.create_reader(topic, sdk.MessageId.earliest, schema=sdk.schema.StringSchema())
    assert ours.read_next(PATIENCE_MS).value() == "text"
    with pytest.raises(pulsar.IncompatibleSchema):
        official.subscribe(topic, "s", schema=pulsar.schema.JsonSchema(Order))


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100, frame(b"\xff\xff"), frame(command(Type.PING))],
    ids=["http", "huge", "no command", "ping first"],
)
def test_whatever_is_no_client_is_closed(wire: Wire, data: bytes) -> None:
    wire.write(data)
    assert wire.hear() == (None, None)


def test_what_is_not_served_says_so(wire: Wire) -> None:
    kind, said = wire.connect()
    assert kind is Type.CONNECTED
    assert said.max_message_size == 5 * 1024 * 1024
    wire.say(Type.GET_SCHEMA_RESPONSE, request_id=8)
    kind, said = wire.hear()
    assert (kind, said.request_id, said.error) == (Type.ERROR, 8, ServerError.NOT_ALLOWED)
    assert "GET_SCHEMA_RESPONSE: not served by this gateway" in said.message


def test_a_question_about_a_topic_does_not_make_it(
    wire: Wire, client: sdk.Client, admin: AdminClient, unique: Unique
) -> None:
    """Nor does it fail where Pulsar has an answer: of a topic and of a namespace that are not there."""
    topic = f"persistent://public/default/{unique()}"
    wire.connect()
    said = wire.ask(Type.PARTITIONED_TOPIC_METADATA, topic=topic, request_id=1)
    assert (said.HasField("error"), said.partitions) == (False, 0)
    said = wire.ask(Type.PARTITIONED_TOPIC_METADATA, topic=topic, request_id=2, metadata_auto_creation_enabled=False)
    assert said.error == ServerError.TOPIC_NOT_FOUND
    assert wire.ask(Type.LOOKUP_TOPIC, topic=topic, request_id=3).brokerServiceUrl
    said = wire.ask(Type.GET_TOPICS_OF_NAMESPACE, namespace=f"public/{unique()}", request_id=4)
    assert list(said.topics) == []
    text = {"name": "text", "type": 1, "schema_data": b""}
    said = wire.ask(Type.GET_OR_CREATE_SCHEMA, topic=topic, request_id=6, schema=text)
    assert said.error_code == ServerError.TOPIC_NOT_FOUND
    said = wire.ask(Type.LOOKUP_TOPIC, topic=topic, request_id=5, advertised_listener_name="external")
    assert said.error == ServerError.NOT_ALLOWED
    assert "external" in said.message
    assert client.get_topic_partitions(topic) == [topic]
    with pytest.raises(sdk.TopicNotFound):
        admin.topic_stats(topic)


def test_a_schema_without_a_version_is_none_to_consumers(wire: Wire, unique: Unique) -> None:
    """Go's `BytesSchema` is of type NONE, and its messages say an empty version."""
    topic = unique()
    wire.connect()
    wire.ask(Type.SUBSCRIBE, topic=topic, subscription="s", subType=1, consumer_id=1, request_id=1)
    none = {"name": "Bytes", "type": 0, "schema_data": b""}
    assert not wire.ask(Type.PRODUCER, topic=topic, producer_id=1, request_id=2, schema=none).schema_version
    now_ms = time.time_ns() // 1_000_000
    wire.send_as(PulsarMetadata("p", 0, now_ms, schema_version=b""), 1, b"sent")
    assert wire.hear()[0] is Type.SEND_RECEIPT
    wire.say(Type.FLOW, consumer_id=1, messagePermits=1)
    assert wire.hear()[0] is Type.MESSAGE
    assert decode_metadata(read_entry(wire.entry).metadata).schema_version is None


def test_schemas_and_statistics_are_asked_for(wire: Wire, client: sdk.Client, unique: Unique) -> None:
    topic = unique()
    client.create_producer(topic, schema=sdk.schema.StringSchema())
    wire.connect()
    wire.say(Type.GET_SCHEMA, request_id=1, topic=topic)
    kind, said = wire.hear()
    stored = said.schema
    assert (kind, said.request_id, stored.type, said.schema_version) == (
        Type.GET_SCHEMA_RESPONSE, 1, SchemaType.STRING.value, bytes(8),
    )  # fmt: skip
    wire.say(Type.GET_SCHEMA, request_id=2, topic=topic, schema_version=(7).to_bytes(8, "big"))
    assert wire.hear()[1].error_code == ServerError.TOPIC_NOT_FOUND
    wire.say(Type.GET_OR_CREATE_SCHEMA, request_id=3, topic=topic, schema=stored)
    assert wire.hear()[1].schema_version == bytes(8)
    number = {"name": "n", "schema_data": b"", "type": SchemaType.INT32.value}
    wire.say(Type.GET_OR_CREATE_SCHEMA, request_id=4, topic=topic, schema=number)
    assert wire.hear()[1].error_code == ServerError.INCOMPATIBLE_SCHEMA
    wire.say(Type.SUBSCRIBE, topic=topic, subscription="s", subType=1, consumer_id=5, request_id=5, consumer_name="me")
    assert wire.hear()[0] is Type.SUCCESS
    wire.say(Type.FLOW, consumer_id=5, messagePermits=10)
    wire.say(Type.CONSUMER_STATS, request_id=6, consumer_id=5)
    kind, said = wire.hear()
    assert (kind, said.consumerName, said.availablePermits, said.type) == (
        Type.CONSUMER_STATS_RESPONSE, "me", 10, "Shared",
    )  # fmt: skip
    assert (said.msgRateOut, said.msgThroughputOut, said.msgRateRedeliver, said.messageAckRate) == (0, 0, 0, 0)
    assert (said.blockedConsumerOnUnackedMsgs, said.HasField("msgRateExpired")) == (False, False)
    assert said.address.startswith("127.0.0.1:")
    assert said.connectedSince.endswith("+00:00")


def test_a_message_like_the_one_before_is_not_read_anew(
    wire: Wire, client: sdk.Client, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stored and answered as that one was; whose command says more is read."""
    topic, read, send = unique(), list[int](), WireProducer.send

    def reading(producer: WireProducer, asked: Any, entry: bytes) -> Any:
        read.append(asked.sequence_id)
        return send(producer, asked, entry)

    monkeypatch.setattr(WireProducer, "send", reading)
    seen = client.subscribe(topic, "s", initial_position=sdk.InitialPosition.Earliest)
    wire.connect()
    wire.say(Type.PRODUCER, topic=topic, producer_id=1, request_id=1)
    assert wire.hear()[0] is Type.PRODUCER_SUCCESS
    receipts = []
    for number, more in ((0, {}), (1, {}), (300, {}), (301, {"num_messages": 1})):
        wire.send(1, number, b"%d" % number, **more)
        kind, said = wire.hear()
        assert (kind, said.producer_id, said.sequence_id) == (Type.SEND_RECEIPT, 1, number)
        receipts.append((said.message_id.ledgerId, said.message_id.entryId))
    assert read == [0, 301]
    messages = [seen.receive(PATIENCE_MS) for _ in range(4)]
    assert [message.data() for message in messages] == [b"0", b"1", b"300", b"301"]
    assert [(each.ledger_id(), each.entry_id()) for each in map(sdk.Message.message_id, messages)] == receipts
    times = [message.publish_timestamp() for message in messages]
    assert times == sorted(times)


def test_a_message_that_was_changed_on_its_way_is_refused(wire: Wire, unique: Unique) -> None:
    wire.connect()
    wire.say(Type.PRODUCER, topic=unique(), producer_id=1, request_id=1)
    assert wire.hear()[0] is Type.PRODUCER_SUCCESS
    wire.write(frame(command(Type.SEND, producer_id=1, sequence_id=5), CHANGED))
    kind, said = wire.hear()
    assert (kind, said.sequence_id, said.error) == (Type.SEND_ERROR, 5, ServerError.CHECKSUM)


def test_a_refusal_is_heard_in_its_turn(wire: Wire, unique: Unique) -> None:
    """Java's client passes over one that is heard before the receipts of the messages before it."""
    wire.connect()
    wire.say(Type.PRODUCER, topic=unique(), producer_id=1, request_id=1)
    assert wire.hear()[0] is Type.PRODUCER_SUCCESS
    for number, is_changed in enumerate([False, False, True, True, False]):
        if is_changed:
            wire.write(frame(command(Type.SEND, producer_id=1, sequence_id=number), CHANGED))
        else:
            wire.send(1, number, b"good")
    heard = [wire.hear() for _ in range(5)]
    assert [said.sequence_id for _, said in heard] == [0, 1, 2, 3, 4]
    assert [kind for kind, _ in heard] == [Type.SEND_RECEIPT] * 2 + [Type.SEND_ERROR] * 2 + [Type.SEND_RECEIPT]
