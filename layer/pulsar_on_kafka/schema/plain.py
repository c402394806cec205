"""The base class of all schemas, and the two that add nothing to it: bytes as they are, and text as UTF-8.

Source: `pulsar.schema.schema` of pulsar-client 3.13.0. `schema_info()` gives a `schema_compat.SchemaInfo`, which has
the methods of the official client's native object (`schema_type()`, `schema()`, `name()`) beside attributes.
"""

from __future__ import annotations

import json
from typing import Any, Final, Generic, Protocol

from pulsar_on_kafka.schema.value_type import V
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType

NO_DEFINITION: Final = b"null"
"""The official client's definition of bytes and text."""


class HasData(Protocol):
    """A received message."""

    def data(self) -> bytes: ...


class Schema(Generic[V]):
    """Encoder and decoder of values, with a definition for the registry.

    A subclass that does not call this constructor counts as one of bytes.

    Args:
        record_cls: the class of its values.
        schema_definition: what `json.dumps` takes.
    """

    _record_cls: Any = object
    _schema_info = SchemaInfo.declared(SchemaType.BYTES, NO_DEFINITION, "BYTES")

    def __init__(self, record_cls: Any, schema_type: SchemaType, schema_definition: Any, schema_name: str) -> None:
        self._record_cls = record_cls
        definition = json.dumps(schema_definition, indent=1)  # as the official client lays it out, to the byte
        self._schema_info = SchemaInfo.declared(schema_type, definition.encode(), schema_name)

    def schema_info(self) -> SchemaInfo:
        """Type, definition and name, as a registry keeps them."""
        return self._schema_info

    def encode(self, obj: Any) -> bytes | None:
        """The payload for `obj`; None for one that is null. Raises TypeError for a value of a wrong type."""
        raise NotImplementedError

    def decode(self, data: bytes) -> V:
        """The value of a payload that was written with this schema."""
        raise NotImplementedError

    def decode_as_written(self, data: bytes, writer: SchemaInfo) -> Any:
        """The value of a payload that was written with another version, `writer`, where that makes a difference."""
        return self.decode(data)

    def decode_message(self, msg: HasData) -> Any:
        """The value of a message."""
        return self.decode(msg.data())

    def _validate_object_type(self, obj: object) -> None:
        if not isinstance(obj, self._record_cls):
            raise TypeError(
                f"{type(self).__name__} takes {self._record_cls.__name__}, got {type(obj).__name__}: {obj!r:.60}"
            )


class BytesSchema(Schema[bytes]):
    """Payloads are bytes."""

    def __init__(self) -> None:
        super().__init__(bytes, SchemaType.BYTES, None, "BYTES")

    def encode(self, data: Any) -> bytes:
        self._validate_object_type(data)
        return bytes(data)

    def decode(self, data: bytes) -> bytes:
        return data

    def __str__(self) -> str:
        return "BytesSchema"


class StringSchema(Schema[str]):
    """Payloads are text in UTF-8."""

    def __init__(self) -> None:
        super().__init__(str, SchemaType.STRING, None, "STRING")

    def encode(self, obj: Any) -> bytes:
        self._validate_object_type(obj)
        return bytes(obj.encode("utf-8"))

    def decode(self, data: bytes) -> str:
        return data.decode("utf-8")

    def __str__(self) -> str:
        return "StringSchema"
