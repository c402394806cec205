"""Processes that use and serve transactions are killed and stopped; outcomes are all or nothing."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.processes import process_of
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.transactions.buffer.entries import TxnEntryStatus
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition
from pulsar_on_kafka.broker.transactions.serving.coordinators import coordinators_group
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.instances import Instance
from tests.chaos.transaction_worker import TransactionOrders
from tests.integration.transaction_support import Seen, buffer_of, data_of, on_record
from tests.steps import Unique
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.kafka

_ROOT = Path(__file__).parents[2]


class Worker:
    """A worker, and what it said."""

    def __init__(self, orders: TransactionOrders, log: Path) -> None:
        self.said: list[dict[str, Any]] = []
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.transaction_worker", json.dumps(asdict(orders))],
                cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        self._listening = threading.Thread(target=self._listen)
        self._listening.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):  # the last one may be cut
                self.said.append(json.loads(line))

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    @property
    def pid(self) -> int:
        return self._process.pid

    def commits(self) -> int:
        return sum(each.get("told") == "COMMITTED" for each in self.said)

    def until_more_commits(self, count: int = 3) -> None:
        wanted = self.commits() + count
        until(
            lambda: self.commits() >= wanted,
            lambda: f"{count} more commits; last said {self.said[-3:]}, {self._log.read_text()[-2000:]}",
        )

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def join(self) -> None:
        self._process.wait(PATIENCE_S)
        self._listening.join(PATIENCE_S)

    def kill(self) -> None:
        """A second call does nothing."""
        self._process.kill()
        self.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def judge(bootstrap: str) -> Iterator[Node]:
    node = Node(KafkaSettings(bootstrap), Deadline.after(PATIENCE_S))
    yield node
    node.close(Deadline.after(PATIENCE_S))


def members(judge: Node) -> set[str]:
    return {
        each.member_id
        for each in judge.admin.describe_group(coordinators_group(Instance()), Deadline.after(PATIENCE_S)).members
    }


def test_every_outcome_is_all_or_nothing_whoever_is_killed_or_stopped(
    judge: Node, service_url: str, bootstrap: str, unique: Unique, tmp_path: Path
) -> None:
    single, spread = unique("single"), unique("spread")
    for name, partitions in ((single, 0), (spread, 2)):
        judge.topics.create(TopicName.parse(name), partitions, Deadline.after(PATIENCE_S))
    others = members(judge)  # perhaps dead ones of other tests, too, which go meanwhile
    workers = [
        Worker(TransactionOrders(service_url, f"w{number}", single, spread), tmp_path / f"w{number}.log")
        for number in range(3)
    ]
    try:
        for worker in workers:
            worker.until_more_commits()
        killed, stopped, spared = workers
        killed.kill()
        spared.until_more_commits()
        until(lambda: len(members(judge) - others) == 2, "the group to give the killed one up")
        stopped.signal(signal.SIGSTOP)
        until(lambda: len(members(judge) - others) == 1, "the group to give the stopped one up")
        spared.until_more_commits()
        stopped.signal(signal.SIGCONT)
        stopped.until_more_commits()
        spared.until_more_commits()
        for worker in workers[1:]:
            worker.end()
            worker.join()
    finally:
        for worker in workers:
            worker.kill()
    judge.transactions.join(Deadline.after(PATIENCE_S))  # somebody has to end what the killed one left
    told = {each["txn"]: each["told"] for worker in workers for each in worker.said if "txn" in each}
    TransactionsVerdict(judge, bootstrap, [(single, 1), (spread, 2)], told).reached()


def test_who_survives_a_coordinator_s_process_says_good_bye_for_it(
    service_url: str, unique: Unique, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """So its transactions go on at once, and not when Kafka's session is over."""
    group = coordinators_group(Instance())
    caplog.set_level(logging.INFO, "pulsar_on_kafka.kafka.groups.dead_members")
    worker = Worker(TransactionOrders(service_url, "dies", unique("single"), unique("spread")), tmp_path / "dies.log")
    client = pulsar.Client(service_url, enable_transaction=True)
    try:
        worker.until_more_commits()
        client.new_transaction(15_000).commit()
        node = client._session.node()

        def processes() -> set[str]:
            described = node.admin.describe_group(group, Deadline.after(PATIENCE_S))
            return {process_of(member.client_id) for member in described.members}

        (dying,) = {process for process in processes() if f":{worker.pid}:" in process}
        worker.kill()
        until(lambda: dying not in processes(), "its coordinators are others'")
    finally:
        worker.kill()
        client.close()
    assert any(f"group={group} removed" in each.getMessage() for each in caplog.records)


class TransactionsVerdict:
    """The log in the end, read with plain Kafka clients, beside the outcomes that the workers were told."""

    def __init__(self, judge: Node, bootstrap: str, topics: list[tuple[str, int]], told: dict[str, str]) -> None:
        self._bootstrap = bootstrap
        self._told = told
        self._places: list[tuple[DataPartition, str]] = []
        for name, partitions in topics:
            topic = judge.topics.open(TopicName.parse(name), Deadline.after(PATIENCE_S))
            for number in range(partitions):
                where = DataPartition(str(topic.name), number, topic.layout.incarnation)
                self._places.append((where, topic.kafka_topic))

    def reached(self) -> None:
        until(self._all_ended, "every transaction to have ended everywhere")
        seen = self._read()
        outcomes: dict[TxnId, set[bool]] = {}
        values: dict[TxnId, list[bytes | None]] = {}
        for records in seen.values():
            for each in records:
                assert each.txn is not None
                if each.ended is None:
                    values.setdefault(each.txn, []).append(each.value)
                else:
                    outcomes.setdefault(each.txn, set()).add(each.ended)
        assert all(len(each) == 1 for each in outcomes.values()), "two outcomes"
        committed = {txn for txn, each in outcomes.items() if each == {True}}
        for txn in committed:
            assert len(values[txn]) == 2, f"{txn} is committed with {values[txn]}"
            assert len(set(values[txn])) == 1
        for text, told in self._told.items():
            txn = TxnId.from_bytes(text.encode())
            if told in ("COMMITTED", "ABORTED"):
                assert outcomes[txn] == {told == "COMMITTED"}, f"{txn} was {told}, its markers say {outcomes[txn]}"
        for where, _ in self._places:
            entries = buffer_of(self._bootstrap, where.topic)
            for txn in {each.txn for each in seen[where] if each.txn is not None}:
                expected = TxnEntryStatus.COMMITTED if txn in committed else TxnEntryStatus.ABORTED
                assert entries.status(where, txn) is expected
        for txn in outcomes:
            found = on_record(self._bootstrap, txn)
            if found is not None:
                assert found.status.name == ("COMMITTED" if txn in committed else "ABORTED")

    def _read(self) -> dict[DataPartition, list[Seen]]:
        return {where: data_of(self._bootstrap, kafka_topic, where.partition) for where, kafka_topic in self._places}

    def _all_ended(self) -> bool:
        for where, records in self._read().items():
            ended = {each.txn for each in records if each.ended is not None}
            if {each.txn for each in records} != ended or buffer_of(self._bootstrap, where.topic).open_bounds(where):
                return False
        return True
