"""Counts of this process on each cluster, whatever the topic, become Prometheus metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pulsar_on_kafka.registry.registry import RegistryCounts


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
    """Of state topics: by name and part of a record."""


_COUNTS: Final[tuple[tuple[str, str, Callable[[ClusterCounts], int]], ...]] = (
    ("pok_schemas_registered", "Schema versions that this process registered.", lambda of: of.schemas.registered),
    ("pok_schemas_refused", "Producers and consumers refused for their schema.", lambda of: of.schemas.refused),
    ("pok_schema_races_lost", "Registrations begun again because of another one.", lambda of: of.schemas.lost_races),
    ("pok_schemas_force_deleted", "Topics whose schemas could not be read any more.",
     lambda of: of.schemas.force_deleted),
    ("pok_delivery_records_corrupt", "Records among processes that could not be read and were skipped.",
     lambda of: of.corrupt_deliveries),
    ("pok_delivery_records_written", "Records written to the other processes of subscriptions.",
     lambda of: of.deliveries),
    ("pok_delivery_writes", "Requests with records to the other processes of subscriptions.",
     lambda of: of.delivery_writes),
)  # fmt: skip


def of_clusters(clusters: Iterable[ClusterCounts]) -> Iterator[Metric]:
    found = list(clusters)
    for name, text, value in _COUNTS:
        family = CounterMetricFamily(name, text, labels=("cluster",))
        for counts in found:
            family.add_metric([counts.cluster_id], value(counts))
        yield family
    unreadable = GaugeMetricFamily(
        "pok_state_records_unreadable",
        "Records of state topics that this process met and could not read.",
        labels=("cluster", "state_topic", "part"),
    )
    for counts in found:
        for where, many in sorted(counts.unreadable.items()):
            unreadable.add_metric([counts.cluster_id, *where], many)
    yield unreadable
