"""A share of a maintenance round: many topics with one work keep nobody waiting for ever."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pulsar_on_kafka.base.errors import StoreError
from pulsar_on_kafka.broker.managed_ledger.owner import TopicLogs
from pulsar_on_kafka.service.ledgers.maintenance import AT_ONCE, Share
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from tests.clocks import SetClock


def topics(count: int) -> list[TopicLogs]:
    return [TopicLogs(f"t{number:05}", "", LedgerLayout(1, 10), {}) for number in range(count)]


class Work:
    """Takes a second for each topic."""

    def __init__(self, clock: SetClock) -> None:
        self.clock = clock
        self.seen: list[str] = []
        self.refused = ""

    def __call__(self, some: Sequence[TopicLogs]) -> int:
        if any(topic.name == self.refused for topic in some):
            raise StoreError("not now")
        self.seen += [topic.name for topic in some]
        self.clock.seconds += len(some)
        return len(some)


def test_few_topics_are_done_in_one_round() -> None:
    clock = SetClock()
    work = Work(clock)
    assert Share(work, clock).run(topics(AT_ONCE)) == (AT_ONCE, False)


def test_many_topics_take_rounds_that_go_on_one_behind_the_other() -> None:
    clock = SetClock()
    work = Work(clock)
    share = Share(work, clock, share_s=1.0)
    assert share.run(topics(3 * AT_ONCE)) == (AT_ONCE, True)
    assert share.run(topics(3 * AT_ONCE)) == (AT_ONCE, True)
    assert share.run(topics(3 * AT_ONCE)) == (AT_ONCE, True)  # behind the last ones are the first
    assert work.seen == [topic.name for topic in topics(3 * AT_ONCE)]


def test_topics_that_cannot_be_done_do_not_hold_up_those_behind_them() -> None:
    clock = SetClock()
    work = Work(clock)
    work.refused = "t00000"
    share = Share(work, clock, share_s=1.0)
    with pytest.raises(StoreError):
        share.run(topics(2 * AT_ONCE))
    assert share.run(topics(2 * AT_ONCE)) == (AT_ONCE, True)
    assert work.seen[0] == f"t{AT_ONCE:05}"
