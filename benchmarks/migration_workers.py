"""A tenant moves to a second cluster by `pok migrate` while programs that follow it go on.

The second broker and the lookup service belong to this process, which stays for the whole group; `pok serve` of both
clusters, each step of `pok migrate` and the program run in processes of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import IO, Any, Final

from pyroaring import BitMap
from typer.testing import CliRunner

import pulsar_on_kafka as pulsar
from benchmarks.second_cluster import HERE, THERE, introduce, second_url
from benchmarks.session import run_worker
from benchmarks.worker import RESULT
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.replication_state.acks import ReplicatedAcks
from pulsar_on_kafka.broker.subscriptions.requests.cursor_admin import acknowledge_ledgers
from pulsar_on_kafka.cli.main import app
from pulsar_on_kafka.client.client import Client
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from tests.clusters.cluster import Cluster
from tests.waiting import until

_PATIENCE_S: Final = 600.0
_READY: Final = "READY"
_EVERY: Final = 10
"""Subscription k has acknowledged entry k of every ten before: as many holes."""
_IN_HAND: Final = 100
"""Messages that each consumer has received and not acknowledged yet."""
_RATE: Final = 200
_FOLLOWED: Final = 2
_BEFORE_THE_SWITCH: Final = 2_000
"""Messages that each consumer has had by then."""
_SILENCE_S: Final = 30.0
"""What has not come for so long is lost."""


def move(url: str, messages: int, partitions: int, subscriptions: int) -> dict[str, Any]:
    """`messages` of 200 B in one topic; every subscription has a tenth of them acknowledged, in single holes."""
    with ExitStack() as stack:
        here = stack.enter_context(AdminClient(url))
        there = stack.enter_context(AdminClient(second_url()))
        introduce(here, url, there)
        tenant = f"tenant-{uuid.uuid4().hex[:12]}"
        topic = f"persistent://{tenant}/shop/orders"
        here.create_namespace(f"{tenant}/shop")
        here.create_partitioned_topic(topic, partitions)
        here.assign_tenant(tenant, HERE)
        names = [f"s{number}" for number in range(subscriptions)]
        client = Client(url, stand_in=False)
        stack.callback(client.close)
        _fill(client, topic, messages, partitions)
        for name in names:
            _make_holes(here, topic, name, names.index(name) % _EVERY, messages // partitions)
        for served in (url, second_url()):
            stack.enter_context(_serving(served))
        steps = {"plan": _pok(url, "plan", tenant, "--to", THERE), "run": _pok(url, "run", tenant, "--to", THERE)}
        steps["verify"] = _pok(url, "verify", tenant)
        found = json.loads(steps["verify"]["stdout"])
        port = stack.enter_context(Cluster(HERE, url, client, here).lookup_port())
        arguments = {
            "port": port, "topic": topic, "subscriptions": names[:_FOLLOWED], "messages": messages,
            "partitions": partitions,
        }  # fmt: skip
        with _program(arguments) as running:
            _line(running, _READY)
            steps["switch"] = _pok(url, "switch", tenant, "--yes")
            assert running.stdin is not None
            running.stdin.write("end\n")
            running.stdin.flush()
            seen = json.loads(_line(running, RESULT)[len(RESULT) :])
    again, in_flight = seen["again"], _IN_HAND * _FOLLOWED
    return {
        **{f"{step}_s": done["took_s"] for step, done in steps.items()},
        **{f"{step}_cpu_s": done["cpu_s"] for step, done in steps.items()},
        "migrator_mb": max(done["peak_mb"] for done in steps.values()),
        "pause_s": seen["pause_s"],
        "again": again,
        "in_flight": in_flight,
        "again_beyond_in_flight": max(0, again - in_flight),
        "lost": seen["lost"],
        "differences": len(found["problems"]),
        "equal": sum(each["equal"] for each in found["partitions"]),
    }


def pok(arguments: list[str]) -> dict[str, Any]:
    """One command, in this process, from when everything is imported."""
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    done = CliRunner().invoke(app, arguments)
    if done.exit_code:
        raise RuntimeError(f"pok {' '.join(arguments)}: {(done.stderr or str(done.exception)).strip()}")
    return {
        "stdout": done.stdout,
        "took_s": round(time.monotonic() - began_s, 2),
        "cpu_s": round(time.process_time() - began_cpu_s, 2),
    }


def program(port: int, topic: str, subscriptions: list[str], messages: int, partitions: int) -> dict[str, Any]:
    """Consumes and sends until its standard input says to end, and then until everything has come.

    `again`: messages that came after this program had acknowledged them, those acknowledged before it began among them;
    `lost`: what never came; `pause_s`: the longest that a consumer had nothing.
    """
    client = Client(f"pok+lookup://127.0.0.1:{port}", stand_in=False)
    sender = _Sender(client, topic, messages)
    consumers = [_Following(client, topic, name, sender, partitions) for name in subscriptions]
    until(lambda: all(each.came >= _BEFORE_THE_SWITCH for each in consumers), "what the program receives", _PATIENCE_S)
    for each in consumers:
        each.longest_s = 0.0
    print(_READY, flush=True)
    sys.stdin.readline()
    had = [each.came for each in consumers]
    until(
        lambda: all(each.came > before for each, before in zip(consumers, had, strict=True)),
        "what the program receives after the switch",
        _PATIENCE_S,
    )
    pauses_s = [each.longest_s for each in consumers]
    sender.end()
    for each in consumers:
        each.join()
    client.close()
    return {
        "again": sum(each.again for each in consumers),
        "lost": sum(each.lost() for each in consumers),
        "pause_s": round(max(pauses_s), 2),
    }


class _Sender:
    """Numbers from `first` on, so many a second."""

    def __init__(self, client: Client, topic: str, first: int) -> None:
        self.first = self.next = first
        self.ended = threading.Event()
        """Set when `next` is final and all before it is stored."""
        self._ending = threading.Event()
        self._failed: list[Any] = []
        self._producer = client.create_producer(topic, block_if_queue_full=True, send_timeout_millis=0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ending.set()
        self._thread.join()
        self._producer.flush()
        self.ended.set()
        if self._failed:
            raise RuntimeError(f"{len(self._failed)} messages were not sent: {self._failed[0]}")

    def _run(self) -> None:
        while not self._ending.wait(1 / _RATE):
            self._producer.send_async(_payload(self.next), self._sent)
            self.next += 1

    def _sent(self, result: pulsar.Result, _: object) -> None:
        if result is not pulsar.Result.Ok:
            self._failed.append(result)


class _Following:
    """One consumer, which acknowledges each message when it has 100 later ones. Memory: a byte for each message."""

    def __init__(self, client: Client, topic: str, name: str, sender: _Sender, partitions: int) -> None:
        self._consumer = client.subscribe(topic, name, pulsar.ConsumerType.Shared)
        self._sender = sender
        done = int(name.removeprefix("s")) % _EVERY
        self._acknowledged = bytearray(n // partitions % _EVERY == done for n in range(sender.first))
        self._seen = bytearray(sender.first)
        self._left = sender.first - sum(self._acknowledged)
        self._in_hand: deque[tuple[int, Any]] = deque()
        self.came = self.again = 0
        self.longest_s = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def lost(self) -> int:
        return self._left + self._sender.next - self._sender.first

    def _run(self) -> None:
        last_s = time.monotonic()
        while self.lost() or not self._sender.ended.is_set():
            try:
                message = self._consumer.receive(1000)
            except pulsar.Timeout:
                if self._sender.ended.is_set() and time.monotonic() - last_s > _SILENCE_S:
                    break
                continue
            now_s = time.monotonic()
            self.longest_s, last_s = max(self.longest_s, now_s - last_s), now_s
            self._take(int(message.data()), message)
        while self._in_hand:
            self._consumer.acknowledge(self._in_hand.popleft()[1])
        if missing := self.lost():
            sys.stderr.write(f"{missing} never came: {list(islice(self._never_came(), 10))} ...\n")

    def _never_came(self) -> Iterator[int]:
        beyond = bytes(max(0, self._sender.next - len(self._seen)))
        came = bytes(a | b for a, b in zip(self._seen, self._acknowledged, strict=True)) + beyond
        return (n for n in range(self._sender.next) if not came[n])

    def _take(self, number: int, message: Any) -> None:
        self.came += 1
        while number >= len(self._seen):
            self._seen.extend(bytes(65_536))
            self._acknowledged.extend(bytes(65_536))
        if not self._seen[number] and not self._acknowledged[number]:
            self._left -= 1
        self.again += self._acknowledged[number]
        self._seen[number] = 1
        self._in_hand.append((number, message))
        if len(self._in_hand) > _IN_HAND:
            oldest, its_message = self._in_hand.popleft()
            self._consumer.acknowledge(its_message)
            self._acknowledged[oldest] = 1


def _payload(number: int) -> bytes:
    return b"%-200d" % number


def _fill(client: Client, topic: str, messages: int, partitions: int) -> None:
    """Number n is entry n // partitions of partition n % partitions."""
    producers = [
        client.create_producer(f"{topic}-partition-{p}", block_if_queue_full=True, max_pending_messages=10_000)
        for p in range(partitions)
    ]
    for number in range(messages):
        producers[number % partitions].send_async(_payload(number), None)
    for producer in producers:
        producer.flush()
        producer.close()


def _make_holes(admin: AdminClient, topic: str, name: str, first: int, entries: int) -> None:
    """By bitmap, as Spark acknowledges."""
    admin.create_subscription(topic, name, from_earliest=True)
    node, deadline = admin.node, Deadline.after(_PATIENCE_S)
    opened = node.topics.open(TopicName.parse(topic), deadline)
    found = node.subscriptions.find(opened, name, deadline)
    assert found is not None
    acks = ReplicatedAcks(opened.layout.entries_per_ledger)
    acks.add(0, BitMap(range(first, entries, _EVERY)))
    blocks = dict.fromkeys(range(opened.partitions), acks.blocks())
    acknowledge_ledgers(node.memberships.live_cursors, node.admin, found, blocks, deadline)


def _pok(url: str, *words: str) -> dict[str, Any]:
    arguments = ["--url", url, "--output", "json", "migrate", *words]
    return run_worker("migration_workers", "pok", {"arguments": arguments})


@contextmanager
def _serving(url: str) -> Iterator[None]:
    command = [
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
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise RuntimeError(f"pok serve ended with {process.wait()}")
            yield
        finally:
            process.kill()


@contextmanager
def _program(arguments: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.worker", "migration_workers", "program", json.dumps(arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _line(process: subprocess.Popen[str], start: str) -> str:
    lines: IO[str] | None = process.stdout
    assert lines is not None
    for line in lines:
        if line.startswith(start):
            return line
    raise RuntimeError(f"the program ended with {process.wait()} before it said {start.strip()}")
