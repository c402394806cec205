"""The registry's steps, one rule a test, on the log in memory."""

from __future__ import annotations

import hashlib
import json
import logging
from typing import Any

import pytest

from pulsar_on_kafka import exceptions
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.broker.publishing.official_errors import as_pulsar
from pulsar_on_kafka.broker.schema_registry.model import SchemaPolicies
from pulsar_on_kafka.broker.schema_registry.registry import SchemaRegistry
from pulsar_on_kafka.broker.schema_registry.storage import StateLogSchemaStorage
from pulsar_on_kafka.schema_compat import CompatibilityStrategy, SchemaInfo, SchemaType
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.schema_records import (
    MAX_DEFINITION_BYTES,
    MAX_RECORD_BYTES,
    SchemaRecord,
    encode_schema,
)
from pulsar_on_kafka_mapping.state.state_keys import SchemaKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import SCHEMAS
from tests.clocks import SetClock
from tests.memory_log import MemoryStateLog
from tests.registries import LIFE, TOPIC, avro, life_of, process, soon

V = SchemaVersion
NAME = str(TOPIC)
PARTITION = SCHEMAS.partition_for(NAME)


@pytest.fixture
def log() -> MemoryStateLog:
    return MemoryStateLog()


def write(log: MemoryStateLog, version: int, value: bytes, attempt: str = "ff") -> None:
    """What another program puts into the state topic: `version` as in the key, from 1."""
    log.append(SCHEMAS, PARTITION, encode_key(SchemaKey(NAME, LIFE.kafka_topic_id, version, attempt)), value, soon())


def strategy(name: str) -> SchemaPolicies:
    return SchemaPolicies(strategy=CompatibilityStrategy[name])


# Producers with a schema ----------------------------------------------------------------------------------------------


def test_versions_count_from_0_and_a_known_schema_keeps_its_version(log: MemoryStateLog) -> None:
    registry, other = process(log), process(log)
    assert registry.for_producer(TOPIC, avro("a"), soon()) == V(0)
    assert other.for_producer(TOPIC, avro("a", "b"), soon()) == V(1)
    assert registry.for_producer(TOPIC, avro("a"), soon()) == V(0)
    assert [stored.version for stored in registry.versions(TOPIC, soon())] == [V(0), V(1)]
    latest = registry.latest(TOPIC, soon())
    assert latest is not None
    assert (latest.info, latest.user) == (avro("a", "b"), "tests")


def test_partitions_share_the_topics_schemas(log: MemoryStateLog) -> None:
    registry = process(log)
    assert registry.for_producer(TOPIC.with_partition(3), avro("a"), soon()) == V(0)
    assert registry.for_producer(TOPIC, avro("a", "b"), soon()) == V(1)
    assert registry.for_producer(TopicName.parse("audit"), avro("a", "b"), soon()) == V(0)


def test_the_same_after_parsing_is_the_same_version(log: MemoryStateLog) -> None:
    registry = process(log, strategy("ALWAYS_INCOMPATIBLE"))
    assert registry.for_producer(TOPIC, avro("a"), soon()) == V(0)
    other_text = json.dumps(json.loads(avro("a").schema) | {"doc": "what people buy"}, indent=4).encode()
    assert registry.for_producer(TOPIC, SchemaInfo(SchemaType.AVRO, other_text), soon()) == V(0)


def test_an_incompatible_schema_is_refused_with_every_reason(log: MemoryStateLog) -> None:
    registry = process(log, strategy("BACKWARD"))
    registry.for_producer(TOPIC, avro("a"), soon())
    with pytest.raises(errors.IncompatibleSchema, match=r"refused on topic .*orders under BACKWARD") as refusal:
        registry.for_producer(TOPIC, avro("a", "x", "y", defaults=False), soon())
    assert len(refusal.value.reasons) == 3
    assert all(reason in str(refusal.value) for reason in refusal.value.reasons)
    assert isinstance(as_pulsar(refusal.value), exceptions.IncompatibleSchema)
    assert len(registry.versions(TOPIC, soon())) == 1
    assert registry.counts.refused == 1


def test_transitive_strategies_ask_every_live_version(log: MemoryStateLog) -> None:
    int_string_long = [
        SchemaInfo(SchemaType.AVRO, json.dumps({"type": "record", "name": "R", "fields": fields}).encode())
        for fields in (
            [{"name": "a", "type": "string", "default": ""}],
            [],
            [{"name": "a", "type": "long", "default": 0}],
        )
    ]
    latest_alone = process(log, strategy("BACKWARD"))
    assert [latest_alone.for_producer(TOPIC, info, soon()) for info in int_string_long[:2]] == [V(0), V(1)]
    with pytest.raises(errors.IncompatibleSchema, match="version 0, backward"):
        process(log, strategy("BACKWARD_TRANSITIVE")).for_producer(TOPIC, int_string_long[2], soon())
    assert latest_alone.for_producer(TOPIC, int_string_long[2], soon()) == V(2)


def test_a_consumer_under_always_incompatible_is_judged_by_every_live_version(log: MemoryStateLog) -> None:
    """Source: SchemaRegistryServiceImpl.checkConsumerCompatibility."""
    registry = process(log)
    registry.for_producer(TOPIC, avro("a"), soon())
    strict = process(log, strategy("ALWAYS_INCOMPATIBLE"))
    with pytest.raises(errors.IncompatibleSchema, match="forbids consumers with a schema"):  # as on Pulsar
        strict.for_consumer(TOPIC, avro("a"), soon(), in_use=lambda: True)
    registry.for_producer(TOPIC, avro("a", "b"), soon())
    for info in (avro("a"), avro("a", "b")):
        with pytest.raises(errors.IncompatibleSchema, match="under ALWAYS_INCOMPATIBLE"):
            process(log, strategy("ALWAYS_INCOMPATIBLE")).for_consumer(TOPIC, info, soon(), in_use=lambda: True)


def test_another_type_is_refused_unless_everything_is_taken(log: MemoryStateLog) -> None:
    process(log).for_producer(TOPIC, avro("a"), soon())
    as_json = avro("a", kind=SchemaType.JSON)
    with pytest.raises(errors.IncompatibleSchema, match="has type AVRO, the new schema JSON"):
        process(log).for_producer(TOPIC, as_json, soon())
    assert process(log, strategy("ALWAYS_COMPATIBLE")).for_producer(TOPIC, as_json, soon()) == V(1)


def test_without_auto_update_only_live_schemas_are_taken(log: MemoryStateLog) -> None:
    fixed = process(log, SchemaPolicies(auto_update=False))
    with pytest.raises(errors.IncompatibleSchema, match="is_allow_auto_update_schema is false"):
        fixed.for_producer(TOPIC, avro("a"), soon())
    process(log).for_producer(TOPIC, avro("a"), soon())
    assert fixed.for_producer(TOPIC, avro("a"), soon()) == V(0)
    with pytest.raises(errors.IncompatibleSchema):
        fixed.for_producer(TOPIC, avro("a", "b"), soon())


def test_an_admin_may_register_without_auto_update_but_nothing_incompatible(log: MemoryStateLog) -> None:
    fixed = process(log, SchemaPolicies(auto_update=False))
    assert fixed.upload(TOPIC, avro("a"), soon()) == V(0)
    assert fixed.upload(TOPIC, avro("a", "b"), soon()) == V(1)
    assert fixed.upload(TOPIC, avro("a"), soon()) == V(0)
    with pytest.raises(errors.IncompatibleSchema, match="under FULL"):
        fixed.upload(TOPIC, avro("c", defaults=False), soon())


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        (SchemaInfo(SchemaType.AVRO, b"{"), "is not JSON"),
        (SchemaInfo(SchemaType.AVRO, b'{"type": "recrod", "name": "R"}'), "recrod"),
        (SchemaInfo(SchemaType.JSON, b"17"), "none of an Avro definition"),
        (SchemaInfo(SchemaType.PROTOBUF_NATIVE, b'{"fileDescriptorSet": "AAAA"}'), "refused"),
        (SchemaInfo(SchemaType.KEY_VALUE, b"\0\0\0\x09abc"), "the key schema has 9 bytes, where 3 are left"),
        (SchemaInfo(SchemaType.AUTO_PUBLISH, b""), "AUTO_PUBLISH is a mode of clients"),
    ],
)
def test_what_is_no_schema_is_never_the_first_one(log: MemoryStateLog, info: SchemaInfo, reason: str) -> None:
    registry = process(log, strategy("ALWAYS_COMPATIBLE"))
    with pytest.raises(errors.IncompatibleSchema, match=reason):
        registry.for_producer(TOPIC, info, soon())
    assert registry.versions(TOPIC, soon()) == ()


def test_a_schema_that_is_too_large_is_refused_and_names_the_limit(log: MemoryStateLog) -> None:
    registry = process(log)
    large = SchemaInfo(SchemaType.AVRO, avro("a").schema + b" " * MAX_DEFINITION_BYTES)
    said = f"has {len(large.schema)} bytes, at most {MAX_DEFINITION_BYTES} "
    for register in (
        lambda: registry.for_producer(TOPIC, large, soon()),
        lambda: registry.for_consumer(TOPIC, large, soon(), in_use=never_in_use),
        lambda: registry.upload(TOPIC, large, soon()),
        lambda: registry.compatibility(TOPIC, large, soon()),
    ):
        with pytest.raises(errors.InvalidOption, match=said):
            register()
    heavy = SchemaInfo(SchemaType.AVRO, avro("a").schema, properties={"p": "x" * MAX_RECORD_BYTES})
    with pytest.raises(errors.InvalidOption, match=f"at most {MAX_RECORD_BYTES} can be kept"):
        registry.for_producer(TOPIC, heavy, soon())
    assert registry.versions(TOPIC, soon()) == ()


# Without asking Kafka -------------------------------------------------------------------------------------------------


class CountingLog(MemoryStateLog):
    """Counts the questions to the broker."""

    asked = 0

    def end_offset(self, *arguments: object) -> int:
        self.asked += 1
        return super().end_offset(*arguments)  # type: ignore[arg-type]


def test_a_known_schema_and_a_known_version_ask_nothing() -> None:
    log = CountingLog()
    registry = process(log)
    version = registry.for_producer(TOPIC, avro("a"), soon())
    assert version is not None
    registry.schema(TOPIC, version, soon())
    asked = log.asked
    for _ in range(100):
        assert registry.for_producer(TOPIC, avro("a"), soon()) == version
        assert registry.schema(TOPIC, version, soon()).info == avro("a")
    assert log.asked == asked


def test_policies_that_the_caller_knows_are_not_asked_for(log: MemoryStateLog) -> None:
    def unknown() -> SchemaPolicies:
        raise AssertionError("the caller said which apply")

    registry, enforced = process(log, unknown), SchemaPolicies(validation_enforced=True, auto_update=False)
    assert registry.for_producer(TOPIC, None, soon(), SchemaPolicies()) is None
    with pytest.raises(errors.IncompatibleSchema, match="is_allow_auto_update_schema is false"):
        registry.for_producer(TOPIC, avro("a"), soon(), enforced)
    registry.for_consumer(TOPIC, avro("a"), soon(), SchemaPolicies(), in_use=never_in_use)
    registry.for_consumer(TOPIC, avro("a"), soon(), SchemaPolicies(), in_use=never_asked)
    with pytest.raises(errors.IncompatibleSchema, match="schema_validation_enforced"):
        registry.for_producer(TOPIC, None, soon(), enforced)


def test_a_known_schema_is_asked_for_again_after_a_minute_or_a_change_that_was_seen() -> None:
    log, clock = CountingLog(), SetClock()
    registry, other = process(log, clock=clock), process(log)
    registry.for_producer(TOPIC, avro("a"), soon())
    other.delete(TOPIC, soon())
    assert registry.for_producer(TOPIC, avro("a"), soon()) == V(0)
    clock.seconds += 61
    assert registry.for_producer(TOPIC, avro("a"), soon()) == V(2)
    other.delete(TOPIC, soon())
    assert registry.versions(TOPIC, soon()) == ()
    assert registry.for_producer(TOPIC, avro("a"), soon()) == V(4)
    registry.delete(TOPIC, soon())
    assert registry.for_producer(TOPIC, avro("a"), soon()) == V(6)


# Producers without a schema -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("info", [None, SchemaInfo(SchemaType.BYTES, b""), SchemaInfo(SchemaType.NONE, b"")])
def test_a_producer_without_a_schema(log: MemoryStateLog, info: SchemaInfo | None) -> None:
    enforcing = process(log, SchemaPolicies(validation_enforced=True))
    assert enforcing.for_producer(TOPIC, info, soon()) is None
    process(log).for_producer(TOPIC, avro("a"), soon())
    assert process(log).for_producer(TOPIC, info, soon()) is None
    with pytest.raises(errors.IncompatibleSchema, match="schema_validation_enforced"):
        enforcing.for_producer(TOPIC, info, soon())
    enforcing.delete(TOPIC, soon())
    assert enforcing.for_producer(TOPIC, info, soon()) is None


# Consumers ------------------------------------------------------------------------------------------------------------


def never_in_use() -> bool:
    return False


def never_asked() -> bool:
    raise AssertionError("the topic has a schema")


def test_the_first_consumer_of_an_idle_topic_registers_its_schema(log: MemoryStateLog) -> None:
    registry = process(log)
    registry.for_consumer(TOPIC, avro("a"), soon(), in_use=lambda: False)
    assert [stored.info for stored in registry.versions(TOPIC, soon())] == [avro("a")]


def test_consumers_of_several_partitions_begin_with_one_schema_at_once(log: MemoryStateLog) -> None:
    """The other one registers its schema, and is there, after this one has read that there is none."""

    def other_begins() -> bool:
        process(log).for_consumer(TOPIC, avro("a"), soon(), in_use=never_in_use)
        return True

    process(log).for_consumer(TOPIC, avro("a"), soon(), in_use=other_begins)


def test_a_topic_in_use_without_schema_refuses_consumers_with_one(log: MemoryStateLog) -> None:
    with pytest.raises(errors.IncompatibleSchema, match="in use without a schema"):
        process(log).for_consumer(TOPIC, avro("a"), soon(), in_use=lambda: True)
    process(log, strategy("ALWAYS_COMPATIBLE")).for_consumer(TOPIC, avro("a"), soon(), in_use=lambda: True)
    assert process(log).versions(TOPIC, soon()) == ()


@pytest.mark.parametrize("name", ["BACKWARD", "FORWARD", "FORWARD_TRANSITIVE", "FULL"])
def test_a_consumer_must_read_the_latest(log: MemoryStateLog, name: str) -> None:
    writer = process(log, strategy("ALWAYS_COMPATIBLE"))
    for info in (avro("a", defaults=False), avro("b", defaults=False)):
        writer.for_producer(TOPIC, info, soon())
    reader = process(log, strategy(name))
    reader.for_consumer(TOPIC, avro("b", "c"), soon(), in_use=never_asked)
    with pytest.raises(errors.IncompatibleSchema, match="version 1, backward"):  # although it is live itself
        reader.for_consumer(TOPIC, avro("a", defaults=False), soon(), in_use=never_asked)
    assert len(reader.versions(TOPIC, soon())) == 2


def test_under_a_transitive_strategy_a_consumer_must_get_on_with_all(log: MemoryStateLog) -> None:
    writer = process(log, strategy("ALWAYS_COMPATIBLE"))
    for info in (avro("a", defaults=False), avro("b", defaults=False)):
        writer.for_producer(TOPIC, info, soon())
    reader = process(log, strategy("BACKWARD_TRANSITIVE"))
    reader.for_consumer(TOPIC, avro("c"), soon(), in_use=never_asked)
    with pytest.raises(errors.IncompatibleSchema, match="version 0, backward"):
        reader.for_consumer(TOPIC, avro("b", defaults=False), soon(), in_use=never_asked)


@pytest.mark.parametrize("info", [None, SchemaInfo(SchemaType.BYTES, b""), SchemaInfo(SchemaType.AUTO_CONSUME, b"")])
def test_consumers_that_read_anything(log: MemoryStateLog, info: SchemaInfo | None) -> None:
    process(log).for_producer(TOPIC, avro("a"), soon())
    process(log).for_consumer(TOPIC, info, soon(), in_use=never_asked)


# Deleting -------------------------------------------------------------------------------------------------------------


def test_a_deletion_is_a_version_and_ends_what_counts(log: MemoryStateLog) -> None:
    registry = process(log)
    assert registry.delete(TOPIC, soon()) is None
    registry.for_producer(TOPIC, avro("a", defaults=False), soon())
    assert registry.delete(TOPIC, soon()) == V(1)
    assert registry.delete(TOPIC, soon()) is None
    assert registry.latest(TOPIC, soon()) is None
    assert registry.for_producer(TOPIC, avro("b", defaults=False), soon()) == V(2)  # it would not follow version 0
    assert [stored.version for stored in registry.versions(TOPIC, soon())] == [V(2)]
    assert registry.schema(TOPIC, V(0), soon()).info == avro("a", defaults=False)  # for messages that name it
    for never_a_schema in (V(1), V(3)):
        with pytest.raises(errors.NoSuchSchema, match=f"no schema version {never_a_schema}"):
            registry.schema(TOPIC, never_a_schema, soon())


def test_reasons_name_versions_as_they_are_counted_also_after_a_deletion(log: MemoryStateLog) -> None:
    registry = process(log)
    registry.for_producer(TOPIC, avro("a"), soon())
    registry.delete(TOPIC, soon())
    registry.for_producer(TOPIC, avro("a"), soon())
    with pytest.raises(errors.IncompatibleSchema, match="version 2, backward"):
        registry.for_producer(TOPIC, avro("b", defaults=False), soon())


# What cannot be read --------------------------------------------------------------------------------------------------


def test_unreadable_schemas_are_deleted_loudly_and_the_topic_starts_anew(
    log: MemoryStateLog, caplog: pytest.LogCaptureFixture
) -> None:
    registry = process(log)
    registry.for_producer(TOPIC, avro("a"), soon())
    write(log, 2, b"not a schema record")
    registry.for_producer(TopicName.parse("audit"), avro("a"), soon())  # others are not concerned
    with pytest.raises(errors.UnreadableSchemas, match=r"schema version 1 of .*orders .*offset 1.*not a schema record"):
        registry.versions(TOPIC, soon())
    with caplog.at_level(logging.ERROR):
        assert process(log).for_producer(TOPIC, avro("b", defaults=False), soon()) == V(3)
    assert "ALL ITS SCHEMAS ARE DELETED" in caplog.text
    assert [stored.version for stored in registry.versions(TOPIC, soon())] == [V(3)]
    assert registry.schema(TOPIC, V(0), soon()).info == avro("a")
    with pytest.raises(errors.UnreadableSchemas):
        registry.schema(TOPIC, V(1), soon())


def test_forced_deletions_are_counted_once(log: MemoryStateLog) -> None:
    write(log, 1, b"broken")
    registries = [process(log), process(log)]
    for registry in registries:
        registry.for_producer(TOPIC, avro("a"), soon())
    assert [registry.counts.force_deleted for registry in registries] == [1, 0]


def test_what_was_registered_after_a_forced_deletion_is_not_deleted_by_a_slow_process(log: MemoryStateLog) -> None:
    """It found the old schemas unreadable, and comes to delete them when somebody else has started anew."""
    write(log, 1, b"broken")

    class Slow(StateLogSchemaStorage):
        def force_delete(self, *arguments: Any) -> SchemaVersion | None:
            process(log).for_producer(TOPIC, avro("a"), soon())
            return super().force_delete(*arguments)

    clock = SetClock()
    slow = SchemaRegistry(Slow(log, clock), lambda topic, deadline: SchemaPolicies(), life_of, clock)
    assert slow.for_producer(TOPIC, avro("a"), soon()) == V(2)
    assert slow.counts.force_deleted == 0


def test_a_version_that_is_gone_cannot_be_read_any_more(log: MemoryStateLog) -> None:
    write(log, 2, encode_schema(SchemaRecord("STRING", b"")))
    registry = process(log)
    with pytest.raises(errors.UnreadableSchemas, match=r"schema version 0 of .* is no longer in"):
        registry.versions(TOPIC, soon())
    assert registry.for_producer(TOPIC, avro("a"), soon()) == V(3)


@pytest.mark.parametrize(
    "value",
    [
        encode_schema(SchemaRecord("HOLOGRAM", b"of a later version")),
        encode_schema(SchemaRecord("AVRO", b"{}")).replace(b'"v":1', b'"v":2'),
    ],
)
def test_what_a_later_version_wrote_is_never_deleted_for_that(log: MemoryStateLog, value: bytes) -> None:
    write(log, 1, value)
    registry = process(log)
    with pytest.raises(errors.Corrupt, match="schema version 0") as failure:
        registry.for_producer(TOPIC, avro("a"), soon())
    assert not isinstance(failure.value, errors.UnreadableSchemas)
    assert log.end_offset(SCHEMAS, PARTITION, soon()) == 1


def test_a_read_error_that_may_pass_is_returned_and_deletes_nothing() -> None:
    class Unreachable(MemoryStateLog):
        broken = False

        def end_offset(self, *arguments: object) -> int:
            if self.broken:
                raise errors.ConnectFailed("no broker")
            return super().end_offset(*arguments)  # type: ignore[arg-type]

    log = Unreachable()
    registry = process(log)
    registry.for_producer(TOPIC, avro("a"), soon())
    log.broken = True
    with pytest.raises(errors.ConnectFailed):
        registry.for_producer(TOPIC, avro("a", "b"), soon())
    log.broken = False
    assert registry.for_producer(TOPIC, avro("a", "b"), soon()) == V(1)


# Questions of admins --------------------------------------------------------------------------------------------------


def test_asking_for_compatibility_registers_nothing(log: MemoryStateLog) -> None:
    registry = process(log)
    assert registry.compatibility(TOPIC, avro("a"), soon()).is_compatible
    assert not registry.compatibility(TOPIC, SchemaInfo(SchemaType.AVRO, b"{"), soon()).is_compatible
    assert registry.versions(TOPIC, soon()) == ()
    registry.for_producer(TOPIC, avro("a"), soon())
    assert registry.compatibility(TOPIC, avro("a"), soon()).is_compatible
    assert not registry.compatibility(TOPIC, avro("b", defaults=False), soon()).is_compatible


def test_every_version_says_where_its_record_lies_and_what_it_hashes_to(log: MemoryStateLog) -> None:
    process(log).for_producer(TOPIC, avro("a"), soon())
    (entry,) = StateLogSchemaStorage(log, SetClock()).history(LIFE, soon()).live
    (stored,) = process(log).versions(TOPIC, soon())
    assert entry.kafka_offset == stored.kafka_offset == 0
    assert entry.sha256 == stored.sha256 == hashlib.sha256(avro("a").schema).hexdigest()


def test_keys_that_move_make_another_version_of_a_key_value_schema(log: MemoryStateLog) -> None:
    registry = process(log)
    types = {"key.schema.type": "STRING", "value.schema.type": "STRING"}
    nothing_said = SchemaInfo(SchemaType.KEY_VALUE, bytes(8), "kv", types)
    inline, separated = (
        SchemaInfo(SchemaType.KEY_VALUE, bytes(8), "kv", types | {"kv.encoding.type": where})
        for where in ("INLINE", "SEPARATED")
    )
    assert [registry.for_producer(TOPIC, info, soon()) for info in (inline, separated, nothing_said, separated)] == [
        V(0), V(1), V(0), V(1),
    ]  # fmt: skip
