"""Avro schemas are linked objects. Two are the same only if they are one object; a recursive one refers to itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pulsar_on_kafka_schema_compat.base.json_text import shown
from pulsar_on_kafka_schema_compat.base.schema_model import UnreadableSchema


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
class AvroArray:
    items: AvroType


@dataclass(eq=False, slots=True)
class AvroMap:
    values: AvroType


@dataclass(eq=False, slots=True)
class Union:
    branches: tuple[AvroType, ...]
    _by_kind: dict[str, list[AvroType]] = dataclasses.field(default_factory=dict)
    _by_simple_name: dict[str, list[AvroType]] = dataclasses.field(default_factory=dict)

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
                if isinstance(branch, AvroEnum | Fixed | AvroRecord):
                    self._by_simple_name.setdefault(simple_name(branch.name), []).append(branch)


@dataclass(eq=False, slots=True)
class AvroEnum:
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
class AvroField:
    name: str
    type: AvroType
    aliases: tuple[str, ...]
    default: Any
    """The default is as JSON gives it, or NO_DEFAULT."""


@dataclass(eq=False, slots=True)
class AvroRecord:
    name: str
    aliases: frozenset[str]
    fields: dict[str, AvroField] = dataclasses.field(default_factory=dict)
    """Fields by name, in order."""
    has_field_aliases: bool = False


AvroType = Primitive | AvroArray | AvroMap | Union | AvroEnum | Fixed | AvroRecord

_KINDS: Final = {
    AvroArray: "array",
    AvroMap: "map",
    Union: "union",
    AvroEnum: "enum",
    Fixed: "fixed",
    AvroRecord: "record",
}
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
    return (
        f"{kind_of(schema)} {schema.name:.100}"
        if isinstance(schema, AvroEnum | Fixed | AvroRecord)
        else kind_of(schema)
    )


# Kinds that read another one beside their own, by what was written.
PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


def kinds_match(reader: AvroType, writer: AvroType) -> bool:
    """Whether a reader of this kind can read the writer's kind; unions are not handled here."""
    kind, written = kind_of(reader), kind_of(writer)
    return kind == written or kind in PROMOTIONS.get(written, ())


def names_match(reader: AvroEnum | Fixed | AvroRecord, writer: AvroEnum | Fixed | AvroRecord) -> bool:
    """True when the simple names are the same, or the reader's aliases have the writer's full name."""
    return simple_name(reader.name) == simple_name(writer.name) or writer.name in reader.aliases


def candidates(reader: Union, writer: AvroType) -> Iterator[AvroType]:
    """The branches that could read `writer`, which is no union, the likeliest first."""
    written = kind_of(writer)
    if isinstance(writer, AvroRecord):
        name = simple_name(writer.name)
        yield from (branch for branch in reader.of_simple_name(name) if isinstance(branch, AvroRecord))
        records = (branch for branch in reader.of_kind(written) if isinstance(branch, AvroRecord))
        yield from (record for record in records if simple_name(record.name) != name)
        return
    yield from reader.of_kind(written)
    for kind in PROMOTIONS.get(written, ()):
        yield from reader.of_kind(kind)


def facing_fields(reader: AvroRecord, writer: AvroRecord) -> Iterator[tuple[int, AvroField, AvroField | None]]:
    """Each of the reader's fields, by index, with the field of the writer that it reads; None where there is none."""
    written = writer.fields
    if reader.has_field_aliases and (reader.name == writer.name or writer.name in reader.aliases):
        written = _renamed(reader, writer)
    for index, field in enumerate(reader.fields.values()):
        yield index, field, written.get(field.name)


def _renamed(reader: AvroRecord, writer: AvroRecord) -> dict[str, AvroField]:
    """The writer's fields under the names that the reader's aliases give them.

    Aliases of fields hold for the record that has them: for the same full name, or one among the record's aliases.
    Source: Avro `Schema.applyAliases`. Where that would give two fields one name it breaks; then an alias counts only
    for a field that the writer does not have itself.
    """
    new_names = {alias: field.name for field in reader.fields.values() for alias in field.aliases}
    renamed: dict[str, AvroField] = {}
    for field in writer.fields.values():
        if renamed.setdefault(new_names.get(field.name, field.name), field) is not field:
            break
    else:
        return renamed
    renamed = dict(writer.fields)
    for field in reader.fields.values():
        known_as = next((alias for alias in field.aliases if alias in renamed), None)
        if known_as is not None and field.name not in writer.fields:
            renamed[field.name] = renamed.pop(known_as)
    return renamed


def mismatch(reader: AvroType, writer: AvroType) -> list[tuple[str, str]]:
    """The faults of two types themselves, without their parts: rules, each with the member that breaks it."""
    if not kinds_match(reader, writer):
        return [("TYPE_MISMATCH", "")]
    found: list[tuple[str, str]] = []
    if (
        isinstance(reader, AvroEnum | Fixed)
        and isinstance(writer, AvroEnum | Fixed)
        and not names_match(reader, writer)
    ):
        found.append(("NAME_MISMATCH", "name"))
    if isinstance(reader, Fixed) and isinstance(writer, Fixed) and reader.size != writer.size:
        found.append(("FIXED_SIZE_MISMATCH", "size"))
    return found


def parts(reader: AvroType, writer: AvroType) -> Iterator[tuple[tuple[str | int, ...], AvroType, AvroType]]:
    """The pairs that must all be readable for `reader` to read `writer`, each with the steps to it; not for unions."""
    match reader, writer:
        case AvroArray(), AvroArray():
            yield ("items",), reader.items, writer.items
        case AvroMap(), AvroMap():
            yield ("values",), reader.values, writer.values
        case AvroRecord(), AvroRecord():
            for index, field, written in facing_fields(reader, writer):
                if written is not None:
                    yield ("fields", index, "type"), field.type, written.type
        case _:
            return


def missing_fields(reader: AvroType, writer: AvroType) -> Iterator[tuple[int, AvroField]]:
    """The reader's fields that need their defaults."""
    if isinstance(reader, AvroRecord) and isinstance(writer, AvroRecord):
        for index, field, written in facing_fields(reader, writer):
            if written is None:
                yield index, field


def has_default(field: AvroField) -> bool:
    """True when the field has a default, which may be null and may be wrong."""
    return field.default is not NO_DEFAULT
