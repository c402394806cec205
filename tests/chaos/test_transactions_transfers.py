"""Transfers between accounts by several processes that are killed at random: the sum of all never changes.

An account is a message with its balance. A transfer takes two of them, sends both anew, writes what it did to each into
a journal, and acknowledges the two, in one transaction.

POK_CHAOS_SECONDS   how long the long form runs (default 600)
POK_CHAOS_SEED      the seed of a printed run
"""

from __future__ import annotations

import os
import random
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.chaos.bank import PATIENCE_S, BankStage
from tests.chaos.bank_worker import Account, Leg
from tests.steps import Unique
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

_ACCOUNTS = 16
_BALANCE = 1_000
_PARTITIONS = (4, 1)
"""Of the topic of accounts. Of one, all processes but its owner have accounts on lease."""


class Journal:
    """A reader that reads along, with everything it was given."""

    def __init__(self, client: Any, topic: str) -> None:
        self.legs: list[Leg] = []
        self._reader = client.create_reader(topic, pulsar.MessageId.earliest)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.legs.append(Leg.read(self._reader.read_next(200).data()))
            except pulsar.Timeout:
                continue
            except pulsar.AlreadyClosed:
                return

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()


class Accounts:
    """The topics of accounts and of the journal, and who works on them."""

    def __init__(self, stage: BankStage, partitions: int) -> None:
        self._stage = stage
        self.accounts, self.journal = stage.targets
        with AdminClient(stage.url) as admin:
            admin.create_partitioned_topic(self.accounts, partitions)
        client = stage.client()
        producer = client.create_producer(self.accounts)
        for number in range(_ACCOUNTS):
            producer.send(Account(number, _BALANCE).payload(), partition_key=str(number))
        client.create_producer(self.journal).close()
        self._client = client
        self.reading_along = Journal(client, self.journal)

    def start_one(self) -> None:
        self._stage.start_one(self.accounts, transfers=True, timeout_ms=15_000, abort_every=5)

    def kill_one(self, rng: random.Random) -> None:
        rng.choice([worker for worker in self._stage.workers if worker.alive]).kill()

    def committed(self) -> int:
        return sum(len(worker.said("d")) for worker in self._stage.workers)

    def until_committed(self, transfers: int) -> None:
        until(lambda: self.committed() >= transfers, f"{transfers} transfers are done", PATIENCE_S)

    def judge(self) -> str:
        """After the last process was killed. Gives what was seen."""
        for worker in self._stage.workers:
            worker.kill()
        self._client.new_transaction().abort()  # who asks for transactions serves coordinators
        until(lambda: not self._stage.unfinished(), lambda: f"{self._stage.unfinished()} are over", PATIENCE_S)
        left = self._left()
        assert sorted(account.number for account in left) == list(range(_ACCOUNTS))
        assert sum(account.balance for account in left) == _ACCOUNTS * _BALANCE
        legs = self._legs()
        sums: dict[str, list[int]] = defaultdict(list)
        balances = dict.fromkeys(range(_ACCOUNTS), _BALANCE)
        for leg in legs:
            sums[leg.transfer].append(leg.amount)
            balances[leg.account] += leg.amount
        assert all(len(amounts) == 2 and sum(amounts) == 0 for amounts in sums.values()), sums
        assert balances == dict(left)
        until(lambda: len(self.reading_along.legs) >= len(legs), "who read along has read all", PATIENCE_S)
        self.reading_along.close()
        assert self.reading_along.legs == legs
        told = self.committed()
        assert len(sums) >= told
        return f"{len(sums)} transfers, {told} of them told to who made them"

    def _left(self) -> list[Account]:
        """What the subscription gives to the next consumer, until nothing more comes."""
        consumer = self._client.subscribe(self.accounts, "bank", consumer_type=pulsar.ConsumerType.Shared)
        found: dict[str, Account] = {}

        def all_there() -> bool:
            try:
                message = consumer.receive(1_000)
            except pulsar.Timeout:
                return len(found) >= _ACCOUNTS
            found[str(message.message_id())] = Account.read(message.data())
            return False

        until(all_there, lambda: f"all accounts come: {sorted(found.values())}", PATIENCE_S)
        consumer.close()
        return list(found.values())

    def _legs(self) -> list[Leg]:
        reader = self._client.create_reader(self.journal, pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            found.append(Leg.read(reader.read_next(60_000).data()))
        reader.close()
        return found


@pytest.fixture(params=_PARTITIONS)
def accounts(request: pytest.FixtureRequest, service_url: str, tmp_path: Path, unique: Unique) -> Iterator[Accounts]:
    with BankStage(service_url, tmp_path, unique) as stage:
        yield Accounts(stage, request.param)


def test_the_sum_stays_while_processes_are_killed(accounts: Accounts) -> None:
    rng = random.Random(7)
    for _ in range(3):
        accounts.start_one()
    for kills in range(1, 3):
        accounts.until_committed(15 * kills)
        accounts.kill_one(rng)
        accounts.start_one()
    accounts.until_committed(50)
    accounts.judge()


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_the_sum_stays_for_long(accounts: Accounts) -> None:
    seed = int(os.environ.get("POK_CHAOS_SEED", "0")) or secrets.randbits(32)
    rng = random.Random(seed)
    until = time.monotonic() + float(os.environ.get("POK_CHAOS_SECONDS", "600"))
    pause = threading.Event()
    kills = 0
    for _ in range(4):
        accounts.start_one()
    while time.monotonic() < until:
        pause.wait(rng.uniform(4.0, 24.0))  # Kafka takes 6 s to notice that a member died
        accounts.kill_one(rng)
        accounts.start_one()
        kills += 1
    print(f"\n    seed {seed}: {kills + 4} processes killed, {accounts.judge()}")
