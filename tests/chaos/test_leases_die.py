"""Many processes on one partition: its owner is killed, a member is killed, one sleeps and one seeks."""

from __future__ import annotations

from collections.abc import Callable, Collection
from operator import attrgetter

import pytest

from tests.chaos.evidence import Position
from tests.chaos.processes import WorkerProcess
from tests.chaos.stage import Stage, Stand
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.kills]

MakeStage = Callable[..., Stage]
KEYS = 40
ALL = tuple(range(10))
"""Every message is acknowledged: one that is not would keep its key with its holder for good."""
ORDERS = {"flush_every": 37, "nack_every": 60, "pace_ms": 0.5, "residues": ALL}


def go_on_by(stand: Stand, count: int, *workers: WorkerProcess) -> None:
    """Each of these receives so many messages more."""
    before = [worker.received() for worker in workers]
    until(
        lambda: all(worker.received() >= had + count for worker, had in zip(workers, before, strict=True)),
        f"{stand.type}: {[worker.name for worker in workers]} receive {count} more",
    )


def owner_of(workers: Collection[WorkerProcess]) -> WorkerProcess:
    owners = [worker for worker in workers if worker.alive and not worker.stopped and worker.owned() == {0}]
    assert len(owners) == 1
    return owners[0]


def seek(worker: WorkerProcess) -> None:
    """To behind one of the messages that it received lately."""
    before = worker.count("K")
    worker.tell("seek")
    worker.until(lambda: worker.count("K") > before, "has sought")


def check_key_order(on: Stage, stand: Stand) -> None:
    """Whoever received it: the first time that a message is received everything before it of its key was, or a seek
    had passed it."""
    numbers = {position: int(value.partition(b":")[2]) for position, value in on.sent().items()}
    positions = {number: position for position, number in numbers.items()}
    seeks = [seek for worker in stand.workers for seek in worker.look().seeks]
    receipts = [receipt for worker in stand.workers for receipt in worker.look().receipts]
    known: set[Position] = set()
    last: dict[int, int] = {}
    for receipt in sorted(receipts, key=attrgetter("at")):
        if receipt.position in known or receipt.position not in numbers:
            continue
        known.add(receipt.position)
        number = numbers[receipt.position]
        key = number % KEYS
        passed = range(last.get(key, key - KEYS) + KEYS, number, KEYS)
        missed = [
            each
            for each in passed
            if not any(sought.begin < receipt.at and not sought.resets(positions[each]) for sought in seeks)
        ]
        waited = any(sought.begin < receipt.at for sought in seeks) and number < last.get(key, 0)
        assert waited or not missed, f"k{key}: {number} after {last.get(key)}, {missed} left out"
        last[key] = max(number, last.get(key, number))


def work_off(on: Stage, stand: Stand, kills: int, stops: int) -> None:
    stand.until_worked_off(ALL)
    if stand.type == "KeyShared":
        check_key_order(on, stand)
    found = stand.verdict()
    on.check_publishing(on.sent())
    assert not found.broken, found
    assert (found.kills, found.stops) == (kills, stops)
    assert not found.unexplained, found


def deaths_and_sleep(on: Stage, type_: str, *, at_once: bool = False) -> None:
    """`at_once`: all that dies dies in the same moment."""
    publisher = on.publish(pace_ms=4, keys=KEYS)
    stand = on.subscription(type_)
    workers = stand.join_many(4, **ORDERS)
    go_on_by(stand, 100, *workers)
    sleeper = next(worker for worker in workers if not worker.owned())
    sleeper.stop()
    owner = owner_of(workers)
    owner.kill()
    others = [worker for worker in workers if worker not in (sleeper, owner)]
    if at_once:
        others.pop().kill()
    seek(others[0])  # done when the next owner has heard of it
    until(lambda: any(worker.owned() for worker in others), "another one owns it")
    go_on_by(stand, 100, *others)
    if not at_once:
        next(worker for worker in others if not worker.owned()).kill()
    sleeper.go_on()
    go_on_by(stand, 100, owner_of(others), sleeper)
    publisher.stop()
    work_off(on, stand, kills=2, stops=1)


def active_ones_die_and_sleep(on: Stage) -> None:
    """The active consumer is the first by name, whoever owns the partition."""
    publisher = on.publish(pace_ms=4, keys=KEYS)
    stand = on.subscription("Failover")
    workers = stand.join_many(4, **ORDERS)
    go_on_by(stand, 100, workers[0])
    workers[0].stop()
    owner = next((worker for worker in workers[1:] if worker.owned()), workers[1])
    owner.kill()
    left = [worker for worker in workers[1:] if worker is not owner]
    go_on_by(stand, 100, left[0])
    seek(left[0])
    go_on_by(stand, 100, left[0])
    workers[0].go_on()
    go_on_by(stand, 100, workers[0])
    known_s = min(receipt.at for receipt in workers[0].look().receipts)
    late = [receipt for receipt in left[1].look().receipts if receipt.at > known_s]
    assert not late or left[1].count("o"), "an owner, or the first one of those that it knew at the beginning, got any"
    owner_of([workers[0], *left]).kill()
    alive = [worker for worker in workers if worker.alive]
    go_on_by(stand, 100, alive[0])
    publisher.stop()
    work_off(on, stand, kills=2, stops=1)


def test_processes_that_share_keys_die_and_sleep(stage: MakeStage) -> None:
    deaths_and_sleep(stage(1), "KeyShared", at_once=True)


def test_active_consumers_of_failover_die_and_sleep(stage: MakeStage) -> None:
    active_ones_die_and_sleep(stage(1))


@pytest.mark.soak
@pytest.mark.parametrize("round_", range(5))
@pytest.mark.parametrize("type_", ["Shared", "KeyShared", "Failover"])
def test_the_same_many_times(stage: MakeStage, type_: str, round_: int) -> None:
    if type_ == "Failover":
        active_ones_die_and_sleep(stage(1))
    else:
        deaths_and_sleep(stage(1), type_)
