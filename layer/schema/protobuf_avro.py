"""The Avro definition that stands for a Protobuf message in schemas of type PROTOBUF.

Byte for byte that of Java's `ProtobufSchema`, that is of `ProtobufData` and `Schema.toString` of Avro 1.11: full names
are those of the Java classes, a message field is a union with null, a map is an array of its entries, unsigned numbers
are the signed ones of the same bits.
"""

from __future__ import annotations

import json
import math
import struct
from pathlib import PurePosixPath
from typing import Any, Final

from pulsar_on_kafka.schema_compat.protobuf.descriptors import FIELD_TYPES

_AVRO_TYPES: Final = {
    "double": '"double"', "float": '"float"', "bool": '"boolean"', "bytes": '"bytes"',
    "string": '{"type":"string","avro.java.string":"String"}',
    **dict.fromkeys(("int32", "uint32", "sint32", "fixed32", "sfixed32"), '"int"'),
    **dict.fromkeys(("int64", "uint64", "sint64", "fixed64", "sfixed64"), '"long"'),
}  # fmt: skip
_WORDS_OF_AVRO: Final = frozenset(
    ("record", "enum", "array", "map", "union", "fixed", "string", "bytes", "int", "long", "float", "double", "boolean",
     "null")
)  # fmt: skip
_LABELS: Final = {1: "LABEL_OPTIONAL", 2: "LABEL_REQUIRED", 3: "LABEL_REPEATED"}


def avro_text(message: object) -> str:
    """The definition for the descriptor `message`.

    Raises:
        TypeError: it has a group, or an endless default or NaN, which Avro cannot say; Java's client refuses them too.
    """
    return _Writer().record(message, None)


def parsing_info(message: Any) -> str:
    """The parsing info that Java keeps beside it: number, name, type and label of the message's own fields, as JSON."""
    from google.protobuf.descriptor_pb2 import DescriptorProto

    proto = DescriptorProto()
    message.CopyToProto(proto)
    found = [
        {"number": field.number, "name": field.name, "type": FIELD_TYPES[field.type].name.upper(),
         "label": _LABELS[field.label], "definition": None}
        for field in proto.field
    ]  # fmt: skip
    return json.dumps(found, separators=(",", ":"))


class _Writer:
    """Writes each named type once and names it after that; `space` is the namespace around, None for none."""

    def __init__(self) -> None:
        self._written: set[tuple[str, str]] = set()

    def record(self, message: Any, space: str | None) -> str:
        own_space = _namespace(message)
        if (reference := self._reference(message.name, own_space, space)) is not None:
            return reference
        fields = ",".join(self._field(field, own_space) for field in message.fields)
        return f'{{"type":"record",{_name(message.name, own_space, space)},"fields":[{fields}]}}'

    def _enum(self, enum: Any, space: str) -> str:
        own_space = _namespace(enum)
        if (reference := self._reference(enum.name, own_space, space)) is not None:
            return reference
        symbols = ",".join(json.dumps(value.name) for value in enum.values)
        return f'{{"type":"enum",{_name(enum.name, own_space, space)},"symbols":[{symbols}]}}'

    def _reference(self, name: str, own_space: str, space: str | None) -> str | None:
        if (own_space, name) not in self._written:
            self._written.add((own_space, name))
            return None
        is_short = not own_space or (own_space == space and name not in _WORDS_OF_AVRO)
        return json.dumps(name if is_short else f"{own_space}.{name}")

    def _field(self, field: Any, space: str) -> str:
        default = _default(field)
        ending = "" if default is None else f',"default":{default}'
        return f'{{"name":{json.dumps(field.name)},"type":{self._type(field, space)}{ending}}}'

    def _type(self, field: Any, space: str) -> str:
        name = FIELD_TYPES[field.type].name
        if name == "group":
            raise TypeError(f"field {field.full_name} is a group, which a schema of type PROTOBUF cannot have")
        if name == "message":
            inner = self.record(field.message_type, space)
            if not _is_repeated(field) and not _is_required(field):
                inner = f'["null",{inner}]'
        else:
            inner = self._enum(field.enum_type, space) if name == "enum" else _AVRO_TYPES[name]
        return f'{{"type":"array","items":{inner}}}' if _is_repeated(field) else inner


def _name(name: str, own_space: str, space: str | None) -> str:
    if own_space == (space or ""):
        return f'"name":{json.dumps(name)}'
    return f'"name":{json.dumps(name)},"namespace":{json.dumps(own_space)}'


def _namespace(declared: Any) -> str:
    """The Java package and outer classes of a message or enum."""
    from google.protobuf.descriptor_pb2 import FileOptions

    file, options = declared.file, FileOptions.FromString(declared.file.GetOptions().SerializeToString())
    package = options.java_package if options.HasField("java_package") else file.package
    classes = []
    if not options.java_multiple_files:
        words = PurePosixPath(file.name).stem.split("_")
        classes.append(options.java_outer_classname or "".join(word.capitalize() for word in words))
    outer, at = [], declared.containing_type
    while at is not None:
        outer.append(at.name)
        at = at.containing_type
    inside = "$".join(classes + outer[::-1])
    return f"{package}.{inside}" if inside else str(package)


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


def _is_required(field: Any) -> bool:
    return bool(field.is_required if hasattr(field, "is_required") else field.label == field.LABEL_REQUIRED)


def _default(field: Any) -> str | None:
    """The default as JSON text; None for a required field, which has none."""
    if _is_required(field):
        return None
    if _is_repeated(field):
        return "[]"
    value, name = field.default_value, FIELD_TYPES[field.type].name
    if name == "message":
        return "null"
    if name == "enum":
        return json.dumps(field.enum_type.values_by_number[value].name)
    if name in ("float", "double"):
        if not math.isfinite(value):
            raise TypeError(f"field {field.full_name} has the default {value}, which a definition in Avro cannot have")
        return _java_number(value, is_float=name == "float")
    if name == "bytes":
        value = value.decode("latin-1")
    elif name in ("uint32", "fixed32"):
        (value,) = struct.unpack(">i", struct.pack(">I", value))
    elif name in ("uint64", "fixed64"):
        (value,) = struct.unpack(">q", struct.pack(">Q", value))
    return json.dumps(value, ensure_ascii=False)


def _java_number(value: float, *, is_float: bool) -> str:
    """The number in Java's notation: with a power of ten from 10^7 on and below 10^-3."""
    text = _shortest_float(value) if is_float else repr(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return text if "." in text else f"{text}.0"
    digits, exponent = f"{float(text):.{_places(text)}e}".split("e")
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"


def _shortest_float(value: float) -> str:
    """The shortest text that is `value` in 32 bits."""
    for places in range(1, 10):
        text = f"{value:.{places}g}"
        if struct.pack(">f", float(text)) == struct.pack(">f", value):
            return repr(float(text))
    return repr(value)


def _places(text: str) -> int:
    """How many digits of `text`, a number, stand behind the first one that is not 0."""
    return max(len(text.lower().split("e")[0].replace(".", "").replace("-", "").strip("0")) - 1, 0)
