"""Section 4 of the rules: which of three forms a JSON schema has, and which form may follow which."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_on_kafka.schema_compat import SchemaType
from pulsar_on_kafka_schema_compat.json_forms import Form, definition_of
from tests.unit.schema_compat.avro_text import array, avro, enum, field, fixed, found, mapping, record

AVRO = [
    record("A", field("a", "int")),
    enum("E", "a"),
    fixed("F", 4),
    mapping("string"),
    array(record("A")),
    array(array(mapping("int"))),
    array("long"),
    array(["null", "string"]),
    ["null", "string"],
    {"type": "error", "name": "A", "fields": []},
    *({"type": kind} for kind in ("int", "long", "float", "double", "bytes")),
    "int",
]
LEGACY = [{"type": "object", "id": "urn:jsonschema:org:example:User", "properties": {"a": {"type": "string"}}}]
DOCUMENT = [
    True,
    False,
    {},
    *({"type": kind} for kind in ("string", "null", "boolean", "integer", "number", "object", "array")),
    {"type": "array", "items": {"type": "string"}},
    {"type": "array", "items": [{"type": "string"}, {"type": "null"}]},
    {"$schema": "http://json-schema.org/draft-04/schema#", "id": "urn:jsonschema:a", "type": "object"},
    {"id": "urn:other", "type": "object"},
    {"type": "record", "name": "no fields"},
    {"type": ["null", "string"]},
    {"type": {"a": 1}},
]
UNKNOWN = [b"", b"{", b"\xff", b"null", b"3", b'"string"', b'"text"', b"[1]", b"[[]]", b'["text"]']
NOT_TRANSITIVE = ["BACKWARD", "FORWARD", "FULL"]
TRANSITIVE = ["BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"]


def json_schema(definition: Any) -> Any:
    return avro(definition, SchemaType.JSON)


DEEP = b'{"type": "array", "items": [' * 5_000 + b"%s" + b"]}" * 5_000


@pytest.mark.parametrize(
    ("definition", "form"),
    [
        *((definition, Form.AVRO) for definition in AVRO),
        *((definition, Form.LEGACY) for definition in LEGACY),
        *((definition, Form.DOCUMENT) for definition in DOCUMENT),
        *((definition, Form.UNKNOWN) for definition in UNKNOWN),
        (DEEP % b'{"type": "record", "name": "A", "fields": []}', Form.AVRO),
        (DEEP % b'{"type": "string"}', Form.DOCUMENT),
    ],
    ids=lambda value: repr(value)[:80],
)
def test_4_forms(definition: Any, form: Form) -> None:
    assert definition_of(json_schema(definition)).form is form


RECORD, OTHER_RECORD = record("A", field("a", "int")), record("A", field("a", "string"))
OLD, OTHER_OLD = LEGACY[0], {**LEGACY[0], "id": "urn:jsonschema:org:example:Account"}
FORM = [("DEFINITION_FORM_CHANGED", "")]
UNREADABLE = [("SCHEMA_UNREADABLE", "")]
# old, new, what the strategies that look at the latest version find, and what the transitive ones do
ROWS: dict[str, tuple[Any, Any, list[tuple[str, str]], list[tuple[str, str]]]] = {
    "Avro | Avro, refused": (
        RECORD,
        OTHER_RECORD,
        [("TYPE_MISMATCH", "/fields/0/type")],
        [("TYPE_MISMATCH", "/fields/0/type")],
    ),
    "Avro | Avro": (RECORD, record("B", field("a", "int")), [], []),
    "Avro | legacy": (RECORD, OLD, [], FORM),
    "legacy | Avro": (OLD, RECORD, [], FORM),
    "legacy | legacy, same id": (OLD, {**OLD, "title": "user"}, [], []),
    "legacy | legacy, other id": (OLD, OTHER_OLD, [("DEFINITION_ID_CHANGED", "")], [("DEFINITION_ID_CHANGED", "")]),
    "Avro | document": (RECORD, {"type": "object"}, FORM, FORM),
    "document | Avro": ({"type": "object"}, RECORD, FORM, FORM),
    "legacy | document": (OLD, {"type": "object"}, FORM, FORM),
    "document | legacy": ({"type": "object"}, OLD, FORM, FORM),
    "document | document": ({"type": "object"}, {"type": "object", "title": "user"}, [], []),
    "unknown | Avro": (b"{", RECORD, [], UNREADABLE),
    "unknown | legacy": (b"{", OLD, [], UNREADABLE),
    "unknown | document": (b"{", {"type": "object"}, [], UNREADABLE),
    "unknown | unknown": (b"{", b"[", [], UNREADABLE),
    "Avro | unknown": (RECORD, b"{", UNREADABLE, UNREADABLE),
    "legacy | unknown": (OLD, b"{", UNREADABLE, UNREADABLE),
    "document | unknown": ({"type": "object"}, b"{", UNREADABLE, UNREADABLE),
}


@pytest.mark.parametrize("case", ROWS)
def test_4_the_latest_version_alone(case: str) -> None:
    old, new, expected, _ = ROWS[case]
    for strategy in NOT_TRANSITIVE:
        assert set(found(json_schema(new), [json_schema(old)], strategy)) == set(expected), strategy


@pytest.mark.parametrize("case", ROWS)
def test_4_transitive(case: str) -> None:
    old, new, _, expected = ROWS[case]
    for strategy in TRANSITIVE:
        assert set(found(json_schema(new), [json_schema(old)], strategy)) == set(expected), strategy


def test_4_legacy_definitions_of_the_same_id_are_compared_as_documents() -> None:
    changed = {**OLD, "properties": {"a": {"type": "integer"}}}
    assert found(json_schema(changed), [json_schema(OLD)], "BACKWARD") == [("TYPE_CHANGED", "#/properties/a")]
    required = {**OLD, "properties": {"a": {"type": "string", "required": True}}}
    assert found(json_schema(required), [json_schema(OLD)], "FORWARD") == []
    assert found(json_schema(required), [json_schema(OLD)], "BACKWARD") == [
        ("REQUIRED_ATTRIBUTE_ADDED", "#/required/a")
    ]


def test_4_documents_are_compared_as_documents() -> None:
    old, new = {"type": "string"}, {"type": "string", "maxLength": 3}
    assert found(json_schema(new), [json_schema(old)], "BACKWARD") == [("MAX_LENGTH_ADDED", "#/maxLength")]
    assert found(json_schema(new), [json_schema(old)], "FORWARD") == []


def test_4_always_incompatible_forbids_the_change_of_any_form() -> None:
    for old, new, _, _ in ROWS.values():
        assert ("STRATEGY_FORBIDS_CHANGE", "") in found(json_schema(new), [json_schema(old)], "ALWAYS_INCOMPATIBLE")
