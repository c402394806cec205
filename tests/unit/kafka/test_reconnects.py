"""While Kafka is away: how often a handle tries to connect, and what is logged of it."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError

from pulsar_on_kafka.base.worker import aside
from pulsar_on_kafka.kafka.errors import ErrorEvents
from pulsar_on_kafka.kafka.settings import KafkaSettings
from tests.waiting import until

ATTEMPTS = 13
MIN_DURATION_S = 2.0
"""So long take that many attempts at least: six a second. librdkafka's own pauses allow 37 a second."""


@pytest.fixture
def closing() -> Iterator[tuple[str, list[float]]]:
    """A proxy of a broker that is away: it closes each connection. Its address, and the times of attempts."""
    times: list[float] = []
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:  # the end of the test
                    return
                times.append(time.monotonic())
                connection.close()

        aside("closing-proxy", accept)
        yield f"127.0.0.1:{listener.getsockname()[1]}", times
        listener.shutdown(socket.SHUT_RDWR)


def test_a_member_of_a_group_tries_a_few_times_a_second(closing: tuple[str, list[float]]) -> None:
    address, times = closing
    config = KafkaSettings(address).group_member(group_id="g", client_id="c", fetch_queue_kbytes=100, partitioned=False)
    consumer = Consumer({**config, "error_cb": lambda _: None})
    consumer.subscribe(["orders"])

    def enough() -> bool:
        consumer.poll(0.1)
        return len(times) >= ATTEMPTS

    until(enough, lambda: f"{len(times)} attempts")
    assert times[ATTEMPTS - 1] - times[0] >= MIN_DURATION_S
    consumer.close()


def test_a_thousand_failed_attempts_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    events = ErrorEvents("reader")
    with caplog.at_level(logging.INFO):
        for number in range(1_000):
            events(KafkaError(KafkaError._TRANSPORT, f"refused (after {number}ms)"))
            events(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == [
        "reader: refused",
        "reader: 1/1 brokers are down",
    ]
    assert "after 999ms" in str(events.latest), "the latest one is kept"
