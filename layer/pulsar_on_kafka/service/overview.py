"""One process among all services gathers the metrics of the application's subscriptions: the maintainer of partition 0
of `ledgers`. So this takes no Kafka group of its own, whose heartbeats would cost more than gathering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pulsar_on_kafka.admin.overview.gathering import EVERY_S
from pulsar_on_kafka.admin.overview.shared import SharedGatherer
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.worker import Retry, Worker
from pulsar_on_kafka.metrics.overview import Page, page_of

_LOOK_S: Final = 5.0
_PASS_S: Final = 120.0
_MAX_RETRY_INTERVAL_S: Final = 300.0
_LET_GO_S: Final = 5.0


class OverviewRounds(Worker):
    """A page every 30 s, of an overview that is 15 s old at most. Memory, in the process that gathers: as `Gatherer`,
    and a page of metrics, some 15 MB with 10,000 subscriptions."""

    def __init__(
        self,
        gatherer: SharedGatherer,
        owned: Callable[[], Sequence[int]],
        *,
        every_s: float = EVERY_S,
        look_s: float = _LOOK_S,
    ) -> None:
        """`owned`: the partitions of `ledgers` that this process maintains; every `look_s` is looked at them."""
        failing = "metrics of subscriptions are not gathered"
        super().__init__(
            "pok-overview",
            self._round,
            failing,
            first_s=look_s,
            retry=Retry(every_s, _MAX_RETRY_INTERVAL_S),
            last=self._let_go,
        )
        self._gatherer = gatherer
        self._owned = owned
        self._every_s = every_s
        self._look_s = look_s
        self._page = Page()
        self.start()

    @property
    def page(self) -> Page:
        """The page of the last pass; empty while another process gathers."""
        return self._page

    def _round(self) -> float:
        if 0 not in self._owned():
            self._let_go()
            return self._look_s
        with self.turns.one():
            seen = self._gatherer.latest(self, Deadline.after(_PASS_S), within_s=self._every_s / 2)
            self._page = page_of(seen)
        return self._every_s

    def _let_go(self) -> None:
        self._page = Page()
        self._gatherer.let_go(self, Deadline.after(_LET_GO_S))
