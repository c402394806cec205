"""Ledgers stay in memory or go; saves that are too large for one record."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.broker.cursor import segments
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.budget import MIN_BYTES, HoleBudget, Residency
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.cursor.saved_cursor import Save, SavedCursor
from pulsar_on_kafka.broker.cursor.store import CursorStore
from pulsar_on_kafka_mapping.state.state_topics import CURSORS
from tests.memory_log import MemoryStateLog

TOPIC = "persistent://public/default/orders"
IDENTITY = CursorIdentity(TOPIC, 0, "audit", "orders", "t" * 22, 1, 2, 50_000)
DEADLINE = Deadline.never()


class Cursor:
    """With its own store."""

    def __init__(self, budget: HoleBudget) -> None:
        self.store = CursorStore(MemoryStateLog())
        self.state = CursorState(0, IDENTITY.entries_per_ledger)
        self.saved = SavedCursor(IDENTITY.lineage(b"s" * 16, 1, 0))
        self.residency = Residency(budget)
        self.state.loader = lambda indexes: self.store.loader(IDENTITY, self.saved)(indexes)
        self._saves = 0

    def save(self) -> Save:
        self._saves += 1
        lineage = IDENTITY.lineage(b"s" * 16, 1, self._saves)
        save = self.store.prepare(IDENTITY, self.state, self.saved, lineage, DEADLINE)
        self.saved = save.saved
        return save

    def fill(self, ledger: int, now_s: int) -> None:
        """With every second entry: more than 6 kB."""
        self.state.deleted.now_s = now_s
        base = ledger * IDENTITY.entries_per_ledger
        self.state.acknowledge(list(range(base + 1, base + IDENTITY.entries_per_ledger, 2)))

    def sweep(self, now_s: int) -> int:
        return self.residency.sweep(self.state, self.saved, now_s)


def test_the_least_recently_used_of_all_cursors_goes_first() -> None:
    budget = HoleBudget(MIN_BYTES)
    cursors = [Cursor(budget), Cursor(budget)]
    for cursor in cursors:
        for ledger in range(150):
            cursor.fill(ledger, now_s=ledger)
        cursor.save()
    for now_s in (150, 151, 152):
        for cursor in cursors:
            cursor.sweep(now_s)
    for cursor in cursors:
        here = cursor.state.ledgers_here() - {0}  # mark-delete lies in 0
        away = {index for index in range(150) if cursor.state.is_away(index)}
        assert 0 < len(away) < 149
        assert max(away) < min(here)
        assert len(cursor.state.deleted) == 150 * 25_000
        assert cursor.state.deleted.count_gaps() == 150 * 25_000
    assert budget.used_bytes() <= MIN_BYTES + 2 * 10_000
    cursors[0].residency.forget()
    assert budget.used_bytes() <= MIN_BYTES // 2 + 2 * 10_000


@pytest.mark.parametrize("seed", range(20))
def test_the_second_to_evict_by_is_that_of_all_reports_together(seed: int) -> None:
    """The budget keeps a running sum; here all reports are summed up each time."""
    rng, budget, used = random.Random(seed), HoleBudget(MIN_BYTES), dict[int, dict[int, int]]()
    for now_s in range(300):
        cursor = rng.randrange(8)
        if rng.random() < 0.2:
            used.pop(cursor, None)
            budget.forget(cursor)
            continue
        used[cursor] = {rng.randrange(now_s + 1): rng.randrange(MIN_BYTES // 4) for _ in range(rng.randrange(4))}
        total, left, expected = Counter[int](), MIN_BYTES, 0
        for each in used.values():
            total.update(each)
        for second in sorted(total, reverse=True):
            left -= total[second]
            if left < 0:
                expected = min(second + 1, now_s)
                break
        assert budget.report(cursor, used[cursor], now_s) == expected
        assert budget.used_bytes() == total.total()


def test_what_is_not_saved_stays() -> None:
    cursor = Cursor(HoleBudget(MIN_BYTES))
    for ledger in range(300):
        cursor.fill(ledger, now_s=1)
    assert cursor.sweep(10) == 0
    cursor.save()
    assert cursor.sweep(10) > 0
    assert cursor.sweep(11) == 0


def test_what_is_used_comes_back_and_what_is_changed_is_saved_again() -> None:
    cursor = Cursor(HoleBudget(MIN_BYTES))
    for ledger in range(300):
        cursor.fill(ledger, now_s=ledger)
    cursor.save()
    cursor.sweep(300)
    cursor.sweep(301)
    assert cursor.state.is_away(7)
    assert not cursor.state.is_acknowledged(7 * 50_000)
    assert cursor.state.is_acknowledged(7 * 50_000 + 1)
    assert not cursor.state.is_away(7)
    cursor.state.acknowledge([9 * 50_000])
    assert cursor.save().written_ledgers == {9}
    assert cursor.state.is_acknowledged(9 * 50_000)


@pytest.mark.parametrize("least", [0, -1, MIN_BYTES - 1])
def test_a_budget_that_is_too_small_is_refused(least: int) -> None:
    with pytest.raises(InvalidOption, match=str(least)):
        HoleBudget(least)


def test_a_marker_of_any_size_is_saved_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "LARGEST_RECORD_BYTES", 20_000)
    log = MemoryStateLog()
    store = CursorStore(log)
    identity = CursorIdentity(TOPIC, 0, "audit", "orders", "t" * 22, 1, 2, 10)
    state = CursorState(0, 10)
    state.acknowledge(list(range(1, 100_000, 2)))
    lineage = identity.lineage(b"s" * 16, 1, 0)
    save = store.prepare(identity, state, SavedCursor(lineage), lineage, DEADLINE)
    assert save.saved.marker is not None
    assert save.saved.marker.pages > 5
    found = store.recover(identity, save.commit, None, 0, DEADLINE)
    assert found.saved is not None
    assert found.saved.segments == save.saved.segments
    assert found.saved.marker == save.saved.marker
    assert len(found.state.deleted) == 50_000
    assert found.state.ledgers_here() == {0}
    store.load_all(identity, found, DEADLINE)
    assert found.state.deleted == state.deleted
    store.forget(identity, found.saved, DEADLINE)
    partition = CURSORS.partition_for(TOPIC)
    newest = {
        record.key: record.value
        for batch in log.read(CURSORS, partition, 0, log.end_offset(CURSORS, partition, DEADLINE), DEADLINE)
        for record in batch
    }
    assert len(newest) > 10_000
    assert set(newest.values()) == {None}


def test_a_ledger_of_batches_that_exceeds_a_record_is_saved_in_parts() -> None:
    """50,000 entries of 1,000 messages each, of which every other one is acknowledged: 6.4 MB."""
    store = CursorStore(MemoryStateLog())
    state = CursorState(0, 50_000)
    rng = random.Random(5)
    state.acknowledge_batches({offset: BatchAckSet(1000, rng.getrandbits(1000)) for offset in range(50_000)})
    lineage = IDENTITY.lineage(b"s" * 16, 1, 0)
    save = store.prepare(IDENTITY, state, SavedCursor(lineage), lineage, DEADLINE)
    assert len(save.saved.segments[0].parts) > 6
    assert save.saved.segments[0].summary.batches == 50_000
    found = store.recover(IDENTITY, save.commit, None, 0, DEADLINE)
    assert dict(found.state.batches.items()) == dict(state.batches.items())
