"""Two gateways of a fleet in processes of their own, and what official clients do by them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import psutil

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.subscriptions.subscription_holders import CLAIM_MS
from pulsar_on_kafka.gateway.fleet.bundles import BUNDLES, bundle_of, url_of
from pulsar_on_kafka.gateway.fleet.membership import fleets_group
from tests.chaos.evidence import Position
from tests.chaos.outside import Entries, Sample
from tests.pid_namespaces import in_own_pid_namespace, program_of
from tests.steps import Unique
from tests.tcp_way import TcpWay
from tests.waiting import until


class GatewayProcess:
    def __init__(
        self, log: Path, url: str, fleet: str, *, apart: bool, port: int = 0, options: Sequence[str] = ()
    ) -> None:
        ports = ["--port", str(port), "--http-port", "0"]
        command = [sys.executable, "-m", "pulsar_on_kafka.cli", "--url", url, "gateway", *ports, "--fleet", fleet]
        command += options
        self._made = log, url, fleet
        self._apart = apart
        self._options = options
        with log.open("w") as said:
            self._process = subprocess.Popen(
                in_own_pid_namespace(command) if apart else command, stdout=said, stderr=said
            )
        self.address = str(until(lambda: re.search(r"pulsar://\S+:\d+", log.read_text()), log.read_text)[0])

    def successor(self) -> GatewayProcess:
        """Another process on the same port."""
        port = int(self.address.rpartition(":")[2])
        return GatewayProcess(*self._made, apart=self._apart, port=port, options=self._options)

    def send(self, what: signal.Signals) -> None:
        os.kill(program_of(self._process.pid), what)

    def wait(self) -> int:
        return self._process.wait(120)

    def end(self) -> None:
        with suppress(OSError, psutil.Error):  # it is dead
            self.send(signal.SIGCONT)
        self._process.kill()
        self._process.wait(60)


class Load(Protocol):
    """What clients do with one topic. They go on until `finish`, and after it until everything was received."""

    topic: str

    def done(self, since: float) -> int:
        """Messages since then."""

    def finish(self) -> None:
        """Produce no more, and consume what is left."""

    def latest(self) -> object:
        """What it did last, for whoever asks why it does no more."""

    def judge(self, since: float, faults: int) -> str:
        """Nothing is lost, and nothing comes again that may not. Gives the figures; `since` then something failed."""

    def close(self) -> None: ...


Loads = Callable[["Fleet"], Sequence[Load]]


class Receipt(NamedTuple):
    """A message that an application received, by the monotonic clock."""

    at: float
    position: Position
    text: str


_UNDER_WAY_S: Final = 10.0
"""No delivery takes so long; a gateway stands still for less."""


def check_none_again(topic: str, samples: Sequence[Sample], received: Iterable[Receipt]) -> None:
    """Nothing of a topic without partitions was received that its owner knew to be acknowledged when it took over, nor
    what Kafka showed as acknowledged ten seconds before.

    What an owner hands out again is under way for a while, and its client may have acknowledged it the first time
    around: an acknowledgement that reaches the owner behind that may be in a commit before the message is received.
    """
    assert len(samples) > 1
    ends = [sample.at for sample in samples]
    versions = list(accumulate((_version(sample) for sample in samples), max))
    states: dict[int, Entries] = {}
    for when, position, text in received:
        newest = bisect_left(ends, when) - 1
        if newest < 0:
            continue
        of_former_owner = bisect_left(versions, versions[newest]) - 1
        certain = max(of_former_owner, bisect_left(ends, when - _UNDER_WAY_S) - 1)
        if certain not in states:
            states[certain] = Entries(0) if certain < 0 else samples[certain].in_commit()
        assert not states[certain].has(position), f"{topic}: {text} at {position} was acknowledged"


def _version(sample: Sample) -> int:
    """Of the owner whose commit it is; a Kafka tool's has none."""
    state = sample.state()
    return 0 if state is None else state.lineage.version


def longest_gap_s(times: Iterable[float], since: float) -> float:
    """For how long at a time nothing came after that."""
    return max((after - before for before, after in pairwise([since, *(at for at in times if at > since)])), default=0)


class Fleet:
    """Two gateways, and loads on topics that the first of them serves."""

    def __init__(
        self,
        url: str,
        directory: Path,
        unique: Unique,
        loads: Loads,
        *,
        apart: bool = False,
        first_url: str = "",
        options: Sequence[str] = (),
        old_claims: bool = True,
    ) -> None:
        """`first_url`: by which the first one gets to Kafka. `options`: more of `pok gateway`. `old_claims`: wait until
        claims of subscriptions hold by memberships alone."""
        self.bootstrap = url.removeprefix("kafka://")
        self.directory = directory
        self.unique = unique
        self.faults = 0
        self.name = unique("fleet")
        with ExitStack() as stack:
            self.admin = stack.enter_context(AdminClient(url))
            self.gateways: list[GatewayProcess] = []
            stack.callback(self._end_gateways)
            for number, to_kafka in enumerate((first_url or url, url)):
                log = directory / f"gateway-{number}"
                self.gateways.append(GatewayProcess(log, to_kafka, self.name, apart=apart, options=options))
            self._shared()
            self.address = ",".join(gateway.address for gateway in self.gateways).replace(",pulsar://", ",")
            self.loads = loads(self)
            for load in self.loads:
                stack.callback(load.close)
            opened = time.monotonic()
            self.work(200)
            claim_s = CLAIM_MS / 1000 if old_claims else 0.0
            until(lambda: time.monotonic() - opened > claim_s, "the claim to hold by its membership alone")
            self._stack = stack.pop_all()

    def _end_gateways(self) -> None:
        for gateway in self.gateways:
            gateway.end()

    def owners(self) -> dict[int, str]:
        """By bundle the address of its owner."""
        group = fleets_group(self.admin.node.settings.instance, self.name)
        members = self.admin.node.admin.describe_group(group, Deadline.after(60)).members
        return {bundle: url_of(member.client_id) for member in members for _, bundle in member.assigned}

    def _shared(self) -> dict[int, str]:
        """Owners of all bundles, as soon as each gateway has some."""

        def found() -> dict[int, str] | None:
            owners = self.owners()
            return owners if len(owners) == BUNDLES and len(set(owners.values())) == 2 else None

        return until(found, "both to share")

    def topic(self) -> str:
        """A new one's name, of the first gateway's share."""
        owners = self._shared()
        topic = self.unique()
        while owners[bundle_of(topic)] != self.gateways[0].address:
            topic = self.unique()
        return topic

    def strike(self, gateway: GatewayProcess, what: signal.Signals) -> float:
        """Give the time of it."""
        self.faults += 1
        gateway.send(what)
        return time.monotonic()

    def cut(self, to_kafka: TcpWay) -> float:
        """The same for the way of the first one to Kafka."""
        self.faults += 1
        to_kafka.cut()
        return time.monotonic()

    def replace(self, gateway: GatewayProcess) -> None:
        """By another process on the same port; it is dead."""
        self.gateways[self.gateways.index(gateway)] = gateway.successor()

    def work(self, messages: int, since: float = 0.0) -> None:
        """Wait until each load has done more than so many since then."""

        def behind() -> list[int]:
            return [done for load in self.loads if (done := load.done(since)) <= messages]

        until(lambda: not behind(), self._who_does_not, progress=behind)

    def _who_does_not(self) -> str:
        now = time.monotonic()
        idle = {load.topic: load.latest() for load in self.loads if not load.done(now - 5)}
        return f"all to be at work; idle for 5 s at {now:.1f}: {idle}"

    def judge(self, what: str, since: float) -> None:
        for load in self.loads:
            load.finish()
        for load in self.loads:
            print(f"{what}: {load.judge(since, self.faults)}")

    def close(self) -> None:
        self._stack.close()
