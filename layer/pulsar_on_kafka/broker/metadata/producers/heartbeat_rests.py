"""Rests of the heartbeats that a change of producers brings, so that many openings cost each the same. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

REST_FOR_EACH_S: Final = 0.001
"""Rest of a topic for each producer that its last heartbeat described."""


class HeartbeatRests:
    """Topics whose producers changed since their last heartbeat, and until when each rests. Times are monotonic.

    Memory: one moment for each topic with producers.
    """

    def __init__(self) -> None:
        self._changed: set[str] = set()
        self._until_s: dict[str, float] = {}

    def change(self, topic: str) -> None:
        """Producers came or went."""
        self._changed.add(topic)

    def sent(self, topic: str, producers: int, now_s: float) -> None:
        """A heartbeat described so many producers."""
        self._changed.discard(topic)
        self._until_s[topic] = now_s + producers * REST_FOR_EACH_S

    def forget(self, topic: str) -> None:
        """The topic has no producers."""
        self._changed.discard(topic)
        self._until_s.pop(topic, None)

    def due(self, topics: Iterable[str], now_s: float) -> set[str]:
        """The topics that changed and are not in their rest period."""
        return {topic for topic in self._changed.intersection(topics) if self._until_s.get(topic, 0.0) <= now_s}

    def next_s(self, topics: Iterable[str], otherwise: float) -> float:
        """The time of the next due change of one of the topics, at most `otherwise`."""
        return min([otherwise, *(self._until_s.get(topic, 0.0) for topic in self._changed.intersection(topics))])
