"""A tenant goes to a real Pulsar: from here, and back from here after it came from there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pulsar as official
import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.schema import AvroSchema, Integer, Record, String
from tests.from_pulsar.there import There
from tests.integration.command_line import CommandLine

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
    assert f"topic {orders} is not in Pulsar" in pok("export", "plan", tenant, *_to(there)).stdout
    ran = pok.json("export", "run", tenant, *_to(there))
    assert sum(each["messages"] for each in ran["partitions"]) == 60
    read = _read(there, orders)
    originals = {int(message.data()): message for message in _read_here(client, orders)}
    assert sorted(int(message.data()) for message in read) == list(range(60))
    for partition in range(2):
        ours = [n for n, message in originals.items() if message.message_id().partition() == partition]
        assert [int(each.data()) for each in read if each.message_id().partition() == partition] == ours
    seventh = next(message for message in read if message.data() == b"7")
    assert seventh.properties() == {"number": "7", "naïve": "ja"}
    assert (seventh.partition_key(), seventh.ordering_key()) == ("key 0", "order 1")
    assert seventh.event_timestamp() == 1_700_000_000_007
    assert sorted(map(int, _left(there, orders, "holes"))) == sorted({*range(60)} - acknowledged)
    assert len(_left(there, orders, "nothing")) == 60
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


def _read_here(client: pulsar.Client, topic: str) -> list[pulsar.Message]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(20_000))
    reader.close()
    return found


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
    ours = [message.data() for message in _read_here(client, described)]
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
