"""JSON Schema documents that are wrong, hostile or very large."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pulsar_on_kafka_schema_compat.base.json_text import MAX_DEPTH
from pulsar_on_kafka_schema_compat.base.schema_model import UnreadableSchema
from pulsar_on_kafka_schema_compat.json_schema.fixed_point import MAX_PAIRS
from pulsar_on_kafka_schema_compat.json_schema.json_schema_checker import JsonSchemaChecker
from tests.unit.schema_compat.json_schema.json_documents import (
    ARRAY,
    DRAFT_2019,
    DRAFT_2020,
    NUMBER,
    OK,
    STRING,
    Json,
    arr,
    document,
    found,
    obj,
)

UNREADABLE = [
    (b"", "no JSON: ends before a value"),
    (b"{", "no JSON"),
    (b"[1, 2]", "an object or a boolean, not an array of 2"),
    (b'"string"', "an object or a boolean"),
    (b"\xff\xfe", "not UTF-8"),
    ({"type": "text"}, "#/type must be among"),
    ({"type": []}, "#/type must name a type"),
    ({"type": {}}, "#/type must be among"),
    (obj({"a": 3}), "#/properties/a must be a schema"),
    ({"properties": []}, "#/properties must be an object"),
    ({"required": "a"}, "#/required must be an array"),
    ({"required": [1]}, "#/required/0 must be a string"),
    ({"required": True}, "#/required must be an array"),
    ({"enum": "a"}, "#/enum must be an array"),
    ({"maxLength": "3"}, "#/maxLength must be a number"),
    ({"maxLength": True}, "#/maxLength must be a number"),
    ({"maxLength": -1}, "#/maxLength must be an integer of at least 0"),
    ({"minItems": 1.5}, "#/minItems must be an integer of at least 0"),
    ({"multipleOf": 0}, "#/multipleOf must be more than 0"),
    ({"pattern": 1}, "#/pattern must be a string"),
    ({"uniqueItems": "yes"}, "#/uniqueItems must be a boolean"),
    ({"items": "string"}, "#/items must be a schema"),
    ({**DRAFT_2020, "items": [STRING]}, "#/items must be a schema"),
    ({"allOf": []}, "#/allOf must have members"),
    ({"anyOf": STRING}, "#/anyOf must be an array"),
    ({"not": []}, "#/not must be a schema"),
    ({"dependencies": {"a": 1}}, "#/dependencies/a must be a schema"),
    ({"dependentRequired": {"a": [1]}}, "#/dependentRequired/a/0 must be a string"),
    ({"additionalProperties": "no"}, "#/additionalProperties must be a schema"),
    ({"$ref": 1}, "#/$ref must be a string"),
    ({"$ref": "#/definitions/none"}, "leads to '#/definitions/none', which the document does not contain"),
    ({"$ref": "#nowhere"}, "does not contain"),
    ({"$ref": "http://example.com/other.json"}, "does not contain"),
    ({"$ref": "http://[broken"}, "does not contain"),
    ({"$ref": "#/enum/0", "enum": [1]}, "#/enum/0 must be a schema"),
    ({"$ref": "#"}, "# refers to itself without end"),
    (
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
        "without end",
    ),
    (
        {**DRAFT_2020, "$dynamicRef": "#n", "$defs": {"a": {"$dynamicAnchor": "n"}, "b": {"$dynamicAnchor": "n"}}},
        "several targets",
    ),
]


DEEP = b"[" * 9_000 + b"]" * 9_000


@pytest.mark.parametrize(
    "text",
    [
        b"%s",
        b'{"type": %s}',
        b'{"properties": %s}',
        b'{"$ref": %s}',
        b'{"required": [%s]}',
        b'{"maxLength": %s}',
        b'{"dependencies": {"a": [%s]}}',
        b'{"$id": "http://[x#a", "$ref": "http://[y#b", "x": %s}',
    ],
)
def test_what_is_deep_and_no_schema_is_said(text: bytes) -> None:
    with pytest.raises(UnreadableSchema):
        JsonSchemaChecker().parse(document(text.replace(b"%s", DEEP)))


def test_deep_values_are_compared() -> None:
    old, new = (b'{"enum": [1, ' + leaf.join([DEEP[:9_000], DEEP[9_000:]]) + b"]}" for leaf in (b"1", b"2"))
    assert found(old, old) == OK
    assert found(new, old) == [("ENUM_ARRAY_CHANGED", "#/enum")]


@pytest.mark.parametrize(("text", "said"), UNREADABLE, ids=[said for _, said in UNREADABLE])
def test_what_is_no_schema_is_said(text: Json, said: str) -> None:
    with pytest.raises(UnreadableSchema) as caught:
        JsonSchemaChecker().parse(document(text))
    assert said in str(caught.value)


def nested(depth: int, innermost: Json, opening: str = '{"properties": {"a": ', closing: str = "}}") -> bytes:
    return (opening * depth + json.dumps(innermost) + closing * depth).encode()


def test_depth_does_not_matter() -> None:
    depth = 5_000
    assert found(nested(depth, NUMBER), nested(depth, STRING)) == [("TYPE_CHANGED", "#" + "/properties/a" * depth)]


def test_deep_combinations_do_not_matter_either() -> None:
    opening, closing = '{"anyOf": [{"type": "null"}, ', "]}"
    deep = nested(4_000, STRING, opening, closing)
    assert found(deep, deep) == OK
    old, new = (nested(100, one, opening, closing) for one in (STRING, NUMBER))
    assert found(new, old) == [("COMBINED_TYPE_SUBSCHEMAS_CHANGED", "#")]


def test_beyond_the_greatest_depth_is_unreadable() -> None:
    with pytest.raises(UnreadableSchema, match="nested deeper"):
        JsonSchemaChecker().parse(document(nested(MAX_DEPTH, STRING)))


def twelve(leaf: Json) -> Json:
    definitions = {
        f"d{number}": {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {"next": {"$ref": f"#/definitions/d{other}"}},
                    "required": [f"r{other}"],
                }
                for other in range(12)
            ]
        }
        for number in range(12)
    }
    definitions["d11"] = leaf or definitions["d11"]
    return {"$ref": "#/definitions/d0", "definitions": definitions}


def test_twelve_definitions_that_refer_to_one_another() -> None:
    assert found(twelve(None), twelve(None)) == OK
    assert found(twelve(STRING), twelve(None)) == [("COMBINED_TYPE_SUBSCHEMAS_CHANGED", "#")]


def test_many_paths_to_one_difference_end() -> None:
    def ladder(leaf: Json) -> Json:
        steps = {
            f"d{step}": obj({name: {"$ref": f"#/$defs/d{step + 1}"} for name in ("left", "right")})
            for step in range(60)
        }
        return {"$ref": "#/$defs/d0", "$defs": {**steps, "d60": leaf}}

    differences = found(ladder(NUMBER), ladder(STRING))
    assert {rule for rule, _ in differences} == {"TYPE_CHANGED"}
    assert 0 < len(differences) < 5_000


def test_a_union_of_thousands_is_compared_with_itself() -> None:
    union = {"anyOf": [{"const": number} for number in range(5_000)]}
    assert found(union, union) == OK


def test_unions_too_large_to_be_matched_are_refused() -> None:
    old, new = ({"anyOf": [{"const": f"{side}{number}"} for number in range(1_000)]} for side in ("a", "b"))
    with pytest.raises(UnreadableSchema, match=f"more than {MAX_PAIRS} pairs"):
        found(new, old)


def test_the_same_documents_give_the_same_differences_in_any_order_of_names() -> None:
    old = obj(dict.fromkeys("abcdef", STRING), required=["a"])
    new = obj(dict.fromkeys("fedcba", NUMBER), required=["a", "c", "b"])
    again = obj(dict.fromkeys("abcdef", NUMBER), required=["b", "c", "a"])
    assert found(new, old) == found(again, old)
    assert len(found(new, old)) == 8


def test_messages_name_both_sides() -> None:
    checker = JsonSchemaChecker()
    reader, writer = checker.parse(document(obj({"a": NUMBER}))), checker.parse(document(obj({"a": STRING})))
    assert [one.message for one in checker.differences(reader, writer)] == ["the reader has number, the writer string"]


def test_booleans_of_2019_09_beside_a_list() -> None:
    assert found({**DRAFT_2019, **ARRAY}, {**DRAFT_2019, **arr(items=[True, False])}) == OK


JACKSON: dict[str, Any] = {
    "type": "object",
    "id": "urn:jsonschema:com:example:Node",
    "properties": {
        "name": {"type": "string", "required": True},
        "next": {"type": "object", "$ref": "urn:jsonschema:com:example:Node"},
        "extra": {"type": "any"},
    },
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, OK),
        ({"name": {"type": "integer", "required": True}}, [("TYPE_CHANGED", "#/properties/name")]),
        ({"name": {"type": "string"}}, OK),
        ({"extra": {"type": "any", "required": True}}, [("REQUIRED_ATTRIBUTE_ADDED", "#/required/extra")]),
        ({"next": {"type": "string"}}, [("TYPE_CHANGED", "#/properties/next")]),
    ],
)
def test_legacy_definitions_say_required_of_the_property_and_refer_by_id(
    change: Json, expected: list[tuple[str, str]]
) -> None:
    checker = JsonSchemaChecker(legacy=True)
    old, new = JACKSON, {**JACKSON, "properties": {**JACKSON["properties"], **change}}
    reader, writer = checker.parse(document(new)), checker.parse(document(old))
    assert [(one.rule, one.path) for one in checker.differences(reader, writer)] == expected
