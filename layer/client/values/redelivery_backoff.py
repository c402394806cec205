"""A redelivery backoff says how long each redelivery of a message is delayed. Ours beyond the official Python client;
names after the Java client's."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class RedeliveryBackoff(Protocol):
    """Anything with this method will do. Source: org.apache.pulsar.client.api.RedeliveryBackoff."""

    def next(self, redelivery_count: int) -> int:
        """Milliseconds until the next delivery of a message that was delivered again `redelivery_count` times."""


class MultiplierRedeliveryBackoff:
    """`min_delay_ms * multiplier ** redelivery_count`, at most `max_delay_ms`.

    Defaults and meaning are those of org.apache.pulsar.client.impl.MultiplierRedeliveryBackoff.

    Raises:
        ValueError: a negative minimum, a maximum below it, or a multiplier below 1.
    """

    def __init__(self, min_delay_ms: int = 10_000, max_delay_ms: int = 600_000, multiplier: float = 2.0) -> None:
        if not 0 <= min_delay_ms <= max_delay_ms:
            raise ValueError(f"expected 0 <= min_delay_ms <= max_delay_ms, got {min_delay_ms} and {max_delay_ms}")
        if multiplier < 1:
            raise ValueError(f"multiplier must be at least 1, got {multiplier}")
        self._min = min_delay_ms
        self._max = max_delay_ms
        self._multiplier = multiplier

    def next(self, redelivery_count: int) -> int:
        try:
            return min(self._max, int(self._min * self._multiplier ** max(0, redelivery_count)))
        except OverflowError:
            return self._max
