"""JSON Schema documents of Pulsar's JSON schemas, whose definitions are Avro records. Pure.

The document admits what Pulsar's clients write for the definition. Java writes a logical type, bytes and enums in forms
that the definition does not tell; these places admit more. Equal definitions give equal documents.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from pulsar_on_kafka_schema_compat import SchemaInfo, UnreadableSchema
from pulsar_on_kafka_schema_compat.avro.avro_parsing import read_json
from pulsar_on_kafka_schema_compat.avro.avro_types import full_name, namespace_of
from pulsar_on_kafka_schema_compat.base.json_text import NotJson
from pulsar_on_kafka_schema_compat.json_forms import Form, definition_of

DRAFT: Final = "http://json-schema.org/draft-07/schema#"
MAX_DEPTH: Final = 100
"""Levels of the document; a deeper place admits every value."""
_SIMPLE: Final = {
    "null": "null",
    "boolean": "boolean",
    "int": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "bytes": "string",
    "string": "string",
}


def json_document(schema: SchemaInfo) -> str:
    """The document of a JSON schema; a definition that is a document already, as it is.

    Raises:
        UnreadableSchema: the definition is neither an Avro definition nor a document.
    """
    definition = definition_of(schema)
    if definition.form is Form.UNKNOWN:
        raise UnreadableSchema(definition.reason)
    if definition.form is not Form.AVRO:
        return schema.schema.decode("utf-8", "replace")
    try:
        value = read_json(schema.schema)
    except NotJson as error:
        raise UnreadableSchema(f"no JSON: {error}") from None
    return orjson.dumps(_Document().of(value)).decode()


class _Document:
    """The document of one definition: named records are definitions of the document."""

    def __init__(self) -> None:
        self._records: dict[str, dict[str, Any]] = {}
        self._others: set[str] = set()
        """Full names of enums and fixed types."""

    def of(self, value: Any) -> dict[str, Any]:
        root = self._type(value, "", 0)
        definitions = {name: found for name, found in self._records.items() if {"$ref": _ref(name)} != root}
        is_record = root.keys() == {"$ref"}
        if is_record:
            name = root["$ref"].removeprefix(_ref(""))
            root = self._records[name]
            if _is_named(root, _ref(name)) or any(_is_named(each, _ref(name)) for each in definitions.values()):
                definitions[name] = {"$ref": "#"}
        return {"$schema": DRAFT, **root, **({"definitions": definitions} if definitions else {})}

    def _type(self, value: Any, namespace: str, depth: int) -> dict[str, Any]:
        if depth > MAX_DEPTH:
            return {}
        if isinstance(value, list):
            return self._union(value, namespace, depth)
        if isinstance(value, str):
            return self._named(value, namespace)
        if "logicalType" in value and value.get("type") != "record":
            return {}
        kind = value.get("type")
        match kind:
            case "record" | "error":
                return self._record(value, namespace, depth)
            case "enum" | "fixed":
                self._others.add(full_name(value["name"], value.get("namespace", namespace)))
                return {"type": "string"} if kind == "fixed" else {}
            case "array":
                return {"type": "array", "items": self._type(value["items"], namespace, depth + 1)}
            case "map":
                return {"type": "object", "additionalProperties": self._type(value["values"], namespace, depth + 1)}
            case _:
                return self._type(kind, namespace, depth + 1)

    def _named(self, name: str, namespace: str) -> dict[str, Any]:
        if name in _SIMPLE:
            return {"type": _SIMPLE[name]}
        full = full_name(name, namespace)
        if full not in self._records and full not in self._others:
            full = name
        return {"$ref": _ref(full)} if full in self._records else {}

    def _union(self, branches: list[Any], namespace: str, depth: int) -> dict[str, Any]:
        found = [self._type(branch, namespace, depth + 1) for branch in branches]
        if {} in found:
            return {}
        if all(each.keys() == {"type"} and isinstance(each["type"], str) for each in found):
            kinds = list(dict.fromkeys(each["type"] for each in found))
            return {"type": kinds[0] if len(kinds) == 1 else kinds}
        return {"anyOf": found}

    def _record(self, value: dict[str, Any], namespace: str, depth: int) -> dict[str, Any]:
        full = full_name(value["name"], value.get("namespace", namespace))
        inner = namespace_of(full)
        made: dict[str, Any] = {"title": full.rpartition(".")[2], "type": "object"}
        self._records[full] = made
        properties, required = {}, []
        for field in value["fields"]:
            properties[field["name"]] = self._type(field["type"], inner, depth + 1)
            if "default" in field:
                properties[field["name"]] = {**properties[field["name"]], "default": field["default"]}
            elif not _admits_null(field["type"]):
                required.append(field["name"])
        made["properties"] = properties
        if required:
            made["required"] = required
        return {"$ref": _ref(full)}


def _admits_null(kind: Any) -> bool:
    return kind == "null" or (isinstance(kind, list) and "null" in kind)


def _ref(name: str) -> str:
    return f"#/definitions/{name}"


def _is_named(found: Any, ref: str) -> bool:
    """Whether a document's part has a reference to `ref`."""
    if isinstance(found, dict):
        return found.get("$ref") == ref or any(_is_named(each, ref) for each in found.values())
    return isinstance(found, list) and any(_is_named(each, ref) for each in found)
