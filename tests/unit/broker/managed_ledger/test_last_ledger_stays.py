"""A list never gets empty: an owner that died may have closed a ledger, and not listed the next one yet."""

from __future__ import annotations

from pulsar_on_kafka.broker.managed_ledger.model import Ledger
from pulsar_on_kafka.broker.managed_ledger.trimming import Needs, Retention, trimmable
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.state.metadata.ledger_records import LedgerRecord, LedgerState


def test_the_last_ledger_of_a_list_stays_also_when_it_is_closed() -> None:
    layout = LedgerLayout(7, 10)
    listed = [
        Ledger(layout.ledger_id(0, i), LedgerRecord("persistent://a/b/c", LedgerState.CLOSED, i * 10, i * 10 + 10))
        for i in range(3)
    ]
    assert trimmable(listed, Retention(), Needs(), 65) == listed[:2]
