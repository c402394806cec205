"""Cached tails, on both state logs."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Corrupt
from pulsar_on_kafka.statelog.api import LogRecord, StateLog
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_topics import StateTopic
from tests.clocks import SetClock


class Table:
    """The newest value of every key."""

    made = 0

    def __init__(self) -> None:
        Table.made += 1
        self.rows: dict[bytes, bytes] = {}

    def apply(self, record: LogRecord) -> None:
        if record.value is None:
            self.rows.pop(record.key, None)
        elif record.value == b"unreadable":
            raise ValueError("expected something better")
        else:
            self.rows[record.key] = record.value


def soon() -> Deadline:
    return Deadline.after(20)


def rows(view: LogView[Table]) -> dict[bytes, bytes]:
    return view.query(lambda table: dict(table.rows), soon())


def test_a_view_follows_the_log(log: StateLog, state_topic: StateTopic) -> None:
    view = LogView(log, state_topic, 0, Table, SetClock(1000.0))
    assert view.glance(lambda table: dict(table.rows)) is None
    assert rows(view) == {}
    log.append_many(state_topic, 0, [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")], soon())
    assert view.glance(lambda table: dict(table.rows)) == {}
    assert rows(view) == {b"a": b"3", b"b": b"2"}
    log.append(state_topic, 0, b"a", None, soon())
    assert rows(view) == {b"b": b"2"}
    assert view.glance(lambda table: dict(table.rows)) == {b"b": b"2"}


def test_a_reader_that_was_away_for_half_the_retention_starts_over(log: StateLog, state_topic: StateTopic) -> None:
    clock = SetClock(1000.0)
    view = LogView(log, state_topic, 0, Table, clock)
    log.append(state_topic, 0, b"a", b"1", soon())
    rows(view)
    made = Table.made
    clock.seconds += 29  # of a retention of 60 s
    assert rows(view) == {b"a": b"1"}
    clock.seconds += 29
    assert rows(view) == {b"a": b"1"}
    assert Table.made == made
    clock.seconds += 31
    assert view.glance(lambda table: dict(table.rows)) is None
    assert rows(view) == {b"a": b"1"}
    assert Table.made == made + 1


def test_an_unreadable_record_stops_the_view_until_its_key_is_mended(log: StateLog, state_topic: StateTopic) -> None:
    view = LogView(log, state_topic, 1, Table, SetClock(1000.0))
    log.append_many(state_topic, 1, [(b"a", b"1"), (b"b", b"unreadable"), (b"c", b"unreadable")], soon())
    with pytest.raises(Corrupt, match=f"{Instance().state_topic(state_topic)}-1 offset 1: expected something better"):
        rows(view)
    assert view.glance(lambda table: dict(table.rows)) is None
    log.append(state_topic, 1, b"b", None, soon())
    with pytest.raises(Corrupt, match="-1 offset 2: "):
        view.refresh(soon())
    log.append(state_topic, 1, b"c", b"3", soon())
    assert rows(view) == {b"a": b"1", b"c": b"3"}
