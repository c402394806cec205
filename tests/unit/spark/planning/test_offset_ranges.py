"""Offsets that are fetched."""

from __future__ import annotations

from pulsar_on_kafka_spark.planning.offset_ranges import (
    MAX_RANGES,
    Range,
    assign_json,
    offsets_json,
    scans,
    split,
    without_holes,
)


def test_the_largest_holes_are_left_out() -> None:
    whole = Range(0, 1000)
    assert without_holes(whole, [Range(0, 100), Range(200, 210), Range(900, 1000)], 50) == [Range(100, 900)]
    assert without_holes(whole, [Range(0, 1000)], 1) == []
    assert without_holes(Range(5, 5), [], 1) == []
    many = [Range(start, start + 10 + start // 40) for start in range(0, 1000, 50)]
    left = without_holes(whole, many, 1)
    assert len(left) <= MAX_RANGES
    assert left[-1] == Range(many[-1].end, 1000)


def test_scans_take_one_range_of_each_partition() -> None:
    ranges = {0: [Range(0, 1), Range(5, 6)], 1: [], 2: [Range(7, 8)]}
    assert scans(ranges) == [{0: Range(0, 1), 2: Range(7, 8)}, {0: Range(5, 6)}]
    assert scans({0: []}) == []


def test_offsets_as_spark_wants_them() -> None:
    assert offsets_json("t", {1: 5, 0: 3}) == '{"t": {"0": 3, "1": 5}}'
    assert assign_json("t", [1, 0]) == '{"t": [0, 1]}'


def test_ranges_are_split_at_an_offset_of_each_partition() -> None:
    ranges = {0: [Range(0, 10), Range(20, 30)], 1: [Range(5, 6)], 2: [Range(0, 4)], 3: []}
    below, above = split(ranges, {0: 22, 1: 0, 3: 1})
    assert below == {0: [Range(0, 10), Range(20, 22)], 2: [Range(0, 4)]}
    assert above == {0: [Range(22, 30)], 1: [Range(5, 6)]}
    assert split(ranges, {}) == ({0: [Range(0, 10), Range(20, 30)], 1: [Range(5, 6)], 2: [Range(0, 4)]}, {})
    assert split({0: [Range(0, 10)]}, {0: 10}) == ({0: [Range(0, 10)]}, {})
