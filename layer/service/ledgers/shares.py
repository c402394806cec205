"""A share is the time that one kind of work has in a round: topics are taken some at a time, until it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.ledgers.owner import TopicLogs

SHARE_S: Final = 10.0
AT_ONCE: Final = 50


class Share:
    """For one thread. Each round goes on behind what the one before came to, so that much work of one kind keeps
    neither other work nor other topics waiting for ever. Memory: the name of a topic."""

    def __init__(self, work: Callable[[Sequence[TopicLogs]], int], clock: Clock, share_s: float = SHARE_S) -> None:
        """`work` gives how much it changed."""
        self._work = work
        self._clock = clock
        self._share_s = share_s
        self._next = ""

    def run(self, topics: Sequence[TopicLogs]) -> tuple[int, bool]:
        """How much was changed, and whether topics are left for the next round. At least 50 are looked at.

        Raises what the work raises; the next round goes on behind the topics at which it did.
        """
        until_s, changed = self._clock.monotonic() + self._share_s, 0
        for some, following in self._in_turn(topics):
            self._next = following
            changed += self._work(some)
            if following and self._clock.monotonic() >= until_s:
                return changed, True
        return changed, False

    def _in_turn(self, topics: Sequence[TopicLogs]) -> Iterator[tuple[Sequence[TopicLogs], str]]:
        """Some topics, and the name of the one behind them; '' behind the last ones."""
        first = self._next
        ordered = sorted(topics, key=lambda topic: (topic.name < first, topic.name))
        for begin in range(0, len(ordered), AT_ONCE):
            end = begin + AT_ONCE
            yield ordered[begin:end], ordered[end].name if end < len(ordered) else ""
