"""Random protobuf files, changes of them, and messages of theirs."""

from __future__ import annotations

import random
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FeatureSet,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

FD = FieldDescriptorProto
SCALARS = [number for number in range(1, 19) if number not in (FD.TYPE_GROUP, FD.TYPE_MESSAGE, FD.TYPE_ENUM)]
MESSAGES, ENUMS = ["A", "B", "C"], ["E", "G"]
NAMES = ["a", "b", "c", "d", "e", "f"]


class Files:
    """Makes files of messages A (the root), B and C and enums E and G, of proto2, proto3 or edition 2023."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def _chance(self, odds: float) -> bool:
        return self._random.random() < odds

    def file(self, syntax: str | None = None) -> FileDescriptorProto:
        syntax = syntax or self._random.choice(["proto2", "proto3", "editions"])
        made = FileDescriptorProto(name="x.proto", package="p")
        if syntax != "proto2":
            made.syntax = syntax
        if syntax == "editions":
            made.edition = 1000
            if self._chance(0.3):
                made.options.features.enum_type = FeatureSet.CLOSED
            if self._chance(0.2):
                made.options.features.message_encoding = FeatureSet.DELIMITED
        for name in ENUMS:
            made.enum_type.append(self._enum(name))
        for name in MESSAGES:
            made.message_type.append(self._message(made, name))
        return made

    def _enum(self, name: str) -> EnumDescriptorProto:
        made = EnumDescriptorProto(name=name)
        made.value.add(name=f"{name}_ZERO", number=0)
        for number in self._random.sample([1, 2, 3, -1], self._random.randint(0, 3)):
            made.value.add(name=f"{name}_V{number}".replace("-", "M"), number=number)
        return made

    def _message(self, file: FileDescriptorProto, name: str) -> DescriptorProto:
        made = DescriptorProto(name=name)
        numbers = self._random.sample(range(1, 8), self._random.randint(1, 5))
        for number, label in zip(numbers, self._random.sample(NAMES, len(numbers)), strict=True):
            self._add_field(file, made, label, number)
        self._tidy(made)
        return made

    def _add_field(self, file: FileDescriptorProto, message: DescriptorProto, name: str, number: int) -> None:
        if self._chance(0.12):
            self._add_map(message, name, number)
            return
        field = message.field.add(name=name, number=number, label=FD.LABEL_OPTIONAL)
        self._set_type(field)
        if self._chance(0.25):
            field.label = FD.LABEL_REPEATED
        elif file.syntax == "" and self._chance(0.15) and field.type != FD.TYPE_MESSAGE:
            field.label = FD.LABEL_REQUIRED
        elif self._chance(0.4):
            field.oneof_index = self._random.randint(0, 1)
        elif file.syntax == "proto3" and self._chance(0.2) and field.type != FD.TYPE_MESSAGE:
            field.proto3_optional = True

    def _set_type(self, field: FieldDescriptorProto) -> None:
        field.ClearField("type_name")
        field.type = self._random.choice([*SCALARS, FD.TYPE_MESSAGE, FD.TYPE_MESSAGE, FD.TYPE_ENUM, FD.TYPE_ENUM])
        if field.type == FD.TYPE_MESSAGE:
            field.type_name = f".p.{self._random.choice(MESSAGES)}"
        elif field.type == FD.TYPE_ENUM:
            field.type_name = f".p.{self._random.choice(ENUMS)}"

    def _add_map(self, message: DescriptorProto, name: str, number: int) -> None:
        entry = message.nested_type.add(name=f"{name.upper()}Entry")
        entry.options.map_entry = True
        key = self._random.choice([FD.TYPE_STRING, FD.TYPE_INT32, FD.TYPE_BOOL, FD.TYPE_FIXED64])
        entry.field.add(name="key", number=1, label=FD.LABEL_OPTIONAL, type=key)
        self._set_type(entry.field.add(name="value", number=2, label=FD.LABEL_OPTIONAL))
        type_name = f".p.{message.name}.{entry.name}"
        message.field.add(name=name, number=number, label=FD.LABEL_REPEATED, type=FD.TYPE_MESSAGE, type_name=type_name)

    def _tidy(self, message: DescriptorProto) -> None:
        """Declare the oneofs that fields name by 0 and 1, and those of proto3 `optional`; drop entries nobody uses."""
        used = sorted(
            {
                field.oneof_index
                for field in message.field
                if field.HasField("oneof_index") and not field.proto3_optional
            }
        )
        del message.oneof_decl[:]
        for index in used:
            message.oneof_decl.add(name=f"one{index}")
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
            elif field.HasField("oneof_index"):
                field.oneof_index = used.index(field.oneof_index)
        entries = {field.type_name.rpartition(".")[2] for field in message.field}
        kept = [entry for entry in message.nested_type if entry.name in entries]
        copies = [DescriptorProto.FromString(entry.SerializeToString()) for entry in kept]
        del message.nested_type[:]
        message.nested_type.extend(copies)

    def change(self, file: FileDescriptorProto) -> FileDescriptorProto:
        """A file like that one, with one to three changes that are more often harmless than not."""
        made = FileDescriptorProto.FromString(file.SerializeToString())
        for _ in range(self._random.randint(1, 3)):
            message = self._random.choice(made.message_type)
            self._change_message(made, message)
            self._tidy(message)
        if self._chance(0.2):
            changed = self._random.choice(made.enum_type)
            changed.CopyFrom(self._enum(changed.name))
        if self._chance(0.1) and made.syntax == "editions":
            made.options.features.enum_type = self._random.choice([FeatureSet.OPEN, FeatureSet.CLOSED])
        return made

    def _change_message(self, file: FileDescriptorProto, message: DescriptorProto) -> None:
        free_numbers = sorted(set(range(1, 8)) - {field.number for field in message.field})
        free_names = sorted(set(NAMES) - {field.name for field in message.field})
        roll = self._random.randint(0, 9)
        if roll <= 2 and free_numbers and free_names:
            self._add_field(file, message, self._random.choice(free_names), self._random.choice(free_numbers))
        elif message.field:
            field = self._random.choice(message.field)
            self._change_field(message, field, roll, free_names)

    def _change_field(
        self, message: DescriptorProto, field: FieldDescriptorProto, roll: int, free_names: list[str]
    ) -> None:
        is_map = field.type_name.endswith("Entry")
        if roll == 3:
            message.field.remove(field)
        elif roll == 4 and free_names and not is_map:
            field.name = self._random.choice(free_names)
        elif roll == 5 and not field.proto3_optional:
            field.ClearField("oneof_index")
        elif roll == 6 and field.label == FD.LABEL_OPTIONAL and not field.proto3_optional:
            field.oneof_index = self._random.randint(0, 1)
        elif roll == 7 and not is_map and field.type in _ALIKE:
            field.type = self._random.choice(_ALIKE[field.type])
        elif roll == 8 and not is_map and field.label != FD.LABEL_REQUIRED:
            self._set_type(field)
        elif roll == 9 and field.label == FD.LABEL_REQUIRED:
            field.label = FD.LABEL_OPTIONAL

    def fill(self, message: Message, depth: int = 3) -> Any:
        """Set random fields of `message`, and all required ones, with values that the types alike share."""
        for field in message.DESCRIPTOR.fields:
            if field.is_required or self._chance(0.7):
                self._set(message, field, depth)
        return message

    def _set(self, message: Message, field: FieldDescriptor, depth: int) -> None:
        if field.message_type is not None and depth == 0:
            return
        if is_map(field):
            key_type, value_type = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            if value_type.message_type is not None:
                self.fill(getattr(message, field.name)[self._scalar(key_type)], depth - 1)
            else:
                getattr(message, field.name)[self._scalar(key_type)] = self._scalar(value_type)
        elif field.is_repeated:
            for _ in range(self._random.randint(0, 2)):
                values = getattr(message, field.name)
                self.fill(values.add(), depth - 1) if field.message_type else values.append(self._scalar(field))
        elif field.message_type is not None:
            inner = getattr(message, field.name)
            inner.SetInParent()
            self.fill(inner, depth - 1)
        else:
            setattr(message, field.name, self._scalar(field))

    def _scalar(self, field: FieldDescriptor) -> Any:
        match field.type:
            case FD.TYPE_STRING:
                return self._random.choice(["", "a", "ä", "abc"])
            case FD.TYPE_BYTES:
                return self._random.choice([b"", b"a", b"\xff"])
            case FD.TYPE_BOOL:
                return self._chance(0.7)
            case FD.TYPE_FLOAT | FD.TYPE_DOUBLE:
                return self._random.choice([0.0, 1.5, -2.0])
            case FD.TYPE_ENUM:
                return self._random.choice([value.number for value in field.enum_type.values])
            case _:
                return self._random.choice([0, 1, 2, 100])


def _alike() -> dict[int, list[int]]:
    groups = [
        [FD.TYPE_INT32, FD.TYPE_INT64, FD.TYPE_UINT32, FD.TYPE_UINT64, FD.TYPE_BOOL],
        [FD.TYPE_SINT32, FD.TYPE_SINT64],
        [FD.TYPE_FIXED32, FD.TYPE_SFIXED32],
        [FD.TYPE_FIXED64, FD.TYPE_SFIXED64],
        [FD.TYPE_STRING, FD.TYPE_BYTES],
    ]
    return {one: group for group in groups for one in group}


_ALIKE = _alike()


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def descriptor_set(file: FileDescriptorProto) -> bytes:
    return bytes(FileDescriptorSet(file=[file]).SerializeToString())


def message_class(file: FileDescriptorProto) -> Any:
    """The Python class of p.A, from protobuf's own reading of the file."""
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    descriptor: Descriptor = pool.FindMessageTypeByName("p.A")
    return GetMessageClass(descriptor)
