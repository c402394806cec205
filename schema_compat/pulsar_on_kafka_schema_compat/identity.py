"""The identity of schemas: a registry checks whether two schemas are the same before it checks whether one may follow
the other.

Pulsar's brokers compare AVRO, JSON and PROTOBUF definitions as Avro's `Schema.equals` does after parsing: names with
their namespaces, fields in order with defaults, sort orders and properties of their own count, documentation and
aliases do not. Source: Pulsar `SchemaRegistryServiceImpl.getSchemaVersionBySchemaData`, Avro 1.11 `Schema`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from itertools import zip_longest
from typing import Any, Final

from pulsar_on_kafka_schema_compat.avro.avro_parsing import read_definition, read_json
from pulsar_on_kafka_schema_compat.avro.avro_types import PRIMITIVES, full_name, namespace_of
from pulsar_on_kafka_schema_compat.base.json_text import NotJson
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType, UnreadableSchema
from pulsar_on_kafka_schema_compat.json_forms import Form, definition_of
from pulsar_on_kafka_schema_compat.key_value import same_parts

_KEPT_BYTES: Final = 32_768
SAME_AFTER_PARSING: Final = frozenset({SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF})
"""Types of which different bytes may be the same schema."""
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_TYPE_WORDS: Final = frozenset(
    {"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"}
)
_FIELD_WORDS: Final = frozenset({"default", "doc", "name", "order", "type", "aliases"})


def same_schema(one: SchemaInfo, other: SchemaInfo) -> bool:
    """Whether they are of one type and have the same meaning; names and properties of the schemas do not count, except
    for the types of a KEY_VALUE's parts. An unreadable schema equals its own bytes alone."""
    if one.type is not other.type:
        return False
    if one.type is SchemaType.KEY_VALUE:
        return same_parts(one, other)
    if one.schema == other.schema:
        return True
    if one.type not in SAME_AFTER_PARSING:
        return False
    if one.type is SchemaType.JSON and not definition_of(one).form is definition_of(other).form is Form.AVRO:
        return False
    try:
        return _meaning(one.schema) == _meaning(other.schema) and _same_words(one.schema, other.schema)
    except UnreadableSchema:
        return False


def _meaning(text: bytes) -> bytes:
    return (_meaning_of_small if len(text) <= _KEPT_BYTES else _meaning_of)(text)


def _meaning_of(text: bytes) -> bytes:
    """A hash that equal definitions share. Raises UnreadableSchema."""
    try:
        value = read_json(text)
    except NotJson as error:
        raise UnreadableSchema(f"{text[:60]!r} is not JSON: {error}") from None
    read_definition(value)
    digest = hashlib.sha256()
    for word in _words(value):
        digest.update(word.encode("utf-8", "surrogatepass"))
        digest.update(b"\0")
    return digest.digest()


def _same_words(one: bytes, other: bytes) -> bool:
    """Whether the texts are equal, which hashes only suggest; for definitions that have one."""
    return all(this == that for this, that in zip_longest(_words(read_json(one)), _words(read_json(other))))


_meaning_of_small = lru_cache(maxsize=256)(_meaning_of)


def _words(definition: object) -> Iterator[str]:
    """The definition word by word, names resolved; only for what `read_definition` takes. No recursion."""
    defined: set[str] = set()
    pending: list[tuple[Any, str] | str] = [(definition, "")]
    while pending:
        step = pending.pop()
        if isinstance(step, str):
            yield step
            continue
        value, namespace = step
        if isinstance(value, list):
            yield "["
            pending.append("]")
            pending += [(branch, namespace) for branch in reversed(value)]
        elif isinstance(value, str):
            yield _resolved(value, namespace, defined)
        elif value["type"] in _NAMED:
            yield from _named(value, namespace, defined, pending)
        elif value["type"] in ("array", "map"):
            yield value["type"]
            yield from _properties(value, _TYPE_WORDS)
            pending.append((value["items" if value["type"] == "array" else "values"], namespace))
        elif value["type"] in PRIMITIVES:
            yield value["type"]
            yield from _properties(value, _TYPE_WORDS)
        else:
            yield full_name(value["type"], namespace)


def _resolved(name: str, namespace: str, defined: set[str]) -> str:
    if name in PRIMITIVES:
        return name
    required = full_name(name, namespace)
    return name if required not in defined and "." not in name else required


def _named(
    value: dict[str, Any], around: str, defined: set[str], pending: list[tuple[Any, str] | str]
) -> Iterator[str]:
    own = value.get("namespace")
    name = full_name(value["name"], own if isinstance(own, str) else around)
    defined.add(name)
    yield f"{value['type']} {name}"
    yield from _properties(value, _TYPE_WORDS | {"default"} if value["type"] == "enum" else _TYPE_WORDS)
    if value["type"] == "enum":
        yield from value["symbols"]
    elif value["type"] == "fixed":
        yield str(value["size"])
    else:
        pending.append("end of record")
        for field in reversed(value["fields"]):
            pending.append((field["type"], namespace_of(name)))
            pending.extend(reversed(list(_field(field))))


def _field(value: dict[str, Any]) -> Iterator[str]:
    yield f"field {value['name']} {value.get('order', 'ascending').lower()}"
    if "default" in value:
        yield "default"
        yield from _json(value["default"])
    yield from _properties(value, _FIELD_WORDS)


def _properties(value: dict[str, Any], reserved: frozenset[str]) -> Iterator[str]:
    """The properties that users added: logical types are of this kind."""
    own = {name: value[name] for name in value if name not in reserved}
    if own:
        yield from _json(own)


def _json(value: Any) -> Iterator[str]:
    """A JSON value word by word, members in the order of their names."""
    pending = [(False, value)]
    while pending:
        is_word, one = pending.pop()
        if is_word:
            yield one
        elif isinstance(one, dict):
            yield "{"
            pending.append((True, "}"))
            for name in sorted(one, reverse=True):
                pending.append((False, one[name]))
                pending.append((True, f"{name!r}:"))
        elif isinstance(one, list):
            yield "["
            pending.append((True, "]"))
            pending += [(False, item) for item in reversed(one)]
        else:
            yield repr(one)
