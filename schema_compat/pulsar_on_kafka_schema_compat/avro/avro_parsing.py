"""The parser makes linked types of a definition, as JSON gives it. What Avro 1.11's `Schema.Parser` takes is taken.

Defaults are kept as they are and not looked at. Each method that reads a kind of type is a generator: it yields the
definitions inside its own and is sent their types, so that depth costs no recursion.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final

import orjson

from pulsar_on_kafka_schema_compat.avro.avro_types import (
    NO_DEFAULT,
    PRIMITIVES,
    ROOT,
    AvroArray,
    AvroEnum,
    AvroField,
    AvroMap,
    AvroRecord,
    AvroType,
    Fixed,
    Pointer,
    Primitive,
    Union,
    check_name,
    full_name,
    kind_of,
    namespace_of,
)
from pulsar_on_kafka_schema_compat.base.json_text import NotJson, parse_json
from pulsar_on_kafka_schema_compat.base.schema_model import UnreadableSchema

MAX_DEPTH: Final = 100_000
"""Arrays and objects within each other: 33,000 records within each other."""
_MAX_FIXED_SIZE: Final = 2**31 - 1
_ORDERS: Final = frozenset({"ascending", "descending", "ignore"})
_JAVA_DOUBLE: Final = re.compile(r"[+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?)\Z")
_STRING_OR_COMMENT: Final = re.compile(
    r'(?P<string>"[^"\\]*(?:\\.[^"\\]*)*")|//[^\n]*|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/', re.DOTALL
)
_BRIEF: Final = 60


@dataclass(frozen=True, eq=False, slots=True)
class _Definition:
    """A definition stands inside another one: what it is, the namespace around it, and where it stands."""

    value: Any
    namespace: str
    at: Pointer


_Steps = Generator[_Definition, AvroType, AvroType]


def parse_avro(text: bytes) -> AvroType:
    """The schema that `text` defines.

    Raises:
        UnreadableSchema: it is not JSON, or no Avro schema.
    """
    try:
        return read_definition(read_json(text))
    except NotJson as error:
        raise UnreadableSchema(f"{text[:_BRIEF]!r} is not JSON: {error}") from None


def read_json(text: bytes) -> Any:
    """The value of `text` as Avro's parser reads it: comments count as space, bytes that are no UTF-8 as U+FFFD.

    Raises:
        NotJson: it is no JSON even so.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # also what is deeper than 1,024 levels
        readable = text.decode("utf-8", errors="replace")
        return parse_json(
            _STRING_OR_COMMENT.sub(lambda found: found["string"] or " ", readable).encode(), max_depth=MAX_DEPTH
        )


def read_definition(value: object) -> AvroType:
    """The schema that a JSON value defines. Raises UnreadableSchema if it is no Avro schema."""
    return _Parser().read(value)


class _Parser:
    """The parser keeps the names that one schema defines, in the order in which they appear."""

    def __init__(self) -> None:
        self._named: dict[str, AvroEnum | Fixed | AvroRecord] = {}

    def read(self, value: object) -> AvroType:
        definition = _Definition(value, "", ROOT)
        places = [definition.at]
        stack = [self._type(definition)]
        result: Any = None
        while True:
            try:
                inner = stack[-1].send(result)
            except StopIteration as done:
                stack.pop()
                places.pop()
                result = done.value
                if not stack:
                    return result  # type: ignore[no-any-return]
            except UnreadableSchema as error:
                raise UnreadableSchema(f"{error} (at {places[-1]})") from None
            else:
                places.append(inner.at)
                stack.append(self._type(inner))
                result = None

    def _type(self, definition: _Definition) -> _Steps:
        value = definition.value
        if isinstance(value, str):
            return self._reference(value, definition.namespace)
        if isinstance(value, list):
            return (yield from self._union(definition))
        if not isinstance(value, dict):
            raise UnreadableSchema(f"expected a type, got {brief(value)}")
        kind = value.get("type")
        if not isinstance(kind, str):
            raise UnreadableSchema(f"expected the name of a type under 'type', got {brief(kind)}")
        match kind:
            case "record" | "error":
                return (yield from self._record(definition))
            case "array":
                items = yield self._inner(definition, "items")
                return AvroArray(items)
            case "map":
                values = yield self._inner(definition, "values")
                return AvroMap(values)
            case "enum":
                return self._enum(definition)
            case "fixed":
                return self._fixed(definition)
            case _ if kind in PRIMITIVES:
                return PRIMITIVES[kind]
            case _:
                return self._defined(full_name(kind, definition.namespace), kind)

    def _inner(self, outer: _Definition, member: str) -> _Definition:
        if member not in outer.value:
            raise UnreadableSchema(f"{brief(outer.value)} has no '{member}'")
        return _Definition(outer.value[member], outer.namespace, outer.at.to(member))

    def _reference(self, name: str, namespace: str) -> AvroType:
        """The type of a name: a primitive, a type of this namespace, or one without a namespace."""
        if name in PRIMITIVES:
            return PRIMITIVES[name]
        required = full_name(name, namespace)
        return self._defined(name if required not in self._named and "." not in name else required, name)

    def _defined(self, required: str, name: str) -> AvroType:
        if required not in self._named:
            raise UnreadableSchema(f"{name!r:.60} is not defined before it is used")
        return self._named[required]

    def _define(self, definition: _Definition, named: AvroEnum | Fixed | AvroRecord) -> None:
        if named.name in PRIMITIVES:
            raise UnreadableSchema(f"a {kind_of(named)} may not have the name of the primitive {named.name}")
        if named.name in self._named:
            raise UnreadableSchema(f"{named.name} is defined twice")
        self._named[named.name] = named

    def _union(self, definition: _Definition) -> _Steps:
        branches: list[AvroType] = []
        labels: set[str] = set()
        for index, value in enumerate(definition.value):
            branch = _primitive(value) or (yield _Definition(value, definition.namespace, definition.at.to(index)))
            if isinstance(branch, Union):
                raise UnreadableSchema(f"branch {index} of a union is a union itself")
            label = branch.name if isinstance(branch, AvroEnum | Fixed | AvroRecord) else kind_of(branch)
            if label in labels:
                raise UnreadableSchema(f"a union has {label} twice")
            labels.add(label)
            branches.append(branch)
        return Union(tuple(branches))

    def _record(self, definition: _Definition) -> _Steps:
        name, aliases = _names(definition)
        record = AvroRecord(name, aliases)
        self._define(definition, record)
        fields = definition.value.get("fields")
        if not isinstance(fields, list):
            raise UnreadableSchema(f"record {name} needs an array of fields, got {brief(fields)}")
        for index, value in enumerate(fields):
            if not isinstance(value, dict) or "type" not in value:
                raise UnreadableSchema(f"field {index} of record {name} needs a name and a type, got {brief(value)}")
            kind = _primitive(value["type"])
            if kind is None:
                at = definition.at.to("fields", index, "type")
                kind = yield _Definition(value["type"], namespace_of(name), at)
            field = _field(value, kind)
            if field.name in record.fields:
                raise UnreadableSchema(f"record {name} has the field {field.name} twice")
            record.fields[field.name] = field
            record.has_field_aliases |= bool(field.aliases)
        return record

    def _enum(self, definition: _Definition) -> AvroEnum:
        name, aliases = _names(definition)
        symbols = definition.value.get("symbols")
        if not isinstance(symbols, list):
            raise UnreadableSchema(f"enum {name} needs an array of symbols, got {brief(symbols)}")
        seen: set[str] = set()
        for symbol in symbols:
            if check_name(symbol) in seen:
                raise UnreadableSchema(f"enum {name} has the symbol {symbol} twice")
            seen.add(symbol)
        default = definition.value.get("default")
        if isinstance(default, str) and default not in seen:
            raise UnreadableSchema(f"the default {default!r:.60} of enum {name} is none of its symbols")
        enum = AvroEnum(name, tuple(symbols), aliases)
        self._define(definition, enum)
        return enum

    def _fixed(self, definition: _Definition) -> Fixed:
        name, aliases = _names(definition)
        size = definition.value.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _MAX_FIXED_SIZE:
            raise UnreadableSchema(f"fixed {name} needs a size from 0 to {_MAX_FIXED_SIZE}, got {brief(size)}")
        fixed = Fixed(name, size, aliases)
        self._define(definition, fixed)
        return fixed


def _primitive(value: object) -> AvroType | None:
    """The primitive that a name alone stands for: most types are, and need no step of their own."""
    return PRIMITIVES.get(value) if isinstance(value, str) else None


def _names(definition: _Definition) -> tuple[str, frozenset[str]]:
    """Full name and aliases of a record, enum or fixed; aliases without dots lie in its namespace."""
    value = definition.value
    name = value.get("name")
    if not isinstance(name, str):
        raise UnreadableSchema(f"a {value['type']} needs a name, got {brief(name)}")
    namespace = value.get("namespace")
    own = full_name(name, namespace if isinstance(namespace, str) else definition.namespace)
    return own, frozenset(full_name(alias, namespace_of(own)) for alias in _aliases(value))


def _aliases(value: dict[str, Any]) -> tuple[str, ...]:
    if "aliases" not in value:
        return ()
    aliases = value["aliases"]
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise UnreadableSchema(f"aliases must be an array of names, got {brief(aliases)}")
    return tuple(aliases)


def _field(value: dict[str, Any], kind: AvroType) -> AvroField:
    name = check_name(value.get("name"))
    order = value.get("order", "ascending")
    if not isinstance(order, str) or order.lower() not in _ORDERS:
        raise UnreadableSchema(
            f"the order of field {name} must be one of {', '.join(sorted(_ORDERS))}, got {brief(order)}"
        )
    default = value.get("default", NO_DEFAULT)
    if isinstance(kind, Primitive) and kind.kind in ("float", "double") and isinstance(default, str):
        default = _number_in_text(name, default)
    return AvroField(name, kind, _aliases(value), default)


def _number_in_text(name: str, text: str) -> float:
    """Avro takes the default of a float as text too, since JSON has no NaN."""
    if not _JAVA_DOUBLE.match(text.strip()):
        raise UnreadableSchema(f"the default {text!r:.60} of field {name} is no number")
    return float(text.strip().rstrip("fFdD"))


def brief(value: object) -> str:
    """A JSON value in a few words, whatever its size."""
    match value:
        case dict():
            return f"an object with {', '.join(list(value)[:4]) or 'nothing'}"[:_BRIEF]
        case list():
            return f"an array of {len(value)}"
        case None:
            return "nothing"
        case _:
            return f"{value!r:.60}"
