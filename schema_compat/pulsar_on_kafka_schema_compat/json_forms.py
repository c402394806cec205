"""A JSON schema's definition has one of three forms, and one form may follow another under rules of its own.

Pulsar's clients store an Avro record under JSON, very old ones stored Jackson's JSON Schema; documents of JSON Schema
are our addition. Source: Pulsar `JsonSchemaCompatibilityCheck`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from pulsar_on_kafka_schema_compat.avro.avro_checker import AVRO_CHECKER
from pulsar_on_kafka_schema_compat.avro.avro_parsing import read_definition, read_json
from pulsar_on_kafka_schema_compat.base.json_text import NotJson
from pulsar_on_kafka_schema_compat.base.schema_model import (
    DEFINITION_FORM_CHANGED,
    DEFINITION_ID_CHANGED,
    CompatibilityStrategy,
    Incompatibility,
    PairChecker,
    SchemaInfo,
    UnreadableSchema,
)
from pulsar_on_kafka_schema_compat.json_schema.json_schema_checker import JsonSchemaChecker
from pulsar_on_kafka_schema_compat.strategies import Version, compare_versions, unreadable_new, unreadable_version

_KEPT_BYTES: Final = 32_768
_LEGACY_ID: Final = "urn:jsonschema:"
_AVRO_ALONE: Final = frozenset({"record", "error", "enum", "fixed", "map", "int", "long", "float", "double", "bytes"})


class Form(enum.Enum):
    """A JSON schema's definition is text of one of these kinds."""

    AVRO = "an Avro definition"
    LEGACY = "a legacy definition (urn:jsonschema:...)"
    DOCUMENT = "a JSON Schema document"
    UNKNOWN = "none of an Avro definition, a legacy one and a JSON Schema document"


_CHECKERS: Final[Mapping[Form, PairChecker[Any]]] = {
    Form.AVRO: AVRO_CHECKER,
    Form.LEGACY: JsonSchemaChecker(legacy=True),
    Form.DOCUMENT: JsonSchemaChecker(),
}


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition has a form; `id` of a legacy one; for an unknown one the `reason`."""

    form: Form
    id: str = ""
    reason: str = ""


def definition_of(schema: SchemaInfo) -> Definition:
    """The form of the definition. A definition that could be Avro as well as a document is a document."""
    return (_form_of_small if len(schema.schema) <= _KEPT_BYTES else _form_of)(schema.schema)


def _form_of(text: bytes) -> Definition:
    try:
        value = read_json(text)
    except NotJson as error:
        return Definition(Form.UNKNOWN, reason=f"{text[:60]!r} is not JSON: {error}")
    if _is_avro_alone(value) and _is_readable_avro(value):
        return Definition(Form.AVRO)
    if isinstance(value, dict):
        own_id = value.get("id")
        if isinstance(own_id, str) and own_id.startswith(_LEGACY_ID) and "$schema" not in value:
            return Definition(Form.LEGACY, id=own_id)
    if isinstance(value, dict | bool):
        return Definition(Form.DOCUMENT)
    return Definition(Form.UNKNOWN, reason=f"{text[:60]!r} is {Form.UNKNOWN.value}")


_form_of_small = lru_cache(maxsize=64)(_form_of)


def _is_avro_alone(value: object) -> bool:
    """True for what JSON Schema has no word for: a union, a named type, a map, a number of Avro, and arrays of such."""
    pending = [value]
    while pending:
        one = pending.pop()
        if not isinstance(one, dict):
            return isinstance(one, list) or one in _AVRO_ALONE
        kind, items = one.get("type"), one.get("items")
        if isinstance(kind, str) and kind in _AVRO_ALONE:
            return True
        if kind == "array" and isinstance(items, dict | list | str):
            inner = items if isinstance(items, list) else [items]
            if not all(isinstance(item, dict) for item in inner):
                return True  # no items of JSON Schema, whatever they are
            pending += inner
    return False


def _is_readable_avro(value: object) -> bool:
    try:
        read_definition(value)
    except UnreadableSchema:
        return False
    return True


def check_json(new: SchemaInfo, versions: Sequence[Version], strategy: CompatibilityStrategy) -> list[Incompatibility]:
    """The incompatibilities of `new` with `versions`, all of type JSON."""
    own = definition_of(new)
    found: list[Incompatibility] = []
    same_form: list[Version] = []
    for version in versions:
        old = definition_of(version.schema)
        if old.form is Form.UNKNOWN:
            # Pulsar takes it for damaged and lets it be replaced, where it looks at the latest version alone.
            if strategy.is_transitive:
                found.append(unreadable_version(version, UnreadableSchema(old.reason)))
        elif own.form is Form.UNKNOWN:
            found.append(unreadable_new(versions[0], UnreadableSchema(own.reason)))
        elif old.form is own.form and old.id == own.id:
            same_form.append(version)
        else:
            found += _of_other_form(version, old, own, strategy)
    if same_form:
        found += compare_versions(_CHECKERS[own.form], new, same_form, strategy)
    return found


def check_readable_json(schema: SchemaInfo) -> None:
    """Raises UnreadableSchema for a definition that is none of the three, or that its form's rules forbid."""
    definition = definition_of(schema)
    if definition.form is Form.UNKNOWN:
        raise UnreadableSchema(definition.reason)
    _CHECKERS[definition.form].parse(schema)


def _of_other_form(
    version: Version, old: Definition, own: Definition, strategy: CompatibilityStrategy
) -> list[Incompatibility]:
    if old.form is own.form:
        message = f"version {version.index}: it has the id {old.id:.100}, the new schema {own.id:.100}"
        return [Incompatibility("", DEFINITION_ID_CHANGED, message, version.index)]
    if {old.form, own.form} == {Form.AVRO, Form.LEGACY} and not strategy.is_transitive:
        return []  # the way on which old clients are replaced by new ones, and back
    message = f"version {version.index}: it is {old.form.value}, the new schema {own.form.value}"
    return [Incompatibility("", DEFINITION_FORM_CHANGED, message, version.index)]
