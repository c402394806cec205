"""Schemas made of a registry's entry alone, for who has no class: AutoConsumeSchema and AutoProduceBytesSchema.

Source: the Java client (`AutoConsumeSchema`, `AutoProduceBytesSchema`) of Pulsar 4.0.7; the official Python client has
neither. A value is what Python has for it: a dict for an Avro record, JSON's types, a message of a class made for it
(PROTOBUF_NATIVE), a dict of its fields (PROTOBUF, `fields_reader`), a number, date or time (`plain_reader`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from functools import lru_cache
from typing import Any, Final

from pulsar_on_kafka.exceptions import InvalidMessage, NotSupported
from pulsar_on_kafka.schema.avro import AvroSchema, avro_definition
from pulsar_on_kafka.schema.json import parsed
from pulsar_on_kafka.schema.key_value import KeyValueSchema, encoding_of
from pulsar_on_kafka.schema.plain import BytesSchema, Schema, StringSchema
from pulsar_on_kafka.schema.protobuf import message_class
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType
from pulsar_on_kafka_schema_compat.key_value import split
from pulsar_on_kafka_schema_compat.protobuf.descriptors import FIELD_TYPES

_LABELS: Final = {"LABEL_OPTIONAL": 1, "LABEL_REQUIRED": 2, "LABEL_REPEATED": 3}
_NUMBERS: Final = {kind.name.upper(): number for number, kind in FIELD_TYPES.items()}
_UNSIGNED: Final = {"UINT32": 32, "FIXED32": 32, "UINT64": 64, "FIXED64": 64}
"""Avro knows signed numbers only; their bits."""
_READ_AS: Final = {"MESSAGE": "BYTES", "ENUM": "INT32"}


def fields_reader(info: SchemaInfo) -> Callable[[bytes], dict[str, Any]]:
    """Reads a message as a dict of its own fields, in the order in which Java's client notes them: the definition is
    Avro text and has no field numbers. They are in the property `__PARSING_INFO__`, for the fields of the message and
    not for those of messages in it.

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
            # The label `required` bound the writer; a reader that enforced it would lose the rest of the message.
            label = _LABELS[field["label"]]
            message.field.add(name=field["name"], number=field["number"], type=kind, label=label if label == 3 else 1)
        pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName("Noted"))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"__PARSING_INFO__ of PROTOBUF schema {info.name!r:.60}: {error!r:.200}") from error


def _defaults(info: SchemaInfo) -> dict[str, Any]:
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


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_DAY_NS: Final = 86_400 * 10**9


def _moment(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)


def _instant(seconds: int, nanoseconds: int) -> datetime:
    return _EPOCH + timedelta(seconds=seconds, microseconds=nanoseconds // 1000)


def _day(number: int) -> date:
    return date.fromordinal(_EPOCH_DAY + number)


def _time_of_day(nanoseconds: int) -> time:
    if not 0 <= nanoseconds < _DAY_NS:
        raise ValueError(f"a day has nanoseconds 0 to {_DAY_NS - 1}")
    seconds, rest = divmod(nanoseconds, 10**9)
    return time(seconds // 3600, seconds // 60 % 60, seconds % 60, rest // 1000)


def _day_and_time(number: int, nanoseconds: int) -> datetime:
    return datetime.combine(_day(number), _time_of_day(nanoseconds))


def _itself(value: object) -> Any:
    return value


_FORMS: Final[Mapping[SchemaType, tuple[struct.Struct, Callable[..., Any]]]] = {
    SchemaType.BOOLEAN: (struct.Struct(">?"), _itself),
    SchemaType.INT8: (struct.Struct(">b"), _itself),
    SchemaType.INT16: (struct.Struct(">h"), _itself),
    SchemaType.INT32: (struct.Struct(">i"), _itself),
    SchemaType.INT64: (struct.Struct(">q"), _itself),
    SchemaType.FLOAT: (struct.Struct(">f"), _itself),
    SchemaType.DOUBLE: (struct.Struct(">d"), _itself),
    SchemaType.DATE: (struct.Struct(">q"), _moment),
    SchemaType.TIME: (struct.Struct(">q"), _moment),
    SchemaType.TIMESTAMP: (struct.Struct(">q"), _moment),
    SchemaType.INSTANT: (struct.Struct(">qi"), _instant),
    SchemaType.LOCAL_DATE: (struct.Struct(">q"), _day),
    SchemaType.LOCAL_TIME: (struct.Struct(">q"), _time_of_day),
    SchemaType.LOCAL_DATE_TIME: (struct.Struct(">qq"), _day_and_time),
}

PLAIN_TYPES: Final = frozenset(_FORMS)


def plain_reader(kind: SchemaType) -> Callable[[bytes], Any]:
    """The reader of payloads of one of the `PLAIN_TYPES`.

    Numbers and booleans are Python's. DATE, TIME, TIMESTAMP (Java's Date and its subclasses, all a moment in
    milliseconds) and INSTANT are datetimes in UTC; LOCAL_DATE, LOCAL_TIME and LOCAL_DATE_TIME a date, time and datetime
    without a time zone. Differs from Pulsar: nanoseconds are cut to microseconds, Python has no finer ones. Payloads
    are as the Java client writes them, big-endian, of a fixed size each. Source: Pulsar 4.0.7, `ByteSchema`,
    `ShortSchema`, `IntSchema`, `LongSchema`, `FloatSchema`, `DoubleSchema`, `BooleanSchema`, `DateSchema`,
    `TimeSchema`, `TimestampSchema`, `InstantSchema`, `LocalDateSchema`, `LocalTimeSchema`, `LocalDateTimeSchema`.

    The reader raises ValueError for another number of bytes, and for a time outside of Python's range (years 1 to
    9999).
    """
    form, make = _FORMS[kind]

    def read(data: bytes) -> Any:
        if len(data) != form.size:
            raise ValueError(f"{kind.name} has {form.size} bytes, got {len(data)}: {data!r:.60}")
        parts = form.unpack(data)
        try:
            return make(*parts)
        except (OverflowError, ValueError) as error:
            found = " and ".join(map(str, parts))
            raise ValueError(f"{found} is no {kind.name} from year 1 to 9999: {error}") from error

    return read


class GenericSchema(Schema[Any]):
    """Reads what was written with `info`."""

    def __init__(self, info: SchemaInfo, decode: Callable[[bytes], Any]) -> None:
        self._schema_info = info
        self._decode = decode

    def encode(self, obj: Any) -> bytes:
        """Raises TypeError: it only reads."""
        raise TypeError(f"a schema of type {self._schema_info.type.name} without a class only reads, got {obj!r:.60}")

    def decode(self, data: bytes) -> Any:
        return self._decode(data)


@lru_cache(maxsize=128)
def generic_schema(info: SchemaInfo) -> Schema:
    """The schema for values written with `info`; the last 128 are kept.

    Raises:
        NotSupported: a PROTOBUF schema without its fields; or a type that no topic has.
        ValueError, or an error of `AvroSchema`: the definition cannot be read.
    """
    kind = info.type
    if kind in (SchemaType.BYTES, SchemaType.NONE):
        return BytesSchema()
    if kind is SchemaType.STRING:
        return StringSchema()
    if kind is SchemaType.AVRO:
        return AvroSchema(None, avro_definition(info))
    if kind is SchemaType.JSON:
        return GenericSchema(info, parsed)
    if kind is SchemaType.PROTOBUF_NATIVE:
        return GenericSchema(info, message_class(info).FromString)
    if kind is SchemaType.KEY_VALUE:
        parts = split(info)
        return KeyValueSchema(generic_schema(parts["key"]), generic_schema(parts["value"]), encoding_of(info))
    if kind is SchemaType.PROTOBUF:
        return GenericSchema(info, fields_reader(info))
    if kind in PLAIN_TYPES:
        return GenericSchema(info, plain_reader(kind))
    raise NotSupported(f"values of a schema of type {kind.name} without a class")


class AutoConsumeSchema(Schema[Any]):
    """Reads each message by the schema that it was written with."""

    def __init__(self) -> None:
        self._schema_info = SchemaInfo.declared(SchemaType.AUTO_CONSUME, b"", "AUTO_CONSUME")

    def encode(self, obj: Any) -> bytes:
        """Raises TypeError: it only reads."""
        raise TypeError(f"AutoConsumeSchema only reads, got {obj!r:.60}")

    def decode(self, data: bytes) -> Any:
        """Raises ValueError: the bytes can only be decoded with the writer's schema (`decode_as_written`)."""
        raise ValueError(f"AutoConsumeSchema requires the writer's schema for a payload of {len(data)} bytes")

    def decode_as_written(self, data: bytes, writer: SchemaInfo) -> Any:
        """The value by `writer` alone. Raises as `generic_schema`, and as its `decode`."""
        return generic_schema(writer).decode(data)

    def __str__(self) -> str:
        return "AutoConsumeSchema"


class AutoProduceBytesSchema(Schema[bytes]):
    """Bytes that are encoded already, checked before they are sent.

    Args:
        schema: what they must be by; None: the topic's schema, whatever it is (`checked`).
    """

    def __init__(self, schema: Schema | None = None) -> None:
        if schema is not None and not isinstance(schema, Schema):
            raise TypeError(f"schema must be a Schema or None, got {type(schema).__name__}: {schema!r:.60}")
        self._record_cls = bytes
        self._schema = schema
        topics = SchemaInfo.declared(SchemaType.AUTO_PUBLISH, b"", "AUTO_PUBLISH")
        self._schema_info = topics if schema is None else schema.schema_info()

    def encode(self, obj: Any) -> bytes:
        """`obj`, as it is. Raises TypeError for no bytes, InvalidMessage for what the schema cannot read."""
        self._validate_object_type(obj)
        return bytes(obj) if self._schema is None else self._checked_by(self._schema, obj)

    def checked(self, obj: bytes, topic_schema: SchemaInfo) -> bytes:
        """`obj`, as it is, when a value of `topic_schema` can be read from it. Raises as `encode`."""
        self._validate_object_type(obj)
        return self._checked_by(generic_schema(topic_schema), obj)

    def __str__(self) -> str:
        return f"AutoProduceBytesSchema({'' if self._schema is None else self._schema})"

    def _checked_by(self, schema: Schema, data: bytes) -> bytes:
        try:
            schema.decode(data)
        except Exception as error:  # each codec has its own
            kind = schema.schema_info().type.name
            raise InvalidMessage(f"{len(data)} bytes are no {kind} value of the schema: {error!r:.200}") from error
        return bytes(data)
