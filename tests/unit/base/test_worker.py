"""Workers: a thread that works until it is closed, one that takes what is put, and one for a single call."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Sequence

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Closed, Fenced, NotAuthorized, StoreError
from pulsar_on_kafka.base.worker import QueueWorker, Retry, Worker, aside

PATIENCE_S = 20.0
LOGGER = "pulsar_on_kafka.base.worker"


def patience() -> Deadline:
    return Deadline.after(PATIENCE_S)


def test_work_goes_on_after_what_fails_until_the_end(caplog: pytest.LogCaptureFixture) -> None:
    trouble: list[Exception] = [
        StoreError("no broker"),
        StoreError("still none"),  # the same: said once
        Fenced("somebody else"),
        ValueError("a mistake"),
        Closed("over"),
    ]
    fine = threading.Event()

    def work() -> float:
        if trouble:
            raise trouble.pop(0)
        fine.set()
        return 3600.0

    worker = Worker("pok-test-worker", work, "work undone", retry=Retry(0.001, 0.004))
    with caplog.at_level(logging.INFO, logger=LOGGER):
        worker.start()
        assert fine.wait(PATIENCE_S)
    assert worker.is_alive()
    assert worker.name == "pok-test-worker"
    assert not worker.ended
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "work undone, again in 0 s: no broker"),
        ("INFO", "work undone, again in 0 s: somebody else"),
        ("ERROR", "work undone, again in 0 s"),
    ]
    fine.clear()
    worker.wake()  # the next time would be in an hour
    assert fine.wait(PATIENCE_S)
    worker.close(patience())
    worker.close(patience())
    assert worker.ended
    assert not worker.is_alive()


def test_what_worked_meanwhile_is_said_again(caplog: pytest.LogCaptureFixture) -> None:
    said = threading.Semaphore(0)

    def work() -> float:
        worker.well()  # as work that does not return says
        said.release()
        raise StoreError("no broker")

    worker = Worker("pok-test-worker", work, "work undone", retry=Retry(0.001))
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        worker.start()
        for _ in range(3):
            assert said.acquire(timeout=PATIENCE_S)
        worker.close(patience())
    assert len(caplog.records) >= 2


def test_pauses_grow_up_to_the_longest() -> None:
    retry = Retry(1.0, 5.0)
    pauses = [retry.next_s(0.0)]
    for _ in range(3):
        pauses.append(retry.next_s(pauses[-1]))
    assert pauses == [1.0, 2.0, 4.0, 5.0]
    assert Retry(2.0).next_s(Retry(2.0).next_s(0.0)) == 2.0


def test_without_a_right_nobody_asks_at_once_again() -> None:
    asked = threading.Semaphore(0)

    def work() -> float:
        asked.release()
        raise NotAuthorized("no right")

    worker = Worker("pok-test-worker", work, "work undone", retry=Retry(0.001))
    worker.start()
    assert asked.acquire(timeout=PATIENCE_S)
    worker.wake()  # does not cut short the pause after a failure
    assert not asked.acquire(timeout=0.05)
    worker.close(patience())
    assert not worker.is_alive()


def test_work_that_lasts_sees_that_it_is_to_end_and_the_last_is_done() -> None:
    begun, last = threading.Event(), threading.Event()

    def work() -> float:
        begun.set()
        while not worker.pause(0.001):
            pass
        return math.inf

    worker = Worker("pok-test-worker", work, "work undone", last=last.set)
    worker.start()
    assert begun.wait(PATIENCE_S)
    worker.close(patience())
    assert not worker.is_alive()
    assert last.is_set()


def test_what_never_began_ends_without_a_thread_and_begins_no_more() -> None:
    begun = threading.Event()
    worker = Worker("pok-test-worker", lambda: float(begun.set() or 0.0), "work undone")
    worker.close(patience())
    worker.start()
    assert not worker.is_alive()
    assert not begun.is_set()


def test_a_worker_is_closed_from_within() -> None:
    done = threading.Event()

    def work() -> float:
        worker.close(patience())
        done.set()
        return 0.0

    worker = Worker("pok-test-worker", work, "work undone")
    worker.start()
    assert done.wait(PATIENCE_S)
    worker.close(patience())
    assert not worker.is_alive()


def test_a_queue_is_taken_in_order_all_that_waits_at_a_time(caplog: pytest.LogCaptureFixture) -> None:
    taken: list[list[int]] = []
    begun, go_on = threading.Event(), threading.Event()
    ended: list[str] = []

    def take(items: Sequence[int]) -> None:
        taken.append(list(items))
        begun.set()
        assert go_on.wait(PATIENCE_S)
        if items[0] == 2:
            raise ValueError("a mistake")

    queue = QueueWorker("pok-test-queue", take, last=lambda: ended.append(threading.current_thread().name))
    assert queue.is_idle()
    assert queue.put([1])
    assert begun.wait(PATIENCE_S)
    assert queue.put([2, 3])
    assert queue.put([4])
    assert not queue.is_idle()
    assert queue.wait_until_idle(Deadline.after(0)) == 3
    go_on.set()
    assert queue.wait_until_idle(patience()) == 0
    assert queue.put([5])
    assert queue.close(patience())
    assert queue.close(patience())
    assert not queue.put([6])
    assert taken == [[1], [2, 3, 4], [5]]
    assert ended == ["pok-test-queue"]
    assert [record.getMessage() for record in caplog.records] == ["pok-test-queue: 3 could not be done"]


def test_a_queue_that_takes_for_too_long_says_that_it_did_not_end() -> None:
    go_on = threading.Event()

    def take(_items: Sequence[int]) -> None:
        assert go_on.wait(PATIENCE_S)

    queue = QueueWorker("pok-test-queue", take)
    queue.put([1])
    assert not queue.close(Deadline.after(0.01))
    go_on.set()
    assert queue.close(patience())


def test_what_a_single_call_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError("a mistake")

    aside("pok-test-aside", fail).join(PATIENCE_S)
    assert [record.getMessage() for record in caplog.records] == ["pok-test-aside ended by a failure"]
