"""Rounds of chance: a topic, a subscription, workers on it, and what may happen to them and to the broker.

The log cleaner comes within seconds (tests that run rounds ask for `quick_cleaner`), Kafka forgets the group now and
then, and half of the workers have a clock that is an hour ahead or behind.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pulsar_on_kafka.embedded import EmbeddedBroker
from tests.chaos.processes import WorkerProcess
from tests.chaos.stage import ORDERED, Stage, Stand
from tests.chaos.verdict import Verdict
from tests.waiting import until

MAX_WORKERS = 4
TYPES = ("Shared", "Failover", "KeyShared", "Exclusive")
_FINISH_S = 300.0
"""Patience with a busy machine."""
_HOUR_S = 3600.0


@dataclass
class Tally:
    """Sum of what rounds did and found."""

    faults: Counter[str] = field(default_factory=Counter)
    numbers: Counter[str] = field(default_factory=Counter)
    duplicates: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    def add(self, seed: int, done: Counter[str], found: Verdict) -> None:
        self.faults.update(done)
        self.duplicates.update(found.duplicates)
        self.numbers.update(
            {
                "rounds": 1,
                "messages": found.sent,
                "handed out": found.handed_out,
                "durably acknowledged": found.durable,
                "left for the last consumer": found.remaining,
                "refusals": found.refusals,
                "seeks": found.seeks,
                "commits seen": found.commits_seen,
                "of them with segments": found.in_segments,
            }
        )
        self.broken += [f"seed {seed}: {line}" for line in found.broken]

    def __str__(self) -> str:
        parts = [
            ", ".join(f"{name} {count}" for name, count in sorted(counted.items()))
            for counted in (self.numbers, self.faults, self.duplicates)
        ]
        return "{}\n    faults: {}\n    duplicates: {}\n    broken: {}".format(*parts, len(self.broken))


def run_rounds(
    broker: EmbeddedBroker, directory: Path, topic: Callable[[], str], seed: int, until: float, round_s: float
) -> Iterator[Tally]:
    """Rounds until it is `until` (monotonic clock), with one of TYPES after the other."""
    tally = Tally()
    while time.monotonic() < until or not tally.numbers:
        print(f"\nround: POK_CHAOS_SEED={seed}", flush=True)
        chance = random.Random(seed)
        creation = {"entries_per_ledger": chance.choice([200, 500, 3_000, 50_000])}
        place = directory / str(seed)
        place.mkdir()
        with Stage(f"kafka://{broker.bootstrap}", place, topic(), chance.choice([1, 2, 5]), **creation) as stage:
            one = Round(stage, broker, seed, round_s)
            found = one.run()
            print(f"    {dict(one.done)}", flush=True)
        tally.add(seed, one.done, found)
        yield tally
        seed = next_seed(seed)


def next_seed(seed: int) -> int:
    """Of the next round: the type goes with it."""
    return (seed * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) % 2**32 // 4 * 4 + (seed + 1) % 4


class Round:
    """One topic, one subscription, up to four workers, and what chance does to them and to the broker."""

    def __init__(self, stage: Stage, broker: EmbeddedBroker, seed: int, seconds: float) -> None:
        self._random = random.Random(seed)
        self._seconds = seconds
        self._broker = broker
        self._stage = stage
        self._pause = threading.Event()
        self._publishing = self._random.uniform(0.5, 3.0)
        self.type = TYPES[seed % len(TYPES)]
        self._stand: Stand = stage.subscription(self.type)
        self.done: Counter[str] = Counter()

    def run(self) -> Verdict:
        publisher = self._stage.publish(
            int(self._seconds * 1000 / self._publishing),
            pace_ms=self._publishing,
            batch=self._random.choice([1, 1, 4, 20]),
            keys=97 if self.type == "KeyShared" else 0,
        )
        self._join()
        until(lambda: publisher.confirmed, "the publisher is at work", _FINISH_S)
        until(lambda: self._stand.workers[0].received(), "the first worker is at work", _FINISH_S)
        self._do(self._write_absurd_records)  # in each round, whatever chance does
        now = time.monotonic()
        ends, outage = now + self._seconds, now + self._seconds * self._random.uniform(0.2, 0.6)
        while time.monotonic() < ends:
            if time.monotonic() < outage or any(self.done[name] for name in ("restart", "kill_broker", "pause_broker")):
                self._act()
            else:
                self._do(self._random.choice([self._restart, self._kill_broker, self._pause_broker]))
            self._pause.wait(self._random.uniform(0.1, 3.0))
        for worker in self._stopped():
            worker.go_on()
        publisher.stop(_FINISH_S)
        assert publisher.done(), f"the publisher is stuck at {publisher.sent}"
        for worker in self._stand.workers:
            assert worker.alive or worker.killed_at, f"{worker.name} died by itself: {worker.log.read_text()[-2000:]}"
        for worker in self._running():
            worker.until(lambda w=worker: self._answered(w), "answers", _FINISH_S)  # type: ignore[misc]
        self._finish()
        self._stage.check_publishing(self._stage.sent())
        found = self._stand.verdict()
        found.broken += self._stand.missing_after_compaction()
        return found

    def _finish(self) -> None:
        """One worker that is certain to be served works off what the others left."""
        for worker in self._running():
            worker.kill()
        last = self._stand.worker(flush_every=100, quick_cleaner=True)
        self._stand.warm(last)
        until(last.is_let_in, "the last worker is let in", _FINISH_S)
        self._stand.until_worked_off(within_s=_FINISH_S)

    # What chance may do -------------------------------------------------------------------------------------------

    def _act(self) -> None:
        running, stopped = self._running(), self._stopped()
        moves: list[tuple[int, Callable[[], None]]] = [
            (1, self._restart),
            (1, self._kill_broker),
            (1, self._pause_broker),
            (2, self._write_absurd_records),
        ]
        if len(running) + len(stopped) < MAX_WORKERS:
            moves.append((6 if not running else 3, self._join))
        if running:
            moves += [(3, self._kill), (2, self._stop), (2, self._close), (3, self._seek)]
        if any(map(self._is_out, running)):
            moves.append((3, self._come_back))
        if stopped:
            moves += [(3, self._go_on), (1, self._kill_stopped)]
        if running and not stopped:
            moves.append((1, self._rest))
        weights, actions = zip(*moves, strict=True)
        self._do(self._random.choices(actions, weights)[0])

    def _do(self, action: Callable[[], None]) -> None:
        self.done[action.__name__.strip("_")] += 1
        action()

    def _write_absurd_records(self) -> None:
        self._stage.write_absurd_records(self._random, self._random.randint(1, 6))

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

    def _rest(self) -> None:
        """Everybody leaves in good order, and Kafka forgets the group as it does after seven days: then one comes."""
        running = self._running()
        for worker in running:
            worker.tell("close")
        for worker in running:
            worker.until(lambda w=worker: self._is_out(w), "closed", _FINISH_S)  # type: ignore[misc]
        self._stand.forget_group(_FINISH_S)
        running[0].try_to_subscribe()

    def _come_back(self) -> None:
        self._random.choice([worker for worker in self._running() if self._is_out(worker)]).try_to_subscribe()

    def _seek(self) -> None:
        """One that received something is asked, if there is one, whoever owns the partition now."""
        running = self._running()
        self._random.choice([worker for worker in running if worker.received()] or running).tell("seek")

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
        ordered = self.type in ORDERED
        return {
            "cumulative": self._random.choice([0, 7, 100]) if ordered else 0,
            "nack_every": self._random.choice([0, 500, 2_000] if ordered else [0, 20, 200]),
            "nack_delay_ms": self._random.choice([20, 200, 1_000]),
            "residues": tuple(sorted(self._random.sample(range(9), self._random.choice([3, 5, 9])))),
            "shuffle": self._random.choice([0, 0, 50, 3_000]),
            "flush_every": self._random.choice([0, 5, 37, 200, 5_000]),
            "pace_ms": self._random.choice([0.0, 0.0, 1.0]),
            "persist_ms": self._random.choice([2, 20, 200, 1_000]),
            "queue": self._random.choice([1, 10, 1_000]),
            "clock_ahead_s": self._random.choice([0, 0, _HOUR_S, -_HOUR_S]),
            "quick_cleaner": True,
            "metadata_chars": self._random.choice([4_095, 300, 300]),
        }

    def _running(self) -> list[WorkerProcess]:
        return [worker for worker in self._stand.workers if worker.alive and not worker.stopped]

    def _stopped(self) -> list[WorkerProcess]:
        return [worker for worker in self._stand.workers if worker.alive and worker.stopped]

    @staticmethod
    def _is_out(worker: WorkerProcess) -> bool:
        """It closed its consumer, lost it, or was refused one, and was not asked again."""
        last = worker.look().last("sbcf")
        return last is not None and last.kind != "s" and Round._answered(worker)

    @staticmethod
    def _answered(worker: WorkerProcess) -> bool:
        return worker.asked <= worker.count("s") + worker.count("b") + worker.count("f")
