"""Redelivery counts that travel with saves."""

from __future__ import annotations

import random

from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.saved_cursor import RecoveredCursor
from pulsar_on_kafka.broker.cursor.store import CursorStore
from pulsar_on_kafka.broker.subscriptions.partition import partition_saves
from pulsar_on_kafka_mapping.state.codecs.layouts import compressed
from pulsar_on_kafka_mapping.state.cursors.cursor_state import Deliveries
from tests.memory_log import MemoryStateLog
from tests.simulation.cursors import DEADLINE, an_identity, prepared, taken_over


def test_counts_of_what_is_acknowledged_are_left_out() -> None:
    found = partition_saves.counts_to_save({1: 2, 2: 2, 3: 1, 4: 0}, lambda offset: offset == 2)
    assert found == Deliveries(0, counts={(0, 2): BitMap64([1]), (0, 1): BitMap64([3])})
    assert found.only_seen
    assert found.matter_from(0)
    assert partition_saves.counts_to_save({2: 1}, lambda offset: offset == 2) is None


def test_the_highest_counts_stay_where_not_all_of_them_fit() -> None:
    rng = random.Random(1)
    counts = {offset: rng.choice((1, 1, 1, 2, 7)) for offset in rng.sample(range(10**6), 5_000)}
    counts.update(dict.fromkeys((3, 10**6), 30))
    found = partition_saves.counts_to_save(counts, lambda offset: False)
    assert found is not None
    assert sum(len(compressed(offsets)) for offsets in found.counts.values()) <= partition_saves.MAX_BYTES
    assert found.counts[0, 30] == BitMap64([3, 10**6])
    assert all(counts[offset] == count for (_, count), offsets in found.counts.items() for offset in offsets)


def test_many_neighbours_fit() -> None:
    found = partition_saves.counts_to_save(dict.fromkeys(range(5_000, 55_000), 3), lambda offset: False)
    assert found == Deliveries(0, counts={(0, 3): BitMap64(range(5_000, 55_000))})


def test_they_come_back_with_the_cursor_until_a_seek() -> None:
    store, identity = CursorStore(MemoryStateLog()), an_identity()
    owned, _ = taken_over(store, identity, RecoveredCursor(CursorState(0, 10), None, "start"))
    owned.saves.includes_counts = True
    owned.redeliveries.counts.update({4: 2, 5: 1})
    assert not owned.saves.dirty or owned.saves.accepted(prepared(store, owned)) is not None
    owned.saves.request_for_counts()
    assert owned.saves.dirty
    found = store.recover(identity, prepared(store, owned).commit, None, 0, DEADLINE)
    assert found.state.deliveries == Deliveries(0, counts={(0, 2): BitMap64([4]), (0, 1): BitMap64([5])})
    found.state.reset(0)
    assert found.state.deliveries is None
