"""Limits of coordinators, as operators set them, in programs that begin transactions."""

from __future__ import annotations

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import CLUSTER, AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.cli.processes.serve import _limits
from pulsar_on_kafka.embedded import EmbeddedBroker
from pulsar_on_kafka.kafka.settings import KafkaSettings
from tests.integration.transaction_support import PATIENCE_S

pytestmark = pytest.mark.kafka

TIMEOUT = "transaction_max_timeout_in_seconds"


def test_the_clusters_policies_count_in_programs_and_a_process_has_its_own(own_broker: EmbeddedBroker) -> None:
    url = f"kafka://{own_broker.bootstrap}"
    with AdminClient(url) as admin:
        with pytest.raises(pulsar.InvalidConfiguration, match="is one of the cluster"):
            admin.set_policy("public/default", TIMEOUT, 30)
        admin.set_policy(CLUSTER, TIMEOUT, 30)
        admin.set_policy(CLUSTER, "transaction_log_batched_write_max_records", 2)
    client = pulsar.Client(url, enable_transaction=True, stand_in=False, operation_timeout_seconds=60)
    try:
        with pytest.raises(pulsar.PulsarException, match="30000"):
            client.new_transaction(31_000)
        client.new_transaction(30_000).commit()
    finally:
        client.close()
    node = Node(KafkaSettings(own_broker.bootstrap), Deadline.after(PATIENCE_S))
    try:
        node.transactions.limits = _limits([f"{TIMEOUT}=90"])
        node.transactions.client(Deadline.after(PATIENCE_S)).begin(90_000, Deadline.after(PATIENCE_S))
        assert (node.transactions.settings.group_records, node.transactions.settings.max_timeout_ms) == (2, 90_000)
    finally:
        node.close(Deadline.after(PATIENCE_S))
