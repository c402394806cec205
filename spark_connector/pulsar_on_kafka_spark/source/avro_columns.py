"""Columns of Avro definitions: the Spark types of `org.apache.spark.sql.avro.SchemaConverters`, without a JVM.

fastavro reads values without their logical types. The columns turn numbers and bytes into times and decimals, for a
whole array at once and with Spark's range of times, which is wider than Python's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pulsar_on_kafka.schema.avro_bounds import MAX_DECIMAL_BYTES
from pulsar_on_kafka_spark.source.arrow_columns import (
    Column,
    LeafColumn,
    ListColumn,
    MapColumn,
    StructColumn,
    arrow_type,
    struct_array,
)

_LEAVES: Final[Mapping[str, tuple[DataType, tuple[type, ...]]]] = {
    "null": (NullType(), ()),
    "boolean": (BooleanType(), (bool,)),
    "int": (IntegerType(), (int,)),
    "long": (LongType(), (int,)),
    "float": (FloatType(), (float, int)),
    "double": (DoubleType(), (float, int)),
    "string": (StringType(), (str,)),
    "enum": (StringType(), (str,)),
    "bytes": (BinaryType(), (bytes,)),
    "fixed": (BinaryType(), (bytes,)),
}
_TIMES: Final[Mapping[tuple[str, str], tuple[DataType, str | None]]] = {
    ("int", "date"): (DateType(), None),
    ("long", "timestamp-micros"): (TimestampType(), None),
    ("long", "timestamp-millis"): (TimestampType(), "ms"),
    ("long", "local-timestamp-micros"): (TimestampNTZType(), None),
    ("long", "local-timestamp-millis"): (TimestampNTZType(), "ms"),
}
"""The type and, where it is not Spark's, the unit of a logical type. Spark reads all others as numbers, text or
bytes."""
_LOGICAL: Final = "readLogicalType"
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_WIDER: Final[Mapping[frozenset[str], str]] = {
    frozenset({"int", "long"}): "long",
    frozenset({"float", "double"}): "double",
}
"""Unions of two numbers are one number."""
_WIDTHS: Final[Mapping[str, int]] = {"long": 1, "float": 2, "double": 3}
_MAX_DIGITS: Final = 38
_EXACT: Final = Context(prec=2 * _MAX_DIGITS)


class AvroColumns:
    """Makes the columns of one definition, as `fastavro.parse_schema` gives it of a `readable_definition`.

    `has_members`: it has a union that is a struct in Spark. Then fastavro has to name the types of a union's values
    (`return_named_type`), which makes them pairs.
    """

    def __init__(self, definition: Any) -> None:
        """Raises ValueError: Spark has no type for the definition."""
        self._named: dict[str, Any] = {}
        self.has_members = _has_members(definition)
        self.column = self._column(definition)

    def _column(self, definition: Any) -> Column:
        if isinstance(definition, list):
            return self._union([branch for branch in definition if _kind(branch) != "null"])
        if isinstance(definition, str) and definition in self._named:
            definition = self._named[definition]
        kind = _kind(definition)
        if kind in _NAMED:
            self._named[definition["name"]] = definition
            column = self._record(definition) if kind in ("record", "error") else _leaf(kind, definition)
            return _Unnamed(column) if self.has_members else column
        if kind == "array":
            return ListColumn(self._column(definition["items"]))
        if kind == "map":
            return MapColumn(self._column(definition["values"]))
        return _leaf(kind, definition)

    def _record(self, definition: Mapping[str, Any]) -> Column:
        return StructColumn({field["name"]: self._column(field["type"]) for field in definition["fields"]})

    def _union(self, branches: Sequence[Any]) -> Column:
        if not branches:
            return _leaf("null", "null")
        if len(branches) == 1:
            return self._column(branches[0])
        kinds = [_kind(branch) for branch in branches]
        wider = _WIDER.get(frozenset(kinds)) if len(branches) == 2 else None
        if wider is not None:
            return _leaf(wider, wider)
        for pair in _WIDER:
            if pair <= set(kinds):
                raise ValueError(
                    f"a union of {' and '.join(sorted(pair))} beside other types is not read without a JVM"
                )
        members: list[tuple[str, str, Column]] = []
        for branch in branches:
            column = self._column(branch)
            described = self._named.get(branch, branch) if isinstance(branch, str) else branch
            kind = _kind(described)
            members.append((described["name"] if kind in _NAMED else kind, kind, column))
        return _MembersColumn(members)


class _Unnamed(Column):
    """Values of a type with a name, of which fastavro gives the name in unions."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self.kind = column.kind

    def array(self, values: Sequence[Any]) -> Any:
        return self._column.array([_without_name(value) for value in values])

    def value(self, value: Any) -> Any:
        return self._column.value(_without_name(value))


class _MembersColumn(Column):
    """Values of a union are structs with one field for each type: member0, member1, and so on."""

    def __init__(self, members: Sequence[tuple[str, str, Column]]) -> None:
        """`members` have the name of the type, its kind and its column."""
        self._columns = [column for _, _, column in members]
        self._names = {name: at for at, (name, _, _) in enumerate(members)}
        self._types: dict[type, list[int]] = {}
        for at, (_, kind, column) in sorted(enumerate(members), key=lambda each: each[1][1] in _NAMED):
            self._types.setdefault(_python_type(kind, column), []).append(at)
        self._fields = [
            set(column.kind.names) if kind in _NAMED and isinstance(column.kind, StructType) else None
            for _, kind, column in members
        ]
        self.kind = StructType([StructField(f"member{at}", column.kind) for at, column in enumerate(self._columns)])
        self._arrow = arrow_type(self.kind)

    def array(self, values: Sequence[Any]) -> Any:
        members = [None if value is None else self._member(value) for value in values]
        arrays = [
            column.array([value if at == member else None for value, member in zip(values, members, strict=True)])
            for at, column in enumerate(self._columns)
        ]
        return struct_array(self._arrow, arrays, members, None in members)

    def value(self, value: Any) -> Any:
        self._columns[self._member(value)].value(value)
        return value

    def _member(self, value: Any) -> int:
        if type(value) is tuple:
            return self._names[value[0]]
        found = self._types[type(value)]
        if type(value) is dict:
            # Only a value whose writer had no union has no name.
            found = [at for at in found if self._fields[at] in (None, value.keys())]
        return found[0]


def _leaf(kind: str, definition: Any) -> Column:
    logical = definition.get(_LOGICAL) if isinstance(definition, dict) else None
    if logical == "decimal" and kind in ("bytes", "fixed") and _is_decimal(definition):
        return _decimal(definition["precision"], definition.get("scale", 0))
    if (kind, logical) in _TIMES:
        spark, unit = _TIMES[kind, str(logical)]
        if unit is None:
            return LeafColumn(spark, (int,))
        arrow = arrow_type(spark)
        written = pa.timestamp(unit, tz=arrow.tz)
        return LeafColumn(spark, (int,), convert=lambda values: pa.array(values, written).cast(arrow))
    if kind not in _LEAVES:
        raise ValueError(f"no type of Spark for {str(definition)[:80]}")
    spark, types = _LEAVES[kind]
    return LeafColumn(spark, types)


def _is_decimal(definition: Mapping[str, Any]) -> bool:
    """Whether the logical type is valid. Avro ignores one that is not."""
    precision, scale = definition.get("precision"), definition.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision or precision < 1:
        return False
    size = definition.get("size")
    return size is None or (size > 0 and precision <= len(str((1 << (8 * size - 1)) - 1)) - 1)


def _decimal(precision: int, scale: int) -> Column:
    if precision > _MAX_DIGITS:
        raise ValueError(f"a decimal has {precision} digits, of at most {_MAX_DIGITS}")
    spark = DecimalType(precision, scale)
    arrow = arrow_type(spark)

    def number(data: bytes) -> Decimal:
        if not 0 < len(data) <= MAX_DECIMAL_BYTES:
            raise ValueError(f"a decimal of {len(data):,} bytes")
        return _EXACT.create_decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _EXACT)

    def array(values: Sequence[Any]) -> Any:
        return pa.array([None if value is None else number(value) for value in values], arrow)

    return LeafColumn(spark, (bytes,), convert=array)


def _kind(definition: Any) -> str:
    """The name of the type, "union" for a union."""
    if isinstance(definition, list):
        return "union"
    if not isinstance(definition, dict):
        return str(definition)
    inner = definition["type"]
    return inner if isinstance(inner, str) else _kind(inner)


def _python_type(kind: str, column: Column) -> type:
    if kind in ("map", "record", "error"):
        return dict
    if kind == "array":
        return list
    return _LEAVES[kind][1][0]


def _without_name(value: Any) -> Any:
    return value[1] if type(value) is tuple else value


def _has_members(definition: Any) -> bool:
    if isinstance(definition, list):
        kinds = [_kind(branch) for branch in definition if _kind(branch) != "null"]
        is_one = len(kinds) < 2 or (len(kinds) == 2 and frozenset(kinds) in _WIDER)
        return not is_one or any(map(_has_members, definition))
    if not isinstance(definition, dict):
        return False
    return any(map(_has_members, _parts(definition)))


def _parts(definition: dict[str, Any]) -> list[Any]:
    fields = definition.get("fields", ())
    return [definition.get("items"), definition.get("values"), *(field["type"] for field in fields)]


def readable_definition(definition: Any) -> Any:
    """The definition, not yet parsed, with the logical types under a name that fastavro does not know."""
    if isinstance(definition, list):
        return [readable_definition(branch) for branch in definition]
    if not isinstance(definition, dict):
        return definition
    found = {_LOGICAL if name == "logicalType" else name: value for name, value in definition.items()}
    for part in ("type", "items", "values"):
        if part in found:
            found[part] = readable_definition(found[part])
    if isinstance(found.get("fields"), list):
        found["fields"] = [
            {**field, "type": readable_definition(field["type"])}
            if isinstance(field, dict) and "type" in field
            else field
            for field in found["fields"]
        ]
    return found


def prepare_reader(definition: Any) -> None:
    """Makes fastavro read other writers' values into a parsed definition as Avro requires.

    Defaults, which are JSON, become values. Numbers of a union are ordered, since fastavro takes the first one that has
    room for the writer's number.

    Raises:
        ValueError: a union has both text and bytes, of which fastavro takes the first one.
    """
    _prepare(definition, {})


def _prepare(definition: Any, named: dict[str, Any]) -> None:
    if isinstance(definition, list):
        for branch in definition:
            _prepare(branch, named)
        if {"string", "bytes"} <= set(map(_kind, definition)):
            raise ValueError("a union of string and bytes is read without a JVM only if all definitions are the same")
    elif isinstance(definition, dict):
        if "name" in definition:
            named[definition["name"]] = definition
        for part in ("items", "values", "type"):
            _prepare(definition.get(part), named)
        for field in definition.get("fields", ()):
            _prepare(field["type"], named)
            if "default" in field:
                field["default"] = _default(field["default"], field["type"], named)
        for union in filter(lambda kind: isinstance(kind, list), _parts(definition)):
            union.sort(key=lambda branch: _WIDTHS.get(_kind(branch), 0))


def added_fields(writer: Any, reader: Any) -> dict[str, Any] | None:
    """The defaults of fields that a prepared reader has and the writer has not, where this is all that resolution has
    to do besides dropping fields; None elsewhere. To read the writer's record and add these takes half the time."""
    if not all(isinstance(each, dict) and each["type"] == "record" for each in (writer, reader)):
        return None
    theirs = {field["name"]: field["type"] for field in writer["fields"]}
    found = {}
    for field in reader["fields"]:
        if field["name"] not in theirs:
            if "default" not in field or field.get("aliases"):
                return None
            found[field["name"]] = field["default"]
        elif theirs[field["name"]] != field["type"] or not _is_complete(field["type"]):
            return None
    return found


def _is_complete(definition: Any) -> bool:
    """Whether a definition is the same wherever it stands: it names no type of another place, and has no default."""
    if isinstance(definition, list):
        return all(map(_is_complete, definition))
    if not isinstance(definition, dict):
        return definition in _LEAVES
    if definition["type"] in ("array", "map"):
        return _is_complete(definition.get("items", definition.get("values")))
    return definition["type"] in _LEAVES


def _default(value: Any, definition: Any, named: Mapping[str, Any]) -> Any:
    if isinstance(definition, str) and definition in named:
        definition = named[definition]
    match _kind(definition):
        case "union":
            return None if value is None else _default(value, next(b for b in definition if _kind(b) != "null"), named)
        case "bytes" | "fixed" if isinstance(value, str):
            return value.encode("latin-1")
        case "record" | "error":
            fields = definition["fields"]
            return {f["name"]: _default(value.get(f["name"], f.get("default")), f["type"], named) for f in fields}
        case "array":
            return [_default(item, definition["items"], named) for item in value]
        case "map":
            return {key: _default(item, definition["values"], named) for key, item in value.items()}
        case _:
            return value
