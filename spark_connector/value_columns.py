"""The columns of a read: those of the message, and in place of `value` those of its schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_connector.codec import VALUE
from spark_connector.decoding import RawColumns, decoded, needs_key, needs_version
from spark_connector.topic_schemas import AS_BYTES, TopicSchemas

_RAW = RawColumns(VALUE, "__pulsar_key", "__pulsar_topic", "__pulsar_partition", "__pulsar_offset", "__pulsar_version")


def selected(
    messages: DataFrame,
    made: Mapping[str, Callable[[], Column]],
    columns: Sequence[str],
    schemas: TopicSchemas,
    mode: str,
) -> DataFrame:
    """The named columns, made of `messages`, with the value decoded.

    Args:
        made: how to make each column; `value` gives the payload.
    Raises:
        As `decoded`.
    """
    chosen = [made[name]().alias(name) for name in columns]
    if VALUE not in columns or schemas.reader == AS_BYTES:
        return messages.select(*chosen)
    beside = [
        F.lit(schemas.topic).alias(_RAW.topic),
        made["__partition"]().alias(_RAW.partition),
        made["__offset"]().alias(_RAW.offset),
    ]
    if needs_key(schemas):
        beside.append(made["__key"]().alias(_RAW.key))
    if needs_version(schemas):
        beside.append(made["__schemaVersion"]().alias(_RAW.version))
    found = decoded(messages.select(*chosen, *beside), schemas, mode=mode, raw=_RAW)
    of_value = found.columns[: len(found.columns) - len(columns) + 1 - len(beside)]
    names = [part for name in columns for part in (of_value if name == VALUE else [name])]
    return found.select(*(found[f"`{name}`"] for name in names))
