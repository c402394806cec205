"""Schema storage: records, their partitions, how long they stay, and the memory that they take."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.schema_registry import judging, storage
from pulsar_on_kafka.broker.schema_registry.model import SchemaPolicies, TopicLife
from pulsar_on_kafka.broker.schema_registry.registry import SchemaRegistry
from pulsar_on_kafka.broker.schema_registry.storage import StateLogSchemaStorage, summarized
from pulsar_on_kafka.schema_compat import CompatibilityStrategy, SchemaInfo, SchemaType
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka.statelog.versioned import VersionedEntities
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata import schema_records
from pulsar_on_kafka_mapping.state.state_keys import SchemaKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import SCHEMAS
from pulsar_on_kafka_schema_compat import identity
from tests.memory_log import MemoryStateLog
from tests.registries import LIFE, TOPIC, avro, process, soon

V = SchemaVersion
PARTITION = SCHEMAS.partition_for(str(TOPIC))


def of_size(kilobytes: int, number: int) -> SchemaInfo:
    """One of many that get on with each other, whose documentation is long."""
    definition = json.loads(avro(f"field_{number}").schema)
    return SchemaInfo(SchemaType.AVRO, json.dumps(definition | {"doc": "x" * kilobytes * 1024}).encode(), "Order")


class CountingLog(MemoryStateLog):
    """Counts the records that are read by their offsets."""

    loaded = 0

    def read_at(self, *arguments: Any) -> Any:
        self.loaded += len(arguments[2])
        return super().read_at(*arguments)


class TopicThatIsMadeAnew:
    """A topic that can be made anew; the life of its schemas is that of its Kafka topic."""

    def __init__(self) -> None:
        self.kafka_topic_id = "first"

    def life(self, topic: TopicName, deadline: Deadline) -> TopicLife:
        return TopicLife(str(topic.base), self.kafka_topic_id)

    def registry(self, log: MemoryStateLog) -> SchemaRegistry:
        clock = SystemClock()
        return SchemaRegistry(StateLogSchemaStorage(log, clock), lambda *_: SchemaPolicies(), self.life, clock)


# Memory ---------------------------------------------------------------------------------------------------------------


def test_definitions_beyond_the_budget_are_read_when_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "DEFINITIONS_BYTES", 300 * 1024)
    monkeypatch.setattr(storage, "PORTION_BYTES", 150 * 1024)
    log = CountingLog()
    registry = process(log)
    given = [of_size(100, number) for number in range(12)]
    assert [registry.for_producer(TOPIC, info, soon()) for info in given] == [V(number) for number in range(12)]
    kept = StateLogSchemaStorage(log, SystemClock())
    history = kept.history(LIFE, soon())
    assert [stored.info for stored in kept.load(LIFE, history, history.live, soon())] == given
    assert kept._definitions.size_bytes <= 300 * 1024
    view = kept._entities._at(PARTITION)._view
    assert sum(len(winner.value) for winner in view.query(lambda found: found.winners(LIFE), soon())) < 12 * 200
    log.loaded = 0
    newest = kept.get(LIFE, V(11), soon())
    assert newest is not None
    assert newest.info == given[11]
    assert log.loaded == 0
    oldest = kept.get(LIFE, V(0), soon())
    assert oldest is not None
    assert oldest.info == given[0]
    assert log.loaded == 1


def test_a_view_says_little_of_records_whatever_they_hold() -> None:
    heavy = schema_records.SchemaRecord("X" * 9999, b"x" * 99_999, "n" * 9999, {"p": "x" * 9999}, "u" * 9999)
    for value in (schema_records.encode_schema(heavy), b"\xff" * 99_999, b'{"v":9,"x":"' + b"x" * 99_999 + b'"}\n'):
        assert len(summarized(value)) < 700


@pytest.mark.parametrize("versions", [1, 20])
def test_a_version_takes_little_more_than_a_kilobyte(versions: int) -> None:
    record = schema_records.SchemaRecord("AVRO", b"x" * 3000, "Order", {"team": "shop"}, "ann", 1_795_301_572_220)
    value, count = schema_records.encode_schema(record), 2000
    keys = [
        encode_key(
            SchemaKey(f"persistent://public/default/orders-{n // versions}", "i" * 22, n % versions + 1, f"{n:032x}")
        )
        for n in range(count)
    ]
    tracemalloc.start()
    try:
        view = VersionedEntities(storage.SCHEMA_KEYS, summarized)
        for offset, key in enumerate(keys):
            view.apply(LogRecord(offset, key, value, 0))
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(view.states()) == count // versions
    assert taken / count < 1500


def test_a_definition_that_is_gone_is_asked_for_twice_before_it_counts_as_unreadable() -> None:
    class Forgetful(MemoryStateLog):
        lost: int

        def read_at(self, *arguments: Any) -> Any:
            self.lost -= 1
            return {} if self.lost >= 0 else super().read_at(*arguments)

    log = Forgetful()
    log.lost = 0
    process(log).for_producer(TOPIC, avro("a"), soon())
    log.lost = 1
    assert process(log).schema(TOPIC, V(0), soon()).info == avro("a")
    log.lost = 2
    with pytest.raises(errors.UnreadableSchemas, match=r"schema version 0 of .*orders is no longer at offset 0"):
        process(log).schema(TOPIC, V(0), soon())


# Equal hashes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.PROTOBUF_NATIVE, SchemaType.STRING])
def test_different_definitions_with_one_hash_are_different_schemas(
    monkeypatch: pytest.MonkeyPatch, kind: SchemaType
) -> None:
    class Collision:
        """Everything's SHA-256."""

        def __init__(self, data: bytes = b"") -> None:
            self.data = data

        def update(self, data: bytes) -> None:
            self.data += data

        def digest(self) -> bytes:
            return bytes(32)

        def hexdigest(self) -> str:
            return "0" * 64

    for module in (judging, schema_records, identity):
        monkeypatch.setattr(module, "hashlib", SimpleNamespace(sha256=Collision))
    identity._meaning_of_small.cache_clear()
    log = MemoryStateLog()
    registry = process(log, SchemaPolicies(strategy=CompatibilityStrategy.ALWAYS_COMPATIBLE))
    monkeypatch.setattr(
        "pulsar_on_kafka.broker.schema_registry.registry.check_readable_or_refuse", lambda topic, info, checkers: None
    )
    one, other = (SchemaInfo(kind, text) for text in (b'"int"', b'"long"'))
    assert registry.for_producer(TOPIC, one, soon()) == V(0)
    assert registry.for_producer(TOPIC, other, soon()) == V(1)
    assert [entry.sha256 for entry in registry.index(TOPIC, soon())] == ["0" * 64] * 2
    for again in (registry, process(log)):
        assert again.for_producer(TOPIC, one, soon()) == V(0)
        assert again.for_producer(TOPIC, other, soon()) == V(1)
    identity._meaning_of_small.cache_clear()


# Lives ----------------------------------------------------------------------------------------------------------------


def test_a_topic_that_was_made_anew_begins_at_version_0_also_for_those_who_knew_the_old_one() -> None:
    log, topic = MemoryStateLog(), TopicThatIsMadeAnew()
    one, other = topic.registry(log), topic.registry(log)
    for registry in (one, other):
        assert registry.for_producer(TOPIC, avro("a", defaults=False), soon()) == V(0)
        assert registry.schema(TOPIC, V(0), soon()).info == avro("a", defaults=False)
    other.forget(TOPIC, soon())
    topic.kafka_topic_id = "second"
    for registry in (one, other):
        with pytest.raises(errors.NoSuchSchema):
            registry.schema(TOPIC, V(0), soon())
    assert one.for_producer(TOPIC, avro("b", defaults=False), soon()) == V(0)
    for registry in (one, other):
        assert registry.schema(TOPIC, V(0), soon()).info == avro("b", defaults=False)
        with pytest.raises(errors.IncompatibleSchema):
            registry.for_producer(TOPIC, avro("a", defaults=False), soon())


def test_what_is_left_of_former_lives_is_removed_and_nothing_else() -> None:
    log, topic = MemoryStateLog(), TopicThatIsMadeAnew()
    neighbour = next(
        found
        for number in range(1000)
        if SCHEMAS.partition_for(str(found := TopicName.parse(f"topic-{number}"))) == PARTITION
    )
    for life in ("left behind by a crash", "second"):
        topic.kafka_topic_id = life
        for field in ("a", "b"):
            topic.registry(log).for_producer(TOPIC, avro(field), soon())
    topic.registry(log).for_producer(neighbour, avro("c"), soon())
    topic.registry(log).forget(TOPIC, soon())
    kept = StateLogSchemaStorage(log, SystemClock())
    assert list(kept._entities.beside(str(TOPIC), soon())) == [TopicLife(str(neighbour), "second")]
    topic.registry(log).forget(TOPIC, soon())  # a second call does nothing
    assert topic.registry(log).index(neighbour, soon())[0].version == V(0)


# Forced deletion ------------------------------------------------------------------------------------------------------


def test_a_forced_deletion_removes_the_definitions_and_numbers_go_on() -> None:
    log = MemoryStateLog()
    registry = process(log)
    for number in range(40):
        registry.for_producer(TOPIC, avro(f"field_{number}"), soon())
    registry.delete(TOPIC, soon())
    registry.for_producer(TOPIC, avro("a"), soon())
    assert registry.schema(TOPIC, V(3), soon()).info == avro("field_3")
    assert registry.delete(TOPIC, soon(), forced=True) == V(42)
    for version in (V(3), V(41)):
        with pytest.raises(errors.NoSuchSchema, match=f"no schema version {version}"):
            registry.schema(TOPIC, version, soon())
    winners = StateLogSchemaStorage(log, SystemClock())._entities.of(LIFE).winners(LIFE, soon())
    assert [winner.version - 1 for winner in winners] == [42]
    assert registry.for_producer(TOPIC, avro("b", defaults=False), soon()) == V(43)
    assert [entry.version for entry in process(log).index(TOPIC, soon())] == [V(43)]


def test_a_forced_deletion_removes_what_was_deleted_before() -> None:
    log = MemoryStateLog()
    registry = process(log)
    registry.for_producer(TOPIC, avro("a"), soon())
    assert registry.delete(TOPIC, soon()) == V(1)
    assert registry.schema(TOPIC, V(0), soon()).info == avro("a")
    assert registry.delete(TOPIC, soon(), forced=True) == V(2)
    with pytest.raises(errors.NoSuchSchema):
        registry.schema(TOPIC, V(0), soon())
    assert registry.delete(TOPIC, soon()) is None
    assert registry.delete(TOPIC, soon(), forced=True) is None
    assert registry.for_producer(TOPIC, avro("a"), soon()) == V(3)


def test_what_arrives_after_a_removal_is_no_version() -> None:
    """A proposal of another process that lost, or whose outcome nobody knows, may reach the log at any time."""
    log = MemoryStateLog()
    registry = process(log)
    for field in ("a", "b"):
        registry.for_producer(TOPIC, avro(field), soon())
    registry.delete(TOPIC, soon(), forced=True)
    late = schema_records.encode_schema(schema_records.SchemaRecord("AVRO", avro("late").schema))
    for version in (1, 2):
        log.append(
            SCHEMAS, PARTITION, encode_key(SchemaKey(LIFE.topic, LIFE.kafka_topic_id, version, "ff")), late, soon()
        )
    for again in (registry, process(log)):
        for number in (V(0), V(1), V(2)):
            with pytest.raises(errors.NoSuchSchema):
                again.schema(TOPIC, number, soon())
        assert again.index(TOPIC, soon()) == ()
    assert registry.for_producer(TOPIC, avro("c"), soon()) == V(3)


def test_hashes_are_those_of_the_definitions() -> None:
    log = MemoryStateLog()
    process(log).for_producer(TOPIC, avro("a"), soon())
    (entry,) = process(log).index(TOPIC, soon())
    assert entry.sha256 == hashlib.sha256(avro("a").schema).hexdigest()
    assert entry.type_name == "AVRO"
