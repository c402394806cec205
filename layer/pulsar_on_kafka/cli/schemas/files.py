"""Definition files as people have them: Avro and JSON text, descriptor sets of protoc, and Pulsar's upload files."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pulsar_on_kafka.cli.shared.output import CommandFailed
from pulsar_on_kafka_mapping.state.metadata.schema_records import MAX_DEFINITION_BYTES
from pulsar_on_kafka_schema_compat import SchemaInfo, SchemaType, UnreadableSchema
from pulsar_on_kafka_schema_compat.base.json_text import NotJson, parse_json
from pulsar_on_kafka_schema_compat.protobuf.protobuf_checker import definition_of_set

_MAX_FILE_BYTES: Final = 4 * MAX_DEFINITION_BYTES
"""A definition as JSON text inside of JSON may take more than its own size."""
_UPLOAD_FIELDS: Final = frozenset({"type", "schema", "schema_base64", "properties"})
_SHOWN_FIELDS: Final = frozenset({"version", "name", "user", "timestamp_ms", "sha256"})
"""Additional fields in the output of `pok schemas get`, which can be uploaded again."""


def read_schema(
    path: Path, kind: SchemaType | None, name: str, properties: Mapping[str, str], message: str | None
) -> SchemaInfo:
    """The schema in a file.

    Args:
        kind: the type of the definition that the file holds; None for the file that `pulsar-admin schemas upload`
            takes, a JSON object with `type`, `schema` (text) and `properties`.
        properties: go before those of such an object.
        message: of a descriptor set, the root message's full name.
    Raises:
        CommandFailed: it is something else, or above 20 MiB.
    """
    data = _read(path)
    if kind is None:
        return _uploaded(path, data, name, properties)
    if kind is SchemaType.PROTOBUF_NATIVE and not data.lstrip().startswith(b"{"):
        try:
            data = definition_of_set(data, message)
        except UnreadableSchema as error:
            raise CommandFailed(f"{path}: {error}; --message names the one that is meant") from error
    elif message is not None:
        raise CommandFailed(f"{path}: --message is for descriptor sets of type protobuf_native")
    return SchemaInfo(kind, data, name, dict(properties))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise CommandFailed(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > _MAX_FILE_BYTES:
        raise CommandFailed(f"{path} has more than {_MAX_FILE_BYTES} bytes: no schema is so large")
    return data


def _uploaded(path: Path, data: bytes, name: str, properties: Mapping[str, str]) -> SchemaInfo:
    try:
        value = parse_json(data)
    except NotJson as error:
        raise CommandFailed(
            f"{path} is no JSON object with type, schema and properties ({error}); --type names a definition's type"
        ) from error
    if not isinstance(value, dict) or "type" not in value:
        raise CommandFailed(
            f"{path} is no JSON object with type, schema and properties; --type names a definition's type"
        )
    unknown = sorted(set(value) - _UPLOAD_FIELDS - _SHOWN_FIELDS)
    if unknown:
        raise CommandFailed(f"{path} has {', '.join(unknown)[:100]}; expected type, schema and properties")
    own = value.get("properties") or {}
    if not isinstance(own, dict) or not all(isinstance(text, str) for text in own.values()):
        raise CommandFailed(f"{path}: properties must be an object of texts, got {own!r:.60}")
    found_name = value.get("name", "")
    if not isinstance(found_name, str):
        raise CommandFailed(f"{path}: name must be a text, got {found_name!r:.60}")
    return SchemaInfo(_type(path, value["type"]), _definition(path, value), name or found_name, {**own, **properties})


def _definition(path: Path, value: Mapping[str, Any]) -> bytes:
    """The definition that `schema` gives as text, or `schema_base64` for binary ones, as `pok schemas get` writes
    them."""
    given = [value[field] for field in ("schema", "schema_base64") if field in value]
    if len(given) != 1 or not isinstance(given[0], str):
        raise CommandFailed(f"{path}: expected either schema, a text, or schema_base64, got {given!r:.60}")
    try:
        if "schema" in value:
            return given[0].encode("utf-8")
        return base64.b64decode(given[0], validate=True)
    except ValueError as error:
        raise CommandFailed(f"{path}: schema is no Unicode text, or schema_base64 no base64: {error}") from error


def _type(path: Path, given: object) -> SchemaType:
    name = given.upper() if isinstance(given, str) else ""
    if name not in SchemaType.__members__ or name.startswith("AUTO_"):
        names = ", ".join(kind for kind in SchemaType.__members__ if not kind.startswith("AUTO_"))
        raise CommandFailed(f"{path}: type is {given!r:.60}, expected one of {names}")
    return SchemaType[name]
