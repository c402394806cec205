"""Descriptors describe the messages and enums of a FileDescriptorSet, with the features of their syntax or edition
worked out.

Field numbers are those of `google/protobuf/descriptor.proto`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final


class ProtobufKind(enum.Enum):
    """Types of one kind share a form on the wire, so that one may be read as another."""

    VARINT = "int32, int64, uint32, uint64, bool or enum"
    ZIGZAG = "sint32 or sint64"
    FIXED32 = "fixed32 or sfixed32"
    FIXED64 = "fixed64 or sfixed64"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "bytes"
    MESSAGE = "message"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class FieldType:
    """A field has one of the types of FieldDescriptorProto."""

    name: str
    kind: ProtobufKind


FIELD_TYPES: Final[Mapping[int, FieldType]] = {
    1: FieldType("double", ProtobufKind.DOUBLE),
    2: FieldType("float", ProtobufKind.FLOAT),
    3: FieldType("int64", ProtobufKind.VARINT),
    4: FieldType("uint64", ProtobufKind.VARINT),
    5: FieldType("int32", ProtobufKind.VARINT),
    6: FieldType("fixed64", ProtobufKind.FIXED64),
    7: FieldType("fixed32", ProtobufKind.FIXED32),
    8: FieldType("bool", ProtobufKind.VARINT),
    9: FieldType("string", ProtobufKind.STRING),
    10: FieldType("group", ProtobufKind.GROUP),
    11: FieldType("message", ProtobufKind.MESSAGE),
    12: FieldType("bytes", ProtobufKind.BYTES),
    13: FieldType("uint32", ProtobufKind.VARINT),
    14: FieldType("enum", ProtobufKind.VARINT),
    15: FieldType("sfixed32", ProtobufKind.FIXED32),
    16: FieldType("sfixed64", ProtobufKind.FIXED64),
    17: FieldType("sint32", ProtobufKind.ZIGZAG),
    18: FieldType("sint64", ProtobufKind.ZIGZAG),
}


@dataclass(frozen=True, slots=True)
class Features:
    """Features are what an edition or syntax means, as far as it reaches the wire; inner scopes override outer ones."""

    is_required: bool
    is_enum_closed: bool
    is_delimited: bool

    def overridden(self, given: Mapping[int, int]) -> Features:
        """The features with the fields of a FeatureSet, by number, in their place."""
        presence, enum_type, encoding = given.get(1), given.get(2), given.get(5)
        return replace(
            self,
            is_required=self.is_required if presence is None else presence == _LEGACY_REQUIRED,
            is_enum_closed=self.is_enum_closed if enum_type is None else enum_type == _CLOSED,
            is_delimited=self.is_delimited if encoding is None else encoding == _DELIMITED,
        )


_LEGACY_REQUIRED: Final = 3
_CLOSED: Final = 2
_DELIMITED: Final = 2
PROTO2: Final = Features(is_required=False, is_enum_closed=True, is_delimited=False)
# Also the default of the editions.
PROTO3: Final = Features(is_required=False, is_enum_closed=False, is_delimited=False)


@dataclass(eq=False, slots=True)
class ProtobufEnum:
    """An enum has numbers; `numbers` is by name, aliases included."""

    name: str
    numbers: Mapping[str, int]
    is_closed: bool


@dataclass(eq=False, slots=True)
class ProtobufField:
    """A field has a number and a type; `target` is what a message, group or enum field is of.

    Args:
        oneof: the index of its oneof in the message; None outside of one, and for a proto3 `optional`.
    """

    name: str
    number: int
    type: FieldType
    is_repeated: bool
    is_required: bool
    oneof: int | None
    target: ProtobufMessage | ProtobufEnum | None = None

    @property
    def is_map(self) -> bool:
        return self.is_repeated and isinstance(self.target, ProtobufMessage) and self.target.is_map_entry


@dataclass(eq=False, slots=True)
class ProtobufMessage:
    """A message has fields; `oneofs` are names by index, synthetic ones included."""

    full_name: str
    is_map_entry: bool
    oneofs: tuple[str, ...]
    by_number: dict[int, ProtobufField] = field(default_factory=dict)
    by_name: dict[str, ProtobufField] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.full_name.rpartition(".")[2]
