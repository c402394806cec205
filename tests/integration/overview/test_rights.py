"""An overview by a user with few rights: what is told, and what is said of the rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.admin.overview.gathering import Gatherer
from pulsar_on_kafka.admin.overview.records import Overview
from pulsar_on_kafka.base.deadline import Deadline
from tests.brokers import available
from tests.certificates import Authority
from tests.integration.secure_support import SecureCluster, secure_cluster
from tests.steps import Missing, receive, send

pytestmark = [pytest.mark.kafka, pytest.mark.long]

TOPIC, SUBSCRIPTION = "orders", "billing"
LOOKING = (("Read", "topic", "pulsar.system.*"), ("Describe", "topic", "public.default.*"))
"""The page about operating names these."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, missing: Missing) -> Iterator[SecureCluster]:
    with available(missing, secure_cluster(Authority(tmp_path_factory.mktemp("certificates")))) as made:
        yield made


def seen_by(cluster: SecureCluster, user: str) -> Overview:
    with cluster.admin_as(user) as admin:
        gatherer = Gatherer(admin.node)
        try:
            return gatherer.gather(Deadline.after(60))
        finally:
            gatherer.close()


def test_without_the_right_to_read_commits_checkpoints_count(cluster: SecureCluster) -> None:
    url = f"kafka://{cluster.broker.bootstrap}"
    client = pulsar.Client(url)
    consumer = client.subscribe(TOPIC, SUBSCRIPTION, pulsar.ConsumerType.Shared)
    send(client, TOPIC, 6)
    for message in receive(consumer, 6)[::2]:
        consumer.acknowledge(message)
    cluster.grant("reader", LOOKING)
    consumer.flush()
    [told] = seen_by(cluster, "reader").subscriptions
    assert told.backlog >= 3
    consumer.close()  # an orderly end writes a checkpoint
    client.close()
    seen = seen_by(cluster, "reader")
    [told] = seen.subscriptions
    assert (seen.by_commits, seen.incomplete) == (False, ())
    assert (told.backlog, told.holes, told.processes) == (3, 2, ())
    cluster.grant("reader", [("Read", "topic", "__consumer_offsets")])
    seen = seen_by(cluster, "reader")
    assert (seen.by_commits, seen.incomplete) == (True, ())
    with AdminClient(url) as admin:
        assert seen.subscriptions[0].holes == admin.subscription_stats(TOPIC, SUBSCRIPTION).partitions[0].holes


def test_topics_that_may_not_be_seen_are_counted_and_cost_nobody_else(cluster: SecureCluster) -> None:
    with AdminClient(f"kafka://{cluster.broker.bootstrap}") as admin:
        admin.create_namespace("bank/accounts")
        admin.create_topic("bank/accounts/secret")
    cluster.grant("nobody", [*LOOKING, ("Read", "topic", "__consumer_offsets")])
    seen = seen_by(cluster, "nobody")
    assert [each for each in seen.incomplete if each.startswith("1 partition")] == [*seen.incomplete]
    assert "persistent://public/default/orders" in {each.topic for each in seen.topics}
