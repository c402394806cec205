"""Member services are what a membership is made with, besides its subscription's handle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.cursor.store import CursorStore
from pulsar_on_kafka.kafka.reading.fetcher import Fetcher
from pulsar_on_kafka.subscriptions.leases.terms import LeaseTerms
from pulsar_on_kafka.transactions.records.pending_ack_journal import PendingAckJournal


@dataclass(frozen=True, slots=True)
class MemberServices:
    """`config` is the group member's for librdkafka; without `terms` messages go to this process's consumers only."""

    config: dict[str, Any]
    store: CursorStore
    fetcher: Fetcher
    clock: Clock
    journal: PendingAckJournal
    terms: LeaseTerms | None
    ack_persist_interval_s: float
