"""Transactions over the gateway's REST: Pulsar's `admin/v3/transactions`."""

from __future__ import annotations

from contextlib import closing

import pytest

import pulsar_on_kafka as sdk
from pulsar_on_kafka.embedded import Broker
from tests.integration.gateway.rest import Rest
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka

HERE = "/admin/v3/transactions"


def test_a_transaction_and_its_participants_are_shown(rest: Rest, kafka_broker: Broker, unique: Unique) -> None:
    topic, source = unique(), unique()
    with closing(sdk.Client(f"kafka://{kafka_broker.bootstrap}", enable_transaction=True)) as client:
        consumer = client.subscribe(source, "s", initial_position=sdk.InitialPosition.Earliest)
        client.create_producer(source).send(b"in")
        message = consumer.receive(60_000)
        producer = client.create_producer(topic)
        txn = client.new_transaction(600_000)
        sent = producer.send(b"out", txn=txn)
        consumer.acknowledge(message, txn=txn)
        txn_id = txn.txn_id
        shown = f"({txn_id.coordinator},{txn_id.least_bits})"  # as official clients have it
        place = f"{txn_id.coordinator}/{txn_id.least_bits}"
        full, of_source = (f"persistent://public/default/{name}" for name in (topic, source))
        told = rest.get(f"{HERE}/transactionMetadata/{place}")
        assert (told["txnId"], told["status"], told["timeoutAt"]) == (shown, "OPEN", 600_000)
        position = f"{sent.ledger_id()}:{sent.entry_id()}"
        assert told["producedPartitions"] == {full: {"startPosition": position, "aborted": False}}
        assert told["ackedPartitions"] == {of_source: {"s": {"cumulativeAckPosition": None}}}
        assert told == rest.get(f"{HERE}/slowTransactions/0", coordinatorId=str(txn_id.coordinator))[shown]
        assert shown not in rest.get(f"{HERE}/slowTransactions/3600000")
        stats = rest.get(f"{HERE}/coordinatorStats", coordinatorId=str(txn_id.coordinator))
        assert stats["leastSigBits"] >= txn_id.least_bits
        assert stats["ongoingTxnSize"] >= 1
        assert rest.get(f"{HERE}/coordinatorStats").keys() == {str(each["id"]) for each in _coordinators(rest)}
        in_buffer = f"{HERE}/transactionInBufferStats/public/default/{topic}/{place}"
        assert rest.get(in_buffer) == {"startPosition": position, "aborted": False}
        rest.refuses(404, shown, "GET", in_buffer.replace(topic, source))
        pending = f"{HERE}/transactionInPendingAckStats/public/default/{source}/s/{place}"
        assert rest.get(pending) == {"cumulativeAckPosition": None}
        assert rest.get(f"{HERE}/transactionBufferStats/public/default/{topic}")["ongoingTxnSize"] == 1
        assert rest.get(f"{HERE}/pendingAckStats/public/default/{source}/s")["ongoingTxnSize"] == 1
        rest.does("POST", f"{HERE}/abortTransaction/{place}")
        until(
            lambda: rest.get(f"{HERE}/transactionBufferStats/public/default/{topic}")["totalAbortedTransactions"] == 1,
            "the transaction to be aborted",
        )


def _coordinators(rest: Rest) -> list[dict[str, object]]:
    found: list[dict[str, object]] = rest.get(f"{HERE}/coordinators")
    assert all(str(each["brokerServiceUrl"]).startswith("pulsar://") for each in found)
    return found


def test_numbers_that_are_none_are_refused(rest: Rest) -> None:
    rest.refuses(400, "two numbers", "GET", f"{HERE}/transactionMetadata/one/2")
    rest.refuses(404, "was never begun", "GET", f"{HERE}/transactionMetadata/0/{2**40}")
    rest.refuses(400, "expected an integer", "GET", f"{HERE}/coordinatorStats", params={"coordinatorId": "first"})
    rest.refuses(400, "expected milliseconds", "GET", f"{HERE}/slowTransactions/long")
    rest.refuses(406, "number of coordinators", "POST", f"{HERE}/transactionCoordinator/replicas", json="many")
    rest.refuses(400, "1", "POST", f"{HERE}/transactionCoordinator/replicas", json=1)
    rest.refuses(501, "coordinatorInternalStats", "GET", f"{HERE}/coordinatorInternalStats/0")
