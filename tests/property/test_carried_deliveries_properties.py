"""Deliveries that go along with a tenant, against messages that know who they are."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.replication_state.delivery_count_transfer import (
    MAX_MESSAGES,
    carried,
    joined,
    merge_deliveries,
    offsets_there,
    reported_deliveries,
    with_news,
)
from pulsar_on_kafka.broker.replication_state.origin_index import OriginIndex
from pulsar_on_kafka.broker.replication_state.progress import SubscriptionSide
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import Origin
from pulsar_on_kafka_mapping.state.cursors.cursor_state import Deliveries

WEST, EAST, NORTH = Origin("west", 5), Origin("east", 9), Origin("north", 2)


@dataclass(frozen=True)
class Message:
    origin: Origin
    there: int


@dataclass(frozen=True)
class Log:
    """Messages, and None for what is none, by offset."""

    origin: Origin
    records: tuple[Message | None, ...]

    def side(self, acknowledged: set[int], deliveries: Deliveries | None) -> SubscriptionSide:
        index = OriginIndex(0)
        for offset, each in enumerate(self.records):
            if each is None:
                index.no_message(offset)
            elif each.origin == self.origin:
                index.published_here(offset)
            else:
                index.copied(offset, each.origin, each.there, 1)
        cursor = CursorState(0, 4)
        cursor.acknowledge(sorted(acknowledged))
        cursor.deliveries = deliveries
        return SubscriptionSide(self.origin, cursor, index, len(self.records))


@st.composite
def logs(draw: st.DrawFn) -> tuple[Log, Log]:
    """Each published some, and has copies of some of the other's and of a third cluster's, in any order."""
    sides: dict[Origin, list[Message | None]] = {WEST: [], EAST: []}
    told: dict[Origin, list[Message]] = {WEST: [], EAST: []}
    for step in draw(
        st.lists(st.sampled_from(["west", "east", "north", "copy west", "copy east", "marker"]), max_size=30)
    ):
        if step in ("west", "east"):
            here = WEST if step == "west" else EAST
            message = Message(here, len(sides[here]))
            sides[here].append(message)
            told[EAST if here is WEST else WEST].append(message)
        elif step == "north":
            message = Message(NORTH, len(told[WEST]) + 100 * len(sides[WEST]))
            for waiting in told.values():
                waiting.append(message)
        elif step == "marker":
            sides[WEST].append(None)
        else:
            here = WEST if step == "copy west" else EAST
            if told[here]:
                copy = told[here].pop(draw(st.integers(0, len(told[here]) - 1)))
                if copy not in sides[here]:
                    sides[here].append(copy)
    return Log(WEST, tuple(sides[WEST])), Log(EAST, tuple(sides[EAST]))


@given(logs())
def test_a_message_is_found_in_the_other_log(both: tuple[Log, Log]) -> None:
    west, east = both
    truth = {mine: east.records.index(each) for mine, each in enumerate(west.records) if each and each in east.records}
    sides = west.side(set(), None), east.side(set(), None)
    messages = [offset for offset, each in enumerate(west.records) if each is not None]
    assert offsets_there(*sides, messages) == truth
    assert offsets_there(sides[1], sides[0], truth.values()) == {theirs: mine for mine, theirs in truth.items()}


@given(logs(), st.data())
def test_what_clusters_tell_of_deliveries_arrives(both: tuple[Log, Log], data: st.DataObject) -> None:
    """Counts and put-off times of what neither side has acknowledged; not what somebody holds."""
    west, east = both
    messages = [offset for offset, each in enumerate(west.records) if each is not None]
    some = st.sets(st.sampled_from(messages), max_size=6) if messages else st.just(set[int]())
    acked, counted, put_off = (data.draw(some) for _ in range(3))
    acked_there = (
        data.draw(st.sets(st.integers(0, max(0, len(east.records) - 1)), max_size=4)) if east.records else set()
    )
    saved = Deliveries(1 << 20, BitMap64(messages), {(3, 2): BitMap64(counted)}, {1000: BitMap64(put_off)})
    said = reported_deliveries(west.side(acked, saved))
    assert all(each.counts or each.put_off for each in said.values())
    found = merge_deliveries(east.side(acked_there, None), said) or Deliveries(0)

    def goes(offsets: set[int]) -> set[int]:
        left = (each for offset, each in enumerate(west.records) if offset in offsets - acked and each in east.records)
        return {theirs for each in left if (theirs := east.records.index(each)) not in acked_there}

    assert (found.limit, set(found.suspects)) == (0, set())
    assert {key: set(offsets) for key, offsets in found.counts.items()} == (
        {(3, 2): goes(counted)} if goes(counted) else {}
    )
    assert {key: set(offsets) for key, offsets in found.put_off.items()} == (
        {1000: goes(put_off)} if goes(put_off) else {}
    )
    assert reported_deliveries(west.side(acked, None)) == {}


def test_what_was_delivered_again_since_is_not_put_off() -> None:
    own = Deliveries(9, BitMap64([8]), {(3, 2): BitMap64([1]), (2, 1): BitMap64([2])}, {500: BitMap64([2])})
    news = Deliveries(0, BitMap64(), {(2, 1): BitMap64([1, 2])}, {700: BitMap64([1, 2, 3])})
    found = with_news(own, news)
    assert found == Deliveries(
        9, BitMap64([8]), {(3, 2): BitMap64([1]), (2, 1): BitMap64([2])}, {700: BitMap64([2, 3])}
    )
    assert with_news(found, news) == found
    assert with_news(None, news) == news


def test_the_first_of_very_many_are_told_of() -> None:
    west = Log(WEST, tuple(Message(WEST, offset) for offset in range(MAX_MESSAGES + 5)))
    saved = Deliveries(0, counts={(2, 1): BitMap64(range(MAX_MESSAGES + 5))})
    assert reported_deliveries(west.side({0}, saved))[WEST].counts == {(2, 1): BitMap64(range(1, MAX_MESSAGES + 1))}


@given(logs(), st.data())
def test_what_was_delivered_goes_along(both: tuple[Log, Log], data: st.DataObject) -> None:
    west, east = both
    messages = [offset for offset, each in enumerate(west.records) if each is not None]
    some = st.sets(st.sampled_from(messages), max_size=6) if messages else st.just(set[int]())
    acked, counted, put_off = (data.draw(some) for _ in range(3))
    limit = data.draw(st.integers(0, len(west.records) + 3))
    acked_there = (
        data.draw(st.sets(st.integers(0, max(0, len(east.records) - 1)), max_size=4)) if east.records else set()
    )
    saved = Deliveries(limit, BitMap64(), {(3, 2): BitMap64(counted)}, {1000: BitMap64(put_off)})
    found = carried(west.side(acked, saved), east.side(acked_there, None)) or Deliveries(0)

    def goes(offsets: set[int]) -> set[int]:
        left = (each for offset, each in enumerate(west.records) if offset in offsets - acked and each in east.records)
        return {theirs for each in left if (theirs := east.records.index(each)) not in acked_there}

    held = {offset for offset in messages if offset < limit} - put_off
    assert found.limit == 0
    assert set(found.suspects) == goes(held)
    assert {o for offsets in found.counts.values() for o in offsets} == goes(counted)
    assert {o for offsets in found.put_off.values() for o in offsets} == goes(put_off)


COUNTED = st.dictionaries(st.tuples(st.integers(1, 3), st.integers(0, 3)), st.sets(st.integers(0, 9)), max_size=3)
DUE = st.dictionaries(st.integers(1, 3), st.sets(st.integers(0, 9)), max_size=3)


@given(COUNTED, DUE, COUNTED, DUE)
def test_joined_deliveries_only_grow_and_joining_again_changes_nothing(
    counts: dict[tuple[int, int], set[int]],
    due: dict[int, set[int]],
    more: dict[tuple[int, int], set[int]],
    later: dict[int, set[int]],
) -> None:
    one, other = (
        Deliveries(0, BitMap64(), {k: BitMap64(v) for k, v in a.items()}, {k: BitMap64(v) for k, v in b.items()})
        for a, b in ((counts, due), (more, later))
    )
    both = joined(one, other) or Deliveries(0)
    for offset in range(10):
        known = [count for each in (counts, more) for count, offsets in each.items() if offset in offsets]
        assert [count for count, offsets in both.counts.items() if offset in offsets] == ([max(known)] if known else [])
        times = [time for each in (due, later) for time, offsets in each.items() if offset in offsets]
        assert [time for time, offsets in both.put_off.items() if offset in offsets] == ([max(times)] if times else [])
    assert (joined(both, other) or Deliveries(0)) == both
