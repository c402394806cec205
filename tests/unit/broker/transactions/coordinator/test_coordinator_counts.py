"""A coordinator's counts, turn by turn."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.meters import CoordinatorMeter
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TxnStatus
from pulsar_on_kafka_mapping.state.transactions.transaction_requests import AddPartitions, Begin, End
from tests.unit.broker.transactions.serving.test_coordinator import NEVER, PARTITION, World


@pytest.fixture
def world() -> World:
    return World()


def ended(meter: CoordinatorMeter) -> tuple[int, int, int, int]:
    return meter.created, meter.committed, meter.aborted, meter.timed_out


def unfinished(meter: CoordinatorMeter) -> dict[TxnStatus, int]:
    return {TxnStatus(status): many for status, many in meter.unfinished.items() if many}


def test_what_begins_and_ends_is_counted_once_with_its_time(world: World) -> None:
    coordinator = world.coordinator()
    kept, dropped, running = (world.do(coordinator, Begin(60_000)) for _ in range(3))
    assert unfinished(world.meter) == {TxnStatus.OPEN: 3}
    world.clock.ms += 700
    world.do(coordinator, End(kept, commit=True))
    world.do(coordinator, End(dropped, commit=False))
    world.do(coordinator, End(kept, commit=True))
    assert ended(world.meter) == (3, 1, 1, 0)
    assert unfinished(world.meter) == {TxnStatus.OPEN: 1}
    assert dict(world.meter.executions.cumulative_ms())["500"] == 0
    assert dict(world.meter.executions.cumulative_ms())["1000"] == 2
    assert world.meter.executions.sum_s == pytest.approx(1.4)
    assert sum(world.meter.ends.counts) == 2
    world.clock.ms += 200_000
    coordinator.turn(NEVER)
    coordinator.turn(NEVER)
    coordinator.turn(NEVER)
    assert world.status(running) is TxnStatus.ABORTED
    assert ended(world.meter) == (3, 1, 2, 1)


def test_what_cannot_be_ended_stays_visible(world: World) -> None:
    coordinator = world.coordinator()
    txn = world.do(coordinator, Begin(60_000))
    world.do(coordinator, AddPartitions(txn, (PARTITION,)))
    world.effects.broken.add(PARTITION.topic)
    coordinator.submit(End(txn, commit=True), NEVER)
    for _ in range(3):
        coordinator.turn(NEVER)
    assert unfinished(world.meter) == {TxnStatus.COMMITTING: 1}
    world.effects.broken.clear()
    world.clock.ms += 60_000
    for _ in range(3):
        coordinator.turn(NEVER)
    assert (unfinished(world.meter), ended(world.meter)) == ({}, (1, 1, 0, 0))
    assert world.meter.ends.sum_s == 60


def test_a_new_owner_counts_only_what_begins_and_ends_with_it(world: World) -> None:
    first = world.coordinator()
    inherited = world.do(first, Begin(60_000))
    first.resign()
    assert unfinished(world.meter) == {}
    world.meter = CoordinatorMeter()
    second = world.coordinator()
    assert unfinished(world.meter) == {TxnStatus.OPEN: 1}
    world.do(second, End(inherited, commit=True))
    assert ended(world.meter) == (0, 1, 0, 0)


def test_an_append_that_failed_and_is_tried_again_counts_once(world: World) -> None:
    coordinator = world.coordinator()
    txn = world.do(coordinator, Begin(60_000))
    future = coordinator.submit(End(txn, commit=True), NEVER)
    world.log.trouble, world.log.written_in_spite_of_it = errors.AppendOutcomeUnknown("lost"), True
    with pytest.raises(errors.AppendOutcomeUnknown):
        coordinator.turn(NEVER)
    for _ in range(4):
        coordinator.turn(NEVER)
    assert future.result(0) == txn
    assert ended(world.meter) == (1, 1, 0, 0)
