"""WatchedMaintenance serves users on a real broker: backlog quotas, the end of what nobody uses, compaction."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Producer

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from tests.clocks import WRONG_CLOCKS
from tests.integration.command_line import CommandLine
from tests.steps import Unique, payloads, receive, receive_rest
from tests.waiting import until
from tests.watched_rounds import WatchedMaintenance

pytestmark = pytest.mark.kafka

PATIENCE_S = 60.0
MINUTE_MS = 60_000


@pytest.fixture
def maintenance(admin: AdminClient) -> Iterator[WatchedMaintenance]:
    made = WatchedMaintenance(admin.node, every_s=0.5)
    yield made
    made.close(Deadline.after(PATIENCE_S))


def _patiently() -> Deadline:
    return Deadline.after(PATIENCE_S)


def _fails_to_send(producer: pulsar.Producer, kind: type[Exception]) -> bool:
    try:
        producer.send(b"more")
    except kind:
        return True
    except pulsar.ProducerBlockedQuotaExceededException:  # it has not heard of the change yet
        return False
    return False


@pytest.mark.long
@pytest.mark.parametrize("batching", [False, True])
def test_producers_are_refused_then_held_then_let_go_on(
    client: pulsar.Client,
    admin: AdminClient,
    maintenance: WatchedMaintenance,
    service_url: str,
    unique: Unique,
    batching: bool,
) -> None:
    topic = unique()
    admin.create_topic(topic)
    admin.create_subscription(topic, "slow", from_earliest=True)
    there = client.create_producer(topic, batching_enabled=batching, send_timeout_millis=0)
    hasty = client.create_producer(topic, batching_enabled=batching, send_timeout_millis=1500)
    for _ in range(20):
        there.send(b"0123456789" * 10)
    pok = CommandLine(service_url, "topics")
    pok("policy", "set", topic, "backlog_quota_limit_size_action", "producer_exception")
    pok("policy", "set", topic, "backlog_quota_limit_size", "1K")
    until(lambda: admin.topic_stats(topic).backlog_exceeded, "the backlog to be found too large")
    with pytest.raises(pulsar.ProducerBlockedQuotaExceededException, match="1,024 bytes of partition 0 left"):
        client.create_producer(topic)
    refused = pulsar.ProducerBlockedQuotaExceededException
    until(lambda: _fails_to_send(there, refused), "sends to be refused")
    assert "takes no further producer" in pok("stats", topic).stdout

    pok("policy", "set", topic, "backlog_quota_limit_size_action", "producer_request_hold")

    def held() -> bool:
        try:
            client.create_producer(topic)
        except pulsar.ProducerBlockedQuotaExceededError:
            return True
        except pulsar.ProducerBlockedQuotaExceededException:
            return False
        raise AssertionError("a producer was made")

    until(held, "sends to be held")
    until(lambda: _fails_to_send(hasty, pulsar.Timeout), "a send that does not wait to time out")
    answers: list[pulsar.Result] = []
    for number in range(3):
        there.send_async(f"held {number}".encode(), lambda result, _: answers.append(result))
    flushed = threading.Thread(target=there.flush)
    flushed.start()
    assert answers == []
    consumer = client.subscribe(topic, "slow")
    found: list[str] = []

    def let_go_on() -> bool:
        for message in receive_rest(consumer, 300):
            found.append(message.data().decode())
            consumer.acknowledge(message)
        return len(answers) == 3

    until(let_go_on, "sends to go on")
    found += payloads(receive_rest(consumer))
    assert answers == [pulsar.Result.Ok] * 3
    assert [text for text in found if text.startswith("held")] == ["held 0", "held 1", "held 2"]
    flushed.join(PATIENCE_S)
    assert admin.topic_stats(topic).backlog_exceeded == ""
    client.create_producer(topic).send(b"again")


@pytest.mark.long
def test_eviction_by_size_and_by_time_and_a_limit_of_the_cluster(
    client: pulsar.Client,
    admin: AdminClient,
    maintenance: WatchedMaintenance,
    bootstrap: str,
    service_url: str,
    unique: Unique,
) -> None:
    large, old = unique("large"), unique("old")
    for topic in (large, old):
        admin.create_topic(topic)
        for subscription in ("slow", "live"):
            admin.create_subscription(topic, subscription, from_earliest=True)
        for limit in ("size", "time"):
            admin.set_policy(topic, f"backlog_quota_limit_{limit}_action", "consumer_backlog_eviction")
    live = client.subscribe(large, "live", consumer_type=pulsar.ConsumerType.Shared)
    producer = Producer({"bootstrap.servers": bootstrap})
    now_ms = int(time.time() * 1000)
    for number in range(100):
        producer.produce(admin.topic_stats(large).kafka_topic, b"x" * 1000, partition=0)
        age_ms = 10 * MINUTE_MS if number < 60 else 0
        producer.produce(admin.topic_stats(old).kafka_topic, b"y", partition=0, timestamp=now_ms - age_ms)
    assert producer.flush(PATIENCE_S) == 0
    receive(live, 100)
    pok = CommandLine(service_url, "cluster")
    pok("policy", "set", "backlog_quota_limit_time", "300")
    try:
        admin.set_policy(large, "backlog_quota_limit_time", -1)
        admin.set_policy(large, "backlog_quota_limit_size", 50_000)
        assert pok.json("policy", "get", "backlog_quota_limit_time") == 300
        assert admin.get_policy(old, "backlog_quota_limit_time", applied_value=True) == -1  # its action is its own
        admin.set_policy(old, "backlog_quota_limit_time", 300)
        until(lambda: admin.topic_stats(old).subscriptions == {"slow": 40, "live": 40}, "what is old to be evicted")

        def evicted() -> bool:
            return all(40 <= left <= 50 for left in admin.topic_stats(large).subscriptions.values())

        until(evicted, "what is too much to be evicted")
    finally:
        pok("policy", "remove", "backlog_quota_limit_time")
    assert pok("policy", "get", "backlog_quota_limit_time").stdout.strip() == "-"
    assert "backlog_quota_limit_time" in pok("policy", "get", "--applied").stdout
    assert pok("policy", "get", "backlog_quota_limit_time", "--applied").stdout.strip() == "-1"
    pok("policy", "set", "backlog_quota_limit_time", "-1")
    pok("policy", "remove", "backlog_quota_limit_time")


@WRONG_CLOCKS
@pytest.mark.long
def test_what_nobody_uses_goes(
    client: pulsar.Client, admin: AdminClient, maintenance: WatchedMaintenance, unique: Unique
) -> None:
    topic, empty, drained = unique(), unique("empty"), unique("drained")
    for name in (topic, empty, drained):
        admin.create_topic(name)
    for name in (topic, drained):
        admin.create_subscription(name, "idle", from_earliest=True)
    consumer = client.subscribe(topic, "live", consumer_type=pulsar.ConsumerType.Shared)
    admin.set_policy(topic, "subscription_expiration_time_minutes", 5)
    opened = admin.node.topics.open(TopicName.parse(topic), _patiently())

    def unused() -> set[str]:
        record = admin.node.topics.records.of([opened.name], _patiently())[opened.name]
        return set() if record is None else set(record.unused)

    until(lambda: unused() == {"idle"}, "the unused subscription to be found")
    record = admin.node.topics.records.of([opened.name], _patiently())[opened.name]
    assert record is not None
    for age_minutes, left in ((4, {"idle", "live"}), (6, {"live"})):
        aged = {
            name: replace(each, since_ms=each.since_ms - age_minutes * MINUTE_MS)
            for name, each in record.unused.items()
        }
        admin.node.topics.records.note_unused(opened, aged, _patiently())
        assert maintenance.wait_for_round(_patiently())
        assert set(admin.topic_stats(topic).subscriptions) == left
    consumer.close()

    in_use = client.create_producer(empty)
    for name in (empty, drained):
        admin.set_policy(name, "max_inactive_duration_seconds", 1)
        admin.set_policy(name, "inactive_topic_delete_mode", "delete_when_subscriptions_caught_up")
        admin.set_policy(name, "delete_while_inactive", True)
    until(lambda: drained not in str(admin.list_topics()), "the drained topic to be deleted")
    assert maintenance.wait_for_round(_patiently())
    assert empty in str(admin.list_topics())
    in_use.close()
    until(lambda: empty not in str(admin.list_topics()), "the empty topic to be deleted")
    assert topic in str(admin.list_topics())


def test_a_topic_is_compacted_when_enough_came(
    client: pulsar.Client, admin: AdminClient, maintenance: WatchedMaintenance, service_url: str, unique: Unique
) -> None:
    by_itself, by_hand = unique("itself"), unique("hand")
    pok = CommandLine(service_url, "topics")
    for name in (by_itself, by_hand):
        producer = client.create_producer(name)
        for number in range(20):
            producer.send(f"{number}-{'x' * 100}".encode(), partition_key=str(number % 2))
        producer.close()
        assert "never compacted" in pok("compaction-status", name).stdout
    pok("policy", "set", by_itself, "compaction_threshold", "1K")
    pok("compact", by_hand)
    until(lambda: admin.compaction_status(by_itself) == {0: 20}, "the topic to be compacted by itself")
    for name in (by_itself, by_hand):
        assert pok.json("compaction-status", name) == {"compacted_to": {"0": 20}}
        assert "20" in pok("compaction-status", name).stdout
        reader = client.create_reader(name, pulsar.MessageId.earliest, is_read_compacted=True)
        assert [reader.read_next(60_000).data()[:2] for _ in range(2)] == [b"18", b"19"]
        assert not reader.has_message_available()
        reader.close()
