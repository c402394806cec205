"""Other threads end a consumer's wait. No broker is needed: no record ever comes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from pulsar_on_kafka.base.worker import aside
from pulsar_on_kafka.kafka.poll_wake import PollWake

LONG_S = 60.0


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    made = Consumer(
        {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0, "error_cb": lambda error: None}
    )
    yield made
    made.close()


def test_the_installed_version_can_be_woken(consumer: Consumer) -> None:
    wake = PollWake(consumer)
    assert wake.works, "test this version of confluent-kafka, and add it to `_TESTED`"
    wake.close()


def test_a_wake_ends_the_wait_that_runs_and_the_next_one(consumer: Consumer) -> None:
    wake = PollWake(consumer)
    begun_s = time.monotonic()
    aside("pok-test-wake", wake.wake)
    assert consumer.consume(1, LONG_S) == []
    wake.wake()
    assert consumer.consume(1, LONG_S) == []
    assert time.monotonic() - begun_s < LONG_S
    wake.close()


def test_after_its_end_it_wakes_nothing(consumer: Consumer) -> None:
    wake = PollWake(consumer)
    wake.close()
    wake.close()
    wake.wake()
    assert not wake.works
