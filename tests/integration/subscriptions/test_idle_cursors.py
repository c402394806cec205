"""Cursors that nobody owns, changed by several programs at the same time."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyroaring import BitMap64

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.checkpoints import CheckpointFold
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.ledger_acks import of_offsets
from pulsar_on_kafka.kafka.groups.offset_writer import OffsetWriter
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.state_topics import CURSOR_CHECKPOINTS
from tests.steps import Unique, payloads, receive

pytestmark = pytest.mark.kafka


@pytest.fixture
def programs(service_url: str) -> Iterator[list[AdminClient]]:
    """Nodes of their own: to one another they are other processes."""
    made = [
        AdminClient(service_url, operation_timeout_seconds=120, kafka_config={"client.rack": secrets.token_hex(4)})
        for _ in range(3)
    ]
    yield made
    for program in made:
        program.close()


def saved(program: AdminClient, topic: str) -> CursorState:
    subscription = program._subscription(topic, "s", Deadline.after(20))
    return program.node.memberships.cursors.read(subscription, Deadline.after(20))[0].state


def acknowledge(program: AdminClient, topic: str, offset: int) -> int:
    """Acknowledge by the administration, like Spark."""
    subscription = program._subscription(topic, "s", Deadline.after(20))
    acks = {0: of_offsets(BitMap64([offset]), {}, subscription.topic.layout.entries_per_ledger)}
    program.node.memberships.acknowledge(subscription, acks, Deadline.after(60))
    return offset


def sent(client: pulsar.Client, topic: str, count: int) -> list[Any]:
    producer = client.create_producer(topic)
    ids = [producer.send(b"%d" % number) for number in range(count)]
    producer.close()
    return ids


def test_changes_side_by_side_all_count(programs: list[AdminClient], service_url: str, unique: Unique) -> None:
    topic, (skipping, spark, other_spark) = unique(), programs
    skipping.create_topic(topic)
    skipping.create_subscription(topic, "s", from_earliest=True)
    client = pulsar.Client(service_url)
    ids = sent(client, topic, 80)

    def consume_now_and_then() -> set[int]:
        for offset in range(40, 43):
            consumer = client.subscribe(topic, "s")  # Exclusive
            receive(consumer, 1)  # it owns the partition
            consumer.acknowledge(ids[offset])
            consumer.close()
        return {40, 41, 42}

    with ThreadPoolExecutor(4) as threads:
        changes = [
            threads.submit(lambda: {acknowledge(spark, topic, offset) for offset in range(50, 70, 2)}),
            threads.submit(lambda: {acknowledge(other_spark, topic, offset) for offset in range(51, 71, 2)}),
            threads.submit(consume_now_and_then),
        ]
        skipped = threads.submit(lambda: sum(skipping.skip(topic, "s", 1) for _ in range(10)))
        acknowledged = {offset for change in changes for offset in change.result()}
        assert skipped.result() == 10
    state = saved(skipping, topic)
    assert {offset for offset in range(80) if state.is_acknowledged(offset)} == acknowledged | set(range(10))
    client.close()


def test_a_change_that_its_author_left_holds_nobody_up(
    programs: list[AdminClient], service_url: str, unique: Unique
) -> None:
    topic, (admin, dead, _) = unique(), programs
    admin.create_topic(topic)
    admin.create_subscription(topic, "s", from_earliest=True)
    client = pulsar.Client(service_url)
    sent(client, topic, 3)
    subscription, deadline = admin._subscription(topic, "s", Deadline.after(20)), Deadline.after(60)
    group, kafka_topic = subscription.whole_group, subscription.topic.kafka_topic
    writer = OffsetWriter(dead.node.settings.offset_writer(), group)
    writer.open(kafka_topic, deadline)
    writer.put(kafka_topic, {group: {0: CommittedOffset(3, "")}}, deadline)

    consumer = client.subscribe(topic, "s")
    assert payloads(receive(consumer, 3)) == ["0", "1", "2"]
    with pytest.raises(errors.CommitOutcomeUnknown):
        writer.commit(deadline)
    writer.close()
    consumer.close()
    assert admin.skip(topic, "s", 2) == 2
    client.close()


@pytest.mark.long
def test_changes_of_a_cursor_that_nobody_owns_leave_few_checkpoints(
    programs: list[AdminClient], service_url: str, unique: Unique
) -> None:
    topic, log = unique(), programs[0].node.log
    programs[0].create_topic(topic)
    programs[0].create_subscription(topic, "s", from_earliest=True)
    client = pulsar.Client(service_url)
    sent(client, topic, 130)
    for number in range(60):
        acknowledge(programs[number % 2], topic, 2 * number + 1)
    assert sum(saved(programs[2], topic).is_acknowledged(offset) for offset in range(130)) == 60
    name = str(TopicName.parse(topic))
    partition = CURSOR_CHECKPOINTS.partition_for(name)
    view = LogView(log, CURSOR_CHECKPOINTS, partition, CheckpointFold, SystemClock())
    kept = view.query(CheckpointFold.all, Deadline.after(20))[name, 0, "s"]
    assert len(kept) <= 2, "one for each program that changed it at most"
    client.close()
