"""Intervals of services that policies of the cluster set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import CLUSTER, AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.managed_ledger.deletion_topics import DATA, EVENTS, PendingDeleteLedger, event_schema
from pulsar_on_kafka.service.ledgers.deletion_events import make_topics
from pulsar_on_kafka.service.replication.subscriptions.replicated_subscriptions import ReplicatedSubscriptions
from pulsar_on_kafka.service.running import LedgerDeletion
from tests.steps import Unique, send_fast
from tests.waiting import never, patience, until

pytestmark = pytest.mark.kafka

RECONSUME_LATER = "reconsume_later_of_topic_two_phase_deletion_in_seconds"
FREQUENCY = "replicated_subscriptions_snapshot_frequency_millis"


@pytest.fixture
def of_cluster(admin: AdminClient) -> Iterator[AdminClient]:
    yield admin
    admin.remove_policy(CLUSTER, RECONSUME_LATER, FREQUENCY)


def test_a_deletion_that_has_to_wait_is_retried_by_the_policy(
    of_cluster: AdminClient, client: pulsar.Client, unique: Unique
) -> None:
    admin, topic = of_cluster, unique()
    admin.create_topic(topic, entries_per_ledger=10)
    send_fast(client, topic, 25)
    first, *_ = admin.list_ledgers(topic)
    admin.set_policy(CLUSTER, RECONSUME_LATER, 1)
    deletion = LedgerDeletion(client, admin.node, visible_after_s=0.1)
    try:
        make_topics(admin.node, patience())
        worker = deletion.work()
        producer = client.create_producer(EVENTS, schema=event_schema())
        full = f"persistent://public/default/{topic}"
        event = PendingDeleteLedger(topic=full, partition=0, ledger_id=first.ledger_id, ledger_type=DATA, properties={})
        producer.send(event)
        until(lambda: worker.counts()["WAIT"] >= 3, lambda: f"three attempts: {worker.counts()}")
        admin.delete_topic(topic, force=True)
        until(lambda: worker.counts()["DONE"] + worker.counts()["DELETE"] >= 1, lambda: f"an end: {worker.counts()}")
    finally:
        deletion.close(Deadline.after(60))


def test_replicated_subscriptions_are_exchanged_by_the_policy(of_cluster: AdminClient) -> None:
    of_cluster.set_policy(CLUSTER, FREQUENCY, 3_600_000)
    role = ReplicatedSubscriptions(of_cluster.node)
    seen = [-1]

    def rounds() -> int:
        ((_, turns),) = role.state().turns
        return turns.done

    def settled() -> bool:
        before, seen[0] = seen[0], rounds()
        return before == seen[0] > 0

    try:
        until(lambda: role.owned() and settled(), "the first round")
        never(lambda: rounds() > seen[0] + 1, "rounds without an assignment", for_s=3.5)  # an assignment begins one
    finally:
        role.close(Deadline.after(60))
