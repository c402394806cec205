"""Options of a stream."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_on_kafka_spark.base.errors import InvalidReadOption
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
        ({"topicsPattern": "orders.*"}, "give topic or topics"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidReadOption, match=expected):
        parse_stream_options({**REQUIRED, **given})
