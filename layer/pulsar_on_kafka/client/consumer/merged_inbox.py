"""A merged inbox joins the inboxes of several topics."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, cast

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Closed, DeadlineExceeded, NoSuchTopic
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import (
    LONGEST_WAIT_S,
    MAX_INBOX_BYTES,
    Delivery,
    Endpoint,
)
from pulsar_on_kafka.client.values.message import ReceivedMessage

TURN: Final = 20
"""Messages in a row from one topic while others have some, too."""


class MergedInbox:
    """The merged inbox takes turns among the endpoints that have messages. Thread-safe.

    Memory: nothing of its own; each endpoint is bounded by its share (see `share`).
    """

    def __init__(self, name: str, queue_size: int, max_total: int, *, topics_come_and_go: bool = False) -> None:
        """`queue_size`: messages per topic at most; `max_total`: of all topics together. Both are 1 or more.

        `topics_come_and_go`: topics are discovered regularly, so a deleted one is no failure.
        """
        self.name = name
        self._topics_come_and_go = topics_come_and_go
        self.capacity = queue_size
        self.starved = False
        """Always: the endpoints wake their members themselves."""
        self.on_available: Callable[[], None] | None = None
        self.wake_member: Callable[[], None] = lambda: None
        self.queue = self
        self._max_total = max_total
        self._endpoints: set[Endpoint] = set()
        self._ready: deque[Endpoint] = deque()
        self._listed: set[Endpoint] = set()
        self._taken_in_turn = 0
        self._waiting = 0
        self._closed = False
        self._changed = threading.Condition()

    def share(self, topics: int) -> int:
        """The number of messages that each of this many topics may hold."""
        return max(1, min(self.capacity, self._max_total // max(1, topics)))

    def add(self, endpoint: Endpoint) -> None:
        """Take messages of this endpoint, too; every endpoint is cut down to its new share."""
        with self._changed:
            self._endpoints.add(endpoint)
            share = self.share(len(self._endpoints))
            for each in self._endpoints:
                each.resize(min(each.capacity, share))
                each.max_bytes = MAX_INBOX_BYTES // len(self._endpoints)
        endpoint.on_available = lambda: self._available(endpoint)
        self._available(endpoint)

    def remove(self, endpoint: Endpoint) -> None:
        endpoint.on_available = None
        with self._changed:
            self._endpoints.discard(endpoint)
            if endpoint in self._listed:
                self._listed.discard(endpoint)
                self._ready.remove(endpoint)

    def _available(self, endpoint: Endpoint) -> None:
        with self._changed:
            if endpoint not in self._listed and endpoint in self._endpoints and endpoint.queue:
                self._listed.add(endpoint)
                self._ready.append(endpoint)
            if self._waiting:
                self._changed.notify_all()
        if self.on_available is not None:
            self.on_available()

    @property
    def failure(self) -> Exception | None:
        """Why nothing will come any more: every topic failed (one that fails alone is reported by its member)."""
        with self._changed:
            return self._failure()

    def _failure(self) -> Exception | None:
        failures = [endpoint.failure for endpoint in self._endpoints]
        if self._topics_come_and_go and any(isinstance(each, NoSuchTopic) for each in failures):
            return None
        return failures[0] if failures and all(failures) else None

    def popleft(self) -> ReceivedMessage:
        """The next message; IndexError when there is none."""
        with self._changed:
            return self._pop()

    def _pop(self) -> ReceivedMessage:
        while True:
            endpoint = self._ready[0]
            try:
                message = endpoint.queue.popleft()
            except IndexError:
                self._listed.discard(self._ready.popleft())
                self._taken_in_turn = 0
                continue
            self._taken_in_turn += 1
            if self._taken_in_turn >= TURN:
                self._taken_in_turn = 0
                self._ready.rotate(-1)
            if endpoint.starved and endpoint.has_room_again():
                endpoint.wake_member()
            return cast("ReceivedMessage", message)

    def appendleft(self, message: Delivery) -> None:
        """Put a message back: it is the next one."""
        endpoint = message.feed.endpoint
        with self._changed:
            endpoint.queue.appendleft(message)
            if endpoint in self._listed:
                self._ready.remove(endpoint)
            self._listed.add(endpoint)
            self._ready.appendleft(endpoint)
            self._taken_in_turn = 0

    def has_room_again(self) -> bool:
        return False

    def take_now(self) -> ReceivedMessage | None:
        try:
            return self.popleft()
        except IndexError:
            return None

    def take(self, deadline: Deadline) -> ReceivedMessage:
        """The next message, waited for.

        Raises:
            DeadlineExceeded: none came in time.
            Closed: the consumer was closed.
        """
        with self._changed:
            self._waiting += 1
            try:
                while True:
                    if self._closed:
                        raise Closed(f"consumer {self.name} is closed")
                    try:
                        return self._pop()
                    except IndexError:
                        pass
                    failure = self._failure()
                    if failure is not None:
                        raise failure
                    if deadline.passed():
                        raise DeadlineExceeded(f"no message for consumer {self.name} in time")
                    self._changed.wait(min(LONGEST_WAIT_S, deadline.remaining_s()))
            finally:
                self._waiting -= 1

    def expect(self, more: int) -> None:
        """Matters for an inbox of capacity 0 only, which this one never is."""

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._listed.clear()
            self._endpoints.clear()
            self._changed.notify_all()
