"""Tasks at intervals."""

from __future__ import annotations

import threading

from pulsar_on_kafka.client.values.periodic import Periodic


def test_a_task_is_called_again_and_again_also_after_a_failure() -> None:
    periodic = Periodic("test")
    calls = threading.Semaphore(0)

    def task() -> None:
        calls.release()
        raise RuntimeError("no matter")

    periodic.every(0.001, task)
    for _ in range(5):
        assert calls.acquire(timeout=5)
    periodic.close()


def test_after_cancel_it_is_not_running_and_never_comes_again() -> None:
    periodic = Periodic("test")
    begun, go_on = threading.Event(), threading.Event()
    ended: list[int] = []

    def task() -> None:
        begun.set()
        go_on.wait(5)
        ended.append(1)

    periodic.every(0.001, task)
    assert begun.wait(5)
    threading.Timer(0.05, go_on.set).start()
    periodic.cancel(task)
    assert ended == [1]
    periodic.close()
    assert ended == [1]


def test_a_task_may_cancel_itself_and_close_everything() -> None:
    periodic = Periodic("test")
    done = threading.Event()

    def task() -> None:
        periodic.cancel(task)
        periodic.close()
        done.set()

    periodic.every(0.001, task)
    assert done.wait(5)
    periodic.close()
    periodic.close()


def test_nothing_is_begun_after_close() -> None:
    periodic = Periodic("test")
    periodic.close()
    periodic.every(0.001, lambda: None)
    assert periodic._thread is None
