"""From where on the log is needed for sequence ids."""

from __future__ import annotations

from typing import Any

from layer.clock import SystemClock
from layer.deadline import Deadline
from layer.deduplication.journal import Recovered, SequenceJournal
from layer.metadata.topics import Topic
from layer.statelog.memory_log import MemoryStateLog
from mapping.ledger import LedgerLayout
from mapping.topic_name import TopicName

NEVER = Deadline.never()
NAME = TopicName.parse("persistent://public/default/orders")


def _topic(incarnation: int) -> Topic:
    return Topic(NAME, "orders", "id", 2, True, LedgerLayout(incarnation))


def test_what_a_name_s_next_holder_would_read_is_needed_until_it_is_closed() -> None:
    nobody: Any = None  # neither offsets nor records are asked for
    journal = SequenceJournal(MemoryStateLog(SystemClock()), nobody, nobody, SystemClock())
    topic = _topic(7)
    journal.save(topic, "a", 1, {0: Recovered(10, 500), 1: Recovered(10, 40)}, NEVER, final=False)
    journal.save(topic, "a", 2, {0: Recovered(12, 900)}, NEVER, final=False)  # the highest epoch counts
    journal.save(topic, "b", 1, {0: Recovered(3, 700)}, NEVER, final=False)
    journal.save(_topic(6), "c", 1, {0: Recovered(3, 5)}, NEVER, final=False)  # of another life
    assert journal.needed(topic, [0, 1], NEVER) == {0: [900, 700], 1: [40]}
    journal.save(topic, "a", 2, {0: Recovered(12, 950)}, NEVER, final=True)
    assert journal.needed(topic, [0], NEVER) == {0: [700]}
    journal.forget(topic, "b", NEVER)
    assert journal.needed(topic, [0, 1], NEVER) == {0: [], 1: [40]}
