"""Producers that wait for being the only one of their topic are let in by turns, or fenced out.

Source: Pulsar's AbstractTopic.incrementTopicEpochIfNeeded, 4.0.7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

RETRY_INTERVAL_S: Final = 1.0
"""How often the first one asks whether it is alone, beside when a producer of this gateway leaves."""


@dataclass(eq=False, slots=True)
class WaitingProducer:
    """One that waits. It `asks` to be let in, which ends in `WaitingProducers.refused` or `leave`; it is `told` each
    time that it has to wait, and that it was `fenced` out, which ends its waiting."""

    topic: str
    asks: Callable[[], None]
    told: Callable[[], None]
    fenced: Callable[[], None]
    asking: bool = False
    again: bool = False
    """A producer has left while it asked."""
    due: bool = False
    """A timer has it ask again."""


class WaitingProducers:
    """Those of a gateway, by topic, in the order in which they came. For the loop.

    Memory: an entry for each that waits, of which a connection bounds its own.
    """

    def __init__(self, later: Callable[[float, Callable[[], None]], object]) -> None:
        """`later` calls something after so many seconds."""
        self._later = later
        self._queues: dict[str, list[WaitingProducer]] = {}

    def any_at(self, topic: str) -> bool:
        """As in Pulsar nobody else comes before them, but who fences them out."""
        return topic in self._queues

    def come(self, one: WaitingProducer) -> None:
        queue = self._queues.setdefault(one.topic, [])
        queue.append(one)
        if queue[0] is one:
            self._ask(one)
        else:
            one.told()

    def refused(self, one: WaitingProducer) -> None:
        """Others are there, so it waits on."""
        one.asking = False
        one.told()
        if one.again:
            self._ask(one)
        elif not one.due:
            one.due = True
            self._later(RETRY_INTERVAL_S, partial(self._due, one))

    def left(self, topic: str) -> None:
        """A producer of the topic has left."""
        if topic in self._queues:
            first = self._queues[topic][0]
            if first.asking:
                first.again = True
            else:
                self._ask(first)

    def leave(self, one: WaitingProducer) -> None:
        """It waits no longer: it is in, was refused for good, or its client does not want it any more."""
        queue = self._queues.get(one.topic, [])
        if one not in queue:
            return
        was_first = queue[0] is one
        queue.remove(one)
        if not queue:
            del self._queues[one.topic]
        elif was_first:
            self._ask(queue[0])

    def fence(self, topic: str) -> None:
        """A producer has taken the topic from all others, also from those that wait."""
        for one in self._queues.pop(topic, ()):
            one.fenced()

    def _due(self, one: WaitingProducer) -> None:
        one.due = False
        if one.topic in self._queues and self._queues[one.topic][0] is one and not one.asking:
            self._ask(one)

    @staticmethod
    def _ask(one: WaitingProducer) -> None:
        one.asking, one.again = True, False
        one.asks()
