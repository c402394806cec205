"""Producers, consumers and readers that follow a tenant from one cluster to another, on two brokers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.lookup.http_directory import HttpDirectory
from pulsar_on_kafka.broker.lookup.tenant_locations import LookupFailed
from pulsar_on_kafka.broker.metadata.tenants import TenantMove
from pulsar_on_kafka.client.failover.switchable_consumer import GRACE_S
from tests.clusters.cluster import Cluster
from tests.waiting import until


@pytest.fixture
def lookup_port(west: Cluster) -> Iterator[int]:
    """A lookup service of west's map, which knows both."""
    with west.lookup_port() as port:
        yield port


def test_clients_move_with_their_tenant(clusters: dict[str, Cluster], lookup_port: int, tenant: str) -> None:
    west, east = clusters["west"].admin, clusters["east"].admin
    tenants = west.node.tenants
    topic = f"persistent://{tenant}/ns/orders"
    for admin in (west, east):
        admin.create_namespace(f"{tenant}/ns")
        admin.create_partitioned_topic(topic, 2)
    east.create_subscription(topic, "billing", from_earliest=True)
    client = pulsar.Client(f"pok+lookup://127.0.0.1:1,127.0.0.1:{lookup_port}", operation_timeout_seconds=20)
    with pytest.raises(pulsar.ConnectError, match="is on no cluster"):
        client.create_producer(topic)
    west.assign_tenant(tenant, "west")
    until(lambda: _is_there(lookup_port, tenant), "the tenant to be in the directory")

    producer = client.create_producer(topic, "shop", block_if_queue_full=True)
    consumer = client.subscribe(topic, "billing", pulsar.ConsumerType.Shared)
    reader = client.create_reader(topic, pulsar.MessageId.latest)
    for number in range(10):
        producer.send(b"w%d" % number)
    assert producer.last_sequence_id() == 4, "each partition is counted for itself"
    mine = [consumer.receive(10_000) for _ in range(10)]
    assert [reader.read_next(10_000).data()[:1] for _ in range(10)] == [b"w"] * 10
    for message in mine[1:]:
        consumer.acknowledge(message)

    held, answers = threading.Event(), []
    tenants.move(tenant, TenantMove.BEGIN_SWITCH, Deadline.after(10), "east")
    until(lambda: not producer.is_connected(), "the producer to leave")
    for number in range(5):
        producer.send_async(b"e%d" % number, lambda result, _: answers.append(result))
    threading.Thread(target=lambda: (producer.flush(), held.set()), daemon=True).start()
    with pytest.raises(pulsar.Timeout):
        consumer.receive(300)
    until(lambda: not west.subscription_stats(topic, "billing").consumers, "the consumers to leave the west")
    stats = west.subscription_stats(topic, "billing")
    assert stats.backlog == 1, "what was acknowledged is saved, and one message is not"
    assert not held.is_set()

    tenants.move(tenant, TenantMove.FINISH_SWITCH, Deadline.after(10), "east")
    assert held.wait(30), "flush returns when what waited is stored on the next cluster"
    assert answers == [pulsar.Result.Ok] * 5
    assert producer.last_sequence_id() == 7, "numbers go on"
    received = [consumer.receive(10_000) for _ in range(5)]
    assert sorted(message.data() for message in received) == [b"e%d" % number for number in range(5)]
    consumer.acknowledge(mine[0])  # too late: of the cluster that was left
    for message in received:
        consumer.acknowledge(message)
    consumer.flush()
    assert east.subscription_stats(topic, "billing").backlog == 0
    assert west.subscription_stats(topic, "billing").backlog == 1
    with pytest.raises(pulsar.InvalidMessage):
        consumer.seek(mine[0].message_id())
    assert sorted(reader.read_next(10_000).data() for _ in range(5)) == [b"e%d" % number for number in range(5)]
    assert client.get_topic_partitions(topic) == east.list_partitions(topic)
    consumer.close()
    producer.close()
    with pytest.raises(pulsar.AlreadyClosed):
        producer.send(b"more")
    client.close()
    with pytest.raises(pulsar.AlreadyClosed):
        reader.read_next()


@pytest.mark.long
def test_what_is_acknowledged_late_is_acknowledged_on_the_copies(
    clusters: dict[str, Cluster], lookup_port: int, tenant: str
) -> None:
    west, east = clusters["west"].admin, clusters["east"].admin
    topic = f"persistent://{tenant}/ns/orders"
    client = _at_home(west, east, lookup_port, tenant, [topic])
    consumer = client.subscribe(topic, "billing", pulsar.ConsumerType.Shared)
    with clusters["west"].replicating(), clusters["east"].replicating():
        elsewhere = clusters["east"].client.create_producer(topic)  # first published where the tenant goes
        elsewhere.send(b"e0")
        elsewhere.send(b"e1")
        elsewhere.close()
        _send_singly_and_in_a_batch(client, topic, 5)
        mine = {message.data(): message for message in (consumer.receive(20_000) for _ in range(11))}
        until(lambda: clusters["west"].has_copied(topic, clusters["east"]), "everything to be copied")
        west.node.tenants.move(tenant, TenantMove.BEGIN_SWITCH, Deadline.after(10), "east")
        until(lambda: not west.subscription_stats(topic, "billing").consumers, "the consumers to leave the west")
        for text in (b"w1", b"b2", b"e1"):
            consumer.acknowledge(mine[text])
        consumer.acknowledge(mine[b"w3"].message_id())
        west.node.tenants.move(tenant, TenantMove.FINISH_SWITCH, Deadline.after(10), "east")
        again = [consumer.receive(20_000) for _ in range(7)]
        assert sorted(message.data() for message in again) == [b"b0", b"b1", b"b3", b"e0", b"w0", b"w2", b"w4"]
        with pytest.raises(pulsar.Timeout):
            consumer.receive(1_000)
        for text in mine:  # after the switch: on the copies, too
            consumer.acknowledge(mine[text])
        until(lambda: east.subscription_stats(topic, "billing").backlog == 0, "the backlog of the east to be empty")
    client.close()


@pytest.mark.long
def test_nobody_waits_for_an_application_that_holds_messages_back(
    clusters: dict[str, Cluster], lookup_port: int, tenant: str
) -> None:
    """Its consumers leave together, and it has its time on the way: what it acknowledges then does not come again."""
    west, east = clusters["west"].admin, clusters["east"].admin
    topic = f"persistent://{tenant}/ns/orders"
    client = _at_home(west, east, lookup_port, tenant, [topic], ["billing", "audit"])
    consumers = [client.subscribe(topic, name, pulsar.ConsumerType.Shared) for name in ("billing", "audit")]
    with clusters["west"].replicating(), clusters["east"].replicating():
        producer = client.create_producer(topic)
        for number in range(4):
            producer.send(b"%d" % number)
        held = [{int(each.data()): each for each in (mine.receive(20_000) for _ in range(4))} for mine in consumers]
        until(lambda: clusters["west"].has_copied(topic, clusters["east"]), "everything to be copied")
        again: list[set[int]] = [set(), set()]

        def receive(which: int) -> None:
            while len(again[which]) < 3:
                again[which].add(int(consumers[which].receive().data()))

        asking = [threading.Thread(target=receive, args=(which,), daemon=True) for which in range(2)]
        for thread in asking:
            thread.start()
        began_s = time.monotonic()
        west.node.tenants.move(tenant, TenantMove.BEGIN_SWITCH, Deadline.after(10), "east")
        for name in ("billing", "audit"):
            until(partial(_nobody_consumes, west, topic, name), "the consumers to leave the west")
        assert time.monotonic() - began_s < GRACE_S
        west.node.tenants.move(tenant, TenantMove.FINISH_SWITCH, Deadline.after(10), "east")
        for mine, messages in zip(consumers, held, strict=True):
            mine.acknowledge(messages[1])  # while the tenant is on its way: nothing was handed out yet
        for thread in asking:
            thread.join(20)
        assert again == [{0, 2, 3}] * 2
        for mine in consumers:
            with pytest.raises(pulsar.Timeout):
                mine.receive(1_000)
    client.close()


@pytest.mark.long
def test_late_cumulative_acknowledgements_and_chunks_take_effect_on_the_copies(
    clusters: dict[str, Cluster], lookup_port: int, tenant: str
) -> None:
    west, east = clusters["west"].admin, clusters["east"].admin
    topic, chunked = f"persistent://{tenant}/ns/orders", f"persistent://{tenant}/ns/large"
    client = _at_home(west, east, lookup_port, tenant, [topic, chunked])
    consumer = client.subscribe(topic, "billing", pulsar.ConsumerType.Failover)
    large = client.subscribe(chunked, "billing", pulsar.ConsumerType.Shared)
    with clusters["west"].replicating(), clusters["east"].replicating():
        _send_singly_and_in_a_batch(client, topic, 4)
        elsewhere = clusters["east"].client.create_producer(chunked, chunking_enabled=True)
        elsewhere.send(b"e" * 6_000_000)
        elsewhere.close()
        producer = client.create_producer(chunked, chunking_enabled=True)
        for text in (b"x", b"y", b"z"):
            producer.send(text * 6_000_000)
        producer.close()
        mine = {message.data(): message for message in (consumer.receive(20_000) for _ in range(8))}
        chunks = {message.data()[:1]: message for message in (large.receive(30_000) for _ in range(4))}
        for name in (topic, chunked):
            until(partial(clusters["west"].has_copied, name, clusters["east"]), "everything to be copied")
        west.node.tenants.move(tenant, TenantMove.BEGIN_SWITCH, Deadline.after(10), "east")
        for name in (topic, chunked):
            until(partial(_nobody_consumes, west, name), "the consumers to leave the west")
        consumer.acknowledge_cumulative(mine[b"w0"].message_id())
        consumer.acknowledge_cumulative(mine[b"b1"])
        with pytest.raises(pulsar.CumulativeAcknowledgementNotAllowedError):
            large.acknowledge_cumulative(chunks[b"x"])
        large.acknowledge(chunks[b"x"].message_id())
        large.acknowledge(chunks[b"y"])
        large.acknowledge(chunks[b"e"])
        west.node.tenants.move(tenant, TenantMove.FINISH_SWITCH, Deadline.after(10), "east")
        assert [consumer.receive(20_000).data() for _ in range(2)] == [b"b2", b"b3"]
        assert large.receive(30_000).data()[:1] == b"z"
        for nobody in (consumer, large):
            with pytest.raises(pulsar.Timeout):
                nobody.receive(1_000)
        consumer.acknowledge_cumulative(mine[b"b3"])  # after the switch, too
        large.acknowledge(chunks[b"z"].message_id())
        for name in (topic, chunked):
            until(partial(_nothing_is_left, east, name), "the backlog of the east to be empty")
    client.close()


def _at_home(
    west: AdminClient,
    east: AdminClient,
    lookup_port: int,
    tenant: str,
    topics: Sequence[str],
    subscriptions: Sequence[str] = ("billing",),
) -> pulsar.Client:
    """The tenant is on west, each cluster copies its topics to the other one, and the client follows it."""
    for admin, other in ((west, "east"), (east, "west")):
        admin.create_namespace(f"{tenant}/ns")
        admin.set_policy(f"{tenant}/ns", "replication_clusters", [other])
        for topic in topics:
            admin.create_topic(topic)
            for subscription in subscriptions:
                admin.create_subscription(topic, subscription, from_earliest=True)
    west.assign_tenant(tenant, "west")
    until(lambda: _is_there(lookup_port, tenant), "the tenant to be in the directory")
    return pulsar.Client(f"pok+lookup://127.0.0.1:{lookup_port}", operation_timeout_seconds=20)


def _nobody_consumes(admin: AdminClient, topic: str, name: str = "billing") -> bool:
    return not admin.subscription_stats(topic, name).consumers


def _nothing_is_left(admin: AdminClient, topic: str) -> bool:
    return admin.subscription_stats(topic, "billing").backlog == 0


def _send_singly_and_in_a_batch(client: pulsar.Client, topic: str, singly: int) -> None:
    """b"w0", b"w1" ... one by one, and b"b0" to b"b3" in a batch."""
    producer = client.create_producer(topic)
    for number in range(singly):
        producer.send(b"w%d" % number)
    producer.close()
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1000)
    for number in range(4):
        producer.send_async(b"b%d" % number, None)
    producer.flush()
    producer.close()


def _is_there(port: int, tenant: str) -> bool:
    try:
        HttpDirectory([f"127.0.0.1:{port}"]).place(tenant, Deadline.after(5))
    except LookupFailed:
        return False
    return True
