"""Compare what happened with the data frame. Pure: events and sets in, rows out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from flights.data import FlightId, Truth
from flights.evidence import DURABLE, RECEIVED, Event
from flights.spark_view import SparkView


@dataclass(frozen=True, slots=True)
class Observed:
    """What the run showed, without a look at the data frame."""

    published: int
    processes: Sequence[Sequence[Event]]
    """The evidence of each consuming process, in the order they lived. All but the last were killed."""
    remaining: Sequence[tuple[FlightId, str]]
    """(flight, carrier) of what a new consumer of the subscription still gets at the end."""
    backlog: int
    """What the admin client counts as unacknowledged at the end."""
    by_spark: SparkView | None = None
    """What Spark reads of the subscription at the end; None where there is no Spark."""


@dataclass(frozen=True, slots=True)
class Row:
    """One number of the run beside the number it must be; `expected` None: told for information."""

    what: str
    seen: int
    expected: int | None
    agrees: bool = True


def verdict(truth: Truth, observed: Observed) -> list[Row]:
    """The rows of the final table. The run is right when every row agrees."""
    deliveries = Counter(flight for events in observed.processes for flight in _of(events, RECEIVED))
    remaining = Counter(flight for flight, _ in observed.remaining)
    return [
        _same("published", observed.published, len(truth.flights)),
        _same("delivered (distinct flights)", len(deliveries), len(truth.flights)),
        _same("never delivered", len(truth.flights - deliveries.keys()), 0),
        _same("delivered, but not in the data frame", len(deliveries.keys() - truth.flights), 0),
        *_kill_rows(truth, observed, deliveries),
        _same("backlog, as the admin client counts it", observed.backlog, len(truth.without_departure)),
        _same("holes: what a new consumer still gets", len(remaining), len(truth.without_departure)),
        _same("  of these, with a departure time", len(remaining.keys() - truth.without_departure), 0),
        _same("  without departure time, but not among them", len(truth.without_departure - remaining.keys()), 0),
        _same("  delivered twice to that consumer", remaining.total() - len(remaining), 0),
        *([] if observed.by_spark is None else _spark_rows(truth, remaining, observed.by_spark)),
        *_carrier_rows(truth, observed),
    ]


def _spark_rows(truth: Truth, remaining: Counter[FlightId], found: SparkView) -> list[Row]:
    expected = truth.without_departure_by_carrier
    flights = Counter(flight for flight, _ in found.flights)
    carriers = {carrier for carrier in found.by_carrier.keys() | expected.keys()
                if found.by_carrier.get(carrier, 0) != expected.get(carrier, 0)}  # fmt: skip
    return [
        _same("holes: what Spark reads of the subscription", len(found.flights), len(truth.without_departure)),
        _same("  not the flights that the new consumer gets", len((flights - remaining) + (remaining - flights)), 0),
        _same("  carriers with another number of them", len(carriers), 0),
    ]


def _kill_rows(truth: Truth, observed: Observed, deliveries: Counter[FlightId]) -> list[Row]:
    before_kill = {flight for events in observed.processes[:-1] for flight in _of(events, DURABLE)}
    twice = {flight for flight, count in deliveries.items() if count > 1}
    waiting = twice & truth.without_departure
    return [
        Row("durably acknowledged before the kill", len(before_kill), None),
        _same("  of these, delivered again (must not be)", len(_delivered_after_durable(observed)), 0),
        _same("  of these, without departure time", len(before_kill & truth.without_departure), 0),
        Row("delivered twice (allowed)", len(twice), None),
        Row("  never acknowledged: no departure time", len(waiting), None),
        Row("  not yet durable when the process was killed", len(twice - waiting), None),
    ]


def _carrier_rows(truth: Truth, observed: Observed) -> list[Row]:
    seen = Counter(carrier for _, carrier in observed.remaining)
    carriers = sorted(seen.keys() | truth.without_departure_by_carrier.keys())
    return [
        _same(f"holes of {carrier}", seen[carrier], truth.without_departure_by_carrier.get(carrier, 0))
        for carrier in carriers
    ]


def _delivered_after_durable(observed: Observed) -> list[FlightId]:
    """Deliveries of what was durably acknowledged before, by whichever process."""
    durable: set[FlightId] = set()
    again = []
    for events in observed.processes:
        for event in events:
            if event.kind == DURABLE:
                durable.update(event.flights)
            else:
                again += [flight for flight in event.flights if flight in durable]
    return again + [flight for flight, _ in observed.remaining if flight in durable]


def _of(events: Sequence[Event], kind: str) -> list[FlightId]:
    return [flight for event in events if event.kind == kind for flight in event.flights]


def _same(what: str, seen: int, expected: int) -> Row:
    return Row(what, seen, expected, seen == expected)
