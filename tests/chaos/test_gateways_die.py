"""One of two gateways is killed, stands still or is stopped while official clients produce and consume by it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.embedded import BrokerOptions, EmbeddedBroker
from pulsar_on_kafka.embedded.settings import free_port
from pulsar_on_kafka.gateway.bundles import BUNDLES, bundle_of, url_of
from pulsar_on_kafka.gateway.sharing import fleets_group
from pulsar_on_kafka.mapping.names.subscription_group import group_id
from pulsar_on_kafka.mapping.names.topic_name import TopicName, kafka_topic
from pulsar_on_kafka.metadata.subscriptions.occupants import CLAIM_MS
from tests.brokers import available
from tests.chaos.outside import Sampler
from tests.pid_namespaces import in_own_pid_namespace, program_of
from tests.steps import Missing, Unique
from tests.tcp_way import TcpWay
from tests.waiting import until

pulsar: Any = pytest.importorskip("pulsar", reason="the official client, pulsar-client, is not installed")

pytestmark = pytest.mark.kafka

EXCLUSIVE, SHARED = pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared
_RECEIVE_MS = 100
_PACE_S = 0.002


class GatewayProcess:
    def __init__(self, log: Path, url: str, fleet: str, *, apart: bool) -> None:
        command = [
            sys.executable,
            "-m",
            "pulsar_on_kafka.cli",
            "--url",
            url,
            "gateway",
            "--port",
            "0",
            "--http-port",
            "0",
            "--fleet",
            fleet,
        ]
        self._log = log
        with log.open("w") as said:
            self._process = subprocess.Popen(
                in_own_pid_namespace(command) if apart else command, stdout=said, stderr=said
            )
        self.address = str(until(lambda: re.search(r"pulsar://\S+:\d+", log.read_text()), log.read_text)[0])

    def send(self, what: signal.Signals) -> None:
        os.kill(program_of(self._process.pid), what)

    def wait(self) -> int:
        return self._process.wait(120)

    def end(self) -> None:
        with suppress(OSError, psutil.Error):  # it is dead
            self.send(signal.SIGCONT)
        self._process.kill()
        self._process.wait(60)


class Load:
    """A producer and a consumer of one topic, each with a thread; both write down what they did."""

    def __init__(self, address: str, bootstrap: str, topic: str, kind: Any) -> None:
        self.topic = topic
        self.sent: list[str] = []
        self.with_receipt: set[str] = set()
        self.failed: list[Any] = []
        self.received: list[tuple[float, int, str]] = []
        """When, the offset, and what."""
        self._client = pulsar.Client(address, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        self._consumer = self._client.subscribe(
            topic, "s", kind, initial_position=pulsar.InitialPosition.Earliest, receiver_queue_size=100
        )
        self._producer = self._client.create_producer(
            topic, batching_enabled=False, send_timeout_millis=0, block_if_queue_full=True
        )
        name = kafka_topic(TopicName.parse(topic))
        self._sampler = Sampler(bootstrap, group_id(name, "s"), name, 1)
        self._produces, self._consumes = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._produce, self._consume)]
        for thread in self._threads:
            thread.start()

    def _produce(self) -> None:
        while not self._produces.wait(_PACE_S):
            text = str(len(self.sent))
            self.sent.append(text)
            self._producer.send_async(text.encode(), self._answered(text))

    def _answered(self, text: str) -> Callable[[Any, Any], None]:
        def answered(result: Any, _: Any) -> None:
            if result == pulsar.Result.Ok:
                self.with_receipt.add(text)
            else:
                self.failed.append(result)

        return answered

    def _consume(self) -> None:
        while not self._consumes.is_set():
            try:
                message = self._consumer.receive(_RECEIVE_MS)
            except pulsar.Timeout:
                continue
            self.received.append((time.monotonic(), message.message_id().entry_id(), message.data().decode()))
            self._consumer.acknowledge(message)

    def since(self, at: float) -> int:
        return sum(when > at for when, _, _ in self.received)

    def gap_s(self, at: float) -> float:
        """For how long at a time nothing came after `at`."""
        times = [at, *(when for when, _, _ in self.received if when > at)]
        return max(after - before for before, after in pairwise(times))

    def finish(self) -> None:
        """Produce no more, and consume what is left."""
        self._produces.set()
        self._threads[0].join(60)
        until(lambda: len(self.with_receipt) == len(self.sent) or self.failed, "every receipt")
        assert not self.failed
        until(lambda: {text for _, _, text in self.received} >= self.with_receipt, "everything with a receipt to come")

    def judge(self) -> int:
        """Nothing that Kafka showed as acknowledged was received after that. Gives how many came more than once."""
        self._sampler.close()
        samples = self._sampler.samples
        assert len(samples) > 1
        ends = [sample.at for sample in samples]
        for when, offset, text in self.received:
            before = bisect_left(ends, when) - 1
            if before >= 0:
                acknowledged = samples[before].in_commit()
                again = offset < acknowledged.below or offset in acknowledged.acked
                assert not again, f"{self.topic}: {text} at {offset} was acknowledged"
        return len(self.received) - len({text for _, _, text in self.received})

    def close(self) -> None:
        self._produces.set()
        self._consumes.set()
        for thread in self._threads:
            thread.join(60)
        self._client.close()


class Fleet:
    """Two gateways, and loads on topics that the first of them serves."""

    def __init__(self, url: str, directory: Path, unique: Unique, *, apart: bool, first_url: str = "") -> None:
        """`first_url`: by which the first one gets to Kafka."""
        self._stack = ExitStack()
        self._bootstrap = url.removeprefix("kafka://")
        self._unique = unique
        self.name = unique("fleet")
        self.admin = self._stack.enter_context(AdminClient(url))
        self.gateways = []
        for number, to_kafka in enumerate((first_url or url, url)):
            gateway = GatewayProcess(directory / f"gateway-{number}", to_kafka, self.name, apart=apart)
            self._stack.callback(gateway.end)
            self.gateways.append(gateway)
        until(lambda: len(self.owners()) == BUNDLES and len(set(self.owners().values())) == 2, "both to have a share")
        self.address = ",".join(gateway.address for gateway in self.gateways).replace(",pulsar://", ",")
        self.loads = [self.load(kind) for kind in (SHARED, EXCLUSIVE)]
        opened = time.monotonic()
        self.work(200)
        until(lambda: time.monotonic() - opened > CLAIM_MS / 1000, "the claim to hold by its membership alone")

    def owners(self) -> dict[int, str]:
        """By bundle the address of its owner."""
        group = fleets_group(self.admin.node.settings.instance, self.name)
        members = self.admin.node.admin.describe_group(group, Deadline.after(60)).members
        return {bundle: url_of(member.client_id) for member in members for _, bundle in member.assigned}

    def load(self, kind: Any) -> Load:
        owners = self.owners()
        topic = self._unique()
        while owners[bundle_of(topic)] != self.gateways[0].address:
            topic = self._unique()
        made = Load(self.address, self._bootstrap, topic, kind)
        self._stack.callback(made.close)
        return made

    def work(self, messages: int, since: float = 0.0) -> None:
        until(lambda: all(load.since(since) > messages for load in self.loads), "both to be at work")

    def somebody_else_consumes(self, gateway: GatewayProcess) -> None:
        """Another client gets messages of the Shared subscription by that gateway, and leaves them."""
        client = pulsar.Client(gateway.address, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        consumer = client.subscribe(self.loads[0].topic, "s", SHARED)
        client.create_producer(self.loads[0].topic).send(b"from elsewhere")
        consumer.receive(60_000)
        client.close()

    def judge(self, what: str, at: float) -> None:
        for load in self.loads:
            load.finish()
        again = [load.judge() for load in self.loads]
        gaps = [f"{load.gap_s(at):.1f} s" for load in self.loads]
        print(f"{what}: nothing came for {gaps}, {again} of {[len(load.received) for load in self.loads]} came again")

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def begin(service_url: str, tmp_path: Path, unique: Unique) -> Iterator[Callable[[bool], Fleet]]:
    with ExitStack() as stack:

        def make(apart: bool) -> Fleet:
            made = Fleet(service_url, tmp_path, unique, apart=apart)
            stack.callback(made.close)
            return made

        yield make


@pytest.mark.parametrize("apart", [False, True], ids=["same machine", "apart"])
def test_the_clients_of_a_killed_gateway_go_on_with_the_other(begin: Callable[[bool], Fleet], apart: bool) -> None:
    fleet = begin(apart)
    doomed, other = fleet.gateways
    doomed.send(signal.SIGKILL)
    at = time.monotonic()
    fleet.work(200, at)
    assert set(fleet.owners().values()) == {other.address}
    fleet.judge(f"killed, apart={apart}", at)


def test_a_gateway_that_stands_still_is_followed_and_sends_its_clients_there(begin: Callable[[bool], Fleet]) -> None:
    fleet = begin(False)
    doomed, other = fleet.gateways
    doomed.send(signal.SIGSTOP)
    at = time.monotonic()
    until(lambda: set(fleet.owners().values()) == {other.address}, "the other one to have everything")
    took_s = time.monotonic() - at
    fleet.somebody_else_consumes(other)
    doomed.send(signal.SIGCONT)
    fleet.work(200, time.monotonic())
    fleet.judge(f"stood still, followed after {took_s:.1f} s", at)


def test_a_gateway_that_is_stopped_hands_over(begin: Callable[[bool], Fleet]) -> None:
    fleet = begin(False)
    doomed, other = fleet.gateways
    doomed.send(signal.SIGTERM)
    at = time.monotonic()
    assert doomed.wait() == 0
    fleet.work(200, time.monotonic())
    assert set(fleet.owners().values()) == {other.address}
    fleet.judge("stopped", at)


def two_ways(direct: int, by_way: int, way: int) -> BrokerOptions:
    """A broker with a listener at `by_way` besides, whose clients are told to go by the port `way`."""
    controller, here = free_port(), "127.0.0.1"
    return BrokerOptions(
        port=direct,
        extra={
            "listeners": f"PLAINTEXT://{here}:{direct},WAY://{here}:{by_way},CONTROLLER://{here}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{here}:{direct},WAY://{here}:{way}",
            "controller.quorum.voters": f"1@{here}:{controller}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,WAY:PLAINTEXT",
        },
    )


def test_a_gateway_that_is_cut_off_from_kafka_sends_its_clients_away(
    missing: Missing, tmp_path: Path, unique: Unique
) -> None:
    direct, by_way = free_port(), free_port()
    way = TcpWay(by_way)
    with ExitStack() as stack:
        stack.callback(way.close)
        stack.enter_context(available(missing, EmbeddedBroker(two_ways(direct, by_way, way.port))))
        fleet = Fleet(
            f"kafka://127.0.0.1:{direct}", tmp_path, unique, apart=False, first_url=f"kafka://127.0.0.1:{way.port}"
        )
        stack.callback(fleet.close)
        doomed, other = fleet.gateways
        way.cut()
        at = time.monotonic()
        fleet.work(200, at)
        assert set(fleet.owners().values()) == {other.address}
        way.mend()
        until(lambda: doomed.address in fleet.owners().values(), "it to be a member again")
        fleet.judge("cut off", at)
