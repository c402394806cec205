"""Arrays of AVRO values: fastavro decodes each message by its writer's version into the reader's definition.

Differs from the JVM: text that is no UTF-8 is no value, and a broken value of a union with null is an error. As in the
SDK, a negative number of a branch or of an enum's symbol, which no writer makes, counts from the end.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import fastavro

from pulsar_on_kafka.schema.avro import compiled_avro
from pulsar_on_kafka.schema.avro_bounds import PayloadBounds
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo
from pulsar_on_kafka_spark.source.array_codec import ArrayCodec, Decoded, Payloads, Versions, in_column
from pulsar_on_kafka_spark.source.avro_columns import AvroColumns, added_fields, prepare_reader, readable_definition
from pulsar_on_kafka_spark.values.avro_writers import AvroWriters


class _Writer(NamedTuple):
    """A writer's definition."""

    definition: Any
    bounds: PayloadBounds
    reader: Any = None
    """The reader's definition, where fastavro has to resolve it."""
    added: dict[str, Any] | None = None
    """The reader's fields that the writer has not, where that is all."""


class AvroArrays(ArrayCodec):
    """The codec reads messages of all versions of a topic."""

    def __init__(self, reader: SchemaInfo, writers: Mapping[SchemaVersion, SchemaInfo]) -> None:
        """Raises ValueError, TypeError: as `AvroWriters`; or a definition is no Avro, or has no type of Spark."""
        grouped = AvroWriters(reader, writers)
        self._own = _Writer(*_compiled(grouped.definition))
        columns = AvroColumns(self._own.definition)
        self._column = columns.column
        self.kind = self._column.kind
        self.is_record = grouped.is_record
        self._named = columns.has_members
        resolved: Any = None
        if grouped.others:
            resolved, _ = _compiled(grouped.definition)
            prepare_reader(resolved)
        self.by_version = bool(grouped.others)
        self._by_version: dict[int | None, _Writer] = {None: self._own, **dict.fromkeys(grouped.same, self._own)}
        for text, versions in grouped.others.items():
            definition, bounds = _compiled(json.loads(text))
            added = added_fields(definition, resolved)
            writer = _Writer(definition, bounds, resolved if added is None else None, added)
            self._by_version.update(dict.fromkeys(versions, writer))

    def decode(self, payloads: Payloads, versions: Versions, keys: Payloads | None = None) -> Decoded:
        values: list[Any] = [None] * len(payloads)
        failed: list[int] = []
        if versions is None:
            self._read(self._own, range(len(payloads)), payloads, values, failed)
        else:
            for version in set(versions):
                rows = [at for at, each in enumerate(versions) if each == version]
                writer = self._by_version.get(version)
                if writer is None:
                    failed += [at for at in rows if payloads[at] is not None]
                else:
                    self._read(writer, rows, payloads, values, failed)
        return in_column(self._column, values, sorted(failed))

    def _read(
        self, writer: _Writer, rows: Iterable[int], payloads: Payloads, values: list[Any], failed: list[int]
    ) -> None:
        read, check = fastavro.schemaless_reader, writer.bounds.check
        definition, _, reader, added = writer
        options: Any = {"return_named_type": True} if self._named else {}
        for at in rows:
            payload = payloads[at]
            if payload is not None:
                try:
                    check(payload)
                    if reader is None:
                        value: Any = read(io.BytesIO(payload), definition, None, **options)
                        values[at] = {**added, **value} if added else value
                    else:
                        values[at] = _resolved(payload, definition, reader, options)
                except MemoryError:
                    raise
                except Exception:  # fastavro has no error of its own for bytes that are no value
                    failed.append(at)


def _resolved(payload: bytes, definition: Any, reader: Any, options: Any) -> Any:
    """The value. Raises EOFError where the payload ends within a field that the reader has not, which fastavro does not
    notice. One byte more shows it."""
    buffer = io.BytesIO(payload + b"\0")
    value = fastavro.schemaless_reader(buffer, definition, reader, **options)
    if buffer.tell() > len(payload):
        raise EOFError
    return value


def _compiled(definition: Any) -> tuple[Any, PayloadBounds]:
    """Raises ValueError: the definition is no Avro."""
    try:
        return compiled_avro(readable_definition(definition))
    except fastavro.schema.SchemaParseException as error:
        raise ValueError(str(error)) from error
