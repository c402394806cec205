"""Transactions over a hundred partitions: they end, with one marker in each, also where another owner left them."""

from __future__ import annotations

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TxnStatus
from tests.integration.transaction_support import buffer_of, data_of, on_record
from tests.integration.transactions_by_hand import WrittenByHand
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka

PARTITIONS = 100
SOME = range(0, PARTITIONS, 9)


def test_what_another_owner_left_in_the_middle_of_its_commit_is_finished(
    admin: AdminClient, service_url: str, bootstrap: str, unique: Unique
) -> None:
    topic = f"persistent://public/default/{unique()}"
    admin.create_partitioned_topic(topic, PARTITIONS)
    by_hand = WrittenByHand(admin, topic)
    txn = by_hand.begin()
    for partition in range(PARTITIONS):
        by_hand.add_partition(txn, partition)
        by_hand.opened(txn, 0, partition)
        by_hand.send(txn, b"in it", partition)
        by_hand.send(None, b"behind it", partition)
    by_hand.status(txn, TxnStatus.COMMITTING)
    for partition in range(60):
        by_hand.marker(txn, committed=True, partition=partition)
    for partition in range(20):
        by_hand.open_gone(txn, partition)
    client = pulsar.Client(service_url, operation_timeout_seconds=120, enable_transaction=True)
    try:
        client.new_transaction().abort()  # from now on this process serves the coordinators
        until(lambda: _is_over(bootstrap, txn), "the transaction to end")
    finally:
        client.close()
    assert not _open_in(bootstrap, by_hand, txn)
    for partition in SOME:
        seen = data_of(bootstrap, by_hand.topic.kafka_topic, partition)
        assert [one.ended for one in seen] == [None, None, True], f"one marker in {partition}"


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_over_many_partitions(
    commit: bool, admin: AdminClient, service_url: str, bootstrap: str, unique: Unique
) -> None:
    topic = f"persistent://public/default/{unique()}"
    admin.create_partitioned_topic(topic, PARTITIONS)
    client = pulsar.Client(service_url, operation_timeout_seconds=120, enable_transaction=True)
    try:
        producer = client.create_producer(topic)
        txn = client.new_transaction(600_000)
        for number in range(PARTITIONS):
            producer.send(b"%d" % number, txn=txn)
        if commit:
            txn.commit()
        else:
            txn.abort()
        kafka_topic = admin.topic_stats(topic).kafka_topic
        for partition in SOME:
            assert [one.ended for one in data_of(bootstrap, kafka_topic, partition)] == [None, commit]
        checked = admin.verify_transaction_buffer(topic)
        assert [found.differences for found in checked if found.differences] == []
    finally:
        client.close()


@pytest.mark.long
def test_a_transaction_that_writes_first_to_a_partition_added_a_moment_ago(
    admin: AdminClient, service_url: str, bootstrap: str, unique: Unique
) -> None:
    topic = f"persistent://public/default/{unique()}"
    admin.create_partitioned_topic(topic, 1)
    client = pulsar.Client(service_url, operation_timeout_seconds=120, enable_transaction=True)
    try:
        first = client.new_transaction()
        client.create_producer(topic).send(b"known", txn=first)
        first.commit()
        for partitions in (2, 4, 8):
            admin.update_partitions(topic, partitions)
            txn = client.new_transaction()
            client.create_producer(f"{topic}-partition-{partitions - 1}").send(b"new", txn=txn)
            txn.commit()
            seen = data_of(bootstrap, admin.topic_stats(topic).kafka_topic, partitions - 1)
            assert [one.ended for one in seen] == [None, True]
    finally:
        client.close()


def _is_over(bootstrap: str, txn: TxnId) -> bool:
    found = on_record(bootstrap, txn)
    return found is None or found.finished


def _open_in(bootstrap: str, by_hand: WrittenByHand, txn: TxnId) -> list[int]:
    entries = buffer_of(bootstrap, by_hand.name)
    life = by_hand.topic.layout.incarnation
    places = [DataPartition(by_hand.name, partition, life) for partition in range(PARTITIONS)]
    return [where.partition for where in places if txn in entries.announced_bounds(where)]
