"""The one table of orders and kinds by which subscriptions are sorted and filtered, wherever they are listed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from enum import Enum
from typing import Any, Final, Protocol, TypeVar


class Listed(Protocol):
    """The sort keys of a list, for one subscription."""

    @property
    def topic(self) -> str: ...
    @property
    def subscription(self) -> str: ...
    @property
    def backlog(self) -> int: ...
    @property
    def holes(self) -> int: ...
    @property
    def acknowledged_per_s(self) -> float | None: ...
    @property
    def published_per_s(self) -> float | None: ...
    @property
    def oldest_ms(self) -> int | None: ...
    @property
    def stuck_since_ms(self) -> int | None: ...
    @property
    def unconsumed(self) -> bool: ...
    @property
    def processes(self) -> Sized: ...
    @property
    def suspects(self) -> int: ...
    @property
    def open_transactions(self) -> int: ...
    @property
    def dead_letters(self) -> int: ...
    @property
    def unreadable(self) -> int: ...


L = TypeVar("L", bound=Listed)


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


_BY: Final[Mapping[Order, Callable[[Listed], Any]]] = {
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


def ordered(rows: Iterable[L], by: Order, *, reverse: bool = False) -> list[L]:
    """Equals by topic and name, also in `reverse`."""
    return sorted(sorted(rows, key=lambda row: (row.topic, row.subscription)), key=_BY[by], reverse=reverse)


class Only(str, Enum):
    """The filter of listed subscriptions."""

    ALL = "all"
    BACKLOG = "backlog"
    HOLES = "holes"
    UNCONSUMED = "unconsumed"
    SUSPECTS = "suspects"
    TRANSACTIONS = "transactions"
    DEAD = "dead letters"
    UNREADABLE = "unreadable"

    def applies(self, found: Listed) -> bool:
        return bool(_ONLY[self](found))


_ONLY: Final[Mapping[Only, Callable[[Listed], object]]] = {
    Only.ALL: lambda found: True,
    Only.BACKLOG: lambda found: found.backlog,
    Only.HOLES: lambda found: found.holes,
    Only.UNCONSUMED: lambda found: found.unconsumed,
    Only.SUSPECTS: lambda found: found.suspects,
    Only.TRANSACTIONS: lambda found: found.open_transactions,
    Only.DEAD: lambda found: found.dead_letters,
    Only.UNREADABLE: lambda found: found.unreadable,
}
