"""Arrays of PROTOBUF_NATIVE values. Fields have numbers, so who wrote a message does not matter.

The types are those of Spark's `org.apache.spark.sql.protobuf.utils.SchemaConverters`, with `emit.default.values` as in
`values.protobuf_values`: unsigned numbers are the signed ones of the same bits, enums are names, and a message without
fields has no column. Messages Timestamp and Duration are times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pulsar_on_kafka.schema.protobuf import is_repeated, message_class
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo
from pulsar_on_kafka_schema_compat.protobuf.descriptors import FIELD_TYPES
from pulsar_on_kafka_spark.source.array_codec import ArrayCodec, Decoded, Payloads, Versions
from pulsar_on_kafka_spark.source.arrow_columns import NO_VALUE, arrow_type, offsets, struct_array

_LEAVES: Final[Mapping[str, DataType]] = {
    **dict.fromkeys(("int32", "sint32", "sfixed32", "uint32", "fixed32"), IntegerType()),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint64", "fixed64"), LongType()),
    "float": FloatType(),
    "double": DoubleType(),
    "bool": BooleanType(),
    "string": StringType(),
    "bytes": BinaryType(),
    "enum": StringType(),
}
_UNSIGNED: Final[Mapping[str, int]] = {"uint32": 32, "fixed32": 32, "uint64": 64, "fixed64": 64}
_TIMES: Final[Mapping[str, DataType]] = {"Timestamp": TimestampType(), "Duration": DayTimeIntervalType()}


class ProtobufArrays(ArrayCodec):
    """The codec reads messages of one definition. Raises ValueError: the definition is none, or recursive."""

    is_record = True

    def __init__(self, reader: SchemaInfo) -> None:
        try:
            self._class = message_class(reader)
        except ImportError as error:
            raise ValueError(f"Python's package protobuf is missing ({error}): pip install protobuf") from error
        self._column = _MessageColumn(self._class.DESCRIPTOR, frozenset())
        self.kind = self._column.kind

    def decode(self, payloads: Payloads, versions: Versions, keys: Payloads | None = None) -> Decoded:
        from google.protobuf.message import DecodeError

        parse = self._class.FromString
        messages: list[Any] = []
        failed = []
        for at, payload in enumerate(payloads):
            message = None
            if payload is not None:
                try:
                    message = parse(payload)
                except DecodeError:
                    failed.append(at)
            messages.append(message)
        try:
            return self._column.array(messages), failed
        except NO_VALUE:
            return self._one_by_one(messages, failed)

    def _one_by_one(self, messages: list[Any], failed: list[int]) -> Decoded:
        """The array without messages whose times are outside of Spark's range, or whose text is no UTF-8."""
        for at, message in enumerate(messages):
            try:
                self._column.array([message])
            except NO_VALUE:
                messages[at] = None
                failed.append(at)
        return self._column.array(messages), sorted(failed)


class _MessageColumn:
    """Messages as structs of their fields."""

    def __init__(self, descriptor: Any, within: frozenset[str]) -> None:
        """`within` are the messages that contain this one. Raises ValueError: it contains itself."""
        if descriptor.full_name in within:
            raise ValueError(f"the message {descriptor.full_name} contains itself: Spark has no type for that")
        inner = within | {descriptor.full_name}
        columns = {field: _column(field, inner) for field in descriptor.fields}
        self._columns = {field: column for field, column in columns.items() if not _is_empty(column)}
        self.kind = StructType([StructField(field.name, column.kind) for field, column in self._columns.items()])
        self._arrow = arrow_type(self.kind)

    def array(self, messages: Sequence[Any]) -> Any:
        arrays = [column.array(_values(field, messages)) for field, column in self._columns.items()]
        return struct_array(self._arrow, arrays, messages, any(message is None for message in messages))


class _LeafColumn:
    """Scalars and names of enums."""

    def __init__(self, field: Any, kind: str) -> None:
        self.kind = _LEAVES[kind]
        self._arrow = arrow_type(self.kind)
        self._bits = _UNSIGNED.get(kind)
        self._enum = field.enum_type

    def array(self, values: Sequence[Any]) -> Any:
        if self._bits is not None:
            beyond = 1 << self._bits
            values = [value - beyond if value is not None and value >= beyond >> 1 else value for value in values]
        elif self._enum is not None:
            values = [None if value is None else self._name(value) for value in values]
        return pa.array(values, self._arrow)

    def _name(self, number: int) -> str:
        """The name of an enum's value, or Java's name for one that the definition has not."""
        known = self._enum.values_by_number.get(number)
        return str(known.name) if known is not None else f"UNKNOWN_ENUM_VALUE_{self._enum.name}_{number}"


class _TimeColumn:
    """Messages of seconds and nanoseconds as times, cut to microseconds."""

    def __init__(self, kind: DataType) -> None:
        self.kind = kind
        self._arrow = arrow_type(kind)

    def array(self, messages: Sequence[Any]) -> Any:
        micros = [None if each is None else each.seconds * 1_000_000 + int(each.nanos / 1000) for each in messages]
        return pa.array(micros, self._arrow)


class _ListColumn:
    """Values of a repeated field."""

    def __init__(self, items: Any) -> None:
        self._items = items
        self.kind = ArrayType(items.kind)
        self._arrow = arrow_type(self.kind)

    def array(self, values: Sequence[Any]) -> Any:
        items = [item for value in values if value is not None for item in value]
        return pa.ListArray.from_arrays(offsets(values), self._items.array(items), type=self._arrow)


class _MapColumn:
    """Entries of a map."""

    def __init__(self, keys: Any, items: Any) -> None:
        self._keys, self._items = keys, items
        self.kind = MapType(keys.kind, items.kind)
        self._arrow = arrow_type(self.kind)

    def array(self, values: Sequence[Any]) -> Any:
        entries = [entry for value in values if value is not None for entry in value.items()]
        keys, items = self._keys.array([key for key, _ in entries]), self._items.array([item for _, item in entries])
        return pa.MapArray.from_arrays(offsets(values), keys, items, type=self._arrow)


def _column(field: Any, within: frozenset[str]) -> Any:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return _MapColumn(_single(entry["key"], within), _single(entry["value"], within))
    column = _single(field, within)
    return _ListColumn(column) if is_repeated(field) else column


def _single(field: Any, within: frozenset[str]) -> Any:
    kind = FIELD_TYPES[field.type].name
    if kind not in ("message", "group"):
        return _LeafColumn(field, kind)
    time = _TIMES.get(field.message_type.name)
    if time is not None and [each.name for each in field.message_type.fields] == ["seconds", "nanos"]:
        return _TimeColumn(time)
    return _MessageColumn(field.message_type, within)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _is_empty(column: Any) -> bool:
    kind = column.kind
    while isinstance(kind, ArrayType | MapType):
        kind = kind.elementType if isinstance(kind, ArrayType) else kind.valueType
    return isinstance(kind, StructType) and not kind.fields


def _values(field: Any, messages: Sequence[Any]) -> list[Any]:
    """The field of each message; null where it may be missing, is, and has no default of its own."""
    name = field.name
    if is_repeated(field) or not field.has_presence or field.has_default_value:
        return [None if message is None else getattr(message, name) for message in messages]
    return [getattr(message, name) if message is not None and message.HasField(name) else None for message in messages]
