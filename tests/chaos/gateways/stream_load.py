"""V5 stream consumers that share a topic by two gateways (`V5Load.java`), each in a process of its own."""

from __future__ import annotations

import subprocess
import threading
import time
from bisect import bisect_right
from collections import defaultdict
from pathlib import Path
from typing import Final, NamedTuple

from pulsar_on_kafka.embedded.java import find_java
from tests.builds import built
from tests.chaos.gateways.fleet import Fleet, longest_gap_s
from tests.compat.pulsar_standalone.jars import pulsar_jars
from tests.compat.pulsar_standalone.releases import PULSAR_5
from tests.programs import ROOT, kill_program
from tests.waiting import until

_SOURCES: Final = Path(__file__).with_name("v5")
_LOGGING: Final = ROOT / "tests" / "compat" / "pulsar_standalone" / "log4j2.xml"
_SAVED_S: Final = 10.0
"""An acknowledgement is durable after this time, and what was delivered before it is received, in every process."""
PARTITIONS: Final = 4


def v5_program() -> list[str]:
    """Compiled once for each state of the sources. Raises Missing."""
    jars = f"{pulsar_jars(PULSAR_5)}/*"

    def command(out: Path) -> list[str]:
        return ["javac", "-cp", jars, "-d", str(out / "classes"), str(out / "V5Load.java")]

    classes = built("v5", _SOURCES, ("javac",), command) / "classes"
    quick = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={_LOGGING}"]
    return [str(find_java().executable), *quick, "-cp", f"{classes}:{jars}", "V5Load"]


class Event(NamedTuple):
    """By the monotonic clock, which all processes share."""

    at: float
    text: str


class V5Process:
    """One producer or consumer, and what it reported, by kind of event."""

    def __init__(self, name: str, arguments: list[str], log: Path) -> None:
        self.name = name
        self.events: dict[str, list[Event]] = defaultdict(list)
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [*v5_program(), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("@"):
                at, _, event = line[1:].rstrip("\n").partition(" ")
                kind, _, text = event.partition(" ")
                self.events[kind].append(Event(int(at) / 1e9, text))

    def check(self) -> None:
        """It lives, and nothing has failed."""
        assert not self.events["failed"], f"{self.name}: {self.events['failed']}\n{self.log()}"
        assert self._process.poll() is None, f"{self.name} has ended\n{self.log()}"

    def log(self) -> str:
        return self._log.read_text()[-3000:]

    def leave(self) -> None:
        """Have it close what it has open, and end."""
        assert self._process.stdin is not None
        if self._process.poll() is None:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        self._process.wait(60)
        self._listening.join(60)
        assert not self.events["failed"], f"{self.name}: {self.events['failed']}\n{self.log()}"

    def kill(self) -> None:
        """Kill -9. A second call does nothing."""
        kill_program(self._process, self._listening)


class StreamLoad:
    """One producer, and consumers that come and go. For a `Fleet`."""

    def __init__(self, fleet: Fleet, consumers: int) -> None:
        self.topic = fleet.topic()
        self._fleet = fleet
        fleet.admin.create_partitioned_topic(self.topic, PARTITIONS)
        fleet.admin.set_policy(self.topic, "deduplication", True)
        self._begun = 0
        self._received_s = 0.0
        """When everything was received."""
        self.consumers: list[V5Process] = []
        """Those that are alive."""
        self._former: list[V5Process] = []
        self._producer = self._process("producer", "produce")
        for _ in range(consumers):
            self.join()

    def _process(self, name: str, mode: str) -> V5Process:
        arguments = [mode, self._fleet.address, f"topic://public/default/{self.topic}", name]
        return V5Process(name, arguments, self._fleet.directory / f"v5-{name}.log")

    # Consumers ----------------------------------------------------------------------------------------------------

    def join(self) -> V5Process:
        """One more consumer, by the next name."""
        self.consumers.append(self._process(f"c{self._begun}", "consume"))
        self._begun += 1
        return self.consumers[-1]

    def leave(self, consumer: V5Process) -> None:
        self._part(consumer)
        consumer.leave()

    def kill(self, consumer: V5Process) -> None:
        self._part(consumer)
        consumer.kill()

    def _part(self, consumer: V5Process) -> None:
        self.consumers.remove(consumer)
        self._former.append(consumer)

    @property
    def _all(self) -> list[V5Process]:
        return [*self._former, *self.consumers]

    def owners(self, since: float) -> dict[str, set[str]]:
        """The consumers that received each key since then."""
        found: dict[str, set[str]] = defaultdict(set)
        for consumer in self.consumers:
            events = consumer.events["got"]
            for event in events[bisect_right(events, since, key=lambda event: event.at) :]:
                found[event.text.partition(" ")[0]].add(consumer.name)
        return found

    def shared(self, since: float) -> bool:
        """Whether each key has one consumer since then, and as many consumers as there can be have keys."""
        self.done(since)
        owners = self.owners(since)
        names = {name for each in owners.values() for name in each}
        is_one = all(len(each) == 1 for each in owners.values())
        return len(owners) == 16 and is_one and len(names) == min(len(self.consumers), PARTITIONS)

    # Load ---------------------------------------------------------------------------------------------------------

    def done(self, since: float) -> int:
        self._producer.check()
        for consumer in self.consumers:
            consumer.check()
        return sum(event.at > since for consumer in self._all for event in consumer.events["got"][-5_000:])

    def latest(self) -> object:
        return {
            each.name: {kind: events[-1] for kind, events in each.events.items() if events}
            for each in (self._producer, *self.consumers)
        }

    def finish(self) -> None:
        self._producer.leave()
        sent = {event.text for event in self._producer.events["sent"]}

        def missing() -> int:
            return len(sent - {event.text for each in self._all for event in each.events["got"]})

        until(lambda: not missing(), lambda: f"{missing()} messages of {self.topic} to come", progress=missing)

        self._received_s = time.monotonic()
        late_s = self._received_s + _SAVED_S
        until(lambda: not self._backlog() or time.monotonic() > late_s, "the last acknowledgements to be saved")
        for consumer in list(self.consumers):
            self.leave(consumer)
        if self._backlog():
            # The last acknowledgement was lost with a connection. Its client passes over the message that comes again.
            another = self.join()
            until(lambda: not self._backlog(), lambda: f"{self._backlog()} of {self.topic} to be acknowledged")
            self.leave(another)

    def _backlog(self) -> int:
        return self._fleet.admin.subscription_stats(self.topic, "s").backlog

    def judge(self, since: float, faults: int) -> str:
        receipts = sorted((event.at, event.text) for each in self._all for event in each.events["got"])
        self._check_order(receipts)
        again = self._check_none_again(receipts)
        times: dict[str, list[float]] = defaultdict(list)
        for at, text in receipts:
            times[text.partition(" ")[0]].append(at)
        gap_s = max(longest_gap_s(each, since) for each in times.values())
        return (
            f"{self._begun} V5 stream consumers, {faults} gateways killed: nothing of a key came for {gap_s:.1f} s, "
            f"{again} of {len(receipts)} came again"
        )

    def _check_order(self, receipts: list[tuple[float, str]]) -> None:
        """What nobody had received before comes in the order in which its key was sent."""
        expected: dict[str, int] = defaultdict(int)
        for at, text in receipts:
            key, _, number = text.partition(" ")
            assert int(number) <= expected[key], f"{text} at {at:.3f}, before number {expected[key]} of its key"
            expected[key] = max(expected[key], int(number) + 1)

    def _check_none_again(self, receipts: list[tuple[float, str]]) -> int:
        """Nothing comes again that was acknowledged ten seconds before, while later acknowledgements follow. Gives how
        many came again."""
        acknowledged: dict[str, float] = {}
        for consumer in self._all:
            acks, pending = [event.at for event in consumer.events["acked"]], consumer.events["got"]
            for event in pending:
                place = bisect_right(acks, event.at)
                if place < len(acks):
                    acknowledged[event.text] = min(acks[place], acknowledged.get(event.text, acks[place]))
        seen: set[str] = set()
        again = 0
        for at, text in receipts:
            if text in seen:
                again += 1
                acked_s = at - acknowledged.get(text, at)
                assert acked_s < _SAVED_S or at > self._received_s, (
                    f"{text} comes again {acked_s:.1f} s after it was acknowledged"
                )
            seen.add(text)
        return again

    def close(self) -> None:
        for each in (self._producer, *self._all):
            each.kill()
