"""Gateways of two clusters that follow the map of tenants, and the official Python client on them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.lookup.http_directory import HttpDirectory
from pulsar_on_kafka.clusters.cluster_admins import ClusterAdmins
from pulsar_on_kafka.gateway.rest.server import RestServer
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from pulsar_on_kafka.gateway.tenants.served_tenants import TenantFollower
from tests.clusters.cluster import PATIENCE_S, Cluster
from tests.waiting import until

pulsar: Any = pytest.importorskip("pulsar", reason="the official client, pulsar-client, is not installed")

FORGIVEN_S = 1.0
"""What was acknowledged less than this before the switch may come again."""


class Gateways(NamedTuple):
    """The gateways of one cluster."""

    binary: list[str]
    rest: list[str]


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
        self.receipts: list[Receipt] = []
        self._acknowledged_s: dict[int, float] = {}
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
        while not (self._all_sent.is_set() and len({each.number for each in self.receipts}) >= self.sent):
            try:
                message = self._consumer.receive(500)
            except pulsar.Timeout:
                continue
            name, number = message.data().decode().split()
            if name == self._subscription:  # the topic has the messages of all programs
                self.receipts.append(Receipt(time.monotonic(), int(number)))
            self._consumer.acknowledge(message)
            if name == self._subscription:
                self._acknowledged_s.setdefault(int(number), time.monotonic())

    def goes_on(self) -> None:
        """Returns when it has stored and received some more."""
        stored, received = self.stored, len(self.receipts)
        until(lambda: self.stored > stored + 200, "the producer to go on")
        until(lambda: len(self.receipts) > received + 200, "the consumer to go on")

    def __str__(self) -> str:
        times = [each.at_s for each in self.receipts]
        pause_s = max(later - earlier for earlier, later in pairwise(times))
        again = len(times) - self.sent
        return f"{self._subscription}: {self.sent} messages, {again} came again, longest pause {pause_s:.2f} s"

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
        """Nothing is lost, and what came again had not been acknowledged a second before. Call `end` first."""
        assert not self.failed
        assert self.stored == self.sent
        numbers = {each.number for each in self.receipts}
        assert numbers == set(range(self.sent)), f"lost: {sorted(set(range(self.sent)) - numbers)[:20]}"
        first: dict[int, float] = {}
        for each in self.receipts:
            first.setdefault(each.number, each.at_s)
        again = [each for each in self.receipts if each.at_s != first[each.number]]
        ages = {each.number: self._pause_before(each) - self._acknowledged_s[each.number] for each in again}
        late = {number: age for number, age in ages.items() if age > FORGIVEN_S}
        assert not late, f"acknowledged more than {FORGIVEN_S} s before the pause, and again: {late}"

    def _pause_before(self, receipt: Receipt) -> float:
        """The beginning of the longest pause that precedes a receipt."""
        times = [each.at_s for each in self.receipts if each.at_s <= receipt.at_s]
        return max(pairwise(times), key=lambda pair: pair[1] - pair[0])[0]
