"""Field, and the fields that hold one plain value. Source: `pulsar.schema.definition` of pulsar-client 3.13.0.

Kept as they are officially: `Bytes` takes whatever it is given (no check, no default for None), an absent `Boolean` is
False, `Integer` and `Long` know no range, a default object is shared by all the records that have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, overload

from pulsar_on_kafka.schema.value_type import FieldV

if TYPE_CHECKING:
    from typing_extensions import Self


class Field(Generic[FieldV]):
    """Type of a record's field. For type checkers, a record's attribute of this name is the value, not the field.

    Args:
        default: the value where none is given.
        required: None is refused, and the type is not a union with null.
        required_default: the definition names the default, even where it is null.

    Raises:
        TypeError: the default is no value of the field.
    """

    if TYPE_CHECKING:

        @overload
        def __get__(self, record: None, owner: type[Any]) -> Self: ...
        @overload
        def __get__(self, record: object, owner: type[Any]) -> FieldV: ...
        def __get__(self, record: object, owner: type[Any]) -> Any: ...
        def __set__(self, record: object, value: FieldV | None) -> None: ...

    avro_type: ClassVar[str]
    python_types: ClassVar[tuple[type[Any], ...]] = ()

    _required: bool

    def __init__(self, default: Any = None, required: bool = False, required_default: bool = False) -> None:
        self._required = required
        self._default = None if default is None else self.validate_type("default", default)
        self._required_default = required_default

    def type(self) -> str:
        """The name of the type in an Avro definition."""
        return self.avro_type

    def python_type(self) -> Any:
        """The type for `isinstance`: a class, or a tuple of several."""
        return self.python_types if len(self.python_types) > 1 else self.python_types[0]

    def validate_type(self, name: str, val: Any) -> Any:
        """`val` as field `name` keeps it; the default for None. Raises TypeError for a value of another type."""
        if type(val) in self.python_types:
            return val
        if val is None and not self._required:
            return self.default()
        if not isinstance(val, self.python_type()):
            raise wrong_type(name, val, self.python_type())
        return val

    def schema(self) -> Any:
        """The definition by itself."""
        return self.schema_info(set())

    def schema_info(self, defined_names: set[str]) -> Any:
        """The definition inside another one; a type that is in `defined_names` is named only, a new one is added."""
        return self.type()

    def default(self) -> Any:
        """The value of a record that was given none."""
        return self._default

    def required_default(self) -> bool:
        """Whether the definition names the default, even where it is null."""
        return self._required_default


def wrong_type(name: str, value: object, expected: Any) -> TypeError:
    """The error for a value of field `name` that is none of `expected`, a class or several."""
    classes = expected if isinstance(expected, tuple) else (expected,)
    names = " or ".join(cls.__name__ for cls in classes)
    return TypeError(f"field {name!r} takes {names}, got {type(value).__name__}: {value!r:.60}")


class Null(Field[None]):
    """Always None."""

    avro_type = "null"
    python_types = (type(None),)

    def validate_type(self, name: str, val: Any) -> None:
        if val is not None:
            raise wrong_type(name, val, type(None))


class Boolean(Field[bool]):
    """Avro's boolean."""

    avro_type = "boolean"
    python_types = (bool,)

    def default(self) -> Any:
        """False where none was given."""
        return False if self._default is None else self._default


class Integer(Field[int]):
    """Avro's int; its 32 bits are not checked here."""

    avro_type = "int"
    python_types = (int,)


class Long(Field[int]):
    """Avro's long; its 64 bits are not checked here."""

    avro_type = "long"
    python_types = (int,)


class Float(Field[float]):
    """Avro's float; integers are kept as they are."""

    avro_type = "float"
    python_types = (float, int)


class Double(Field[float]):
    """Avro's double; integers are kept as they are."""

    avro_type = "double"
    python_types = (float, int)


class Bytes(Field[bytes]):
    """Text becomes its UTF-8; anything else is kept unchecked."""

    avro_type = "bytes"
    python_types = (bytes, str)

    def validate_type(self, name: str, val: Any) -> Any:
        return val.encode() if isinstance(val, str) else val


class String(Field[str]):
    """Bytes are decoded from UTF-8."""

    avro_type = "string"
    python_types = (str, bytes)

    def validate_type(self, name: str, val: Any) -> Any:
        if type(val) is str:
            return val
        kept = super().validate_type(name, val)
        return kept.decode() if isinstance(kept, bytes) else kept
