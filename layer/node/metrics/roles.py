"""The roles that this process has for a cluster, as `pok serve` or as a stand-in, become Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pulsar_on_kafka.node.node import Node

_ROLE: Final = ("cluster", "duty")
_ROLE_WORK: Final = (*_ROLE, "work")


def roles(nodes: list[Node]) -> Iterator[Metric]:
    joined = GaugeMetricFamily("pok_duty_joined", "1 when Kafka's group has answered with a share.", labels=_ROLE)
    partitions = GaugeMetricFamily("pok_duty_partitions", "Partitions of the share.", labels=_ROLE)
    done = CounterMetricFamily("pok_duty_turns", "Rounds that ended well.", labels=_ROLE_WORK)
    failed = CounterMetricFamily("pok_duty_turns_failed", "Rounds that failed.", labels=_ROLE_WORK)
    last = GaugeMetricFamily("pok_duty_last_turn_seconds", "How long the last round took.", labels=_ROLE_WORK)
    under_way = GaugeMetricFamily("pok_duty_turn_under_way_seconds", "How long this one has lasted.", labels=_ROLE_WORK)
    written = CounterMetricFamily("pok_duty_records_written", "State records, tombstones too.", labels=_ROLE_WORK)
    deletions = CounterMetricFamily("pok_ledger_deletions", "Deletions asked for.", labels=("cluster", "verdict"))
    for node in nodes:
        for state in [state for runs in list(node.roles) for state in runs.states()]:
            labels = [node.cluster_id, state.name]
            joined.add_metric(labels, state.joined)
            partitions.add_metric(labels, state.partitions)
            for verdict, events in state.deletions:
                deletions.add_metric([node.cluster_id, verdict], events)
            for work, records in state.written:
                written.add_metric([*labels, work], records)
            for work, seen in state.turns:
                of_work = [*labels, work]
                done.add_metric(of_work, seen.done)
                failed.add_metric(of_work, seen.failed)
                last.add_metric(of_work, seen.last_s)
                under_way.add_metric(of_work, seen.under_way_s)
    yield from (joined, partitions, done, failed, last, under_way, written, deletions)
