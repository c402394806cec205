"""ProtobufNativeSchema and ProtobufSchema: messages of classes that protoc generated.

`google.protobuf` is loaded when a schema is made: who has a generated class has the package.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from pulsar_on_kafka.schema.json import parsed
from pulsar_on_kafka.schema.plain import Schema
from pulsar_on_kafka.schema.protobuf_avro import avro_text, parsing_info
from pulsar_on_kafka.schema_compat.base.schema_model import SchemaInfo, SchemaType


class _MessageSchema(Schema):
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


class ProtobufNativeSchema(_MessageSchema):
    """Its definition are the files of the message's class. Source: pulsar-client 3.13.0 and the Java client.

    Raises:
        TypeError: `record_cls` is no generated message class.
    """

    def __init__(self, record_cls: Any) -> None:
        definition = _definition(_descriptor(record_cls))
        super().__init__(record_cls, SchemaType.PROTOBUF_NATIVE, definition, "PROTOBUF_NATIVE")
        self._take(record_cls)


class ProtobufSchema(_MessageSchema):
    """Its definition is Avro text (`protobuf_avro.py`). Source: the Java client; the official Python client has none.

    Raises:
        TypeError: `record_cls` is no generated message class, or it has a group.
    """

    def __init__(self, record_cls: Any) -> None:
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
        raise TypeError(f"a class that protoc generated is wanted, got {record_cls!r:.60}")
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
        TypeError: the schema is of another type. ValueError: it is not what its type says.
    """
    from google.protobuf import descriptor_pool, message, message_factory
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    if schema.type is not SchemaType.PROTOBUF_NATIVE:
        raise TypeError(f"a schema of type PROTOBUF_NATIVE is wanted, got {schema.type.name} {schema.name!r:.60}")
    pool = descriptor_pool.DescriptorPool()
    try:
        data = parsed(schema.schema)
        files = FileDescriptorSet.FromString(base64.b64decode(data["fileDescriptorSet"], validate=True))
        for file in files.file:
            pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(data["rootMessageTypeName"]))
    except (KeyError, TypeError, ValueError, message.DecodeError) as error:
        raise ValueError(f"PROTOBUF_NATIVE schema {schema.name!r:.60} cannot be read: {error!r:.200}") from error
