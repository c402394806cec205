"""AvroSchema: records, or dicts of a definition given as it is, in Avro's binary form.

Definitions are compiled once for a schema, and once for each of the writers' versions that it meets.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, overload

import fastavro
from fastavro.read import SchemaResolutionError
from fastavro.schema import UnknownType

from pulsar_on_kafka.schema.avro_bounds import PayloadBounds, check_definition
from pulsar_on_kafka.schema.definition import Record
from pulsar_on_kafka.schema.json import parsed
from pulsar_on_kafka.schema.models import model_form
from pulsar_on_kafka.schema.plain import Schema
from pulsar_on_kafka.schema.value_type import V
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType

WRITERS: Final = 128
"""Compiled versions of writers that a schema keeps; the longest unused one makes room."""

_PLAIN: Final = frozenset({str, int, float, bool, bytes, type(None)})


class AvroSchema(Schema[V]):
    """Values of `record_cls`, or dicts of `schema_definition` when that is None.

    The class is a Record, a dataclass or a pydantic model (`schema.models`).

    Raises:
        AssertionError: neither is given.
        TypeError: the class is something else, or a field's type has no counterpart in Avro.
        fastavro.schema.SchemaParseException, UnknownType: the definition is no Avro. Differs from Pulsar: raised here,
            and not when the first message is sent.
        ValueError: a record of it contains itself outright, or it has more than 500 levels.
    """

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: AvroSchema[dict[str, Any]], record_cls: None, schema_definition: dict[str, Any] | None = ...
        ) -> None: ...
        @overload
        def __init__(self, record_cls: type[V], schema_definition: dict[str, Any] | None = ...) -> None: ...

    def __init__(self, record_cls: Any, schema_definition: dict[str, Any] | None = None) -> None:
        if record_cls is None and schema_definition is None:
            raise AssertionError("AvroSchema requires record_cls or schema_definition, got None for both")
        self._model = model_form(record_cls, json=False)
        if self._model is not None:
            definition: Any = self._model.definition
        else:
            definition = schema_definition if record_cls is None else record_cls.schema()
        self._compiled, self._bounds = compiled_avro(definition)
        super().__init__(record_cls, SchemaType.AVRO, definition, "AVRO")
        self._root_name = definition.get("name") if isinstance(definition, dict) else None
        self._writer: Callable[[SchemaInfo], tuple[Any, PayloadBounds]] = lru_cache(maxsize=WRITERS)(
            self._compiled_writer
        )

    def encode(self, obj: Any) -> bytes:
        """Raises TypeError for no record of the class. ValueError: no dict, or a value that does not fit its field.

        ValueError also for what could not be read again, as it is more than 1,000 levels deep (`avro_bounds.py`).
        """
        if self._record_cls is not None:
            self._validate_object_type(obj)
            datum = self._dict_of(obj) if self._model is None else self._model.as_dict(obj)
        elif isinstance(obj, dict):
            datum = obj
        else:
            raise ValueError(f"AvroSchema of a definition takes a dict, got {type(obj).__name__}: {obj!r:.60}")
        self._bounds.check_value(datum)
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, self._compiled, datum)
        data = buffer.getvalue()
        self._bounds.check(data)
        return data

    def encode_dict(self, d: Mapping[str, Any]) -> dict[str, Any]:
        """`d` with its records as dicts and its enum members as their names."""
        return {name: value if type(value) in _PLAIN else self._as_avro(value) for name, value in d.items()}

    def decode(self, data: bytes) -> Any:
        """The record, or the dict.

        Raises:
            ValueError: the place where the bytes are no value of the definition; or more than 1,000 levels, or values
                without bytes beyond `avro_bounds.MAX_EMPTY`.
            TypeError: a value does not fit the field of the class.
        """
        return self._value(_read(data, self._compiled, self._bounds, None))

    def decode_as_written(self, data: bytes, writer: SchemaInfo) -> Any:
        """Decode a payload, by Avro's resolution from the definition of `writer` to this one.

        The root record's name need not be the same, as officially, unless the writer's record refers to itself; the
        names of the records in it must.

        Raises:
            TypeError: the writer's schema is not of type AVRO.
            ValueError: as `decode`; or the writer's definition cannot be read.
            fastavro's SchemaResolutionError: this schema cannot read that one.
        """
        if writer.schema == self._schema_info.schema and writer.type is SchemaType.AVRO:
            return self.decode(data)
        return self._value(_read(data, *self._writer(writer), self._compiled))

    def _value(self, found: Any) -> Any:
        if self._record_cls is None:
            return found
        return self._record_cls(**found) if self._model is None else self._model.from_dict(found)

    def _dict_of(self, record: Record) -> dict[str, Any]:
        try:
            return self.encode_dict(record.__dict__)
        except RecursionError:
            raise ValueError(f"a {type(record).__name__} has too many levels for Avro, or contains itself") from None

    def _compiled_writer(self, writer: SchemaInfo) -> tuple[Any, PayloadBounds]:
        definition = avro_definition(writer)
        if isinstance(definition, dict) and self._root_name is not None:
            definition["name"] = self._root_name
        return compiled_avro(definition)

    def _as_avro(self, value: object) -> Any:
        if type(value) is not list:
            if isinstance(value, Enum):
                return value.name
            if isinstance(value, Record):
                return self.encode_dict(value.__dict__)
        if isinstance(value, list):
            return [item if type(item) in _PLAIN else self._as_avro(item) for item in value]
        if isinstance(value, dict):
            return self.encode_dict(value)
        return value


def compiled_avro(definition: Any) -> tuple[Any, PayloadBounds]:
    """The definition as fastavro reads it, and the bounds of its payloads.

    Raises:
        fastavro.schema.SchemaParseException, UnknownType: the definition is no Avro.
        ValueError: as `AvroSchema`.
    """
    if isinstance(definition, dict | list):
        check_definition(definition)
    try:
        compiled = fastavro.parse_schema(definition)
    except UnknownType as unknown:
        name = definition.get("name") if isinstance(definition, dict) else definition
        raise UnknownType(  # type: ignore[no-untyped-call]
            f"the Avro schema {name!r:.60} has a type {unknown.name!r:.60} that it does not define; of an array or a "
            "map of enums the official definition has no more than the word: declare Array(String())"
        ) from unknown
    return compiled, PayloadBounds(compiled)


def _read(data: bytes, writer: Any, bounds: PayloadBounds, reader: Any) -> Any:
    bounds.check(data)
    try:
        return fastavro.schemaless_reader(io.BytesIO(data), writer, reader)
    except (SchemaResolutionError, MemoryError):
        raise
    except Exception as error:  # fastavro's own errors do not name the place and the cause
        bounds.walk(data)
        raise ValueError(f"an Avro payload of {len(data)} bytes has a value that cannot be: {error!r:.200}") from error


def avro_definition(schema: SchemaInfo) -> Any:
    """The definition as JSON's types. Raises TypeError for a schema of another type, ValueError for what is no JSON."""
    if schema.type is not SchemaType.AVRO:
        raise TypeError(f"expected a schema of type AVRO, got {schema.type.name} {schema.name!r:.60}")
    return parsed(schema.schema)
