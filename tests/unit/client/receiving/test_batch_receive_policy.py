"""A batch of received messages is complete by number, bytes or time."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, cast

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import DeadlineExceeded
from pulsar_on_kafka.client.receiving.batch_receive import ConsumerBatchReceivePolicy


class FakeInbox:
    def __init__(self, *sizes: int) -> None:
        self.queue = deque(FakeMessage(size) for size in sizes)
        self.waited = 0

    def take_now(self) -> FakeMessage | None:
        return self.queue.popleft() if self.queue else None

    def take(self, deadline: Deadline) -> FakeMessage:
        self.waited += 1
        raise DeadlineExceeded("nothing")


class FakeMessage:
    def __init__(self, size: int) -> None:
        self.size = size

    def data(self) -> bytes:
        return bytes(self.size)


def sizes(policy: ConsumerBatchReceivePolicy, inbox: FakeInbox) -> list[int]:
    return [len(message.data()) for message in policy.collect(cast("Any", inbox))]


def test_by_number() -> None:
    inbox = FakeInbox(1, 2, 3, 4)
    assert sizes(ConsumerBatchReceivePolicy(3, -1, 100), inbox) == [1, 2, 3]
    assert not inbox.waited


def test_by_bytes_the_message_that_is_too_much_stays() -> None:
    inbox = FakeInbox(10, 10, 10)
    policy = ConsumerBatchReceivePolicy(-1, 25, 100)
    assert sizes(policy, inbox) == [10, 10]
    assert sizes(policy, inbox) == [10]


def test_one_message_is_never_too_large() -> None:
    assert sizes(ConsumerBatchReceivePolicy(-1, 5, 100), FakeInbox(10, 10)) == [10]


def test_by_time() -> None:
    began = time.monotonic()
    assert sizes(ConsumerBatchReceivePolicy(-1, -1, 50), FakeInbox(1)) == [1]
    assert sizes(ConsumerBatchReceivePolicy(0, 0, 50), FakeInbox()) == []
    assert time.monotonic() - began < 60


def test_a_batch_is_no_larger_than_the_queue() -> None:
    assert sizes(ConsumerBatchReceivePolicy(100, -1, 100).within(2), FakeInbox(1, 1, 1)) == [1, 1]
    assert sizes(ConsumerBatchReceivePolicy(2, -1, 100).within(0), FakeInbox(1, 1, 1)) == [1, 1]


def test_some_limit_there_must_be() -> None:
    for limits in ((0, 0, 0), (-1, -1, -1)):
        with pytest.raises(ValueError, match="at least one"):
            ConsumerBatchReceivePolicy(*limits)
    with pytest.raises(TypeError, match="max_num_message"):
        ConsumerBatchReceivePolicy("a", 0, 0)  # type: ignore[arg-type]
