"""Worker processes as the test holds them: started, told, stopped, continued, killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from pulsar_on_kafka.base.deadline import Deadline, wait_until
from tests.chaos.evidence import Testimony
from tests.chaos.worker import Orders
from tests.pid_namespaces import are_permitted, in_own_pid_namespace, program_of
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[2]
_STACKS_S = 2.0


class WorkerProcess:
    """One worker. `fate` says what was done to it, for the causes of duplicates."""

    def __init__(self, orders: Orders, log: Path, *, apart: bool = False) -> None:
        """`apart`: in a PID namespace of its own with the same host name, where that is permitted."""
        self.name = orders.name
        self.orders = orders
        self.log = log
        self.testimony = Testimony(orders.name, Path(orders.evidence))
        self.asked = 0
        """How often it was told to subscribe; each time it answers `s` or `b`."""
        self.asked_at = 0.0
        self.killed_at: float | None = None
        self.stops: list[tuple[float, float]] = []
        """From SIGSTOP to SIGCONT; the end is infinite while it is stopped."""
        command = [sys.executable, "-m", "tests.chaos.worker", json.dumps(asdict(orders))]
        self._apart = apart and are_permitted()
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                in_own_pid_namespace(command) if self._apart else command,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    # Telling it what to do ------------------------------------------------------------------------------------------

    def tell(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())
        self._process.stdin.flush()

    def subscribe(self) -> None:
        """Have it subscribe, and wait until it did."""
        before = self.count("s")
        self.try_to_subscribe()
        self.until(lambda: self.count("s") > before, "subscribed")

    def try_to_subscribe(self) -> None:
        self.asked += 1
        self.asked_at = time.monotonic()
        self.tell("subscribe")

    def is_let_in(self) -> bool:
        """Whether it has subscribed; where it was refused it is told to try again, as a program would that comes after
        one that died elsewhere."""
        if not self.count("s") and self.asked == self.count("b"):
            self.try_to_subscribe()
        return bool(self.count("s"))

    def close(self) -> None:
        """Have it flush and close its consumer, and wait until it did."""
        before = self.count("c")
        self.tell("close")
        self.until(lambda: self.count("c") > before, "closed")

    def said_good_byes(self) -> bool:
        """Whether it had members leave their group that Kafka still counted."""
        return "dead members" in self.log.read_text()

    def kill(self) -> None:
        """SIGKILL, and nothing of it is left when this returns."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        self.killed_at = time.monotonic()

    def until_cut(self, name: str) -> None:
        """Wait until it got the signal of its orders, SIGKILL or SIGSTOP."""
        until(lambda: self.count("z"), f"worker {self.name} is cut short at {self.orders.cut}", 400)
        if name == "SIGKILL":
            self._process.wait(60)
            self.killed_at = time.monotonic()
        else:
            until(lambda: psutil.Process(self._pid()).status() == psutil.STATUS_STOPPED, "it is stopped")
            self.stops.append((self.look().last("z").at, float("inf")))  # type: ignore[union-attr]

    def stop(self) -> None:
        self._signal(signal.SIGSTOP)
        self.stops.append((time.monotonic(), float("inf")))

    def go_on(self) -> None:
        self.stops[-1] = (self.stops[-1][0], time.monotonic())
        self._signal(signal.SIGCONT)

    def _pid(self) -> int:
        return program_of(self._process.pid) if self._apart else self._process.pid

    def _signal(self, number: signal.Signals) -> None:
        os.kill(self._pid(), number)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def stopped(self) -> bool:
        return bool(self.stops) and self.stops[-1][1] == float("inf")

    # What it says ---------------------------------------------------------------------------------------------------

    def look(self) -> Testimony:
        self.testimony.read_on()
        return self.testimony

    def count(self, kind: str) -> int:
        return self.look().count(kind)

    def received(self) -> int:
        return len(self.look().receipts)

    def owned(self) -> set[int]:
        """The partitions it has recovered, and not lost or given back."""
        owned: set[int] = set()
        for said in self.look().said:
            if said.kind == "o":
                owned.add(int(said.text.split()[0]))
            elif said.kind in "lv":
                owned -= set(map(int, said.text.split()))
            elif said.kind in "cf":
                owned.clear()
        return owned

    def until(self, condition: Callable[[], object], what: str, within_s: float = PATIENCE_S) -> None:
        def holds() -> bool:
            if condition():
                return True
            if not self.alive and self.killed_at is None:
                pytest.fail(f"worker {self.name} died by itself: {self.log.read_text()[-2000:]}")
            return False

        until(
            holds,
            lambda: f"worker {self.name}: {what}; it said {self.look().last('wsbxfcol')}\n{self._log_and_stacks()}",
            within_s,
        )

    def _log_and_stacks(self) -> str:
        """What it logged last, and what its threads are at."""
        log = self.log.read_text()
        if self.alive and not self.stopped:
            self._signal(signal.SIGUSR1)
            wait_until(lambda: "Current thread" in self.log.read_text()[len(log) :], Deadline.after(_STACKS_S))
        return f"{log[-2000:]}\n{self.log.read_text()[len(log) :]}"

    def end(self) -> None:
        """Whatever state it is in; it may be ending by itself, now that nobody can tell it anything."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.kill()  # what is apart dies with its namespace
        self._process.wait()

    def last_owned_after_loss(self) -> bool:
        """It has recovered a partition since it lost one."""
        said = self.look().last("ol")
        return said is not None and said.kind == "o"
