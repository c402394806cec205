"""No transaction is open, for tests of readers."""

from __future__ import annotations

from math import inf
from typing import Any, Final, cast

from pulsar_on_kafka.broker.subscriptions.records.open_transactions import TransactionWaits


class _NothingOpen(tuple[()]):
    due_s = inf

    def forget(self, partition: int) -> None:
        """There is nothing to forget."""


NOTHING_OPEN: Final = cast("TransactionWaits", cast("Any", _NothingOpen()))
