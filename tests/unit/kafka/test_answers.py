"""What a failed request says of its execution."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from pulsar_on_kafka.base.errors import DeadlineExceeded, LayerError
from pulsar_on_kafka.kafka.errors import is_answer, translate


def failed(code: int) -> LayerError:
    failure = KafkaException(KafkaError(code))
    translated = translate(failure, "deleting a topic")
    translated.__cause__ = failure
    return translated


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_a_brokers_refusal_is_an_answer(code: int) -> None:
    assert is_answer(failed(code))


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT])
def test_after_any_other_failure_the_request_may_still_be_executed(code: int) -> None:
    assert not is_answer(failed(code))
    assert not is_answer(DeadlineExceeded("no answer in time"))
