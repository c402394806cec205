"""Where a stream stands, as Spark's offset log has it, and how much a batch takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_on_kafka.spark.base.errors import NotReadable
from pulsar_on_kafka.spark.streaming.rate_limits import entries_within, share_out
from pulsar_on_kafka.spark.streaming.stream_offset import StreamOffset, TopicPlace, parse_offset

NUMBERS = st.integers(0, 2**62)
PLACES = st.builds(
    TopicPlace,
    st.tuples(st.text(max_size=22), NUMBERS, NUMBERS),
    st.dictionaries(st.integers(0, 8191), NUMBERS, max_size=5),
)
OFFSETS = st.builds(StreamOffset, st.dictionaries(st.text(max_size=10), PLACES, max_size=3), NUMBERS, NUMBERS)


@given(OFFSETS)
def test_an_offset_comes_back_as_it_was(offset: StreamOffset) -> None:
    assert parse_offset(offset.json()) == offset


@given(OFFSETS)
def test_equal_offsets_are_equal_texts(offset: StreamOffset) -> None:
    backwards = StreamOffset(dict(reversed(list(offset.topics.items()))), offset.again, offset.of)
    assert backwards.json() == offset.json()  # Spark compares texts to know whether there is something


@pytest.mark.parametrize(
    "text", ["", "{}", '{"v":2}', '{"v":1,"again":0,"of":0,"topics":{"a":{}}}', "17", "[]", "null"]
)
def test_anothers_offset_is_refused(text: str) -> None:
    with pytest.raises(NotReadable, match="none of this stream's"):
        parse_offset(text)


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
