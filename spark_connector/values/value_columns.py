"""A read has the columns of the message, and in place of `value` those of its schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from pulsar_on_kafka.spark.base.sql_text import column, text
from pulsar_on_kafka.spark.values.topic_schemas import AS_BYTES, TopicSchemas
from pulsar_on_kafka.spark.values.value_codec import VALUE
from pulsar_on_kafka.spark.values.value_decoding import RawColumns, decoded, needs_key, needs_version

_RAW = RawColumns(VALUE, "__pulsar_key", "__pulsar_topic", "__pulsar_partition", "__pulsar_offset", "__pulsar_version")


def selected(
    messages: DataFrame,
    made: Mapping[str, str],
    columns: Sequence[str],
    schemas: TopicSchemas,
    mode: str,
) -> DataFrame:
    """The named columns, made of `messages`, with the value decoded.

    Args:
        made: each column as text; `value` gives the payload.
    Raises:
        As `decoded`.
    """
    chosen = [f"{made[name]} as {column(name)}" for name in columns]
    if VALUE not in columns or schemas.reader == AS_BYTES:
        return messages.selectExpr(chosen)
    beside = [
        f"{text(schemas.topic)} as {_RAW.topic}",
        f"{made['__partition']} as {_RAW.partition}",
        f"{made['__offset']} as {_RAW.offset}",
    ]
    if needs_key(schemas):
        beside.append(f"{made['__key']} as {_RAW.key}")
    if needs_version(schemas):
        beside.append(f"{made['__schemaVersion']} as {_RAW.version}")
    found = decoded(messages.selectExpr(chosen + beside), schemas, mode=mode, raw=_RAW)
    of_value = found.columns[: len(found.columns) - len(columns) + 1 - len(beside)]
    names = [part for name in columns for part in (of_value if name == VALUE else [name])]
    return found.select(*map(column, names))
