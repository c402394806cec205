"""A tenant of a real Pulsar is imported: every kind of message, schemas, and subscriptions with their holes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zlib
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pulsar as official

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.compat.harness.java import JavaRuntime, JavaSdk, known_jars
from tests.from_pulsar.by_hand import ByHand
from tests.from_pulsar.keys import pem_keys
from tests.from_pulsar.there import There
from tests.integration.command_line import CommandLine
from tests.integration.gateway.wire import Wire
from tests.steps import read_all
from tests.waiting import until

PATIENCE_S = 120.0


class Order(official.schema.Record):
    number = official.schema.Integer()


class OrderWithNote(official.schema.Record):
    number = official.schema.Integer()
    note = official.schema.String()


class OurOrder(pulsar.schema.Record):
    number = pulsar.schema.Integer()


def _addresses(there: There) -> list[str]:
    return ["--from", there.service_url, "--admin", there.admin_url]


def _command(service_url: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "pulsar_on_kafka.cli", "--url", service_url, "migrate", "import", *words]


def _received(client: pulsar.Client, topic: str, subscription: str) -> list[pulsar.Message]:
    """All that a fresh consumer gets, until nothing came for two seconds."""
    consumer = client.subscribe(topic, subscription, pulsar.ConsumerType.Shared)
    found: list[pulsar.Message] = []
    while True:
        try:
            found.append(consumer.receive(20_000 if not found else 2_000))
        except pulsar.Timeout:
            consumer.close()
            return found


def test_every_kind_of_message_and_every_hole(
    there: There, admin: AdminClient, client: pulsar.Client, service_url: str, tenant: str
) -> None:
    namespace = there.make_tenant(tenant)
    orders = f"persistent://{namespace}/orders"
    there.ask("PUT", f"/persistent/{namespace}/orders/partitions", 2)
    holes = there.client.subscribe(orders, "holes", official.ConsumerType.Shared)
    there.client.subscribe(orders, "nothing", official.ConsumerType.Shared).close()
    everything = there.client.subscribe(orders, "every thing", official.ConsumerType.Failover)
    producer = there.client.create_producer(orders, producer_name="shop", initial_sequence_id=41)
    for number in range(40):
        producer.send(
            b"%d" % number,
            properties={"number": str(number), "naïve": "ja"},
            partition_key=f"key {number % 7}",
            ordering_key=f"order {number % 3}",
            event_timestamp=1_700_000_000_000 + number,
        )
    producer.close()
    batches = there.client.create_producer(
        orders,
        batching_enabled=True,
        batching_max_publish_delay_ms=60_000,
        compression_type=official.CompressionType.LZ4,
        message_routing_mode=official.PartitionsRoutingMode.UseSinglePartition,
    )
    for number in range(40, 60):
        batches.send_async(b"%d" % number, None, properties={"number": str(number)})
    batches.flush()
    batches.close()
    seen = [holes.receive(20_000) for _ in range(60)]
    acknowledged = set()
    for message in seen:
        number = int(message.data())
        if number < 40 and number % 3 == 0:
            holes.acknowledge(message)
            acknowledged.add(number)
    for _ in range(60):
        everything.acknowledge(everything.receive(20_000))
    holes.close()
    everything.close()

    pok = CommandLine(service_url, "migrate")
    planned = pok("import", "plan", tenant, *_addresses(there)).stdout
    assert f"topic {orders} is not here" in planned
    assert not admin.list_namespaces(tenant)
    done = pok.json("import", "run", tenant, *_addresses(there))
    assert (done["from"], done["step"], done["run"]) == ("pulsar:standalone", "IMPORTED", 1)
    assert admin.get_policy(namespace, "retention_time_in_minutes") == -1

    found = {int(message.data()): message for message in read_all(client, orders)}
    assert sorted(found) == list(range(60))
    seventh = found[7]
    assert seventh.properties() == {"number": "7", "naïve": "ja"}
    assert (seventh.partition_key(), seventh.ordering_key()) == ("key 0", "order 1")
    assert (seventh.event_timestamp(), seventh.producer_name()) == (1_700_000_000_007, "shop")
    originals = {int(message.data()): message for message in seen}
    assert {n: m.publish_timestamp() for n, m in found.items()} == {
        n: m.publish_timestamp() for n, m in originals.items()
    }
    assert {n: m.message_id().partition() for n, m in found.items()} == {
        n: m.message_id().partition() for n, m in originals.items()
    }
    for number in range(40, 60):  # a batch stays one entry
        assert found[number].message_id().entry_id() == found[40].message_id().entry_id()

    report = pok.json("import", "verify", tenant)
    assert report["good"], report["problems"]
    assert sum(each["messages"] for each in report["partitions"]) == 60
    left = sorted(int(message.data()) for message in _received(client, orders, "holes"))
    assert left == sorted(set(range(60)) - acknowledged)
    assert len(_received(client, orders, "nothing")) == 60
    assert admin.subscription_stats(orders, "every thing").backlog == 0

    # Programs go on in Pulsar; the next run brings what came since, and nothing twice.
    holes = there.client.subscribe(orders, "holes", official.ConsumerType.Shared)
    for _ in range(len(left)):
        message = holes.receive(20_000)
        if int(message.data()) % 3 == 1:
            holes.acknowledge(message)
    holes.close()
    producer = there.client.create_producer(orders, producer_name="shop", initial_sequence_id=100)
    for number in range(60, 70):
        producer.send(b"%d" % number)
    producer.close()
    refused = pok.json("import", "verify", tenant, exits=1)
    assert sum(each["missing"] for each in refused["partitions"]) == 10
    assert pok.json("import", "run", tenant)["run"] == 2
    report = pok.json("import", "verify", tenant)
    assert report["good"], report["problems"]
    assert sorted(int(message.data()) for message in read_all(client, orders)) == list(range(70))
    status = pok.json("import", "status", tenant)
    assert {(each["partition"], each["final"]) for each in status["partitions"]} == {(0, True), (1, True)}


def test_schemas_nulls_chunks_and_names(
    there: There, admin: AdminClient, client: pulsar.Client, service_url: str, tenant: str
) -> None:
    namespace = there.make_tenant(tenant)
    described = f"persistent://{namespace}/described"
    for record, value in ((Order, Order(number=1)), (OrderWithNote, OrderWithNote(number=2, note="two"))):
        producer = there.client.create_producer(described, schema=official.schema.AvroSchema(record))
        producer.send(value)
        producer.close()
    strange = f"persistent://{namespace}/größe"
    there.client.subscribe(strange, "s").close()
    producer = there.client.create_producer(strange)
    producer.send(b"x")
    producer.close()
    large = f"persistent://{namespace}/large"
    slow = there.client.subscribe(large, "slow", official.ConsumerType.Shared)
    payload = os.urandom(12_000_000)
    producer = there.client.create_producer(large, chunking_enabled=True)
    producer.send(b"before")
    producer.send(payload, properties={"size": "12"})
    producer.send(b"after")
    producer.close()
    for message in [slow.receive(60_000) for _ in range(3)]:
        if len(message.data()) > 10:
            slow.acknowledge(message)
    slow.close()
    later = f"persistent://{namespace}/later"
    there.client.subscribe(later, "a/b c", official.ConsumerType.Shared).close()
    producer = there.client.create_producer(later)
    producer.send(b"in an hour", deliver_after=timedelta(hours=1))
    producer.send(b"now")
    producer.close()
    there.client.subscribe(large, "fast", initial_position=official.InitialPosition.Earliest).close()

    pok = CommandLine(service_url, "migrate")
    pok("import", "run", tenant, *_addresses(there), "--delivery-times")
    report = pok.json("import", "verify", tenant)
    assert report["good"], report["problems"]

    assert [entry.version.number for entry in admin.list_schema_versions(described)] == [0, 1]
    reader = client.create_reader(described, pulsar.MessageId.earliest, schema=pulsar.schema.AvroSchema(OurOrder))
    assert [reader.read_next(20_000).value().number for _ in range(2)] == [1, 2]
    assert [message.data() for message in _received(client, later, "a/b c")] == [b"now"]
    assert [message.data() for message in _received(client, strange, "s")] == [b"x"]
    assert [message.data() for message in read_all(client, large)] == [b"before", payload, b"after"]
    assert [message.data() for message in _received(client, large, "slow")] == [b"before", b"after"]
    assert [message.data() for message in _received(client, large, "fast")] == [b"before", payload, b"after"]


def test_encrypted_messages_stay_encrypted_or_are_named(
    there: There, client: pulsar.Client, service_url: str, tenant: str, tmp_path: Path
) -> None:
    namespace = there.make_tenant(tenant)
    topic = f"persistent://{namespace}/secrets"
    public, private = pem_keys(tmp_path)
    options = {"encryption_key": "k", "crypto_key_reader": official.CryptoKeyReader(str(public), str(private))}
    producer = there.client.create_producer(topic, **options)
    producer.send(b"a secret", properties={"number": "1"})
    producer.close()
    pok = CommandLine(service_url, "migrate")
    pok("import", "run", tenant, *_addresses(there))
    assert pok.json("import", "verify", tenant)["good"]
    reader = client.create_reader(
        topic, pulsar.MessageId.earliest, crypto_key_reader=pulsar.CryptoKeyReader(str(public), str(private))
    )
    message = reader.read_next(20_000)
    assert (message.data(), message.properties()) == (b"a secret", {"number": "1"})
    producer = there.client.create_producer(topic, compression_type=official.CompressionType.ZLib, **options)
    producer.send(b"compressed first")
    producer.close()
    assert "give the private key" in pok("import", "run", tenant, exits=1).stderr
    assert "give the private key" in pok.json("import", "status", tenant)["problem"]
    pok("import", "run", tenant, "--private-key", str(private))
    assert reader.read_next(20_000).data() == b"compressed first"


def test_what_transactions_sent_and_acknowledged(
    there: There, admin: AdminClient, client: pulsar.Client, service_url: str, tenant: str
) -> None:
    """Only what was committed comes, and of the rest only what is open yet comes later."""
    namespace = there.make_tenant(tenant)
    paid, void = f"persistent://{namespace}/paid", f"persistent://{namespace}/void"
    with ExitStack() as stack:
        java = JavaSdk(stack.enter_context(JavaRuntime(known_jars())).address)
        stack.callback(java.end_jvm)
        teller = java.Client(there.service_url, enable_transaction=True, operation_timeout_seconds=120)
        stack.callback(teller.close)
        consumer = teller.subscribe(paid, "s", consumer_type=java.ConsumerType.Shared)
        there.client.subscribe(void, "s").close()
        there.client.subscribe(paid, "all").close()
        producer = teller.create_producer(paid, send_timeout_millis=0)
        batches = teller.create_producer(
            paid, send_timeout_millis=0, batching_enabled=True, batching_max_publish_delay_ms=60_000
        )

        def begun() -> Any:
            return teller.new_transaction(600_000)

        def batch(texts: list[bytes], txn: Any) -> None:
            for text in texts:
                batches.send_async(text, None, txn=txn)
            batches.flush()

        good, bad = begun(), begun()
        producer.send(b"before")
        for text, txn in ((b"a", good), (b"no", bad), (b"b", good), (b"no", bad)):
            producer.send(text, txn=txn)
        good.commit()
        bad.abort()
        producer.send(b"between")
        good, bad = begun(), begun()
        batch([b"c", b"d", b"e"], good)
        batch([b"no"] * 3, bad)
        good.commit()
        bad.abort()
        nothing = begun()
        teller.create_producer(void, send_timeout_millis=0).send(b"no", txn=nothing)
        nothing.abort()
        acknowledging = {b"a": begun(), b"b": begun(), b"before": begun()}
        together: set[tuple[int, int]] = set()
        """The entries of c, d and e: one, unless their transaction's partition was registered while they were sent."""
        for message in [consumer.receive(20_000) for _ in range(7)]:
            if message.data() in (b"c", b"d", b"e"):
                together.add((message.message_id().ledger_id(), message.message_id().entry_id()))
            if message.data() in acknowledging:
                consumer.acknowledge(message, txn=acknowledging[message.data()])
        acknowledging[b"a"].commit()
        acknowledging[b"b"].abort()

        texts = [b"before", b"a", b"b", b"between", b"c", b"d", b"e"]
        pok = CommandLine(service_url, "migrate")

        def comes(run: int, read: list[bytes], left: list[bytes]) -> None:
            ran, verified = (
                pok("import", *words, "--output", "json")
                for words in (("run", tenant, *_addresses(there)), ("verify", tenant))
            )
            for each in (ran, verified):
                assert "gives nothing more" not in each.stderr, "it is known that nothing more comes"
            assert json.loads(ran.stdout)["run"] == run
            report = json.loads(verified.stdout)
            assert report["good"], report["problems"]
            assert sum(each["messages"] for each in report["partitions"]) == len(read)
            assert [message.data() for message in read_all(client, paid)] == read
            found = {
                each["name"]: each["left_here"]
                for partition in report["partitions"]
                for each in partition["subscriptions"]
                if partition["topic"] == paid
            }
            fewer = 3 - len(together)
            assert found == {"s": len(left) - fewer, "all": len(read) - fewer}

        comes(1, texts, texts[:1] + texts[2:])
        open_yet = begun()
        producer.send(b"x", txn=open_yet)
        producer.send(b"after")
        comes(2, texts, texts[:1] + texts[2:])
        open_yet.commit()
        acknowledging[b"before"].commit()
        texts += [b"x", b"after"]
        comes(3, texts, texts[2:])
    assert sorted(message.data() for message in _received(client, paid, "s")) == sorted(texts[2:])
    assert admin.subscription_stats(void, "s").backlog == 0


def test_messages_in_chunks_that_pulsars_client_gives_up_are_named(
    there: There, client: pulsar.Client, service_url: str, tenant: str
) -> None:
    """It puts ten together at a time; of twelve whose chunks lie among each other's it never gives two."""
    topic = f"persistent://{there.make_tenant(tenant)}/among"
    with Wire(there) as wire:
        producer = ByHand(wire, topic)
        producer.send(b"before")
        for chunk in range(2):
            for number in range(12):
                payload = b"%02d, part %d." % (number, chunk)
                producer.send(payload, uuid=f"m-{number}", chunks=2, chunk_id=chunk, chunked_bytes=2 * len(payload))
        producer.send(b"after")
    # In this process `there.client` has the log of Pulsar's client.
    ran = subprocess.run(_command(service_url, "run", tenant, *_addresses(there)), capture_output=True, check=True)
    assert b"2 messages in chunks" in ran.stderr, ran.stderr
    verified = subprocess.run(_command(service_url, "verify", tenant, "--output", "json"), capture_output=True)
    assert verified.returncode == 1
    report = json.loads(verified.stdout)
    (problem,) = report["problems"]
    assert problem.startswith(f"{topic} partition 0: 2 messages in chunks"), problem
    assert report["partitions"][0]["given_up"] == 2
    whole = [b"%02d, part 0.%02d, part 1." % (number, number) for number in range(2, 12)]
    assert [message.data() for message in read_all(client, topic)] == [b"before", *whole, b"after"]


def test_compressed_chunks_of_which_pulsar_says_nothing(
    there: There, client: pulsar.Client, service_url: str, tenant: str
) -> None:
    """Its admin API does not answer for them: neither who waits for the end of a topic, nor who asks when a message
    is due, may fail of that."""
    topic = f"persistent://{there.make_tenant(tenant)}/compressed"
    there.client.subscribe(topic, "s").close()
    payload = os.urandom(10_000)
    packed = zlib.compress(payload)
    middle = len(packed) // 2
    of_all = {"compression": 2, "uncompressed_bytes": len(payload), "chunks": 2, "chunked_bytes": len(packed)}
    with Wire(there) as wire:
        producer = ByHand(wire, topic)
        for number in range(2):
            producer.send(packed[:middle], uuid=f"m-{number}", chunk_id=0, **of_all)
            producer.send(packed[middle:], uuid=f"m-{number}", chunk_id=1, **of_all)
        producer.send(b"in an hour", deliver_at_ms=time.time_ns() // 1_000_000 + 3_600_000)
        producer.send(packed[:middle], uuid="never complete", chunk_id=0, **of_all)
    pok = CommandLine(service_url, "migrate")
    ran = pok("import", "run", tenant, *_addresses(there), "--delivery-times")
    assert "does not report when" in ran.stdout + ran.stderr
    report = pok.json("import", "verify", tenant)
    assert report["good"], report["problems"]
    assert [message.data() for message in _received(client, topic, "s")] == [payload, payload]


def test_a_run_that_is_killed_is_gone_on_with(
    there: There, admin: AdminClient, client: pulsar.Client, service_url: str, tenant: str
) -> None:
    namespace = there.make_tenant(tenant)
    orders = f"persistent://{namespace}/orders"
    some = there.client.subscribe(orders, "some", official.ConsumerType.Shared, receiver_queue_size=10_000)
    producer = there.client.create_producer(orders, block_if_queue_full=True)
    count = 60_000
    for number in range(count):
        producer.send_async(b"%d" % number, None)
    producer.flush()
    producer.close()
    for _ in range(count // 2):
        message = some.receive(20_000)
        if int(message.data()) % 2:
            some.acknowledge(message)
    some.close()

    command = _command(service_url, "run", tenant, *_addresses(there))
    for copied in (1, 20_000):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def has_copied(wanted: int = copied) -> bool:
            try:
                return sum(each.end for each in admin.subscription_cursors(orders, "some")) >= wanted
            except pulsar.PulsarException:
                return False

        until(has_copied, "the import to have copied something")
        process.send_signal(signal.SIGKILL)
        process.wait()
    pok = CommandLine(service_url, "migrate")
    assert pok.json("import", "run", tenant)["run"] == 3
    report = pok.json("import", "verify", tenant)
    assert report["good"], report["problems"]
    assert [int(message.data()) for message in read_all(client, orders)] == list(range(count))
