"""The gate before librdkafka while a backlog quota is exceeded, beside thousands of histories."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from pulsar_on_kafka.broker.publishing.quota_gate import QuotaGate
from pulsar_on_kafka.exceptions import AlreadyClosed, ProducerBlockedQuotaExceededException
from pulsar_on_kafka.kafka.errors import is_local_refusal
from pulsar_on_kafka.kafka.producer import KafkaProducer
from tests.seeds import for_each_seed


class Handed:
    """A `KafkaProducer` that keeps what it was handed, and now and then has no room."""

    def __init__(self, rng: random.Random) -> None:
        self.taken: list[int] = []
        self.asleep = False
        self._rng = rng

    def produce(self, number: int, *_: Any) -> None:
        if self._rng.random() < 0.1:
            raise BufferError
        self.taken.append(number)

    def wait_for_reports(self) -> None:
        """Room comes by luck."""

    def wake(self) -> None:
        raise AssertionError("it does not sleep")

    def report(self, report: Callable[[], object]) -> None:
        report()


class Sent:
    """A message: how often, and how, its sender heard of it."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def __call__(self, error: Any, _: Any) -> None:
        self.heard.append(error)


def _send(gate: QuotaGate, handed: Handed, number: int, sent: Sent) -> bool:
    """Whether it was taken."""
    produce = gate.over(cast("KafkaProducer", handed), handed.produce)
    while True:
        try:
            produce(number, None, None, 0, sent, None, 0, [])
        except BufferError:
            continue
        except ProducerBlockedQuotaExceededException:
            return False
        return True


@for_each_seed(range(300))
def test_each_message_is_sent_once_in_order_or_its_sender_hears_once(seed: int) -> None:
    rng = random.Random(seed)
    handed, gate = Handed(rng), QuotaGate(0)
    messages: dict[int, Sent] = {}
    refused = set()
    for number in range(60):
        draw = rng.random()
        if draw < 0.1:
            gate.hold()
        elif draw < 0.15:
            gate.refuse("too much")
        elif draw < 0.25:
            gate.open()
        messages[number] = Sent()
        if not _send(gate, handed, number, messages[number]):
            refused.add(number)
    gate.open()
    failed = {number for number, sent in messages.items() if sent.heard}
    assert handed.taken == [number for number in messages if number not in refused | failed]
    assert not refused & failed
    assert all(is_local_refusal(error) for number in failed for error in messages[number].heard)
    assert all(len(messages[number].heard) == 1 for number in failed)
    assert not gate.closed


def test_what_waits_longer_than_a_send_may_ends_with_a_time_out() -> None:
    handed = Handed(random.Random(1))
    patient, hasty = QuotaGate(60_000), QuotaGate(1)
    for gate in (patient, hasty):
        gate.hold()
    waits, late = Sent(), Sent()
    assert _send(patient, handed, 1, waits)
    assert _send(hasty, handed, 2, late)
    threading.Event().wait(0.005)
    patient.expire()
    hasty.expire()
    assert [error.name() for error in late.heard] == ["_MSG_TIMED_OUT"]
    assert waits.heard == []
    patient.give_up()
    assert [is_local_refusal(error) for error in waits.heard] == [True]
    assert isinstance(patient.why(), AlreadyClosed)
    with pytest.raises(AlreadyClosed):
        patient.over(cast("KafkaProducer", handed), handed.produce)(3, None, None, 0, Sent(), None, 0, [])
    assert handed.taken == []


def test_senders_and_the_opening_race_without_loss() -> None:
    handed, gate = Handed(random.Random(2)), QuotaGate(0)
    gate.hold()
    each = 2000

    def send(place: int) -> None:
        for number in range(place * each, (place + 1) * each):
            assert _send(gate, handed, number, Sent())

    senders = [threading.Thread(target=send, args=(place,)) for place in range(3)]
    for sender in senders:
        sender.start()
    while any(sender.is_alive() for sender in senders):
        gate.open()
        gate.hold()
    for sender in senders:
        sender.join()
    gate.open()
    assert sorted(handed.taken) == list(range(3 * each))
