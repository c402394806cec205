"""A pool's threads run each owner's steps: one at a time, after each wake-up, and at each due time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from pulsar_on_kafka.base.errors import Closed
from pulsar_on_kafka.broker.subscriptions.member import step_pool as module
from pulsar_on_kafka.broker.subscriptions.member.step_pool import MAX_WORKERS, WORKERS, StepPool, StepTask
from tests.waiting import until

LONG_S = 600.0


@pytest.fixture
def pool() -> Iterator[StepPool]:
    made = StepPool("pok-test")
    yield made
    made.close()


class Counted:
    """A task that counts its steps, and notices if two run at a time."""

    def __init__(self, pool: StepPool, due_s: Callable[[], float | None] = lambda: math.inf) -> None:
        self.count = 0
        self.overlapped = False
        self._runs = threading.Lock()
        self._due_s = due_s
        self.task: StepTask = pool.add(self._step)

    def _step(self) -> float | None:
        if not self._runs.acquire(blocking=False):
            self.overlapped = True
            return None
        try:
            self.count += 1
            return self._due_s()
        finally:
            self._runs.release()


def test_no_wake_up_is_lost_whoever_wakes(pool: StepPool) -> None:
    """After the last wake-up of any thread another step begins, which sees what that thread left."""
    left = [0] * 40
    seen = [0] * 40

    def step_of(number: int) -> Callable[[], float]:
        def step() -> float:
            seen[number] = left[number]
            return math.inf

        return step

    tasks = [pool.add(step_of(number)) for number in range(40)]

    def leave(first: int) -> None:
        for value in range(1, 501):
            for number in range(first, 40, 4):
                left[number] = value
                tasks[number].wake()

    threads = [threading.Thread(target=leave, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: seen == [500] * 40, lambda: f"all steps to see 500, seen {seen}")
    for thread in threads:
        thread.join()


def test_steps_of_one_task_never_overlap(pool: StepPool) -> None:
    counted = Counted(pool, time.monotonic)  # always due again
    counted.task.wake()
    until(lambda: counted.count >= 1000, "a thousand steps")
    assert not counted.overlapped


def test_a_due_step_begins_without_a_wake_up(pool: StepPool) -> None:
    dues = iter([0.02, 0.01, 0.03, 0.0, 0.02])
    counted = Counted(pool, lambda: time.monotonic() + next(dues, math.inf))
    counted.task.wake()
    until(lambda: counted.count == 6, lambda: f"6 steps, were {counted.count}")


def test_a_later_due_time_replaces_an_earlier_one(pool: StepPool) -> None:
    dues = iter([0.05, math.inf])
    counted = Counted(pool, lambda: time.monotonic() + next(dues))
    counted.task.wake()
    until(lambda: counted.count == 1, "the first step")
    counted.task.wake()
    until(lambda: counted.count == 2, "the second step, which is due at no time")
    probe = Counted(pool, lambda: time.monotonic() + 0.2)
    probe.task.wake()
    until(lambda: probe.count == 2, "a step that is due later than the first was")
    assert counted.count == 2


def test_the_timer_keeps_few_entries_for_each_task(pool: StepPool) -> None:
    """A task whose due times come ever earlier leaves an entry each time."""
    began_s = time.monotonic()
    counted = Counted(pool, lambda: began_s + 10_000 - counted.count)
    for number in range(100):
        counted.task.wake()
        until(lambda number=number: counted.count == number + 1, "the step")  # type: ignore[misc]
    assert len(pool._timer) <= 4 + 64 + 1


def test_steps_that_wait_for_each_other_get_more_threads(pool: StepPool) -> None:
    """Steps that wait longer than the pool has threads for do not stop it, up to a bound."""
    together = threading.Barrier(MAX_WORKERS)

    def step() -> None:
        together.wait(60)

    for _ in range(MAX_WORKERS):
        pool.add(step).wake()
    until(lambda: not pool._tasks, "all steps to meet")
    assert pool.threads <= MAX_WORKERS + 1


def test_busy_steps_get_no_more_threads(pool: StepPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads help steps that wait. Steps that work would only take Python's lock from each other."""
    monkeypatch.setattr(module, "_STUCK_S", LONG_S)  # a busy machine stops all of them for a while
    busy = [Counted(pool, time.monotonic) for _ in range(20)]
    for each in busy:
        each.task.wake()
    until(lambda: min(each.count for each in busy) >= 300, "300 steps of each")
    assert pool.threads == WORKERS + 1


def test_everyone_gets_a_turn(pool: StepPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two steps of one task all others have one, but those that threads have in hand."""
    monkeypatch.setattr(module, "_STUCK_S", LONG_S)
    begun: list[int] = []

    def begins(number: int) -> Callable[[], float]:
        def step() -> float:
            begun.append(number)
            return time.monotonic()

        return step

    for number in range(50):
        pool.add(begins(number)).wake()
    until(lambda: len(set(begun)) == 50, "a step of each")
    first = len(begun)
    until(lambda: len(begun) >= first + 10_000, "10,000 steps")
    turns, seen = begun[first : first + 10_000], dict[int, int]()
    for place, number in enumerate(turns):
        if number in seen:
            between = set(turns[seen[number] : place])
            assert len(between) >= 50 - 2 * WORKERS, between
        seen[number] = place


def test_a_failing_step_is_the_last_of_its_task_only(pool: StepPool, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> float:
        raise ValueError("broken step")

    pool.add(fail).wake()
    counted = Counted(pool)
    counted.task.wake()
    until(lambda: counted.count == 1 and "broken step" in caplog.text, "the other task's step, and the log")
    assert len(pool._tasks) == 1


def test_a_task_is_over_when_its_step_says_so(pool: StepPool) -> None:
    counted = Counted(pool, lambda: None)
    counted.task.wake()
    until(lambda: not pool._tasks, "the end of the task")
    counted.task.wake()
    other = Counted(pool)
    other.task.wake()
    until(lambda: other.count == 1, "another task's step")
    assert counted.count == 1


def test_the_longest_step_is_known(pool: StepPool) -> None:
    assert pool.longest_step_s == 0.0
    end = threading.Event()

    def step() -> None:
        end.wait(60)

    pool.add(step).wake()
    until(lambda: pool.longest_step_s >= 0.05, "a step of 50 ms")
    end.set()
    until(lambda: pool.longest_step_s == 0.0, "the end of that step")


def test_threads_begin_with_the_first_task_and_end_with_the_pool() -> None:
    pool = StepPool("pok-ending")
    assert pool.threads == 0
    counted = Counted(pool)
    counted.task.wake()
    until(lambda: counted.count == 1, "a step")
    pool.close()
    until(
        lambda: not [each for each in threading.enumerate() if each.name.startswith("pok-ending")], "the threads' end"
    )
    with pytest.raises(Closed, match="pok-ending"):
        pool.add(lambda: None)
