"""A micro-batch takes no more than its limit, and something of each place."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pulsar_on_kafka_spark.streaming.stream_planner import entries_within, share_out


@given(st.dictionaries(st.integers(0, 20), st.integers(0, 1000)), st.one_of(st.none(), st.integers(0, 5000)))
def test_shares_keep_to_the_limit_and_to_what_there_is(available: dict[int, int], most: int | None) -> None:
    shares = share_out(available, most)
    assert shares.keys() == available.keys()
    assert all(0 <= shares[place] <= available[place] for place in available)
    total = sum(available.values())
    assert sum(shares.values()) == (total if most is None else min(total, most))


@given(st.dictionaries(st.integers(0, 20), st.integers(1, 1000), min_size=1))
def test_every_place_gets_on_while_the_limit_allows_it(available: dict[int, int]) -> None:
    shares = share_out(available, len(available))
    assert set(shares.values()) == {1}


def test_bytes_are_turned_into_records_by_their_mean_size() -> None:
    assert entries_within(10_000, {100: 50, 300: 50}) == 50
    assert entries_within(10, {100: 1}) == 1
    assert entries_within(10, {}) == 10
