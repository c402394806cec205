"""The three words for subscriptions with a backlog that need attention: unconsumed, stuck and slow. Pure.

| word | meaning |
|---|---|
| unconsumed | a backlog, and no process in the subscription's group |
| stuck | a partition with a backlog, of which nothing was acknowledged for `STUCK_S` |
| slow | not stuck, but one partition's oldest entry is `SLOW_AGE_S` old, its backlog is as much work, and working the \
backlog off takes longer than `CATCH_UP_S`, or never ends because the backlog grows |

Work and growth are measured by the rates of the last one to two minutes (`RecentRate`).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

STUCK_S: Final = 60.0
CHECKPOINT_STUCK_S: Final = 180.0
"""`STUCK_S` for a user who sees cursors by their checkpoints only, one a minute."""
SLOW_AGE_S: Final = 60.0
CATCH_UP_S: Final = 600.0

_INFINITE: Final = float("inf")


class ConsumptionState(str, Enum):
    """The state of a subscription that needs attention, the gravest first."""

    UNCONSUMED = "unconsumed"
    STUCK = "stuck"
    SLOW = "slow"


def catch_up_s(
    backlog: int,
    age_ms: int | None,
    acknowledged_per_s: float | None,
    published_per_s: float | None,
) -> float | None:
    """The time that a slow partition needs to work off its backlog, in seconds; infinite where the backlog does not
    shrink. None for a partition that is not slow, or whose rates are unknown.

    `age_ms`: the age of the oldest unacknowledged entry, None without one. The rates are recent ones.
    """
    if not backlog or not acknowledged_per_s or published_per_s is None:
        return None
    if (age_ms or 0) < SLOW_AGE_S * 1000 or backlog < acknowledged_per_s * SLOW_AGE_S:
        return None
    shrinks_per_s = acknowledged_per_s - published_per_s
    duration_s = backlog / shrinks_per_s if shrinks_per_s > 0 else _INFINITE
    return duration_s if duration_s > CATCH_UP_S else None
