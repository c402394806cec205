"""Start the consuming process, watch it, kill it, start it again."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

import pulsar_on_kafka as pulsar
from flights.data import FlightId
from flights.evidence import DURABLE, Event, Follower
from pulsar_on_kafka.admin import AdminClient, SubscriptionStats

LOOK_EVERY_S = 0.02
SAMPLE_EVERY_S = 0.5
CLOSING_S = 30.0
PATIENCE_S = 45.0  # Kafka itself takes up to 6 s to notice that a process is dead

Sample: TypeAlias = tuple[float, SubscriptionStats]
"""When, and what."""


class DemoFailed(Exception):
    """The demo could not be brought to its end."""


class ConsumingProcess:
    """`worker.py` in a process of its own."""

    def __init__(self, service_url: str, topic: str, subscription: str, evidence: Path, pause_s: float) -> None:
        self.evidence = Follower(evidence)
        self.started_s = time.time()
        self.ended_s = 0.0
        worker = Path(__file__).with_name("worker.py")
        command = [sys.executable, str(worker), service_url, topic, subscription, str(evidence), str(pause_s)]
        # A session of its own: Ctrl-C is for this program, which then ends the worker by ending its standard input.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        self.pid = self._process.pid

    def __enter__(self) -> ConsumingProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._process.poll() is None:
            self.kill()

    def require_alive(self) -> None:
        if self._process.poll() is not None:
            raise DemoFailed(f"the consuming process {self.pid} ended by itself with status {self._process.returncode}")

    def kill(self) -> None:
        """kill -9: it gets no chance to save or say anything."""
        self._process.kill()
        self.ended_s = time.time()
        self._close()

    def stop(self) -> None:
        """Have it acknowledge what is under way, save and leave."""
        try:
            self._process.communicate(timeout=CLOSING_S)
        except subprocess.TimeoutExpired:
            raise DemoFailed(f"the consuming process {self.pid} did not leave in {CLOSING_S:.0f} s") from None
        self.ended_s = time.time()
        self._close()
        if self._process.returncode != 0:
            raise DemoFailed(f"the consuming process {self.pid} ended with status {self._process.returncode}")

    def _close(self) -> None:
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


class Sampler:
    """Asks Kafka twice a second for the state of the subscription as last saved. This disturbs nobody."""

    def __init__(self, admin: AdminClient, topic: str, subscription: str) -> None:
        self.samples: list[Sample] = []
        self._ask = partial(admin.subscription_stats, topic, subscription)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self.sample()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._stopping.set()
        self._thread.join()
        if error is None:
            self.sample()

    def sample(self) -> SubscriptionStats:
        stats = self._ask()
        self.samples.append((time.time(), stats))
        return stats

    def _run(self) -> None:
        while not self._stopping.wait(SAMPLE_EVERY_S):
            try:
                self.sample()
            except pulsar.PulsarException:
                continue  # a sample less; what counts is asked for again at the end


@dataclass(slots=True)
class Watch:
    """What the evidence files have said so far."""

    show: Callable[[int, int], None]
    """Told the number of distinct flights received, and of those durably acknowledged."""
    received: set[FlightId] = field(default_factory=set)
    durable: set[FlightId] = field(default_factory=set)

    def until(self, process: ConsumingProcess, reached: Callable[[Watch, float], bool]) -> None:
        """Look 50 times a second until `reached(self, seconds since the last news)`.

        Raises:
            DemoFailed: the process ended, or there was no news for 45 s.
        """
        pause = threading.Event()
        last_news = time.monotonic()
        while not reached(self, time.monotonic() - last_news):
            process.require_alive()
            if self.add(process.evidence.read_on()):
                last_news = time.monotonic()
            elif time.monotonic() - last_news > PATIENCE_S:
                raise DemoFailed(
                    f"no news from the consuming process {process.pid} for {PATIENCE_S:.0f} s: "
                    f"{len(self.received):,} flights received, {len(self.durable):,} durably acknowledged"
                )
            pause.wait(LOOK_EVERY_S)

    def add(self, events: list[Event]) -> bool:
        for event in events:
            (self.durable if event.kind == DURABLE else self.received).update(event.flights)
        self.show(len(self.received), len(self.durable))
        return bool(events)


def seconds_until_first(process: ConsumingProcess) -> float:
    """From its start to the first message it received."""
    events = process.evidence.events
    return events[0].at_s - process.started_s if events else 0.0


def rate(process: ConsumingProcess) -> float:
    """Messages processed per second, from the first one to the last one."""
    received = [event.at_s for event in process.evidence.events if event.kind != DURABLE]
    if len(received) < 2 or received[-1] == received[0]:
        return 0.0
    return len(received) / (max(received) - min(received))
