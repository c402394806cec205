"""The contract of a state log holds for the one in memory and for the one on Kafka."""

from __future__ import annotations

import threading

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import DeadlineExceeded
from pulsar_on_kafka.statelog.api import LogRecord, StateLog
from pulsar_on_kafka_mapping.state.state_topics import StateTopic
from tests.contract.conftest import a_state_topic
from tests.steps import Unique


def soon() -> Deadline:
    return Deadline.after(20)


def everything(log: StateLog, topic: StateTopic, partition: int = 0) -> list[LogRecord]:
    end = log.end_offset(topic, partition, soon())
    start = log.start_offset(topic, partition, soon())
    return [record for batch in log.read(topic, partition, start, end, soon()) for record in batch]


def test_a_new_topic_is_empty(log: StateLog, state_topic: StateTopic) -> None:
    assert log.start_offset(state_topic, 1, soon()) == 0
    assert log.end_offset(state_topic, 1, soon()) == 0
    assert list(log.read(state_topic, 1, 0, 0, soon())) == []


def test_appended_records_are_read_back_in_order(log: StateLog, state_topic: StateTopic) -> None:
    offsets = [log.append(state_topic, 0, b"k%d" % n, b"v%d" % n, soon()) for n in range(5)]
    assert offsets == [0, 1, 2, 3, 4]
    found = everything(log, state_topic)
    assert [(record.offset, record.key, record.value) for record in found] == [
        (n, b"k%d" % n, b"v%d" % n) for n in range(5)
    ]
    assert all(record.timestamp_ms > 0 for record in found)


def test_its_time_is_that_of_its_records(log: StateLog, unique: Unique) -> None:
    topic = a_state_topic(unique("state"), message_timestamp_type="LogAppendTime")
    log.append(topic, 0, b"k", b"v", soon())
    (found,) = everything(log, topic)
    assert abs(log.now_ms() - found.timestamp_ms) < 3_600_000


def test_partitions_are_logs_of_their_own(log: StateLog, state_topic: StateTopic) -> None:
    log.append(state_topic, 0, b"a", b"0", soon())
    assert log.append(state_topic, 1, b"a", b"1", soon()) == 0
    assert [record.value for record in everything(log, state_topic, 1)] == [b"1"]


def test_many_are_appended_in_the_order_given(log: StateLog, state_topic: StateTopic) -> None:
    records: list[tuple[bytes, bytes | None]] = [(b"k%d" % n, b"x" * 100) for n in range(2500)]
    assert log.append_many(state_topic, 0, records, soon()) == list(range(2500))
    assert [record.key for record in everything(log, state_topic)] == [key for key, _ in records]
    assert log.append_many(state_topic, 0, [], soon()) == []


def test_groups_go_to_several_partitions_at_once_each_in_its_order(log: StateLog, state_topic: StateTopic) -> None:
    sent: dict[int, list[tuple[bytes, bytes | None]]] = {
        partition: [(b"%d" % n, b"%d" % partition) for n in range(700)] for partition in (0, 1)
    }
    log.append_apart([(state_topic, partition, records) for partition, records in sent.items()], soon())
    for partition, records in sent.items():
        assert [(record.key, record.value) for record in everything(log, state_topic, partition)] == records


def test_a_tombstone_is_a_record_without_value(log: StateLog, state_topic: StateTopic) -> None:
    log.append(state_topic, 0, b"k", b"", soon())
    log.append(state_topic, 0, b"k", None, soon())
    assert [record.value for record in everything(log, state_topic)] == [b"", None]


def test_the_tail_is_read_from_where_one_was(log: StateLog, state_topic: StateTopic) -> None:
    for n in range(20):
        partition = n % 2  # from one partition to the other and back
        log.append(state_topic, partition, b"k", b"%d" % n, soon())
        end = log.end_offset(state_topic, partition, soon())
        tail = [record for batch in log.read(state_topic, partition, n // 2, end, soon()) for record in batch]
        assert [record.value for record in tail] == [b"%d" % n]


def test_an_abandoned_reading_is_in_nobodys_way(log: StateLog, state_topic: StateTopic) -> None:
    log.append_many(state_topic, 0, [(b"k%d" % n, b"v") for n in range(3000)], soon())
    log.append(state_topic, 1, b"k", b"v", soon())
    reading = log.read(state_topic, 0, 0, 3000, soon())
    first = next(reading)
    assert len(everything(log, state_topic, 1)) == 1
    assert len(everything(log, state_topic, 0)) == 3000
    rest = [record for batch in reading for record in batch]
    assert [record.offset for record in [*first, *rest]] == list(range(3000))


def test_records_are_found_by_offset(log: StateLog, state_topic: StateTopic) -> None:
    log.append_many(state_topic, 0, [(b"k%d" % n, b"v%d" % n) for n in range(2000)], soon())
    found = log.read_at(state_topic, 0, [1999, 3, 7, 3, 1200], soon())
    assert {offset: record.value for offset, record in found.items()} == {
        3: b"v3",
        7: b"v7",
        1200: b"v1200",
        1999: b"v1999",
    }
    assert log.read_at(state_topic, 0, [5000], soon()) == {}
    assert log.read_at(state_topic, 0, [], soon()) == {}


def test_nothing_is_begun_without_time(log: StateLog, state_topic: StateTopic) -> None:
    log.append(state_topic, 0, b"k", b"v", soon())
    with pytest.raises(DeadlineExceeded):
        log.append(state_topic, 0, b"k", b"late", Deadline.after(0))
    assert [record.value for record in everything(log, state_topic)] == [b"v"]
    with pytest.raises(DeadlineExceeded):
        list(log.read(state_topic, 0, 0, 1, Deadline.after(0)))


def test_a_partition_beyond_the_catalogue_is_a_mistake(log: StateLog, state_topic: StateTopic) -> None:
    with pytest.raises(ValueError, match="partitions 0 to 1, not 2"):
        log.append(state_topic, 2, b"k", b"v", soon())


def test_threads_share_one_log(log: StateLog, state_topic: StateTopic) -> None:
    log.append(state_topic, 0, b"first", b"v", soon())
    failures: list[BaseException] = []

    def write(name: int) -> None:
        try:
            for n in range(20):
                offset = log.append(state_topic, 0, b"%d-%d" % (name, n), b"v", soon())
                assert log.read_at(state_topic, 0, [offset], soon())[offset].key == b"%d-%d" % (name, n)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=write, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(everything(log, state_topic)) == 121
