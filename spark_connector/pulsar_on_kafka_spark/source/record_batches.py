"""The messages of a plan as Arrow record batches: the work of one task on an executor."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructField, StructType

from pulsar_on_kafka_spark.base.errors import InvalidReadOption
from pulsar_on_kafka_spark.options.read_options import CORRUPT, ReadOptions, nearest
from pulsar_on_kafka_spark.source.arrow_columns import arrow_type
from pulsar_on_kafka_spark.source.message_columns import (
    COLUMN_TYPES,
    DecodedColumns,
    RecordColumns,
    RowColumns,
    column_types,
)
from pulsar_on_kafka_spark.source.partition_plan import PartitionPlan
from pulsar_on_kafka_spark.source.record_reader import read_records
from pulsar_on_kafka_spark.source.source_messages import MessageMaker, without_markers
from pulsar_on_kafka_spark.source.value_arrays import ValueArrays
from pulsar_on_kafka_spark.values.topic_schemas import TopicSchemas
from pulsar_on_kafka_spark.values.value_codec import VALUE

MAX_BYTES: Final = 16 * 1024 * 1024
"""The limit of payloads in one record batch, besides those of its last message."""


class Columns:
    """The columns of a read: `schema` as Spark has it, and where each comes from."""

    def __init__(self, schemas: TopicSchemas, options: ReadOptions, chosen: StructType | None = None) -> None:
        """`chosen`: columns that the program named by `.schema(...)`; None: those of the options.

        Raises:
            InvalidReadOption: one of them is not there, or is of another type.
            NotReadable: see `ValueArrays`.
        """
        if chosen is None:
            reads_value = VALUE in options.columns
        else:
            reads_value = not COLUMN_TYPES.keys() >= set(chosen.fieldNames())
        keeps_corrupt = CORRUPT in (options.columns if chosen is None else chosen.fieldNames())
        self.values = ValueArrays(schemas, options.mode, keeps_corrupt=keeps_corrupt) if reads_value else None
        of_value = [] if self.values is None else self.values.fields
        self.of_value = {field.name: at for at, field in enumerate(of_value)}
        known = {
            **{name: StructField(name, kind) for name, kind in column_types(options).items()},
            **{f.name: f for f in of_value},
        }
        if chosen is not None:
            self.schema = StructType([_checked(field, known) for field in chosen.fields])
        else:
            decoded = [each for each in of_value if each.name != CORRUPT]
            fields = [decoded if name == VALUE else [known[name]] for name in options.columns]
            self.schema = StructType(list(chain.from_iterable(fields)))


def _checked(field: StructField, known: Mapping[str, StructField]) -> StructField:
    found = known.get(field.name)
    if found is None:
        raise InvalidReadOption(
            f"column {field.name} of the given schema is unknown, {nearest(field.name, {name: name for name in known})}"
        )
    if found.dataType.simpleString() != field.dataType.simpleString():
        raise InvalidReadOption(
            f"column {field.name} of the given schema is {field.dataType.simpleString()}, expected "
            f"{found.dataType.simpleString()}"
        )
    return field


def record_batches(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a plan, in the order of their offsets; messages in chunks come last. Spark's own partition, which
    stands for an empty list of plans, has none.

    Raises:
        NotReadable, DataLoss: see `read_records`, `MessageMaker.messages` and `ValueArrays.arrays`.
    """
    return _uncollected(_record_batches(partition)) if isinstance(partition, PartitionPlan) else iter(())


def _uncollected(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same, each made without Python's garbage collector, which would visit thousands of records again and again,
    for half of the time. They are in no cycles."""
    while True:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            batch = next(batches, None)
        finally:
            if was_enabled:
                gc.enable()
        if batch is None:
            return
        yield batch


def _record_batches(plan: PartitionPlan) -> Iterator[pa.RecordBatch]:
    topic = plan.topic
    read = partial(
        read_records,
        topic.kafka,
        topic.opened.kafka_topic,
        plan.partition,
        fail_on_data_loss=topic.options.fail_on_data_loss,
    )
    writer = _Writer(plan)
    of_records = RecordColumns(plan)
    maker, of_messages = MessageMaker(plan), DecodedColumns(plan)
    for records in read(plan.bitmap()):
        if topic.plain and not (plan.unsealed and records[-1].offset() >= plan.unsealed_from):
            yield from writer.write(of_records, without_markers(records) if topic.marked else records)
        else:
            yield from writer.write(of_messages, maker.messages(records))
    for message in plan.chunked.values():
        chunks = [record for batch in read(BitMap64(message.offsets)) for record in batch]
        yield from writer.write(of_messages, maker.chunked(message.offsets, message.total_bytes, chunks))


class _Writer:
    """Makes Arrow record batches of rows."""

    def __init__(self, plan: PartitionPlan) -> None:
        topic = plan.topic
        self._columns = Columns(topic.schemas, topic.options, topic.columns)
        self._place = f"topic {topic.schemas.topic}, partition {plan.partition}, offset"
        self._schema = arrow_schema(self._columns.schema)

    def write(self, columns: RowColumns, rows: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        """One record batch, or several where payloads are large. `rows` are records for `RecordColumns`, and messages
        for `DecodedColumns`."""
        start, size = 0, 0
        payloads = columns.payloads(rows)
        for at, payload in enumerate(payloads) if sum(map(len, filter(None, payloads))) > MAX_BYTES else ():
            size += len(payload or b"")
            if size >= MAX_BYTES:
                yield self._made(columns, rows[start : at + 1], payloads[start : at + 1])
                start, size = at + 1, 0
        if start < len(rows):
            yield self._made(columns, rows[start:], payloads[start:])

    def _made(self, columns: RowColumns, rows: Sequence[Any], payloads: Sequence[bytes | None]) -> pa.RecordBatch:
        values = self._values(columns, rows, payloads)
        places = self._columns.of_value
        arrays = [values[places[name]] if name in places else columns.column(name, rows) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _values(self, columns: RowColumns, rows: Sequence[Any], payloads: Sequence[bytes | None]) -> list[pa.Array]:
        values = self._columns.values
        if values is None:
            return []
        versions = columns.versions(rows) if values.needs_version else None
        keys = columns.keys(rows) if values.needs_key else None
        return values.arrays(payloads, versions, keys, lambda at: f"{self._place} {columns.offsets(rows)[at]}")


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects of a Python data source with these columns."""
    return pa.schema([pa.field(each.name, arrow_type(each.dataType), each.nullable) for each in schema.fields])
