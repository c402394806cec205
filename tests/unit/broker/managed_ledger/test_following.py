"""An open ledger is measured again as its partition grows."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.broker.managed_ledger.ledger_list_update import NOTHING, LogRange, Measured, changes
from pulsar_on_kafka.broker.managed_ledger.model import Ledger, LedgerPlace
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout

PLACE = LedgerPlace("persistent://public/default/quiet", 7, 0)
LAYOUT = LedgerLayout(7, 1000)


def listed_at(log: LogRange, measured: Measured) -> Ledger:
    (change,) = changes([], PLACE, LAYOUT, log)
    return Ledger(change.ledger_id, change.written(measured))


@pytest.mark.parametrize("at", [0, 40])
def test_one_that_was_listed_without_entries_is_measured_with_its_first_ones(at: int) -> None:
    """Its age is known then, without which nothing of it is trimmed."""
    listed = listed_at(LogRange(at, at), NOTHING)
    assert changes([listed], PLACE, LAYOUT, LogRange(at, at)) == []
    (change,) = changes([listed], PLACE, LAYOUT, LogRange(at, at + 1))
    assert (change.measure_from, change.record.end) == (at, at + 1)


def test_one_with_entries_is_measured_when_it_has_grown_by_a_fifth_of_its_size() -> None:
    listed = listed_at(LogRange(0, 1), Measured(100, 0, 5, 5))
    assert changes([listed], PLACE, LAYOUT, LogRange(0, 200)) == []
    assert changes([listed], PLACE, LAYOUT, LogRange(0, 200), look_again=True)
    (change,) = changes([listed], PLACE, LAYOUT, LogRange(0, 201))
    assert (change.measure_from, change.record.end) == (1, 201)
