"""Avro schemas are linked objects. Two are the same only if they are one object; a recursive one refers to itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from pulsar_on_kafka.schema_compat.base.json_text import shown
from pulsar_on_kafka.schema_compat.base.schema_model import UnreadableSchema


@dataclass(frozen=True, eq=False, slots=True)
class Pointer:
    """A pointer is one step further than `parent`: linked, so that deep schemas do not cost the square of their
    depth."""

    parent: Pointer | None
    step: str

    def to(self, *steps: str | int) -> Pointer:
        """Further down."""
        pointer = self
        for step in steps:
            pointer = Pointer(pointer, str(step))
        return pointer

    def __str__(self) -> str:
        steps: list[str] = []
        pointer: Pointer | None = self
        while pointer is not None and pointer.parent is not None:
            steps.append(pointer.step)
            pointer = pointer.parent
        return "/" + "/".join(reversed(steps))


ROOT = Pointer(None, "")


def full_name(name: str, namespace: str) -> str:
    """The full name that `name` means inside `namespace` ("": none); a name with dots has its own namespace.

    Raises:
        UnreadableSchema: the last part is no name.
    """
    own, dot, simple = name.rpartition(".")
    check_name(simple)
    space = own if dot else namespace
    return f"{space}.{simple}" if space else simple


def namespace_of(name: str) -> str:
    """The namespace of a full name."""
    return name.rpartition(".")[0]


def check_name(name: object) -> str:
    """`name` if it may name a field, a symbol or, without its namespace, a type.

    Letters of any script, digits, `_`, and `$`, which Java's inner classes have; no digit in front. Namespaces are not
    looked at. Source: Avro 1.11 `Schema.validateName`, and `COMPATIBLE_NAME_VALIDATOR` of later brokers for the `$`.

    Raises:
        UnreadableSchema: it may not.
    """
    if not isinstance(name, str) or not name:
        raise UnreadableSchema(f"expected a name, got {shown(name, 40)}")
    if name.isascii() and name.isidentifier():
        return name
    if not (name[0].isalpha() or name[0] in "_$") or not all(
        letter.isalpha() or letter.isdecimal() or letter in "_$" for letter in name
    ):
        raise UnreadableSchema(f"{name!r:.60} is no name: expected letters, digits, _ and $, and no digit in front")
    return name


NO_DEFAULT: Final = object()
"""Stands for a field's default that is not there; None is the default `null`."""


@dataclass(eq=False, slots=True)
class Primitive:
    """A primitive type is null, boolean, int, long, float, double, bytes or string, one object each (`PRIMITIVES`).

    Logical types count as what they are stored as.
    """

    kind: str


@dataclass(eq=False, slots=True)
class Array:
    items: AvroType


@dataclass(eq=False, slots=True)
class Map:
    values: AvroType


@dataclass(eq=False, slots=True)
class Union:
    branches: tuple[AvroType, ...]
    _by_kind: dict[str, list[AvroType]] = field(default_factory=dict)
    _by_simple_name: dict[str, list[AvroType]] = field(default_factory=dict)

    def of_kind(self, kind: str) -> list[AvroType]:
        """The branches of this kind, in order."""
        self._index()
        return self._by_kind.get(kind, [])

    def of_simple_name(self, name: str) -> list[AvroType]:
        """The records, enums and fixed of this name in any namespace, in order."""
        self._index()
        return self._by_simple_name.get(name, [])

    def _index(self) -> None:
        if self.branches and not self._by_kind:
            for branch in self.branches:
                self._by_kind.setdefault(kind_of(branch), []).append(branch)
                if isinstance(branch, Enum | Fixed | Record):
                    self._by_simple_name.setdefault(simple_name(branch.name), []).append(branch)


@dataclass(eq=False, slots=True)
class Enum:
    name: str
    """The full name, with its namespace."""
    symbols: tuple[str, ...]
    aliases: frozenset[str]
    """Full names."""


@dataclass(eq=False, slots=True)
class Fixed:
    name: str
    size: int
    aliases: frozenset[str]


@dataclass(eq=False, slots=True)
class Field:
    name: str
    type: AvroType
    aliases: tuple[str, ...]
    default: Any
    """The default is as JSON gives it, or NO_DEFAULT."""


@dataclass(eq=False, slots=True)
class Record:
    name: str
    aliases: frozenset[str]
    fields: dict[str, Field] = field(default_factory=dict)
    """By name, in order."""
    has_field_aliases: bool = False


AvroType = Primitive | Array | Map | Union | Enum | Fixed | Record

_KINDS: Final = {Array: "array", Map: "map", Union: "union", Enum: "enum", Fixed: "fixed", Record: "record"}
PRIMITIVES: Final = {
    kind: Primitive(kind) for kind in ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
}
_BRANCHES_SHOWN: Final = 6


def kind_of(schema: AvroType) -> str:
    """Avro's word for what it is, as `long` or `record`."""
    return schema.kind if isinstance(schema, Primitive) else _KINDS[type(schema)]


def simple_name(full_name: str) -> str:
    """The name without its namespace."""
    return full_name.rpartition(".")[2]


def described(schema: AvroType) -> str:
    """A few words for a message: `record a.B`, `union of null, int`."""
    if isinstance(schema, Union):
        shown = [_label(branch) for branch in schema.branches[:_BRANCHES_SHOWN]]
        more = len(schema.branches) - len(shown)
        return f"union of {', '.join(shown) or 'nothing'}{f' and {more} more' if more else ''}"
    return _label(schema)


def _label(schema: AvroType) -> str:
    return f"{kind_of(schema)} {schema.name:.100}" if isinstance(schema, Enum | Fixed | Record) else kind_of(schema)
