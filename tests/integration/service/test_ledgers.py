"""Lists of ledgers on a real broker: what they say, who keeps them, and how they are made anew."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient, LedgerInfo
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.managed_ledger.ledger_machine import LedgerLists
from pulsar_on_kafka.embedded import BrokerOptions, EmbeddedBroker
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.state.metadata.ledger_records import LedgerState
from pulsar_on_kafka_mapping.state.state_topics import LEDGERS
from tests.brokers import available
from tests.integration.command_line import CommandLine
from tests.steps import Missing, Unique
from tests.waiting import until
from tests.watched_rounds import WatchedMaintenance

pytestmark = pytest.mark.kafka

SIZE = 20
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def kafka_broker(missing: Missing) -> Iterator[EmbeddedBroker]:
    """A broker for these tests alone: they have every ledger of the cluster measured, some more than once."""
    with available(missing, EmbeddedBroker(BrokerOptions(heap_mb=512))) as broker:
        yield broker


@pytest.fixture
def maintenance(admin: AdminClient) -> Iterator[WatchedMaintenance]:
    made = WatchedMaintenance(admin.node)
    yield made
    made.close(Deadline.after(PATIENCE_S))


def _send(client: pulsar.Client, topic: str, count: int, payload: bytes = b"0123456789") -> None:
    producer = client.create_producer(topic, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution)
    for _ in range(count):
        producer.send_async(payload, None)
    producer.flush()
    producer.close()


def _shown(ledgers: list[LedgerInfo]) -> list[tuple[int, LedgerState, int, int]]:
    return [(each.partition, each.state, each.first_offset, each.end_offset) for each in ledgers]


def _listed(admin: AdminClient, topic: str) -> list[LedgerInfo]:
    return [each for each in admin.list_ledgers(topic) if each.measured_to == each.end_offset and each.entries]


def test_without_maintenance_a_list_tells_what_kafka_has(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    admin.create_topic(topic, entries_per_ledger=SIZE)
    assert _shown(admin.list_ledgers(topic)) == [(0, LedgerState.OPEN, 0, 0)]
    _send(client, topic, 2 * SIZE + 5)
    found = admin.list_ledgers(topic)
    closed, opened = LedgerState.CLOSED, LedgerState.OPEN
    assert _shown(found) == [(0, closed, 0, 20), (0, closed, 20, 40), (0, opened, 40, 45)]
    first = client.create_reader(topic, pulsar.MessageId.earliest).read_next(int(PATIENCE_S * 1000))
    assert found[0].ledger_id == first.message_id().ledger_id()
    assert admin.get_ledger(found[1].ledger_id) == found[1]
    with pytest.raises(pulsar.exceptions.TopicNotFound):
        admin.list_ledgers(unique("nothing"))
    with pytest.raises(pulsar.exceptions.TopicNotFound, match="has no ledger"):
        admin.get_ledger(found[0].ledger_id + 50)


def test_maintenance_measures_each_ledger(
    client: pulsar.Client, admin: AdminClient, maintenance: WatchedMaintenance, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2, entries_per_ledger=SIZE)
    _send(client, topic, 4 * SIZE + 10)
    assert maintenance.wait_until_listed(Deadline.after(PATIENCE_S))
    found = _listed(admin, topic)
    assert sum(each.entries for each in found) == 4 * SIZE + 10
    for each in found:
        assert each.size_error == 0
        assert each.size >= 10 * each.entries
        assert 0 < each.first_publish_ms <= each.last_publish_ms
    assert [each.state for each in found if each.end_offset % SIZE] == [LedgerState.OPEN] * 2
    _send(client, topic, 2 * SIZE)
    assert maintenance.wait_until_listed(Deadline.after(PATIENCE_S))
    grown = _listed(admin, topic)
    assert sum(each.entries for each in grown) == 6 * SIZE + 10
    assert {each.ledger_id: each.size for each in grown}.items() >= {
        each.ledger_id: each.size for each in found if each.state is LedgerState.CLOSED
    }.items()


def test_two_processes_share_the_lists_and_one_takes_over(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    first, second = WatchedMaintenance(admin.node), WatchedMaintenance(admin.node)
    every = list(range(LEDGERS.partitions))

    def shared() -> bool:
        return bool(first.owned() and second.owned()) and sorted([*first.owned(), *second.owned()]) == every

    try:
        until(shared, "the ledgers to be shared out")
        topics = [unique(f"t{number}") for number in range(6)]
        for topic in topics:
            admin.create_topic(topic, entries_per_ledger=SIZE)
            _send(client, topic, SIZE + 1)
        assert first.wait_until_listed(Deadline.after(PATIENCE_S))
        assert second.wait_until_listed(Deadline.after(PATIENCE_S))
        assert all(len(_listed(admin, topic)) == 2 for topic in topics)
        first.close(Deadline.after(PATIENCE_S))
        until(lambda: second.owned() == every, "the second one to own every partition")
        for topic in topics:
            _send(client, topic, SIZE)
        assert second.wait_until_listed(Deadline.after(PATIENCE_S))
        assert all(len(_listed(admin, topic)) == 3 for topic in topics)
    finally:
        first.close(Deadline.after(PATIENCE_S))
        second.close(Deadline.after(PATIENCE_S))


def test_lists_follow_what_kafka_deletes_and_what_is_deleted(
    client: pulsar.Client, admin: AdminClient, maintenance: WatchedMaintenance, unique: Unique
) -> None:
    topic = unique()
    admin.create_topic(topic, entries_per_ledger=SIZE)
    _send(client, topic, 3 * SIZE + 5)
    assert maintenance.wait_until_listed(Deadline.after(PATIENCE_S))
    assert len(_listed(admin, topic)) == 4
    life = admin.topic_stats(topic)
    admin.node.admin.delete_records(life.kafka_topic, {0: SIZE + 3}, Deadline.after(PATIENCE_S))
    assert maintenance.wait_until_listed(Deadline.after(PATIENCE_S))
    left = _listed(admin, topic)
    assert _shown(left)[0] == (0, LedgerState.CLOSED, SIZE + 3, 2 * SIZE)
    assert len(left) == 3
    place = LEDGERS.partition_for(left[0].topic)
    admin.delete_topic(topic)
    assert maintenance.wait_until_listed(Deadline.after(PATIENCE_S))
    view = LogView(admin.node.log, LEDGERS, place, lambda: LedgerLists(place), admin.node.clock)
    names = view.query(lambda lists: [each.topic for each in lists.places()], Deadline.after(PATIENCE_S))
    assert left[0].topic not in names


def test_lists_are_made_anew_whoever_keeps_them(
    client: pulsar.Client, admin: AdminClient, maintenance: WatchedMaintenance, service_url: str, unique: Unique
) -> None:
    topic = unique()
    admin.create_topic(topic, entries_per_ledger=SIZE)
    _send(client, topic, 2 * SIZE + 5)
    pok = CommandLine(service_url, "ledgers")
    assert pok.json("rebuild", "--yes")["rebuilt"] >= 3
    rebuilt = _listed(admin, topic)
    assert len(rebuilt) == 3
    _send(client, topic, SIZE)
    assert maintenance.wait_until_listed(Deadline.after(PATIENCE_S))
    assert _listed(admin, topic)[:2] == rebuilt[:2]
    assert len(_listed(admin, topic)) == 4
    assert "measuring every ledger again" in pok("rebuild", exits=1).stderr


def test_pok_lists_and_shows_ledgers(
    client: pulsar.Client, admin: AdminClient, maintenance: WatchedMaintenance, service_url: str, unique: Unique
) -> None:
    topic = unique()
    admin.create_topic(topic, entries_per_ledger=SIZE)
    _send(client, topic, SIZE)
    assert maintenance.wait_until_listed(Deadline.after(PATIENCE_S))
    maintenance.close(Deadline.after(PATIENCE_S))  # nobody measures the open ledger between two looks at it
    _send(client, topic, 2)
    pok = CommandLine(service_url, "ledgers")
    closed, opened = pok.json("list", topic)
    assert (closed["state"], closed["entries"], closed["size_error"]) == ("CLOSED", SIZE, 0)
    assert (opened["state"], opened["entries"], opened["measured_to"]) == ("OPEN", 2, SIZE)
    table = pok("list", topic).stdout.splitlines()
    assert table[0].split()[:3] == ["ledger", "partition", "state"]
    assert str(closed["ledger_id"]) in table[2]
    shown = pok("show", str(closed["ledger_id"])).stdout
    assert f"offsets          0 to {SIZE} (exclusive)" in shown
    assert pok.json("show", str(opened["ledger_id"])) == opened
    assert "has no ledger" in pok.refused("show", str(closed["ledger_id"] + 7))


@pytest.mark.long
def test_pok_serve_keeps_lists_until_it_is_told_to_stop(
    client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique
) -> None:
    topic = unique()
    admin.create_topic(topic, entries_per_ledger=SIZE)
    admin.create_subscription(topic, "keeps-its-ledgers", from_earliest=True)
    _send(client, topic, SIZE + 5)
    with subprocess.Popen(
        [sys.executable, "-m", "pulsar_on_kafka.cli", "--url", service_url, "serve", "--port", "0"],
        stdout=subprocess.PIPE, text=True, env=os.environ,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("serving ")
            until(lambda: len(_listed(admin, topic)) == 2, "two ledgers to be listed")
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
