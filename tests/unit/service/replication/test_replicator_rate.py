"""The dispatch rate of a replicator, in simulated time."""

from __future__ import annotations

from typing import Any

from pulsar_on_kafka.broker.metadata.rates.policy_rates import DispatchRate
from pulsar_on_kafka.service.replication.replicator_rate import ReplicatorRate
from tests.clocks import SetClock


class Record:
    def __init__(self, messages: int = 1) -> None:
        self._headers = [("__pulsar.batch", b"1:%d" % messages)] if messages > 1 else []

    def headers(self) -> list[tuple[str, bytes]]:
        return self._headers

    def __len__(self) -> int:
        return 10


def _records(count: int) -> list[Any]:
    return [Record() for _ in range(count)]


def test_without_a_rate_all_records_are_copied() -> None:
    rate, records = ReplicatorRate(SetClock(), lambda partition: 0), _records(5)
    assert rate.take(0, records) is records
    assert not rate.held


def test_records_above_the_rate_are_left_and_their_partition_is_held() -> None:
    clock = SetClock(1_000.0)
    rate = ReplicatorRate(clock, lambda partition: 0)
    rate.follow(DispatchRate(3, -1, 60, relative=False))
    records = _records(5)
    assert rate.take(0, records) == records[:3]
    assert rate.take(1, records[:1]) == records[:1]
    assert list(rate.held) == [0]
    clock.seconds += 19.0
    assert rate.released() == []
    clock.seconds += 1.1
    assert rate.released() == [0]
    assert rate.take(0, records[3:]) == records[3:4]
    rate.follow(None)
    assert rate.released() == [0]
    assert rate.take(0, records) == records
    assert rate.held_back == 2


def test_a_batch_goes_as_a_whole_and_bytes_are_limited_too() -> None:
    clock = SetClock(1_000.0)
    rate = ReplicatorRate(clock, lambda partition: 0)
    rate.follow(DispatchRate(2, 15, 1, relative=False))
    batch: list[Any] = [Record(10), Record()]
    assert rate.take(0, batch) == batch[:1]
    clock.seconds += 4.0
    assert rate.released() == []
    clock.seconds += 0.6
    assert rate.released() == [0]
    rate.forget(0)
    assert rate.take(0, _records(2)) != []
