"""Many threads on one fetcher, whose reader a test plays: none waits for what another one waits for."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from typing import cast

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Closed, DeadlineExceeded, LayerError, NoSuchTopic
from pulsar_on_kafka.kafka.reading.assigned_reader import LOG_END, LOG_START, AssignedReader
from pulsar_on_kafka.kafka.reading.events import Event, KafkaPartition, Records
from pulsar_on_kafka.kafka.reading.fair_lock import FairLock
from pulsar_on_kafka.kafka.reading.fetcher import Fetcher
from pulsar_on_kafka.statelog.api import LogRecord
from tests.kafka_records import LoggedRecord
from tests.waiting import until

_ANSWERED_AFTER = 3
"""Polls from the one with which a partition was assigned."""
_NOBODY = "nobody"


class SlowBroker:
    """Implements `AssignedReader`. What a poll gives was asked for some polls earlier, unless its partition was dropped
    meanwhile."""

    def __init__(self) -> None:
        self.polls = 0
        self.asked: list[dict[KafkaPartition, int]] = []
        self.go = threading.Event()
        """Set: questions are answered."""
        self.go.set()
        self._positions: dict[KafkaPartition, tuple[int, int]] = {}
        """The next offset, and the poll that gives it."""

    def open(self) -> None:
        pass

    def add(self, starts: Mapping[KafkaPartition, int]) -> None:
        self._positions |= {where: (offset, self.polls + _ANSWERED_AFTER) for where, offset in starts.items()}

    def drop(self, partitions: Iterable[KafkaPartition]) -> None:
        for where in list(partitions):
            del self._positions[where]

    def poll(self, limit: int, timeout_s: float) -> list[Event]:
        self.polls += 1
        found: list[Event] = []
        for where, (offset, at) in self._positions.items():
            if at <= self.polls and where.topic != _NOBODY:
                found.append(Records(where, [LoggedRecord(*where, LogRecord(offset, b"k", b"v", 0))]))
                self._positions[where] = offset + 1, self.polls + _ANSWERED_AFTER
        if not found:
            threading.Event().wait(min(0.001, timeout_s))
        return found

    def offsets(self, wanted: Mapping[KafkaPartition, int], timeout_s: float) -> dict[KafkaPartition, int | LayerError]:
        assert self.go.wait(20)
        self.asked.append(dict(wanted))
        answers: dict[KafkaPartition, int | LayerError] = {}
        for where, timestamp in wanted.items():
            if where.topic == _NOBODY:
                raise NoSuchTopic(f"{where} is not there")
            answers[where] = {LOG_START: where.partition, LOG_END: 100 + where.partition}.get(timestamp, -1)
        return answers

    def learn(self, topic: str, timeout_s: float) -> bool:
        return True

    def release(self) -> None:
        self._positions.clear()


@pytest.fixture
def broker() -> SlowBroker:
    return SlowBroker()


@pytest.fixture
def fetcher(broker: SlowBroker) -> Fetcher:
    made = Fetcher({})
    made._consumer = cast("AssignedReader", broker)
    return made


def read(fetcher: Fetcher, partition: int, start: int = 0, end: int = 5) -> list[int]:
    batches = fetcher.read("t", partition, start, end, Deadline.after(30))
    return [each.offset() for batch in batches for each in batch]


def test_readings_do_not_throw_away_what_is_under_way_to_others(fetcher: Fetcher, broker: SlowBroker) -> None:
    """Sixteen that took the assignment from each other, one after every poll, never got a record."""
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(lambda partition: read(fetcher, partition), range(16)))
    assert found == [[0, 1, 2, 3, 4]] * 16
    assert broker.polls < 16 * 5 * _ANSWERED_AFTER
    assert broker._positions == {}


def test_two_threads_that_read_one_partition_both_get_on(fetcher: Fetcher) -> None:
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda start: read(fetcher, 0, start, start + 4), (0, 7)))
    assert found == [[0, 1, 2, 3], [7, 8, 9, 10]]


@pytest.mark.parametrize("length", [2, 3, 7])
def test_what_comes_while_a_thread_works_on_a_batch_is_kept_for_it(fetcher: Fetcher, length: int) -> None:
    """Others have meanwhile polled the rest, or a part of it."""
    batches = fetcher.read("t", 0, 0, length, Deadline.after(30))
    found: list[int] = []
    for batch in batches:
        found += [each.offset() for each in batch]
        assert read(fetcher, 1) == [0, 1, 2, 3, 4]
    assert found == list(range(length))


@pytest.mark.parametrize("seed", range(6))
def test_every_thread_reads_all_of_its_range(fetcher: Fetcher, seed: int) -> None:
    """Each works on some of its batches for a while, and now and then leaves the rest."""

    def play(number: int) -> None:
        choose = Random(f"{seed} {number}")
        for _ in range(10):
            partition, start = choose.randrange(4), choose.randrange(50)
            length = choose.randrange(1, 12)
            left_after = choose.choice([length, choose.randrange(1, length + 1)])
            found: list[int] = []
            for batch in fetcher.read("t", partition, start, start + length, Deadline.after(30)):
                found += [each.offset() for each in batch]
                if len(found) >= left_after:
                    break
                if choose.random() < 0.3:
                    read(fetcher, choose.randrange(4))
            assert found == list(range(start, start + left_after))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(play, range(8)))


def waiting(fetcher: Fetcher, count: int) -> Callable[[], bool]:
    return lambda: len(fetcher._questions) == count


def test_those_who_wait_are_answered_by_one_request(fetcher: Fetcher, broker: SlowBroker) -> None:
    """Of a partition whose start and end both are wanted, by two."""
    broker.go.clear()
    ask = fetcher.log_end, fetcher.log_start
    with ThreadPoolExecutor(17) as threads:
        first = threads.submit(fetcher.log_end, "t", 50, Deadline.after(30))
        until(waiting(fetcher, 1), "the first question")
        others = [threads.submit(ask[n % 2], "t", n // 2, Deadline.after(30)) for n in range(16)]
        until(waiting(fetcher, 17), "all of them")
        broker.go.set()
    assert first.result() == 150
    assert [each.result() for each in others] == [found for n in range(8) for found in (100 + n, n)]
    assert [len(asked) for asked in broker.asked] == [1, 8, 8]


def test_what_several_ask_is_asked_once(fetcher: Fetcher, broker: SlowBroker) -> None:
    broker.go.clear()
    with ThreadPoolExecutor(9) as threads:
        first = threads.submit(fetcher.log_end, "t", 50, Deadline.after(30))
        until(waiting(fetcher, 1), "the first question")
        same = [threads.submit(fetcher.log_end, "t", 7, Deadline.after(30)) for _ in range(8)]
        until(waiting(fetcher, 9), "all of them")
        broker.go.set()
    assert [each.result() for each in (first, *same)] == [150] + [107] * 8
    assert [len(asked) for asked in broker.asked] == [1, 1]


def test_a_question_that_fails_fails_alone(fetcher: Fetcher, broker: SlowBroker) -> None:
    broker.go.clear()
    with ThreadPoolExecutor(9) as threads:
        first = threads.submit(fetcher.log_end, "t", 50, Deadline.after(30))
        until(waiting(fetcher, 1), "the first question")
        good = [threads.submit(fetcher.log_end, "t", n, Deadline.after(30)) for n in range(7)]
        bad = threads.submit(fetcher.log_end, _NOBODY, 0, Deadline.after(0.5))
        until(waiting(fetcher, 9), "all of them")
        broker.go.set()
        assert [each.result() for each in (first, *good)] == [150, *range(100, 107)]
        with pytest.raises(NoSuchTopic):
            bad.result()


def test_a_reading_for_which_nothing_comes_holds_nobody_up(fetcher: Fetcher, broker: SlowBroker) -> None:
    with ThreadPoolExecutor(1) as threads:
        silent = threads.submit(lambda: list(fetcher.read(_NOBODY, 0, 0, 1, Deadline.after(3))))
        until(lambda: broker.polls > 3, "the reading to have begun")
        for _ in range(50):
            assert fetcher.log_end("t", 1, Deadline.after(30)) == 101
        assert read(fetcher, 2) == [0, 1, 2, 3, 4]
        assert not silent.done()
        with pytest.raises(DeadlineExceeded, match="nobody-0 to be read to 1, now at 0"):
            silent.result()
    assert broker._positions == {}


def test_those_who_wait_hear_that_it_is_closed(fetcher: Fetcher, broker: SlowBroker) -> None:
    with ThreadPoolExecutor(3) as threads:
        silent = [threads.submit(lambda: list(fetcher.read(_NOBODY, 0, 0, 1, Deadline.after(30)))) for _ in range(3)]
        until(lambda: len(fetcher._readings) == 3, "all to wait")
        fetcher.close()
        for each in silent:
            with pytest.raises(Closed):
                each.result()


def test_the_lock_goes_to_who_waits_longest() -> None:
    lock, got = FairLock(), list[int]()
    assert lock.take_if_free()

    def wait(number: int) -> None:
        assert lock.take_unless(lambda: False, Deadline.after(30))
        got.append(number)
        lock.release()

    def waits(count: int) -> bool:
        return len(lock._queue) == count

    with ThreadPoolExecutor(8) as threads:
        for number in range(8):
            threads.submit(wait, number)
            until(partial(waits, number + 1), "the thread to wait")
        assert not lock.take_if_free()
        lock.release()
    assert got == list(range(8))


@pytest.mark.parametrize("granted", [False, True])
def test_who_is_interrupted_while_waiting_keeps_nobody_out(granted: bool) -> None:
    """As by Ctrl-C: before the lock is granted to it, and in the moment in which it is."""
    lock = FairLock()
    assert lock.take_if_free()

    def interrupt(*_: object) -> None:
        if granted:
            lock.release()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with ThreadPoolExecutor(1) as threads:
            sent = threads.submit(interrupt_when, lambda: len(lock._queue) == 1)
            with pytest.raises(KeyboardInterrupt):
                lock.take_unless(lambda: False, Deadline.after(30))
            sent.result()
    finally:
        signal.signal(signal.SIGUSR1, before)
    if not granted:
        lock.release()
    assert lock.take_if_free()


def interrupt_when(waits: Callable[[], bool]) -> None:
    until(waits, "the main thread to wait")
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
