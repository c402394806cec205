"""A deletion without force is refused as soon as `subscribe` or `create_producer` has returned, and succeeds as soon as
the last consumer and producer are closed: in the same process, in another one, and for each way to subscribe."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.steps import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, Unique

pytestmark = pytest.mark.kafka


@pytest.fixture(params=["here", "elsewhere"])
def deleting(request: pytest.FixtureRequest, admin: AdminClient, admin_elsewhere: AdminClient) -> AdminClient:
    return admin if request.param == "here" else admin_elsewhere


def _unsubscribe(admin: AdminClient, topic: str) -> None:
    admin.unsubscribe(topic, "s")


def _delete(admin: AdminClient, topic: str) -> None:
    admin.delete_topic(topic, with_subscriptions=True)


@pytest.mark.parametrize("delete", [_unsubscribe, _delete])
def test_what_a_consumer_has_just_joined_stays(
    client: pulsar.Client, deleting: AdminClient, unique: Unique, delete: Callable[[AdminClient, str], None]
) -> None:
    for kind in (EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED):
        topic = unique()
        client.create_producer(topic).close()
        deleting.create_subscription(topic, "s", from_earliest=True)
        for again in (False, True):  # the second consumer finds what the first one left
            consumer = client.subscribe(topic, "s", consumer_type=kind)
            with pytest.raises((pulsar.ConsumerBusy, pulsar.NotAllowedError)):
                delete(deleting, topic)
            consumer.close()
            if again:
                delete(deleting, topic)
        assert not any(topic in each for each in deleting.list_topics()) or deleting.list_subscriptions(topic) == []


def test_a_consumer_of_one_partition_keeps_its_subscription(
    client: pulsar.Client, deleting: AdminClient, unique: Unique
) -> None:
    topic = unique()
    deleting.create_partitioned_topic(topic, 2)
    consumer = client.subscribe(f"{topic}-partition-1", "s", consumer_type=SHARED)
    for delete in (_unsubscribe, _delete):
        with pytest.raises((pulsar.ConsumerBusy, pulsar.NotAllowedError)):
            delete(deleting, topic)
    consumer.close()
    _delete(deleting, topic)


def test_a_producer_that_was_just_opened_keeps_its_topic(
    client: pulsar.Client, deleting: AdminClient, unique: Unique
) -> None:
    topic = unique()
    producer = client.create_producer(topic)
    with pytest.raises(pulsar.NotAllowedError):
        deleting.delete_topic(topic)
    assert producer.send(b"it is there") is not None
    producer.close()
    deleting.delete_topic(topic)


def test_with_force_a_consumer_that_has_just_joined_does_not_count(
    client: pulsar.Client, admin_elsewhere: AdminClient, unique: Unique
) -> None:
    topic = unique()
    client.subscribe(topic, "s", consumer_type=SHARED)
    admin_elsewhere.unsubscribe(topic, "s", force=True)
    assert admin_elsewhere.list_subscriptions(topic) == []


def test_the_only_consumer_unsubscribes_at_once_and_one_of_two_does_not(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    one, other = (client.subscribe(topic, "s", consumer_type=SHARED) for _ in range(2))
    with pytest.raises(pulsar.BrokerMetadataError):
        one.unsubscribe()
    other.close()
    one.unsubscribe()
