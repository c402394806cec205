"""Nobody is missed before everything was heard that stood in the log then."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future

import pytest

from pulsar_on_kafka.base.errors import AppendFailed
from pulsar_on_kafka.broker.subscriptions.leases.group_monitor import GroupLooks, LiveMembers
from pulsar_on_kafka.broker.subscriptions.leases.lease_options import RereadLeaseRecords


class Traffic:
    def __init__(self) -> None:
        self.asked: list[Future[Collection[str]]] = []
        self.read_from: list[int] = []
        self.readings: list[Future[RereadLeaseRecords]] = []

    def group(self) -> Future[Collection[str]]:
        self.asked.append(Future())
        return self.asked[-1]

    def read(self, start: int, most: int) -> Future[RereadLeaseRecords]:
        self.read_from.append(start)
        self.readings.append(Future())
        return self.readings[-1]


def looks() -> tuple[GroupLooks, Traffic]:
    traffic = Traffic()
    made = GroupLooks(traffic.group, traffic.read)
    made.begin_if_due(5.0, hurries=False)
    traffic.asked[0].set_result({"a"})
    return made, traffic


def test_there_is_a_look_every_second_or_more_often_where_somebody_hurries() -> None:
    made, traffic = looks()
    made.begin_if_due(5.0, hurries=True)
    assert len(traffic.asked) == 1
    assert made.seen() == LiveMembers({"a"}, 5.0)
    assert made.seen() is None
    made.begin_if_due(5.9, hurries=False)
    made.begin_if_due(5.05, hurries=True)
    assert len(traffic.asked) == 1
    made.begin_if_due(5.1, hurries=True)
    assert len(traffic.asked) == 2


def test_what_was_seen_counts_when_the_last_word_was_taken_in() -> None:
    made, traffic = looks()
    seen = made.seen()
    assert seen is not None
    made.apply_first(seen, 40)
    assert made.counts(40) is None
    traffic.readings[0].set_result(RereadLeaseRecords([(41, 0, b""), (44, 0, b"")], 50))
    assert (made.counts(44), made.counts(45), made.counts(45)) == (None, seen, None)
    assert traffic.read_from == [40]


def test_where_nothing_was_said_it_counts_at_once() -> None:
    made, traffic = looks()
    seen = made.seen()
    assert seen is not None
    made.apply_first(seen, 40)
    traffic.readings[0].set_result(RereadLeaseRecords([], 40))
    assert made.counts(40) == seen


def test_what_is_too_much_for_one_reading_is_read_in_several() -> None:
    made, traffic = looks()
    seen = made.seen()
    assert seen is not None
    made.apply_first(seen, 0)
    traffic.readings[0].set_result(RereadLeaseRecords([(offset, 0, b"") for offset in range(1000)], 1000))
    assert made.counts(1000) is None
    traffic.readings[1].set_result(RereadLeaseRecords([(1000, 0, b"")], 1001))
    assert (made.counts(1000), made.counts(1001)) == (None, seen)
    assert traffic.read_from == [0, 1000]


def test_a_log_that_cannot_be_read_is_said_and_the_next_look_comes() -> None:
    made, traffic = looks()
    seen = made.seen()
    assert seen is not None
    made.apply_first(seen, 0)
    traffic.readings[0].set_exception(AppendFailed("no"))
    with pytest.raises(AppendFailed):
        made.counts(0)
    made.begin_if_due(6.0, hurries=False)
    assert len(traffic.asked) == 2
