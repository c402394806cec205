"""Processes whose clocks differ by hours: what they say of time to one another is by the brokers' clock."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.producers.heartbeats import LIFE_MS
from pulsar_on_kafka.broker.metadata.subscriptions.subscription_holders import CLAIM_MS
from pulsar_on_kafka_mapping.state.metadata.metadata_records import decode_subscription
from tests.steps import Unique

HOUR_MS = 3_600_000
_BUSY_MS = 60_000
"""What a busy machine may put between two looks at a clock."""

pytestmark = pytest.mark.kafka


class SkewedClock(SystemClock):
    def __init__(self, skew_ms: int) -> None:
        self._skew_ms = skew_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._skew_ms


@pytest.fixture(params=[HOUR_MS, -HOUR_MS], ids=["behind one that is ahead", "ahead of one that is behind"])
def processes(
    request: pytest.FixtureRequest, service_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[pulsar.Client]]:
    """Two nodes whose clocks differ by two hours."""
    with ExitStack() as stack:
        clients = []
        for skew_ms in (request.param, -request.param):
            monkeypatch.setattr(
                "pulsar_on_kafka.broker.node.services.SystemClock", lambda skew_ms=skew_ms: SkewedClock(skew_ms)
            )
            made = pulsar.Client(service_url, kafka_config={"client.rack": secrets.token_hex(4)})
            stack.callback(made.close)
            made._session.node()
            clients.append(made)
        yield clients


def test_a_live_producer_is_neither_thrown_out_nor_there_for_hours(
    processes: list[pulsar.Client], unique: Unique
) -> None:
    topic, (first, second) = unique(), processes
    mode = pulsar.ProducerAccessMode.Exclusive
    producer = first.create_producer(topic, access_mode=mode)
    with pytest.raises(pulsar.PulsarException):
        second.create_producer(topic, access_mode=mode)
    producer.send(b"it has the topic")
    name = f"persistent://public/default/{topic}"
    node = second._session.node()
    (claim,) = node.producers.claims_of(name, Deadline.after(20)).claims.values()
    assert abs(claim.deadline_ms - node.clock.now_ms()) < LIFE_MS + _BUSY_MS
    producer.close()
    second.create_producer(topic, access_mode=mode).close()


def test_a_claim_of_an_exclusive_consumer_lasts_seconds(processes: list[pulsar.Client], unique: Unique) -> None:
    topic, (first, second) = unique(), processes
    consumer = first.subscribe(topic, "s")
    with pytest.raises(pulsar.ConsumerBusy):
        second.subscribe(topic, "s")
    subscriptions = second._session.node().subscriptions
    name = f"persistent://public/default/{topic}"
    current = subscriptions._entities.read((name, "s"), Deadline.after(20))
    assert current is not None
    claim = decode_subscription(current.value).claim
    assert claim is not None
    assert abs(claim.deadline_ms - subscriptions._clock.now_ms()) < CLAIM_MS + _BUSY_MS
    assert abs(subscriptions._clock.now_ms() - time.time() * 1000) < _BUSY_MS
    consumer.close()
    second.subscribe(topic, "s").close()
