"""Confluent's REST API over our registry, by confluent-kafka's client and by plain HTTP."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.schema import (
    AvroSchema,
    JsonSchema,
    KeyValueEncodingType,
    KeyValueSchema,
    ProtobufNativeSchema,
    Record,
    String,
    StringSchema,
)
from pulsar_on_kafka_schema_compat import SchemaInfo, SchemaType
from tests.registries import avro
from tests.schema_registries import a_schema_registry, confluents_client
from tests.services import NO_ROLE, a_service
from tests.steps import Unique
from tests.unit.schema.protobuf_messages import made

pytestmark = pytest.mark.kafka


class Order(Record):
    name = String(required=True)
    note = String()


@pytest.fixture
def url(admin: AdminClient) -> Iterator[str]:
    with a_schema_registry(admin) as found:
        yield found


@pytest.fixture
def registry(url: str) -> Iterator[SchemaRegistryClient]:
    with confluents_client(url) as found:
        yield found


@contextmanager
def refused(code: int, text: str) -> Iterator[None]:
    with pytest.raises(SchemaRegistryError) as failed:
        yield
    found = failed.value
    assert (found.error_code, bool(re.search(text, found.error_message))) == (code, True), found


def kafka_name(topic: str) -> str:
    return f"public.default.{topic}"


def test_versions_and_ids_of_an_avro_schema(
    admin: AdminClient, registry: SchemaRegistryClient, url: str, unique: Unique
) -> None:
    topic = unique("my_orders")
    subject = f"{kafka_name(topic)}-value"
    with refused(40401, f"Subject '{subject}' not found"):
        registry.get_latest_version(subject)
    admin.create_schema(topic, avro("a"))
    admin.create_schema(topic, avro("a", "b"))
    assert registry.get_versions(subject) == [1, 2]
    assert subject in registry.get_subjects()
    assert registry.get_subjects(subject_prefix=subject) == [subject]
    assert registry.get_subjects(subject_prefix=subject, limit=0) == []
    first, latest = registry.get_version(subject, 1), registry.get_latest_version(subject)
    assert (first.version, latest.version) == (1, 2)
    assert first.schema.schema_type == "AVRO"
    assert json.loads(str(latest.schema.schema_str)) == json.loads(avro("a", "b").schema)
    assert first.schema_id is not None
    assert first.schema_id != latest.schema_id
    assert registry.get_schema(first.schema_id).schema_str == first.schema.schema_str
    assert registry.get_schema_by_guid(str(first.guid)).schema_str == first.schema.schema_str
    assert [(each.subject, each.version) for each in registry.get_schema_versions(first.schema_id)] == [(subject, 1)]
    assert registry.get_subjects_by_schema_id(first.schema_id) == [subject]
    text = requests.get(f"{url}/subjects/{subject}/versions/latest/schema", timeout=60).text
    assert json.loads(text) == json.loads(str(latest.schema.schema_str))
    assert requests.get(f"{url}/schemas/ids/{first.schema_id}/schema", timeout=60).text == first.schema.schema_str
    assert requests.get(f"{url}/schemas/guids/{first.guid}/ids", timeout=60).json() == [
        {"context": ".", "id": first.schema_id}
    ]
    with refused(40402, "Version 3 not found"):
        registry.get_version(subject, 3)
    with refused(40403, "Schema 2147483647 not found"):
        registry.get_schema(2**31 - 1)
    with refused(40403, "not found"):
        registry.get_schema_by_guid("12345678-1234-8234-9234-123456789012")
    bad = requests.get(f"{url}/subjects/{subject}/versions/0", timeout=60)
    assert (bad.status_code, bad.json()["error_code"]) == (422, 42202)


def test_a_deleted_version_is_found_by_its_ids(
    admin: AdminClient, registry: SchemaRegistryClient, url: str, unique: Unique
) -> None:
    topic = unique()
    subject = f"{kafka_name(topic)}-value"
    admin.create_schema(topic, avro("a"))
    before = registry.get_latest_version(subject)
    admin.delete_schema(topic)
    with confluents_client(url) as another:
        with refused(40401, "not found"):
            another.get_versions(subject)
        assert subject not in another.get_subjects()
        assert subject in another.get_subjects(deleted=True)
        assert another.get_subjects(deleted_only=True, subject_prefix=subject) == [subject]
        assert another.get_schema(before.schema_id or 0).schema_str == before.schema.schema_str
        assert another.get_schema_by_guid(str(before.guid)).schema_str == before.schema.schema_str
    assert requests.get(f"{url}/subjects/{subject}/versions?deleted=true", timeout=60).json() == [1]


def test_parts_of_a_key_value_schema_are_two_subjects(
    admin: AdminClient, registry: SchemaRegistryClient, unique: Unique
) -> None:
    topic, inlined = unique(), unique()
    schema = KeyValueSchema(AvroSchema(Order), JsonSchema(Order), KeyValueEncodingType.SEPARATED)
    admin.create_schema(topic, schema.schema_info())
    admin.create_schema(inlined, KeyValueSchema(AvroSchema(Order), JsonSchema(Order)).schema_info())
    key, value = (registry.get_latest_version(f"{kafka_name(topic)}-{part}") for part in ("key", "value"))
    assert (key.schema.schema_type, value.schema.schema_type) == ("AVRO", "JSON")
    assert key.schema_id != value.schema_id
    assert registry.get_schema(value.schema_id or 0).schema_type == "JSON"
    assert registry.get_schema_by_guid(str(key.guid)).schema_type == "AVRO"
    assert registry.get_subjects(subject_prefix=kafka_name(inlined)) == []


def test_plain_types_have_no_subject(admin: AdminClient, registry: SchemaRegistryClient, unique: Unique) -> None:
    topic = unique()
    admin.create_schema(topic, StringSchema().schema_info())
    with refused(40401, "not found"):
        registry.get_latest_version(f"{kafka_name(topic)}-value")


def test_a_protobuf_schema_with_imports(admin: AdminClient, registry: SchemaRegistryClient, unique: Unique) -> None:
    topic = unique()
    subject = f"{kafka_name(topic)}-value"
    admin.create_schema(topic, ProtobufNativeSchema(made("string")).schema_info())
    found = registry.get_latest_version(subject, fmt="serialized").schema
    assert found.schema_type == "PROTOBUF"
    assert FileDescriptorProto.FromString(base64.b64decode(str(found.schema_str))).name == "names.proto"
    [reference] = found.references or []
    assert (reference.name, reference.version) == ("dir/with_defaults.proto", 1)
    imported = registry.get_version(str(reference.subject), 1, fmt="serialized").schema
    assert FileDescriptorProto.FromString(base64.b64decode(str(imported.schema_str))).package == "made.up"
    assert registry.lookup_schema(subject, found).version == 1


def test_a_schema_is_looked_up(admin: AdminClient, registry: SchemaRegistryClient, url: str, unique: Unique) -> None:
    topic = unique()
    subject = f"{kafka_name(topic)}-value"
    admin.create_schema(topic, avro("a"))
    admin.create_schema(topic, avro("a", "b"))
    spaced = json.dumps(json.loads(avro("a").schema), indent=3)
    found = registry.lookup_schema(subject, Schema(spaced, "AVRO"))
    assert (found.version, found.schema_id) == (1, registry.get_version(subject, 1).schema_id)
    with refused(40403, "Schema not found"):
        registry.lookup_schema(subject, Schema(avro("c").schema.decode(), "AVRO"))
    with refused(40401, "not found"):
        registry.lookup_schema(f"{subject}-value", Schema(spaced, "AVRO"))
    with refused(42201, "Invalid schema"):
        registry.lookup_schema(subject, Schema('{"type": "rec"}', "AVRO"))
    other = requests.post(f"{url}/subjects/{subject}", b'{"schema": "{}", "schemaType": "XML"}', timeout=60)
    assert (other.status_code, other.json()["error_code"]) == (422, 42201)


def test_compatibility_is_judged_and_nothing_is_registered(
    admin: AdminClient, registry: SchemaRegistryClient, url: str, unique: Unique
) -> None:
    topic = unique()
    subject = f"{kafka_name(topic)}-value"
    admin.create_schema(topic, avro("a"))
    compatible, incompatible = avro("a", "b"), avro("a", "b", defaults=False)

    def posted(schema: SchemaInfo, path: str) -> dict[str, Any]:
        body = {"schema": schema.schema.decode()}
        reply = requests.post(f"{url}/compatibility/subjects/{subject}/{path}", json=body, timeout=60)
        found: dict[str, Any] = reply.json()
        return found

    assert posted(compatible, "versions/latest") == {"is_compatible": True}
    assert posted(compatible, "versions?verbose=true") == {"is_compatible": True, "messages": []}
    refusal = posted(incompatible, "versions/1?verbose=true")
    assert not refusal["is_compatible"]
    assert refusal["messages"]
    assert posted(compatible, "versions/7")["error_code"] == 40402
    assert registry.test_compatibility(subject, Schema(incompatible.schema.decode(), "AVRO")) is False
    assert registry.get_versions(subject) == [1]


def test_json_documents_follow_each_other(admin: AdminClient, registry: SchemaRegistryClient, unique: Unique) -> None:
    topic = unique()
    subject = f"{kafka_name(topic)}-value"
    admin.create_schema(topic, avro("a", kind=SchemaType.JSON))
    latest = registry.get_latest_version(subject).schema
    assert json.loads(str(latest.schema_str))["properties"] == {"a": {"type": ["null", "integer"], "default": None}}
    assert registry.lookup_schema(subject, latest).version == 1
    assert registry.test_compatibility(subject, latest)


def test_levels_and_modes(admin: AdminClient, registry: SchemaRegistryClient, url: str, unique: Unique) -> None:
    topic = unique()
    subject = f"{kafka_name(topic)}-value"
    admin.create_schema(topic, avro("a"))
    assert registry.get_config().compatibility_level == "FULL"
    admin.set_policy(topic, "schema_compatibility_strategy", "backward_transitive")
    assert registry.get_config(subject).compatibility_level == "BACKWARD_TRANSITIVE"
    admin.set_policy(topic, "schema_compatibility_strategy", "always_compatible")
    assert registry.get_config(subject).compatibility_level == "NONE"
    with refused(40408, "does not have subject-level compatibility"):
        registry.get_config("nothing-value")
    for path in ("mode", f"mode/{subject}"):
        assert requests.get(f"{url}/{path}", timeout=60).json() == {"mode": "READONLY"}
    assert requests.get(f"{url}/schemas/types", timeout=60).json() == ["AVRO", "JSON", "PROTOBUF"]


def test_writes_are_refused(registry: SchemaRegistryClient, url: str) -> None:
    with refused(42205, "Subject orders-value is in read-only mode: .*producers register schemas"):
        registry.register_schema("orders-value", Schema(avro("a").schema.decode(), "AVRO"))
    with refused(42205, "read-only"):
        registry.delete_subject("orders-value")
    unknown, method = requests.get(f"{url}/nothing", timeout=60), requests.put(f"{url}/subjects", timeout=60)
    assert (unknown.status_code, unknown.json()["error_code"]) == (404, 404)
    assert (method.status_code, method.json()["error_code"]) == (405, 405)
    assert unknown.headers["content-type"] == "application/vnd.schemaregistry.v1+json"


def test_pok_serves_a_registry_with_users(service_url: str, admin: AdminClient, unique: Unique, tmp_path: Path) -> None:
    users, topic = tmp_path / "users", unique()
    users.write_text("connect s3cret\n")
    admin.create_schema(topic, avro("a"))
    arguments = (
        *("serve", "--port", "0", *NO_ROLE, "--with", "schema-registry", "--schema-registry-port", "0"),
        *("--schema-registry-users-file", str(users)),
    )
    with a_service(tmp_path / "log", service_url, r"schema registry on (\S+)[\s\S]*serving", *arguments) as address:
        refusal = requests.get(f"{address}/subjects", timeout=60)
        assert (refusal.status_code, refusal.json()["error_code"]) == (401, 401)
        with confluents_client(address, basic_auth_user_info="connect:s3cret") as registry:
            assert registry.get_versions(f"{kafka_name(topic)}-value") == [1]
