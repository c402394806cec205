"""Random crashes for as long as wanted: `make soak`.

POK_CHAOS_SECONDS   how long (default 600)
POK_CHAOS_SEED      the seed of the first round, to run a printed one again
"""

from __future__ import annotations

import os
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from layer.embedded import EmbeddedBroker
from tests.chaos.processes import WorkerProcess, eventually
from tests.chaos.stage import Stage, Stand
from tests.chaos.verdict import Verdict

pytestmark = [pytest.mark.kafka, pytest.mark.soak]

ROUND_S = 40.0
MAX_WORKERS = 4


class Round:
    """One topic, one subscription, up to four workers, and what chance does to them and to the broker."""

    def __init__(self, stage: Stage, broker: EmbeddedBroker, seed: int) -> None:
        self._random = random.Random(seed)
        self._broker = broker
        self._stage = stage
        self._pause = threading.Event()
        self._publishing = self._random.uniform(0.5, 3.0)
        self.type = self._random.choice(["Shared", "Shared", "Failover", "Exclusive"])
        self._stand: Stand = stage.subscription(self.type)
        self.done: Counter[str] = Counter()

    def run(self) -> Verdict:
        publisher = self._stage.publish(int(ROUND_S * 1000 / self._publishing), pace_ms=self._publishing)
        ends = time.monotonic() + ROUND_S
        self._join()
        while time.monotonic() < ends:
            self._act()
            self._pause.wait(self._random.uniform(0.1, 3.0))
        for worker in self._stopped():
            worker.go_on()
        publisher.wait(60)
        for worker in self._stand.workers:
            assert worker.alive or worker.killed_at, f"{worker.name} died by itself: {worker.log.read_text()[-2000:]}"
        for worker in self._running():
            worker.until("answers", lambda w=worker: self._answered(w), 40)  # type: ignore[misc]
        self._finish()
        self._stage.check_publishing(self._stage.sent())
        return self._stand.verdict()

    def _finish(self) -> None:
        """One worker that is certain to be served works off what the others left."""
        for worker in self._running():
            worker.kill()
        last = self._stand.worker(flush_every=100)
        self._stand.warm(last)
        eventually("the last worker is let in", lambda: self._asked_again(last), 30)
        self._stand.until_worked_off(within_s=60)

    # What chance may do -------------------------------------------------------------------------------------------

    def _act(self) -> None:
        running, stopped = self._running(), self._stopped()
        moves: list[tuple[int, Callable[[], None]]] = [
            (1, self._restart),
            (1, self._kill_broker),
            (1, self._pause_broker),
        ]
        if len(running) + len(stopped) < MAX_WORKERS:
            moves.append((6 if not running else 3, self._join))
        if running:
            moves += [(3, self._kill), (2, self._stop), (2, self._close)]
        if stopped:
            moves += [(3, self._go_on), (1, self._kill_stopped)]
        weights, actions = zip(*moves, strict=True)
        action = self._random.choices(actions, weights)[0]
        self.done[action.__name__.strip("_")] += 1
        action()

    def _join(self) -> None:
        self._stand.worker(**self._orders()).try_to_subscribe()

    def _kill(self) -> None:
        self._random.choice(self._running()).kill()

    def _stop(self) -> None:
        self._random.choice(self._running()).stop()

    def _go_on(self) -> None:
        self._random.choice(self._stopped()).go_on()

    def _kill_stopped(self) -> None:
        self._random.choice(self._stopped()).kill()

    def _close(self) -> None:
        """Told to leave, not waited for: it may be killed in the middle of that, too."""
        worker = self._random.choice(self._running())
        worker.tell("close")
        if self._random.random() < 0.5:
            worker.try_to_subscribe()

    def _restart(self) -> None:
        self._broker.restart()

    def _kill_broker(self) -> None:
        self._broker.kill()
        self._pause.wait(self._random.choice([0.0, 1.0, 7.0]))
        self._broker.start()

    def _pause_broker(self) -> None:
        self._broker.pause()
        self._pause.wait(self._random.choice([0.5, 2.0, 8.0]))
        self._broker.resume()

    # Inside -------------------------------------------------------------------------------------------------------

    def _orders(self) -> dict[str, Any]:
        return {
            "residues": tuple(sorted(self._random.sample(range(9), self._random.choice([3, 6, 9])))),
            "shuffle": self._random.choice([0, 0, 50, 3_000]),
            "flush_every": self._random.choice([0, 5, 37, 200, 5_000]),
            "pace_ms": self._random.choice([0.0, 0.0, 1.0]),
            "persist_ms": self._random.choice([2, 20, 200, 1_000]),
            "queue": self._random.choice([1, 10, 1_000]),
        }

    def _running(self) -> list[WorkerProcess]:
        return [worker for worker in self._stand.workers if worker.alive and not worker.stopped]

    def _stopped(self) -> list[WorkerProcess]:
        return [worker for worker in self._stand.workers if worker.alive and worker.stopped]

    @staticmethod
    def _answered(worker: WorkerProcess) -> bool:
        return worker.asked <= worker.count("s") + worker.count("b") + worker.count("f")

    @staticmethod
    def _asked_again(worker: WorkerProcess) -> bool:
        if not worker.count("s") and worker.asked == worker.count("b"):
            worker.try_to_subscribe()
        return bool(worker.count("s"))


def test_random_crashes(own_broker: EmbeddedBroker, tmp_path: Path, unique: Callable[..., str]) -> None:
    until = time.monotonic() + float(os.environ.get("POK_CHAOS_SECONDS", "600"))
    seed = int(os.environ.get("POK_CHAOS_SEED", "0")) or secrets.randbits(32)
    total: Counter[str] = Counter()
    broken: list[str] = []
    while time.monotonic() < until:
        print(f"\nround: POK_CHAOS_SEED={seed}", flush=True)
        chance = random.Random(seed)
        directory = tmp_path / str(seed)
        directory.mkdir()
        creation = {"entries_per_ledger": chance.choice([500, 3_000, 50_000])}
        url = f"kafka://{own_broker.bootstrap}"
        with Stage(url, directory, unique(), chance.choice([1, 2, 5]), **creation) as stage:
            one = Round(stage, own_broker, seed)
            found = one.run()
            print(f"    {dict(one.done)}", flush=True)
        broken += [f"seed {seed}: {line}" for line in found.broken]
        total.update(one.done)
        total.update({f"duplicates, {cause}": count for cause, count in found.duplicates.items()})
        total.update(rounds=1, sent=found.sent, kills=found.kills, stops=found.stops, durable=found.durable)
        seed = chance.getrandbits(32)
    print(f"\n{dict(total)}")
    assert not broken, "\n".join(broken)
