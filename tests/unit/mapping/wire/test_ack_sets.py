"""Ack sets: words of a bit for each message of a batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_on_kafka_mapping.wire.ack_sets import bits_of, indexes_of, words_of

MAX_INDEXES = 10**6


@given(st.integers(1, 300), st.integers(0, 2**320))
def test_bits_are_words_and_bits_again(size: int, bits: int) -> None:
    words = words_of(bits, size)
    assert len(words) == (size + 63) // 64
    assert all(-(2**63) <= word < 2**63 for word in words)
    assert bits_of(words, size) == bits & (1 << size) - 1


@given(st.sets(st.integers(0, 300)))
def test_indexes_are_those_of_the_bits_that_are_set(indexes: set[int]) -> None:
    assert list(indexes_of(sum(1 << index for index in indexes))) == sorted(indexes)


@pytest.mark.parametrize(
    ("words", "size", "bits"),
    [([-1], 3, 0b111), ([], 3, 0), ([5, -1, 7], 65, 5 | 1 << 64), ([0, 1], 64, 0), ([-(2**63)], 64, 1 << 63)],
)
def test_a_client_s_words_are_cut_to_the_batch(words: list[int], size: int, bits: int) -> None:
    assert bits_of(words, size) == bits


def test_what_a_frame_can_say_of_the_largest_batch_is_read_at_once() -> None:
    """Word by word in a growing number it took minutes, in the loop that serves everybody."""
    words = [0] * 5_000_000
    assert bits_of(words, MAX_INDEXES) == 0
    assert sum(1 for _ in indexes_of((1 << MAX_INDEXES) - 1)) == MAX_INDEXES
    assert bits_of(words_of((1 << MAX_INDEXES) - 1, MAX_INDEXES), MAX_INDEXES) == (1 << MAX_INDEXES) - 1
