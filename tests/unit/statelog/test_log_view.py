"""Callers share the reading of a view, and the view copes with records that it cannot read."""

from __future__ import annotations

import dataclasses
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Corrupt, DeadlineExceeded
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka.statelog.view import LogView, unreadable
from pulsar_on_kafka_mapping.errors import UnreadableKey
from pulsar_on_kafka_mapping.state.state_keys import TopicKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import DELIVERIES, TOPICS, StateTopic
from tests.clocks import PacedClock
from tests.memory_log import CountedLog, MemoryStateLog
from tests.waiting import until


class Keys:
    def __init__(self) -> None:
        self.live: set[bytes] = set()

    def apply(self, record: LogRecord) -> None:
        if record.key == b"bug":
            raise KeyError("a mistake of the fold's own")
        (self.live.discard if record.value is None else self.live.add)(record.key)


class Picky(Keys):
    def apply(self, record: LogRecord) -> None:
        if record.value == b"unreadable":
            raise ValueError("expected something better")
        if record.key == b"no key":
            raise UnreadableKey("expected a key")
        super().apply(record)


class GatedLog(CountedLog):
    """Readings wait at a gate, after the end was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Semaphore(0)
        self.reading = threading.Semaphore(0)

    def read(
        self, topic: StateTopic, partition: int, start: int, end: int, deadline: Deadline
    ) -> Iterator[list[LogRecord]]:
        self.reading.release()
        self.gate.acquire()
        yield from super().read(topic, partition, start, end, deadline)


def soon() -> Deadline:
    return Deadline.after(10)


def view_of(log: MemoryStateLog, topic: StateTopic = TOPICS) -> LogView[Keys]:
    return LogView(log, topic, 0, Keys, SystemClock())


def live(view: LogView[Keys]) -> set[bytes]:
    return view.query(lambda found: set(found.live), soon())


def in_background(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


def test_a_reading_that_asked_for_its_end_before_is_not_shared() -> None:
    log = GatedLog()
    view = view_of(log)
    log.append(TOPICS, 0, b"early", b"", soon())
    found: list[set[bytes]] = []
    first = in_background(lambda: found.append(live(view)))
    assert log.reading.acquire(timeout=5)  # its end is known by now
    log.append(TOPICS, 0, b"late", b"", soon())
    second: list[set[bytes]] = []
    waiting = [in_background(lambda: second.append(live(view))) for _ in range(3)]
    for _ in range(10):
        log.gate.release()
    for thread in [first, *waiting]:
        thread.join()
    assert second == [{b"early", b"late"}] * 3


def test_callers_that_wait_together_share_one_reading() -> None:
    log = GatedLog()
    view = view_of(log)
    log.append(TOPICS, 0, b"k", b"", soon())
    first = in_background(lambda: view.refresh(soon()))
    assert log.reading.acquire(timeout=5)
    waiting = [in_background(lambda: view.refresh(soon())) for _ in range(8)]
    until(lambda: len(view._changed._waiters) == 8, "eight callers to wait")  # type: ignore[attr-defined]
    before = log.ends_asked
    for _ in range(10):
        log.gate.release()
    for thread in [first, *waiting]:
        thread.join()
    assert log.ends_asked - before <= 2  # one to see that the first reading's end stands, one for all that waited


def test_who_waits_for_anothers_reading_has_a_deadline_too() -> None:
    log = GatedLog()
    view = view_of(log)
    log.append(TOPICS, 0, b"k", b"", soon())
    reading = in_background(lambda: view.refresh(soon()))
    assert log.reading.acquire(timeout=5)
    with pytest.raises(DeadlineExceeded, match="being read to its end"):
        view.refresh(Deadline.after(0.05))
    assert view.glance(lambda found: set(found.live)) is None
    log.gate.release()
    reading.join()


def test_a_mistake_of_the_fold_is_passed_on_and_the_view_starts_over() -> None:
    log = MemoryStateLog()
    view = view_of(log)
    log.append(TOPICS, 0, b"a", b"", soon())
    assert live(view) == {b"a"}
    log.append(TOPICS, 0, b"bug", b"", soon())
    for _ in range(2):
        with pytest.raises(KeyError):
            live(view)
    log.append(TOPICS, 0, b"bug", b"", soon())
    log.compact(random.Random(1))
    assert view.glance(lambda found: set(found.live)) is None


def test_a_log_start_that_moved_past_the_view_makes_it_start_over() -> None:
    log = MemoryStateLog()
    view: LogView[Keys] = LogView(log, DELIVERIES, 0, Keys, SystemClock())
    log.append_many(DELIVERIES, 0, [(b"%d" % n, b"") for n in range(10)], soon())
    assert len(live(view)) == 10
    log.append_many(DELIVERIES, 0, [(b"%d" % n, b"") for n in range(10, 20)], soon())
    log.delete_before(DELIVERIES, 0, 15)
    assert live(view) == {b"%d" % n for n in range(15, 20)}


def test_records_taken_because_of_what_stands_beyond_the_end_are_noticed() -> None:
    """The end is 2; before it is read up to, version 2 is appended and compaction takes the winner of version 1.

    On a topic whose configuration promises no lag: compaction may come at any time.
    """
    log = GatedLog()
    promised = ("min.compaction.lag.ms", "message.timestamp.type")
    configs = {name: value for name, value in TOPICS.configs.items() if name not in promised}
    view = view_of(log, dataclasses.replace(TOPICS, configs=configs))
    log.append_many(TOPICS, 0, [(b"winner", b"1"), (b"loser", b"1")], soon())
    found: list[set[bytes]] = []
    reading = in_background(lambda: found.append(live(view)))
    assert log.reading.acquire(timeout=5)
    log.append_many(TOPICS, 0, [(b"next", b"2"), (b"winner", None)], soon())
    rng = random.Random(1)
    while any(record.key == b"winner" and record.value for record in log._partitions[TOPICS.name, 0].records):
        log.compact(rng)
    for _ in range(10):
        log.gate.release()
    reading.join()
    assert found == [{b"loser", b"next"}]


def test_who_has_appended_need_not_ask_for_the_end() -> None:
    log = GatedLog()
    view = view_of(log)
    assert live(view) == set()
    asked = log.ends_asked
    for n in range(3):
        log.gate.release()
        log.append(TOPICS, 0, b"other %d" % n, b"", soon())
        at = view.append([(b"one %d" % n, b""), (b"two %d" % n, b"")], soon())
        seen = view.query(lambda found: set(found.live), soon(), at)
        assert {b"other %d" % n, b"one %d" % n, b"two %d" % n} <= seen
        assert view.query(lambda found: set(found.live), soon(), at) == seen
    assert log.ends_asked == asked


def test_what_others_read_meanwhile_serves_who_has_appended() -> None:
    log = GatedLog()
    view = view_of(log)
    assert live(view) == set()
    at = view.append([(b"one", b"")], soon())
    log.append(TOPICS, 0, b"behind", b"", soon())
    log.gate.release()
    assert live(view) == {b"one", b"behind"}
    asked = log.ends_asked
    assert view.query(lambda found: set(found.live), soon(), at) == {b"one", b"behind"}
    assert log.ends_asked == asked


def test_a_view_that_was_never_read_asks_for_the_end_nevertheless() -> None:
    log = MemoryStateLog()
    view = view_of(log)
    log.append(TOPICS, 0, b"before", b"", soon())
    at = view.append([(b"one", b"")], soon())
    log.append(TOPICS, 0, b"behind", b"", soon())
    assert view.query(lambda found: set(found.live), soon(), at) == {b"before", b"one", b"behind"}


def test_an_end_of_another_log_does_not_count() -> None:
    """The topic was deleted and made anew: offsets begin at 0 again."""
    log = MemoryStateLog()
    view = view_of(log)
    log.append_many(TOPICS, 0, [(b"%d" % n, b"") for n in range(10)], soon())
    assert len(live(view)) == 10
    log._partitions.clear()
    at = view.append([(b"one", b"")], soon())
    assert view.query(lambda found: set(found.live), soon(), at) == {b"one"}


def test_reading_back_long_after_the_append_asks_for_the_end_again() -> None:
    """What stands beyond may have let compaction take what this record rests on."""
    clock = PacedClock()
    log = MemoryStateLog(clock)
    view: LogView[Keys] = LogView(log, TOPICS, 0, Keys, clock)
    log.append(TOPICS, 0, b"winner", b"", soon())
    assert live(view) == {b"winner"}
    log.append(TOPICS, 0, b"another", b"", soon())
    at = view.append([(b"loser", b"")], soon())
    clock.ms += 30_000
    log.append_many(TOPICS, 0, [(b"winner", None), (b"next", b"")], soon())
    assert view.query(lambda found: set(found.live), soon(), at) == {b"another", b"loser", b"next"}


class Unread(MemoryStateLog):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_records = 0

    def read(
        self, topic: StateTopic, partition: int, start: int, end: int, deadline: Deadline
    ) -> Iterator[list[LogRecord]]:
        for batch in super().read(topic, partition, start, end, deadline):
            self.read_records += len(batch)
            yield batch


def test_ones_own_records_right_behind_what_was_read_are_not_read_again() -> None:
    log = Unread()
    view = view_of(log)
    log.append(TOPICS, 0, b"before", b"", soon())
    assert live(view) == {b"before"}
    for n in range(3):
        at = view.append([(b"one %d" % n, b""), (b"one %d" % (n - 1), None)], soon())
        assert view.query(lambda found: set(found.live), soon(), at) == {b"before", b"one %d" % n}
    assert log.read_records == 1
    assert live(view) == {b"before", b"one 2"}


def test_others_records_before_ones_own_are_read() -> None:
    log = Unread()
    view = view_of(log)
    assert live(view) == set()
    log.append(TOPICS, 0, b"other", b"", soon())
    at = view.append([(b"one", b""), (b"other", None)], soon())
    assert view.query(lambda found: set(found.live), soon(), at) == {b"one"}
    assert log.read_records == 3


def test_what_was_not_read_for_long_is_read_anew_by_who_appends() -> None:
    """Tombstones may have come and gone."""
    clock = PacedClock()
    log = MemoryStateLog(clock)
    view: LogView[Keys] = LogView(log, TOPICS, 0, Keys, clock)
    log.append(TOPICS, 0, b"gone", b"", soon())
    assert live(view) == {b"gone"}
    log._partitions[TOPICS.name, 0].records.clear()
    clock.ms += 12 * 3_600_000 + 1
    at = view.append([(b"one", b"")], soon())
    assert view.query(lambda found: set(found.live), soon(), at) == {b"one"}


def test_what_cannot_be_read_is_told_to_who_has_appended_too() -> None:
    log = MemoryStateLog()
    view: LogView[Picky] = LogView(log, TOPICS, 0, Picky, SystemClock())
    view.refresh(soon())
    at = view.append([(b"a", b"unreadable"), (b"b", b"")], soon())
    for _ in range(2):
        with pytest.raises(Corrupt):
            view.refresh(soon(), at)


def test_a_value_that_cannot_be_read_spoils_its_own_entity_alone() -> None:
    log = MemoryStateLog()
    bad, good = (encode_key(TopicKey(f"persistent://a/b/{name}", 1, "00" * 16)) for name in ("bad", "good"))
    log.append_many(TOPICS, 0, [(bad, b"unreadable"), (good, b"")], soon())
    view: LogView[Picky] = LogView(log, TOPICS, 0, Picky, SystemClock())
    for _ in range(2):
        assert view.query(lambda found: set(found.live), soon(), about="persistent://a/b/good") == {good}
        for about in ("persistent://a/b/bad", None):
            with pytest.raises(Corrupt, match="expected something better"):
                view.query(lambda found: found.live, soon(), about=about)
        assert view.query_readable(lambda found: set(found.live), soon()) == ({good}, {"persistent://a/b/bad"})
    at = view.append([(good, b"again")], soon())
    assert view.query(lambda found: set(found.live), soon(), at, about="persistent://a/b/good") == {good}
    log.append(TOPICS, 0, bad, None, soon())
    assert view.query(lambda found: set(found.live), soon()) == {good}


def test_what_views_could_not_read_is_counted_by_topic_and_part(caplog: pytest.LogCaptureFixture) -> None:
    log = MemoryStateLog()
    bad = encode_key(TopicKey("persistent://a/b/bad", 1, "00" * 16))
    views: list[LogView[Any]] = [LogView(log, TOPICS, 0, Picky, SystemClock()) for _ in range(2)]
    log.append_many(TOPICS, 0, [(bad, b"unreadable"), (b"no key", b""), (b"no key", b"")], soon())
    quiet: LogView[Any] = LogView(log, DELIVERIES, 0, Picky, SystemClock())
    log.append_many(DELIVERIES, 0, [(b"no key", b""), (b"no key", None)], soon())  # somebody took it away
    quiet.refresh(soon())
    for view in views:
        view.query_readable(lambda found: None, soon())
    here = {("topics", "value"): 1, ("topics", "key"): 1, ("deliveries", "value"): 0, ("deliveries", "key"): 0}
    assert unreadable([log]) == here
    assert caplog.text.count("skips 1 keys") == len(views)
    assert unreadable([MemoryStateLog()]) == {}
