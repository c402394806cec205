"""The reader makes a graph of schemas of a JSON value: shapes of keywords are checked, references followed.

A `$ref` leads to a schema of the same document, by identifier, anchor or JSON pointer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urljoin

from pulsar_on_kafka_schema_compat.base.json_text import canonical_member, digests, shown
from pulsar_on_kafka_schema_compat.base.schema_model import UnreadableSchema
from pulsar_on_kafka_schema_compat.json_schema.assertions import ASSERTIONS, Assertions, Dialect, expect
from pulsar_on_kafka_schema_compat.json_schema.document_model import (
    Combined,
    Condition,
    Conjunction,
    Criterion,
    Document,
    Never,
    Not,
    Place,
    Plain,
    Reference,
    Schema,
)

_NO_SCHEMAS_WITHIN: Final = frozenset({"enum", "const", "default", "examples"})


class References:
    """The references know the identifiers of a document and what they name."""

    def __init__(self, document: object, dialect: Dialect) -> None:
        self._dialect = dialect
        self._resources: dict[str, Any] = {"": document}
        self._anchors: dict[tuple[str, str], Any] = {}
        self._dynamic: dict[str, int] = {}
        self._bases: dict[int, str] = {}
        pending: list[tuple[Any, str]] = [(document, "")]
        while pending:
            current, base = pending.pop()
            if isinstance(current, dict):
                base = self._enter(current, base)
                self._bases[id(current)] = base
                pending += [(member, base) for name, member in current.items() if name not in _NO_SCHEMAS_WITHIN]
            elif isinstance(current, list):
                pending += [(member, base) for member in current]

    def _enter(self, schema: dict[str, Any], base: str) -> str:
        """Note the names of `schema`; the base for what is within it."""
        name = schema.get(self._dialect.id_keyword)
        if isinstance(name, str) and ("$ref" not in schema or self._dialect.draft > 7 or self._dialect.draft == 3):
            address, _, fragment = _join(base, name).partition("#")
            if fragment and self._dialect.draft <= 7:
                self._anchors[address, fragment] = schema
            if address != base:
                self._resources.setdefault(address, schema)
                base = address
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = schema.get(keyword)
            if isinstance(anchor, str):
                self._anchors[base, anchor] = schema
                if keyword == "$dynamicAnchor":
                    self._dynamic[anchor] = self._dynamic.get(anchor, 0) + 1
        if schema.get("$recursiveAnchor") is True:
            self._dynamic["#"] = self._dynamic.get("#", 0) + 1
        return base

    def target(self, schema: dict[str, Any], keyword: str, pointer: str) -> Any:
        """The target of the reference in `schema` under `keyword`: an object, a boolean or a value that is no schema.

        Raises:
            UnreadableSchema: the target is not in this document; or it depends on the path to the schema.
        """
        reference = schema[keyword]
        if not isinstance(reference, str):
            raise UnreadableSchema(f"{pointer}/{keyword} must be a string, got {shown(reference)}")
        address, _, fragment = _join(self._bases[id(schema)], reference).partition("#")
        dynamic = {"$dynamicRef": fragment, "$recursiveRef": "#"}.get(keyword)
        if dynamic is not None and self._dynamic.get(dynamic, 0) > 1:
            raise UnreadableSchema(
                f"{pointer}/{keyword} {reference!r:.60} has several targets, by the way to it, which is not compared"
            )
        if address in self._resources:
            found = self._within(self._resources[address], address, unquote(fragment))
            if found is not _NOTHING:
                return found
        raise UnreadableSchema(f"{pointer}/{keyword} leads to {reference!r:.200}, which the document does not contain")

    def _within(self, resource: object, address: str, fragment: str) -> Any:
        if not fragment:
            return resource
        if not fragment.startswith("/"):
            return self._anchors.get((address, fragment), _NOTHING)
        for step in fragment[1:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(resource, dict) and name in resource:
                resource = resource[name]
            elif isinstance(resource, list) and name.isascii() and name.isdigit() and int(name[:9]) < len(resource):
                resource = resource[int(name[:9])]
            else:
                return _NOTHING
        return resource


_NOTHING: Final = object()


def _join(base: str, reference: str) -> str:
    if reference.startswith("#"):
        return base + reference
    try:
        return urljoin(base, reference)
    except ValueError:
        return reference


# In messages; whole ones of a deeply nested document would take memory by the square of its depth.
_MAX_POINTER: Final = 500
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


def read_document(value: object, *, legacy: bool = False) -> Document:
    """The document that `value`, parsed JSON, is; `legacy` for the form that Jackson made.

    Raises:
        UnreadableSchema: it is no JSON Schema.
    """
    if not isinstance(value, dict | bool):
        raise UnreadableSchema(f"a JSON Schema is an object or a boolean, not {shown(value)}")
    dialect = Dialect.of(value, legacy=legacy)
    reading = _Reading(value, dialect)
    identifier = (value.get("$id") or value.get("id")) if isinstance(value, dict) else None
    return Document(reading.root(), identifier if isinstance(identifier, str) else "", reading.digest)


class _Reading:
    """Schemas met but not read yet wait in a queue, so depth does not matter; each is read once, however often met."""

    def __init__(self, value: object, dialect: Dialect) -> None:
        self._value = value
        self._dialect = dialect
        self._references = References(value, dialect)
        self._digests = digests(value)
        self.digest = canonical_member(value, self._digests)
        self._assertions = Assertions(dialect, self._digests, self._place)
        self._places: dict[int, Place] = {}
        self._made: list[Place] = []
        self._waiting: deque[tuple[dict[str, Any], Place]] = deque()

    def root(self) -> Place:
        root = self._place(self._value, "#")
        while self._waiting:
            raw, place = self._waiting.popleft()
            place.schema = self._read(raw, place.pointer)
        for place in self._made:
            place.schema = _settled(place)
        return root

    def _place(self, raw: object, pointer: str) -> Place:
        if len(pointer) > _MAX_POINTER:
            pointer = f"{pointer[:200]}/.../{pointer[-100:].partition('/')[2]}"
        if isinstance(raw, bool):
            return self._make(Plain(allows_everything=True) if raw else Never(), pointer)
        if not isinstance(raw, dict):
            raise UnreadableSchema(f"{pointer} must be a schema, that is an object or a boolean, got {shown(raw)}")
        if id(raw) not in self._places:
            place = self._places[id(raw)] = self._make(Never(), pointer)
            place.has_default = "default" in raw
            self._waiting.append((raw, place))
        return self._places[id(raw)]

    def _make(self, schema: Schema, pointer: str) -> Place:
        place = Place(pointer, schema)
        self._made.append(place)
        return place

    def _read(self, raw: dict[str, Any], pointer: str) -> Schema:
        keywords = self._dialect.keywords(raw)
        others = self._others(raw, keywords, pointer)
        plain = None
        if not others or not ASSERTIONS.isdisjoint(keywords):
            plain = self._assertions.read(keywords, pointer)
        if plain is None and len(others) == 1:
            return others[0]
        if plain is not None and not others:
            return plain
        parts = tuple(self._make(other, pointer) for other in others)
        if plain is None:
            return Conjunction(parts)
        plain.beside = parts
        return Conjunction((self._make(plain, pointer), *parts))

    def _others(self, raw: dict[str, Any], keywords: Mapping[str, Any], pointer: str) -> list[Schema]:
        """The parts beside the assertions: references, combinations, `not` and `if`."""
        found: list[Schema] = []
        for keyword in _REFERENCES:
            if keyword in keywords:
                target = self._references.target(raw, keyword, pointer)
                found.append(Reference(self._place(target, str(raw[keyword]))))
        for criterion in Criterion:
            if criterion.value in keywords:
                members = self._schemas(keywords[criterion.value], f"{pointer}/{criterion.value}")
                found.append(Combined(criterion, members))
        if "not" in keywords:
            found.append(Not(self._place(keywords["not"], f"{pointer}/not")))
        if "if" in keywords:
            then, otherwise = (self._assertions.constraint(keywords, name, pointer) for name in ("then", "else"))
            found.append(Condition(self._place(keywords["if"], f"{pointer}/if"), then, otherwise))
        return found

    def _schemas(self, raw: Any, pointer: str) -> tuple[Place, ...]:
        """A list of schemas, equal ones once."""
        if not expect(raw, list, pointer):
            raise UnreadableSchema(f"{pointer} must have members")
        first: dict[bytes, int] = {}
        for index, member in enumerate(raw):
            first.setdefault(canonical_member(member, self._digests), index)
        return tuple(self._place(raw[index], f"{pointer}/{index}") for index in first.values())


def _settled(place: Place) -> Schema:
    """The effective schema at `place`: behind references and combinations of one member.

    Raises:
        UnreadableSchema: they lead back to where they started.
    """
    schema, met = place.schema, set()
    while True:
        match schema:
            case Reference(target):
                next_schema = target.schema
            case Combined(_, (member,)):
                next_schema = member.schema
            case _:
                return schema
        if id(schema) in met:
            raise UnreadableSchema(f"{place.pointer} refers to itself without end")
        met.add(id(schema))
        schema = next_schema
