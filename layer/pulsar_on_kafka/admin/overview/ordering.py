"""The one table of orders and kinds by which subscriptions are sorted and filtered, wherever they are listed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final

from pulsar_on_kafka.admin.overview.consumption import ConsumptionState
from pulsar_on_kafka.admin.overview.records import SubscriptionOverview


class Order(str, Enum):
    """Numbers come from the highest, times from the oldest, names from A."""

    BACKLOG = "backlog"
    RATE = "rate"
    PUBLISHED = "published"
    OLDEST = "oldest"
    STUCK = "stuck"
    HOLES = "holes"
    PROCESSES = "processes"
    SUSPECTS = "suspects"
    DEAD_LETTERS = "dead-letters"
    TRANSACTIONS = "transactions"
    NAME = "name"
    SUBSCRIPTION = "subscription"

    @property
    def of_names(self) -> bool:
        return self in (Order.NAME, Order.SUBSCRIPTION)


_BY: Final[Mapping[Order, Callable[[SubscriptionOverview], Any]]] = {
    Order.BACKLOG: lambda found: -found.backlog,
    Order.RATE: lambda found: -(found.acknowledged_per_s or 0.0),
    Order.PUBLISHED: lambda found: -(found.published_per_s or 0.0),
    Order.OLDEST: lambda found: _time(found.oldest_ms),
    Order.STUCK: lambda found: _time(found.stuck_since_ms),
    Order.HOLES: lambda found: -found.holes,
    Order.PROCESSES: lambda found: -len(found.processes),
    Order.SUSPECTS: lambda found: -found.suspects,
    Order.DEAD_LETTERS: lambda found: -found.dead_letters,
    Order.TRANSACTIONS: lambda found: -found.open_transactions,
    Order.NAME: lambda found: found.topic,
    Order.SUBSCRIPTION: lambda found: found.subscription,
}


def _time(unix_ms: int | None) -> float:
    """The time; a missing one sorts behind all others."""
    return float("inf") if unix_ms is None else unix_ms


def ordered(rows: Iterable[SubscriptionOverview], by: Order, *, reverse: bool = False) -> list[SubscriptionOverview]:
    """Equals by topic and name, also in `reverse`."""
    return sorted(sorted(rows, key=lambda row: (row.topic, row.subscription)), key=_BY[by], reverse=reverse)


class Only(str, Enum):
    """The filter of listed subscriptions. `ConsumptionState` defines unconsumed, stuck and slow."""

    ALL = "all"
    BACKLOG = "backlog"
    HOLES = "holes"
    UNCONSUMED = "unconsumed"
    STUCK = "stuck"
    SLOW = "slow"
    SUSPECTS = "suspects"
    TRANSACTIONS = "transactions"
    DEAD_LETTERS = "dead-letters"
    UNREADABLE = "unreadable"

    def applies(self, found: SubscriptionOverview) -> bool:
        return bool(_ONLY[self](found))


_ONLY: Final[Mapping[Only, Callable[[SubscriptionOverview], object]]] = {
    Only.ALL: lambda found: True,
    Only.BACKLOG: lambda found: found.backlog,
    Only.HOLES: lambda found: found.holes,
    Only.UNCONSUMED: lambda found: found.state is ConsumptionState.UNCONSUMED,
    Only.STUCK: lambda found: found.state is ConsumptionState.STUCK,
    Only.SLOW: lambda found: found.state is ConsumptionState.SLOW,
    Only.SUSPECTS: lambda found: found.suspects,
    Only.TRANSACTIONS: lambda found: found.open_transactions,
    Only.DEAD_LETTERS: lambda found: found.dead_letters,
    Only.UNREADABLE: lambda found: found.unreadable,
}
