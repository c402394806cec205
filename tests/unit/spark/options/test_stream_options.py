"""Options of a stream."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_on_kafka_spark.base.errors import InvalidReadOption
from pulsar_on_kafka_spark.options.read_options import READ_NAMES, STREAM_NAMES, parse_options
from pulsar_on_kafka_spark.options.stream_options import parse_stream_options

REQUIRED = {"service.url": "kafka://localhost:9092", "topic": "orders", "subscription": "lake"}


def test_names_are_as_those_of_reads() -> None:
    found = parse_stream_options({**REQUIRED, "max_offsets_per_trigger": "100", "maxBytesPerTrigger": 5_000})
    assert (found.max_entries, found.max_bytes) == (100, 5_000)
    assert found.read.subscription == "lake"
    assert found.acknowledge


def test_defaults() -> None:
    found = parse_stream_options(REQUIRED)
    assert (found.max_entries, found.max_bytes, found.redelivery_delay_s, found.ack_timeout_s) == (None, None, 60, 120)


def test_without_a_subscription_nothing_is_acknowledged() -> None:
    assert not parse_stream_options({**REQUIRED, "subscription": None}).acknowledge


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"maxOffsetsPerTrigger": 0}, "maxOffsetsPerTrigger is 0, expected a number of 1 or more"),
        ({"maxBytesPerTrigger": "1g"}, "maxBytesPerTrigger is '1g', expected a number of 1 or more"),
        ({"acknowledge": "later"}, "acknowledge is 'later', expected true or false"),
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"startingTime": 17}, "the subscription determines the beginning of a stream"),
        ({"minOffsetsPerTrigger": 9, "maxOffsetsPerTrigger": 8}, "minOffsetsPerTrigger is 9, expected at most"),
        ({"minOffsetsPerTrigger": 9, "maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon', expected a duration such"),
        ({"maxTriggerDelay": "1m"}, "maxTriggerDelay is given without minOffsetsPerTrigger"),
        ({"topicsPattern": "orders.*"}, "give topic or topics"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidReadOption, match=expected):
        parse_stream_options({**REQUIRED, **given})


@pytest.mark.parametrize("name", STREAM_NAMES.values())
def test_an_unknown_option_names_the_nearest_one_of_streams(name: str) -> None:
    for wrong in (name[:-1], name[1:], f"{name}s"):
        with pytest.raises(InvalidReadOption, match=f"option {wrong} is unknown, did you mean {name}"):
            parse_stream_options({**REQUIRED, wrong: 1})
    with pytest.raises(InvalidReadOption, match=f"option {name} belongs to streams"):
        parse_options({**REQUIRED, name: 1})


def test_options_that_streams_refuse_are_not_suggested() -> None:
    with pytest.raises(InvalidReadOption, match="unknown, did you mean startingOffsets"):
        parse_stream_options({**REQUIRED, "endingOffset": "latest"})
    with pytest.raises(InvalidReadOption, match=r"unknown, expected one of service.url, .*maxTriggerDelay") as refused:
        parse_stream_options({**REQUIRED, "xyzzy": 1})
    assert READ_NAMES["topicspattern"] not in str(refused.value)


@pytest.mark.parametrize(("given", "seconds"), [("15m", 900), ("1h30m", 5400), ("500ms", 0.5), (250, 0.25), ("0", 0)])
def test_the_delay_is_a_duration_as_spark_spells_it(given: object, seconds: float) -> None:
    found = parse_stream_options({**REQUIRED, "minOffsetsPerTrigger": 5, "maxTriggerDelay": given})
    assert (found.min_entries, found.max_delay_s) == (5, seconds)
