"""Tables of Protobuf messages, for protocols whose messages need no generated code. Needs `protobuf`.

A line begins with the name of a message; indented lines continue it. A field is a number, a kind and a name. The name
ends in `*` for a repeated field, in `!` for a required one, and in `=DEFAULT` for a default.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    EDITION_2023,
    DescriptorProto,
    FeatureSet,
    FieldDescriptorProto,
    FileDescriptorProto,
)

_KINDS: Final = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
}


def described(name: str, package: str, table: str) -> FileDescriptorProto:
    """The descriptor of a table, as proto2, except that text has to be UTF-8: otherwise fields of text would sometimes
    be bytes."""
    file = FileDescriptorProto(name=name, package=package, syntax="editions", edition=EDITION_2023)
    file.options.features.repeated_field_encoding = FeatureSet.EXPANDED
    message: Any = None
    for line in table.splitlines():
        words = line.split()
        if line[:1].isalpha():
            message = file.message_type.add(name=words.pop(0))
        for number, kind, field in zip(words[::3], words[1::3], words[2::3], strict=True):
            add_field(file, message, int(number), kind, field)
    return file


def add_field(file: FileDescriptorProto, message: DescriptorProto, number: int, kind: str, text: str) -> None:
    """Adds a field to a message of the file; `text` is the name with its suffix."""
    name, _, default = text.partition("=")
    label = FieldDescriptorProto.LABEL_REPEATED if name[-1] == "*" else FieldDescriptorProto.LABEL_OPTIONAL
    field = message.field.add(name=name.rstrip("!*"), number=number, label=label)
    if name[-1] == "!":
        field.options.features.field_presence = FeatureSet.LEGACY_REQUIRED
    if kind in _KINDS:
        field.type = _KINDS[kind]
    else:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{file.package}.{kind}"
    if default:
        field.default_value = default
