"""Columns of messages become the columns of Spark's Kafka sink: key, value, partition, headers. Inside the JVM.

The forms of headers are those of `mapping.records.record_headers`; keys choose partitions as in the SDK
(`mapping.routing.sticky_hash`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.record_headers import (
    DELIVER_AT,
    EVENT_TIME,
    ORDERING_KEY,
    PREFIX,
    PRODUCER,
    PROPERTY_ESCAPE,
    SCHEMA_IDS,
    TXN,
    producer_suffix,
)
from pulsar_on_kafka_spark.base.errors import InvalidWriteOption
from pulsar_on_kafka_spark.base.sql_text import column as quoted
from pulsar_on_kafka_spark.options.write_options import META_COLUMNS, WriteOptions
from pulsar_on_kafka_spark.values.value_encoding import Encoded

_HEADERS: Final = "array<struct<key:string,value:binary>>"
_NOW_MS: Final = "cast(reflect('java.lang.System', 'currentTimeMillis') as bigint)"
"""The time of each row: Spark's own functions give one time for the whole query."""


def _check_names_differ(kind: DataType, path: str) -> None:
    """Raises InvalidWriteOption where names of columns, or of a struct's fields, differ in case alone."""
    if isinstance(kind, ArrayType):
        _check_names_differ(kind.elementType, path)
    elif isinstance(kind, MapType):
        _check_names_differ(kind.valueType, path)
    elif isinstance(kind, StructType):
        seen: dict[str, str] = {}
        for field in kind.fields:
            other = seen.setdefault(field.name.lower(), field.name)
            if other != field.name:
                what = (
                    f"the fields {other} and {field.name} of column {path}"
                    if path
                    else f"the columns {other} and {field.name}"
                )
                raise InvalidWriteOption(f"{what} differ in case alone: set spark.sql.caseSensitive to true")
            _check_names_differ(field.dataType, f"{path}.{field.name}" if path else field.name)


class MessageColumns:
    """The columns of `rows` with the data of a message."""

    def __init__(self, rows: DataFrame, options: WriteOptions) -> None:
        """Raises InvalidWriteOption: a column is not there, has a type that cannot be, or differs from another one in
        case alone, where Spark ignores the case."""
        if str(rows.sparkSession.conf.get("spark.sql.caseSensitive")).lower() != "true":
            _check_names_differ(rows.schema, "")
        self._types = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
        self.key = self._named(options, "key_column")
        self.ordering_key = self._named(options, "ordering_key_column")
        self.event_time = self._named(options, "event_time_column")
        self.properties = self._named(options, "properties_column")
        self.deliver_at = self._named(options, "deliver_at_column")
        self.sequence_id = self._named(options, "sequence_id_column")
        for name in (self.key, self.ordering_key):
            self._check(name, ("string", "binary"))
        for name in (self.event_time, self.deliver_at):
            self._check(name, ("timestamp", "bigint", "int"))
        self._check(self.sequence_id, ("bigint", "int"))
        self._check(self.properties, ("map<string,string>",))

    def _named(self, options: WriteOptions, attribute: str) -> str | None:
        given: str | None = getattr(options, attribute)
        if given is not None and given not in self._types:
            raise InvalidWriteOption(f"there is no column {given}, only {', '.join(self._types)}")
        meta = META_COLUMNS.get(attribute)
        return meta if given is None and meta in self._types else given

    def _check(self, name: str | None, allowed: Sequence[str]) -> None:
        if name is not None and self._types[name] not in allowed:
            raise InvalidWriteOption(f"column {name} is {self._types[name]}, expected {' or '.join(allowed)}")

    def not_of_the_value(self) -> frozenset[str]:
        """Columns that belong to no field; the key's and the ordering key's may do both."""
        own = {
            name for name in (self.event_time, self.properties, self.deliver_at, self.sequence_id) if name is not None
        }
        return frozenset(own | {name for name in self._types if name.startswith("__")})

    def may_be_of_the_value(self) -> frozenset[str]:
        return frozenset(name for name in (self.key, self.ordering_key) if name is not None)

    def partition_key(self) -> Column:
        """Binary; null where there is none, as where it is empty."""
        return _key(self.key)

    def ordering(self) -> Column:
        return _key(self.ordering_key)

    def event_time_ms(self) -> Column | None:
        return self._millis(self.event_time)

    def deliver_at_ms(self) -> Column | None:
        return self._millis(self.deliver_at)

    def _millis(self, name: str | None) -> Column | None:
        if name is None:
            return None
        column = F.col(quoted(name))
        return F.unix_millis(column) if self._types[name] == "timestamp" else column.cast("bigint")


def sink_columns(
    rows: DataFrame,
    columns: MessageColumns,
    encoded: Encoded,
    partitions: int,
    fixed_partition: int | None,
    marks: Sequence[tuple[str, bytes]],
    producer: tuple[str, int] | None,
    txn: tuple[TxnId, int] | None,
    keyless: str = "",
) -> DataFrame:
    """The input of Spark's Kafka sink.

    Args:
        partitions: the number of partitions to write to. Every row names its own: Kafka's partitioner chooses among all
            that Kafka has, also those that were added meanwhile, or that do not belong to the topic.
        fixed_partition: the partition of all messages; None: by key, and without a key runs of rows go to one after the
            other, from a random one.
        marks: headers that name the schema.
        producer: name and epoch.
        txn: the transaction, and the Unix time in ms from which on no row may be handed to Kafka.
        keyless: the reason why a row without a partition key fails the job; '' where it does not.
    """
    partition_key = encoded.key if encoded.key is not None else columns.partition_key()
    if fixed_partition is not None:
        partition: Column = F.lit(fixed_partition)
    else:
        by_key = F.crc32(partition_key) % partitions
        partition = F.coalesce(by_key, _in_turn(partitions)).cast("int")
    return rows.select(
        F.coalesce(partition_key, F.raise_error(F.lit(keyless)) if keyless else columns.ordering()).alias("key"),
        encoded.payload.alias("value"),
        partition.alias("partition"),
        _headers(columns, partition_key, marks, producer, txn).alias("headers"),
    )


def _in_turn(partitions: int) -> Column:
    row, first = "shiftright(monotonically_increasing_id() & 8589934591L, 4)", random.randrange(partitions)
    return F.expr(f"({row} + spark_partition_id() + {first}) % {partitions}")


def _headers(
    columns: MessageColumns,
    partition_key: Column,
    marks: Sequence[tuple[str, bytes]],
    producer: tuple[str, int] | None,
    txn: tuple[TxnId, int] | None,
) -> Column:
    always: list[Column] = []
    if producer is not None:
        always.append(_header(PRODUCER, _producer(columns, *producer)))
    always += [_header(name, F.lit(value)) for name, value in marks]
    if txn is not None:
        always.append(_header(TXN, _in_time(*txn)))
    found = [F.array(*always).cast(_HEADERS)] if always else []
    if columns.ordering_key is not None:
        ordering = columns.ordering()
        beside = F.when(partition_key.isNotNull(), ordering)
        found.append(_where(ordering.isNotNull(), _header(ORDERING_KEY, beside)))
    for name, millis in ((EVENT_TIME, columns.event_time_ms()), (DELIVER_AT, columns.deliver_at_ms())):
        if millis is not None:
            reported = millis.isNotNull() if name == DELIVER_AT else F.coalesce(millis != 0, F.lit(False))
            found.append(_where(reported, _header(name, _decimal(name, millis))))
    if columns.properties is not None:
        found.append(_properties(F.col(quoted(columns.properties))))
    if not found:
        return F.lit(None).cast(_HEADERS)
    return found[0] if len(found) == 1 else F.concat(*found)


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.alias("value"))


def _where(condition: Column, header: Column) -> Column:
    return F.when(condition, F.array(header).cast(_HEADERS)).otherwise(F.array().cast(_HEADERS))


def _in_time(txn: TxnId, until_ms: int) -> Column:
    late = F.raise_error(F.lit(f"transaction {txn} has timed out (transactionTimeout): nothing of it becomes visible"))
    return F.when(F.expr(_NOW_MS) >= until_ms, late).otherwise(F.lit(txn.to_bytes()))


def _producer(columns: MessageColumns, name: str, epoch: int) -> Column:
    sequence = F.monotonically_increasing_id() if columns.sequence_id is None else F.col(quoted(columns.sequence_id))
    return F.concat(F.coalesce(sequence, F.lit(-1)).cast("string"), F.lit(producer_suffix(epoch, name))).cast("binary")


def _decimal(name: str, millis: Column) -> Column:
    wrong = F.raise_error(
        F.concat(F.lit(f"{name} is "), millis.cast("string"), F.lit(", expected Unix time in ms, 0 or more"))
    )
    return F.when(millis < 0, wrong).otherwise(millis.cast("string")).cast("binary")


def _properties(properties: Column) -> Column:
    """A null value is '', as text. Names with our prefix are escaped, which is the slow way, and the rare one."""
    entries = F.map_entries(properties)
    plain = entries.cast(_HEADERS)
    names = F.array_join(F.map_keys(properties), "\n")
    escaped = F.transform(
        entries,
        lambda one: F.struct(
            F.when(
                F.startswith(one["key"], F.lit(PREFIX)) | one["key"].isin(*SCHEMA_IDS),
                F.concat(F.lit(PROPERTY_ESCAPE), one["key"]),
            )
            .otherwise(one["key"])
            .alias("key"),
            one["value"].cast("binary").alias("value"),
        ),
    ).cast(_HEADERS)
    wrong = F.raise_error(F.lit("a property's name holds the character NUL, which no header can"))
    reserved = F.contains(names, F.lit(PREFIX)) | F.arrays_overlap(
        F.map_keys(properties), F.array(*map(F.lit, sorted(SCHEMA_IDS)))
    )
    found = F.when(F.contains(names, F.lit("\x00")), wrong).when(reserved, escaped).otherwise(plain)
    return F.when(properties.isNull(), F.array().cast(_HEADERS)).otherwise(found)


def _key(name: str | None) -> Column:
    if name is None:
        return F.lit(None).cast("binary")
    data = F.col(quoted(name)).cast("binary")
    return F.when(F.octet_length(data) > 0, data)
