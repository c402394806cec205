"""Gateways of two clusters that follow the map of tenants, and the official Python client on them."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.lookup.http_directory import HttpDirectory
from pulsar_on_kafka.clusters.cluster_admins import ClusterAdmins
from pulsar_on_kafka.gateway.rest.server import RestServer
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from pulsar_on_kafka.gateway.tenants.served_tenants import TenantFollower
from tests.clusters.cluster import PATIENCE_S, Cluster
from tests.integration.gateway.languages import Program
from tests.waiting import until

pulsar: Any = pytest.importorskip("pulsar", reason="the official client, pulsar-client, is not installed")

MIN_PAUSE_S = 0.3
FORGIVEN_S = 1.0
"""What was acknowledged less than this before the switch may come again."""


class Gateways(NamedTuple):
    """The gateways of one cluster."""

    binary: list[str]
    rest: list[str]

    @property
    def port(self) -> int:
        """That of the first one."""
        return urlsplit(self.binary[0]).port or 0


@contextmanager
def gateways_of(clusters: Mapping[str, Cluster], lookup_port: int, each: int = 1) -> Iterator[dict[str, Gateways]]:
    """So many gateways of each cluster, which the map on west knows. They follow it by a lookup service."""
    with ExitStack() as stack:
        made: dict[str, Gateways] = {}
        for name, cluster in clusters.items():
            made[name] = Gateways([], [])
            for _ in range(each):
                directory = HttpDirectory([f"127.0.0.1:{lookup_port}"])
                follower = TenantFollower(name, directory, ClusterAdmins({}, ""))
                settings = GatewaySettings(port=0)
                gateway = Gateway(cluster.admin.node, settings, follower)
                stack.callback(gateway.close, Deadline.after(PATIENCE_S))
                rest = RestServer(cluster.admin, gateway, settings)
                stack.callback(rest.close)
                made[name].binary.append(gateway.address())
                made[name].rest.append(rest.url())
        west = clusters["west"].admin
        for name, cluster in clusters.items():
            stack.callback(west.update_cluster, name, cluster.url)
            west.update_cluster(name, cluster.url, gateways=[*made[name].binary, *made[name].rest])
        yield made


def official_client(url: str) -> Any:
    """The official client, which logs errors only."""
    return pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


class Receipt(NamedTuple):
    at_s: float
    number: int


class Receipts:
    """What one program received. It acknowledges each message at once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.all: list[Receipt] = []

    def pause(self) -> tuple[float, float]:
        """The longest time without a message: its beginning and its end."""
        return max(pairwise(each.at_s for each in self.all), key=lambda pair: pair[1] - pair[0])

    def summary(self, sent: int) -> str:
        began_s, ended_s = self.pause()
        again = len(self.all) - sent
        return f"{self._name}: {sent} messages, {again} came again, longest pause {ended_s - began_s:.2f} s"

    def check(self, sent: int) -> None:
        """Nothing is lost, and what came again had not been acknowledged a second before a pause."""
        numbers = {each.number for each in self.all}
        assert numbers == set(range(sent)), f"lost: {sorted(set(range(sent)) - numbers)[:20]}"
        pauses = [before for before, after in pairwise(each.at_s for each in self.all) if after - before > MIN_PAUSE_S]
        first: dict[int, float] = {}
        late: dict[int, float] = {}
        for each in self.all:
            at_s = first.setdefault(each.number, each.at_s)
            if at_s != each.at_s and not any(at_s <= pause_s <= at_s + FORGIVEN_S for pause_s in pauses):
                late[each.number] = each.at_s - at_s
        assert not late, f"acknowledged more than {FORGIVEN_S} s before a pause, and redelivered: {late}"


class OfficialProgram:
    """Sends numbers by the official Python client and acknowledges what it receives, until it is told to stop."""

    def __init__(self, url: str, topic: str, subscription: str, kind: Any, pace_s: float = 0.002) -> None:
        self._subscription = subscription
        self._client = official_client(url)
        self._consumer = self._client.subscribe(
            topic, subscription, kind, initial_position=pulsar.InitialPosition.Earliest, receiver_queue_size=200
        )
        self._producer = self._client.create_producer(topic, block_if_queue_full=True, send_timeout_millis=0)
        self._pace_s = pace_s
        self.sent = 0
        self.stored = 0
        self.failed: list[Any] = []
        self.receipts = Receipts(subscription)
        self._stop, self._all_sent = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        while not self._stop.wait(self._pace_s):
            self._producer.send_async(b"%s %d" % (self._subscription.encode(), self.sent), self._answered)
            self.sent += 1
        self._producer.flush()
        self._all_sent.set()

    def _answered(self, result: Any, _: Any) -> None:
        if result == pulsar.Result.Ok:
            self.stored += 1
        else:
            self.failed.append(result)

    def _receive(self) -> None:
        while not (self._all_sent.is_set() and len({each.number for each in self.receipts.all}) >= self.sent):
            try:
                message = self._consumer.receive(500)
            except pulsar.Timeout:
                continue
            name, number = message.data().decode().split()
            if name == self._subscription:  # the topic has the messages of all programs
                self.receipts.all.append(Receipt(time.monotonic(), int(number)))
            self._consumer.acknowledge(message)

    def goes_on(self) -> None:
        """Returns when it has stored and received some more."""
        stored, received = self.stored, len(self.receipts.all)
        until(lambda: self.stored > stored + 200, "the producer to go on")
        until(lambda: len(self.receipts.all) > received + 200, "the consumer to go on")

    def __str__(self) -> str:
        return self.receipts.summary(self.sent)

    def __enter__(self) -> OfficialProgram:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def end(self) -> None:
        """Returns when everything that was sent was received."""
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), str(self)

    def check(self) -> None:
        """See `Receipts.check`. Call `end` first."""
        assert not self.failed
        assert self.stored == self.sent
        self.receipts.check(self.sent)


class FlowingProgram:
    """The command `flow` of a program in another language, which ends with the `with` block."""

    def __init__(self, program: Program, url: str, topic: str, subscription: str, kind: str) -> None:
        self._name = f"{program.language}, {kind}"
        self._process = subprocess.Popen(
            [*program.command, url, "flow", topic, subscription, kind],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.lines.extend(iter(self._process.stdout.readline, ""))

    def __enter__(self) -> FlowingProgram:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def goes_on(self) -> None:
        """Returns when it has received some more."""
        before = len(self.lines)
        until(lambda: len(self.lines) > before + 200, f"{self._name} to go on: {self.lines[-5:]}")

    def end(self) -> str:
        """Returns when everything that it has sent was received, and checks that. What it was like, in words."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        assert self._process.wait(PATIENCE_S) == 0, self.lines[-20:]
        self._reader.join(PATIENCE_S)
        receipts, sent = Receipts(self._name), 0
        for line in self.lines:
            words = line.split()
            if words[:2] == [">", "came"]:
                receipts.all.append(Receipt(int(words[2]) / 1000, int(words[3])))
            elif words[:2] == [">", "sent"]:
                sent = int(words[2])
                assert words[3] == "0", f"{words[3]} sends failed"
        receipts.check(sent)
        return receipts.summary(sent)
