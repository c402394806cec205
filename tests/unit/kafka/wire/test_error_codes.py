"""Error codes have Kafka's numbers; librdkafka has them too, some by an older name."""

from __future__ import annotations

from confluent_kafka import KafkaError

from pulsar_on_kafka.kafka.wire.error_codes import ErrorCode, error_name, is_retriable

OLDER_NAMES = {
    "NONE": "NO_ERROR",
    "CORRUPT_MESSAGE": "INVALID_MSG",
    "UNKNOWN_TOPIC_OR_PARTITION": "UNKNOWN_TOPIC_OR_PART",
    "NOT_LEADER_OR_FOLLOWER": "NOT_LEADER_FOR_PARTITION",
    "UNKNOWN_SERVER_ERROR": "UNKNOWN",
    "INVALID_TOPIC_EXCEPTION": "TOPIC_EXCEPTION",
    "FETCH_SESSION_TOPIC_ID_ERROR": "ERR_106?",
}
"""The last one is not known to librdkafka."""


def test_a_code_has_kafka_s_number() -> None:
    found = {code.name: KafkaError(code).name() for code in ErrorCode}
    assert {name: known for name, known in found.items() if name != known} == OLDER_NAMES


def test_a_number_of_a_newer_broker_has_a_name() -> None:
    assert (error_name(25), error_name(999)) == ("UNKNOWN_MEMBER_ID", "error 999")


def test_kafka_s_word_decides_whether_an_error_passes() -> None:
    assert is_retriable(ErrorCode.NOT_COORDINATOR)
    assert not is_retriable(ErrorCode.UNKNOWN_MEMBER_ID)
    assert not is_retriable(999)
