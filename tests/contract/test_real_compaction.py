"""The log cleaner of a real broker at work beneath the state log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.embedded import BrokerOptions, EmbeddedBroker
from pulsar_on_kafka.statelog.api import LogRecord, StateLog
from pulsar_on_kafka.statelog.compare_and_set import CompareAndSet
from pulsar_on_kafka_mapping.state.state_topics import StateTopic
from tests.brokers import available
from tests.contract.conftest import Connected, a_state_topic, connect
from tests.contract.test_compare_and_set_contract import Keys, count_on, live_keys
from tests.steps import Missing
from tests.waiting import patience, until

pytestmark = [pytest.mark.kafka, pytest.mark.long]


@pytest.fixture
def eager_cleaner(missing: Missing) -> Iterator[Connected]:
    options = BrokerOptions(heap_mb=512, extra={"log.cleaner.backoff.ms": "100"})
    with available(missing, EmbeddedBroker(options)) as broker:
        connected = connect(broker.bootstrap)
        yield connected
        connected.close()


def test_holes_in_the_log_are_read_over_and_readers_agree(eager_cleaner: Connected) -> None:
    log = eager_cleaner.log
    topic = a_state_topic("cleaned", 1, segment_ms="200", min_cleanable_dirty_ratio="0.01", max_compaction_lag_ms="200")
    store = CompareAndSet(log, topic, 0, Keys())
    for _ in range(60):
        store.update("counter", count_on, Deadline.after(20))

    def is_compacted() -> bool:
        store.update("counter", count_on, patience())  # an append is what rolls a segment
        return len([record for record in records(log, topic) if record.value is not None]) <= 20

    until(is_compacted, "compaction to leave twenty values")
    state = store.read("counter", patience())
    assert state is not None
    fresh = CompareAndSet(log, topic, 0, Keys())
    assert fresh.read("counter", patience()) == state
    assert live_keys(log, topic) == {Keys().encode("counter", state.version, state.attempt)}
    there = {record.offset for record in records(log, topic)}
    assert 0 not in there
    wanted = {0, 1, min(there), state.offset}
    assert set(log.read_at(topic, 0, [*wanted], patience())) == wanted & there


def records(log: StateLog, topic: StateTopic) -> Iterator[LogRecord]:
    soon = Deadline.after(20)
    for batch in log.read(topic, 0, 0, log.end_offset(topic, 0, soon), soon):
        yield from batch
