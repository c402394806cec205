"""The reader makes messages of the bytes of a FileDescriptorSet: imports followed, names resolved, nothing taken on
trust. Protobuf's wire format is read as far as that needs it.

field   = key value;  key = varint(number << 3 | wire type)
value   = varint (0) | 8 bytes (1) | varint length, bytes (2) | fields, end of group (3 ... 4) | 4 bytes (5)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka_schema_compat.base.schema_model import UnreadableSchema
from pulsar_on_kafka_schema_compat.protobuf.descriptors import (
    FIELD_TYPES,
    PROTO2,
    PROTO3,
    Features,
    ProtobufEnum,
    ProtobufField,
    ProtobufMessage,
)

VARINT: Final = 0
LENGTH_DELIMITED: Final = 2
_START_GROUP: Final = 3
_END_GROUP: Final = 4
_FIXED: Final = {1: 8, 5: 4}
_MAX_NUMBER: Final = (1 << 29) - 1


class NotProtobuf(ValueError):
    """The bytes are no message."""


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a message: an unsigned integer or bytes. Other wire types are passed over.

    Raises:
        NotProtobuf: the bytes end too early or a key is none.
    """
    at = 0
    groups: list[int] = []
    while at < len(data):
        key, at = _varint(data, at)
        number, wire_type = key >> 3, key & 7
        if not 0 < number <= _MAX_NUMBER:
            raise NotProtobuf(f"field number {number} before byte {at}")
        if wire_type == VARINT:
            value, at = _varint(data, at)
            if not groups:
                yield number, value
        elif wire_type == LENGTH_DELIMITED:
            size, at = _varint(data, at)
            end = _end(data, at, size)
            if not groups:
                yield number, data[at:end]
            at = end
        elif wire_type in _FIXED:
            at = _end(data, at, _FIXED[wire_type])
        elif wire_type == _START_GROUP:
            groups.append(number)
        elif wire_type == _END_GROUP and groups and groups[-1] == number:
            groups.pop()
        else:
            raise NotProtobuf(f"wire type {wire_type} of field {number} before byte {at}")
    if groups:
        raise NotProtobuf(f"group {groups[-1]} does not end")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned 64-bit integer and where the next byte is."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise NotProtobuf(f"ends within a number at byte {at}")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise NotProtobuf(f"a number of more than 10 bytes before byte {at}")


def _end(data: bytes, at: int, size: int) -> int:
    if size > len(data) - at:
        raise NotProtobuf(f"{size} bytes promised at byte {at}, {len(data) - at} are left")
    return at + size


def signed(value: int) -> int:
    """A varint read as int32 or int64."""
    return value - (1 << 64) if value >> 63 else value


_REPEATED: Final = 3
_REQUIRED: Final = 2
_GROUP: Final = 10
_MESSAGE: Final = 11
_ENUM: Final = 14
# What a field of that type is of; 0 is left out by those who do not know yet.
_NAMED_TYPES: Final[Mapping[int, tuple[type[ProtobufMessage | ProtobufEnum], ...]]] = {
    0: (ProtobufMessage, ProtobufEnum),
    _GROUP: (ProtobufMessage,),
    _MESSAGE: (ProtobufMessage,),
    _ENUM: (ProtobufEnum,),
}
# As deep as protobuf's own parsers go.
_MAX_NESTING: Final = 100
# 2023, 2024 and 2026 have proto3's defaults, but for presence, which is not on the wire.
_EDITIONS: Final = {998: PROTO2, 999: PROTO3, 1000: PROTO3, 1001: PROTO3, 1002: PROTO3}


@dataclass(frozen=True, slots=True)
class _Unresolved:
    """A field's message or enum has to be found yet; `scope` is the message that the field is in."""

    field: ProtobufField
    type_name: str
    scope: str
    required: tuple[type[ProtobufMessage | ProtobufEnum], ...]
    is_delimited: bool


class DescriptorRecord:
    """A record holds the fields of one message of the descriptors, by number; of a repeated field of scalars the last
    one counts."""

    __slots__ = ("_fields", "what")

    def __init__(self, data: bytes, what: str) -> None:
        self.what = what
        self._fields: dict[int, list[int | bytes]] = {}
        try:
            for number, value in fields(data):
                self._fields.setdefault(number, []).append(value)
        except NotProtobuf as error:
            raise UnreadableSchema(f"{what} is no protobuf: {error}") from None

    def integer(self, number: int, default: int = 0) -> int:
        found = [value for value in self._fields.get(number, ()) if isinstance(value, int)]
        return signed(found[-1]) if found else default

    def has(self, number: int) -> bool:
        return number in self._fields

    def blobs(self, number: int) -> Iterator[bytes]:
        return (value for value in self._fields.get(number, ()) if isinstance(value, bytes))

    def texts(self, number: int) -> list[str]:
        try:
            return [value.decode() for value in self.blobs(number)]
        except UnicodeDecodeError:
            raise UnreadableSchema(f"field {number} of {self.what} is not UTF-8") from None

    def text(self, number: int) -> str:
        return (self.texts(number) or [""])[-1]

    def merged(self, number: int, what: str) -> DescriptorRecord:
        """A message field; several of them count as one, as everywhere in protobuf."""
        return DescriptorRecord(b"".join(self.blobs(number)), what)

    def features(self, options: int, number: int, outer: Features) -> Features:
        """The features of `outer` with the overrides in field `number` of the options in field `options`."""
        if not self.has(options):
            return outer
        found = self.merged(options, f"the options of {self.what}").merged(number, f"the features of {self.what}")
        given = {feature: found.integer(feature) for feature in (1, 2, 5) if found.has(feature)}
        if 0 in given.values():
            raise UnreadableSchema(f"{self.what} has features without a meaning: {given}")
        return outer.overridden(given)


class DescriptorSet:
    """The set holds the files that one file imports, itself included, and everything defined in them.

    Raises:
        UnreadableSchema: from the constructor; the message names the fault.
    """

    def __init__(self, data: bytes, root_file: str) -> None:
        self._types: dict[str, ProtobufMessage | ProtobufEnum] = {}
        self._defined_in: dict[str, str] = {}
        self._unresolved: list[_Unresolved] = []
        for file in _imported(data, root_file):
            self._read_file(file)
        for reference in self._unresolved:
            self._resolve(reference)

    def message(self, full_name: str, file: str) -> ProtobufMessage:
        """The message of that name, which is defined in that file.

        Raises:
            UnreadableSchema: there is none.
        """
        found = self._types.get(full_name)
        if not isinstance(found, ProtobufMessage) or self._defined_in[full_name] != file:
            raise UnreadableSchema(f"{file!r:.200} defines no message {full_name!r:.200}")
        return found

    def _read_file(self, file: DescriptorRecord) -> None:
        features = file.features(8, 50, _of_syntax(file))
        package, name = file.text(2), file.text(1)
        self._read_enums(file, 5, package, features, name)
        waiting = deque((data, package, features, 1) for data in file.blobs(4))
        while waiting:
            data, scope, outer, depth = waiting.popleft()
            if depth > _MAX_NESTING:
                raise UnreadableSchema(f"{scope[:100]}... is nested deeper than {_MAX_NESTING} messages")
            record = DescriptorRecord(data, f"a message of {scope or name}")
            full_name, inner = _join(scope, record.text(1)), record.features(7, 12, outer)
            self._define(full_name, self._message(record, full_name, inner), name)
            self._read_enums(record, 4, full_name, inner, name)
            waiting.extend((nested, full_name, inner, depth + 1) for nested in record.blobs(3))

    def _read_enums(self, container: DescriptorRecord, number: int, scope: str, outer: Features, file: str) -> None:
        for data in container.blobs(number):
            found = _enum(DescriptorRecord(data, f"an enum of {scope or file}"), scope, outer)
            self._define(_join(scope, found.name), found, file)

    def _define(self, full_name: str, found: ProtobufMessage | ProtobufEnum, file: str) -> None:
        if not full_name.rpartition(".")[2]:
            raise UnreadableSchema(f"a definition without a name in {file!r:.200}")
        if full_name in self._types:
            raise UnreadableSchema(f"{full_name} is defined in {self._defined_in[full_name]!r} and in {file!r}")
        self._types[full_name] = found
        self._defined_in[full_name] = file

    def _message(self, record: DescriptorRecord, full_name: str, features: Features) -> ProtobufMessage:
        is_map_entry = record.merged(7, f"the options of {full_name}").integer(7) != 0
        oneofs = tuple(DescriptorRecord(data, f"a oneof of {full_name}").text(1) for data in record.blobs(8))
        message = ProtobufMessage(full_name, is_map_entry, oneofs)
        for data in record.blobs(2):
            one = self._field(DescriptorRecord(data, f"a field of {full_name}"), message, features)
            if one.number in message.by_number or one.name in message.by_name:
                raise UnreadableSchema(f"{full_name} has two fields of number {one.number} or name {one.name!r:.100}")
            message.by_number[one.number] = message.by_name[one.name] = one
        return message

    def _field(self, record: DescriptorRecord, message: ProtobufMessage, outer: Features) -> ProtobufField:
        name, number = record.text(1), record.integer(3)
        where = f"{message.full_name}.{name}"
        if not name or not 0 < number <= _MAX_NUMBER:
            raise UnreadableSchema(f"{where} = {number}: a field has a name and a number from 1 to {_MAX_NUMBER}")
        oneof = record.integer(9) if record.has(9) else None
        if oneof is not None and not 0 <= oneof < len(message.oneofs):
            raise UnreadableSchema(f"{where} is in oneof {oneof}, of which there are {len(message.oneofs)}")
        features = record.features(8, 21, outer)
        type_name, type_number = record.text(6), record.integer(5)
        if type_number not in FIELD_TYPES and not (type_number == 0 and type_name):
            raise UnreadableSchema(f"{where} has the type {type_number}, which is none")
        label = record.integer(4)
        found = ProtobufField(
            name=name,
            number=number,
            type=FIELD_TYPES.get(type_number, FIELD_TYPES[_MESSAGE]),
            is_repeated=label == _REPEATED,
            is_required=label == _REQUIRED or (features.is_required and label != _REPEATED and oneof is None),
            oneof=None if record.integer(17) else oneof,
        )
        if type_number in _NAMED_TYPES:
            required = _NAMED_TYPES[type_number]
            self._unresolved.append(_Unresolved(found, type_name, message.full_name, required, features.is_delimited))
        return found

    def _resolve(self, reference: _Unresolved) -> None:
        """Find what a field is of: a full name starts with a dot, another one is looked for from the inside out."""
        name, scope, one = reference.type_name, reference.scope, reference.field
        found = self._types.get(name[1:]) if name.startswith(".") else self._types.get(_join(scope, name))
        while found is None and scope and not name.startswith("."):
            scope = scope.rpartition(".")[0]
            found = self._types.get(_join(scope, name))
        if not isinstance(found, reference.required):
            raise UnreadableSchema(
                f"{reference.scope}.{one.name} is of {name!r:.200}, which is not defined as its type"
            )
        one.target = found
        if isinstance(found, ProtobufEnum):
            one.type = FIELD_TYPES[_ENUM]
        elif reference.is_delimited and not one.is_map:
            one.type = FIELD_TYPES[_GROUP]


def _enum(record: DescriptorRecord, scope: str, outer: Features) -> ProtobufEnum:
    name = record.text(1)
    values = [DescriptorRecord(data, f"a value of {name}") for data in record.blobs(2)]
    numbers = {value.text(1): value.integer(2) for value in values}
    if not numbers or len(numbers) < len(values):
        raise UnreadableSchema(f"the enum {_join(scope, name)} must have values, of different names")
    return ProtobufEnum(name, numbers, record.features(3, 7, outer).is_enum_closed)


def _of_syntax(file: DescriptorRecord) -> Features:
    syntax, edition = file.text(12), file.integer(14)
    if syntax in ("", "proto2") and not edition:
        return PROTO2
    if syntax == "proto3" and not edition:
        return PROTO3
    if syntax in ("editions", "") and edition in _EDITIONS:
        return _EDITIONS[edition]
    raise UnreadableSchema(f"{file.what} has the syntax {syntax!r:.60}, edition {edition}, which is not known")


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _imported(data: bytes, root_file: str) -> list[DescriptorRecord]:
    """`root_file` and what it imports, in turn, of the files in the set."""
    files: dict[str, DescriptorRecord] = {}
    texts: dict[str, bytes] = {}
    for blob in DescriptorRecord(data, "the file descriptor set").blobs(1):
        file = DescriptorRecord(blob, "a file descriptor")
        name = file.text(1)
        file.what = f"the file {name!r:.200}"
        if texts.setdefault(name, blob) != blob:
            raise UnreadableSchema(f"the file descriptor set has two files named {name!r:.200}")
        files[name] = file
    order: dict[str, list[str]] = {}
    waiting = [(root_file, "the root")]
    while waiting:
        name, importer = waiting.pop()
        if name in order:
            continue
        if name not in files:
            raise UnreadableSchema(f"the file {name!r:.200}, imported by {importer}, is not in the file descriptor set")
        order[name] = files[name].texts(3)
        waiting += [(imported, repr(name)[:200]) for imported in order[name]]
    _refuse_circles(order)
    return [files[name] for name in order]


def _refuse_circles(imports: Mapping[str, list[str]]) -> None:
    importers: dict[str, list[str]] = {}
    left = {name: len(set(imported)) for name, imported in imports.items()}
    for name, imported in imports.items():
        for one in set(imported):
            importers.setdefault(one, []).append(name)
    free = [name for name, count in left.items() if not count]
    for name in free:
        for importer in importers.get(name, ()):
            left[importer] -= 1
            if not left[importer]:
                free.append(importer)
    if len(free) < len(imports):
        circle = sorted(name for name, count in left.items() if count)
        raise UnreadableSchema(f"files import each other in a circle, among {', '.join(circle[:5])[:300]}")
