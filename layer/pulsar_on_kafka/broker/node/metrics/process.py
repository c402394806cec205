"""Counts of this process on each cluster, over all topics, become metrics: transactions whose coordinators it serves
(names with `pulsar` are Pulsar's), its roles, as `pok serve` or as a stand-in, and its replication.

Metrics are tables: a row for each family, with its value for each subject.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.base.loop_timing import TurnsSeen
from pulsar_on_kafka.base.meters import CoordinatorMeter
from pulsar_on_kafka.base.role_state import ReplicatorState, RoleState
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.schema_registry.registry import RegistryCounts

S = TypeVar("S")

COUNTER, GAUGE = CounterMetricFamily, GaugeMetricFamily
Row = tuple[type[CounterMetricFamily] | type[GaugeMetricFamily], str, str, Callable[[S], float]]
"""The kind of a metric, its name, what it is, and its value."""


def families(
    rows: Iterable[Row[S]], labels: Sequence[str], subjects: Iterable[tuple[Sequence[str], S]]
) -> Iterator[Metric]:
    found = list(subjects)
    for kind, name, text, value in rows:
        family = kind(name, text, labels=labels)
        for of, subject in found:
            family.add_metric(of, value(subject))
        yield family


def answer(requested: Future[S], deadline: Deadline) -> S | None:
    """None when it did not come in time, or its thread has ended."""
    with suppress(FutureTimeoutError, LayerError):
        return requested.result(max(0.01, deadline.remaining_s()))
    return None


_CLUSTER: Final = ("cluster",)
_COORDINATOR: Final = ("cluster", "coordinator_id")
_ROLE: Final = ("cluster", "duty")
_STATUSES: Final = ("OPEN", "COMMITTING", "ABORTING")


@dataclass(frozen=True, slots=True)
class ClusterCounts:
    cluster_id: str
    schemas: RegistryCounts
    corrupt_deliveries: int
    """Records of the `deliveries` topic that could not be read and were skipped."""
    deliveries: int
    """Records that were written to it."""
    delivery_writes: int
    """Requests that they went with."""
    unreadable: Mapping[tuple[str, str], int]
    """Unreadable records of state topics, by topic name and part of a record."""


_COUNTS: Final[tuple[Row[ClusterCounts], ...]] = (
    (COUNTER, "pok_schemas_registered", "Schema versions that this process registered.",
     lambda of: of.schemas.registered),
    (COUNTER, "pok_schemas_refused", "Producers and consumers refused for their schema.",
     lambda of: of.schemas.refused),
    (COUNTER, "pok_schema_races_lost", "Registrations begun again because of another one.",
     lambda of: of.schemas.lost_races),
    (COUNTER, "pok_schemas_force_deleted", "Topics whose schemas could not be read any more.",
     lambda of: of.schemas.force_deleted),
    (COUNTER, "pok_delivery_records_corrupt", "Records among processes that could not be read and were skipped.",
     lambda of: of.corrupt_deliveries),
    (COUNTER, "pok_delivery_records_written", "Records written to the other processes of subscriptions.",
     lambda of: of.deliveries),
    (COUNTER, "pok_delivery_writes", "Requests with records to the other processes of subscriptions.",
     lambda of: of.delivery_writes),
)  # fmt: skip
_TRANSACTIONS: Final[tuple[Row[CoordinatorMeter], ...]] = (
    (COUNTER, "pulsar_txn_created", "Transactions begun.", lambda meter: meter.created),
    (COUNTER, "pulsar_txn_committed", "Transactions committed.", lambda meter: meter.committed),
    (COUNTER, "pulsar_txn_aborted", "Transactions aborted, timed out ones among them.", lambda meter: meter.aborted),
    (COUNTER, "pulsar_txn_timeout", "Transactions aborted because their time was over.",
     lambda meter: meter.timed_out),
    (GAUGE, "pulsar_txn_active_count", "Transactions that are not finished.",
     lambda meter: sum(meter.unfinished.copy().values())),
)  # fmt: skip
_STATE_SIZES: Final[tuple[Row[tuple[int, int]], ...]] = (
    (GAUGE, "pok_transaction_buffer_entries", "Open and aborted transactions on record, by partition.",
     lambda sizes: sizes[0]),
    (GAUGE, "pok_transaction_pending_acks", "Acknowledgements in transactions, and ENDs, on record.",
     lambda sizes: sizes[1]),
)  # fmt: skip
_ROLES: Final[tuple[Row[RoleState], ...]] = (
    (GAUGE, "pok_duty_joined", "1 when Kafka's group has answered with a share.", lambda state: state.joined),
    (GAUGE, "pok_duty_partitions", "Partitions of the share.", lambda state: state.partitions),
)
_TURNS: Final[tuple[Row[TurnsSeen], ...]] = (
    (COUNTER, "pok_duty_turns", "Rounds that ended well.", lambda seen: seen.done),
    (COUNTER, "pok_duty_turns_failed", "Rounds that failed.", lambda seen: seen.failed),
    (GAUGE, "pok_duty_last_turn_seconds", "How long the last round took.", lambda seen: seen.last_s),
    (GAUGE, "pok_duty_turn_under_way_seconds", "How long this one has lasted.", lambda seen: seen.under_way_s),
)
_WRITTEN: Final[Row[int]] = (COUNTER, "pok_duty_records_written", "State records, tombstones too.", int)
_DELETIONS: Final[Row[int]] = (COUNTER, "pok_ledger_deletions", "Deletions requested.", int)
_REPLICATION: Final[tuple[Row[ReplicatorState], ...]] = (
    (COUNTER, "pok_replicated_entries", "Entries that the other cluster has stored.", lambda each: each.records),
    (COUNTER, "pok_replicated_bytes", "Their payload bytes.", lambda each: each.bytes),
    (COUNTER, "pok_replication_failures", "Times that copying had to begin anew.", lambda each: each.failures),
    (GAUGE, "pok_replication_working", "1 while copying, 0 while waiting.", lambda each: not each.waits_for),
    (GAUGE, "pok_replication_pending_entries", "Sent and not answered.", lambda each: each.under_way),
    (GAUGE, "pok_replication_backlog_entries", "Entries not copied yet.", lambda each: each.behind),
)


def of_clusters(clusters: Iterable[ClusterCounts]) -> Iterator[Metric]:
    found = list(clusters)
    yield from families(_COUNTS, _CLUSTER, [([counts.cluster_id], counts) for counts in found])
    unreadable = GaugeMetricFamily(
        "pok_state_records_unreadable",
        "Records of state topics that this process met and could not read.",
        labels=("cluster", "state_topic", "part"),
    )
    for counts in found:
        for where, many in sorted(counts.unreadable.items()):
            unreadable.add_metric([counts.cluster_id, *where], many)
    yield unreadable


def transactions(nodes: list[Node]) -> Iterator[Metric]:
    meters = [([node.cluster_id, str(number)], meter) for node in nodes for number, meter in node.meters.coordinators()]
    yield from families(_TRANSACTIONS, _COORDINATOR, meters)
    unfinished = GaugeMetricFamily(
        "pok_transactions_unfinished", "The same by status.", labels=(*_COORDINATOR, "status")
    )
    executions = HistogramMetricFamily(
        "pulsar_txn_execution_latency", "From begin to the end, in milliseconds.", labels=_COORDINATOR
    )
    ends = HistogramMetricFamily(
        "pok_transaction_end_seconds", "From the decision until it has taken effect everywhere.", labels=_COORDINATOR
    )
    for labels, meter in meters:
        by_status = meter.unfinished.copy()
        for status in _STATUSES:
            unfinished.add_metric([*labels, status], by_status.get(status, 0))
        executions.add_metric(labels, meter.executions.cumulative_ms(), meter.executions.sum_s * 1000)
        ends.add_metric(labels, meter.ends.cumulative(), meter.ends.sum_s)
    yield from (unfinished, executions, ends)
    yield from families(
        _STATE_SIZES, _CLUSTER, [([node.cluster_id], node.transactions.state_sizes()) for node in nodes]
    )


def roles(nodes: list[Node]) -> Iterator[Metric]:
    states = [(node.cluster_id, state) for node in nodes for runs in list(node.roles) for state in runs.states()]
    work = (*_ROLE, "work")
    yield from families(_ROLES, _ROLE, [([cluster, state.name], state) for cluster, state in states])
    yield from families(
        _TURNS, work, [([c, state.name, kind], seen) for c, state in states for kind, seen in state.turns]
    )
    yield from families(
        [_WRITTEN], work, [([c, state.name, kind], n) for c, state in states for kind, n in state.written]
    )
    verdicts = [([c, verdict], events) for c, state in states for verdict, events in state.deletions]
    yield from families([_DELETIONS], ("cluster", "verdict"), verdicts)
    copied = [([c, each.topic, each.cluster], each) for c, state in states for each in state.replicators]
    yield from families(_REPLICATION, ("cluster", "topic", "to"), copied)
