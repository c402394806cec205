"""The official policy classes, and how delays grow."""

from __future__ import annotations

import pytest

import pulsar_on_kafka as pulsar


def test_a_policy_says_what_it_was_given() -> None:
    policy = pulsar.ConsumerDeadLetterPolicy(3, "dead", "inspector")
    assert (policy.max_redeliver_count, policy.dead_letter_topic, policy.initial_subscription_name) == (
        3,
        "dead",
        "inspector",
    )
    assert policy.policy().getMaxRedeliverCount() == 3


def test_what_is_not_given_is_empty() -> None:
    policy = pulsar.ConsumerDeadLetterPolicy(1)
    assert (policy.dead_letter_topic, policy.initial_subscription_name) == ("", "")


@pytest.mark.parametrize("count", [0, -1, None, "3", 1.5])
def test_the_count_is_at_least_one(count: object) -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        pulsar.ConsumerDeadLetterPolicy(count)  # type: ignore[arg-type]


def test_the_builder_builds() -> None:
    builder = pulsar.DeadLetterPolicyBuilder().maxRedeliverCount(2).deadLetterTopic("d").initialSubscriptionName("i")
    policy = builder.build()
    found = (policy.getMaxRedeliverCount(), policy.getDeadLetterTopic(), policy.getInitialSubscriptionName())
    assert found == (2, "d", "i")
    with pytest.raises(ValueError, match="greater than 0"):
        pulsar.DeadLetterPolicyBuilder().maxRedeliverCount(0).build()
    with pytest.raises(TypeError, match="deadLetterTopic"):
        pulsar.DeadLetterPolicyBuilder().deadLetterTopic(5)  # type: ignore[arg-type]


def test_delays_multiply_up_to_the_maximum() -> None:
    backoff = pulsar.MultiplierRedeliveryBackoff(100, 1000, 2)
    assert [backoff.next(count) for count in (-1, 0, 1, 2, 3, 4, 10_000)] == [100, 100, 200, 400, 800, 1000, 1000]


@pytest.mark.parametrize("options", [(-1,), (100, 50), (1, 2, 0.5)])
def test_a_backoff_that_makes_no_sense_is_refused(options: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected|multiplier"):
        pulsar.MultiplierRedeliveryBackoff(*options)
