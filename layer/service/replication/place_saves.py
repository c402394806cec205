"""A replicator's places are saved in its group: those that it was asked to keep, and those that it has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pulsar_on_kafka.base.clock import Clock

ANSWER_S: Final = 30.0
"""How long an answer is waited for. librdkafka gives a commit up sooner; that it says so is not relied on."""


class PlaceSaves:
    """Places by partition, as source offsets below which everything is done. One save is under way at a time. For one
    thread.

    What the group did not take, or did not answer, is due again, also when nothing was copied since.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[int, int] = {}
        self._sent: dict[int, int] | None = None
        self._sent_s = 0.0

    def kept(self, places: Mapping[int, int]) -> None:
        """The group has these: it said so to somebody who waited."""
        self._kept.update(places)

    def forget(self, partitions: Iterable[int]) -> None:
        """They are somebody else's; an answer that still comes says nothing of them."""
        for partition in partitions:
            self._kept.pop(partition, None)
            if self._sent is not None:
                self._sent.pop(partition, None)

    def due(self, done: Mapping[int, int]) -> dict[int, int]:
        """What is to be saved of `done` now: nothing while an answer is waited for."""
        if self._sent is not None:
            return {}
        return {partition: place for partition, place in done.items() if place > self._kept.get(partition, -1)}

    def sent(self, places: Mapping[int, int]) -> None:
        """They are under way."""
        self._sent = dict(places)
        self._sent_s = self._clock.monotonic()

    def answered(self, *, accepted: bool) -> None:
        """The group has what is under way, or not."""
        if accepted and self._sent is not None:
            self._kept.update(self._sent)
        self._sent = None

    def is_unanswered(self) -> bool:
        """Whether the answer is not waited for any longer: the save then counts as one that was not accepted. A later
        one names a later place, or the same, so it does not matter what became of it."""
        if self._sent is None or self._clock.monotonic() - self._sent_s < ANSWER_S:
            return False
        self.answered(accepted=False)
        return True
