"""The state log on Kafka while its broker goes away and comes back."""

from __future__ import annotations

import threading

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import AppendOutcomeUnknown, Closed, ConnectFailed, DeadlineExceeded, RecordTooLarge
from pulsar_on_kafka.embedded import EmbeddedBroker
from pulsar_on_kafka.statelog.api import StateTopicMismatch
from pulsar_on_kafka.statelog.compare_and_set import CompareAndSet, Versioned
from tests.contract.conftest import a_state_topic, connect
from tests.contract.test_compare_and_set_contract import Keys, count_on
from tests.steps import Unique

pytestmark = pytest.mark.kafka


def test_state_survives_a_killed_broker_and_callers_wait_for_it(own_broker: EmbeddedBroker) -> None:
    topic = a_state_topic("restarted")
    connected = connect(own_broker.bootstrap)
    log = connected.log
    store = CompareAndSet(log, topic, 0, Keys())
    first = store.update("counter", count_on, Deadline.after(30))
    own_broker.kill()
    with pytest.raises((DeadlineExceeded, ConnectFailed)):
        store.read("counter", Deadline.after(0.5))
    with pytest.raises((AppendOutcomeUnknown, DeadlineExceeded, ConnectFailed)):
        log.append(topic, 1, b"k", b"v", Deadline.after(0.5))
    answers: list[object] = []

    def wait_for_the_broker() -> None:
        try:
            answers.append(store.update("counter", count_on, Deadline.after(60)))
        except Exception as failure:
            answers.append(failure)

    waiting = threading.Thread(target=wait_for_the_broker)
    waiting.start()
    own_broker.start()
    waiting.join()
    answer = answers[0]
    assert isinstance(answer, Versioned), answer
    assert (answer.version, answer.value) == (first.version + 1, b"2")
    fresh = connect(own_broker.bootstrap)
    assert CompareAndSet(fresh.log, topic, 0, Keys()).read("counter", Deadline.after(30)) == answer
    connected.close()
    fresh.close()


def test_a_paused_broker_leaves_an_append_unknown_and_reading_settles_it(own_broker: EmbeddedBroker) -> None:
    topic = a_state_topic("paused")
    connected = connect(own_broker.bootstrap)
    store = CompareAndSet(connected.log, topic, 0, Keys())
    store.propose("orders", 0, b"one", Deadline.after(30))
    own_broker.pause()
    with pytest.raises((AppendOutcomeUnknown, DeadlineExceeded)):
        store.propose("orders", 1, b"two", Deadline.after(1))
    own_broker.resume()
    state = store.update(
        "orders", lambda found: None if found and found.value == b"two" else b"two", Deadline.after(60)
    )
    assert (state.version in (2, 3), state.value) == (True, b"two")
    connected.close()


def test_the_number_of_partitions_must_be_the_catalogues(bootstrap: str, unique: Unique) -> None:
    name = unique("state")
    connected = connect(bootstrap)
    connected.log.append(a_state_topic(name, 2), 0, b"k", b"v", Deadline.after(20))
    other = connect(bootstrap)
    with pytest.raises(StateTopicMismatch, match="has 2 partitions and must have 3"):
        other.log.append(a_state_topic(name, 3), 0, b"k", b"v", Deadline.after(20))
    connected.close()
    other.close()


def test_a_record_too_large_is_certainly_not_written(bootstrap: str, unique: Unique) -> None:
    topic = a_state_topic(unique("state"), max_message_bytes="10000")
    connected = connect(bootstrap)
    for size in (20_000, 20_000_000):  # refused by the broker, and by the client already
        with pytest.raises(RecordTooLarge):
            connected.log.append(topic, 0, b"k", b"v" * size, Deadline.after(20))
    assert connected.log.end_offset(topic, 0, Deadline.after(20)) == 0
    connected.close()


def test_a_closed_log_says_so(bootstrap: str, unique: Unique) -> None:
    topic = a_state_topic(unique("state"))
    connected = connect(bootstrap)
    connected.log.append(topic, 0, b"k", b"v", Deadline.after(20))
    connected.close()
    connected.log.close()
    with pytest.raises(Closed):
        connected.log.end_offset(topic, 0, Deadline.after(20))
