"""One look at a pair of types tells which parts face each other, and what is wrong with the two themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pulsar_on_kafka.schema_compat.avro.avro_types import (
    NO_DEFAULT,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Record,
    Union,
    kind_of,
    simple_name,
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
    """True when a reader of this kind can read the writer's kind; unions are not asked here."""
    kind, written = kind_of(reader), kind_of(writer)
    return kind == written or kind in PROMOTIONS.get(written, ())


def names_match(reader: Enum | Fixed | Record, writer: Enum | Fixed | Record) -> bool:
    """True when the simple names are the same, or the reader's aliases have the writer's full name."""
    return simple_name(reader.name) == simple_name(writer.name) or writer.name in reader.aliases


def candidates(reader: Union, writer: AvroType) -> Iterator[AvroType]:
    """The branches that could read `writer`, which is no union, the likeliest first."""
    written = kind_of(writer)
    if isinstance(writer, Record):
        name = simple_name(writer.name)
        yield from (branch for branch in reader.of_simple_name(name) if isinstance(branch, Record))
        yield from (branch for branch in reader.of_kind(written) if _other_name(branch, name))
        return
    yield from reader.of_kind(written)
    for kind in PROMOTIONS.get(written, ()):
        yield from reader.of_kind(kind)


def _other_name(branch: AvroType, name: str) -> bool:
    return isinstance(branch, Record) and simple_name(branch.name) != name


def facing_fields(reader: Record, writer: Record) -> Iterator[tuple[int, Field, Field | None]]:
    """Each of the reader's fields, by index, with the field of the writer that it reads; None where there is none."""
    written = writer.fields
    if reader.has_field_aliases and (reader.name == writer.name or writer.name in reader.aliases):
        written = _renamed(reader, writer)
    for index, field in enumerate(reader.fields.values()):
        yield index, field, written.get(field.name)


def _renamed(reader: Record, writer: Record) -> dict[str, Field]:
    """The writer's fields under the names that the reader's aliases give them.

    Aliases of fields hold for the record that has them: for the same full name, or one among the record's aliases.
    Source: Avro `Schema.applyAliases`. Where that would give two fields one name it breaks; then an alias counts only
    for a field that the writer does not have itself.
    """
    new_names = {alias: field.name for field in reader.fields.values() for alias in field.aliases}
    renamed: dict[str, Field] = {}
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
    """What is wrong with two types themselves, their parts left aside: rules, each with the member that breaks it."""
    if not kinds_match(reader, writer):
        return [("TYPE_MISMATCH", "")]
    found: list[tuple[str, str]] = []
    if isinstance(reader, Enum | Fixed) and isinstance(writer, Enum | Fixed) and not names_match(reader, writer):
        found.append(("NAME_MISMATCH", "name"))
    if isinstance(reader, Fixed) and isinstance(writer, Fixed) and reader.size != writer.size:
        found.append(("FIXED_SIZE_MISMATCH", "size"))
    return found


def parts(reader: AvroType, writer: AvroType) -> Iterator[tuple[tuple[str | int, ...], AvroType, AvroType]]:
    """The pairs that must all be readable for `reader` to read `writer`, each with the steps to it; not for unions."""
    match reader, writer:
        case Array(), Array():
            yield ("items",), reader.items, writer.items
        case Map(), Map():
            yield ("values",), reader.values, writer.values
        case Record(), Record():
            for index, field, written in facing_fields(reader, writer):
                if written is not None:
                    yield ("fields", index, "type"), field.type, written.type
        case _:
            return


def missing_fields(reader: AvroType, writer: AvroType) -> Iterator[tuple[int, Field]]:
    """The reader's fields that need their defaults."""
    if isinstance(reader, Record) and isinstance(writer, Record):
        for index, field, written in facing_fields(reader, writer):
            if written is None:
                yield index, field


def has_default(field: Field) -> bool:
    """True when the field has a default, which may be null and may be wrong."""
    return field.default is not NO_DEFAULT
