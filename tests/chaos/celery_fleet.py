"""A fleet of real Celery workers, killed while they run tasks, and the judgement of the runs that they logged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.programs import ROOT
from tests.waiting import until

REVOKED_FROM = 1_000_000
"""Tasks with such numbers are revoked before their time."""
DURABLE_S = 5.0
"""A task that was done so long before a kill is never run again: its acknowledgement is durable after 0.1 s, on an idle
machine."""


@dataclass(frozen=True)
class Run:
    """One run of a task: `done_s` is None if it was retried or cut short."""

    number: int
    attempt: int
    worker: str
    began_s: float
    done_s: float | None


@dataclass
class CeleryFleet:
    """Workers by name, each a process group of a main process and its pool."""

    environment: Mapping[str, str]
    log: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    killed_s: dict[str, float] = field(default_factory=dict)

    def start(self, count: int = 1) -> list[str]:
        """Starts workers together; returns their names when all are ready for tasks and commands."""
        names = [f"w{len(self.processes) + number}@fleet" for number in range(1, count + 1)]
        for name in names:
            with self.log.with_suffix(f".{name}").open("wb") as output:
                self.processes[name] = subprocess.Popen(
                    [sys.executable, "-m", "celery", "-A", "tests.celery_app", "worker", "-c", "2", "-n", name],
                    cwd=ROOT, env=self.environment, stdout=output, stderr=output, start_new_session=True,
                )  # fmt: skip
        until(
            lambda: {*names} <= {words[1] for words in self.lines() if words[0] == "ready"},
            lambda: "\n".join(self._output(name) for name in names),
        )
        return names

    def _output(self, name: str) -> str:
        return self.log.with_suffix(f".{name}").read_text(errors="replace")[-3000:]

    def kill(self, name: str) -> None:
        """Kill -9 the worker with its pool."""
        self.killed_s[name] = time.time()
        os.killpg(self.processes[name].pid, signal.SIGKILL)
        self.processes[name].wait(60)

    def stop(self) -> None:
        """Ends all workers by SIGTERM, and those that stay by SIGKILL."""
        running = [process for process in self.processes.values() if process.poll() is None]
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(60)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait(60)

    def lines(self) -> list[list[str]]:
        """The words of each complete line of the log."""
        if not self.log.exists():
            return []
        return [line.split() for line in self.log.read_text().splitlines()]

    def done(self) -> set[int]:
        """Numbers of tasks that were done."""
        return {int(words[1]) for words in self.lines() if words[0] == "done"}

    def runs(self) -> list[Run]:
        """All runs, in the order of the log."""
        ends = defaultdict(list)
        for words in self.lines():
            if words[0] == "done":
                ends[tuple(words[1:4])].append(float(words[4]))
        found = []
        for words in self.lines():
            if words[0] == "began":
                end = ends[tuple(words[1:4])]
                found.append(Run(int(words[1]), int(words[2]), words[3], float(words[4]), end.pop(0) if end else None))
        return found


@contextmanager
def celery_fleet(service_url: str, queue: str, folder: Path) -> Iterator[tuple[CeleryFleet, Any]]:
    """A fleet without workers and the application of this process, both on a queue of this test."""
    ours = {
        "POK_CELERY_BROKER": service_url.replace("kafka", "pulsar-on-kafka", 1),
        "POK_CELERY_LOG": str(folder / "runs.log"),
        "POK_CELERY_QUEUE": queue,
    }
    fleet = CeleryFleet({**os.environ, **ours}, folder / "runs.log")
    from tests.celery_app import app  # only here: importing it makes an application

    app.conf.update(broker_url=ours["POK_CELERY_BROKER"], task_default_queue=queue)
    try:
        yield fleet, app
    finally:
        fleet.stop()
        app.pool.force_close_all()


@dataclass(frozen=True)
class Verdict:
    """Numbers of tasks that were lost, ran although revoked, or ran again for no reason; and those that ran again
    after a kill, with the seconds from their end to the kill (0: cut short)."""

    lost: list[int]
    revoked_runs: list[int]
    unexplained: list[int]
    again: dict[int, float]


def judge(runs: Sequence[Run], expected: Sequence[int], killed_s: Mapping[str, float]) -> Verdict:
    """The verdict about all runs. A task may run again only if a run of it was cut short by a kill, or ended just
    before one; a retry was sent then, perhaps twice."""
    by_number: dict[int, list[Run]] = defaultdict(list)
    for run in runs:
        by_number[run.number].append(run)
    again, unexplained = {}, []
    for number, its in by_number.items():
        if len({run.attempt for run in its}) == len(its):
            continue
        cut = [
            max(killed_s[run.worker] - (run.done_s or run.began_s), 0.0) if run.done_s else 0.0
            for run in its
            if run.worker in killed_s and killed_s[run.worker] - (run.done_s or run.began_s) < DURABLE_S
        ]
        if cut:
            again[number] = min(cut)
        else:
            unexplained.append(number)
    done = {run.number for run in runs if run.done_s is not None}
    return Verdict(
        sorted(set(expected) - done),
        sorted({run.number for run in runs if run.number >= REVOKED_FROM}),
        sorted(unexplained),
        again,
    )
