"""Metrics as tables: a row for each family, with what it says of each subject; and numbers that another thread is asked
for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError

S = TypeVar("S")

COUNTER, GAUGE = CounterMetricFamily, GaugeMetricFamily
Row = tuple[type[CounterMetricFamily] | type[GaugeMetricFamily], str, str, Callable[[S], float]]
"""The kind of a metric, its name, what it is, and its value."""


def families(
    rows: Iterable[Row[S]], labels: Sequence[str], subjects: Iterable[tuple[Sequence[str], S]]
) -> Iterator[Metric]:
    """A family for each row. `subjects` come with the values of their labels."""
    found = list(subjects)
    for kind, name, text, value in rows:
        family = kind(name, text, labels=labels)
        for of, subject in found:
            family.add_metric(of, value(subject))
        yield family


def answer(asked: Future[S], deadline: Deadline) -> S | None:
    """None when it did not come in time, or its thread has ended."""
    with suppress(FutureTimeoutError, LayerError):
        return asked.result(max(0.01, deadline.remaining_s()))
    return None
