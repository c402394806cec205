"""Views of a partition that is followed on a real broker, also while that goes away and comes back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import StoreError
from pulsar_on_kafka.embedded import Broker, EmbeddedBroker
from pulsar_on_kafka.statelog.api import LogRecord, StateLog
from pulsar_on_kafka.statelog.followed_log import FollowedLog
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.state.state_topics import StateTopic
from tests.contract.conftest import Connected, a_state_topic, connect, following
from tests.waiting import until

pytestmark = pytest.mark.kafka


class Count:
    """A fold that counts records and keeps the newest."""

    def __init__(self) -> None:
        self.records = 0
        self.newest = b""

    def apply(self, record: LogRecord) -> None:
        self.records += 1
        self.newest = record.key


class CountingReadings:
    """Readings that the log itself made."""

    def __init__(self, log: StateLog) -> None:
        self._log = log
        self.readings = 0

    def read(self, *arguments: Any) -> Iterator[list[LogRecord]]:
        self.readings += 1
        return self._log.read(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def soon() -> Deadline:
    return Deadline.after(30)


def append_and_read_back(view: LogView[Count], number: int) -> int:
    """How many records there are then."""
    key = b"%d" % number
    at = view.append([(key, b"v")], soon())
    records, newest = view.query(lambda count: (count.records, count.newest), soon(), at)
    assert newest == key
    return records


def test_an_owner_reads_its_own_records_back_as_they_come(
    connected: Connected, kafka_broker: Broker, state_topic: StateTopic
) -> None:
    counting = CountingReadings(connected.log)
    log = following(connected._replace(log=counting), kafka_broker.bootstrap, state_topic)  # type: ignore[arg-type]
    view = LogView(log, state_topic, 0, Count, SystemClock())
    assert [append_and_read_back(view, n) for n in range(300)] == list(range(1, 301))
    assert counting.readings < 100, "nearly all came by following"
    log.close()


def test_two_who_append_read_everything_each(
    connected: Connected, kafka_broker: Broker, state_topic: StateTopic
) -> None:
    logs = [following(connected, kafka_broker.bootstrap, state_topic) for _ in range(2)]
    views = [LogView(log, state_topic, 0, Count, SystemClock()) for log in logs]

    def go_on(view: LogView[Count]) -> None:
        for n in range(200):
            at = view.append([(b"%d" % n, b"v")], soon())
            view.query(lambda count: count.records, soon(), at)

    threads = [threading.Thread(target=go_on, args=(view,)) for view in views]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [view.query(lambda count: count.records, soon()) for view in views] == [400, 400]
    for log in logs:
        log.close()


def test_following_goes_on_after_the_broker_was_away(own_broker: EmbeddedBroker) -> None:
    topic = a_state_topic("followed")
    connected = connect(own_broker.bootstrap)
    counting = CountingReadings(connected.log)
    log: FollowedLog = following(connected._replace(log=counting), own_broker.bootstrap, topic)  # type: ignore[arg-type]
    view = LogView(log, topic, 0, Count, SystemClock())
    known = [append_and_read_back(view, n) for n in range(100)][-1]
    own_broker.kill()
    with pytest.raises(StoreError):
        view.append([(b"perhaps", b"v")], Deadline.after(0.5))
    own_broker.start()
    found = view.query(lambda count: count.records, soon())
    assert found - known in (0, 1)

    def follows() -> bool:
        nonlocal found
        counting.readings = 0
        before = found
        for n in range(20):
            found = append_and_read_back(view, n)
        assert found - before in (20, 21)  # what was perhaps written may come late
        return not counting.readings

    until(follows, "following to go on")
    log.close()
    connected.close()
