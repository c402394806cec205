"""Transactions, as administrators see them: `AdminClient` and `pok transactions` on a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka import exceptions
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.transactions.buffer.verify import BufferFinding
from pulsar_on_kafka.broker.transactions.coordinator.state import txn_id
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TxnStatus
from tests.integration.command_line import CommandLine
from tests.integration.transactions_by_hand import PATIENCE_S, WrittenByHand
from tests.steps import PATIENCE_MS, Unique

pytestmark = pytest.mark.kafka

COORDINATOR = 15


@pytest.fixture
def pok(service_url: str) -> CommandLine:
    return CommandLine(service_url, "transactions")


@pytest.fixture
def topic(admin: AdminClient, unique: Unique) -> str:
    name = f"persistent://public/default/{unique()}"
    admin.create_partitioned_topic(name, 2)
    return name


@pytest.fixture
def by_hand(admin: AdminClient, topic: str) -> Iterator[WrittenByHand]:
    made = WrittenByHand(admin, topic, COORDINATOR)
    yield made
    made.finish()


def listed(found: list[dict[str, Any]], *txns: TxnId) -> list[dict[str, Any]]:
    """Those of this test: other tests' transactions may be there, too."""
    return [each for each in found if each["txn_id"] in set(map(str, txns))]


# Coordinators and transactions ----------------------------------------------------------------------------------------


def test_open_transactions_are_listed_until_they_are_finished(pok: CommandLine, by_hand: WrittenByHand) -> None:
    old, young, ending = by_hand.begin(ago_ms=600_000), by_hand.begin(), by_hand.begin(ago_ms=300_000)
    by_hand.add_partition(old, 1)
    by_hand.add_subscription(old, "audit", 1)
    by_hand.status(ending, TxnStatus.COMMITTING)
    mine = listed(pok.json("list", "-c", "15"), old, young, ending)
    assert [(each["txn_id"], each["status"]) for each in mine] == [
        (str(old), "OPEN"),
        (str(ending), "COMMITTING"),
        (str(young), "OPEN"),
    ]
    assert mine[0]["partitions"] == [{"topic": by_hand.name, "partition": 1}]
    assert mine[0]["subscriptions"] == [{"topic": by_hand.name, "partition": 1, "subscription": "audit"}]
    assert mine[0]["timeout_at_ms"] - mine[0]["opened_at_ms"] == 3_600_000
    assert [each["txn_id"] for each in listed(pok.json("slow", "--time", "4m"), old, young, ending)] == [
        str(old),
        str(ending),
    ]
    assert listed(pok.json("list", "--status", "committing"), old, young, ending) == [mine[1]]
    table = pok("list", "--coordinator-id", "15").stdout
    assert f"{old}" in table
    assert "49m" in table

    by_hand.status(ending, TxnStatus.COMMITTED)
    by_hand.status(young, TxnStatus.ABORTING, TxnStatus.ABORTED)
    by_hand.status(old, TxnStatus.ABORTING, TxnStatus.ABORTED)
    assert listed(pok.json("list"), old, young, ending) == []
    assert [each["status"] for each in listed(pok.json("list", "--all"), old, young, ending)] == [
        "ABORTED",
        "COMMITTED",
        "ABORTED",
    ]
    assert [each["txn_id"] for each in listed(pok.json("list", "--status", "committed"), ending)] == [str(ending)]


def test_coordinators_say_what_they_gave_and_who_served_them(
    pok: CommandLine, admin: AdminClient, by_hand: WrittenByHand
) -> None:
    before = admin.get_coordinator_stats(COORDINATOR)
    txn = by_hand.begin()
    stats = admin.get_coordinator_stats(COORDINATOR)
    assert (stats.open, stats.highest_id) == (before.open + 1, txn.least_bits)
    assert stats.owner is not None
    assert stats.owner[0] == by_hand.session
    found = pok.json("coordinators")
    assert [each["coordinator"] for each in found] == list(range(16))
    assert found[COORDINATOR]["owner"]["session"] == by_hand.session
    assert pok.json("coordinators", "-c", "15") == [found[COORDINATOR]]
    assert by_hand.session in pok("coordinators").stdout
    by_hand.status(txn, TxnStatus.ABORTING, TxnStatus.ABORTED)
    with pytest.raises(exceptions.InvalidConfiguration, match="coordinators are 0 to 15, got 16"):
        admin.get_coordinator_stats(16)


def test_one_transaction_with_everything_on_record(
    pok: CommandLine, admin: AdminClient, by_hand: WrittenByHand
) -> None:
    admin.create_subscription(by_hand.name, "audit", from_earliest=True)
    txn = by_hand.begin()
    for partition in (0, 1):
        by_hand.add_partition(txn, partition)
    by_hand.add_subscription(txn, "audit")
    by_hand.add_subscription(txn, "never")
    by_hand.opened(txn, 0)
    by_hand.aborted(txn, [3, 4, 7], 9, partition=1)
    by_hand.take_cursor("audit")
    by_hand.hold(txn, "audit", 5, 6)
    found = pok.json("show", str(txn))
    assert (found["txn_id"], found["status"]) == (str(txn), "OPEN")
    assert 0 < found["left_ms"] <= 3_600_000
    first, second = found["buffers"]
    assert (first["on_record"], first["lower_bound"], first["records"]) == ("OPEN", 0, 0)
    assert (second["on_record"], second["ranges"], second["sealed"]) == ("ABORTED", [[3, 4], [7, 7]], False)
    (held,) = found["pending_acks"]
    assert (held["subscription"], held["entries"], held["ranges"], held["ended"]) == ("audit", 2, [[5, 6]], "")
    assert found["gone"] == [{"topic": by_hand.name, "partition": 0, "subscription": "never"}]
    table = pok("show", f"{txn.most_bits}:{txn.least_bits}").stdout
    assert "ABORTED, not sealed" in table
    assert "3-4, 7" in table
    assert "never" in table

    by_hand.end(txn, "audit", committed=True)
    by_hand.status(txn, TxnStatus.COMMITTING)
    found = pok.json("show", str(txn))
    assert (found["status"], found["left_ms"], found["pending_acks"][0]["ended"]) == ("COMMITTING", None, "COMMITTED")
    by_hand.status(txn, TxnStatus.COMMITTED)


def test_ids_that_name_no_transaction(pok: CommandLine, admin: AdminClient, by_hand: WrittenByHand) -> None:
    txn = by_hand.begin()
    by_hand.status(txn, TxnStatus.ABORTING, TxnStatus.ABORTED)
    never = txn_id(COORDINATOR, txn.least_bits + 1000)
    assert pok.refused("show", str(never)) == (
        f"pok: transaction {never} was never begun: the last one of coordinator 15 is {txn}"
    )
    assert "is no id of a transaction" in pok.refused("show", "(5,3)")
    assert "is no id of a transaction" in pok.refused("show", f"({1024 << 48},3)")
    assert "coordinators are 0 to 15, got 16" in pok.refused("show", f"({16 << 48},3)"), "there may be more one day"
    with pytest.raises(exceptions.TransactionNotFound):
        admin.get_transaction_metadata(never)
    with pytest.raises(exceptions.InvalidConfiguration, match="expected"):
        admin.get_transaction_metadata("nonsense")


def test_a_transaction_is_aborted_when_it_is_said_twice(pok: CommandLine, admin: AdminClient, topic: str) -> None:
    client = admin.node.transactions.client(Deadline.after(PATIENCE_S))
    txn, kept = (client.begin(600_000, Deadline.after(PATIENCE_S)) for _ in range(2))
    txn.register_partition(topic, 0, Deadline.after(PATIENCE_S))
    unasked = pok("abort", str(txn.id), exits=1).stderr
    assert f"abort transaction {txn.id} (OPEN, opened " in unasked
    assert "1 partition, 0 subscriptions" in unasked
    assert pok("abort", str(txn.id), "--yes").stdout == f"aborted {txn.id}\n"
    assert admin.get_transaction_metadata(txn.id).info.status in (TxnStatus.ABORTING, TxnStatus.ABORTED)
    assert pok.json("abort", str(txn.id), "--yes") == {"aborted": str(txn.id)}
    kept.commit(Deadline.after(PATIENCE_S))
    assert "COMMITTED" in pok("abort", str(kept.id), "--yes", exits=1).stderr
    with pytest.raises(exceptions.InvalidTxnStatusError):
        admin.abort_transaction(kept.id)


# Places ---------------------------------------------------------------------------------------------------------------


def test_what_buffers_have_on_record(pok: CommandLine, by_hand: WrittenByHand) -> None:
    running, over = by_hand.begin(), by_hand.begin()
    by_hand.opened(running, 4, partition=1)
    by_hand.opened(over, 1, partition=1)
    by_hand.aborted(over, [1, 2], 3, sealed=True, partition=1)
    stats = pok.json("buffer", by_hand.name)
    assert [each["entries"] for each in stats["partitions"]] == [0, 3]
    second = stats["partitions"][1]
    assert (second["ongoing"], second["bound"], second["aborted"], second["excluded"]) == (1, 4, 1, 2)
    assert (second["unsealed"], second["waiting"]) == (0, 1)
    found = pok.json("buffer", by_hand.name, "--transactions")["transactions"]
    assert [(each["txn"], each["on_record"]) for each in found] == [(str(running), "OPEN"), (str(over), "ABORTED")]
    assert "1-2" in pok("buffer", by_hand.name, "--transactions").stdout
    assert "does not exist" in pok.refused("buffer", "nothing-here")


def test_a_topics_statistics_count_its_transactions(admin: AdminClient, by_hand: WrittenByHand) -> None:
    assert admin.topic_stats(by_hand.name).ongoing_txn_count == 0
    running, over = by_hand.begin(), by_hand.begin()
    by_hand.opened(running, 0)
    by_hand.opened(running, 0, partition=1)
    by_hand.aborted(over, [1, 2], 3)
    stats = admin.topic_stats(by_hand.name)
    assert (stats.ongoing_txn_count, stats.aborted_txn_count) == (2, 1)


def test_what_subscriptions_hold(pok: CommandLine, admin: AdminClient, by_hand: WrittenByHand) -> None:
    admin.create_subscription(by_hand.name, "audit", from_earliest=True)
    first, second = by_hand.begin(), by_hand.begin()
    by_hand.take_cursor("audit")
    by_hand.hold(first, "audit", 1, 2, 3)
    by_hand.hold(second, "audit", 9)
    by_hand.end(second, "audit", committed=False)
    stats = pok.json("pending-acks", by_hand.name, "-s", "audit")["partitions"]
    assert [(each["partition"], each["ongoing"], each["entries"], each["ended"]) for each in stats] == [
        (0, 2, 4, 1),
        (1, 0, 0, 0),
    ]
    assert stats[0]["owner"] == [by_hand.session, 1]
    found = pok.json("pending-acks", by_hand.name, "-s", "audit", "--transactions")["transactions"]
    assert [(each["txn"], each["ranges"], each["ended"]) for each in found] == [
        (str(first), [[1, 3]], ""),
        (str(second), [[9, 9]], "ABORTED"),
    ]
    assert "1-3" in pok("pending-acks", by_hand.name, "-s", "audit", "--transactions").stdout
    assert "has no subscription nobody" in pok.refused("pending-acks", by_hand.name, "-s", "nobody")


def test_a_buffer_that_agrees_with_its_log(pok: CommandLine, admin: AdminClient, by_hand: WrittenByHand) -> None:
    committed, aborted, running = by_hand.begin(), by_hand.begin(), by_hand.begin()
    by_hand.send(None)
    by_hand.send(committed)
    kept_out = [by_hand.send(aborted), by_hand.send(aborted)]
    bound = by_hand.send(running)
    by_hand.opened(running, bound)
    by_hand.marker(committed, committed=True)
    end = by_hand.marker(aborted, committed=False)
    by_hand.aborted(aborted, kept_out, end)
    told: list[tuple[int, int]] = []
    first, second = admin.verify_transaction_buffer(by_hand.name, progress=lambda *done: told.append(done))
    assert (first.transactions, first.records, first.differences) == (3, 4, ())
    assert (second.start, second.end, second.records) == (0, 0, 0)
    assert told == [(7, 7)]
    assert pok.json("verify", by_hand.name)["agrees"] is True
    assert "0" in pok("verify", by_hand.name).stdout


@pytest.mark.long
def test_what_programs_left_agrees_with_its_log(pok: CommandLine, service_url: str, topic: str) -> None:
    with closing(pulsar.Client(service_url, enable_transaction=True)) as client:
        consumer = client.subscribe(topic, "audit", pulsar.ConsumerType.Shared)
        producer = client.create_producer(topic)
        for number in range(20):
            producer.send(b"plain", partition_key=str(number))
            transaction = client.new_transaction()
            for _ in range(3):
                producer.send(b"x", partition_key=str(number), txn=transaction)
            if number % 2:
                transaction.commit()
            else:
                transaction.abort()
        with client.new_transaction() as transaction:
            consumer.acknowledge(consumer.receive(PATIENCE_MS), txn=transaction)
            held = pok.json("show", str(transaction.txn_id))["pending_acks"]
            assert [(each["subscription"], each["entries"]) for each in held] == [("audit", 1)]
        consumer.close()
    found = pok.json("verify", topic)
    assert found["agrees"] is True
    assert sum(each["transactions"] for each in found["partitions"]) == 20
    assert sum(each["records"] for each in found["partitions"]) == 60
    assert [each["differences"] for each in found["partitions"]] == [[], []]
    stats = pok.json("buffer", topic)["partitions"]
    assert sum(each["aborted"] for each in stats) == 10
    assert sum(each["excluded"] for each in stats) == 30


def test_what_differs_is_named_with_what_it_means(pok: CommandLine, by_hand: WrittenByHand) -> None:
    lost, shown, ending = by_hand.begin(), by_hand.begin(), by_hand.begin()
    hidden = by_hand.send(lost)
    by_hand.marker(lost, committed=True)
    by_hand.aborted(lost, [hidden], hidden + 1)
    seen = by_hand.send(shown, partition=1)
    by_hand.marker(shown, committed=False, partition=1)
    by_hand.opened(ending, by_hand.send(ending, partition=1), partition=1)
    by_hand.marker(ending, committed=True, partition=1)
    found = pok.json("verify", by_hand.name, exits=1)
    assert found["agrees"] is False
    first, second = (
        {each["finding"]: (each["txn"], each["offsets"]) for each in partition["differences"]}
        for partition in found["partitions"]
    )
    assert first == {BufferFinding.COMMITTED_BUT_ABORTED.name: (str(lost), [hidden])}
    assert second == {
        BufferFinding.ABORTED_BUT_READABLE.name: (str(shown), [seen]),
        BufferFinding.STILL_OPEN.name: (str(ending), [seen + 2]),
    }
    told = pok("verify", by_hand.name, exits=1)
    assert f"transaction {lost}: committed in the log, aborted in the buffer [{hidden}]" in told.stdout
    assert "they are lost to readers" in told.stdout
    assert told.stderr == f"pok: 2 differences between the log of {by_hand.name} and its buffer\n"
