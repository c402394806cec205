"""The counts of a cluster as metrics."""

from __future__ import annotations

from pulsar_on_kafka.broker.node.metrics.process import ClusterCounts, of_clusters
from pulsar_on_kafka.broker.schema_registry.registry import RegistryCounts


def test_each_count_has_its_metric_with_the_cluster() -> None:
    schemas = RegistryCounts(registered=1, refused=2, lost_races=3, force_deleted=4)
    counts = ClusterCounts(
        "here", schemas, corrupt_deliveries=5, deliveries=6, delivery_writes=7, unreadable={("topics", "key"): 8}
    )
    found = of_clusters([counts])
    samples = [sample for family in found for sample in family.samples]
    assert {sample.name: sample.value for sample in samples} == {
        "pok_schemas_registered_total": 1,
        "pok_schemas_refused_total": 2,
        "pok_schema_races_lost_total": 3,
        "pok_schemas_force_deleted_total": 4,
        "pok_delivery_records_corrupt_total": 5,
        "pok_delivery_records_written_total": 6,
        "pok_delivery_writes_total": 7,
        "pok_state_records_unreadable": 8,
    }
    assert {sample.labels["cluster"] for sample in samples} == {"here"}
