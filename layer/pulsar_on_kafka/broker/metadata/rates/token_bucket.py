"""A token bucket limits a rate. Pure: times are arguments, in seconds of a monotonic clock.

Source: `AsyncTokenBucket` of Pulsar 4.0.7, which allows a debt: one message takes its tokens although fewer are there.
"""

from __future__ import annotations

from math import inf
from typing import Final

_EPSILON: Final = 1e-9
"""Sums of fractions miss a whole token by less than this."""
_RELIEF: Final = 0.1
"""The part of the rate by which a debt for others' tokens is paid faster."""


class TokenBucket:
    """A bucket that fills by `rate` tokens in each period, and holds as many at most, or one. It is full at first.

    Not thread-safe. Memory: seven numbers.
    """

    __slots__ = ("_overflow", "_owed", "_per_s", "_tokens", "_updated_s", "period_s", "rate")

    def __init__(self, rate: float, period_s: float, now_s: float) -> None:
        """`rate`: above 0; `period_s`: above 0."""
        self.rate = self._tokens = float(rate)
        self.period_s = period_s
        self._per_s = rate / period_s
        self._updated_s = now_s
        self._overflow = 0.0
        """Tokens that did not fit since the last `consume_earlier`."""
        self._owed = 0.0
        """The part of a debt that others caused."""

    def set_rate(self, rate: float, now_s: float) -> None:
        """Another rate from now on. Tokens above it are lost, a debt stays."""
        self._fill(now_s)
        self.rate, self._per_s = float(rate), rate / self.period_s
        self._tokens = min(self._tokens, self._capacity)

    def available(self, now_s: float) -> int:
        """Whole tokens in the bucket; 0 with a debt."""
        self._fill(now_s)
        return max(0, int(self._tokens + _EPSILON))

    def consume(self, tokens: float, now_s: float) -> None:
        """Take tokens, also such as are not there."""
        self._fill(now_s)
        self._tokens -= tokens

    def consume_earlier(self, tokens: float, now_s: float, max_debt: float = inf) -> None:
        """Take tokens that others took since the last call; below 0: put some back. What overflowed in that time counts
        as taken first. The debt becomes `max_debt` at most by this.

        Buckets of several processes that take each other's tokens would keep their differences for ever, and the
        fullest one would get all. So a debt for others is paid a tenth faster than the rate.
        """
        self._fill(now_s)
        left = min(self._capacity, self._tokens + self._overflow - tokens)
        left = max(left, min(self._tokens, -max_debt))
        self._owed = max(0.0, self._owed + self._tokens - left)
        self._tokens = left
        self._overflow = 0.0

    def wait_s(self, now_s: float) -> float:
        """The time until a whole token is there; 0.0 if one is."""
        self._fill(now_s)
        return 0.0 if self._tokens >= 1 - _EPSILON else (1 - self._tokens) / self._per_s

    @property
    def _capacity(self) -> float:
        return max(self.rate, 1.0)

    def _fill(self, now_s: float) -> None:
        passed_s, self._updated_s = now_s - self._updated_s, max(now_s, self._updated_s)
        if passed_s > 0:
            filled = self._tokens + passed_s * self._per_s
            if self._owed:
                relief = min(self._owed, max(0.0, -filled), _RELIEF * passed_s * self._per_s)
                filled += relief
                self._owed = self._owed - relief if filled < 0 else 0.0
            self._tokens = min(filled, self._capacity)
            self._overflow += filled - self._tokens
