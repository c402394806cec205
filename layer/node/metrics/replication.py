"""Replicators of this process, each of which copies a topic to another cluster, become Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pulsar_on_kafka.node.node import Node

_LABELS: Final = ("cluster", "topic", "to")


def replication(nodes: list[Node]) -> Iterator[Metric]:
    records = CounterMetricFamily(
        "pok_replicated_entries", "Entries that the other cluster has stored.", labels=_LABELS
    )
    size = CounterMetricFamily("pok_replicated_bytes", "Their payload bytes.", labels=_LABELS)
    failures = CounterMetricFamily("pok_replication_failures", "Times that copying had to begin anew.", labels=_LABELS)
    working = GaugeMetricFamily("pok_replication_working", "1 while copying, 0 while waiting.", labels=_LABELS)
    under_way = GaugeMetricFamily("pok_replication_pending_entries", "Sent and not answered.", labels=_LABELS)
    behind = GaugeMetricFamily("pok_replication_backlog_entries", "Entries not copied yet.", labels=_LABELS)
    for node in nodes:
        for state in [state for runs in list(node.roles) for state in runs.states()]:
            for each in state.replicators:
                labels = [node.cluster_id, each.topic, each.cluster]
                records.add_metric(labels, each.records)
                size.add_metric(labels, each.bytes)
                failures.add_metric(labels, each.failures)
                working.add_metric(labels, not each.waits_for)
                under_way.add_metric(labels, each.under_way)
                behind.add_metric(labels, each.behind)
    yield from (records, size, failures, working, under_way, behind)
