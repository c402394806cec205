"""A hundred producers with one new schema, fifty with schemas of their own: on both state logs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import NoSuchSchema
from pulsar_on_kafka.broker.schema_registry.registry import SchemaRegistry
from pulsar_on_kafka.schema_compat import CompatibilityStrategy, SchemaInfo, check_compatibility
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from tests.registries import avro, process
from tests.steps import Unique

PROCESSES = 10


def register_at_once(log: StateLog, topic: TopicName, schemas: list[SchemaInfo]) -> list[SchemaVersion | None]:
    """A thread for each schema, ten to a process: what each was told."""
    registries = [process(log) for _ in range(PROCESSES)]
    together = threading.Barrier(len(schemas))

    def register(number: int) -> SchemaVersion | None:
        registry: SchemaRegistry = registries[number % PROCESSES]
        together.wait(60)
        return registry.for_producer(topic, schemas[number], Deadline.after(120))

    with ThreadPoolExecutor(len(schemas)) as threads:
        return list(threads.map(register, range(len(schemas))))


def test_a_hundred_with_the_same_new_schema_get_one_version(log: StateLog, unique: Unique) -> None:
    topic = TopicName.parse(unique("same"))
    assert register_at_once(log, topic, [avro("a")] * 100) == [SchemaVersion(0)] * 100
    assert len(process(log).versions(topic, Deadline.after(30))) == 1


@pytest.mark.long
def test_fifty_with_compatible_schemas_get_fifty_dense_versions(log: StateLog, unique: Unique) -> None:
    topic = TopicName.parse(unique("different"))
    schemas = [avro(f"field_{number}") for number in range(50)]
    told = register_at_once(log, topic, schemas)
    assert set(told) == {SchemaVersion(number) for number in range(50)}
    stored = process(log).versions(topic, Deadline.after(30))
    assert [one.version.number for one in stored] == list(range(50))
    for version, schema in zip(told, schemas, strict=True):
        assert version is not None
        assert stored[version.number].info == schema
    for old, new in pairwise(stored):
        assert check_compatibility(new.info, [old.info], CompatibilityStrategy.FULL).is_compatible


def test_deletion_and_what_follows(log: StateLog, unique: Unique) -> None:
    topic, deadline = TopicName.parse(unique("deleted")), Deadline.after(60)
    one, other = process(log), process(log)
    assert one.for_producer(topic, avro("a", defaults=False), deadline) == SchemaVersion(0)
    assert other.delete(topic, deadline) == SchemaVersion(1)
    assert other.for_producer(topic, avro("b", defaults=False), deadline) == SchemaVersion(2)
    assert one.schema(topic, SchemaVersion(0), deadline).info == avro("a", defaults=False)
    assert [stored.version.number for stored in one.versions(topic, deadline)] == [2]


def test_a_forced_deletion_leaves_what_comes_after_it(log: StateLog, unique: Unique) -> None:
    topic, deadline = TopicName.parse(unique("forced")), Deadline.after(60)
    one, other = process(log), process(log)
    for number in range(20):
        one.for_producer(topic, avro(f"field_{number}"), deadline)
    assert other.delete(topic, deadline, forced=True) == SchemaVersion(20)
    for number in range(3):
        one.for_producer(topic, avro(f"again_{number}"), deadline)
    assert other.delete(topic, deadline) == SchemaVersion(24)
    assert other.schema(topic, SchemaVersion(22), deadline).info == avro("again_1")
    with pytest.raises(NoSuchSchema):
        other.schema(topic, SchemaVersion(19), deadline)
    one.forget(topic, deadline)
    assert process(log).for_producer(topic, avro("anew"), deadline) == SchemaVersion(0)
