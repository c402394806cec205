"""A tenant goes to a real Pulsar: from here, and back from here after it came from there."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.error
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pulsar as official
import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.clusters.migration.to_pulsar.exported_copies import MessagePlace, export_name, sequence_id
from pulsar_on_kafka.schema import AvroSchema, Integer, KeyValue, KeyValueEncodingType, KeyValueSchema, Record, String
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from tests.from_pulsar.by_hand import ByHand
from tests.from_pulsar.keys import pem_keys
from tests.from_pulsar.there import There
from tests.integration.command_line import CommandLine
from tests.integration.gateway.wire import Wire
from tests.steps import read_all
from tests.waiting import patience, until

_KEPT = {"retention_time_in_minutes": -1, "retention_size_in_mb": -1}


class Order(Record):
    number = Integer()


class OrderWithNote(Record):
    number = Integer()
    note = String()


def _to(there: There) -> list[str]:
    return ["--to", there.service_url, "--admin", there.admin_url]


def _namespace(admin: AdminClient, tenant: str) -> str:
    namespace = f"{tenant}/shop"
    admin.create_namespace(namespace)
    admin.set_policies(namespace, {**_KEPT, "schema_compatibility_strategy": "ALWAYS_COMPATIBLE"})
    return namespace


def _read(there: There, topic: str) -> list[Any]:
    reader = there.client.create_reader(topic, official.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(60_000))
    reader.close()
    return found


def _by_partition(messages: Iterable[Any]) -> dict[int, list[bytes]]:
    """The payloads of each partition in their order."""
    found: dict[int, list[bytes]] = {}
    for message in messages:
        found.setdefault(message.message_id().partition(), []).append(message.data())
    return found


def _left(there: There, topic: str, subscription: str) -> list[bytes]:
    """All that a fresh consumer in Pulsar gets, until nothing came for two seconds; none is acknowledged."""
    consumer = there.client.subscribe(topic, subscription, official.ConsumerType.Shared)
    found: list[bytes] = []
    while True:
        try:
            found.append(consumer.receive(20_000 if not found else 2_000).data())
        except official.Timeout:
            consumer.close()
            return found


def _acknowledge(consumer: Any, count: int, done: Iterable[int]) -> None:
    """Receive so many messages, and acknowledge those with these numbers."""
    chosen = set(done)
    for message in [consumer.receive(60_000) for _ in range(count)]:
        if int(message.data()) in chosen:
            consumer.acknowledge(message)
    consumer.close()


@pytest.fixture
def transactional(service_url: str) -> Iterator[pulsar.Client]:
    with closing(pulsar.Client(service_url, operation_timeout_seconds=120, enable_transaction=True)) as made:
        yield made


def test_a_tenant_that_was_never_there(
    there: There, admin: AdminClient, client: pulsar.Client, service_url: str, tenant: str
) -> None:
    """Every kind of message, on two partitions, with subscriptions with holes; and what came since, by a second run."""
    orders = f"persistent://{_namespace(admin, tenant)}/orders"
    admin.create_partitioned_topic(orders, 2)
    for name in ("holes", "nothing", "all"):
        admin.create_subscription(orders, name)
    producer = client.create_producer(orders)
    for number in range(40):
        producer.send(
            b"%d" % number,
            properties={"number": str(number), "naïve": "ja"},
            partition_key=f"key {number % 7}",
            ordering_key=f"order {number % 3}",
            event_timestamp=1_700_000_000_000 + number,
        )
    producer.close()
    batches = client.create_producer(orders, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for number in range(40, 60):
        batches.send_async(b"%d" % number, None)
    batches.flush()
    batches.close()
    acknowledged = {number for number in range(60) if number % 3 == 0}
    _acknowledge(client.subscribe(orders, "holes", pulsar.ConsumerType.Shared), 60, acknowledged)
    _acknowledge(client.subscribe(orders, "all", pulsar.ConsumerType.Shared), 60, range(60))

    pok = CommandLine(service_url, "migrate")
    unknown = pok("export", "run", f"{tenant}-else", *_to(there), exits=1).stderr
    assert f"tenant {tenant}-else has no namespace here" in unknown
    assert f"topic {orders} is not in Pulsar" in pok("export", "plan", tenant, *_to(there)).stdout
    ran = pok.json("export", "run", tenant, *_to(there))
    assert sum(each["messages"] for each in ran["partitions"]) == 60
    read = _read(there, orders)
    assert sorted(int(message.data()) for message in read) == list(range(60))
    assert _by_partition(read) == _by_partition(read_all(client, orders))
    seventh = next(message for message in read if message.data() == b"7")
    assert seventh.properties() == {"number": "7", "naïve": "ja"}
    assert (seventh.partition_key(), seventh.ordering_key()) == ("key 0", "order 1")
    assert seventh.event_timestamp() == 1_700_000_000_007
    assert sorted(map(int, _left(there, orders, "holes"))) == sorted({*range(60)} - acknowledged)
    assert len(_left(there, orders, "nothing")) == 60
    there.client.subscribe(orders, "all", official.ConsumerType.Failover).close()
    assert not pok.json("export", "verify", tenant, *_to(there))["problems"]

    producer = client.create_producer(orders)
    for number in range(60, 80):
        producer.send(b"%d" % number)
    producer.close()
    left = sorted({*range(80)} - acknowledged)
    more = {number for number in left if number % 3 == 1}
    _acknowledge(client.subscribe(orders, "holes", pulsar.ConsumerType.Shared), len(left), more)
    refused = pok.json("export", "verify", tenant, *_to(there), exits=1)
    assert sum(each["missing"] for each in refused["partitions"]) == 20
    ran = pok.json("export", "run", tenant, *_to(there))
    assert sum(each["messages"] for each in ran["partitions"]) == 20
    assert sorted(int(message.data()) for message in _read(there, orders)) == list(range(80))
    assert sorted(map(int, _left(there, orders, "holes"))) == sorted({*left} - more)
    report = pok.json("export", "verify", tenant, *_to(there))
    assert report["good"], report["problems"]


@pytest.fixture
def gateway_client(addresses: list[str]) -> Iterator[Any]:
    url = addresses[addresses.index("--gateway") + 1]
    client = official.Client(url, logger=official.ConsoleLogger(official.LoggerLevel.Error))
    yield client
    client.close()


def test_the_way_back_of_a_tenant_that_was_sent_here(
    there: There,
    admin: AdminClient,
    client: pulsar.Client,
    service_url: str,
    tenant: str,
    addresses: list[str],
    gateway_client: Any,
) -> None:
    """Started on Pulsar and sent here, written and acknowledged by official clients and the SDK, and taken back."""
    orders = f"persistent://{there.make_tenant(tenant)}/orders"
    there.ask("PUT", f"/persistent/{tenant}/shop/orders/partitions", 2)
    there.client.subscribe(orders, "nothing").close()
    holes = there.client.subscribe(orders, "holes", official.ConsumerType.Shared)
    producer = there.client.create_producer(orders, batching_enabled=True, batching_max_publish_delay_ms=20)
    for number in range(40):
        producer.send_async(b"%d" % number, None, partition_key=f"key {number % 5}")
    producer.flush()
    producer.close()
    there.client.create_producer(orders).send(b"40", partition_key="key 0")
    _acknowledge(holes, 41, {40})
    pok = CommandLine(service_url, "migrate")
    assert pok.json("import", "switch", tenant, *addresses, "--yes")["switch"] == "OPEN"

    holes = gateway_client.subscribe(orders, "holes", official.ConsumerType.Shared, batch_index_ack_enabled=True)
    _acknowledge(holes, 40, range(0, 40, 2))
    producer = gateway_client.create_producer(orders, batching_enabled=True, batching_max_publish_delay_ms=20)
    for number in range(41, 60):
        producer.send_async(b"%d" % number, None, partition_key=f"key {number % 5}", properties={"by": "official"})
    producer.flush()
    producer.close()
    producer = client.create_producer(orders)
    for number in range(60, 70):
        producer.send(b"%d" % number, partition_key=f"key {number % 5}", properties={"by": "sdk"})
    producer.close()
    _acknowledge(client.subscribe(orders, "holes", pulsar.ConsumerType.Shared), 49, {*range(41, 70, 3)})
    left = sorted({*range(1, 40, 2), *range(41, 70)} - {*range(41, 70, 3)})

    refused = pok("export", "run", tenant, exits=1).stderr
    assert "Pulsar has terminated 1 topic" in refused
    assert orders in refused
    assert f"topic {orders} is terminated in Pulsar" in pok("export", "plan", tenant).stdout
    there.ask("DELETE", f"/persistent/{tenant}/shop/orders/partitions?force=true")
    ran = pok.json("export", "run", tenant)
    assert sum(each["messages"] for each in ran["partitions"]) == 70
    read = _read(there, orders)
    assert sorted(int(message.data()) for message in read) == list(range(70))
    assert _by_partition(read) == _by_partition(read_all(client, orders))
    by = {int(message.data()): message.properties().get("by") for message in read}
    assert (by[40], by[41], by[60]) == (None, "official", "sdk")
    assert sorted(map(int, _left(there, orders, "holes"))) == left
    assert len(_left(there, orders, "nothing")) == 70
    report = pok.json("export", "verify", tenant)
    assert report["good"], report["problems"]
    assert sum(each["messages"] for each in pok.json("export", "run", tenant)["partitions"]) == 0


def test_what_pulsar_still_has_is_not_sent_again(
    there: There, admin: AdminClient, client: pulsar.Client, service_url: str, tenant: str
) -> None:
    """Programs came here without a switch: what was acknowledged here of their messages is acknowledged in Pulsar."""
    orders = f"persistent://{there.make_tenant(tenant)}/orders"
    there.client.subscribe(orders, "holes", official.ConsumerType.Shared).close()
    producer = there.client.create_producer(orders)
    for number in range(10):
        producer.send(b"%d" % number)
    producer.close()
    pok = CommandLine(service_url, "migrate")
    pok("import", "run", tenant, "--from", there.service_url, "--admin", there.admin_url)
    producer = client.create_producer(orders)
    for number in range(10, 20):
        producer.send(b"%d" % number)
    producer.close()
    _acknowledge(client.subscribe(orders, "holes", pulsar.ConsumerType.Shared), 20, range(0, 20, 3))
    (ran,) = pok.json("export", "run", tenant)["partitions"]
    assert (ran["messages"], ran["left_out"], ran["acknowledged"]) == (10, 10, {"holes": 7})
    assert [int(message.data()) for message in _read(there, orders)] == list(range(20))
    assert _left(there, orders, "holes") == [b"%d" % number for number in range(20) if number % 3]
    report = pok.json("export", "verify", tenant)
    assert report["good"], report["problems"]


def test_a_run_that_is_killed_is_gone_on_with(
    there: There, admin: AdminClient, client: pulsar.Client, service_url: str, tenant: str
) -> None:
    orders = f"persistent://{_namespace(admin, tenant)}/orders"
    admin.create_topic(orders)
    admin.create_subscription(orders, "some")
    producer = client.create_producer(orders, block_if_queue_full=True)
    count = 30_000
    for number in range(count):
        producer.send_async(b"%d" % number, None)
    producer.flush()
    producer.close()
    _acknowledge(client.subscribe(orders, "some", pulsar.ConsumerType.Shared), count, range(1, count, 2))

    words = [sys.executable, "-m", "pulsar_on_kafka.cli", "--url", service_url, "migrate", "export", "run", tenant]

    def entries() -> int:
        try:
            found = there.ask("GET", f"/persistent/{tenant}/shop/orders/internalStats")
        except urllib.error.HTTPError:
            return 0
        return int(found["numberOfEntries"])

    for stored in (1, count // 2):
        process = subprocess.Popen([*words, *_to(there)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def has_sent(wanted: int = stored) -> bool:
            return entries() >= wanted

        until(has_sent, "the export to have sent something")
        process.send_signal(signal.SIGKILL)
        process.wait()
    pok = CommandLine(service_url, "migrate")
    (ran,) = pok.json("export", "run", tenant, *_to(there))["partitions"]
    assert ran["messages"] <= count // 2
    assert [int(message.data()) for message in _read(there, orders)] == list(range(count))
    report = pok.json("export", "verify", tenant, *_to(there))
    assert report["good"], report["problems"]
    (partition,) = report["partitions"]
    assert (partition["equal"], partition["subscriptions"][0]["left_there"]) == (count, count // 2)


def test_pulsar_has_forgotten_the_sequence_ids(
    there: There, admin: AdminClient, client: pulsar.Client, service_url: str, tenant: str
) -> None:
    """The copies themselves show what is there, also among messages of programs that write to Pulsar."""
    namespace = _namespace(admin, tenant)
    orders = f"persistent://{namespace}/orders"
    client.subscribe(orders, "s", pulsar.ConsumerType.Shared).close()
    producer = client.create_producer(orders)
    for number in range(10):
        producer.send(b"%d" % number)
    pok = CommandLine(service_url, "migrate")
    pok("export", "run", tenant, *_to(there))

    there.ask("POST", f"/namespaces/{namespace}/deduplication", False)

    def is_forgotten() -> bool:
        return bool(there.ask("GET", f"/persistent/{namespace}/orders/stats")["deduplicationStatus"] == "Disabled")

    until(is_forgotten, "Pulsar to end deduplication")
    there.client.create_producer(orders).send(b"100")
    for number in range(10, 20):
        producer.send(b"%d" % number)
    _acknowledge(client.subscribe(orders, "s", pulsar.ConsumerType.Shared), 20, range(0, 20, 2))
    (ran,) = pok.json("export", "run", tenant, *_to(there))["partitions"]
    assert (ran["messages"], ran["acknowledged"]) == (10, {"s": 10})
    assert [int(message.data()) for message in _read(there, orders)] == [*range(10), 100, *range(10, 20)]
    assert sorted(map(int, _left(there, orders, "s"))) == [*range(1, 20, 2), 100]
    report = pok.json("export", "verify", tenant, *_to(there))
    assert report["good"], report["problems"]


def test_a_run_that_was_killed_within_a_message_in_chunks(
    there: There, admin: AdminClient, client: pulsar.Client, service_url: str, tenant: str
) -> None:
    """The next run sends all chunks again, by another name: clients drop a message whose first chunk came twice."""
    namespace = _namespace(admin, tenant)
    large = f"persistent://{namespace}/large"
    client.subscribe(large, "s", pulsar.ConsumerType.Shared).close()
    payload = bytes(range(256)) * 50_000
    producer = client.create_producer(large, chunking_enabled=True)
    producer.send(b"0")
    pok = CommandLine(service_url, "migrate")
    pok("export", "run", tenant, *_to(there))
    producer.send(payload)
    producer.send(b"2")
    with Wire(there) as wire:
        killed = ByHand(wire, large)
        here = admin.node.topics.open(TopicName.parse(large), patience())
        name = export_name(admin.node.cluster_id, here.layout.incarnation, 0)
        uuid = f"{name}-{sequence_id(MessagePlace(read_all(client, large)[1].offset, 0))}"
        killed.send(b"x", uuid=uuid, chunks=3, chunk_id=0, chunked_bytes=len(payload))
    pok("export", "run", tenant, *_to(there))
    assert [message.data() for message in _read(there, large)] == [b"0", payload, b"2"]
    report = pok.json("export", "verify", tenant, *_to(there))
    assert report["good"], report["problems"]


def test_what_cannot_be_exported_is_named(
    there: There, admin: AdminClient, client: pulsar.Client, service_url: str, tenant: str, tmp_path: Path
) -> None:
    """Messages before it are in Pulsar, and the run after the cause is gone sends the others once."""
    namespace = _namespace(admin, tenant)
    secrets = f"persistent://{namespace}/secrets"
    public, private = pem_keys(tmp_path)
    producer = client.create_producer(secrets)
    producer.send(b"0")
    keys = pulsar.CryptoKeyReader(str(public), str(private))
    client.create_producer(secrets, encryption_key="k", crypto_key_reader=keys).send(b"1")
    producer.send(b"2")
    producer.close()
    pok = CommandLine(service_url, "migrate")
    refused = pok("export", "run", tenant, *_to(there), exits=1).stderr
    assert f"{secrets} partition 0: message" in refused
    assert "at offset 1 cannot be exported: it is encrypted" in refused
    assert len(_read(there, secrets)) == 1
    pok("export", "run", tenant, *_to(there), "--private-key", str(private))
    assert [message.data() for message in _read(there, secrets)] == [b"0", b"1", b"2"]

    pairs = f"persistent://{namespace}/pairs"
    schema = KeyValueSchema(pulsar.schema.StringSchema(), AvroSchema(Order), KeyValueEncodingType.SEPARATED)
    client.create_producer(pairs, schema=schema).send(KeyValue("a key", Order(number=3)))
    assert "its schema is KEY_VALUE" in pok("export", "run", tenant, *_to(there), exits=1).stderr
    admin.delete_topic(pairs, force=True)

    apart = f"persistent://{namespace}/apart"
    admin.create_partitioned_topic(apart, 2)
    there.ask("PUT", f"/persistent/{namespace}/apart/partitions", 3)
    wrong = f"topic {apart} has 3 partitions in Pulsar and 2 here"
    assert wrong in pok("export", "run", tenant, *_to(there), exits=1).stderr
    assert wrong in pok("export", "plan", tenant, *_to(there)).stdout
    admin.delete_topic(apart, force=True)

    held = f"persistent://{namespace}/held"
    client.subscribe(held, "s", pulsar.ConsumerType.Shared).close()
    client.create_producer(held).send(b"1")
    pok("export", "run", tenant, *_to(there), "--private-key", str(private))
    _acknowledge(client.subscribe(held, "s", pulsar.ConsumerType.Shared), 1, {1})
    busy = there.client.subscribe(held, "s", official.ConsumerType.Exclusive)
    refused = pok("export", "run", tenant, *_to(there), "--private-key", str(private), exits=1).stderr
    assert f"subscription s of {held}" in refused
    busy.close()
    pok("export", "run", tenant, *_to(there), "--private-key", str(private))
    stats = there.ask("GET", f"/persistent/{namespace}/held/stats")
    assert stats["subscriptions"]["s"]["msgBacklog"] == 0


def test_schemas_nulls_chunks_delays_and_transactions(
    there: There, admin: AdminClient, transactional: pulsar.Client, service_url: str, tenant: str
) -> None:
    namespace, client = _namespace(admin, tenant), transactional
    described = f"persistent://{namespace}/described"
    for record, value in ((Order, Order(number=1)), (OrderWithNote, OrderWithNote(number=2, note="two"))) * 2:
        producer = client.create_producer(described, schema=AvroSchema(record))
        producer.send(value)
        producer.close()
    producer = client.create_producer(described)
    producer.send(b"without a schema")
    producer.close()
    mixed, strange = f"persistent://{namespace}/mixed", f"persistent://{namespace}/größe"
    for topic, subscription in ((mixed, "a/b c"), (strange, "s")):
        admin.create_topic(topic)
        admin.create_subscription(topic, subscription, properties={"who": "we"})
    client.create_producer(strange).send(b"x")
    payload = bytes(range(256)) * 50_000
    producer = client.create_producer(mixed, chunking_enabled=True)
    producer.send(b"before")
    producer.send(None, partition_key="deleted")
    producer.send(payload, properties={"size": "12"})
    producer.send(b"in an hour", deliver_after=timedelta(hours=1))
    bad, good = client.new_transaction(), client.new_transaction()
    for text, txn in ((b"a", good), (b"no", bad), (b"b", good)):
        producer.send(text, txn=txn)
    bad.abort()
    good.commit()
    producer.send(b"after")
    consumer = client.subscribe(mixed, "a/b c", pulsar.ConsumerType.Shared)
    for message in [consumer.receive(60_000) for _ in range(6)]:
        if message.data() == payload:
            consumer.acknowledge(message)
    consumer.close()

    pok = CommandLine(service_url, "migrate")
    pok("export", "run", tenant, *_to(there))
    versions = there.ask("GET", f"/schemas/{namespace}/described/schemas")["getSchemaResponses"]
    assert [each["version"] for each in versions] == [0, 1]
    found = _read(there, described)
    assert [message._message.int_schema_version() for message in found] == [0, 1, 0, 1, -1]
    ours = [message.data() for message in read_all(client, described)]
    assert [message.data() for message in found] == ours
    assert _left(there, strange, "s") == [b"x"]
    stats = there.ask("GET", f"/persistent/{namespace}/mixed/stats")
    assert stats["subscriptions"]["a/b c"]["subscriptionProperties"] == {"who": "we"}
    read = _read(there, mixed)
    assert [message.data() for message in read] == [
        b"before", b"", payload, b"in an hour", b"a", b"b", b"after"
    ]  # fmt: skip
    assert (read[1].has_null_value(), read[1].partition_key()) == (True, "deleted")
    assert _left(there, mixed, "a/b c") == [b"before", b"", b"a", b"b", b"after"]
    report = pok.json("export", "verify", tenant, *_to(there))
    assert report["good"], report["problems"]

    # An open transaction ends a run; the next one goes on when it has ended.
    waits = client.new_transaction()
    producer.send(b"x", txn=waits)
    producer.send(b"behind it")
    ran = pok("export", "run", tenant, *_to(there))
    assert "whose transaction is open" in ran.stderr
    assert len(_read(there, mixed)) == 7
    waits.commit()
    pok("export", "run", tenant, *_to(there))
    assert [message.data() for message in _read(there, mixed)][7:] == [b"x", b"behind it"]
