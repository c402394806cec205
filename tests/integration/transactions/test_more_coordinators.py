"""A cluster gets more coordinators of transactions, while transactions are open."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.embedded import EmbeddedBroker
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TopicPartition
from pulsar_on_kafka_mapping.state.transactions.transaction_requests import AddPartitions, Begin, End
from tests.integration.transaction_support import PATIENCE_S
from tests.waiting import until

pytestmark = pytest.mark.kafka


def transacting(url: str) -> pulsar.Client:
    return pulsar.Client(url, enable_transaction=True, stand_in=False, operation_timeout_seconds=120)


def test_there_are_more_and_open_transactions_keep_theirs(own_broker: EmbeddedBroker) -> None:
    url = f"kafka://{own_broker.bootstrap}"
    topic = "persistent://public/default/t"
    client = transacting(url)
    other = Node(KafkaSettings(own_broker.bootstrap), Deadline.after(PATIENCE_S))  # serves none
    try:
        with AdminClient(url, kafka_config={"client.rack": "operator"}) as admin:  # a node of its own
            admin.create_topic(topic)
            before = client.new_transaction(600_000)
            client.create_producer(topic).send(b"before", txn=before)
            pok = [
                sys.executable,
                "-m",
                "pulsar_on_kafka.cli",
                "--url",
                url,
                "--output",
                "json",
                "transactions",
                "scale-coordinators",
            ]
            done = subprocess.run([*pok, "20"], capture_output=True, text=True, timeout=120)
            assert json.loads(done.stdout) == {"coordinators": 20}, done.stderr
            for wrong, reason in ((16, "cannot become 16: transactions keep theirs"), (1025, "1024 at most, got 1025")):
                with pytest.raises(pulsar.InvalidConfiguration, match=reason):
                    admin.scale_transaction_coordinators(wrong)
            admin.scale_transaction_coordinators(20)
            assert [each.coordinator for each in admin.list_transaction_coordinators()] == list(range(20))
            before.commit()
            client.close()  # it would hear of the new ones within half a minute
            client = transacting(url)
            client.new_transaction().abort()
            access = other.transactions._access
            until(lambda: len(access.candidates()) == 20, "twenty coordinators to be seen")
            begun: list[TxnId] = []

            def serves_the_last() -> bool:
                try:
                    begun.append(access.request(19, Begin(600_000), Deadline.after(5)))
                except errors.LayerError:  # it is not assigned yet
                    return False
                return True

            until(serves_the_last, "the last coordinator to be served")
            (txn,) = begun
            assert txn.coordinator == 19
            assert (
                access.request(19, AddPartitions(txn, (TopicPartition(topic, 0),)), Deadline.after(PATIENCE_S)) == txn
            )
            assert access.request(19, End(txn, True), Deadline.after(PATIENCE_S)) == txn
    finally:
        other.close(Deadline.after(PATIENCE_S))
        client.close()
