"""Clients whose cluster is named by a provider: they move with their producers, consumers and readers."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.clusters.cluster import Cluster, embedded_broker
from tests.waiting import until

pytestmark = pytest.mark.kafka
RECEIVE_MS = 30_000


class Told(pulsar.ServiceInfoProvider):
    """Says what the test says."""

    def __init__(self, url: str) -> None:
        self._initial = pulsar.ServiceInfo(url)
        self.tell: Callable[[pulsar.ServiceInfo], None]

    def initial_service_info(self) -> pulsar.ServiceInfo:
        return self._initial

    def initialize(self, on_service_info_update: Callable[[pulsar.ServiceInfo], None]) -> None:
        self.tell = on_service_info_update


def received(consumer: pulsar.Consumer, count: int) -> list[bytes]:
    found = []
    for _ in range(count):
        message = consumer.receive(RECEIVE_MS)
        consumer.acknowledge(message)
        found.append(message.data())
    return found


def test_a_running_client_moves_where_its_provider_says(clusters: dict[str, Cluster], tenant: str) -> None:
    topics = [f"persistent://{tenant}/ns/{name}" for name in ("one", "two")]
    for cluster in clusters.values():
        cluster.admin.create_namespace(f"{tenant}/ns")
    for topic in topics:
        clusters["east"].client.subscribe(topic, "s").close()
    provider = Told(clusters["west"].url)
    client = pulsar.Client(provider, operation_timeout_seconds=60)
    producer = client.create_producer(topics[0], block_if_queue_full=True)
    consumer = client.subscribe(topics, "s", pulsar.ConsumerType.Shared)
    reader = client.create_reader(topics[0], pulsar.MessageId.earliest)
    for number in range(5):
        producer.send(b"w%d" % number)
    assert received(consumer, 5) == [b"w%d" % number for number in range(5)]
    assert reader.read_next(RECEIVE_MS).data() == b"w0"

    provider.tell(pulsar.ServiceInfo(clusters["east"].url))
    assert client.get_service_info().service_url == clusters["east"].url
    until(lambda: not producer.is_connected(), "the producer to leave")
    for number in range(5):
        producer.send(b"e%d" % number)
    assert producer.last_sequence_id() == 9, "numbering goes on"
    assert received(consumer, 5) == [b"e%d" % number for number in range(5)]
    assert [reader.read_next(RECEIVE_MS).data() for _ in range(5)] == [b"e%d" % number for number in range(5)]
    clusters["east"].client.create_producer(topics[1]).send(b"two")
    assert received(consumer, 1) == [b"two"]
    client.close()
    assert clusters["east"].admin.subscription_stats(topics[0], "s").backlog == 0


def test_consumers_of_several_topics_end_on_a_client_that_may_move(clusters: dict[str, Cluster], tenant: str) -> None:
    west = clusters["west"]
    west.admin.create_namespace(f"{tenant}/ns")
    topics = [f"persistent://{tenant}/ns/{name}" for name in ("one", "two")]
    client = pulsar.Client(Told(west.url))
    consumer = client.subscribe(topics, "s", pulsar.ConsumerType.Shared)
    consumer.close()
    assert [west.admin.subscription_stats(topic, "s").consumers for topic in topics] == [(), ()]
    client.subscribe(topics, "s", pulsar.ConsumerType.Shared).unsubscribe()
    assert [west.admin.list_subscriptions(topic) for topic in topics] == [[], []]
    client.close()


@pytest.mark.kills
def test_a_client_goes_on_elsewhere_when_its_cluster_dies(west: Cluster, tenant: str) -> None:
    west.admin.create_namespace(f"{tenant}/ns")
    topic = f"persistent://{tenant}/ns/orders"
    west.client.subscribe(topic, "s").close()
    dying = embedded_broker()
    dying.start()
    try:
        primary = pulsar.ServiceInfo(f"kafka://{dying.bootstrap}")
        with AdminClient(primary.service_url) as admin:
            admin.create_namespace(f"{tenant}/ns")
        client = pulsar.Client(
            pulsar.AutoClusterFailover(primary, [pulsar.ServiceInfo(west.url)], check_interval_ms=100),
            operation_timeout_seconds=60,
        )
        producer = client.create_producer(topic)
        consumer = client.subscribe(topic, "s")
        producer.send(b"before")
        assert received(consumer, 1) == [b"before"]
        dying.kill()
        answers: list[pulsar.Result] = []
        for number in range(10):
            producer.send_async(b"%d" % number, lambda result, _: answers.append(result))
        assert received(consumer, 10) == [b"%d" % number for number in range(10)], "what was not answered is sent again"
        until(lambda: len(answers) == 10, "ten answers")
        assert answers == [pulsar.Result.Ok] * 10
        assert client.get_service_info().service_url == west.url
        client.close()
        late = pulsar.Client(pulsar.AutoClusterFailover(primary, [pulsar.ServiceInfo(west.url)], check_interval_ms=100))
        late.create_producer(topic).send(b"though the primary is dead")
        late.close()
        dying.restart()  # or this process would try for long to leave it in order
        until(lambda: not leaving(), "what left to be closed")
    finally:
        dying.stop()


def leaving() -> list[str]:
    """The threads that leave a cluster."""
    return [each.name for each in threading.enumerate() if each.name.startswith(("pok-left", "pok-parting"))]
