"""What a proposal costs: it is judged by its own record where nobody else's are between."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Refused
from pulsar_on_kafka.broker.metadata.topics import TOPIC_KEYS
from pulsar_on_kafka.statelog.compare_and_set import CompareAndSet, Lost, Won
from pulsar_on_kafka.statelog.versioned import Versioned
from pulsar_on_kafka_mapping.state.state_topics import TOPICS
from tests.clocks import PacedClock
from tests.memory_log import CountedLog, MemoryStateLog


def soon() -> Deadline:
    return Deadline.after(10)


def store(log: MemoryStateLog) -> CompareAndSet[str]:
    return CompareAndSet(log, TOPICS, 0, TOPIC_KEYS)


def test_an_undisturbed_proposal_asks_for_nothing_and_reads_nothing() -> None:
    log = CountedLog()
    mine = store(log)
    assert mine.read("orders", soon()) is None
    asked = log.ends_asked
    assert mine.propose("orders", 0, b"one", soon()) == Won(1, 0)
    assert mine.propose("orders", 1, b"two", soon()) == Won(2, 1)
    assert (log.ends_asked, log.readings) == (asked, 0)
    assert log.end_offset(TOPICS, 0, soon()) == 3, "version 1 was cleaned"
    assert mine.read("orders", soon()) == mine.cached("orders")
    assert log.readings == 0


def test_what_others_wrote_before_it_is_read_and_decides() -> None:
    log = CountedLog()
    mine, other = store(log), store(log)
    assert mine.read("orders", soon()) is None
    assert other.propose("orders", 0, b"theirs", soon()) == Won(1, 0)
    asked, readings = log.ends_asked, log.readings
    lost = mine.propose("orders", 0, b"mine", soon())
    assert isinstance(lost, Lost)
    assert lost.state.value == b"theirs"
    assert (log.ends_asked, log.readings) == (asked, readings + 1)


def test_a_record_of_ones_own_was_written_when_the_log_says_so() -> None:
    """Whoever cleans goes by it, on a machine whose clock may be wrong."""
    log = MemoryStateLog(PacedClock())  # of 1970
    mine, other = store(log), store(log)
    mine.read("orders", soon())
    mine.propose("orders", 0, b"one", soon())
    (own, read) = (each.read("orders", soon()) for each in (mine, other))
    assert own is not None
    assert read is not None
    assert own.written_ms == read.written_ms


def test_a_refusal_counts_only_for_the_newest_state() -> None:
    """`change` may compare the state with what it reads later elsewhere."""
    log = MemoryStateLog(PacedClock())
    mine, other = store(log), store(log)
    mine.propose("orders", 0, b"Exclusive", soon())
    seen: list[bytes] = []

    def change(state: Versioned | None) -> bytes | None:
        assert state is not None
        seen.append(state.value)
        if state.value == b"Exclusive":
            other.propose("orders", state.version, b"Shared", soon())  # and it is seen elsewhere at once
            raise Refused("it is Exclusive, and has consumers")
        return None

    assert mine.update("orders", change, soon()).value == b"Shared"
    assert seen == [b"Exclusive", b"Shared"]

    def refuse(state: Versioned | None) -> bytes | None:
        raise Refused("never")

    with pytest.raises(Refused, match="never"):
        mine.update("orders", refuse, soon())
