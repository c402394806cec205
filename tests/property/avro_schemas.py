"""Avro schemas, changed versions of them, and data that reach into every corner of a schema."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

Json = Any
NUMBERS = ["int", "long", "float", "double"]
PRIMITIVES = ["null", "boolean", *NUMBERS, "bytes", "string"]
DEFAULTS: dict[str, Json] = {
    "null": None, "boolean": True, "int": 1, "long": -1, "float": 0.5, "double": 2, "bytes": "b", "string": "s",
}  # fmt: skip
VALUES: dict[str, Json] = {
    "null": None, "boolean": True, "int": -3, "long": 5, "float": 0.5, "double": -0.5, "bytes": b"b", "string": "s",
}  # fmt: skip
# Of each group a union has one kind at most: fastavro tells branches apart by the values that are written.
# Bytes would pass for an array of ints.
GROUPS = [["null"], ["boolean"], NUMBERS, ["string", "enum"], ["bytes", "fixed", "array"], ["map", "record"]]
SYMBOLS = ["red", "green", "blue"]


@dataclass
class Names:
    """New names for types and fields, each used once."""

    used: int = 0

    def next(self, letter: str) -> str:
        self.used += 1
        return f"{letter}{self.used}"


@st.composite
def types(draw: st.DrawFn, names: Names, depth: int, around: tuple[str, ...] = (), union: bool = True) -> Json:
    """A type; `around` are the records that it may refer to."""
    kinds = [*PRIMITIVES, "enum", "fixed"]
    if depth > 0:
        kinds += ["array", "map", "record", "record"] + (["union", "union"] if union else [])
    return draw(of_kind(draw(st.sampled_from(kinds)), names, depth, around))


@st.composite
def of_kind(draw: st.DrawFn, kind: str, names: Names, depth: int, around: tuple[str, ...]) -> Json:
    inner = max(depth - 1, 0)
    match kind:
        case "enum":
            return {"type": "enum", "name": names.next("E"), "symbols": list(SYMBOLS)}
        case "fixed":
            return {"type": "fixed", "name": names.next("F"), "size": draw(st.integers(1, 3))}
        case "array":
            return {"type": "array", "items": draw(types(names, inner, around))}
        case "map":
            return {"type": "map", "values": draw(types(names, inner, around))}
        case "record":
            name = names.next("R")
            fields = [
                {"name": names.next("f"), "type": draw(types(names, inner, (*around, name)))}
                for _ in range(draw(st.integers(0, 3)))
            ]
            if draw(st.booleans()):
                fields.append({"name": names.next("f"), "type": ["null", draw(st.sampled_from((*around, name)))]})
            return {"type": "record", "name": name, "fields": fields}
        case "union":
            groups = draw(st.lists(st.sampled_from(range(len(GROUPS))), min_size=1, max_size=4, unique=True))
            return [draw(of_kind(draw(st.sampled_from(GROUPS[group])), names, inner, around)) for group in groups]
        case _:
            return kind


def kind(schema: Json) -> str:
    if isinstance(schema, list):
        return "union"
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)


@dataclass
class Place:
    """A type inside a schema, and how to put another one there."""

    schema: Json
    put: Callable[[Json], None]
    in_union: bool = False


def places(root: list[Json]) -> Iterator[Place]:
    """Every type below `root[0]`, itself included."""
    todo = [Place(root[0], lambda new: root.__setitem__(0, new))]
    while todo:
        place = todo.pop()
        yield place
        schema = place.schema
        match kind(schema):
            case "union":
                for index, branch in enumerate(schema):
                    todo.append(Place(branch, lambda new, s=schema, i=index: s.__setitem__(i, new), True))  # type: ignore[misc]
            case "array" | "map":
                key = "items" if kind(schema) == "array" else "values"
                todo.append(Place(schema[key], lambda new, s=schema, k=key: s.__setitem__(k, new)))  # type: ignore[misc]
            case "record":
                for one in schema["fields"]:
                    todo.append(Place(one["type"], lambda new, f=one: f.__setitem__("type", new)))  # type: ignore[misc]
            case _:
                pass


@st.composite
def changed(draw: st.DrawFn, schema: Json, names: Names, changes: int = 3) -> Json:
    """A later version of `schema`, with names of fields and types that fastavro matches as Pulsar does."""
    root = [copy.deepcopy(schema)]
    for _ in range(draw(st.integers(0, changes))):
        place = draw(st.sampled_from(list(places(root))))
        _change(draw, place, names)
        for one in places(root):
            if kind(one.schema) == "record":
                _mend_defaults(one.schema["fields"])
    return root[0]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Json, Json]:
    """Two versions of a schema, of which either may be the later one."""
    names = Names()
    first = draw(types(names, 3))
    second = draw(changed(first, names))
    return (first, second) if draw(st.booleans()) else (second, first)


def _mend_defaults(fields: list[Json]) -> None:
    """Defaults of fields whose types have changed; fastavro does not take one that does not fit."""
    for one in fields:
        if "default" in one:
            first = one["type"][0] if isinstance(one["type"], list) and one["type"] else one["type"]
            del one["default"]
            if kind(first) in DEFAULTS:
                one["default"] = DEFAULTS[kind(first)]


def _change(draw: st.DrawFn, place: Place, names: Names) -> None:
    schema = place.schema
    match kind(schema):
        case "record" if schema["fields"] or draw(st.booleans()):
            _change_fields(draw, schema["fields"], names)
        case "enum":
            schema["symbols"] = draw(st.permutations(SYMBOLS))
            if draw(st.booleans()):
                schema["aliases"] = [schema["name"]]
                schema["name"] = names.next("E")
        case "fixed":
            schema["size"] = draw(st.integers(1, 3))
        case "union" if len(schema) > 1 and draw(st.booleans()):
            schema.remove(draw(st.sampled_from(schema)))
        case "union":
            schema[:] = draw(st.permutations(schema))
        case "array" if not place.in_union:
            place.put({"type": "map", "values": schema["items"]})
        case "map" if not place.in_union:
            place.put({"type": "array", "items": schema["values"]})
        case one if one in NUMBERS:
            place.put(draw(st.sampled_from(NUMBERS)))
        case "string" | "bytes" if not place.in_union:
            place.put(draw(st.sampled_from(["string", "bytes", ["null", "string"], ["bytes", "null"]])))
        case one if one in PRIMITIVES and not place.in_union:
            place.put(draw(st.sampled_from([*PRIMITIVES, ["null", "int"], ["double"]])))


def _change_fields(draw: st.DrawFn, fields: list[Json], names: Names) -> None:
    action = draw(st.sampled_from(["add", "add with default", "remove", "rename", "alias", "reorder"]))
    if action.startswith("add") or not fields:
        new = draw(st.sampled_from(PRIMITIVES))
        added = {"name": names.next("n"), "type": new}
        fields.insert(0, {**added, "default": DEFAULTS[new]} if action == "add with default" else added)
        return
    one = draw(st.sampled_from(fields))
    match action:
        case "remove":
            fields.remove(one)
        case "rename":
            one["name"] = names.next("n")
        case "alias":
            one["aliases"] = [one["name"]]
            one["name"] = names.next("n")
        case _:
            fields[:] = draw(st.permutations(fields))


@dataclass
class Examples:
    """Values of a schema that together take every branch of every union at least once."""

    schema: Json
    named: dict[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for place in places([self.schema]):
            if isinstance(place.schema, dict) and "name" in place.schema:
                self.named[place.schema["name"]] = place.schema

    def all(self) -> list[Json]:
        return self._of(self.schema, ())

    def reach_everything(self) -> bool:
        """False where a record contains itself outright: it has no values, so what it says of its fields is never
        written, also where the schema has values without it."""
        return all(self._of(named, ()) for named in self.named.values())

    def _of(self, schema: Json, inside: tuple[str, ...]) -> list[Json]:
        match kind(schema):
            case "enum":
                return list(SYMBOLS)
            case "fixed":
                return [b"x" * schema["size"]]
            case "array":
                return [[value] for value in self._of(schema["items"], inside)] or [[]]
            case "map":
                return [{"key": value} for value in self._of(schema["values"], inside)] or [{}]
            case "union":
                return [value for branch in schema for value in self._of(branch, inside)]
            case "record":
                return self._of_record(schema, inside)
            case name if name in VALUES:
                return [VALUES[name]]
            case name:
                return self._of_record(self.named[name], inside)

    def _of_record(self, schema: Json, inside: tuple[str, ...]) -> list[Json]:
        name = schema["name"]
        if inside.count(name) > 1:
            return []  # once more than in itself, so that the way back is taken
        columns = {one["name"]: self._of(one["type"], (*inside, name)) for one in schema["fields"]}
        if not all(columns.values()):
            return []
        rows = max((len(values) for values in columns.values()), default=1)
        return [{name: values[row % len(values)] for name, values in columns.items()} for row in range(rows)]
