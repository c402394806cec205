"""Messages of a PROTOBUF schema that came from elsewhere, read by what Java's client notes of their fields.

The definition itself is Avro text (`protobuf_avro.py`) and has no field numbers. They are in the property
`__PARSING_INFO__`, for the fields of the message itself and not for those of messages in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pulsar_on_kafka.exceptions import NotSupported
from pulsar_on_kafka.schema.json import parsed
from pulsar_on_kafka.schema_compat.base.schema_model import SchemaInfo
from pulsar_on_kafka.schema_compat.protobuf.descriptors import FIELD_TYPES

_LABELS: Final = {"LABEL_OPTIONAL": 1, "LABEL_REQUIRED": 2, "LABEL_REPEATED": 3}
_NUMBERS: Final = {kind.name.upper(): number for number, kind in FIELD_TYPES.items()}
_UNSIGNED: Final = {"UINT32": 32, "FIXED32": 32, "UINT64": 64, "FIXED64": 64}
"""Avro knows signed numbers only; their bits."""
_READ_AS: Final = {"MESSAGE": "BYTES", "ENUM": "INT32"}


def fields_reader(info: SchemaInfo) -> Callable[[bytes], dict[str, Any]]:
    """Reads a message as a dict of its own fields, in the order in which they are noted.

    Scalars are Python's; one that is not there has the default of the definition. Of an enum only the number is known,
    of a message in the message only its bytes; both are None where they are not there. Differs from Pulsar: the Java
    client reads nothing of this type without a class.

    Raises:
        NotSupported: the client that registered the schema noted nothing of the fields.
        ValueError: what it noted cannot be.
    """
    from google.protobuf.message import DecodeError

    message_class, defaults = _message_class(info), _defaults(info)

    def read(data: bytes) -> dict[str, Any]:
        try:
            message = message_class.FromString(data)
        except DecodeError as error:
            raise ValueError(f"{len(data)} bytes are no message of the PROTOBUF schema {info.name!r:.60}") from error
        found = {field.name: value for field, value in message.ListFields()}
        return {
            name: list(found.get(name, ())) if default == [] else found.get(name, default)
            for name, default in defaults.items()
        }

    return read


def _noted(info: SchemaInfo) -> list[dict[str, Any]]:
    text = info.properties.get("__PARSING_INFO__")
    if text is None:
        raise NotSupported(
            f"values of the PROTOBUF schema {info.name!r:.60} without a class: it has no property __PARSING_INFO__"
        )
    noted = parsed(text.encode())
    if not isinstance(noted, list) or not all(isinstance(field, dict) for field in noted):
        raise ValueError(f"__PARSING_INFO__ is an array of fields, got {text!r:.60}")
    return noted


def _message_class(info: SchemaInfo) -> Any:
    from google.protobuf import descriptor_pool, message_factory
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto(name="noted.proto", syntax="proto2")
    message = file.message_type.add(name="Noted")
    pool = descriptor_pool.DescriptorPool()
    try:
        for field in _noted(info):
            kind = _NUMBERS[_READ_AS.get(field["type"], field["type"])]
            # What is required was so for the writer; a reader that wants it would lose the rest of the message.
            label = _LABELS[field["label"]]
            message.field.add(name=field["name"], number=field["number"], type=kind, label=label if label == 3 else 1)
        pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName("Noted"))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"__PARSING_INFO__ of PROTOBUF schema {info.name!r:.60}: {error!r:.200}") from error


def _defaults(info: SchemaInfo) -> dict[str, Any]:
    """The default of each noted field that is not there."""
    definition = parsed(info.schema)
    fields = definition.get("fields") if isinstance(definition, dict) else None
    given = {
        field.get("name"): field.get("default")
        for field in (fields if isinstance(fields, list) else ())
        if isinstance(field, dict)
    }
    return {field["name"]: _default(field, given.get(field["name"])) for field in _noted(info)}


def _default(field: dict[str, Any], given: object) -> Any:
    kind = field["type"]
    if field["label"] == "LABEL_REPEATED":
        return []
    if kind in _READ_AS:
        return None  # of an enum the definition has the name, where a value is a number
    if kind == "BYTES" and isinstance(given, str):
        return given.encode("latin-1", "replace")
    if kind in _UNSIGNED and isinstance(given, int) and given < 0:
        return given + (1 << _UNSIGNED[kind])
    return given
