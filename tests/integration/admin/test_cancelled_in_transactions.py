"""Messages that are cancelled with a transaction, with and without a consumer on the subscription."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.broker.subscriptions.requests import transaction_holding
from tests.integration.admin.test_cancelled_messages import a_topic, check_rest, delayed_until_seen
from tests.steps import SHARED, SILENCE_MS, Unique, nothing_comes, payloads, receive, receive_rest
from tests.waiting import until

pytestmark = pytest.mark.kafka

HOUR = timedelta(hours=1)


@pytest.fixture
def client(service_url: str) -> Iterator[pulsar.Client]:
    made = pulsar.Client(service_url, operation_timeout_seconds=120, enable_transaction=True)
    yield made
    made.close()


@pytest.fixture
def admin(admin_elsewhere: AdminClient) -> AdminClient:
    return admin_elsewhere


@pytest.fixture
def topic(admin: AdminClient, unique: Unique) -> str:
    return a_topic(admin, unique())


def pending(admin: AdminClient, topic: str, **by: object) -> list[tuple[str, ...]]:
    return [each.subscriptions for each in admin.find_messages(topic, **by)]  # type: ignore[arg-type]


def test_they_are_cancelled_when_it_commits_together_with_its_sends(
    client: pulsar.Client, admin: AdminClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One subscription has a consumer, the other one has none."""
    monkeypatch.setattr(transaction_holding, "ENTRIES_PER_REQUEST", 3)
    producer = client.create_producer(topic)
    for number in range(10):
        producer.send(str(number).encode(), {"order": str(number % 2)}, deliver_after=HOUR)
    consumer = client.subscribe(topic, "a", SHARED)
    delayed_until_seen(consumer, 10)
    with client.new_transaction() as txn:
        assert admin.cancel_messages(topic, properties={"order": "1"}, transaction=txn) == {"a": 5, "b": 5}
        producer.send(b"instead", txn=txn)
        assert pending(admin, topic, properties={"order": "1"}) == 5 * [("a", "b")]
    until(lambda: not pending(admin, topic, properties={"order": "1"}), "the commit to be applied")
    assert admin.reschedule_messages(topic, deliver_at=0, delayed=True) == 5
    assert sorted(payloads(receive_rest(consumer, SILENCE_MS, least=6))) == ["0", "2", "4", "6", "8", "instead"]
    check_rest(client, topic, "b", ["0", "2", "4", "6", "8", "instead"])


@pytest.mark.parametrize("connected", [False, True], ids=["without consumers", "with a consumer"])
def test_they_are_delivered_at_their_time_when_it_aborts(
    client: pulsar.Client, admin: AdminClient, topic: str, connected: bool
) -> None:
    """Also when the consumer comes while the transaction holds them."""
    producer = client.create_producer(topic)
    producer.send(b"early", {"order": "1"})
    for number in range(4):
        producer.send(str(number).encode(), {"order": "1"}, deliver_after=HOUR)
    producer.send(b"other")
    consumer = client.subscribe(topic, "a", SHARED) if connected else None
    if consumer is not None:
        delayed_until_seen(consumer, 4)
        held = receive(consumer, 2)
        assert sorted(payloads(held)) == ["early", "other"]
    txn = client.new_transaction()
    assert admin.cancel_messages(topic, properties={"order": "1"}, subscription="a", transaction=txn) == {"a": 5}
    consumer = consumer or client.subscribe(topic, "a", SHARED)
    if not connected:
        assert payloads(receive(consumer, 1)) == ["other"]
        delayed_until_seen(consumer, 4)
    txn.abort()
    assert payloads(receive(consumer, 1)) == ["early"]
    assert nothing_comes(consumer)
    assert admin.reschedule_messages(topic, deliver_at=0, subscription="a", delayed=True) == 4
    assert sorted(payloads(receive(consumer, 4))) == ["0", "1", "2", "3"]


def test_a_conflict_lets_it_be_aborted_only(client: pulsar.Client, service_url: str, topic: str) -> None:
    """The administrator is in the process of the cursor's owner."""
    admin = AdminClient(service_url)
    producer = client.create_producer(topic)
    ids = [producer.send(str(number).encode(), deliver_after=HOUR) for number in range(2)]
    delayed_until_seen(client.subscribe(topic, "a", SHARED), 2)
    assert client._session.node() is admin.node
    first, second = client.new_transaction(), client.new_transaction()
    assert admin.cancel_messages(topic, message_ids=ids[:1], transaction=first) == {"a": 1, "b": 1}
    with pytest.raises(pulsar.TransactionConflict):
        admin.cancel_messages(topic, message_ids=ids, transaction=second)
    with pytest.raises(pulsar.InvalidTxnStatusError):
        second.commit()
    first.commit()
    until(lambda: pending(admin, topic, message_ids=ids) == [("a", "b")], "the first one's message to be cancelled")
    assert admin.cancel_messages(topic, message_ids=ids) == {"a": 1, "b": 1}
    with pytest.raises(pulsar.InvalidTxnStatusError):
        admin.cancel_messages(topic, message_ids=[producer.send(b"x")], transaction=first)
    with pytest.raises(TypeError, match="transaction"):
        admin.cancel_messages(topic, key="k", transaction="1:1")  # type: ignore[arg-type]
    admin.close()
