"""One request a group at a time, and no handle that owes an answer for long. What it is for: tests/chaos."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.consumer_groups import GroupRequests
from tests.clocks import SetClock
from tests.waiting import until

AT_ONCE = 0.05


class Handle:
    """Keeps what it is asked, for the test to answer."""

    def __init__(self) -> None:
        self.asked: list[Future[Any]] = []

    def describe_consumer_groups(self, groups: list[str], **options: object) -> dict[str, Future[Any]]:
        self.asked.append(Future())
        return {groups[0]: self.asked[-1]}


class Setting:
    def __init__(self) -> None:
        self.clock = SetClock()
        self.handles: list[Handle] = []
        self.requests = GroupRequests(self._opened, self.clock)

    def _opened(self) -> AdminClient:
        self.handles.append(Handle())
        return cast("AdminClient", self.handles[-1])

    def describe_in_vain(self, group: str) -> None:
        with pytest.raises(FutureTimeoutError):
            self.requests.describe(group, Deadline.after(AT_ONCE))


def test_who_goes_away_leaves_one_request_behind() -> None:
    on = Setting()
    for _ in range(5):
        on.describe_in_vain("g")
    on.describe_in_vain("another")
    assert len(on.handles[0].asked) == 2


def test_an_answer_to_somebody_else_is_not_taken_for_ones_own() -> None:
    on = Setting()
    on.describe_in_vain("g")
    found: list[str] = []
    asker = threading.Thread(target=lambda: found.append(on.requests.describe("g", Deadline.after(30))))
    asker.start()
    on.handles[0].asked[0].set_result("as it was before")
    until(lambda: len(on.handles[0].asked) == 2, "the second question")
    on.handles[0].asked[1].set_result("as it is")
    asker.join(30)
    assert found == ["as it is"]


@pytest.mark.parametrize(
    "code",
    [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS],
)
def test_a_coordinator_on_the_move_is_asked_again(code: int) -> None:
    on = Setting()
    found: list[str] = []
    asker = threading.Thread(target=lambda: found.append(on.requests.describe("g", Deadline.after(30))))
    asker.start()
    for asked in (1, 2):
        until(lambda: on.handles and len(on.handles[0].asked) == asked, "the question")  # noqa: B023
        if asked == 1:
            on.handles[0].asked[0].set_exception(KafkaException(KafkaError(code)))
    on.handles[0].asked[1].set_result("as it is")
    asker.join(30)
    assert found == ["as it is"]


def test_what_a_coordinator_refuses_is_told_at_once() -> None:
    on = Setting()
    on.describe_in_vain("g")
    on.handles[0].asked[0].set_exception(KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)))
    told: list[int] = []

    def ask() -> None:
        with pytest.raises(KafkaException) as refused:
            on.requests.describe("g", Deadline.after(30))
        told.append(refused.value.args[0].code())

    asker = threading.Thread(target=ask)
    asker.start()
    until(lambda: len(on.handles[0].asked) == 2, "the second question")
    on.handles[0].asked[1].set_exception(KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)))
    asker.join(30)
    assert told == [KafkaError.GROUP_AUTHORIZATION_FAILED]


def test_a_handle_that_owes_an_answer_for_five_seconds_is_given_up() -> None:
    on = Setting()
    on.describe_in_vain("g")
    on.clock.seconds += 4
    on.describe_in_vain("another")
    assert len(on.handles) == 1
    on.clock.seconds += 2
    on.describe_in_vain("another")
    on.describe_in_vain("g")
    assert [len(handle.asked) for handle in on.handles] == [2, 1]
    on.clock.seconds += 5
    on.describe_in_vain("g")
    assert [len(handle.asked) for handle in on.handles] == [2, 1, 1]
