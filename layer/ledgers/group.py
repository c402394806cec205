"""The Kafka group that shares the maintenance out: whoever is assigned partition i of `ledgers` maintains i."""

from __future__ import annotations

from pulsar_on_kafka.mapping.instances import Instance
from pulsar_on_kafka.mapping.state_topics import LEDGERS


def maintenance_group(instance: Instance) -> str:
    return instance.group(LEDGERS, "maintenance")
