"""JsonSchema: records as JSON text, laid out to the byte as the official client does."""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import Enum
from json.encoder import encode_basestring_ascii
from math import isfinite
from typing import Any, Final, cast

import orjson

from pulsar_on_kafka.schema.definition import Record, values_of
from pulsar_on_kafka.schema.models import model_form
from pulsar_on_kafka.schema.plain import Schema
from pulsar_on_kafka.schema.value_type import V
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaType

_LITERALS: Final = {None: "null", True: "true", False: "false"}


class JsonSchema(Schema[V]):
    """Records of `record_cls` as JSON with one blank of indentation a level; enum members by value, bytes as UTF-8.

    Kept as it is officially: an enum member whose value is text can be read back only when the text is its name. The
    class may also be a dataclass or a pydantic model (`schema.models`), without indentation.

    Raises:
        TypeError: the class is something else, or a field's type has no counterpart in the definition.
    """

    def __init__(self, record_cls: type[V]) -> None:
        self._model = model_form(record_cls, json=True)
        definition = self._model.definition if self._model else cast("type[Record]", record_cls).schema()
        super().__init__(record_cls, SchemaType.JSON, definition, "JSON")

    def encode(self, obj: Any) -> bytes:
        """Raises TypeError for anything but an object of the class. ValueError: the record contains itself."""
        self._validate_object_type(obj)
        if self._model is not None:
            return orjson.dumps(self._model.as_dict(obj))
        try:
            text = _written(obj, "\n")
        except (_Unusual, RecursionError):
            text = json.dumps(values_of(obj), default=_as_json, indent=1)
        return text.encode("utf-8")

    def decode(self, data: bytes) -> Any:
        """The record; names that are no fields are left out. Raises ValueError, TypeError: it does not fit."""
        found = parsed(data)
        if not isinstance(found, dict):
            raise TypeError(
                f"a {self._record_cls.__name__} is a JSON object, got {type(found).__name__}: {found!r:.60}"
            )
        return self._record_cls(**found) if self._model is None else self._model.from_dict(found)


def parsed(data: bytes) -> Any:
    """The value of a JSON text. Raises ValueError for what is none, or has more levels than Python's parser reads."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError(f"a JSON text of {len(data)} bytes has too many levels of arrays and objects") from None


class _Unusual(Exception):
    """A value that only the standard library's encoder, ten times slower, writes as the official client does."""


def _written(value: Any, newline: str) -> str:
    """`value` as `json.dumps(value, indent=1)` writes it; `newline` ends with the indentation around it."""
    kind = type(value)
    if kind is str:
        return encode_basestring_ascii(value)
    if kind is int:
        return str(value)
    if kind is float and isfinite(value):
        return repr(value)
    if value is None or kind is bool:
        return _LITERALS[value]
    if kind is list:
        return _block("[", (_written(item, newline + " ") for item in value), "]", newline)
    if kind is dict:
        return _members(value, newline)
    if kind is bytes:
        return encode_basestring_ascii(value.decode())
    if isinstance(value, Record):
        return _members(values_of(value), newline)
    if isinstance(value, Enum) and not isinstance(value, str | int | float):
        return _written(value.value, newline)
    raise _Unusual


def _members(values: dict[Any, Any], newline: str) -> str:
    if not all(type(name) is str for name in values):
        raise _Unusual
    inner = newline + " "
    return _block(
        "{",
        (f"{encode_basestring_ascii(name)}: {_written(item, inner)}" for name, item in values.items()),
        "}",
        newline,
    )


def _block(opening: str, parts: Iterable[str], closing: str, newline: str) -> str:
    inside = f",{newline} ".join(parts)
    return f"{opening}{newline} {inside}{newline}{closing}" if inside else opening + closing


def _as_json(value: object) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Record):
        return values_of(value)
    raise TypeError(f"JSON has no place for {type(value).__name__}: {value!r:.60}")
