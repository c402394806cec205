"""Who may share whose reading, and what a view does with what it meets."""

from __future__ import annotations

import dataclasses
import random
import threading
from collections.abc import Callable, Iterator

import pytest

from layer.clock import SystemClock
from layer.deadline import Deadline
from layer.errors import DeadlineExceeded
from layer.statelog.api import LogRecord
from layer.statelog.memory_log import MemoryStateLog
from layer.statelog.view import LogView
from mapping.state_topics import DELIVERIES, TOPICS, StateTopic


class Keys:
    def __init__(self) -> None:
        self.live: set[bytes] = set()

    def apply(self, record: LogRecord) -> None:
        if record.key == b"bug":
            raise KeyError("a mistake of the fold's own")
        (self.live.discard if record.value is None else self.live.add)(record.key)


class GatedLog(MemoryStateLog):
    """Readings wait at a gate, after the end was asked for; `ends_asked` counts."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Semaphore(0)
        self.reading = threading.Semaphore(0)
        self.ends_asked = 0

    def end_offset(self, topic: StateTopic, partition: int, deadline: Deadline) -> int:
        self.ends_asked += 1
        return super().end_offset(topic, partition, deadline)

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
    return view.ask(lambda found: set(found.live), soon())


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
    while len(view._changed._waiters) < 8:  # type: ignore[attr-defined]
        threading.Event().wait(0.001)
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
    while any(record.key == b"winner" and record.value for record in log._partitions[TOPICS.kafka_name, 0].records):
        log.compact(rng)
    for _ in range(10):
        log.gate.release()
    reading.join()
    assert found == [{b"loser", b"next"}]
