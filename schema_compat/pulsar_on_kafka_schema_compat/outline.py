"""An outline lists a schema's fields, one a line, so that two can be compared line by line.

The lines of a record's or message's own fields are their names; those of types within it begin with the type's name, so
that a type that is used twice, or contains itself, is listed once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from pulsar_on_kafka_schema_compat.avro.avro_checker import AVRO_CHECKER
from pulsar_on_kafka_schema_compat.avro.avro_types import (
    NO_DEFAULT,
    AvroArray,
    AvroEnum,
    AvroField,
    AvroMap,
    AvroRecord,
    AvroType,
    Fixed,
    Primitive,
    Union,
    simple_name,
)
from pulsar_on_kafka_schema_compat.base.json_text import NotJson, parse_json
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType, UnreadableSchema
from pulsar_on_kafka_schema_compat.json_forms import Form, definition_of
from pulsar_on_kafka_schema_compat.json_schema.assertions import escape
from pulsar_on_kafka_schema_compat.key_value import split
from pulsar_on_kafka_schema_compat.protobuf import descriptors
from pulsar_on_kafka_schema_compat.protobuf.protobuf_checker import read_protobuf_native

WHOLE: Final = "(the schema)"
"""The line of a schema that has no fields."""


@dataclass(frozen=True, slots=True)
class Outline:
    """An outline has `lines`: what stands under each name.

    `line_of`: the name that the path of an incompatibility leads to, where this schema is the reader.
    """

    lines: Mapping[str, str]
    line_of: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class OutlineChange:
    """A line is not the same in two schemas; `old` is None for one that was added, `new` for one that is gone."""

    name: str
    old: str | None
    new: str | None


def changes(old: Outline, new: Outline) -> list[OutlineChange]:
    """The lines that differ, in the new schema's order, those that are gone last."""
    names = [*new.lines, *(name for name in old.lines if name not in new.lines)]
    pairs = ((name, old.lines.get(name), new.lines.get(name)) for name in names)
    return [OutlineChange(*each) for each in pairs if each[1] != each[2]]


def outline(schema: SchemaInfo) -> Outline:
    """Raises UnreadableSchema: the definition is none of its type."""
    match schema.type:
        case SchemaType.AVRO | SchemaType.PROTOBUF:
            return _avro(AVRO_CHECKER.parse(schema).type)
        case SchemaType.JSON if definition_of(schema).form is Form.AVRO:
            return _avro(AVRO_CHECKER.parse(schema).type)
        case SchemaType.JSON:
            return _document(schema.schema)
        case SchemaType.PROTOBUF_NATIVE:
            return _protobuf(read_protobuf_native(schema.schema))
        case SchemaType.KEY_VALUE:
            return _key_value(schema)
        case _:
            return Outline({WHOLE: schema.type.name}, lambda path: WHOLE)


def _key_value(schema: SchemaInfo) -> Outline:
    parts = {part: outline(its_schema) for part, its_schema in split(schema).items()}
    lines = {f"{part}:{name}": text for part, its in parts.items() for name, text in its.lines.items()}

    def line_of(path: str) -> str:
        part, _, rest = path.partition(":")
        return f"{part}:{parts[part].line_of(rest)}" if part in parts else path

    return Outline(lines, line_of)


def _avro(root: AvroType) -> Outline:
    records = _records(root)
    simple = [simple_name(record.name) for record in records]
    prefixes = {
        id(record): "" if record is root else f"{name if simple.count(name) == 1 else record.name}."
        for record, name in zip(records, simple, strict=True)
    }
    lines = {} if isinstance(root, AvroRecord) else {WHOLE: _words(root)}
    for record in records:
        lines |= {f"{prefixes[id(record)]}{field.name}": _field_words(field) for field in record.fields.values()}
    return Outline(lines or {WHOLE: _words(root)}, lambda path: _avro_line(root, path, prefixes))


def _records(root: AvroType) -> list[AvroRecord]:
    """Each once, in the order of the definition."""
    found: dict[int, AvroRecord] = {}
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if isinstance(one, AvroRecord):
            if id(one) in found:
                continue
            found[id(one)] = one
        waiting += reversed(_inside(one))
    return list(found.values())


def _inside(schema: AvroType) -> list[AvroType]:
    match schema:
        case AvroRecord():
            return [field.type for field in schema.fields.values()]
        case AvroArray():
            return [schema.items]
        case AvroMap():
            return [schema.values]
        case Union():
            return list(schema.branches)
        case _:
            return []


def _words(schema: AvroType, levels: int = 8) -> str:
    if levels == 0:
        return "..."
    match schema:
        case Primitive():
            return schema.kind
        case AvroArray():
            return f"array of {_words(schema.items, levels - 1)}"
        case AvroMap():
            return f"map of {_words(schema.values, levels - 1)}"
        case Union():
            return " | ".join(_words(branch, levels - 1) for branch in schema.branches) or "union of nothing"
        case AvroEnum():
            return f"enum {schema.name} ({', '.join(schema.symbols)})"
        case Fixed():
            return f"fixed {schema.name} of {schema.size} bytes"
        case AvroRecord():
            return f"record {schema.name}"


def _field_words(field: AvroField) -> str:
    default = "" if field.default is NO_DEFAULT else f" = {_json(field.default)}"
    aliases = f", also {', '.join(field.aliases)}" if field.aliases else ""
    return f"{_words(field.type)}{default}{aliases}"


def _avro_line(root: AvroType, path: str, prefixes: Mapping[int, str]) -> str:
    """The field that a pointer by index (`/fields/3/type/items`) leads to, or the last one that it passes."""
    at, line = root, WHOLE
    steps = [step for step in path.split("/") if step]
    for position, step in enumerate(steps):
        if isinstance(at, Union):  # a branch of the writer's, which may be another one here
            records = [branch for branch in at.branches if not isinstance(branch, Primitive)]
            if len(records) != 1:
                break
            at = records[0]
        if step.isdecimal() and position and steps[position - 1] == "fields" and isinstance(at, AvroRecord):
            field = list(at.fields.values())[int(step)]
            line, at = prefixes[id(at)] + field.name, field.type
        elif step == "items" and isinstance(at, AvroArray):
            at = at.items
        elif step == "values" and isinstance(at, AvroMap):
            at = at.values
    return line


def _protobuf(root: descriptors.ProtobufMessage) -> Outline:
    lines: dict[str, str] = {}
    for named in _named(root):
        if isinstance(named, descriptors.ProtobufEnum):
            numbers = ", ".join(f"{name} = {number}" for name, number in named.numbers.items())
            lines[f"enum {named.name}"] = f"{'closed' if named.is_closed else 'open'}: {numbers}"
        elif not named.is_map_entry:
            prefix = "" if named is root else f"{named.full_name}."
            lines |= {f"{prefix}{field.name}": _proto_words(field, named) for field in named.by_number.values()}
    return Outline(lines or {WHOLE: f"message {root.full_name}"}, lambda path: _proto_line(root, path))


def _named(root: descriptors.ProtobufMessage) -> Iterator[descriptors.ProtobufMessage | descriptors.ProtobufEnum]:
    found: dict[int, descriptors.ProtobufMessage | descriptors.ProtobufEnum] = {}
    waiting: list[descriptors.ProtobufMessage | descriptors.ProtobufEnum] = [root]
    while waiting:
        one = waiting.pop()
        if id(one) in found:
            continue
        found[id(one)] = one
        if isinstance(one, descriptors.ProtobufMessage):
            waiting += reversed([field.target for field in one.by_number.values() if field.target is not None])
    return iter(found.values())


def _proto_words(field: descriptors.ProtobufField, message: descriptors.ProtobufMessage) -> str:
    target = field.target
    if field.is_map and isinstance(target, descriptors.ProtobufMessage):
        kinds = (_proto_type(inner) for _, inner in sorted(target.by_number.items()))
        kind = f"map<{', '.join(kinds)}>"
    else:
        label = "repeated " if field.is_repeated else "required " if field.is_required else ""
        kind = label + _proto_type(field)
    oneof = "" if field.oneof is None else f", in oneof {message.oneofs[field.oneof]}"
    return f"{kind} = {field.number}{oneof}"


def _proto_type(field: descriptors.ProtobufField) -> str:
    if field.target is None:
        return field.type.name
    name = field.target.full_name if isinstance(field.target, descriptors.ProtobufMessage) else field.target.name
    return f"{field.type.name} {name}"


def _proto_line(root: descriptors.ProtobufMessage, path: str) -> str:
    """The field at the end of `Order.payload.id`; an enum's or oneof's name behind a field is the field's."""
    at, line = root, WHOLE
    for step in path.removeprefix(root.name).split("."):
        field = at.by_name.get(step)
        if field is not None:
            line = step if at is root else f"{at.full_name}.{step}"
            if not isinstance(field.target, descriptors.ProtobufMessage):
                break
            at = field.target
    return line


def _document(text: bytes) -> Outline:
    """Each member of a document that is no object or array, by its pointer: `#/properties/a/type`."""
    try:
        value = parse_json(text)
    except NotJson as error:
        raise UnreadableSchema(f"it is no JSON: {error}") from None
    lines: dict[str, str] = {}
    waiting: list[tuple[str, Any]] = [("#", value)]
    while waiting:
        at, one = waiting.pop()
        if isinstance(one, dict) and one:
            waiting += reversed([(f"{at}/{escape(name)}", inner) for name, inner in one.items()])
        elif isinstance(one, list) and one and any(isinstance(inner, dict | list) for inner in one):
            waiting += reversed([(f"{at}/{index}", inner) for index, inner in enumerate(one)])
        else:
            lines[at] = _json(one)
    return Outline(lines, lambda path: path)


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=_number)
    except RecursionError:
        return "..."


def _number(value: object) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError(f"JSON has no place for {type(value).__name__}: {value!r:.60}")
