"""A process is killed, or stopped and outlived, between any two writes of a save."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.cuts import POINTS
from tests.chaos.stage import Stage

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1800)]

MakeStage = Callable[..., Stage]

MESSAGES = 8_000
HOLEY = {"residues": (0, 1, 2, 3, 4), "shuffle": 500, "persist_ms": 20, "flush_every": 200, "pace_ms": 0.3}
PATIENCE_S = 300.0


def test_a_process_is_killed_between_any_two_writes_of_a_save(stage: MakeStage) -> None:
    on = stage(1, entries_per_ledger=50)
    on.publish(MESSAGES).wait(PATIENCE_S)
    stands = {point: on.subscription("Shared", point) for point in POINTS}
    doomed = [(point, stand.worker(**HOLEY, cut=(point, "SIGKILL"))) for point, stand in stands.items()]
    for _, worker in doomed:
        worker.try_to_subscribe()
    for point, worker in doomed:
        worker.until_cut("SIGKILL")
        assert [said.text for said in worker.look().of_kind("z")] == [point]
    for point, stand in stands.items():
        found = stand.verdict()
        assert not found.broken, point
        assert found.remaining < MESSAGES, point  # what was durable before is


def test_a_former_owner_wakes_up_between_two_writes_of_a_save(stage: MakeStage) -> None:
    """What it goes on to write harms nobody, and its commit is refused."""
    on = stage(1, entries_per_ledger=50)
    on.publish(MESSAGES).wait(PATIENCE_S)
    stands = {point: on.subscription("Shared", point) for point in ("segments", "marker", "commit")}
    stopped = {point: stand.worker(**HOLEY, cut=(point, "SIGSTOP")) for point, stand in stands.items()}
    for worker in stopped.values():
        worker.try_to_subscribe()
    for worker in stopped.values():
        worker.until_cut("SIGSTOP")
    others = {point: stand.worker(**HOLEY) for point, stand in stands.items()}
    for other in others.values():
        other.try_to_subscribe()
    for other in others.values():
        other.until(other.owned, "takes over", PATIENCE_S)
        other.until(lambda other=other: other.look().durable, "says that something is durable", PATIENCE_S)  # type: ignore[misc]
    for worker in stopped.values():
        worker.go_on()
    for worker in stopped.values():
        worker.until(lambda worker=worker: worker.count("l"), "learns that it lost its partition", PATIENCE_S)  # type: ignore[misc]
    for point, stand in stands.items():
        assert not stand.verdict().broken, point
