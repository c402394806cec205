"""Replicators that are killed, stopped and continued, between brokers that are killed, while messages are published."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.embedded import EmbeddedBroker
from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from tests.clusters.cluster import Cluster
from tests.waiting import PATIENCE_S, until

_ROOT = Path(__file__).parents[2]
FAULTS = ("kill", "stop", "kill source", "kill target")


class Service:
    """`pok serve --only replication` of one cluster, in a process of its own."""

    def __init__(self, url: str, log: Path) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "pulsar_on_kafka.cli",
                    "--url",
                    url,
                    "serve",
                    "--only",
                    "replication",
                    "--port",
                    "0",
                ],
                cwd=_ROOT,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """Whatever state it is in."""
        self._process.kill()
        self._process.wait(PATIENCE_S)


class Publishing:
    """Numbers, one after the other, until it is told to end. Each is stored exactly once."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        self._producer = client.create_producer(topic, send_timeout_millis=0, block_if_queue_full=True)
        self._ended = threading.Event()
        self.count = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(0.001):
            for _ in range(20):
                self._producer.send_async(b"%d" % self.count, None)
                self.count += 1

    def end(self) -> int:
        """Gives how many there are; a second call does nothing else."""
        if self._ended.is_set():
            return self.count
        self._ended.set()
        self._thread.join(PATIENCE_S)
        self._producer.flush()
        self._producer.close()
        return self.count


class Watching:
    """A watcher counts copies, as somebody sees them who has nothing to do with those who publish: after a question
    without an answer with a new connection, since librdkafka may take minutes to find a broker again that came back."""

    def __init__(self, source: Cluster, target: str, topic: str) -> None:
        self._url = source.url
        self._target = target
        self._topic = topic
        self._connections = 0
        self._admin: AdminClient | None = None
        self._most = 0
        self._trouble = "nothing"

    def copied(self) -> int:
        """The most that was seen: it stays while nobody answers."""
        try:
            stats = self._connected().topic_stats(self._topic)
        except pulsar.PulsarException as failure:
            self._trouble = f"connection {self._connections}: {failure}"
            self.close()
        else:
            found = stats.replication.get(self._target)
            self._trouble = "no replicator is known" if found is None else f"backlog {found.backlog}"
            if found is not None:
                self._most = max(self._most, sum(stats.end_offsets.values()) - found.backlog)
        return self._most

    def __str__(self) -> str:
        return f"{self._most} are copied, last seen: {self._trouble}"

    def _connected(self) -> AdminClient:
        if self._admin is None:
            self._connections += 1
            # A name of its own: Clients of one process with the same settings share their connection.
            settings = {"client.id": f"watching-{self._topic.rpartition('/')[2]}-{self._connections}"}
            self._admin = AdminClient(self._url, operation_timeout_seconds=10, kafka_config=settings)
        return self._admin

    def close(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()


def play(
    source: Cluster,
    target: Cluster,
    brokers: tuple[EmbeddedBroker, EmbeddedBroker],
    topic: str,
    faults: Sequence[str],
    chance: random.Random,
    log: Path,
) -> None:
    """Let these faults happen while messages are published and copied. Then a reader of the target finds each number
    once, in order; otherwise the AssertionError names the copies of the first wrong one."""
    services = [Service(source.url, log)]
    stopped: list[Service] = []
    publishing = Publishing(source.client, topic)

    watching = Watching(source, target.name, topic)

    def goes_on() -> None:
        before = watching.copied()
        until(lambda: watching.copied() > before, lambda: f"copying goes on behind {before}: {watching} ({log})")

    try:
        goes_on()
        for fault in faults:
            threading.Event().wait(chance.uniform(0, 2))
            match fault:
                case "kill":
                    services.pop().kill()
                    services.append(Service(source.url, log))
                case "stop":
                    stopped.append(services.pop())
                    stopped[-1].signal(signal.SIGSTOP)
                    services.append(Service(source.url, log))
                case "kill source" | "kill target":
                    broker = brokers[fault == "kill target"]
                    broker.kill()
                    broker.start()
                case _:
                    raise ValueError(f"fault {fault!r} is none of {FAULTS}")
            goes_on()
            while stopped:
                services.insert(0, stopped.pop())
                services[0].signal(signal.SIGCONT)
                goes_on()
        total = publishing.end()
        until(lambda: watching.copied() >= total, lambda: f"all {total} are copied: {watching} ({log})")
    finally:
        for service in (*services, *stopped):
            service.kill()
        publishing.end()
        watching.close()
    found = list(_read(target.client, topic, total))
    wrong = next((i for i, number in enumerate(found) if i != number), None)
    if wrong is not None or len(found) != total:
        number = found[wrong] if wrong is not None else len(found)
        pytest.fail(
            f"{len(found)} of {total} messages; at {wrong} comes {number}: {_copies_of(number, target, topic)} ({log})"
        )


def _copies_of(number: int, target: Cluster, topic: str) -> str:
    """The copies of a number in the target's log, and the take-overs there, with their offsets and headers."""
    node, deadline = target.admin.node, Deadline.after(PATIENCE_S)
    opened = node.topics.open(TopicName.parse(topic), deadline)
    end = node.admin.end_offsets(opened.kafka_topic, [0], deadline)[0]
    told = [f"fences {node.producers.fences(opened, 0, deadline)}"]
    for batch in node.fetcher.read(opened.kafka_topic, 0, 0, end, deadline):
        for record in batch:
            if record.value() in (None, b"%d" % number):
                told.append(f"{record.offset()}: {record.value()!r} {headers_of(record)}")
    return "; ".join(told)


def _read(client: pulsar.Client, topic: str, at_least: int) -> Iterator[int]:
    """What a reader that begins at the beginning finds until it has seen so many, and nothing comes any more."""
    with _reader(client, topic) as reader:
        found = 0
        while found < at_least or reader.has_message_available():
            yield int(reader.read_next(int(PATIENCE_S * 1000)).data())
            found += 1


@contextmanager
def _reader(client: pulsar.Client, topic: str) -> Iterator[pulsar.Reader]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    try:
        yield reader
    finally:
        reader.close()
