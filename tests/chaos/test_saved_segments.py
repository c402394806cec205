"""States too big for a commit's metadata (segments and a marker), while their writers are killed and stopped."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.stage import Stage, Stand
from tests.waiting import until

pytestmark = pytest.mark.kafka

MakeStage = Callable[..., Stage]

HOLEY = {"residues": (0, 1, 2, 3, 4), "shuffle": 4_000, "persist_ms": 3, "flush_every": 500}
"""Every other message stays a hole, the others are acknowledged in random order: one entry takes two bytes, and 1,600
entries are too many for the metadata."""


def is_in_segments(stand: Stand) -> bool:
    """The newest state that Kafka has does not fit into its commit's metadata."""
    samples = stand.sampler.samples
    state = samples[-1].state() if samples else None
    return state is not None and state.marker_offset is not None


def test_a_big_state_survives_kills_in_the_middle_of_saves(stage: MakeStage) -> None:
    on = stage(1, entries_per_ledger=3_000)
    on.publish(40_000).wait()
    stand = on.subscription("Exclusive")
    for _ in range(2):
        worker = stand.join(**HOLEY, pace_ms=0.1)
        worker.until(worker.received, "receives")
        before = worker.received()
        until(lambda: is_in_segments(stand), "its state is in segments")
        until(lambda w=worker, n=before: w.received() > n + 6_000, "it saves more")  # type: ignore[misc]
        worker.kill()
    found = stand.verdict()
    assert not found.broken
    assert found.kills == 2


def test_a_big_state_moves_while_saves_are_in_flight(stage: MakeStage) -> None:
    on = stage(2, entries_per_ledger=3_000)
    on.publish(60_000).wait()
    shared = on.subscription("Shared")
    first = shared.join(**HOLEY)
    until(lambda: is_in_segments(shared), "its state is in segments")
    # What the first one has received and not acknowledged stays with it: the others live on what comes.
    more = on.publish(name="more", pace_ms=0.3)
    for _ in range(3):
        other = shared.worker(**HOLEY)
        shared.warm(other)
        other.subscribe()
        other.until(other.owned, "owns a partition")
        other.until(lambda other=other: other.received() > 2_000, "receives")  # type: ignore[misc]
        other.close()
    more.stop()
    first.close()
    assert not shared.verdict().broken


def test_a_former_owner_wakes_up_during_anothers_segment_save(stage: MakeStage) -> None:
    on = stage(1, entries_per_ledger=3_000)
    on.publish(60_000).wait()
    stand = on.subscription("Failover")
    owner, other = stand.join(**HOLEY), stand.join(**HOLEY)
    until(lambda: is_in_segments(stand), "one of them has its state in segments")
    if not owner.received():
        owner, other = other, owner
    owner.stop()
    until(lambda: other.owned() == {0}, "the other one takes over")
    until(lambda: other.received() > 3_000, "it saves")
    owner.go_on()
    owner.until(lambda: owner.count("l"), "learns that it lost its partition")
    on.publish(10_000, name="more")  # the other one may be through with the first ones by now
    before = len(stand.received())
    until(lambda: len(stand.received()) > before + 3_000, "it goes on, by leases to the woken one")
    other.kill()
    until(lambda: owner.last_owned_after_loss(), "the woken one takes over again")
    owner.close()
    found = stand.verdict()
    assert not found.broken
