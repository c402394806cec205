"""Owning a log: taking over, replaying to a position, unknown outcomes, and somebody else who takes over."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka.statelog.owned import OwnedLog
from pulsar_on_kafka.statelog.take_over import Owner, TakeOverFence
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.state.state_topics import LEDGERS, StateTopic
from tests.memory_log import MemoryStateLog

NEVER = Deadline.never()


class Words:
    """A fold: `takeover SESSION` by version, and what valid owners said."""

    def __init__(self) -> None:
        self._fence = TakeOverFence()
        self.said: list[str] = []

    def apply(self, record: LogRecord) -> None:
        what, by = record.key.decode().split(":", 1)[0], int((record.value or b"0").decode())
        if what.startswith("takeover "):
            self._fence.takeover(record.key, what.removeprefix("takeover "), by)
        elif self._fence.record(record.key, by):
            self.said.append(what)

    @property
    def owner(self) -> Owner | None:
        return self._fence.owner

    @property
    def next_version(self) -> int:
        return self._fence.next_version


class TroubledLog(MemoryStateLog):
    """The next append fails with `trouble`, whether it is `written` or not; `meanwhile` comes before it."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.trouble: Exception | None = None
        self.written = False
        self.meanwhile: Callable[[], object] = lambda: None

    def append_many(
        self, topic: StateTopic, partition: int, records: Sequence[tuple[bytes, bytes | None]], deadline: Deadline
    ) -> list[int]:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        trouble, self.trouble = self.trouble, None
        offsets = super().append_many(topic, partition, records, deadline) if trouble is None or self.written else []
        if trouble is not None:
            raise trouble
        return offsets


def claim(_before: Words, mine: Owner) -> tuple[bytes, bytes]:
    return b"takeover %s:%d" % (mine.session.encode(), mine.version), b"%d" % mine.version


def said(word: str, by: int) -> list[tuple[bytes, bytes | None]]:
    return [(word.encode(), b"%d" % by)]


def owned(log: MemoryStateLog, session: str, *, late_is_harmless: bool = False) -> OwnedLog[Words]:
    view = LogView(log, LEDGERS, 0, Words, SystemClock())
    return OwnedLog(view, "words", late_is_harmless=late_is_harmless, new_session=lambda: session)


def test_who_took_over_owns_the_log_and_reads_what_it_wrote() -> None:
    one = owned(TroubledLog(), "a")
    assert one.owner is None
    assert one.take_over(claim, NEVER).owner == one.owner == one.must_own() == Owner("a", 1)
    at = one.append(said("hello", 1), NEVER)
    assert one.judged(NEVER, at).said == ["hello"]


def test_nobody_acts_before_it_took_over() -> None:
    one = owned(TroubledLog(), "a")
    for act in (one.must_own, lambda: one.append(said("x", 1), NEVER), lambda: one.judged(NEVER)):
        with pytest.raises(errors.Fenced, match="words was not taken over"):
            act()
    assert one.read(NEVER).said == []


def test_a_former_owner_can_append_and_never_decide() -> None:
    log = TroubledLog()
    former, next_one = owned(log, "a"), owned(log, "b")
    former.take_over(claim, NEVER)
    assert next_one.take_over(claim, NEVER).owner == Owner("b", 2)
    at = former.append(said("late", 1), NEVER)
    with pytest.raises(errors.Fenced, match=r"words: Owner\(session='b', version=2\) owns it, not Owner\(session='a'"):
        former.judged(NEVER, at)
    assert former.owner is None
    assert next_one.judged(NEVER).said == []


def test_of_two_that_claim_one_version_the_first_owns_it() -> None:
    log = TroubledLog()
    first, second = owned(log, "a"), owned(log, "b")
    log.meanwhile = lambda: first.take_over(claim, NEVER)
    with pytest.raises(errors.Fenced, match="owns it, not"):
        second.take_over(claim, NEVER)
    assert (first.owner, second.owner) == (Owner("a", 1), None)


@pytest.mark.parametrize("written", [True, False])
def test_a_claim_of_unknown_outcome_is_settled_by_reading(written: bool) -> None:
    log = TroubledLog()
    one = owned(log, "a")
    log.trouble, log.written = errors.AppendOutcomeUnknown("?"), written
    if written:
        assert one.take_over(claim, NEVER).owner == one.owner == Owner("a", 1)
    else:
        with pytest.raises(errors.Fenced, match="None owns it"):
            one.take_over(claim, NEVER)
        assert one.owner is None


def test_whoever_could_not_take_over_again_owns_nothing() -> None:
    log = TroubledLog()
    one = owned(log, "a")
    one.take_over(claim, NEVER)
    log.trouble = errors.AppendFailed("no")
    with pytest.raises(errors.AppendFailed):
        one.take_over(claim, NEVER)
    assert one.owner is None


def test_where_late_records_count_an_unknown_outcome_ends_the_ownership() -> None:
    log = TroubledLog()
    one = owned(log, "a")
    one.take_over(claim, NEVER)
    log.trouble = errors.AppendOutcomeUnknown("?")
    with pytest.raises(errors.Fenced, match="does not know what it wrote"):
        one.append(said("perhaps", 1), NEVER)
    assert one.owner is None
    assert one.take_over(claim, NEVER).owner == Owner("a", 2)


def test_where_they_are_harmless_the_owner_goes_on() -> None:
    log = TroubledLog()
    one = owned(log, "a", late_is_harmless=True)
    one.take_over(claim, NEVER)
    log.trouble, log.written = errors.AppendOutcomeUnknown("?"), True
    with pytest.raises(errors.AppendOutcomeUnknown):
        one.append(said("perhaps", 1), NEVER)
    assert one.judged(NEVER).said == ["perhaps"]


@pytest.mark.parametrize("late_is_harmless", [True, False])
def test_what_certainly_failed_changes_nothing(late_is_harmless: bool) -> None:
    log = TroubledLog()
    one = owned(log, "a", late_is_harmless=late_is_harmless)
    one.take_over(claim, NEVER)
    log.trouble = errors.AppendFailed("no")
    with pytest.raises(errors.AppendFailed):
        one.append(said("never", 1), NEVER)
    assert one.judged(NEVER).said == []
