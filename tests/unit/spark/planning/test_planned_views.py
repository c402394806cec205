"""Snapshots as a stream uses them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka_spark.planning.batch_plan import Entries
from pulsar_on_kafka_spark.planning.chunked_messages import WholeChunkedMessage
from pulsar_on_kafka_spark.planning.excluded_offsets import ExcludedOffsets
from pulsar_on_kafka_spark.planning.offset_ranges import Range
from pulsar_on_kafka_spark.planning.planned_views import known_batches, view_of, visible
from pulsar_on_kafka_spark.planning.visibility import PartitionView

OFFSETS = st.one_of(
    st.sets(st.integers(0, 200_000), max_size=50),
    st.tuples(st.integers(0, 150_000), st.integers(1, 140_000)).map(
        lambda at: set(range(at[0], sum(at), 1 + at[0] % 3))
    ),
)


@given(OFFSETS, st.integers(0, 300_000), st.integers(0, 300_000), st.integers(0, 300_000), st.integers(0, 300_000))
def test_visible_is_the_range_without_what_is_excluded(
    excluded: set[int], first: int, last: int, start: int, end: int
) -> None:
    known = ExcludedOffsets()
    known.add_all(BitMap64(excluded))
    found = visible(PartitionView(Range(first, last), known), start, end)
    assert found == BitMap64(set(range(max(first, start), min(last, end))) - excluded)


@given(OFFSETS.filter(bool))
def test_the_snapshot_of_a_plan_shows_its_entries(offsets: set[int]) -> None:
    batches = {min(offsets): (8, 3)}
    view = view_of(Entries(BitMap64(offsets), batches))
    assert visible(view, 0, 10**9) == BitMap64(offsets)
    assert view.excluded.batches == {min(offsets): BatchAckSet(8, 3)}
    assert known_batches(view) == batches


def test_messages_in_chunks_are_shown_apart_from_what_is_whole() -> None:
    message = WholeChunkedMessage((2, 5, 9), 7)
    view = view_of(Entries(BitMap64([4, 9]), chunked={9: message}))
    assert visible(view, 0, 10**9) == BitMap64([4])
    assert view.whole == Range(2, 10)
    assert view.chunked == {9: message}
