"""Retry letters: their properties and their topic."""

from __future__ import annotations

from datetime import timedelta

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.client.consumer.dead_letters import Letter, RetryTopics

TOPIC = "persistent://public/default/orders"
ID = "3:5:-1"
ORIGIN = {
    "REAL_TOPIC": TOPIC,
    "REAL_SUBSCRIPTION": "audit",
    "ORIGIN_MESSAGE_ID": ID,
    "ORIGIN_MESSAGE_IDY_TIME": ID,
}


def retries(policy: pulsar.ConsumerDeadLetterPolicy | None = None) -> RetryTopics:
    return RetryTopics.of(TOPIC, "audit", policy)


def test_topics_are_named_after_topic_and_subscription_and_sixteen_retries_are_the_default() -> None:
    made = retries()
    assert made.retry_topic == f"{TOPIC}-audit-RETRY"
    assert made.dead_letters.dead_letter_topic == f"{TOPIC}-audit-DLQ"
    assert made.dead_letters.max_redeliver_count == 16
    assert made.dead_letters.initial_subscription_name == ""


def test_a_policy_is_kept_and_gets_the_topic_it_does_not_name() -> None:
    named = retries(pulsar.ConsumerDeadLetterPolicy(3, "dead", "first")).dead_letters
    assert (named.max_redeliver_count, named.dead_letter_topic, named.initial_subscription_name) == (3, "dead", "first")
    unnamed = retries(pulsar.ConsumerDeadLetterPolicy(3)).dead_letters
    assert (unnamed.max_redeliver_count, unnamed.dead_letter_topic) == (3, f"{TOPIC}-audit-DLQ")


def test_a_policy_names_the_retry_topic() -> None:
    made = retries(pulsar.ConsumerDeadLetterPolicy(3, retry_letter_topic="again"))
    assert made.retry_topic == "persistent://public/default/again"


def test_the_first_letter_says_where_it_comes_from() -> None:
    assert retries().letter({"a": "1"}, ORIGIN, 1500, {"b": "2"}) == Letter(
        f"{TOPIC}-audit-RETRY",
        "",
        {
            "a": "1",
            "b": "2",
            **ORIGIN,
            "RECONSUMETIMES": "1",
            "DELAY_TIME": "1500",
        },
        timedelta(milliseconds=1500),
    )


@pytest.mark.parametrize("most", [1, 2, 16])
def test_a_letter_of_a_letter_counts_on_and_keeps_its_origin_until_it_is_dead(most: int) -> None:
    topics = retries(pulsar.ConsumerDeadLetterPolicy(most, "dead", "first"))
    properties: dict[str, str] = {}
    origin = ORIGIN
    for times in range(1, most + 2):
        letter = topics.letter(properties, origin, times, {})
        assert letter.properties["RECONSUMETIMES"] == str(times)
        assert letter.properties["DELAY_TIME"] == str(times)
        assert letter.properties["REAL_TOPIC"] == TOPIC
        assert letter.properties["ORIGIN_MESSAGE_ID"] == letter.properties["ORIGIN_MESSAGE_IDY_TIME"] == ID
        expected = ("dead", "first", None) if times > most else (topics.retry_topic, "", timedelta(milliseconds=times))
        assert (letter.topic, letter.initial_subscription, letter.deliver_after) == expected
        properties, origin = letter.properties, dict.fromkeys(ORIGIN, "of the letter before")


def test_properties_of_the_call_win_over_those_of_the_message() -> None:
    assert retries().letter({"a": "old", "c": "kept"}, ORIGIN, 0, {"a": "new"}).properties["a"] == "new"


@pytest.mark.parametrize("count", ["", "many", "-1", "1.5", "²"])
def test_a_count_that_is_no_number_is_refused(count: str) -> None:
    with pytest.raises(pulsar.InvalidMessage, match="RECONSUMETIMES must be a number"):
        retries().letter({"RECONSUMETIMES": count}, ORIGIN, 0, {})
