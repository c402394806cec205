"""Transactions, as the process that serves their coordinator counts them. Names with `pulsar` are Pulsar's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from pulsar_on_kafka.base.meters import CoordinatorMeter
from pulsar_on_kafka.node.node import Node

_COORDINATOR: Final = ("cluster", "coordinator_id")
_STATUSES: Final = ("OPEN", "COMMITTING", "ABORTING")

_COUNTS: Final[tuple[tuple[str, str, Callable[[CoordinatorMeter], int]], ...]] = (
    ("pulsar_txn_created", "Transactions begun.", lambda meter: meter.created),
    ("pulsar_txn_committed", "Transactions committed.", lambda meter: meter.committed),
    ("pulsar_txn_aborted", "Transactions aborted, timed out ones among them.", lambda meter: meter.aborted),
    ("pulsar_txn_timeout", "Transactions aborted because their time was over.", lambda meter: meter.timed_out),
)  # fmt: skip


def transactions(nodes: list[Node]) -> Iterator[Metric]:
    counts = [CounterMetricFamily(name, text, labels=_COORDINATOR) for name, text, _ in _COUNTS]
    active = GaugeMetricFamily("pulsar_txn_active_count", "Transactions that are not finished.", labels=_COORDINATOR)
    unfinished = GaugeMetricFamily(
        "pok_transactions_unfinished", "The same by status.", labels=(*_COORDINATOR, "status")
    )
    executions = HistogramMetricFamily(
        "pulsar_txn_execution_latency", "From begin to the end, in milliseconds.", labels=_COORDINATOR
    )
    ends = HistogramMetricFamily(
        "pok_transaction_end_seconds", "From the decision until it has taken effect everywhere.", labels=_COORDINATOR
    )
    entries = GaugeMetricFamily(
        "pok_transaction_buffer_entries", "Open and aborted transactions on record, by partition.", labels=("cluster",)
    )
    acks = GaugeMetricFamily(
        "pok_transaction_pending_acks", "Acknowledgements in transactions, and ENDs, on record.", labels=("cluster",)
    )
    for node in nodes:
        for number, meter in node.meters.coordinators():
            labels = [node.cluster_id, str(number)]
            for family, (_, _, value) in zip(counts, _COUNTS, strict=True):
                family.add_metric(labels, value(meter))
            by_status = meter.unfinished.copy()
            active.add_metric(labels, sum(by_status.values()))
            for status in _STATUSES:
                unfinished.add_metric([*labels, status], by_status.get(status, 0))
            executions.add_metric(labels, meter.executions.cumulative_ms(), meter.executions.sum_s * 1000)
            ends.add_metric(labels, meter.ends.cumulative(), meter.ends.sum_s)
        in_buffers, pending = node.transactions.state_sizes()
        entries.add_metric([node.cluster_id], in_buffers)
        acks.add_metric([node.cluster_id], pending)
    yield from (*counts, active, unfinished, executions, ends, entries, acks)
