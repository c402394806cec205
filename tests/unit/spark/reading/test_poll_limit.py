"""Limits of executors' polls."""

from __future__ import annotations

import pytest

from pulsar_on_kafka_spark.reading.poll_limit import MAX_POLL_BYTES, poll_records


def test_small_records_have_the_default_limit() -> None:
    assert poll_records([]) == poll_records([0]) == poll_records([200] * 50) == poll_records([2_000] * 100) == 50_000


@pytest.mark.parametrize("size", [3_000, 65_536, 900_000, MAX_POLL_BYTES, 2 * MAX_POLL_BYTES])
def test_large_ones_fit_into_the_bytes_of_a_poll(size: int) -> None:
    limit = poll_records([size] * 10)
    assert limit.bit_count() == 1
    assert limit * size <= max(MAX_POLL_BYTES, size)
    assert 2 * limit * size > MAX_POLL_BYTES


def test_a_few_large_records_lower_the_limit_by_their_share() -> None:
    assert poll_records([200] * 99 + [1_000_000]) == 8_192
