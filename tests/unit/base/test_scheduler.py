"""Calls at given times, and at intervals."""

from __future__ import annotations

import threading
import time

from pulsar_on_kafka.base.scheduler import Scheduler


def test_a_task_is_called_again_and_again_also_after_a_failure() -> None:
    scheduler = Scheduler("test")
    calls = threading.Semaphore(0)

    def task() -> None:
        calls.release()
        raise RuntimeError("no matter")

    scheduler.every(0.001, task)
    for _ in range(5):
        assert calls.acquire(timeout=5)
    scheduler.close()


def test_after_cancel_it_is_not_running_and_never_comes_again() -> None:
    scheduler = Scheduler("test")
    begun, go_on = threading.Event(), threading.Event()
    ended: list[int] = []

    def task() -> None:
        begun.set()
        go_on.wait(60)
        ended.append(1)

    scheduler.every(0.001, task)
    assert begun.wait(60)
    threading.Timer(0.05, go_on.set).start()
    scheduler.cancel(task)
    assert ended == [1]
    scheduler.close()
    assert ended == [1]


def test_a_task_may_cancel_itself_and_close_everything() -> None:
    scheduler = Scheduler("test")
    done = threading.Event()

    def task() -> None:
        scheduler.cancel(task)
        scheduler.close()
        done.set()

    scheduler.every(0.001, task)
    assert done.wait(60)
    scheduler.close()
    scheduler.close()


def test_nothing_is_begun_after_close() -> None:
    scheduler = Scheduler("test")
    scheduler.close()
    scheduler.every(0.001, lambda: None)
    assert scheduler._thread is None


def test_calls_come_in_the_order_of_their_times_and_at_the_end_all_at_once() -> None:
    scheduler = Scheduler("test")
    made: list[str] = []
    done = threading.Event()
    now_s = time.monotonic()
    scheduler.every(3600.0, lambda: made.append("not in this hour"))
    scheduler.call_at(now_s + 7200.0, lambda: made.append("in two hours"))
    scheduler.call_at(now_s + 3600.0, lambda: made.append("in an hour"))
    with scheduler._changed:  # the thread looks when both are there
        scheduler.call_at(now_s + 0.002, done.set)
        scheduler.call_at(now_s + 0.001, lambda: made.append("soon"))
    assert done.wait(60)
    assert made == ["soon"]
    scheduler.close()
    assert made == ["soon", "in an hour", "in two hours"]
    scheduler.call_at(now_s + 3600.0, lambda: made.append("at once"))
    assert made[-1] == "at once"
