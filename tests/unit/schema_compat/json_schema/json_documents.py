"""Short words for JSON Schema documents in tests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pulsar_on_kafka.schema_compat import SchemaInfo, SchemaType
from pulsar_on_kafka_schema_compat.json_schema.json_schema_checker import JsonSchemaChecker

Json = Any
OK: list[tuple[str, str]] = []

STRING, NUMBER, INTEGER = {"type": "string"}, {"type": "number"}, {"type": "integer"}
OBJECT, ARRAY, NULL = {"type": "object"}, {"type": "array"}, {"type": "null"}
DRAFT_4 = {"$schema": "http://json-schema.org/draft-04/schema#"}
DRAFT_6 = {"$schema": "http://json-schema.org/draft-06/schema#"}
DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}
DRAFT_2019 = {"$schema": "https://json-schema.org/draft/2019-09/schema"}
DRAFT_2020 = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


@dataclass(frozen=True)
class Row:
    """A row of the rules: what is found when a document of `new` reads what `old` allows, each rule with its path."""

    case: str
    old: Json
    new: Json
    expected: list[tuple[str, str]]


def obj(properties: Json = None, **keywords: Json) -> Json:
    return {"type": "object", **({} if properties is None else {"properties": properties}), **keywords}


def arr(**keywords: Json) -> Json:
    return {"type": "array", **keywords}


def document(value: Json) -> SchemaInfo:
    return SchemaInfo(SchemaType.JSON, value if isinstance(value, bytes) else json.dumps(value).encode())


def found(new: Json, old: Json) -> list[tuple[str, str]]:
    """Rules and paths when `new` reads what `old` allows, in order."""
    checker = JsonSchemaChecker()
    reader, writer = checker.parse(document(new)), checker.parse(document(old))
    return sorted((one.rule, one.path) for one in checker.differences(reader, writer))
