"""Many processes on one partition: its owner is killed, a member is killed, a member sleeps beyond its session."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

import pytest

from tests.chaos.processes import WorkerProcess, eventually
from tests.chaos.stage import Stage, Stand

pytestmark = [pytest.mark.kafka, pytest.mark.kills]

MakeStage = Callable[..., Stage]
KEYS = 40
ALL = tuple(range(10))
"""Every message is acknowledged: one that is not would keep its key with its holder for good."""


def go_on_by(stand: Stand, count: int, *workers: WorkerProcess) -> None:
    """Each of these receives so many messages more."""
    before = [worker.received() for worker in workers]
    eventually(
        f"{stand.type}: {[worker.name for worker in workers]} receive {count} more",
        lambda: all(worker.received() >= had + count for worker, had in zip(workers, before, strict=True)),
    )


def owner_of(workers: list[WorkerProcess]) -> WorkerProcess:
    owners = [worker for worker in workers if worker.alive and worker.owned() == {0}]
    assert len(owners) == 1
    return owners[0]


def check_key_order(on: Stage, stand: Stand) -> None:
    """Whoever received it: the first time that a message is received everything before it of its key was."""
    numbers = {position: int(value.partition(b":")[2]) for position, value in on.sent().items()}
    receipts = [receipt for worker in stand.workers for receipt in worker.look().receipts]
    last: dict[int, int] = {}
    known = set()
    for receipt in sorted(receipts, key=attrgetter("at")):
        if receipt.position in known or receipt.position not in numbers:
            continue
        known.add(receipt.position)
        number = numbers[receipt.position]
        key = number % KEYS
        assert number == last.get(key, key - KEYS) + KEYS, f"k{key}: {number} after {last.get(key)}"
        last[key] = number


def deaths_and_sleep(on: Stage, type_: str) -> None:
    publisher = on.publish(pace_ms=4, keys=KEYS)
    stand = on.subscription(type_)
    workers = stand.join_many(4, flush_every=37, nack_every=60, pace_ms=0.5, residues=ALL)
    go_on_by(stand, 100, *workers)
    sleeper = next(worker for worker in workers if not worker.owned())
    sleeper.stop()
    owner = owner_of(workers)
    owner.kill()
    others = [worker for worker in workers if worker not in (sleeper, owner)]
    eventually("another one owns it", lambda: any(worker.owned() for worker in others))
    go_on_by(stand, 100, *others)
    killed = next(worker for worker in others if not worker.owned())
    killed.kill()
    sleeper.go_on()
    go_on_by(stand, 100, owner_of(others), sleeper)
    publisher.stop()
    stand.until_worked_off(ALL)
    if type_ == "KeyShared":
        check_key_order(on, stand)
    found = stand.verdict()
    on.check_publishing(on.sent())
    assert not found.broken, found
    assert (found.kills, found.stops) == (2, 1)
    assert found.duplicates["same process"] == 0, found


@pytest.mark.soak
@pytest.mark.parametrize("round_", range(5))
@pytest.mark.parametrize("type_", ["Shared", "KeyShared"])
def test_processes_that_share_a_partition_die_and_sleep(stage: MakeStage, type_: str, round_: int) -> None:
    deaths_and_sleep(stage(1), type_)
