"""Rows of the page of subscriptions are filtered, sorted and cut to a page. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.admin.overview.ordering import Only, Order, ordered
from pulsar_on_kafka.admin.overview.records import SubscriptionOverview

PAGE: Final = 100
"""Rows of one page, whatever the number of subscriptions."""


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

    rows: Sequence[SubscriptionOverview]
    found: int
    page: int
    pages: int
    counts: dict[Only, int]
    """Counts of the rows with the filter's words."""

    @property
    def first(self) -> int:
        return (self.page - 1) * PAGE + 1


def shown(listed: Sequence[SubscriptionOverview], requested: RequestedRows) -> Shown:
    """The rows whose topic, name, type or processes have all of the words."""
    words = requested.words.lower().split()
    named = [row for row in listed if all(word in row.text for word in words)] if words else listed
    counts = {only: sum(map(only.applies, named)) for only in Only}
    kept = ordered(filter(requested.only.applies, named), requested.sort, reverse=requested.reverse)
    pages = max(1, -(-len(kept) // PAGE))
    page = max(1, min(requested.page, pages))
    return Shown(kept[(page - 1) * PAGE : page * PAGE], len(kept), page, pages, counts)
