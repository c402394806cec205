"""Registries as several processes have them: each with a storage of its own on one log in memory."""

from __future__ import annotations

import json
from collections.abc import Callable

from layer.clock import Clock, SystemClock
from layer.deadline import Deadline
from layer.registry.model import SchemaPolicies, TopicLife
from layer.registry.registry import SchemaRegistry
from layer.registry.storage import StateLogSchemaStorage
from layer.statelog.api import StateLog
from mapping.topic_name import TopicName
from schema_compat import SchemaInfo, SchemaType

TOPIC = TopicName.parse("persistent://public/default/orders")


LIFE = TopicLife(str(TOPIC), "Kafka's-id")


def life_of(topic: TopicName, deadline: Deadline) -> TopicLife:
    """Of topics that are never deleted."""
    return TopicLife(str(topic.base), LIFE.kafka_topic_id)


def soon() -> Deadline:
    return Deadline.after(60)


def process(
    log: StateLog,
    policies: SchemaPolicies | Callable[[], SchemaPolicies] = SchemaPolicies(),  # noqa: B008 - frozen
    clock: Clock | None = None,
) -> SchemaRegistry:
    clock = clock or SystemClock()
    given = policies if callable(policies) else lambda: policies
    return SchemaRegistry(
        StateLogSchemaStorage(log, clock), lambda topic, deadline: given(), life_of, clock, user="tests"
    )


def avro(*fields: str, defaults: bool = True, name: str = "Order", kind: SchemaType = SchemaType.AVRO) -> SchemaInfo:
    """A record of optional longs (`defaults`), or of longs that must be there."""
    types = [
        {"name": field, "type": ["null", "long"], "default": None} if defaults else {"name": field, "type": "long"}
        for field in fields
    ]
    return SchemaInfo(kind, json.dumps({"type": "record", "name": name, "fields": types}).encode(), name)
