"""A lookup service tells the state of a topic's partitions, on two brokers."""

from __future__ import annotations

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.lookup.http_directory import HttpDirectory
from pulsar_on_kafka.broker.metadata.tenants import TenantMove
from tests.clusters.cluster import PATIENCE_S, Cluster
from tests.waiting import until


def test_the_state_of_a_topic_of_a_moving_tenant(clusters: dict[str, Cluster], tenant: str) -> None:
    west, east = clusters["west"], clusters["east"]
    topic = f"persistent://{tenant}/ns/orders"
    for cluster in clusters.values():
        cluster.admin.create_namespace(f"{tenant}/ns")
        cluster.admin.create_partitioned_topic(topic, 2)
    west.admin.assign_tenant(tenant, "west")
    consumer = west.client.subscribe(topic, "billing", pulsar.ConsumerType.Shared)
    producer = west.client.create_producer(topic)
    for number in range(4):
        producer.send(b"%d" % number)
    for _ in range(4):
        consumer.acknowledge(consumer.receive(30_000))
    consumer.flush()
    with west.lookup_port() as port:
        service, soon = HttpDirectory([f"127.0.0.1:{port}"]), Deadline.after(PATIENCE_S)
        until(lambda: service.topic_state(topic, soon)["state"] == "ACTIVE", "the topic to be active")
        here = service.topic_state(topic, soon)["clusters"]["west"]
        assert here["partitions"] == [{"partition": p, "start": 0, "end": 2} for p in (0, 1)]
        cursors = here["subscriptions"]["billing"]["partitions"]
        assert [(each["mark_delete"], each["backlog"], each["served"]) for each in cursors] == [(1, 0, True)] * 2
        assert all(each["owner"] for each in cursors)
        consumer.close()
        west.admin.node.tenants.move(tenant, TenantMove.BEGIN_SWITCH, soon, "east")
        east.admin.create_subscription(topic, "billing")
        until(lambda: service.topic_state(topic, soon)["state"] == "SWITCHING", "the topic to be switching")
        both = service.topic_state(topic, soon)["clusters"]
        assert sorted(both) == ["east", "west"]
        assert both["east"]["partitions"] == [{"partition": p, "start": 0, "end": 0} for p in (0, 1)]
        assert [each["served"] for each in both["west"]["subscriptions"]["billing"]["partitions"]] == [False] * 2
    west.admin.node.tenants.move(tenant, TenantMove.ABANDON_SWITCH, Deadline.after(PATIENCE_S), "west")
