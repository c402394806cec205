"""Drives a member by polling its librdkafka membership, in one thread."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.commands import CommandQueue
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.worker import aside
from pulsar_on_kafka.broker.cursor.saved_cursor import UnreadableCursor
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_context import SubscriptionHandle
from pulsar_on_kafka.broker.subscriptions.member.driver import DrivenMember
from pulsar_on_kafka.broker.subscriptions.member.next_step import NextStep
from pulsar_on_kafka.broker.subscriptions.member.serving import MemberServing
from pulsar_on_kafka.kafka.groups.group_membership import GroupMembership
from pulsar_on_kafka.kafka.groups.membership import GroupCallbacks, GroupConsumer
from pulsar_on_kafka.kafka.reading.events import Event

_MAX_POLL_S: Final = 60.0
"""Below librdkafka's `max.poll.interval.ms`."""
_UNREAD_POLL_S: Final = 0.1
"""Between two polls of one record while no records are of use: rebalances come by polling, too."""
_REPLY_POLL_S: Final = 0.02
"""The same while the reply to a commit is outstanding."""
_BUSY_POLL_S: Final = 0.01
_IDLE_POLL_S: Final = 0.05
_IDLE_AFTER_S: Final = 5.0


class PollingDriver:
    """Polls the membership until a step is due, and makes the steps. Records, commands and wakes end a poll.

    Some versions of confluent-kafka cannot end a poll. With them a poll takes at most 10 ms, and 50 ms after 5 s
    without records and wakes.
    """

    def __init__(self, handle: SubscriptionHandle, config: Mapping[str, Any], clock: Clock) -> None:
        """`config`: the group member's for librdkafka."""
        self._handle = handle
        self._config = config
        self._clock = clock
        self.commands = CommandQueue(self._end_poll)
        self._consumer: GroupConsumer | None = None
        self._thread: threading.Thread | None = None
        self._polled_s = 0.0
        self._active_s = 0.0

    def start(self, member: DrivenMember) -> None:
        """Begin the member, and make its steps until it stops, in a thread of its own."""
        self._thread = aside(f"pok-member {self._handle}", lambda: self._run(member))

    def wait_until_ended(self, deadline: Deadline) -> bool:
        """Whether the steps are over, or were never begun; waits for that."""
        if self._thread is not None:
            self._thread.join(deadline.remaining_s())
        return self._thread is None or not self._thread.is_alive()

    def _end_poll(self) -> None:
        if self._consumer is not None:
            self._consumer.wake()

    # The member's thread ------------------------------------------------------------------------------------------

    def open(self, callbacks: GroupCallbacks) -> GroupMembership:
        """Join the group. Raises TooManyHandles."""
        handle = self._handle
        self._consumer = GroupConsumer(
            dict(self._config), handle.kafka_topic, callbacks, handle.partition, handle.local_peers
        )
        return self._consumer

    def _run(self, member: DrivenMember) -> None:
        try:
            self._serve(member.begin())
        except Exception as failure:  # the consumers get it
            member.fail(failure)
        finally:
            member.end()

    def _serve(self, serving: MemberServing) -> None:
        """Make steps until the member stops. Raises LayerError: the membership is over."""
        consumer = self._consumer
        assert consumer is not None  # noqa: S101 - `begin` has opened it
        events: Sequence[Event] = ()
        while True:
            following = serving.step(events)
            if serving.stopping:
                break
            try:
                events = self._events(consumer, following, serving.max_records)
            except UnreadableCursor as reason:
                serving.stop_unreadable(reason)
                events = ()
        serving.shut_down()

    def _events(self, consumer: GroupConsumer, following: NextStep, max_records: int) -> Sequence[Event]:
        now_s = self._clock.monotonic()
        if following.reads:
            self._polled_s = now_s
            timeout_s = max(0.0, min(following.due_s - now_s, _MAX_POLL_S))
            if not consumer.ends_early:
                timeout_s = min(timeout_s, self._blind_poll_s(now_s))
            events = self.commands.wait_in(partial(consumer.poll, max_records), timeout_s)
            if events or self.commands.is_woken:
                self._active_s = now_s
            return events
        while True:
            poll_s = self._polled_s + (_REPLY_POLL_S if consumer.awaits_reply else _UNREAD_POLL_S)
            if now_s >= poll_s:
                self._polled_s = now_s
                events = consumer.poll(1, 0.0)
                if events:
                    return events
            if self.commands.is_woken or now_s >= following.due_s:
                return ()
            self.commands.wait(max(0.0, min(following.due_s, poll_s) - now_s))
            now_s = self._clock.monotonic()

    def _blind_poll_s(self, now_s: float) -> float:
        return _BUSY_POLL_S if now_s - self._active_s < _IDLE_AFTER_S else _IDLE_POLL_S
