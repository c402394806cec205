"""Record, and the fields that hold other types. Source: `pulsar.schema.definition` of pulsar-client 3.13.0.

Definitions and values are the official client's to the byte, with its peculiarities: a record has the fields of its
own class and none of its bases; every field that is not required is a union with null first; items of an array or map
that are enums are called 'enum', which Avro cannot read; an absent sub-record is the one that the class declares, the
same for all of its records; a field called default, required or required_default cannot be given to the constructor.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, EnumMeta
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, TypeVar, overload

from pulsar_on_kafka.schema.fields import Boolean, Bytes, Double, Field, Float, Integer, Long, Null, String, wrong_type

_E = TypeVar("_E", bound=Enum)
_V = TypeVar("_V")
_R = TypeVar("_R", bound="Record")

__all__ = [
    "Array",
    "Boolean",
    "Bytes",
    "CustomEnum",
    "Declared",
    "Double",
    "Field",
    "Float",
    "Integer",
    "Long",
    "Map",
    "Null",
    "Record",
    "RecordMeta",
    "String",
    "values_of",
]


class RecordMeta(type):
    """Collects the fields of a class; enum and record classes count as fields without options."""

    def __new__(mcs, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> RecordMeta:
        if bases:
            attributes["_fields"] = fields = {
                field_name: field
                for field_name, value in attributes.items()
                if isinstance(field := _declared(value), Field | Record)
            }
            attributes["_kept"] = tuple((name, _kept_type(field), field) for name, field in fields.items())
        attributes["_required"] = False
        return super().__new__(mcs, name, bases, attributes)

    def __getattr__(cls, name: str) -> Any:
        if name in ("_fields", "_kept"):
            raise AttributeError(f"{cls.__name__} declares no fields and takes none: make a class of it that does")
        raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")


class Record(metaclass=RecordMeta):
    """Base of the classes whose instances are messages of a JsonSchema or AvroSchema, and fields of each other.

    Args:
        default: as for `Field`, where the record is a field.
        required_default: as for `Field`, where the record is a field.
        required: as for `Field`, where the record is a field.
        kwargs: the fields' values; a dict in the place of a record contains the record's fields.

    Raises:
        TypeError: a value does not fit its field. AttributeError: an unknown field is set, or this class itself is
            instantiated, which has none.
    """

    _fields: ClassVar[Mapping[str, Declared]]
    _kept: ClassVar[tuple[tuple[str, type | None, Declared], ...]]
    """The fields, with the type whose values each keeps as they are, if there is one."""
    _required: bool
    _avro_namespace: ClassVar[str | None] = None
    """Namespace of the definition."""
    _sorted_fields: ClassVar[bool] = False
    """The definition has the fields by name, and not as they are declared."""

    def __init__(
        self, default: Any = None, required_default: bool = False, required: bool = False, *args: Any, **kwargs: Any
    ) -> None:
        values = self.__dict__
        values["_required_default"] = required_default
        values["_default"] = default
        values["_required"] = required
        for name, kept, field in type(self)._kept:
            if name in kwargs:
                given = kwargs[name]
                if type(given) is not kept:
                    if type(given) in (dict, list):
                        given = _with_records(field, given)
                    given = field.validate_type(name, given)
                values[name] = given
            else:
                values[name] = field if isinstance(field, Record) else field.default()

    @classmethod
    def schema(cls) -> Any:
        """The Avro definition, as JSON's types."""
        return cls.schema_info(set())

    @classmethod
    def schema_info(cls, defined_names: set[str]) -> Any:
        """The definition, or the full name when it is in `defined_names` already; adds it there."""
        full_name = cls.__name__ if cls._avro_namespace is None else f"{cls._avro_namespace}.{cls.__name__}"
        if full_name in defined_names:
            return full_name
        defined_names.add(full_name)
        definition: dict[str, Any] = {"type": "record", "name": cls.__name__}
        if cls._avro_namespace is not None:
            definition["namespace"] = cls._avro_namespace
        names = sorted(cls._fields) if cls._sorted_fields else cls._fields
        definition["fields"] = [_field_definition(name, cls._fields[name], defined_names) for name in names]
        return definition

    def __setattr__(self, key: str, value: Any) -> None:
        if key not in _OPTIONS:
            field = type(self)._fields.get(key)
            if field is None:
                raise AttributeError(f"{type(self).__name__} has no field {key!r}, only {', '.join(self._fields)}")
            value = field.validate_type(key, value)
        super().__setattr__(key, value)

    def __eq__(self, other: object) -> bool:
        """True when `other` has an equal value under each name of this record's fields."""
        if not isinstance(other, Record):
            return NotImplemented
        missing = object()
        return all(self.__dict__[name] == other.__dict__.get(name, missing) for name in self._fields)

    __hash__ = None  # type: ignore[assignment]  # records change

    def __str__(self) -> str:
        return str(self.__dict__)

    def type(self) -> str:
        """The name of the record's type."""
        return type(self).__name__

    def python_type(self) -> Any:
        """The type for `isinstance`: this class."""
        return type(self)

    def validate_type(self, name: str, val: Any) -> Any:
        """`val` as the value of the field `name` that this record declares; the default for None. Raises TypeError."""
        if val is None and not self._required:
            return self.default()
        if not isinstance(val, type(self)):
            raise wrong_type(name, val, type(self))
        return val

    def default(self) -> Any:
        """The value of a record that was given none, where this record is a field."""
        return self.__dict__["_default"]

    def required_default(self) -> bool:
        """Whether the definition names the default, even where it is null."""
        return bool(self.__dict__["_required_default"])


Declared: TypeAlias = Field | Record
"""The declaration of a field in a record's class, an array or a map."""

_OPTIONS = frozenset({"_default", "_required", "_required_default"})


def values_of(record: Record) -> dict[str, Any]:
    """The fields' values by name, in the order in which they were set first."""
    return {name: value for name, value in record.__dict__.items() if name not in _OPTIONS}


class CustomEnum(Field[_E]):
    """A member of an enum: itself, its name or its int value.

    Raises:
        TypeError: `enum_type` is no Enum class.
    """

    avro_type = "enum"

    def __init__(
        self, enum_type: type[_E], default: Any = None, required: bool = False, required_default: bool = False
    ) -> None:
        if not isinstance(enum_type, EnumMeta):
            raise TypeError(f"CustomEnum takes an Enum class, got {enum_type!r:.60}")
        self.enum_type = enum_type
        self.values = {member.value: member for member in enum_type.__members__.values()}
        super().__init__(default, required, required_default)

    def python_type(self) -> Any:
        return self.enum_type

    def validate_type(self, name: str, val: Any) -> Any:
        """The member; None for None, regardless of the options."""
        if val is None or isinstance(val, self.enum_type):
            return val
        known: Mapping[Any, Enum] = {}
        if type(val) is str:
            known = self.enum_type.__members__
        elif type(val) is int:
            known = self.values
        if val in known:
            return known[val]
        expected = ", ".join(repr(key) for key in known) or self.enum_type.__name__
        raise TypeError(f"field {name!r} takes {expected}, got {type(val).__name__}: {val!r:.60}")

    def schema_info(self, defined_names: set[str]) -> Any:
        name = self.enum_type.__name__
        if name in defined_names:
            return name
        defined_names.add(name)
        return {"type": self.type(), "name": name, "symbols": [member.name for member in self.enum_type]}


class Array(Field[list[_V]]):
    """A list whose items are all of one type."""

    avro_type = "array"
    python_types = (list,)

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: Array[_R], array_type: _R, default: Any = ..., required: bool = ..., required_default: bool = ...
        ) -> None: ...
        @overload
        def __init__(
            self, array_type: Field[_V], default: Any = ..., required: bool = ..., required_default: bool = ...
        ) -> None: ...

    def __init__(
        self, array_type: Any, default: Any = None, required: bool = False, required_default: bool = False
    ) -> None:
        self.array_type = _checked_declared("Array", array_type)
        super().__init__(default, required, required_default)

    def validate_type(self, name: str, val: Any) -> Any:
        """The list; None for None, regardless of the options."""
        if val is None:
            return None
        super().validate_type(name, val)
        expected = self.array_type.python_type()
        for at, item in enumerate(val):
            if isinstance(item, expected):
                continue
            if isinstance(self.array_type, CustomEnum):
                raise TypeError(
                    f"field {name!r} takes members of {expected.__name__} in its list, got {type(item).__name__} at "
                    f"{at}: {item!r:.60}. JSON schemas, as the official ones, write an array of enums and do not read "
                    "it: declare Array(String())"
                )
            raise TypeError(f"Array field {name} items should all be of type {self.array_type.type()}")
        return val

    def schema_info(self, defined_names: set[str]) -> Any:
        return {"type": self.type(), "items": _definition_inside(self.array_type, defined_names)}


class Map(Field[dict[str, _V]]):
    """A dict from text to values of one type."""

    avro_type = "map"
    python_types = (dict,)

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: Map[_R], value_type: _R, default: Any = ..., required: bool = ..., required_default: bool = ...
        ) -> None: ...
        @overload
        def __init__(
            self, value_type: Field[_V], default: Any = ..., required: bool = ..., required_default: bool = ...
        ) -> None: ...

    def __init__(
        self, value_type: Any, default: Any = None, required: bool = False, required_default: bool = False
    ) -> None:
        self.value_type = _checked_declared("Map", value_type)
        super().__init__(default, required, required_default)

    def validate_type(self, name: str, val: Any) -> Any:
        """The dict; None for None, regardless of the options."""
        if val is None:
            return None
        super().validate_type(name, val)
        expected = self.value_type.python_type()
        for key, item in val.items():
            if type(key) is not str:
                raise TypeError(f"field {name!r} takes str keys, got {type(key).__name__}: {key!r:.60}")
            if not isinstance(item, expected):
                raise wrong_type(f"{name}[{key!r:.60}]", item, expected)
        return val

    def schema_info(self, defined_names: set[str]) -> Any:
        return {"type": self.type(), "values": _definition_inside(self.value_type, defined_names)}


_KEPT: Final[Mapping[type, type]] = {
    Boolean: bool, Integer: int, Long: int, Float: float, Double: float, String: str, Bytes: bytes,
}  # fmt: skip


def _kept_type(field: Declared) -> type | None:
    """None for a class that is not ours: its `validate_type` may make something else of any value."""
    return field.enum_type if type(field) is CustomEnum else _KEPT.get(type(field))


def _declared(value: object) -> object:
    if isinstance(value, EnumMeta) and issubclass(value, Enum):
        return CustomEnum(value)
    return value() if isinstance(value, RecordMeta) else value


def _checked_declared(where: str, value: object) -> Declared:
    if not isinstance(value, Field | Record):
        raise TypeError(f"{where} takes an instance of a Field or Record, such as String(), got {value!r:.60}")
    return value


def _field_definition(name: str, field: Declared, defined_names: set[str]) -> dict[str, Any]:
    inner = field.schema_info(defined_names)
    kind = inner if field._required else ["null", inner]
    if not field.required_default():
        return {"name": name, "type": kind}
    default = field.default()
    return {"name": name, "default": default.name if isinstance(default, Enum) else default, "type": kind}


def _definition_inside(declared: Declared, defined_names: set[str]) -> Any:
    has_parts = isinstance(declared, Array | Map | Record)
    return declared.schema_info(defined_names) if has_parts else declared.type()


def _with_records(field: Declared, given: object) -> Any:
    """`given` with its dicts made records, where `field` holds records, or an array or map of them."""
    if isinstance(given, dict):
        if isinstance(field, Record):
            return type(field)(**given)
        if isinstance(field, Map) and isinstance(field.value_type, Record):
            return {key: _with_records(field.value_type, value) for key, value in given.items()}
    elif isinstance(given, list) and isinstance(field, Array) and isinstance(field.array_type, Record):
        return [_with_records(field.array_type, item) for item in given]
    return given
