"""A new subscription begins at the first ledger that is left, beside owners that take ledgers off their lists at the
same time.

The creator of a subscription writes its record first, then reads the lists here; an owner writes DELETING first, then
reads the subscriptions (`retirement.py`). So if the owner did not see the subscription, the subscription sees the
DELETING ledgers, and begins behind them. Owners raise the first offset of an open ledger in the same order
(`open_trimming.py`). A subscription that begins at the log's end need not read them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import NotAuthorized
from pulsar_on_kafka.broker.managed_ledger.ledger_machine import LedgerLists
from pulsar_on_kafka.broker.managed_ledger.model import Ledger, LedgerPlace
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.statelog.views import Looking
from pulsar_on_kafka_mapping.state.metadata.ledger_records import LedgerState

_log: Final = logging.getLogger(__name__)


def first_kept(listed: Iterable[Ledger]) -> int:
    """Offset of the first ledger of a partition's list, in order, that is not going; 0 for a partition without list."""
    first = None
    for ledger in listed:
        first = ledger.first if ledger.state is not LedgerState.DELETING else ledger.end
        if ledger.state is not LedgerState.DELETING:
            break
    return first or 0


class FirstLedgersLeft:
    """Thread-safe."""

    def __init__(self, views: Looking[LedgerLists], admin: KafkaAdmin) -> None:
        self._views = views
        self._admin = admin
        self._warned = False

    def starts(self, topic: Topic, starts: Mapping[int, int], deadline: Deadline) -> dict[int, int]:
        """The first offsets, by partition, that must be raised, with their new values.

        Call it when the record with `starts` has won. Without the right to read the lists there are none, with one
        warning: then a subscription may begin with messages that are deleted before it gets to them.
        """
        if topic.bound or not topic.name.is_persistent:
            return {}
        ends = self._admin.end_offsets(topic.kafka_topic, list(starts), deadline)
        before = {p: start for p, start in starts.items() if start < ends[p]}
        if not before:
            return {}
        name, life = str(topic.name.base), topic.layout.incarnation
        try:
            first = self._views.query(
                name, lambda lists: {p: first_kept(lists.ledgers(LedgerPlace(name, life, p))) for p in before}, deadline
            )
        except NotAuthorized as refused:
            if not self._warned:
                self._warned = True
                _log.warning("new subscriptions may begin with what is being deleted: %s", refused)
            return {}
        return {p: first[p] for p, start in before.items() if start < first[p]}
