"""Processes that delete ledgers are killed at every step of both phases; others go on."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka_mapping.ids.ledger_ids import unpack_ledger_id
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.state_topics import LEDGERS
from tests.chaos.deletion_process import MAINTENANCE, MAINTENANCE_CUTS, TOPIC_CUTS, WORKER, WORKER_CUTS, DeletionOrders
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka

_ROOT = Path(__file__).parents[2]
SIZE = 10
ENTRIES = 35
ACKNOWLEDGED = 25
FIRST_NEEDED_LEDGER = ACKNOWLEDGED // SIZE


class Process:
    def __init__(self, orders: DeletionOrders, log: Path) -> None:
        self.said: list[str] = []
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.deletion_process", json.dumps(asdict(orders))],
                cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        self._hearing = threading.Thread(target=self._hear, daemon=True)
        self._hearing.start()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as told:
            for line in told:
                self.said.append(line.strip())

    def owned(self) -> list[int]:
        owned = [line for line in self.said if line.startswith("owns")]
        return [int(number) for number in owned[-1].split()[1:]] if owned else []

    def is_dead(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        """SIGKILL, and nothing of it is left when this returns."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._hearing.join()


Start = Callable[..., Process]


@contextmanager
def processes(service_url: str, logs: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def start(*roles: str, cut: str = "", nth: int = 1) -> Process:
            log = logs / f"{'-'.join(roles)}-{cut}-{len(list(logs.iterdir()))}.log"
            process = Process(DeletionOrders(service_url, roles, cut, nth), log)
            stack.callback(process.end)
            return process

        yield start


def shared_out(keepers: list[Process]) -> None:
    """Waits until each keeper has owned lists. Raises AssertionError: one of them ended before."""

    def all_owned() -> bool:
        ended = [keeper.said for keeper in keepers if keeper.is_dead() and not keeper.owned()]
        assert not ended, f"keepers that ended, and what they said: {ended}"
        return all(keeper.owned() for keeper in keepers)

    until(all_owned, "each keeper has owned lists of ledgers")


def one_topic_in_each_partition(unique: Unique) -> list[str]:
    """Names of topics whose lists lie in all the partitions of `ledgers`."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < LEDGERS.partitions:
        name = unique(f"t{number}")
        found.setdefault(LEDGERS.partition_for(str(TopicName.parse(name))), name)
        number += 1
    return list(found.values())


def test_whoever_dies_between_two_steps_of_a_deletion_others_finish_it(
    service_url: str, tmp_path: Path, unique: Unique
) -> None:
    topics = one_topic_in_each_partition(unique)
    client = pulsar.Client(service_url)
    with AdminClient(service_url) as admin, processes(service_url, tmp_path) as start:
        keepers = [start(MAINTENANCE, cut=cut) for cut in MAINTENANCE_CUTS]
        survivor = start(MAINTENANCE, WORKER)
        workers = [start(WORKER, cut=cut) for cut in WORKER_CUTS]
        for topic in topics:
            admin.create_topic(topic, entries_per_ledger=SIZE)
            admin.create_subscription(topic, "s", from_earliest=True)
            producer = client.create_producer(topic)
            for number in range(ENTRIES):
                producer.send_async(str(number).encode(), None)
            producer.flush()
            producer.close()
        shared_out([*keepers, survivor])
        given_up = admin.dead_deletions().count
        for topic in topics:
            admin.skip(topic, "s", ACKNOWLEDGED)
        killed = [*keepers, *workers]
        until(
            lambda: all(process.is_dead() for process in killed),
            lambda: f"all are killed, {[process.said for process in killed]}",
        )
        assert [process.said[-1] for process in killed] == [f"cut {cut}" for cut in (*MAINTENANCE_CUTS, *WORKER_CUTS)]
        for topic in topics:
            listed = admin.list_ledgers(topic)[0]
            assert admin.topic_stats(topic).start_offsets[0] <= listed.first_offset, "what is listed is there"

        def starts() -> set[int]:
            return {admin.topic_stats(topic).start_offsets[0] for topic in topics}

        until(
            lambda: starts() == {FIRST_NEEDED_LEDGER * SIZE},
            lambda: f"data of ledgers that nobody needs is gone, the logs start at {starts()}, {survivor.said}",
        )
        until(
            lambda: admin.list_deletions().count == 0,
            lambda: f"all that was asked for is done, {admin.list_deletions()}",
        )
        assert admin.dead_deletions().count == given_up
        for topic in topics:
            first = admin.list_ledgers(topic)[0]
            assert unpack_ledger_id(first.ledger_id).ledger_index == FIRST_NEEDED_LEDGER
        for topic in topics[::5]:
            consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
            received = [int(consumer.receive(30_000).data()) for _ in range(ENTRIES - ACKNOWLEDGED)]
            assert received == list(range(ACKNOWLEDGED, ENTRIES))
            consumer.close()
    client.close()


def test_a_topic_that_is_deleted_goes_whoever_dies_between_two_ledgers(
    service_url: str, tmp_path: Path, unique: Unique
) -> None:
    topics = one_topic_in_each_partition(unique)
    client = pulsar.Client(service_url)
    with AdminClient(service_url) as admin, processes(service_url, tmp_path) as start:
        for topic in topics:
            admin.create_partitioned_topic(topic, 2, entries_per_ledger=SIZE)
            producer = client.create_producer(topic)
            for number in range(ENTRIES):
                producer.send_async(str(number).encode(), None)
            producer.flush()
            producer.close()
        kafka_topics = [admin.topic_stats(topic).kafka_topic for topic in topics]
        given_up = admin.dead_deletions().count
        keepers = [start(MAINTENANCE, cut=cut) for cut in TOPIC_CUTS[:2]]
        workers = [start(WORKER, cut=cut, nth=2) for cut in (*WORKER_CUTS, *TOPIC_CUTS[2:])]
        survivor = start(MAINTENANCE)  # without a worker that would leave nothing for those to be killed at
        shared_out([*keepers, survivor])
        for topic in topics:
            admin.delete_topic(topic)
        assert not {name for topic in topics for name in admin.list_topics() if name.endswith(topic)}
        anew = topics[0]
        admin.create_topic(anew)
        producer = client.create_producer(anew)
        producer.send(b"of the next life")
        producer.close()
        killed = [*keepers, *workers]
        until(
            lambda: all(process.is_dead() for process in killed),
            lambda: f"all are killed, {[process.said for process in killed]}",
        )
        start(WORKER)

        def left() -> list[str]:
            return sorted(admin.node.admin.describe_topics(kafka_topics[1:], Deadline.after(30)))

        until(lambda: not left(), lambda: f"every Kafka topic is gone, but {left()}, {survivor.said}")
        until(
            lambda: admin.list_deletions().count == 0,
            lambda: f"all that was asked for is done, {admin.list_deletions()}",
        )
        assert admin.dead_deletions().count == given_up
        until(
            lambda: not admin.node.topics.records.being_deleted(Deadline.after(30)),
            "every deletion is on record as over",
        )
        assert admin.topic_stats(anew).entries == 1
    client.close()
