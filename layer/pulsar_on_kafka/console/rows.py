"""Rows of the page of subscriptions are filtered, sorted and cut to a page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.admin.overview.ordering import Only, Order, ordered
from pulsar_on_kafka.admin.overview.records import SubscriptionOverview

PAGE: Final = 100
"""Rows of one page, whatever the number of subscriptions."""


@dataclass(frozen=True, slots=True)
class Row:
    """One subscription, summed up over its partitions once for all that look at it."""

    topic: str
    subscription: str
    type: str
    durable: bool
    replicated: bool
    backlog: int
    acknowledged: int
    holes: int
    acknowledged_per_s: float | None
    published_per_s: float | None
    oldest_ms: int | None
    stuck_since_ms: int | None
    idle_since_ms: int | None
    unconsumed: bool
    processes: tuple[str, ...]
    suspects: int
    open_transactions: int
    dead_letters: int
    unreadable: int
    partitions: int
    copies_to: str | None
    text: str
    """The text that a filter searches."""

    @staticmethod
    def of(found: SubscriptionOverview) -> Row:
        return Row(
            found.topic, found.subscription, found.type, found.durable, found.replicated, found.backlog,
            found.acknowledged, found.holes, found.acknowledged_per_s, found.published_per_s, found.oldest_ms,
            found.stuck_since_ms, found.idle_since_ms, found.unconsumed, found.processes, found.suspects,
            found.open_transactions, found.dead_letters,
            found.unreadable, len(found.partitions), found.copies_to,
            f"{found.topic}\n{found.subscription}\n{found.type}\n{' '.join(found.processes)}".lower(),
        )  # fmt: skip


def rows_of(subscriptions: Iterable[SubscriptionOverview]) -> list[Row]:
    """All of them, by topic and name."""
    return ordered(map(Row.of, subscriptions), Order.NAME)


@dataclass(frozen=True, slots=True)
class RequestedRows:
    """The rows that a browser requests; well-formed for any input."""

    words: str = ""
    only: Only = Only.ALL
    sort: Order = Order.BACKLOG
    reverse: bool = False
    page: int = 1

    @staticmethod
    def of(words: str, only: str, sort: str, page: str) -> RequestedRows:
        column = sort.removeprefix("-")
        return RequestedRows(
            words[:200],
            Only(only) if only in {each.value for each in Only} else Only.ALL,
            Order(column) if column in {each.value for each in Order} else Order.BACKLOG,
            sort.startswith("-"),
            int(page) if page.isascii() and page.isdigit() and 0 < len(page) < 7 else 1,
        )

    @property
    def order(self) -> str:
        """The value of `sort`."""
        return f"-{self.sort.value}" if self.reverse else self.sort.value

    def sorted_by(self, column: str) -> str:
        """The value of `sort` when the head of a column is clicked: the other way where it is sorted by it."""
        return f"-{column}" if column == self.sort.value and not self.reverse else column


@dataclass(frozen=True, slots=True)
class Shown:
    """One page of the requested rows."""

    rows: Sequence[Row]
    found: int
    page: int
    pages: int
    counts: dict[Only, int]
    """Counts of the rows with the filter's words."""

    @property
    def first(self) -> int:
        return (self.page - 1) * PAGE + 1


def shown(listed: Sequence[Row], wanted: RequestedRows) -> Shown:
    """The rows whose topic, name, type or processes have all of the words."""
    words = wanted.words.lower().split()
    named = [row for row in listed if all(word in row.text for word in words)] if words else listed
    counts = {only: sum(map(only.applies, named)) for only in Only}
    kept = ordered(filter(wanted.only.applies, named), wanted.sort, reverse=wanted.reverse)
    pages = max(1, -(-len(kept) // PAGE))
    page = max(1, min(wanted.page, pages))
    return Shown(kept[(page - 1) * PAGE : page * PAGE], len(kept), page, pages, counts)
