"""Schemas of topics, as administrators see them: `AdminClient` and `pok schemas` on a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import pulsar_on_kafka as pulsar
from pulsar_on_kafka import exceptions
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.schema_registry.judging import policies_when_opened
from pulsar_on_kafka.cli.main import app
from pulsar_on_kafka.schema_compat import CompatibilityStrategy, SchemaInfo, SchemaType
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_topics import SCHEMAS
from tests.integration.command_line import CommandLine
from tests.registries import avro
from tests.steps import Unique

pytestmark = pytest.mark.kafka


@pytest.fixture
def schemas(service_url: str) -> CommandLine:
    return CommandLine(service_url, "schemas")


@pytest.fixture
def topic(admin: AdminClient, unique: Unique) -> str:
    name = f"persistent://public/default/{unique()}"
    admin.create_partitioned_topic(name, 3)
    return name


@pytest.fixture
def file_of(tmp_path: Path) -> Callable[[bytes], str]:
    def write(content: bytes) -> str:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.avsc"
        path.write_bytes(content)
        return str(path)

    return write


# AdminClient ----------------------------------------------------------------------------------------------------------


def test_a_schema_is_registered_seen_and_deleted(admin: AdminClient, topic: str) -> None:
    with pytest.raises(exceptions.TopicNotFound, match="has no schema"):
        admin.get_schema_info(topic)
    assert admin.create_schema(topic, avro("a")) == 0
    assert admin.create_schema(f"{topic}-partition-1", avro("a", "b")) == 1
    assert admin.create_schema(topic, avro("a")) == 0
    assert admin.get_schema_info(topic) == avro("a", "b")
    assert admin.get_schema_info(topic, 0) == avro("a")
    assert [stored.info for stored in admin.get_all_schemas(topic)] == [avro("a"), avro("a", "b")]
    assert [entry.version.number for entry in admin.list_schema_versions(topic)] == [0, 1]
    assert admin.get_version_by_schema(topic, avro("a", "b")) == 1
    assert admin.get_version_by_schema(topic, avro("c")) is None
    assert admin.delete_schema(topic) == 2
    assert admin.delete_schema(topic) is None
    assert admin.list_schema_versions(topic) == []
    assert admin.get_schema_info(topic, 0) == avro("a")
    assert admin.create_schema(topic, avro("c", defaults=False)) == 3
    assert admin.delete_schema(topic, force=True) == 4
    with pytest.raises(exceptions.TopicNotFound, match="no schema version 0"):
        admin.get_schema_info(topic, 0)
    with pytest.raises(exceptions.InvalidConfiguration, match="at least 0, got -1"):
        admin.get_schema_info(topic, -1)


def test_strategies_are_set_and_followed(admin: AdminClient, unique: Unique) -> None:
    namespace = f"public/{unique('ns')}"
    admin.create_namespace(namespace)
    topic = f"{namespace}/t"
    admin.create_topic(topic)
    assert admin.get_schema_compatibility_strategy(topic) is CompatibilityStrategy.UNDEFINED
    assert admin.get_schema_compatibility_strategy(topic, applied=True) is CompatibilityStrategy.FULL
    admin.create_schema(topic, avro("a"))
    with pytest.raises(exceptions.IncompatibleSchema, match=r"under FULL: .*version 0, backward"):
        admin.create_schema(topic, avro("b", defaults=False))
    admin.set_schema_compatibility_strategy(namespace, "forward")
    assert admin.get_schema_compatibility_strategy(topic, applied=True) is CompatibilityStrategy.FORWARD
    assert admin.test_compatibility(topic, avro("b", defaults=False)).is_compatible
    admin.set_schema_compatibility_strategy(topic, CompatibilityStrategy.ALWAYS_INCOMPATIBLE)
    assert not admin.test_compatibility(topic, avro("b", defaults=False)).is_compatible
    admin.set_schema_compatibility_strategy(topic, CompatibilityStrategy.UNDEFINED)
    admin.set_policy(namespace, "is_allow_auto_update_schema", False)
    assert admin.create_schema(topic, avro("b", defaults=False)) == 1
    with pytest.raises(exceptions.InvalidConfiguration, match="takes one of"):
        admin.set_schema_compatibility_strategy(topic, "sideways")


def test_a_strategy_that_forbids_all_changes_forbids_consumers_with_a_schema(
    admin: AdminClient, client: pulsar.Client, unique: Unique
) -> None:
    """As on Pulsar 4.0.7 and 5.0.1. The first consumer of an idle topic registers its schema, and producers of a known
    one are accepted."""
    topic, schema = unique(), pulsar.schema.StringSchema()
    admin.create_topic(topic)
    admin.set_schema_compatibility_strategy(topic, CompatibilityStrategy.ALWAYS_INCOMPATIBLE)
    client.subscribe(topic, "first", schema=schema)
    client.create_producer(topic, schema=schema).send("one")
    with pytest.raises(pulsar.IncompatibleSchema, match="forbids consumers with a schema"):
        client.subscribe(topic, "second", schema=schema)
    anything = client.subscribe(
        topic, "second", initial_position=pulsar.InitialPosition.Earliest, schema=pulsar.schema.AutoConsumeSchema()
    )
    assert anything.receive(60_000).value() == "one"


def test_two_versions_of_a_topic_are_compared(admin: AdminClient, schemas: CommandLine, topic: str) -> None:
    for info in (avro("a"), avro("a", "b")):
        admin.create_schema(topic, info)
    found = schemas.json("diff", "0", "1", "--topic", topic)
    assert [(one["field"], one["change"], one["old"]) for one in found["changes"]] == [("b", "added", None)]
    assert found["accepted"] == {"BACKWARD": True, "FORWARD": True, "FULL": True}
    assert "version 0" in schemas("diff", "0", "1", "--topic", topic).stdout
    assert "2" in schemas.refused("diff", "0", "2", "--topic", topic)


def test_opening_a_topic_brings_the_policies_of_schemas(admin: AdminClient, unique: Unique) -> None:
    namespace = f"public/{unique('ns')}"
    admin.create_namespace(namespace)
    admin.set_policy(namespace, "schema_validation_enforced", True)
    opened = admin.node.topics.open(TopicName.parse(f"{namespace}/t"), Deadline.after(20))
    assert opened.namespace_policies == {"schema_validation_enforced": True}


def test_a_known_schema_and_none_at_all_ask_kafka_nothing_more_than_opening_the_topic(
    admin: AdminClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, name, soon = admin.node, TopicName.parse(topic), Deadline.after(60)
    policies = policies_when_opened(node.topics.open(name, soon))
    assert policies is not None
    version = node.schemas.for_producer(name, avro("a"), soon, policies)
    assert version == SchemaVersion(0)
    node.schemas.schema(name, version, soon)
    asked: list[str] = []
    for question in ("end_offset", "start_offset", "read", "read_at", "append_many"):
        monkeypatch.setattr(node.log, question, lambda *_, what=question: asked.append(what))
    assert node.schemas.for_producer(name, avro("a"), soon, policies) == version
    assert node.schemas.for_producer(name, None, soon, policies) is None
    assert node.schemas.schema(name, version, soon).info == avro("a")
    assert asked == []


def test_a_topic_that_is_not_there_has_no_schemas(admin: AdminClient, unique: Unique) -> None:
    for call in (
        lambda: admin.get_schema_info(unique("absent")),
        lambda: admin.create_schema("public/absent-namespace/t", avro("a")),
        lambda: admin.create_schema(f"{unique('absent')}-partition-0", avro("a")),
        lambda: admin.delete_schema(unique("absent")),
        lambda: admin.list_schema_versions("public/absent-namespace/t"),
    ):
        with pytest.raises(exceptions.TopicNotFound, match="does not exist"):
            call()


def test_a_schema_may_come_before_its_topic(admin: AdminClient, service_url: str, unique: Unique) -> None:
    topic = unique()
    assert admin.create_schema(topic, avro("a")) == 0
    assert f"persistent://public/default/{topic}" in admin.list_topics("public/default")
    with closing(pulsar.Client(service_url)) as client:
        other = pulsar.schema.AvroSchema(None, schema_definition=json.loads(avro("b", defaults=False).schema))
        with pytest.raises(exceptions.IncompatibleSchema):
            client.create_producer(topic, schema=other)


def test_a_topic_that_was_deleted_begins_at_version_0_again(
    admin: AdminClient, service_url: str, unique: Unique
) -> None:
    topic, neighbour = unique(), unique("neighbour")
    with AdminClient(service_url, kafka_config={"client.rack": "another-process"}) as other:
        assert other.node is not admin.node
        for name in (topic, neighbour):
            admin.create_topic(name)
        for name, info in ((topic, avro("a", defaults=False)), (neighbour, avro("n"))):
            assert admin.create_schema(name, info) == 0
        assert other.get_schema_info(topic, 0) == avro("a", defaults=False)
        admin.delete_topic(topic)
        with pytest.raises(exceptions.TopicNotFound, match="does not exist"):
            admin.get_schema_info(topic)
        admin.create_partitioned_topic(topic, 2)
        for registry in (admin, other):
            with pytest.raises(exceptions.TopicNotFound, match="has no schema"):
                registry.get_schema_info(topic)
        assert other.create_schema(topic, avro("c", defaults=False)) == 0
        for registry in (admin, other):
            assert registry.get_schema_info(topic, 0) == avro("c", defaults=False)
            assert registry.get_schema_info(neighbour) == avro("n")
        assert len(lives(admin, TopicName.parse(topic))) == 1


def lives(admin: AdminClient, name: TopicName) -> list[Any]:
    """Those of this topic's name that the state topic still holds."""
    beside = admin.node.schemas._storage._entities.beside(str(name), Deadline.after(20))  # type: ignore[attr-defined]
    return [life for life in beside if life.topic == str(name)]


def test_a_kafka_topic_that_is_unbound_keeps_its_schemas(admin: AdminClient, unique: Unique) -> None:
    kafka_topic, topic = unique("kafka"), unique("bound")
    admin.node.admin.create_topic(kafka_topic, 1, {}, Deadline.after(20))
    admin.bind_topic(topic, kafka_topic)
    assert admin.create_schema(topic, avro("a")) == 0
    admin.delete_topic(topic)
    admin.bind_topic(topic, kafka_topic)
    assert admin.get_schema_info(topic, 0) == avro("a")
    assert admin.create_schema(topic, avro("a", "b")) == 1


# Large ones -----------------------------------------------------------------------------------------------------------


def large(size: int) -> SchemaInfo:
    return SchemaInfo(SchemaType.AVRO, b'{"type": "record", "name": "R", "fields": [], "doc": "' + b"x" * size + b'"}')


def test_a_definition_of_five_megabytes(admin: AdminClient, service_url: str, topic: str) -> None:
    largest = large(5 * 1024 * 1024 - len(large(0).schema))
    assert admin.create_schema(topic, largest) == 0
    with AdminClient(service_url, kafka_config={"client.rack": "another-process"}) as other:
        assert other.get_schema_info(topic) == largest
    with pytest.raises(exceptions.InvalidConfiguration, match="has 5242881 bytes, at most 5242880 can be kept"):
        admin.create_schema(topic, large(5 * 1024 * 1024 + 1 - len(large(0).schema)))


@contextmanager
def as_an_earlier_version_made_it(admin: AdminClient) -> Iterator[None]:
    def limit(largest: str) -> None:
        admin.node.admin.set_topic_configs(
            Instance().state_topic(SCHEMAS), {"max.message.bytes": largest}, Deadline.after(20)
        )

    limit("1048588")
    try:
        yield
    finally:
        limit(SCHEMAS.configs["max.message.bytes"])


def test_a_state_topic_of_an_earlier_version_says_how_to_raise_its_limit(
    admin: AdminClient, service_url: str, topic: str
) -> None:
    admin.create_schema(topic, avro("a"))
    with as_an_earlier_version_made_it(admin):
        with pytest.raises(exceptions.MessageTooBig, match=r"pok doctor shows how to raise its max\.message\.bytes"):
            admin.create_schema(topic, large(2_000_000))
        findings = json.loads(CliRunner().invoke(app, ["--url", service_url, "doctor", "--output", "json"]).stdout)
    (finding,) = [one for one in findings if one["check"] == "state topic schemas"]
    assert finding["status"] == "warn"
    assert finding["advice"].endswith(f"--add-config max.message.bytes={SCHEMAS.configs['max.message.bytes']}")
    assert admin.list_schema_versions(topic)[-1].version == SchemaVersion(0)


# pok schemas ----------------------------------------------------------------------------------------------------------


def test_upload_get_and_list(schemas: CommandLine, topic: str, file_of: Callable[[bytes], str]) -> None:
    first, second = file_of(avro("a").schema), file_of(avro("a", "b").schema)
    done = schemas("upload", topic, "-f", first, "--type", "avro", "--name", "Order", "-p", "team=shop")
    assert done.stdout == f"{first} is version 0 of the schema of {topic}\n"
    assert schemas.json("upload", topic, "--filename", second, "--type", "avro") == {
        "topic": topic,
        "version": 1,
        "type": "AVRO",
    }
    shown = schemas("get", topic, "--version", "0").stdout.splitlines()
    assert [line.split()[0] for line in shown[:5]] == ["version", "type", "name", "registered", "sha256"]
    assert shown[5].split() == ["property", "team", "shop"]
    assert shown[6] == avro("a").schema.decode()
    latest = schemas.json("get", topic)
    assert (latest["version"], latest["type"], latest["schema"]) == (1, "AVRO", avro("a", "b").schema.decode())
    assert [one["version"] for one in schemas.json("get", topic, "--all-version")] == [0, 1]
    assert [one["version"] for one in schemas.json("list", topic)] == [0, 1]
    columns, _, *rows = schemas("list", topic).stdout.splitlines()
    assert columns.split() == ["version", "type", "bytes", "registered", "sha256"]
    sizes = [f"{len(each.schema):,}" for each in (avro("a"), avro("a", "b"))]
    assert [row.split()[:3] for row in rows] == [["0", "AVRO", sizes[0]], ["1", "AVRO", sizes[1]]]
    again = file_of(json.dumps(schemas.json("get", topic, "-v", "0")).encode())
    assert schemas.json("upload", topic, "-f", again)["version"] == 0
    assert "has no schema version 7" in schemas.refused("get", topic, "--version", "7")
    schemas("get", topic, "--version", "1", "--all-version", exits=2)


def test_compatibility_of_a_file_with_a_topic(
    schemas: CommandLine, admin: AdminClient, topic: str, file_of: Callable[[bytes], str]
) -> None:
    admin.create_schema(topic, avro("a"))
    good, bad = file_of(avro("a", "b").schema), file_of(avro("b", defaults=False).schema)
    assert schemas("compatibility", topic, "-f", good, "--type", "avro").stdout == f"{topic} takes {good}: FULL\n"
    found = schemas("compatibility", topic, "-f", bad, "--type", "avro", exits=1)
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in found.stdout
    assert found.stderr == f"pok: {topic} does not take {bad}: FULL, 1 reason\n"
    found = schemas("compatibility", topic, "-f", bad, "--type", "avro", "--output", "json", exits=1)
    verdict = json.loads(found.stdout)
    assert (verdict["compatible"], verdict["strategy"]) == (False, "FULL")
    assert verdict["incompatibilities"][0]["version"] == 0
    assert "is refused on topic" in schemas.refused("upload", topic, "-f", bad, "--type", "avro")
    assert schemas("set-compatibility", topic, "always_compatible").stdout == (
        f"policy schema_compatibility_strategy of {topic} is ALWAYS_COMPATIBLE\n"
    )
    assert schemas("get-compatibility", topic).stdout == "ALWAYS_COMPATIBLE\n"
    assert schemas.json("get-compatibility", "public/default") == "UNDEFINED"
    schemas("compatibility", topic, "-f", bad, "--type", "avro")
    assert len(schemas.json("list", topic)) == 1
    assert "takes one of" in schemas.refused("set-compatibility", topic, "sideways")


def test_deleting_wants_a_yes(schemas: CommandLine, admin: AdminClient, topic: str) -> None:
    assert f"topic {topic} has no schema" in schemas.refused("delete", topic, "--yes")
    admin.create_schema(topic, avro("a"))
    assert "nothing was done" in schemas.refused("delete", topic)
    done = schemas("delete", topic, "--yes")
    assert done.stderr == f"pok will delete the schemas of {topic}: 1 live version\n"
    assert done.stdout == f"deleted the schemas of {topic}\n"
    assert schemas("list", topic).stdout == ""
    assert schemas.json("get", topic, "--version", "0")["type"] == "AVRO"
    done = schemas("delete", topic, "--force", "--yes")
    assert "with all definitions: messages that name them cannot be read any more" in done.stderr
    assert done.stdout == f"removed all schemas of {topic}\n"
    assert "has no schema version 0" in schemas.refused("get", topic, "--version", "0")


def test_what_is_no_schema_is_refused_and_registers_nothing(
    schemas: CommandLine, admin: AdminClient, topic: str, file_of: Callable[[bytes], str]
) -> None:
    broken = file_of(b'{"type": "record"')
    assert "is refused on topic" in schemas.refused("upload", topic, "-f", broken, "--type", "avro")
    assert "--type names a definition's type" in schemas.refused("upload", topic, "-f", broken)
    assert "No such file" in schemas.refused("upload", topic, "-f", "nothing.avsc", "--type", "json")
    assert "is refused on topic" in schemas.refused("upload", f"{topic}x", "-f", broken, "--type", "avro")
    assert f"{topic}x" not in admin.list_topics("public/default")
    schemas("upload", topic, "-f", broken, "--type", "hologram", exits=2)
    assert admin.list_schema_versions(topic) == []
