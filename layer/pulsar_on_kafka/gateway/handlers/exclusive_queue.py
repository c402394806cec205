"""The queue of WaitForExclusive producers, for each topic.

Source: Pulsar's AbstractTopic.incrementTopicEpochIfNeeded, 4.0.7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

RETRY_INTERVAL_S: Final = 1.0
"""The first producer retries at this interval, and when a producer of this gateway leaves."""


@dataclass(eq=False, slots=True)
class WaitingProducer:
    """A producer in the queue. Each `attempt` to open ends in `WaitingProducers.refused` or `leave`. `queued` is called
    each time that the producer has to wait, and `fenced` when another producer has fenced it out of the queue."""

    topic: str
    attempt: Callable[[], None]
    queued: Callable[[], None]
    fenced: Callable[[], None]
    is_attempting: bool = False
    again: bool = False
    """A producer has left during the attempt."""
    due: bool = False
    """A timer for the next attempt runs."""


class WaitingProducers:
    """The waiting producers of one gateway, in order of arrival. For the event loop.

    Memory: one entry for each producer, which connections bound.
    """

    def __init__(self, later: Callable[[float, Callable[[], None]], object]) -> None:
        """`later` calls a function after so many seconds."""
        self._later = later
        self._queues: dict[str, list[WaitingProducer]] = {}

    def any_at(self, topic: str) -> bool:
        """Whether producers wait. As in Pulsar no other producer precedes them, except one that fences them."""
        return topic in self._queues

    def come(self, one: WaitingProducer) -> None:
        queue = self._queues.setdefault(one.topic, [])
        queue.append(one)
        if queue[0] is one:
            self._attempt(one)
        else:
            one.queued()

    def refused(self, one: WaitingProducer) -> None:
        """The topic has other producers: the attempt failed."""
        one.is_attempting = False
        one.queued()
        if one.again:
            self._attempt(one)
        elif not one.due:
            one.due = True
            self._later(RETRY_INTERVAL_S, partial(self._due, one))

    def left(self, topic: str) -> None:
        """A producer of the topic has left."""
        if topic in self._queues:
            first = self._queues[topic][0]
            if first.is_attempting:
                first.again = True
            else:
                self._attempt(first)

    def leave(self, one: WaitingProducer) -> None:
        """The producer is open, was refused for good, or was closed by its client."""
        queue = self._queues.get(one.topic, [])
        if one not in queue:
            return
        was_first = queue[0] is one
        queue.remove(one)
        if not queue:
            del self._queues[one.topic]
        elif was_first:
            self._attempt(queue[0])

    def fence(self, topic: str) -> None:
        """A producer has fenced all others, also the waiting ones."""
        for one in self._queues.pop(topic, ()):
            one.fenced()

    def _due(self, one: WaitingProducer) -> None:
        one.due = False
        if one.topic in self._queues and self._queues[one.topic][0] is one and not one.is_attempting:
            self._attempt(one)

    @staticmethod
    def _attempt(one: WaitingProducer) -> None:
        one.is_attempting, one.again = True, False
        one.attempt()
