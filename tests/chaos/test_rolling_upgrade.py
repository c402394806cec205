"""Programs of the version before and of this one share topics and subscriptions, and are replaced one after the other.

The version before is taken out of the repository's history; a clone without it skips the test.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.documents import ROOT
from tests.steps import Unique
from tests.uv import ENVIRONMENTS, make_environment
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.soak]

BEFORE: Final = ("0.2.0", "52ecba4ec4d3df6c06cfb9e1618cb9e4717fc138")
"""The version before, and the commit of its release."""
_WORKER: Final = Path(__file__).with_name("upgrade_worker.py")
_SUBSCRIPTIONS: Final = {"shared": "Shared", "keys": "Key_Shared", "failover": "Failover", "alone": "Exclusive"}
_MOVED: Final = "moved"
"""The subscription of those that move messages to another topic in transactions."""
_SOME: Final = 150
"""Messages that each subscription gets between two replacements."""


@pytest.fixture(scope="module")
def before() -> Path:
    """The Python of an environment with the version before."""
    version, commit = BEFORE
    archived = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=False)
    if archived.returncode:
        pytest.skip(f"the history of this clone lacks {version} ({commit})")
    place = ENVIRONMENTS / f"version-{version}"
    with tarfile.open(fileobj=BytesIO(archived.stdout)) as sources:
        sources.extractall(place / "sources", filter="data")
    return make_environment(place / "environment", sys.executable, place / "sources")


class _Program:
    """One process, and the lines that it printed."""

    def __init__(self, command: list[str | Path], log: Path) -> None:
        self.log = log
        with log.open("wb") as out, log.with_suffix(".errors").open("wb") as errors:
            self._process = subprocess.Popen(command, stdout=out, stderr=errors, cwd=log.parent)

    def lines(self, word: str) -> list[list[str]]:
        """The complete ones that begin with `word`, without it."""
        written = self.log.read_text(encoding="utf-8")
        whole = written[: written.rfind("\n") + 1].splitlines()
        return [line.split()[1:] for line in whole if line.split()[:1] == [word]]

    def until_ready(self) -> None:
        until(lambda: bool(self.lines("ready")) or self._process.poll() is not None, f"{self.log.stem} to be ready")
        assert self._process.poll() is None, self.errors()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(120) == 0, self.errors()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def errors(self) -> str:
        return self.log.with_suffix(".errors").read_text(encoding="utf-8", errors="replace")[-4000:]


class _Fleet:
    """A service, two producers, consumers of each subscription (one of Exclusive, two of the others), and two processes
    that move messages to another topic in transactions."""

    def __init__(self, url: str, topic: str, folder: Path, stack: ExitStack) -> None:
        self.url, self.topic, self._folder, self._stack = url, topic, folder, stack
        self.all: list[_Program] = []
        self.running: dict[str, _Program] = {}

    def start(self, role: str, python: Path) -> None:
        what, _, subscription = role.partition(" ")[0].partition("-")
        name = f"{role.replace(' ', '-')}-{len(self.all)}"
        if what == "service":
            command: list[str | Path] = [python, "-m", "pulsar_on_kafka.cli", "--url", self.url, "serve", "--port", "0"]
        else:
            command = [python, _WORKER, self.url, self.topic, what, name]
        if subscription:
            command += [subscription, _SUBSCRIPTIONS.get(subscription, "Shared").replace("_", "")]
        program = _Program(command, self._folder / f"{name}.log")
        self._stack.callback(program.kill)
        if what != "service":
            program.until_ready()
        self.all.append(program)
        self.running[role] = program

    def stop(self, role: str) -> None:
        self.running.pop(role).stop()

    def sent(self) -> set[str]:
        return {text for program in self.all for (text,) in program.lines("sent")}

    def received(self, subscription: str) -> list[tuple[int, str]]:
        """Messages with their times, in the order of receiving them."""
        programs = [program for program in self.all if program.log.name.startswith(f"consume-{subscription}-")]
        return sorted((int(when), text) for program in programs for text, when, _ in program.lines("got"))

    def goes_on(self) -> None:
        """Waits until each subscription got `_SOME` more messages."""
        for subscription in _SUBSCRIPTIONS:
            had = len(self.received(subscription))
            until(
                lambda subscription=subscription, had=had: len(self.received(subscription)) >= had + _SOME,  # type: ignore[misc]
                lambda subscription=subscription: f"{subscription} to go on:\n" + self.errors(),  # type: ignore[misc]
            )
        moved = self.moved()
        until(lambda: self.moved() > moved, lambda: f"transactions to go on:\n{self.errors()}")

    def moved(self) -> int:
        return sum(int(count) for program in self.all for (count,) in program.lines("moved"))

    def until_all_received(self) -> None:
        sent = self.sent()
        assert sent
        for subscription in _SUBSCRIPTIONS:
            until(
                lambda subscription=subscription: sent <= {text for _, text in self.received(subscription)},  # type: ignore[misc]
                lambda subscription=subscription: f"{subscription} lacks {self.missing(subscription)}\n{self.errors()}",  # type: ignore[misc]
            )

    def missing(self, subscription: str) -> list[str]:
        return sorted(self.sent() - {text for _, text in self.received(subscription)})

    def errors(self) -> str:
        return "\n".join(f"{program.log.stem}: {program.errors()}" for program in self.all if program.errors())


def _roles() -> list[str]:
    consumers = [
        f"consume-{each} {number}" for each in _SUBSCRIPTIONS for number in (1, 2) if (each, number) != ("alone", 2)
    ]
    return ["service", *consumers, f"transfer-{_MOVED} 1", f"transfer-{_MOVED} 2", "produce 1", "produce 2"]


@pytest.fixture(params=[4, 1], ids=["four-partitions", "one-partition"])
def fleet(request: pytest.FixtureRequest, service_url: str, unique: Unique, tmp_path: Path) -> Iterator[_Fleet]:
    """With one partition its owner leases messages of Shared and Key_Shared to the other consumer."""
    topic = unique("orders")
    with AdminClient(service_url) as admin:
        admin.create_partitioned_topic(topic, request.param)
        admin.create_topic(f"{topic}-moved")
    with ExitStack() as stack:
        yield _Fleet(service_url, topic, tmp_path, stack)


def _first(received: list[tuple[int, str]]) -> Iterator[tuple[str, int]]:
    """Key and number of each message, where it was received first."""
    known: set[str] = set()
    for _, text in received:
        if text not in known:
            known.add(text)
            key, _, number = text.partition(":")
            yield key, int(number)


def _check(fleet: _Fleet) -> None:
    """Nothing is lost, and the messages of a key came in their order, where the subscription promises it."""
    for program in list(fleet.running):
        if program.startswith("produce"):
            fleet.stop(program)
    fleet.until_all_received()
    for subscription, kind in _SUBSCRIPTIONS.items():
        received = fleet.received(subscription)
        print(f"{subscription}: {len(fleet.sent())} sent, {len(received)} received")
        if kind == "Shared":
            continue
        by_key: dict[str, list[int]] = {}
        for key, number in _first(received):
            by_key.setdefault(key, []).append(number)
        for key, numbers in by_key.items():
            assert [(one, next_) for one, next_ in pairwise(numbers) if one > next_] == [], (subscription, key)
    with _reading(fleet) as reader:
        copies: list[str] = []
        until(
            lambda: fleet.sent() <= {*_read_on(reader, copies)},
            lambda: f"{len(copies)} copies are there\n{fleet.errors()}",
            progress=lambda: len(copies),
        )
    for role in list(fleet.running):
        fleet.stop(role)
    failed = sum(len(program.lines("failed")) for program in fleet.all)
    print(f"transactions: {len(copies)} copies, {failed} transactions failed and were repeated")
    assert sorted(copies) == sorted(fleet.sent()), "each message is moved once"


@contextmanager
def _reading(fleet: _Fleet) -> Iterator[pulsar.Reader]:
    client = pulsar.Client(fleet.url)
    yield client.create_reader(f"{fleet.topic}-moved", pulsar.MessageId.earliest)
    client.close()


def _read_on(reader: pulsar.Reader, copies: list[str]) -> list[str]:
    while reader.has_message_available():
        copies.append(reader.read_next(10_000).data().decode())
    return copies


@pytest.mark.parametrize("way", ["upgrade", "downgrade"])
def test_programs_are_replaced_one_after_the_other(fleet: _Fleet, before: Path, way: str) -> None:
    this = Path(sys.executable)
    first, second = (before, this) if way == "upgrade" else (this, before)
    for role in _roles():
        fleet.start(role, first)
    fleet.goes_on()
    for role in _roles():
        fleet.stop(role)
        fleet.start(role, second)
        fleet.goes_on()
    _check(fleet)


def test_programs_are_replaced_all_at_once(fleet: _Fleet, before: Path) -> None:
    for role in _roles():
        fleet.start(role, before)
    fleet.goes_on()
    for role in _roles():
        fleet.stop(role)
    for role in _roles():
        fleet.start(role, Path(sys.executable))
    fleet.goes_on()
    _check(fleet)
