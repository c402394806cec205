"""Short ways to write Avro schemas down."""

from __future__ import annotations

import json
from typing import Any

from pulsar_on_kafka.schema_compat import CompatibilityStrategy, SchemaInfo, SchemaType, check_compatibility

Json = Any


def record(name: str, *fields: Json, **more: Json) -> Json:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Json, **more: Json) -> Json:
    return {"name": name, "type": kind, **more}


def enum(name: str, *symbols: str, **more: Json) -> Json:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(name: str, size: int, **more: Json) -> Json:
    return {"type": "fixed", "name": name, "size": size, **more}


def array(items: Json) -> Json:
    return {"type": "array", "items": items}


def mapping(values: Json) -> Json:
    return {"type": "map", "values": values}


def avro(definition: Json, kind: SchemaType = SchemaType.AVRO) -> SchemaInfo:
    """A schema of a definition, or of bytes as they are."""
    return SchemaInfo(kind, definition if isinstance(definition, bytes) else json.dumps(definition).encode())


def found(new: SchemaInfo, existing: list[SchemaInfo], strategy: str) -> list[tuple[str, str]]:
    """Rule and path of every incompatibility, in order."""
    result = check_compatibility(new, existing, CompatibilityStrategy[strategy])
    assert result.is_compatible == (result.incompatibilities == ())
    return [(one.rule, one.path) for one in result.incompatibilities]
