"""ProtobufNativeSchema and ProtobufSchema: messages of classes that protoc generated.

`google.protobuf` is loaded when a schema is made: who has a generated class has the package.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, Final

from pulsar_on_kafka.schema.json import parsed
from pulsar_on_kafka.schema.plain import Schema
from pulsar_on_kafka.schema.value_type import V
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType
from pulsar_on_kafka_schema_compat.protobuf.descriptors import FIELD_TYPES

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
    """The Avro definition that stands for a Protobuf message in schemas of type PROTOBUF, of its descriptor.

    Byte for byte that of Java's `ProtobufSchema`, that is of `ProtobufData` and `Schema.toString` of Avro 1.11: full
    names are those of the Java classes, a message field is a union with null, a map is an array of its entries,
    unsigned numbers are the signed ones of the same bits.

    Raises:
        TypeError: it has a group, or an infinite default or NaN, which Avro cannot express; Java's client refuses them
            too.
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
            if not is_repeated(field) and not _is_required(field):
                inner = f'["null",{inner}]'
        else:
            inner = self._enum(field.enum_type, space) if name == "enum" else _AVRO_TYPES[name]
        return f'{{"type":"array","items":{inner}}}' if is_repeated(field) else inner


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


def is_repeated(field: Any) -> bool:
    """Whether a field, by its descriptor, has several values. Maps have too."""
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


def _is_required(field: Any) -> bool:
    return bool(field.is_required if hasattr(field, "is_required") else field.label == field.LABEL_REQUIRED)


def _default(field: Any) -> str | None:
    """The default as JSON text; None for a required field, which has none."""
    if _is_required(field):
        return None
    if is_repeated(field):
        return "[]"
    value, name = field.default_value, FIELD_TYPES[field.type].name
    if name == "message":
        return "null"
    if name == "enum":
        return json.dumps(field.enum_type.values_by_number[value].name)
    if name in ("float", "double"):
        if not math.isfinite(value):
            raise TypeError(f"field {field.full_name} has the default {value}, which a definition in Avro cannot have")
        return java_number(value, is_float=name == "float")
    if name == "bytes":
        value = value.decode("latin-1")
    elif name in ("uint32", "fixed32"):
        (value,) = struct.unpack(">i", struct.pack(">I", value))
    elif name in ("uint64", "fixed64"):
        (value,) = struct.unpack(">q", struct.pack(">Q", value))
    return json.dumps(value, ensure_ascii=False)


def java_number(value: float, *, is_float: bool) -> str:
    """A finite number in Java's notation: with a power of ten from 10^7 on and below 10^-3."""
    text = _shortest_float(value) if is_float else repr(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return text if "." in text else f"{text}.0"
    digits, exponent = f"{float(text):.{_places(text)}e}".split("e")
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"


def _shortest_float(value: float) -> str:
    for places in range(1, 10):
        text = f"{value:.{places}g}"
        if struct.pack(">f", float(text)) == struct.pack(">f", value):
            return repr(float(text))
    return repr(value)


def _places(text: str) -> int:
    """The number of digits of `text`, a number, from the first one that is not 0."""
    return max(len(text.lower().split("e")[0].replace(".", "").replace("-", "").strip("0")) - 1, 0)


class _MessageSchema(Schema[V]):
    """Messages of a generated class, in Protobuf's binary form.

    Fields are read by number, whatever version wrote them, so the writer's schema is not needed. The package is so
    quick that a third of the time would go into Python's calls around it: an object has its two methods as plain
    functions, unless a subclass has its own.
    """

    def _take(self, record_cls: Any) -> None:
        self._record_cls = record_cls
        if type(self).encode is _MessageSchema.encode:
            self.encode = self._encoder(record_cls)  # type: ignore[method-assign, assignment]
        if type(self).decode is _MessageSchema.decode:
            self.decode = record_cls.FromString  # type: ignore[method-assign]

    def _encoder(self, record_cls: Any) -> Callable[[Any], bytes]:
        serialize, validate = record_cls.SerializeToString, self._validate_object_type

        def encode(obj: Any) -> bytes:
            if type(obj) is not record_cls:
                validate(obj)
            return serialize(obj)  # type: ignore[no-any-return]

        return encode

    def encode(self, obj: Any) -> bytes:
        """Raises TypeError for a message of another class, EncodeError where a required field is missing."""
        return self._encoder(self._record_cls)(obj)

    def decode(self, data: bytes) -> Any:
        """Raises DecodeError: the bytes are no such message."""
        return self._record_cls.FromString(data)

    def __str__(self) -> str:
        return f"{type(self).__name__}({self._record_cls.__name__})"


class ProtobufNativeSchema(_MessageSchema[V]):
    """Its definition are the files of the message's class. Source: pulsar-client 3.13.0 and the Java client.

    Raises:
        TypeError: `record_cls` is no generated message class.
    """

    def __init__(self, record_cls: type[V]) -> None:
        definition = _definition(_descriptor(record_cls))
        super().__init__(record_cls, SchemaType.PROTOBUF_NATIVE, definition, "PROTOBUF_NATIVE")
        self._take(record_cls)


class ProtobufSchema(_MessageSchema[V]):
    """Its definition is Avro text (`avro_text`). Source: the Java client; the official Python client has none.

    Raises:
        TypeError: `record_cls` is no generated message class, or it has a group.
    """

    def __init__(self, record_cls: type[V]) -> None:
        descriptor = _descriptor(record_cls)
        self._take(record_cls)
        properties = {
            "__alwaysAllowNull": "true",
            "__jsr310ConversionEnabled": "false",
            "__PARSING_INFO__": parsing_info(descriptor),
        }
        definition = avro_text(descriptor).encode()
        self._schema_info = SchemaInfo.declared(SchemaType.PROTOBUF, definition, "PROTOBUF", properties)


def _descriptor(record_cls: object) -> Any:
    from google.protobuf.message import Message

    if not (isinstance(record_cls, type) and issubclass(record_cls, Message)):
        raise TypeError(f"expected a class that protoc generated, got {record_cls!r:.60}")
    untyped: Any = record_cls
    return untyped.DESCRIPTOR


def _definition(root: Any) -> dict[str, str]:
    """The content of Java's `ProtobufNativeSchemaData`: every file that the root's needs, imports first."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    files = FileDescriptorSet()
    _add_file(root.file, files, set())
    return {
        "fileDescriptorSet": base64.b64encode(files.SerializeToString()).decode(),
        "rootMessageTypeName": root.full_name,
        "rootFileDescriptorName": root.file.name,
    }


def _add_file(file: Any, files: Any, added: set[str]) -> None:
    if file.name in added:
        return
    for imported in file.dependencies:
        _add_file(imported, files, added)
    added.add(file.name)
    file.CopyToProto(files.file.add())


@lru_cache(maxsize=128)
def message_class(schema: SchemaInfo) -> Any:
    """A class for the root message of a PROTOBUF_NATIVE schema that came from elsewhere; the last 128 are kept.

    Raises:
        TypeError: the schema is of another type. ValueError: its definition does not match its type.
    """
    from google.protobuf import descriptor_pool, message, message_factory
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    if schema.type is not SchemaType.PROTOBUF_NATIVE:
        raise TypeError(f"expected a schema of type PROTOBUF_NATIVE, got {schema.type.name} {schema.name!r:.60}")
    pool = descriptor_pool.DescriptorPool()
    try:
        data = parsed(schema.schema)
        files = FileDescriptorSet.FromString(base64.b64decode(data["fileDescriptorSet"], validate=True))
        for file in files.file:
            pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(data["rootMessageTypeName"]))
    except (KeyError, TypeError, ValueError, message.DecodeError) as error:
        raise ValueError(f"PROTOBUF_NATIVE schema {schema.name!r:.60} cannot be read: {error!r:.200}") from error
