"""Dataclasses and pydantic models as the classes of JsonSchema and AvroSchema. Not in the official client.

    bool, int, float, str, bytes        boolean, long, double, string, bytes
    Enum                                enum; its symbols are the members' names
    datetime with a zone, date, UUID    long (timestamp-micros), int (date), string (uuid)
    list[X], dict[str, X]               array, map
    X | None                            union with null
    a dataclass or pydantic model       record; it may contain itself

A field's default, or the empty list or dict that its factory makes, is the definition's, so that later versions of a
class read earlier messages. JSON has the same values: enum members by name, bytes in Base64 as of Java's client,
times as numbers.
"""

from __future__ import annotations

import base64
import dataclasses
import types
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from enum import Enum
from typing import Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from pulsar_on_kafka.schema.definition import RecordMeta

_Convert = Callable[[Any], Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH_DAY: Final = _EPOCH.date().toordinal()
_PLAIN: Final[dict[type, str]] = {bool: "boolean", int: "long", float: "double", str: "string", bytes: "bytes"}
_EXPECTED: Final = (
    "bool, int, float, str, bytes, datetime, date, UUID, an Enum, list[X], dict[str, X], X | None, a dataclass or a "
    "pydantic model"
)
_NO_DEFAULT: Final = object()


class _Kind(NamedTuple):
    """A type in a definition. `write` and `read` are None where values stay as they are."""

    definition: Any
    write: _Convert | None = None
    read: _Convert | None = None


class _Field(NamedTuple):
    name: str
    type: Any
    default: Any
    """`_NO_DEFAULT` without one."""
    given_as: str
    """The keyword of the constructor; '' if it takes none."""


def is_model(cls: object) -> bool:
    """Whether `cls` is a dataclass or a pydantic model."""
    return isinstance(cls, type) and (dataclasses.is_dataclass(cls) or hasattr(cls, "model_fields"))


def model_form(cls: object, *, json: bool) -> ModelForm | None:
    """The form of a class that is no Record; None for a Record and for None. Raises TypeError for any other class."""
    if cls is None or isinstance(cls, RecordMeta):
        return None
    if isinstance(cls, type) and is_model(cls):
        return ModelForm(cls, json=json)
    raise TypeError(f"a schema takes a Record, a dataclass or a pydantic model, got {cls!r:.100}")


class ModelForm:
    """The definition of a class, and its objects as the dicts that fastavro takes, or that JSON has.

    Raises:
        TypeError: a field has a type without a counterpart; names it.
    """

    def __init__(self, cls: type, *, json: bool) -> None:
        self._json = json
        self._known: dict[type, tuple[_Convert, _Convert]] = {}
        """The records so far, by class. They convert fields that are added later."""
        kind = self._record(cls)
        self.definition: dict[str, Any] = kind.definition
        self._name = cls.__name__
        self._write, read = self._known[cls]
        self.from_dict: Callable[[dict[str, Any]], Any] = read
        """Raises TypeError or ValueError, also pydantic's: the class rejects it."""

    def as_dict(self, obj: Any) -> dict[str, Any]:
        """Raises ValueError for a value that has no place in the definition, or an object that contains itself."""
        try:
            found: dict[str, Any] = self._write(obj)
        except RecursionError:
            raise ValueError(f"a {self._name} has too many levels, or contains itself") from None
        return found

    def _record(self, cls: type) -> _Kind:
        if cls in self._known:
            return _Kind(cls.__name__, *self._known[cls])
        kinds: list[tuple[_Field, _Kind]] = []
        make = getattr(cls, "model_validate", None) or (lambda given: cls(**given))

        def write(obj: Any) -> dict[str, Any]:
            found = {}
            for field, kind in kinds:
                value = getattr(obj, field.name)
                found[field.name] = value if kind.write is None else kind.write(value)
            return found

        def read(found: dict[str, Any]) -> Any:
            given = {}
            for field, kind in kinds:
                if field.name in found and field.given_as:
                    value = found[field.name]
                    given[field.given_as] = value if kind.read is None else kind.read(value)
            return make(given)

        self._known[cls] = write, read
        definition: dict[str, Any] = {"type": "record", "name": cls.__name__, "fields": []}
        for field in _fields(cls):
            kind = self._kind(field.type, f"{cls.__name__}.{field.name}", field.default)
            kinds.append((field, kind))
            described = {"name": field.name, "type": kind.definition}
            if field.default is not _NO_DEFAULT:
                described["default"] = field.default
            definition["fields"].append(described)
        return _Kind(definition, write, read)

    def _kind(self, hint: Any, where: str, default: Any = _NO_DEFAULT) -> _Kind:
        origin, arguments = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            others = [each for each in arguments if each is not types.NoneType]
            if len(others) == 1 and len(arguments) == 2:
                kind = self._kind(others[0], where)
                first_null = default in (None, _NO_DEFAULT)  # a default is of the union's first type
                union = ["null", kind.definition] if first_null else [kind.definition, "null"]
                return _Kind(union, _unless_none(kind.write), _unless_none(kind.read))
        elif origin is list and len(arguments) == 1:
            kind = self._kind(arguments[0], where)
            return _Kind({"type": "array", "items": kind.definition}, _of_each(kind.write), _of_each(kind.read))
        elif origin is dict and arguments[:1] == (str,):
            kind = self._kind(arguments[1], where)
            return _Kind({"type": "map", "values": kind.definition}, _of_values(kind.write), _of_values(kind.read))
        elif hint in _PLAIN:
            return _BYTES[self._json] if hint is bytes else _Kind(_PLAIN[hint])
        elif hint in _LOGICAL:
            return _LOGICAL[hint] if self._json else _in_avro(hint)
        elif isinstance(hint, type) and issubclass(hint, Enum):
            return self._enum(hint)
        elif is_model(hint):
            return self._record(hint)
        raise TypeError(f"{where}: no schema has a place for {hint!r:.100}, expected {_EXPECTED}")

    def _enum(self, cls: type[Enum]) -> _Kind:
        def write(member: Enum) -> str:
            return member.name

        if cls in self._known:
            return _Kind(cls.__name__, *self._known[cls])
        self._known[cls] = write, cls.__getitem__
        symbols = list(cls.__members__)
        return _Kind({"type": "enum", "name": cls.__name__, "symbols": symbols}, write, cls.__getitem__)


def _fields(cls: type) -> Iterator[_Field]:
    hints = get_type_hints(cls)
    if not dataclasses.is_dataclass(cls):
        for name, info in cls.model_fields.items():  # type: ignore[attr-defined]  # pydantic is not imported here
            alias = info.validation_alias if isinstance(info.validation_alias, str) else info.alias
            missing = info.is_required()
            yield _Field(name, hints[name], _NO_DEFAULT if missing else _default(info.default, info.default_factory),
                         alias or name)  # fmt: skip
        return
    for each in dataclasses.fields(cls):
        default = None if each.default is dataclasses.MISSING else each.default
        factory = None if each.default_factory is dataclasses.MISSING else each.default_factory
        missing = each.default is dataclasses.MISSING and factory is None
        found = _NO_DEFAULT if missing else _default(default, factory)
        yield _Field(each.name, hints[each.name], found, each.name if each.init else "")


def _default(value: Any, factory: Any) -> Any:
    """The default in a definition; `_NO_DEFAULT` where it has no form there."""
    if factory is not None:
        return factory() if factory in (list, dict) else _NO_DEFAULT
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bytes):
        return value.decode("latin-1")
    convert = _LOGICAL[type(value)].write if type(value) in _LOGICAL else None
    return _NO_DEFAULT if convert is None else convert(value)


def _aware(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError(f"a schema takes a datetime with a time zone, got {value!r}")
    return value


_BYTES: Final = (
    _Kind("bytes", None, lambda value: value.encode("latin-1") if isinstance(value, str) else value),
    _Kind("bytes", lambda value: base64.b64encode(value).decode(), base64.b64decode),
)
"""In Avro, where fastavro gives a default as it is in the definition, and in JSON."""
_LOGICAL: Final[dict[type, _Kind]] = {
    datetime: _Kind(
        {"type": "long", "logicalType": "timestamp-micros"},
        lambda value: (_aware(value) - _EPOCH) // _MICROSECOND,
        lambda micros: _EPOCH + micros * _MICROSECOND,
    ),
    date: _Kind(
        {"type": "int", "logicalType": "date"},
        lambda value: value.toordinal() - _EPOCH_DAY,
        lambda days: date.fromordinal(days + _EPOCH_DAY),
    ),
    UUID: _Kind({"type": "string", "logicalType": "uuid"}, str, UUID),
}
"""As JSON has them; fastavro converts by itself, except for defaults."""


def _in_avro(cls: type) -> _Kind:
    definition, _, read = _LOGICAL[cls]
    assert read is not None  # noqa: S101 - each of `_LOGICAL` has it
    return _Kind(
        definition, _aware if cls is datetime else None, lambda value: value if isinstance(value, cls) else read(value)
    )


def _unless_none(convert: _Convert | None) -> _Convert | None:
    if convert is None:
        return None
    return lambda value: None if value is None else convert(value)


def _of_each(convert: _Convert | None) -> _Convert | None:
    if convert is None:
        return None
    return lambda values: [convert(value) for value in values]


def _of_values(convert: _Convert | None) -> _Convert | None:
    if convert is None:
        return None
    return lambda values: {key: convert(value) for key, value in values.items()}
