"""Schema policies of a topic, from those that are set for it, its namespace and the cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.schema_registry.judging import policies_when_opened, schema_policies
from pulsar_on_kafka.broker.schema_registry.model import SchemaPolicies
from pulsar_on_kafka.schema_compat import CompatibilityStrategy as Strategy
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName

BACKWARD = {"schema_compatibility_strategy": "BACKWARD"}
FORWARD = {"schema_compatibility_strategy": "FORWARD"}
UNDEFINED = {"schema_compatibility_strategy": "UNDEFINED"}


def test_the_defaults_are_pulsars() -> None:
    assert schema_policies({}, {}) == SchemaPolicies(Strategy.FULL, validation_enforced=False, auto_update=True)


@pytest.mark.parametrize(
    ("topic", "namespace", "cluster", "expected"),
    [
        (BACKWARD, FORWARD, Strategy.FULL_TRANSITIVE, Strategy.BACKWARD),
        (UNDEFINED, FORWARD, Strategy.FULL_TRANSITIVE, Strategy.FORWARD),
        ({}, FORWARD, Strategy.FULL_TRANSITIVE, Strategy.FORWARD),
        ({}, UNDEFINED, Strategy.FULL_TRANSITIVE, Strategy.FULL_TRANSITIVE),
        (UNDEFINED, UNDEFINED, Strategy.UNDEFINED, Strategy.FULL),
    ],
)
def test_topic_then_namespace_then_cluster(
    topic: dict[str, str], namespace: dict[str, str], cluster: Strategy, expected: Strategy
) -> None:
    assert schema_policies(topic, namespace, cluster).strategy is expected


def test_the_switches() -> None:
    namespace = {"schema_validation_enforced": True, "is_allow_auto_update_schema": False}
    assert schema_policies({}, namespace) == SchemaPolicies(validation_enforced=True, auto_update=False)
    topic = {"schema_validation_enforced": False, "is_allow_auto_update_schema": True}
    assert schema_policies(topic, namespace) == SchemaPolicies()


def test_a_strategy_that_there_is_not_is_corrupt() -> None:
    with pytest.raises(errors.Corrupt, match="'SIDEWAYS', which is no strategy"):
        schema_policies({"schema_compatibility_strategy": "SIDEWAYS"}, {})


def test_an_opened_topic_brings_what_applied_then() -> None:
    name = TopicName.parse("orders")
    found = Topic(name, "public.default.orders", "id", 1, False, LedgerLayout(1, 50_000), policies=FORWARD)
    assert policies_when_opened(found) is None
    opened = replace(found, namespace_policies={**BACKWARD, "schema_validation_enforced": True})
    assert policies_when_opened(opened) == SchemaPolicies(Strategy.FORWARD, validation_enforced=True)
