"""Every program with transactions is dead: whoever only reads is held up until their time-out, and no longer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.transactions.serving.coordinators import coordinators_group
from pulsar_on_kafka.embedded import EmbeddedBroker
from pulsar_on_kafka_mapping.state.instances import Instance
from tests.integration.transaction_support import markers_of
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.kafka

_ROOT = Path(__file__).parents[2]
_PROGRAM = """
import sys
import pulsar_on_kafka as pulsar
client = pulsar.Client(sys.argv[1], enable_transaction=True, operation_timeout_seconds=120)
producer = client.create_producer(sys.argv[2])
txn = client.new_transaction(int(sys.argv[3]))
producer.send(b"never to be seen", txn=txn)
print(txn, flush=True)
sys.stdin.read()
"""
_TIMEOUT_MS = 10_000


def begin_and_die(service_url: str, topic: str) -> str:
    """A process begins a transaction, sends in it, and is killed; gives the transaction's id."""
    command = [sys.executable, "-c", _PROGRAM, service_url, topic, str(_TIMEOUT_MS)]
    process = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        process.kill()
    return said


def nobody_serves(admin: AdminClient) -> bool:
    return not admin.node.admin.describe_group(coordinators_group(Instance()), Deadline.after(PATIENCE_S)).members


@pytest.mark.parametrize("who", ["consumer", "reader"])
def test_a_program_without_transactions_goes_on_after_the_time_out(own_broker: EmbeddedBroker, who: str) -> None:
    url = f"kafka://{own_broker.bootstrap}"
    topic = "abandoned"
    admin = AdminClient(url)
    client = pulsar.Client(url, operation_timeout_seconds=120)
    try:
        admin.create_topic(topic)
        txn = begin_and_die(url, topic)
        client.create_producer(topic).send(b"behind")
        until(lambda: nobody_serves(admin), lambda: "the dead process is still in the group")
        timeout_ms = int(PATIENCE_S * 1000)
        if who == "consumer":
            consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
            assert consumer.receive(timeout_ms).data() == b"behind"
        else:
            assert client.create_reader(topic, pulsar.MessageId.earliest).read_next(timeout_ms).data() == b"behind"
        found = markers_of(own_broker.bootstrap, admin.topic_stats(topic).kafka_topic)
        assert {which.to_bytes().decode(): outcome for which, outcome in found.items()} == {txn: {False}}
    finally:
        client.close()
        admin.close()
