"""Commits that librdkafka may have sent twice, and whose first copy may reach Kafka after newer commits. Pure: no I/O.

A connection that breaks does not take its requests along: a proxy or an orphaned socket may deliver one much later.
librdkafka sends an unanswered commit again on another connection. Kafka takes both copies, and whatever comes in
between, as long as the generation of the group is the same. It refuses the copy once the next generation has begun.

librdkafka waits for `retry.backoff.ms` before it sends a request again, with a jitter of 20 % (its constant
RD_KAFKA_RETRY_JITTER_PERCENT). So a commit that was answered sooner was sent once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_SHORTEST_BACKOFF: Final = 0.8
"""The share of `retry.backoff.ms` that the jitter leaves at least."""


class ResentCommits:
    """The partitions whose newest commit an older one may overwrite. For one membership. Memory: their numbers."""

    def __init__(self, retry_backoff_ms: int) -> None:
        self._resent_after_s = _SHORTEST_BACKOFF * retry_backoff_ms / 1000
        self._exposed: set[int] = set()

    def answered(self, partitions: Iterable[int], took_s: float, *, known: bool) -> None:
        """Records that a commit of these partitions was answered after `took_s`; not `known`: without its outcome."""
        if not known or took_s >= self._resent_after_s:
            self._exposed.update(partitions)

    def new_generation(self) -> None:
        """Kafka refuses every commit sent before this."""
        self._exposed.clear()

    def is_exposed(self, partition: int) -> bool:
        """A copy of an older commit of the partition may still arrive, and Kafka would take it."""
        return partition in self._exposed
