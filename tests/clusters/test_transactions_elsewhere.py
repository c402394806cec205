"""Transactions and other clusters, other Clients, and clusters that never had any."""

from __future__ import annotations

from contextlib import closing

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.transactions.coordinator.state import txn_id
from pulsar_on_kafka_mapping.state.state_topics import (
    TRANSACTION_BUFFER_SNAPSHOT,
    TRANSACTION_COORDINATOR_ASSIGN,
    TRANSACTION_LOG,
    TRANSACTION_PENDING_ACK,
    TRANSACTION_REQUESTS,
)
from tests.clusters.cluster import Cluster
from tests.integration.command_line import CommandLine
from tests.integration.transaction_support import PATIENCE_S, on_record
from tests.steps import receive, send

STATE = (
    TRANSACTION_BUFFER_SNAPSHOT,
    TRANSACTION_COORDINATOR_ASSIGN,
    TRANSACTION_LOG,
    TRANSACTION_PENDING_ACK,
    TRANSACTION_REQUESTS,
)


def client_of(url: str) -> pulsar.Client:
    return pulsar.Client(url, operation_timeout_seconds=120, enable_transaction=True)


def state_topics(admin: AdminClient) -> list[str]:
    return [topic.name for topic in STATE if admin.node.has_state_topic(topic, Deadline.after(PATIENCE_S))]


def test_looking_makes_no_topics_and_another_cluster_is_refused_before_anything_is_written(
    west: Cluster, east: Cluster, topic: str
) -> None:
    admin = east.admin
    with closing(client_of(west.url)) as here, closing(client_of(east.url)) as there:
        producer = there.create_producer(topic)
        producer.send(b"a")
        consumer = there.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        message = consumer.receive(int(PATIENCE_S * 1000))
        _look_at_everything(admin, CommandLine(east.url, "transactions"), topic)
        assert state_topics(admin) == []
        txn = here.new_transaction()
        with pytest.raises(
            pulsar.InvalidConfiguration, match=r"is of Kafka cluster .+, it cannot be used for a message to"
        ):
            producer.send(b"b", txn=txn)
        with pytest.raises(pulsar.InvalidConfiguration, match="cannot be used for subscription s of"):
            consumer.acknowledge(message, txn=txn)
        assert state_topics(admin) == []
        found = on_record(west.url.removeprefix("kafka://"), txn.txn_id)
        assert found is not None
        assert found.participants == 0
        here.create_producer(topic).send(b"c", txn=txn)
        txn.commit()
        consumer.acknowledge(message)


def _look_at_everything(admin: AdminClient, pok: CommandLine, topic: str) -> None:
    for words in (("list",), ("list", "--all"), ("list", "-c", "3"), ("slow",), ("coordinators",)):
        pok(*words)
    assert "never begun" in pok("show", "0:7", exits=1).stderr
    assert "never begun" in pok("abort", "0:7", "--yes", exits=1).stderr
    pok("buffer", topic, "--transactions")
    pok("pending-acks", topic, "-s", "s", "--transactions")
    pok("verify", topic)
    assert admin.list_transactions() == []
    assert len(admin.list_transaction_coordinators()) == 16
    assert admin.get_coordinator_stats(4).highest_id == -1
    with pytest.raises(pulsar.TransactionNotFound):
        admin.get_transaction_metadata(txn_id(0, 7))


def test_plain_consumers_make_no_state_topic(east: Cluster, topic: str) -> None:
    def subscribe() -> pulsar.Consumer:
        return east.client.subscribe(
            topic, "s", pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
        )

    consumer = subscribe()
    send(east.client, topic, 3)
    for message in receive(consumer, 3):
        consumer.acknowledge(message)
    consumer.close()
    subscribe()
    assert state_topics(east.admin) == []


def test_another_client_of_the_cluster_takes_part(west: Cluster, topic: str) -> None:
    other_url = west.url.replace("127.0.0.1", "localhost")
    with closing(client_of(west.url)) as one, closing(client_of(other_url)) as other:
        txn = one.new_transaction()
        other.create_producer(topic).send(b"a", txn=txn)
        txn.commit()
        reader = one.create_reader(topic, pulsar.MessageId.earliest)
        assert reader.read_next(int(PATIENCE_S * 1000)).data() == b"a"
