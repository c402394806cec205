"""The log is needed for sequence ids from some offset on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.deduplication.journal import (
    FORGOTTEN_AFTER_MS,
    NOTED_EVERY_MS,
    RecoveredSequence,
    SequenceJournal,
)
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from tests.memory_log import MemoryStateLog

NEVER = Deadline.never()
NAME = TopicName.parse("persistent://public/default/orders")


def _topic(incarnation: int) -> Topic:
    return Topic(NAME, "orders", "id", 2, True, LedgerLayout(incarnation))


def test_what_a_name_s_next_holder_would_read_is_needed_until_it_is_closed() -> None:
    nobody: Any = None  # neither offsets nor records are asked for
    journal = SequenceJournal(
        MemoryStateLog(SystemClock()), nobody, nobody, SystemClock(), nobody, nobody, nobody, nobody
    )
    topic = _topic(7)
    journal.save(topic, "a", 1, {0: RecoveredSequence(10, 500), 1: RecoveredSequence(10, 40)}, NEVER, final=False)
    journal.save(topic, "a", 2, {0: RecoveredSequence(12, 900)}, NEVER, final=False)  # the highest epoch counts
    journal.save(topic, "b", 1, {0: RecoveredSequence(3, 700)}, NEVER, final=False)
    journal.save(_topic(6), "c", 1, {0: RecoveredSequence(3, 5)}, NEVER, final=False)  # of another life
    assert journal.needed(topic, [0, 1], NEVER, nobody) == {0: [900, 700], 1: [40]}
    journal.save(topic, "a", 2, {0: RecoveredSequence(12, 950)}, NEVER, final=True)
    assert journal.needed(topic, [0], NEVER, nobody) == {0: [700]}
    journal.forget(topic, "b", NEVER)
    assert journal.needed(topic, [0, 1], NEVER, nobody) == {0: [], 1: [40]}


class _Clock(SystemClock):
    """Ahead of the time by `ahead_ms`."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class _Ends:
    """A log of 50 records that nobody reads."""

    def start_offsets(self, topic: str, partitions: Sequence[int], deadline: Deadline) -> Mapping[int, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, topic: str, partitions: Sequence[int], deadline: Deadline) -> Mapping[int, int]:
        return dict.fromkeys(partitions, 50)


@pytest.mark.parametrize(("final", "hours"), [(True, 6), (False, 7)])
def test_a_name_that_was_away_for_long_holds_nothing_and_begins_anew(final: bool, hours: int) -> None:
    nobody: Any = None
    clock, topic = _Clock(), _topic(7)
    journal = SequenceJournal(MemoryStateLog(clock), _Ends(), nobody, clock, nobody, nobody, nobody, nobody)
    journal.save(topic, "a", 1, {0: RecoveredSequence(10, 50)}, NEVER, final=final)
    assert hours * 3_600_000 == FORGOTTEN_AFTER_MS + (0 if final else NOTED_EVERY_MS)
    clock.ahead_ms = hours * 3_600_000 - 60_000
    assert journal.needed(topic, [0], NEVER, nobody) == {0: [] if final else [50]}
    if final:
        assert journal.recover(topic, "a", 2, [0], NEVER) == {0: RecoveredSequence(10, 50)}
        journal.save(topic, "a", 2, {0: RecoveredSequence(10, 50)}, NEVER, final=True)
        clock.ahead_ms += hours * 3_600_000
    clock.ahead_ms += 120_000
    assert journal.needed(topic, [0], NEVER, lambda: ["b"]) == {0: []}
    assert journal.needed(topic, [0], NEVER, lambda: ["a"]) == {0: [] if final else [50]}, "it lives"
    assert journal.recover(topic, "a", 3, [0], NEVER) == {0: RecoveredSequence(-1, 50)}
