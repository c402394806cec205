"""Replication from an instance of one cluster to another instance of the other one."""

from __future__ import annotations

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.clusters.cluster import Cluster
from tests.steps import Unique, payloads, receive, send
from tests.waiting import until

pytestmark = pytest.mark.kafka

HERE, THERE = "left", "right"


def test_copies_go_to_the_instance_that_the_cluster_s_entry_names(two_brokers: dict[str, str], unique: Unique) -> None:
    topic = unique()
    urls = {"west": two_brokers["west"], "east": two_brokers["east"]}
    with AdminClient(urls["west"], instance=HERE) as west, AdminClient(urls["east"], instance=THERE) as east:
        west.set_local_cluster("west-left")
        east.set_local_cluster("east-right")
        west.create_cluster("east-right", urls["east"], instance=THERE)
        west.create_topic(topic)
        west.set_policy(topic, "replication_clusters", ["west-left", "east-right"])
        sending = pulsar.Client(urls["west"], instance=HERE)
        send(sending, topic, 3)
        sending.close()
        reading = pulsar.Client(urls["east"], instance=THERE)
        with Cluster("west-left", urls["west"], reading, west).replicating():
            full = f"persistent://public/default/{topic}"
            until(lambda: full in east.list_topics(), "the topic to be made there")
            consumer = reading.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
            assert payloads(receive(consumer, 3)) == ["0", "1", "2"]
        reading.close()
        with AdminClient(urls["east"]) as everybodys:
            assert full not in everybodys.list_topics()
        for admin in (west, east):
            admin.delete_topic(topic, force=True)
