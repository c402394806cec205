"""The threads of a gateway: callers take turns, and neither one caller nor one topic occupies all of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Any

import pytest

from pulsar_on_kafka.base.errors import Closed
from pulsar_on_kafka.gateway.protocol.fair_pool import MAX_OF_CALLER, MAX_OF_TOPIC, THREADS, FairPool
from pulsar_on_kafka.gateway.protocol.request_queue import MAX_REQUESTS, RequestQueue
from pulsar_on_kafka_mapping.wire.commands import ServerError
from tests.waiting import never, until


class Held:
    """Work that begins, is counted by its caller, and goes on when it may."""

    def __init__(self) -> None:
        self.pool = FairPool("test")
        self.may_end = threading.Event()
        self.begun: Counter[str] = Counter()
        self._lock = threading.Lock()

    def submit(self, caller: str, topic: str = "") -> Future[None]:
        return self.pool.submit(self._work, caller, caller=caller, topic=topic)

    def _work(self, caller: str) -> None:
        with self._lock:
            self.begun[caller] += 1
        assert self.may_end.wait(60)


@pytest.fixture
def held() -> Iterator[Held]:
    found = Held()
    yield found
    found.may_end.set()
    found.pool.shutdown()


def test_one_caller_leaves_threads_to_others(held: Held) -> None:
    for number in range(1000):
        held.submit("many", f"topic {number}")
    until(lambda: held.begun["many"] == MAX_OF_CALLER, "as many to begin as may")
    held.submit("one")
    until(lambda: held.begun["one"] == 1, "another caller's work to begin")
    never(lambda: held.begun["many"] > MAX_OF_CALLER, "more of one caller")


def test_one_topic_leaves_threads_to_others_however_many_callers_there_are(held: Held) -> None:
    """Five hundred consumers of one subscription that join wait for one another."""
    for number in range(500):
        held.submit(f"caller {number}", "busy")
    until(lambda: held.begun.total() == MAX_OF_TOPIC, "as many to begin as may")
    held.submit("caller 1", "quiet")
    until(lambda: held.begun.total() == MAX_OF_TOPIC + 1, "work on another topic to begin")


def test_callers_take_turns(held: Held) -> None:
    order: list[str] = []
    callers = [f"busy {number}" for number in range(THREADS // MAX_OF_CALLER)]
    firsts = [held.submit(caller) for caller in callers for _ in range(MAX_OF_CALLER)]
    until(lambda: held.begun.total() == THREADS, "all threads to be busy")
    done = [held.pool.submit(order.append, each, caller=each) for each in callers for _ in range(100)]
    late = held.pool.submit(order.append, "late", caller="late")
    held.may_end.set()
    wait([*firsts, *done, late], 60)
    assert order.index("late") < 4 * THREADS
    assert Counter(order) == Counter({"late": 1, **dict.fromkeys(callers, 100)})


def test_a_pool_that_was_shut_down_does_what_it_was_given_and_refuses_more(held: Held) -> None:
    given = [held.submit(f"caller {number}") for number in range(100)]
    held.may_end.set()
    held.pool.shutdown()
    assert all(each.done() and each.exception() is None for each in given)
    assert isinstance(held.submit("late").exception(), Closed)


def test_work_that_waits_for_its_caller_or_topic_is_done_although_the_pool_shuts_down(held: Held) -> None:
    """As on the end of a gateway, when each of its connections has much to close."""
    given = [held.submit("many", "busy" if number % 3 else f"topic {number}") for number in range(300)]
    given += [held.submit(f"caller {number % 10}", "busy") for number in range(300)]
    ending = threading.Thread(target=held.pool.shutdown)
    ending.start()
    until(lambda: held.submit("late").done(), "the pool to refuse more")
    held.may_end.set()
    wait(given, 60)
    ending.join(60)
    assert all(each.done() and each.exception() is None for each in given)


def test_failures_are_told(held: Held) -> None:
    def fails() -> None:
        raise ValueError("broken")

    assert isinstance(held.pool.submit(fails).exception(60), ValueError)
    assert held.pool.submit(max, 1, 2).result(60) == 2


class Now:
    """A pool that works when it is told to."""

    def __init__(self) -> None:
        self.begun: list[tuple[Callable[[], Any], Future[Any]]] = []

    def submit(self, work: Callable[..., Any], *arguments: Any, caller: object, topic: str) -> Future[Any]:
        self.begun.append((work, Future()))
        return self.begun[-1][1]

    def finish(self) -> None:
        work, future = self.begun.pop(0)
        future.set_result(work())


def test_nothing_begins_while_a_client_does_not_read_its_replies() -> None:
    pool: Any = Now()
    reads = True
    requests = RequestQueue(pool, lambda action: action(), lambda: reads)
    replies: list[int] = []
    refused: list[ServerError] = []
    for number in range(MAX_REQUESTS + 5):
        requests.begin(lambda number=number: number, replies.append, lambda code, _: refused.append(code))  # type: ignore[misc]
    assert len(pool.begun) == MAX_OF_CALLER
    assert refused == [ServerError.TOO_MANY_REQUESTS] * 5
    reads = False
    for _ in range(MAX_OF_CALLER):
        pool.finish()
    assert (len(replies), pool.begun) == (MAX_OF_CALLER, [])
    reads = True
    requests.begin_waiting()
    assert len(pool.begun) == MAX_OF_CALLER
    requests.end()  # what was asked is done all the same: it may have opened something
    assert len(pool.begun) == MAX_REQUESTS - MAX_OF_CALLER
    while pool.begun:
        pool.finish()
    assert replies == [*range(MAX_REQUESTS)]


def test_what_was_opened_is_closed_although_the_client_does_not_read(held: Held) -> None:
    reads, began = [False], list[str]()
    queue = RequestQueue(held.pool, lambda action: action(), lambda: reads[0])
    held.may_end.set()
    queue.begin(lambda: began.append("look up"), lambda _: None, lambda code, reason: None)
    queue.begin_close(lambda: began.append("close"), lambda _: None, lambda code, reason: None, topic="t")
    queue.begin_close(lambda: began.append("close another"), lambda _: None, lambda code, reason: None, topic="t")
    until(lambda: sorted(began) == ["close", "close another"], "the ends alone")
    reads[0] = True
    queue.begin_waiting()
    until(lambda: "look up" in began, "the request")


def test_an_end_comes_after_the_requests_before_it(held: Held) -> None:
    began: list[str] = []
    queue = RequestQueue(held.pool, lambda action: action(), lambda: True)
    for number in range(MAX_OF_CALLER):
        queue.begin(
            lambda: held.submit("other").result(60), lambda _: None, lambda code, reason: None, topic=str(number)
        )
    queue.begin(lambda: began.append("unsubscribe"), lambda _: None, lambda code, reason: None, topic="t")
    queue.begin_close(lambda: began.append("close"), lambda _: None, lambda code, reason: None, topic="t")
    assert [each.is_end for each in queue.waiting] == [False, True]
    held.may_end.set()
    until(lambda: sorted(began) == ["close", "unsubscribe"], "both")
