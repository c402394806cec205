"""Transactions are switched off for the cluster or a tenant, by policy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import CLUSTER, AdminClient
from tests.integration.command_line import CommandLine
from tests.steps import EARLIEST, Unique, payloads, receive
from tests.waiting import until

pytestmark = pytest.mark.kafka

POLICY = "transaction_coordinator_enabled"
NOT_ENABLED = "Transactions are not enabled."


@pytest.fixture
def teller(service_url: str) -> Iterator[pulsar.Client]:
    made = pulsar.Client(service_url, enable_transaction=True, operation_timeout_seconds=60)
    yield made
    made.close()


def raised(action: Any) -> str:
    """Why the official exception was raised; '' when none was."""
    try:
        action()
    except pulsar.NotAllowedError as refused:
        return str(refused)
    return ""


def test_the_cluster_begins_none_and_ends_open_ones(
    teller: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique
) -> None:
    topic, pok = unique(), CommandLine(service_url, "cluster")
    consumer = teller.subscribe(topic, "s", initial_position=EARLIEST)
    producer = teller.create_producer(topic)
    txn = teller.new_transaction()
    producer.send(b"before", txn=txn)
    assert "is false" in pok("policy", "set", POLICY, "false").stdout
    try:
        until(lambda: NOT_ENABLED in raised(teller.new_transaction), "no transaction to be begun")
        with pytest.raises(pulsar.NotAllowedError, match=NOT_ENABLED):
            teller.new_transaction()
        txn.commit()
        assert payloads(receive(consumer, 1)) == ["before"]
    finally:
        admin.remove_policy(CLUSTER, POLICY)
    until(lambda: not raised(lambda: teller.new_transaction().abort()), "transactions to be enabled again")


def test_the_topics_of_a_tenant_take_part_in_none(
    teller: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique
) -> None:
    tenant, other = unique("tenant"), unique()
    admin.create_namespace(f"{tenant}/n")
    pok = CommandLine(service_url, "tenants")
    assert f"of tenant {tenant} is false" in pok("policy", "set", tenant, POLICY, "false").stdout
    assert pok.json("policy", "get", tenant) == {POLICY: False}
    assert admin.list_namespaces(tenant) == [f"{tenant}/n"]
    topic = f"persistent://{tenant}/n/orders"
    producer, elsewhere = teller.create_producer(topic), teller.create_producer(other)
    consumer = teller.subscribe(topic, "s", initial_position=EARLIEST)
    producer.send(b"one")
    txn = teller.new_transaction()
    elsewhere.send(b"other", txn=txn)
    with pytest.raises(pulsar.NotAllowedError, match=f"{NOT_ENABLED} Tenant: {tenant}"):
        consumer.acknowledge(consumer.receive(60_000), txn=txn)
    with pytest.raises(pulsar.NotAllowedError, match=NOT_ENABLED):
        producer.send(b"two", txn=txn)
    txn.abort()
    with pytest.raises(pulsar.InvalidConfiguration, match="is none of tenants"):
        admin.set_policy(f"{tenant}/*", "message_ttl_in_seconds", 5)
    with pytest.raises(pulsar.InvalidConfiguration, match="is one of the cluster"):
        admin.set_policy(f"{tenant}/n", POLICY, False)
    with pytest.raises(pulsar.PulsarException, match="Tenant does not exist"):
        admin.set_policy(f"{tenant}-2/*", POLICY, False)
    pok("policy", "remove", tenant, POLICY)

    def sends() -> bool:
        again = teller.new_transaction()
        if raised(lambda: producer.send(b"three", txn=again)):
            again.abort()
            return False
        again.commit()
        return True

    until(sends, "transactions of the tenant to be enabled again")
