"""An overview of all subscriptions, gathered from what lies in Kafka."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import pytest
from confluent_kafka import Producer

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.admin.overview import consumption, progress, records
from pulsar_on_kafka.admin.overview.consumption import ConsumptionState
from pulsar_on_kafka.admin.overview.gathering import Gatherer
from pulsar_on_kafka.admin.overview.records import Overview, SubscriptionOverview
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import DeadlineExceeded
from pulsar_on_kafka.kafka.groups.offsets_topic import OFFSETS_TOPIC
from pulsar_on_kafka.kafka.reading.range_reader import OffsetRange, RangeReader
from pulsar_on_kafka.kafka.records import KafkaRecord
from tests.steps import Process, Unique, receive, receive_rest, send
from tests.waiting import until

pytestmark = pytest.mark.kafka
Take: TypeAlias = Callable[[int, list[KafkaRecord]], None]


def full(topic: str) -> str:
    return f"persistent://public/default/{topic}"


@contextmanager
def gathering(admin: AdminClient) -> Iterator[Gatherer]:
    gatherer = Gatherer(admin.node)
    try:
        yield gatherer
    finally:
        gatherer.close()


def gather(gatherer: Gatherer) -> Overview:
    return gatherer.gather(Deadline.after(30), requesting=12)


def found(overview: Overview, topic: str, subscription: str) -> SubscriptionOverview:
    [only] = [each for each in overview.subscriptions if (each.topic, each.subscription) == (full(topic), subscription)]
    return only


def test_backlog_holes_and_the_owner_are_those_that_stats_tell(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic, name = unique(), unique("watched")
    consumer = client.subscribe(topic, name, pulsar.ConsumerType.Shared)
    send(client, topic, 10)
    for message in receive(consumer, 10)[::2]:
        consumer.acknowledge(message)
    consumer.flush()
    with gathering(admin) as gatherer:
        told = found(gather(gatherer), topic, name)
        stats = admin.subscription_stats(topic, name)
        assert (told.backlog, told.acknowledged, told.holes) == (5, 4, 4)
        assert (stats.backlog, stats.individually_deleted, stats.partitions[0].holes) == (5, 4, 4)
        assert (told.type, told.durable, told.processes) == ("Shared", True, stats.consumers)
        assert told.partitions[0].owner == stats.partitions[0].owner != ""
        assert told.acknowledged_per_s is None


def test_a_terminated_topic_ends_behind_its_last_message(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic, name = unique(), unique("watched")
    admin.create_topic(topic)
    admin.create_subscription(topic, name)
    send(client, topic, 3)
    admin.terminate_topic(topic)
    with gathering(admin) as gatherer:
        told = found(gather(gatherer), topic, name)
        assert (told.backlog, admin.subscription_stats(topic, name).backlog) == (3, 3)


def test_a_second_pass_reads_on_and_tells_rates(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic, name = unique(), unique("watched")
    consumer = client.subscribe(topic, name)
    with gathering(admin) as gatherer:
        first = found(gather(gatherer), topic, name)
        assert (first.backlog, first.oldest_ms, first.idle_since_ms) == (0, None, None)
        send(client, topic, 10)
        for message in receive(consumer, 4):
            consumer.acknowledge(message)
        consumer.flush()
        second = found(gather(gatherer), topic, name)
        assert (second.backlog, second.acknowledged_total) == (6, 4)
        assert second.acknowledged_per_s is not None
        assert second.acknowledged_per_s > 0
        assert second.published_per_s is not None
        assert second.published_per_s > second.acknowledged_per_s
        consumer.close()
        third = until(lambda: without_processes(gatherer, topic, name), "the group to be empty")
        assert (third.backlog, third.acknowledged_per_s, third.partitions[0].owner) == (6, 0.0, "")
        assert third.idle_since_ms is not None
        assert third.oldest_ms is not None
        assert third.oldest_ms <= third.idle_since_ms


def without_processes(gatherer: Gatherer, topic: str, name: str) -> SubscriptionOverview | None:
    told = found(gather(gatherer), topic, name)
    return None if told.processes else told


@pytest.mark.long
def test_holes_that_do_not_fit_a_commit_are_counted(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic, name, count = unique(), unique("holey"), 60_000
    consumer = client.subscribe(topic, name, pulsar.ConsumerType.Shared, receiver_queue_size=5_000)
    producer = client.create_producer(topic, block_if_queue_full=True)
    for number in range(count):
        producer.send_async(b"%d" % number, None)
    producer.flush()
    chosen = random.Random(7)
    acknowledged = 0
    for _ in range(count):
        message = consumer.receive(60_000)
        if chosen.random() < 0.5:
            consumer.acknowledge(message)
            acknowledged += 1
    consumer.flush()
    stats = admin.subscription_stats(topic, name)
    assert stats.partitions[0].saved_in == "segments"
    with gathering(admin) as gatherer:
        told = found(gather(gatherer), topic, name)
        assert told.backlog == stats.backlog == count - acknowledged
        assert (told.acknowledged, told.holes) == (stats.individually_deleted, stats.partitions[0].holes)
        assert told.unreadable == 0


def test_the_age_of_what_was_published_before_gathering_began_is_asked_of_kafka(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic, name = unique(), unique("late")
    consumer = client.subscribe(topic, name)
    before_ms = time.time_ns() // 1_000_000
    published_ms = before_ms - 3_600_000
    kafka_topic = admin.topic_stats(topic).kafka_topic
    producer = Producer({"bootstrap.servers": admin.node.settings.bootstrap})
    for minute in range(60):
        producer.produce(kafka_topic, b"%d" % minute, timestamp=published_ms + minute * 60_000)
    producer.flush()
    with gathering(admin) as gatherer:
        oldest_ms = found(gather(gatherer), topic, name).oldest_ms
        assert oldest_ms is not None
        assert published_ms < oldest_ms < published_ms + 3_600_000 * 0.15
        receive(consumer, 30)
        consumer.acknowledge_cumulative(receive(consumer, 1)[0])
        consumer.flush()
        oldest_ms = found(gather(gatherer), topic, name).oldest_ms
        assert oldest_ms is not None
        assert published_ms + 31 * 60_000 < oldest_ms < published_ms + 36 * 60_000


def test_partitions_dead_letters_and_deletion(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic, name = unique(), unique("several")
    admin.create_partitioned_topic(topic, 3)
    consumer = client.subscribe(
        topic, name, pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=20,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1, initial_subscription_name="kept"),
    )  # fmt: skip
    with gathering(admin) as gatherer:
        gather(gatherer)
        send(client, topic, 9)
        consumer.negative_acknowledge(consumer.receive(60_000))

        def buried() -> SubscriptionOverview | None:
            for message in receive_rest(consumer, 100):
                consumer.acknowledge(message) if message.redelivery_count() == 0 else consumer.negative_acknowledge(
                    message
                )
            consumer.flush()
            told = found(gather(gatherer), topic, name)
            return told if told.dead_letters and not told.backlog else None

        told = until(buried, "the dead letter")
        assert (told.dead_letters, len(told.partitions), told.acknowledged_total) == (1, 3, 9)
        consumer.close()
        admin.delete_topic(topic, force=True)
        seen = gather(gatherer)
        assert not [each for each in seen.subscriptions if each.topic == full(topic)]
        assert full(topic) not in {each.topic for each in seen.topics}


def test_open_transactions_are_told_where_they_write_and_where_they_hold(
    process: Process, admin: AdminClient, unique: Unique
) -> None:
    client, topic, name = process(enable_transaction=True), unique(), unique("held")
    consumer = client.subscribe(topic, name, pulsar.ConsumerType.Shared)
    send(client, topic, 2)
    producer = client.create_producer(topic)
    transaction = client.new_transaction(60_000)
    producer.send(b"in it", txn=transaction)
    consumer.acknowledge(consumer.receive(60_000), txn=transaction)
    with gathering(admin) as gatherer:
        seen = gather(gatherer)
        [told] = [each for each in seen.topics if each.topic == full(topic)]
        assert (told.open_transactions, found(seen, topic, name).open_transactions) == (1, 1)
        transaction.commit()
        seen = until(lambda: ended(gather(gatherer), topic, name), "the transaction to be over")
        assert found(seen, topic, name).partitions[0].end == 4


def ended(seen: Overview, topic: str, name: str) -> Overview | None:
    [told] = [each for each in seen.topics if each.topic == full(topic)]
    return None if told.open_transactions or found(seen, topic, name).open_transactions else seen


def test_what_exists_is_listed_and_narrowed_to_a_tenant_or_namespace(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    tenant = unique("tenant").lower()
    admin.create_namespace(f"{tenant}/one")
    admin.create_namespace(f"{tenant}/two")
    consumer = client.subscribe(f"{tenant}/one/orders", "billing")
    with gathering(admin) as gatherer:
        seen = gather(gatherer)
        assert {"public", "pulsar", tenant} <= set(seen.tenants)
        assert {"public/default", f"{tenant}/one", f"{tenant}/two"} <= set(seen.namespaces)
        of_tenant = seen.of(tenant=tenant)
        assert (of_tenant.tenants, of_tenant.namespaces) == ((tenant,), (f"{tenant}/one", f"{tenant}/two"))
        assert [each.subscription for each in of_tenant.subscriptions] == ["billing"]
        assert [each.topic for each in of_tenant.topics] == [f"persistent://{tenant}/one/orders"]
        assert seen.of(namespace=f"{tenant}/two").subscriptions == ()
    consumer.close()


def test_consumers_that_hang_lag_and_are_missing_are_told_apart(
    client: pulsar.Client, admin: AdminClient, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "STUCK_S", 1.0)
    monkeypatch.setattr(progress, "MIN_RECENT_S", 0.1)
    monkeypatch.setattr(consumption, "SLOW_AGE_S", 0.5)
    monkeypatch.setattr(consumption, "CATCH_UP_S", 1.0)
    topic, name = unique(), unique("works")
    consumer = client.subscribe(topic, name, pulsar.ConsumerType.Shared)
    client.subscribe(topic, "left").close()
    send(client, topic, 300)
    with gathering(admin) as gatherer:

        def told_as(state: ConsumptionState) -> bool:
            if state is ConsumptionState.SLOW:
                consumer.acknowledge(consumer.receive(60_000))
                consumer.flush()
            return found(gather(gatherer), topic, name).state is state

        until(lambda: told_as(ConsumptionState.SLOW), "slow")
        until(lambda: told_as(ConsumptionState.STUCK), "stuck")
        consumer.close()
        until(lambda: told_as(ConsumptionState.UNCONSUMED), "unconsumed")
        assert found(gather(gatherer), topic, "left").state is ConsumptionState.UNCONSUMED


def test_figures_whose_commits_were_not_read_keep_their_time(
    client: pulsar.Client, admin: AdminClient, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, name = unique(), unique("dated")
    consumer = client.subscribe(topic, name)
    send(client, topic, 2)
    consumer.acknowledge(consumer.receive(60_000))
    consumer.flush()
    read, stored_in, fails = RangeReader.read, set[int](), False

    def reading(reader: RangeReader, ranges: Sequence[OffsetRange], take: Take, deadline: Deadline) -> Any:
        """Notes where Kafka stored the commits of the group, and fails there later."""

        def noting(number: int, records: list[KafkaRecord]) -> None:
            if any(name.encode() in (record.key() or b"") for record in records):
                stored_in.update({ranges[number].partition} if ranges[number].kafka_topic == OFFSETS_TOPIC else ())
            take(number, records)

        failed = read(reader, ranges, noting, deadline)
        silent = [number for number, of in enumerate(ranges) if of[:2] in {(OFFSETS_TOPIC, each) for each in stored_in}]
        return failed | dict.fromkeys(silent, DeadlineExceeded("no leader")) if fails else failed

    monkeypatch.setattr(RangeReader, "read", reading)
    with gathering(admin) as gatherer:
        first = gather(gatherer)
        assert found(first, topic, name).seen_ms == first.gathered_ms
        assert len(stored_in) == 1
        fails = True
        second = gather(gatherer)
        assert found(second, topic, name).seen_ms == first.gathered_ms < second.gathered_ms
        assert f"{OFFSETS_TOPIC}: no leader" in second.incomplete
        fails = False
        third = gather(gatherer)
        assert (found(third, topic, name).seen_ms, third.incomplete) == (third.gathered_ms, ())
    consumer.close()


def test_the_first_subscription_of_all_is_seen_in_the_next_pass(service_url: str, unique: Unique) -> None:
    """There were no state topics when it looked first."""
    instance = f"i{unique()[-9:]}"
    with (
        AdminClient(service_url, operation_timeout_seconds=120, instance=instance) as admin,
        gathering(admin) as gatherer,
    ):
        assert gather(gatherer).subscriptions == ()
        admin.create_topic("orders")
        admin.create_subscription("orders", "billing")
        assert found(gather(gatherer), "orders", "billing").backlog == 0
