"""The options of dead letters."""

from __future__ import annotations

import pytest

from pulsar_on_kafka_spark.base.errors import InvalidReadOption
from pulsar_on_kafka_spark.options.letter_options import parse_letter_options

GIVEN = {"service.url": "kafka://localhost:9092", "topic": "orders", "subscription": "s"}


def test_names_count_as_those_of_reads() -> None:
    options = parse_letter_options({**GIVEN, "dead_letter_topic": "bad", "reason_column": "why", "reason": None})
    assert (options.subscription, options.dead_letter_topic, options.initial_subscription) == ("s", "bad", "")
    assert (options.reason, options.reason_column) == ("", "why")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscription": None}, "no subscription is given: expected subscription, whose messages these are"),
        ({"reason": 7}, "reason is 7, expected a text"),
        ({"deadLetterTopic": " "}, "deadLetterTopic is ' ', expected a text"),
        ({"deadLeterTopic": "bad"}, "option deadLeterTopic is unknown, did you mean deadLetterTopic"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidReadOption, match=said):
        parse_letter_options({**GIVEN, **options})
