"""A subscription begins beside ledgers that are going."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.broker.managed_ledger.first_left import first_kept
from pulsar_on_kafka.broker.managed_ledger.model import Ledger
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.state.metadata.ledger_records import LedgerRecord, LedgerState

LAYOUT = LedgerLayout(7, 10)
OPEN, CLOSED, DELETING = LedgerState.OPEN, LedgerState.CLOSED, LedgerState.DELETING


def _listed(first_index: int, states: list[LedgerState]) -> list[Ledger]:
    return [
        Ledger(LAYOUT.ledger_id(0, index), LedgerRecord("persistent://a/b/c", state, index * 10, index * 10 + 10))
        for index, state in enumerate(states, first_index)
    ]


@pytest.mark.parametrize(
    ("first_index", "states", "expected"),
    [
        (0, [], 0),
        (0, [OPEN], 0),
        (0, [CLOSED, CLOSED, OPEN], 0),
        (3, [CLOSED, OPEN], 30),  # what was below left the list
        (0, [DELETING, DELETING, CLOSED, OPEN], 20),
        (2, [DELETING, OPEN], 30),
        (0, [CLOSED, DELETING, CLOSED, OPEN], 0),  # one that was given back stays, and so does what follows
        (1, [DELETING, DELETING], 30),
    ],
)
def test_a_subscription_begins_at_the_first_ledger_that_stays(
    first_index: int, states: list[LedgerState], expected: int
) -> None:
    assert first_kept(_listed(first_index, states)) == expected
