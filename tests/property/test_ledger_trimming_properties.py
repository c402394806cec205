"""Trimming, beside a truth that knows every message: who needs it, how old and how large it is."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest

from pulsar_on_kafka.broker.managed_ledger.model import Ledger
from pulsar_on_kafka.broker.managed_ledger.trimming import MEGABYTE, MINUTE_MS, Needs, Retention, trimmable
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.state.metadata.ledger_records import LedgerRecord, LedgerState

LAYOUT = LedgerLayout(7, 10)
TOPIC = "persistent://public/default/orders"


@dataclass
class World:
    """A partition with all its messages."""

    rng: random.Random
    now_ms: int = 100 * MINUTE_MS
    stamps: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    ledgers: list[Ledger] = field(default_factory=list)

    def fill(self) -> None:
        end = self.rng.randrange(70)
        at_ms = 0
        for _ in range(end):
            at_ms += self.rng.randrange(4 * MINUTE_MS)
            self.stamps.append(at_ms + self.rng.choice([0, 0, -3, 5]) * MINUTE_MS)
            self.sizes.append(self.rng.choice([100, MEGABYTE // 4, MEGABYTE]))
        for index in range(self.rng.randrange(3) if end > 30 else 0, end // 10 + 1):
            first, last = LAYOUT.ledger_range(index)
            state = LedgerState.CLOSED if last <= end else LedgerState.OPEN
            size = sum(self.sizes[first:last])
            off = self.rng.randrange(size // 10 + 1)
            believed = max(0, size + self.rng.choice([-1, 0, 1]) * off)
            record = LedgerRecord(TOPIC, state, first, min(last, end), believed, off)
            self.ledgers.append(Ledger(LAYOUT.ledger_id(0, index), record))
        for place in range(self.rng.randrange(3) if self.rng.random() < 0.3 else 0):
            if place < len(self.ledgers) and self.ledgers[place].state is LedgerState.CLOSED:
                ledger = self.ledgers[place]
                self.ledgers[place] = ledger._replace(record=replace(ledger.record, state=LedgerState.DELETING))

    def needs(self) -> Needs:
        def some() -> list[int]:
            return [self.rng.randrange(len(self.stamps) + 1) for _ in range(self.rng.choice([0, 0, 1, 2]))]

        return Needs(some(), some(), some(), some(), self.rng.random() < 0.05)

    def first_young(self, retention: Retention) -> int:
        horizon = retention.horizon_ms(self.now_ms)
        if horizon is None:
            return len(self.stamps)  # not looked at
        return next((at for at, stamp in enumerate(self.stamps) if stamp >= horizon), len(self.stamps))


RETENTIONS = [(0, 0), (-1, -1), (-1, 8), (50, -1), (20, 5), (90, 30), (1, 1), (-1, 1)]


def random_world(seed: int) -> tuple[World, Needs, Retention]:
    rng = random.Random(seed)
    world = World(rng)
    world.fill()
    return world, world.needs(), Retention(*rng.choice(RETENTIONS))


def test_what_goes_is_needed_by_nobody_and_not_retained() -> None:
    gone = 0
    for seed in range(3000):
        world, needs, retention = random_world(seed)
        going = trimmable(world.ledgers, retention, needs, world.first_young(retention))
        listed = [ledger for ledger in world.ledgers if ledger.state is not LedgerState.DELETING]
        assert going == listed[: len(going)], f"seed {seed}: not the first ones"
        left = [ledger for ledger in listed if ledger not in going]
        for place, ledger in enumerate(going):
            gone += 1
            assert ledger.state is LedgerState.CLOSED, f"seed {seed}"
            for who in (needs.cursors, needs.transactions, needs.unsealed, needs.sequences):
                assert all(offset not in range(ledger.end) for offset in who), f"seed {seed}: {ledger} needed by {who}"
            assert not needs.compacted, f"seed {seed}"
            old = all(world.now_ms - world.stamps[at] > retention.time_minutes * MINUTE_MS for at in _offsets(ledger))
            kept = sum(world.sizes[at] for each in [*going[place + 1 :], *left] for at in _offsets(each))
            too_old = retention.time_minutes >= 0 and old
            too_much = retention.size_mb >= 0 and kept >= retention.size_mb * MEGABYTE
            assert too_old or too_much, f"seed {seed}: {ledger} was to be kept by {retention}"
        if left and not needs.compacted and left[0].state is LedgerState.CLOSED:
            _check_rightly_kept(seed, world, needs, retention, left)
    assert gone > 450


def _offsets(ledger: Ledger) -> range:
    return range(ledger.first, ledger.end)


def _check_rightly_kept(seed: int, world: World, needs: Needs, retention: Retention, left: list[Ledger]) -> None:
    """The first that stays has a reason: somebody needs it or what lies before it, or retention keeps it."""
    ledger = left[0]
    everybody = (*needs.cursors, *needs.transactions, *needs.unsealed, *needs.sequences)
    needed = any(offset < ledger.end for offset in everybody)
    horizon = retention.horizon_ms(world.now_ms)
    young = horizon is None or any(world.stamps[at] >= horizon for at in range(ledger.end))
    believed = sum(max(0, each.record.bytes - each.record.bytes_error) for each in left[1:])
    small = retention.size_mb < 0 or believed < retention.size_mb * MEGABYTE
    assert needed or (young and small), f"seed {seed}: {ledger} stays for no reason"


def test_without_retention_a_ledger_goes_with_its_last_acknowledgement() -> None:
    ledgers = [
        Ledger(LAYOUT.ledger_id(0, index), LedgerRecord(TOPIC, state, index * 10, end, 100, 0))
        for index, (state, end) in enumerate(
            [(LedgerState.CLOSED, 10), (LedgerState.CLOSED, 20), (LedgerState.OPEN, 25)]
        )
    ]
    for next_unacked, expected in [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (25, 2)]:
        going = trimmable(ledgers, Retention(), Needs(cursors=[25, next_unacked]), 25)
        assert len(going) == expected, next_unacked
    assert len(trimmable(ledgers, Retention(), Needs(), 25)) == 2  # no subscription: nobody needs anything


@pytest.mark.parametrize(("minutes", "megabytes"), [(0, 5), (5, 0), (-1, 0), (0, -1), (-2, -2), (5, -2)])
def test_retention_that_means_nothing_is_refused(minutes: int, megabytes: int) -> None:
    with pytest.raises(ValueError, match="retention is"):
        Retention(minutes, megabytes)
