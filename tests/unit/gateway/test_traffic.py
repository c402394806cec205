"""Rates of a client's producer or consumer are those of the last interval that is over, as Pulsar's are."""

from __future__ import annotations

from pulsar_on_kafka.gateway.handlers.rate_meter import Meter, time_text


def test_rates_are_those_of_the_last_interval() -> None:
    meter = Meter("127.0.0.1:1", lambda: 1_700_000_000_123, now_s=100.0, client="Pulsar-Java-v4.0.7")
    meter.messages += 120
    meter.bytes += 6_000
    meter.redelivered += 3
    meter.acknowledged += 60
    first = meter.traffic(-1)
    assert (first.messages, first.bytes, first.rate, first.throughput, first.redelivered, first.acknowledged) == (
        120, 6_000, 0, 0, 0, 0,
    )  # fmt: skip
    meter.note(160.0)
    second = meter.traffic(-1, blocked=True)
    assert (second.rate, second.throughput, second.redelivered, second.acknowledged) == (2, 100, 0.05, 1)
    assert (second.since_ms, second.address, second.blocked) == (1_700_000_000_123, "127.0.0.1:1", True)
    assert second.client == "Pulsar-Java-v4.0.7"
    meter.messages += 30
    meter.note(160.0)  # of no length
    assert meter.traffic(-1).rate == 2
    meter.note(190.0)
    third = meter.traffic(-1)
    assert (third.messages, third.rate, third.throughput) == (150, 1, 0)


def test_a_consumer_s_last_use_is_noted() -> None:
    times = iter(range(10, 100))
    meter = Meter("127.0.0.1:1", lambda: next(times), now_s=100.0)
    first = meter.traffic(3)
    assert (first.last_flow_ms, first.last_delivered_ms, first.last_acked_ms, first.partition) == (0, 0, 0, 3)
    for _ in range(2):
        meter.grant()
        meter.deliver(3, 700)
        meter.acknowledge(2)
    second = meter.traffic(-1)
    assert (second.messages, second.bytes) == (6, 1_400)
    assert (second.last_flow_ms, second.last_delivered_ms, second.last_acked_ms) == (14, 15, 16)


def test_times_are_told_as_pulsar_has_them() -> None:
    assert time_text(1_700_000_000_123) == "2023-11-14T22:13:20.123+00:00"
