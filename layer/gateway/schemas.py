"""Schemas of the protocol and of the registry."""

from __future__ import annotations

from typing import Any, Final

from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.schema_compat import SchemaInfo, SchemaType

_AUTO_CONSUME: Final = 21
"""Its number in the protocol; all other kinds have that of `SchemaType`."""


def schema_info(said: Any) -> SchemaInfo:
    """A schema that a client names. Raises InvalidOption: it is of a type that nobody knows."""
    properties = {each.key: each.value for each in said.properties}
    if said.type == _AUTO_CONSUME:
        return SchemaInfo(SchemaType.AUTO_CONSUME, said.schema_data, said.name, properties)
    try:
        kind = SchemaType(said.type)
    except ValueError:
        raise InvalidOption(
            f"schema {said.name!r:.60} is of type {said.type}, which Pulsar 4.0 does not have"
        ) from None
    return SchemaInfo(kind, said.schema_data, said.name, properties)
