"""Checks of topics that are read: how often Kafka is asked, for whom, and what they raise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import DeadlineExceeded, NoSuchTopic
from pulsar_on_kafka.broker.metadata.incarnation_checks import CHECK_READ_S, IncarnationCheck, IncarnationChecks
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.kafka.records import TopicDescription


def topic(name: str = "orders") -> Topic:
    return cast("Topic", SimpleNamespace(name=name, kafka_topic=name, kafka_topic_id=f"{name} 1"))


class Kafka:
    def __init__(self) -> None:
        self.incarnation = 1
        self.asked: list[str] = []
        self.away = False
        self.seconds = 100.0
        self.checks = IncarnationChecks(self.describe, lambda: self.seconds)

    def describe(self, name: str, deadline: Deadline) -> TopicDescription | None:
        self.asked.append(name)
        if self.away:
            raise DeadlineExceeded("simulated")
        return None if name == "gone" else TopicDescription(name, f"{name} {self.incarnation}", 1)


def test_records_that_come_soon_after_a_check_need_no_other_one() -> None:
    kafka = Kafka()
    check = IncarnationCheck(kafka.checks, topic())
    check.before_delivery()
    assert kafka.asked == []
    kafka.seconds += 2 * CHECK_READ_S
    check.before_delivery()
    check.before_delivery()
    check.while_idle()
    assert kafka.asked == ["orders"]
    kafka.seconds += 10
    check.while_idle()
    assert len(kafka.asked) == 2


def test_another_topic_of_the_name_ends_the_reading_and_a_missing_one_is_reported_by_librdkafka() -> None:
    kafka = Kafka()
    check, gone = IncarnationCheck(kafka.checks, topic()), IncarnationCheck(kafka.checks, topic("gone"))
    kafka.incarnation = 2
    kafka.seconds += 1
    with pytest.raises(NoSuchTopic, match="orders was deleted and made anew"):
        check.before_delivery()
    gone.before_delivery()


def test_brokers_that_do_not_answer_hold_nothing_up_and_are_left_alone_for_a_while() -> None:
    kafka = Kafka()
    check = IncarnationCheck(kafka.checks, topic())
    kafka.away = True
    for _ in range(15):
        kafka.seconds += 1
        check.before_delivery()
    assert len(kafka.asked) == 2
    with pytest.raises(DeadlineExceeded):
        check.now(Deadline.after(1))
