"""Requests that threads make at a time become one, each with its own deadline and its own outcome."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import DeadlineExceeded
from pulsar_on_kafka.kafka.admin_requests import GatheredRequests
from tests.waiting import until


class Broker:
    """Answers a request when it may."""

    def __init__(self) -> None:
        self.requests: list[dict[str, int]] = []
        self.sent: list[dict[str, Future[int]]] = []
        self.refuses = False
        self.gathered = GatheredRequests(self._send)

    def _send(self, items: Mapping[str, int], deadline: Deadline) -> Mapping[str, Future[int]]:
        assert deadline.remaining_s() > 30
        if self.refuses:
            raise ValueError("a bad topic")
        self.requests.append(dict(items))
        self.sent.append({topic: Future() for topic in items})
        return self.sent[-1]

    def answer(self) -> None:
        for request in self.sent:
            for topic, future in request.items():
                if not future.done():
                    future.set_result(len(topic))

    def waiting(self) -> set[str]:
        return set() if self.gathered._next is None else set(self.gathered._next.items)


def test_those_who_ask_while_a_request_is_under_way_share_the_next_one() -> None:
    broker = Broker()

    def ask(topic: str) -> int:
        return broker.gathered.request(topic, 7, Deadline.after(60)).result(60)

    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(ask, "a")
        until(lambda: broker.requests, "the first request")
        others = [threads.submit(ask, topic) for topic in ("bb", "ccc", "bb")]
        until(lambda: broker.waiting() == {"bb", "ccc"} or len(broker.requests) > 1, "the others to join")
        until(lambda: [broker.answer()] and all(each.done() for each in (first, *others)), "all answers")
    assert [first.result(), *(each.result() for each in others)] == [1, 2, 3, 2]
    assert broker.requests[0] == {"a": 7}
    assert len(broker.requests) <= 3


def test_a_request_that_takes_long_does_not_hold_the_next_one_up() -> None:
    broker = Broker()
    threads = [
        threading.Thread(target=broker.gathered.request, args=(topic, 1, Deadline.after(60))) for topic in ("a", "b")
    ]
    for thread in threads:
        thread.start()
    until(lambda: broker.requests == [{"a": 1}, {"b": 1}] or broker.requests == [{"b": 1}, {"a": 1}], "two requests")
    for thread in threads:
        thread.join()


def test_a_refused_request_fails_those_who_share_it_and_no_later_one() -> None:
    broker = Broker()
    broker.refuses = True
    with pytest.raises(ValueError, match="a bad topic"):
        broker.gathered.request("a", 1, Deadline.after(60))
    broker.refuses = False
    future = broker.gathered.request("a", 1, Deadline.after(60))
    broker.answer()
    assert future.result(60) == 1


def test_a_caller_waits_no_longer_than_its_own_deadline() -> None:
    broker = Broker()
    held = threading.Event()
    send = broker._send

    def slow(items: Mapping[str, int], deadline: Deadline) -> Mapping[str, Future[int]]:
        held.wait(60)
        return send(items, deadline)

    broker.gathered = GatheredRequests(slow)
    first = threading.Thread(target=broker.gathered.request, args=("a", 1, Deadline.after(60)))
    first.start()
    until(lambda: broker.gathered._requesting.locked(), "the first request")
    second = threading.Thread(target=broker.gathered.request, args=("b", 1, Deadline.after(60)))
    second.start()
    until(lambda: broker.waiting() == {"b"}, "the second to gather")
    with pytest.raises(DeadlineExceeded, match="a request about topic b"):
        broker.gathered.request("b", 1, Deadline.after(0.01))
    held.set()
    first.join()
    second.join()
