"""The comparison decides whether messages written with one descriptor can be read with another. Fields are compared by
number (rules, section 6).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from pulsar_on_kafka_schema_compat.base.schema_model import Difference, UnreadableSchema
from pulsar_on_kafka_schema_compat.protobuf.descriptors import (
    ProtobufEnum,
    ProtobufField,
    ProtobufKind,
    ProtobufMessage,
)

# Fields looked at, all pairs of messages together; a pair is looked at once.
MAX_FIELDS: Final = 2_000_000


def root_differences(reader: ProtobufMessage, writer: ProtobufMessage) -> Iterator[Difference]:
    """The comparison of a released Pulsar broker: the full names of the root messages."""
    if reader.full_name != writer.full_name:
        message = f"the reader's root message is {reader.full_name}, the writer's {writer.full_name}"
        yield Difference(reader.name, "ROOT_MESSAGE_CHANGED", message)


def message_differences(reader: ProtobufMessage, writer: ProtobufMessage) -> Iterator[Difference]:
    """Every reason why `reader` loses or misreads what was written with `writer`, nearest to the root first.

    Raises:
        UnreadableSchema: the two are too large to be compared.
    """
    yield from root_differences(reader, writer)
    if reader.full_name == writer.full_name:
        yield from _Comparison(reader, writer).differences()


class _Comparison:
    """The comparison goes through pairs of messages in the order of their distance from the roots; each pair of
    messages or enums once."""

    def __init__(self, reader: ProtobufMessage, writer: ProtobufMessage) -> None:
        self._met: set[tuple[ProtobufMessage | ProtobufEnum, ProtobufMessage | ProtobufEnum]] = {(writer, reader)}
        self._waiting = deque([(writer, reader, reader.name)])
        self._fields = 0

    def differences(self) -> Iterator[Difference]:
        while self._waiting:
            writer, reader, path = self._waiting.popleft()
            self._fields += len(writer.by_number) + len(reader.by_number)
            if self._fields > MAX_FIELDS:
                raise UnreadableSchema(f"to compare the two takes looking at more than {MAX_FIELDS} fields")
            yield from _numbers_changed(writer, reader, path)
            yield from _required(writer, reader, path)
            yield from _oneof_conflicts(writer, reader, path)
            yield from _oneof_members_removed(writer, reader, path)
            for number, field in sorted(reader.by_number.items()):
                if number in writer.by_number:
                    yield from self._field(writer.by_number[number], field, f"{path}.{field.name}")

    def _field(self, writer: ProtobufField, reader: ProtobufField, path: str) -> Iterator[Difference]:
        both = f"the reader has {_described(reader)}, the writer {_described(writer)}"
        if writer.is_map != reader.is_map:
            yield Difference(path, "MAP_CHANGED", both)
            return
        if writer.is_repeated != reader.is_repeated:
            yield Difference(path, "CARDINALITY_CHANGED", both)
        old, new = writer.type.kind, reader.type.kind
        if old is not new and (old, new) != (ProtobufKind.STRING, ProtobufKind.BYTES):
            yield Difference(path, "TYPE_CHANGED", f"the reader has {reader.type.name}, the writer {writer.type.name}")
        elif writer.target is not None and reader.target is not None:
            yield from self._targets(writer.target, reader.target, path)

    def _targets(
        self, writer: ProtobufMessage | ProtobufEnum, reader: ProtobufMessage | ProtobufEnum, path: str
    ) -> Iterator[Difference]:
        """Compares the types of a field; a message is queued."""
        if (writer, reader) in self._met:
            return
        self._met.add((writer, reader))
        if isinstance(writer, ProtobufMessage) and isinstance(reader, ProtobufMessage):
            self._waiting.append((writer, reader, path))
        elif isinstance(writer, ProtobufEnum) and isinstance(reader, ProtobufEnum):
            yield from _enum_differences(writer, reader, f"{path}.{reader.name}")


def _described(field: ProtobufField) -> str:
    if field.is_map:
        return "a map"
    return f"{'repeated' if field.is_repeated else 'singular'} {field.type.name}"


def _numbers_changed(writer: ProtobufMessage, reader: ProtobufMessage, path: str) -> Iterator[Difference]:
    for name, field in sorted(reader.by_name.items()):
        was = writer.by_name.get(name)
        if was is not None and was.number != field.number:
            message = f"the reader has it under {field.number}, the writer under {was.number}"
            yield Difference(f"{path}.{name}", "FIELD_NUMBER_CHANGED", message)


def _required(writer: ProtobufMessage, reader: ProtobufMessage, path: str) -> Iterator[Difference]:
    for number, field in sorted(reader.by_number.items()):
        was = writer.by_number.get(number)
        if field.is_required and (was is None or not was.is_required):
            has = "does not have it" if was is None else "may leave it out"
            yield Difference(
                f"{path}.{field.name}", "REQUIRED_FIELD_NOT_GUARANTEED", f"the reader requires it, the writer {has}"
            )


def _members(message: ProtobufMessage) -> dict[int, list[ProtobufField]]:
    """The fields of each real oneof, by its index."""
    found: dict[int, list[ProtobufField]] = {}
    for _, field in sorted(message.by_number.items()):
        if field.oneof is not None:
            found.setdefault(field.oneof, []).append(field)
    return found


def _oneof_conflicts(writer: ProtobufMessage, reader: ProtobufMessage, path: str) -> Iterator[Difference]:
    """Fields of one oneof that the writer could set at once: the reader would keep the last alone."""
    for index, members in _members(reader).items():
        written = [writer.by_number[field.number] for field in members if field.number in writer.by_number]
        together = {field.oneof for field in written}
        if len(written) > 1 and (len(together) > 1 or None in together):
            names = ", ".join(field.name for field in written)
            yield Difference(
                f"{path}.{reader.oneofs[index]}",
                "ONEOF_CONFLICT",
                f"the reader has {names} in a oneof, the writer does not have them in one",
            )


def _oneof_members_removed(writer: ProtobufMessage, reader: ProtobufMessage, path: str) -> Iterator[Difference]:
    """A member of a remaining oneof that was removed: the reader takes the oneof for empty."""
    still = _members(reader)
    kept = {field.number for members in still.values() for field in members}
    names = {reader.oneofs[index] for index in still}
    for index, members in _members(writer).items():
        name = writer.oneofs[index]
        if name not in names and not any(field.number in kept for field in members):
            continue
        for field in members:
            if field.number not in reader.by_number:
                message = f"the writer has {field.name} = {field.number} in it, the reader nowhere"
                yield Difference(f"{path}.{name}", "ONEOF_MEMBER_REMOVED", message)


def _enum_differences(writer: ProtobufEnum, reader: ProtobufEnum, path: str) -> Iterator[Difference]:
    rule = "ENUM_VALUE_NOT_READABLE"
    for name, number in sorted(reader.numbers.items()):
        was = writer.numbers.get(name, number)
        if was != number:
            yield Difference(path, rule, f"the reader has {name} = {number}, the writer {name} = {was}")
    if not reader.is_closed:
        return
    if not writer.is_closed:
        yield Difference(path, rule, "the reader's enum is closed, the writer's is open: it may hold any number")
    readable = set(reader.numbers.values())
    for name, number in sorted(writer.numbers.items(), key=lambda item: (item[1], item[0])):
        if number not in readable:
            yield Difference(path, rule, f"the writer has {name} = {number}, the reader, closed, has no such number")
