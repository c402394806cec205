"""Who may have a subscription: processes race for it, and never two that exclude each other are served."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from tests.chaos.processes import WorkerProcess, eventually
from tests.chaos.stage import Stage

pytestmark = pytest.mark.kafka

MakeStage = Callable[..., Stage]


def race(workers: Sequence[WorkerProcess]) -> None:
    """All subscribe at the same moment; returns when each was answered."""
    answers = [worker.count("s") + worker.count("b") for worker in workers]
    for worker in workers:
        worker.try_to_subscribe()
    for worker, before in zip(workers, answers, strict=True):
        worker.until("answered", lambda w=worker, n=before: w.count("s") + w.count("b") > n)  # type: ignore[misc]


def holders(workers: Sequence[WorkerProcess]) -> list[WorkerProcess]:
    return [worker for worker in workers if (last := worker.look().last("sbcf")) is not None and last.kind == "s"]


def test_one_of_many_exclusive_subscribers_wins(stage: MakeStage) -> None:
    on = stage(2)
    publisher = on.publish(6_000, pace_ms=1)
    exclusive = on.subscription("Exclusive")
    workers = [exclusive.worker(flush_every=37) for _ in range(4)]
    exclusive.warm(*workers)
    for _ in range(8):
        before = {worker.name: worker.received() for worker in workers}
        race(workers)
        winners = holders(workers)
        assert len(winners) == 1, f"{len(winners)} won at once"
        winner = winners[0]
        winner.until("served", lambda: winner.received() > before[winner.name])  # noqa: B023
        for loser in workers:
            assert loser is winner or loser.received() == before[loser.name], "a loser was served"
            said = loser.look().last("b")
            assert loser is winner or ((said is not None and "held exclusively" in said.text) or "live" in said.text)
        winner.close()
    publisher.stop()
    race(workers)
    exclusive.until_worked_off()
    found = exclusive.verdict()
    assert not found.broken
    assert found.duplicates.keys() <= {"holder closed"}


def test_exclusive_and_shared_are_never_both_served(stage: MakeStage) -> None:
    """They race for a subscription that was Shared, and has been left, with more than one partition to share out."""
    on = stage(4)
    publisher = on.publish(20_000, pace_ms=1)
    stand = on.subscription("Shared")
    sharers = [stand.worker(flush_every=37) for _ in range(2)]
    exclusives = [stand.worker(type="Exclusive", flush_every=37) for _ in range(2)]
    workers = sharers + exclusives
    stand.warm(*workers)
    moment = random.Random(7)
    both = []
    for turn in range(12):
        before = {worker.name: worker.received() for worker in workers}
        order = list(workers)
        moment.shuffle(order)
        race(order)
        eventually("somebody is served", lambda: any(w.received() > before[w.name] + 20 for w in workers))  # noqa: B023
        served = {w.orders.type for w in workers if w.received() > before[w.name]}
        if len(served) > 1:
            both.append((turn, sorted(served)))
        for worker in holders(workers):
            worker.close()
    publisher.stop()
    assert not both, f"served at the same time: {both}"
    stand.join(flush_every=37)
    stand.until_worked_off()
    assert not stand.verdict().broken
