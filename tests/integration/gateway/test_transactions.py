"""Transactions of programs on the official Java client, and what other clients see of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import pulsar_on_kafka as sdk
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.deduplication.journal import SequenceJournal
from pulsar_on_kafka.gateway.handlers.transactions import COORDINATORS
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type
from tests.integration.gateway.wire import ABORT, COMMIT, Wire, begun
from tests.steps import EARLIEST, SHARED, Unique, nothing_comes, payloads, receive

pytestmark = pytest.mark.kafka

PATIENCE_MS = 60_000


def test_batches_partitions_and_cumulative_acknowledgements(
    java: Any, teller: Any, client: sdk.Client, admin: AdminClient, unique: Unique
) -> None:
    orders, bills = unique("orders"), unique("bills")
    admin.create_partitioned_topic(bills, 3)
    consumer = teller.subscribe(orders, "s", initial_position=java.InitialPosition.Earliest)
    batches = teller.create_producer(orders, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for number in range(4):
        batches.send_async(b"%d" % number, None)
    batches.flush()
    producer = teller.create_producer(
        bills, send_timeout_millis=0, batching_enabled=True, batching_max_publish_delay_ms=10
    )
    seen = client.subscribe(bills, "s", SHARED, initial_position=EARLIEST)
    txn = teller.new_transaction()
    for number in range(30):
        producer.send_async(b"%d" % number, None, partition_key=f"key-{number}", txn=txn)
    producer.flush()
    messages = [consumer.receive(PATIENCE_MS) for _ in range(4)]
    consumer.acknowledge_cumulative(messages[2], txn)
    assert nothing_comes(seen)
    txn.commit()
    assert sorted(payloads(receive(seen, 30)), key=int) == [str(number) for number in range(30)]
    consumer.close()
    assert payloads(receive(client.subscribe(orders, "s"), 1)) == ["3"]


@pytest.fixture
def elsewhere(admin_elsewhere: AdminClient) -> Iterator[Gateway]:
    """A gateway in another process, as far as Kafka can tell, that serves every topic, too."""
    made = Gateway(admin_elsewhere.node, GatewaySettings(port=0, fleet="elsewhere"))
    yield made
    made.close(Deadline.after(60))


def opened(wire: Wire, topic: str) -> None:
    """Producer 1."""
    said = wire.ask(Type.PRODUCER, topic=topic, producer_id=1, request_id=10)
    assert said.producer_ready


def test_coordinators_are_found_as_partitions(wire: Wire) -> None:
    wire.connect()
    assert wire.ask(Type.PARTITIONED_TOPIC_METADATA, topic=COORDINATORS, request_id=1).partitions == 16
    said = wire.ask(Type.LOOKUP_TOPIC, topic=f"{COORDINATORS}-partition-15", request_id=2)
    assert said.brokerServiceUrl.startswith("pulsar://")
    said = wire.ask(Type.TC_CLIENT_CONNECT_REQUEST, request_id=3, tc_id=99)
    assert (said.request_id, said.error) == (3, ServerError.TRANSACTION_COORDINATOR_NOT_FOUND)


def test_any_gateway_takes_part_and_ends(wire: Wire, elsewhere: Gateway, client: sdk.Client, unique: Unique) -> None:
    """Also one that was not told before which partition a message is to go to."""
    topic = unique()
    seen = client.subscribe(topic, "s", initial_position=EARLIEST)
    with Wire(elsewhere) as other:
        for each in (wire, other):
            each.connect()
            opened(each, topic)
        txn = begun(wire)
        for number, each in enumerate((wire, other)):
            each.send(1, number, b"%d" % number, **txn)
            assert each.hear()[0] is Type.SEND_RECEIPT
        assert nothing_comes(seen)
        assert not other.ask(Type.END_TXN, request_id=5, txn_action=COMMIT, **txn).HasField("error")
    assert payloads(receive(seen, 2)) == ["0", "1"]


def test_an_end_is_repeated_by_a_client_that_had_no_answer(gateway: Gateway, wire: Wire) -> None:
    """The client that was told hears that there is no such transaction, as in Pulsar."""
    wire.connect()
    txn = begun(wire)
    for _ in range(2):
        with Wire(gateway) as other:
            other.connect()
            assert not other.ask(Type.END_TXN, request_id=1, txn_action=COMMIT, **txn).HasField("error")
            again = other.ask(Type.END_TXN, request_id=2, txn_action=COMMIT, **txn)
            assert again.error == ServerError.TRANSACTION_NOT_FOUND


def test_what_is_refused_has_the_protocols_errors(wire: Wire, unique: Unique) -> None:
    topic = unique()
    wire.connect()
    opened(wire, topic)
    txn = begun(wire)
    named = f"persistent://public/default/{topic}"
    assert not wire.ask(Type.ADD_PARTITION_TO_TXN, request_id=3, partitions=[named], **txn).HasField("error")
    for kind, asked in (
        (Type.ADD_PARTITION_TO_TXN, {"partitions": [f"{named}-partition-7"]}),
        (Type.ADD_PARTITION_TO_TXN, {"partitions": [f"{named}-none"]}),
    ):
        assert wire.ask(kind, request_id=4, **asked, **txn).error == ServerError.TOPIC_NOT_FOUND
    nobodys = {"subscription": [{"topic": named, "subscription": "none"}]}
    assert wire.ask(Type.ADD_SUBSCRIPTION_TO_TXN, request_id=5, **nobodys, **txn).error == (
        ServerError.SUBSCRIPTION_NOT_FOUND
    )
    assert not wire.ask(Type.END_TXN, request_id=6, txn_action=ABORT, **txn).HasField("error")
    refused = [
        (wire.ask(Type.END_TXN, request_id=7, txn_action=ABORT, **txn), ServerError.TRANSACTION_NOT_FOUND),
        (wire.ask(Type.END_TXN, request_id=8, txn_action=COMMIT, **txn), ServerError.TRANSACTION_NOT_FOUND),
        (wire.ask(Type.NEW_TXN, request_id=9, tc_id=3, txn_ttl_seconds=0), ServerError.NOT_ALLOWED),
    ]
    for said, error in refused:  # a client knows by its coordinator who had asked
        assert (said.error, said.txnid_most_bits) == (error, 3)
    wire.send(1, 0, b"late", **txn)
    heard, said = wire.hear()
    assert (heard, said.error) == (Type.SEND_ERROR, ServerError.NOT_ALLOWED)
    unknown = txn | {"txnid_least_bits": txn["txnid_least_bits"] + 1_000_000}
    assert wire.ask(Type.END_TXN, request_id=9, txn_action=COMMIT, **unknown).error == ServerError.TRANSACTION_NOT_FOUND
    assert wire.ask(Type.NEW_TXN, request_id=11, tc_id=0, txn_ttl_seconds=0).error == ServerError.NOT_ALLOWED


def test_the_loop_does_not_look_whether_a_message_is_stored(
    wire: Wire, admin: AdminClient, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id below that of a message in an open transaction: whether it is stored depends on how that ends."""
    topic, threads, outcomes = unique(), list[str](), SequenceJournal.outcomes

    def noting(*asked: Any) -> Any:
        threads.append(threading.current_thread().name)
        return outcomes(*asked)

    monkeypatch.setattr(SequenceJournal, "outcomes", noting)
    admin.create_topic(topic)
    admin.set_policy(f"persistent://public/default/{topic}", "deduplication", True)
    wire.connect()
    assert wire.ask(Type.PRODUCER, topic=topic, producer_id=1, request_id=10, producer_name="mine").producer_ready
    txn = begun(wire)
    wire.send(1, 5, b"open", **txn)
    assert wire.hear()[0] is Type.SEND_RECEIPT
    wire.send(1, 3, b"below")
    wire.send(1, 7, b"behind it")  # is not stored before it: the client sends both again
    kind, said = wire.hear()
    assert (kind, said.producer_id) == (Type.CLOSE_PRODUCER, 1)
    again = wire.ask(Type.PRODUCER, topic=topic, producer_id=1, request_id=11, producer_name="mine", epoch=1)
    assert again.last_sequence_id < 7
    assert not wire.ask(Type.END_TXN, request_id=5, txn_action=ABORT, **txn).HasField("error")
    wire.send(1, 3, b"below")
    assert wire.hear()[0] is Type.SEND_RECEIPT
    assert any(name.startswith("pok-gateway-work") for name in threads)
    assert "pok-gateway" not in threads


def test_a_transaction_that_nobody_ends_is_aborted(wire: Wire, client: sdk.Client, unique: Unique) -> None:
    topic = unique()
    seen = client.subscribe(topic, "s", initial_position=EARLIEST)
    wire.connect()
    opened(wire, topic)
    txn = begun(wire, timeout_ms=1_000)
    wire.send(1, 0, b"given up", **txn)
    assert wire.hear()[0] is Type.SEND_RECEIPT
    wire.send(1, 1, b"behind it")
    assert wire.hear()[0] is Type.SEND_RECEIPT
    assert payloads(receive(seen, 1)) == ["behind it"]
    wire.send(1, 2, b"too late", **txn)
    assert wire.hear()[0] is Type.SEND_ERROR
