"""A stream's offset is a text that Spark keeps, and that comes back as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_on_kafka_spark.base.errors import NotReadable
from pulsar_on_kafka_spark.streaming.stream_offset import StreamOffset, TopicPlace, parse_offset

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
    with pytest.raises(NotReadable, match="not of this stream"):
        parse_offset(text)


def test_an_offset_with_a_map_of_tenants_names_its_cluster() -> None:
    plain = StreamOffset({})
    west = StreamOffset({}, cluster="west")
    assert parse_offset(west.json()) == west
    assert '"cluster"' not in plain.json()
    assert (west.is_of("west"), west.is_of("east"), west.is_of(""), plain.is_of("east")) == (True, False, True, True)
