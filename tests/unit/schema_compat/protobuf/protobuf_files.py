"""Short words for protobuf descriptors in tests."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FeatureSet,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from pulsar_on_kafka.schema_compat import SchemaInfo, SchemaType
from pulsar_on_kafka_schema_compat.protobuf.protobuf_checker import protobuf_native_checker

OK: list[tuple[str, str]] = []
LABELS = {"optional": 1, "required": 2, "repeated": 3}


@dataclass(frozen=True)
class F:
    """A field; `of` is the full name of its message or enum, `presence` a proto3 `optional`."""

    name: str
    number: int
    type: str = "int32"
    label: str = "optional"
    of: str = ""
    oneof: str = ""
    presence: bool = False
    features: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class M:
    """A map field: `value` is a type, or the full name of a message or enum with `kind` `message` or `enum`."""

    name: str
    number: int
    key: str = "string"
    value: str = "int32"
    kind: str = ""


def _set_features(features: FeatureSet, given: Mapping[str, str]) -> None:
    for name, value in given.items():
        setattr(features, name, FeatureSet.DESCRIPTOR.fields_by_name[name].enum_type.values_by_name[value].number)


def proto_field(one: F) -> FieldDescriptorProto:
    proto = FieldDescriptorProto(name=one.name, number=one.number, label=LABELS[one.label])
    proto.type = FieldDescriptorProto.Type.Value(f"TYPE_{one.type.upper()}")
    if one.of:
        proto.type_name = f".{one.of}"
    if one.presence:
        proto.proto3_optional = True
    if one.features:
        _set_features(proto.options.features, one.features)
    return proto


def message(
    name: str, *fields: F | M, nested: Sequence[Any] = (), enums: Sequence[Any] = (), scope: str = "p"
) -> DescriptorProto:
    """A message in `scope`, its oneofs in the order in which its fields name them, those of `optional` last."""
    proto = DescriptorProto(name=name)
    oneofs: list[str] = []
    for one in fields:
        if isinstance(one, M):
            entry = f"{one.name.title()}Entry"
            kind = one.kind or one.value
            value = F("value", 2, kind, of=one.value if one.kind else "")
            proto.nested_type.append(message(entry, F("key", 1, one.key), value))
            proto.nested_type[-1].options.map_entry = True
            proto.field.append(proto_field(F(one.name, one.number, "message", "repeated", f"{scope}.{name}.{entry}")))
            continue
        proto.field.append(proto_field(one))
        if one.oneof and one.oneof not in oneofs:
            oneofs.append(one.oneof)
    oneofs += [f"_{one.name}" for one in fields if isinstance(one, F) and one.presence]
    for one, made in zip(fields, proto.field, strict=True):
        if isinstance(one, F) and (one.oneof or one.presence):
            made.oneof_index = oneofs.index(one.oneof or f"_{one.name}")
    for oneof in oneofs:
        proto.oneof_decl.add(name=oneof)
    proto.nested_type.extend(nested)
    proto.enum_type.extend(enums)
    return proto


def enum(name: str, features: Mapping[str, str] | None = None, /, **values: int) -> EnumDescriptorProto:
    proto = EnumDescriptorProto(name=name)
    for value, number in values.items():
        proto.value.add(name=value, number=number)
    if len(set(values.values())) < len(values):
        proto.options.allow_alias = True
    if features:
        _set_features(proto.options.features, features)
    return proto


def file(
    *definitions: Any,
    name: str = "order.proto",
    package: str = "p",
    syntax: str = "proto3",
    imports: Sequence[str] = (),
    edition: int = 0,
    features: Mapping[str, str] | None = None,
) -> FileDescriptorProto:
    proto = FileDescriptorProto(name=name, package=package, dependency=imports)
    if edition:
        proto.syntax, proto.edition = "editions", edition
    elif syntax != "proto2":
        proto.syntax = syntax
    for one in definitions:
        (proto.enum_type if isinstance(one, EnumDescriptorProto) else proto.message_type).append(one)
    if features:
        _set_features(proto.options.features, features)
    return proto


def definition(data: bytes, root: str = "p.Order", root_file: str = "order.proto", **properties: str) -> SchemaInfo:
    text = {
        "fileDescriptorSet": base64.b64encode(data).decode(),
        "rootMessageTypeName": root,
        "rootFileDescriptorName": root_file,
    }
    return SchemaInfo(SchemaType.PROTOBUF_NATIVE, json.dumps(text).encode(), properties=properties)


def native(*files: FileDescriptorProto, root: str = "p.Order", **properties: str) -> SchemaInfo:
    """A schema as Pulsar's clients send it; the root is in the first file."""
    return definition(FileDescriptorSet(file=files).SerializeToString(), root, files[0].name, **properties)


def found(new: SchemaInfo, old: SchemaInfo) -> list[tuple[str, str]]:
    """Rules and paths when `new` reads what `old` wrote, sorted."""
    checker = protobuf_native_checker(new)
    return sorted((one.rule, one.path) for one in checker.differences(checker.parse(new), checker.parse(old)))
