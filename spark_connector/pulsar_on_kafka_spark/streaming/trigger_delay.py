"""A micro-batch is delayed until enough entries are there (`minOffsetsPerTrigger`), or for `maxTriggerDelay`. Pure."""

from __future__ import annotations

from math import inf


class TriggerDelay:
    """The delay of a stream's next micro-batch. Source: KafkaMicroBatchStream.delayBatch.

    The first micro-batch of a run is not delayed. Differs from Spark: the delay counts from the last micro-batch, and
    does not begin anew while there is nothing to deliver.
    """

    def __init__(self, min_entries: int | None, max_delay_s: float) -> None:
        self._min_entries = min_entries or 1
        self._max_delay_s = max_delay_s
        self._planned_s = -inf

    def holds(self, entries: int, now_s: float) -> bool:
        """Whether a micro-batch of these entries has to wait at the monotonic time `now_s`; otherwise it is planned
        now."""
        if entries < self._min_entries and now_s < self.ends_s():
            return True
        self._planned_s = now_s
        return False

    def ends_s(self) -> float:
        """The monotonic time at which the wait ends, however few entries there are."""
        return self._planned_s + self._max_delay_s
