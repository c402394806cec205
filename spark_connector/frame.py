"""The DataFrame of one topic's snapshot: Spark's Kafka source, what filters it, and the columns of messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from layer.metadata.topics import Topic
from mapping.headers import CHUNK
from spark_connector import batches, filters, places
from spark_connector.chunk_frames import FIRST_CHUNK, chunk_records, put_together
from spark_connector.decoding import needs_version
from spark_connector.errors import NotReadable
from spark_connector.excluded import block_rows
from spark_connector.headers import RecordHeaders
from spark_connector.options import DISCARD, FAIL, KEPT_COLUMNS, PLACE_COLUMNS, ReadOptions
from spark_connector.ranges import WORTH_A_RANGE, Range, without_holes
from spark_connector.scan import scan_all
from spark_connector.sealed import SEALED, data_keys, opened, refusal
from spark_connector.session import check_session
from spark_connector.topic_schemas import TopicSchemas
from spark_connector.value_columns import selected
from spark_connector.visibility import TopicView

_ENTRY_ID: Final = "__entryId"
"""The message id of a record, or of the batch entry that it is."""
_MAY_BE_WORTH: Final = 1_000_000
"""Offsets; a smaller hole takes less time to read than another scan."""


def of_topic(spark: SparkSession, options: ReadOptions, view: TopicView, schemas: TopicSchemas) -> DataFrame:
    """The messages of a snapshot, with the columns that the options name.

    Raises:
        NotReadable: see `block_rows`; or the options say that no headers are needed, and some are.
        SparkNotReady: batch entries need spark-avro.
    """
    rich = _is_more_than_plain(view)
    needed = "has schemas by which messages are read according to their headers" if needs_version(schemas) else rich
    if options.plain and needed is not None:
        raise NotReadable(f"{view.topic.name} {needed}: includeHeaders must not be false")
    plain = options.plain or (view.plain and rich is None)
    headers = not plain or needed is not None or not set(options.columns) <= _WITHOUT_HEADERS
    rows = block_rows({p: one.excluded for p, one in view.partitions.items()})
    records = scan_all(spark, options, view.topic, _ranges(view), headers=headers)
    records = filters.without_excluded(spark, records, rows)
    if plain:
        made = _plain_columns(view.topic, records)
    else:
        check_session(spark, "avro")
        records = _messages(spark, options, view, records)
        made = _columns(view.topic, records)
    return selected(records, made, options.columns, schemas, options.mode)


_WITHOUT_HEADERS: Final = frozenset({*KEPT_COLUMNS, *PLACE_COLUMNS})


def _is_more_than_plain(view: TopicView) -> str | None:
    """Why the snapshot cannot be read as plain messages, whatever is on record of the topic."""
    if any(one.unsealed for one in view.partitions.values()):
        return "has aborted transactions of which a record may still come, which only headers tell"
    if any(one.chunked for one in view.partitions.values()):
        return "holds messages in chunks"
    if view.begun or view.ended or any(one.excluded.batches for one in view.partitions.values()):
        return "holds batch entries"
    return None


def _messages(spark: SparkSession, options: ReadOptions, view: TopicView, records: DataFrame) -> DataFrame:
    """One row for each message of records of all kinds: see `batches.unpacked`."""
    chunks = chunk_records(spark, options, view)
    keys = data_keys([each for each in (records, chunks) if each is not None], options.crypto_key_reader)
    records = opened(spark, records, keys)
    if chunks is not None:
        whole = put_together(opened(spark, chunks, keys), records.columns)
        records = records.withColumn(FIRST_CHUNK, F.lit(None).cast("bigint")).unionByName(whole)
    records = filters.readable(records, view)
    if options.crypto_failure_action == DISCARD:
        records = records.where(~records[SEALED])
    refused = refusal(records, str(view.topic.name)) if options.crypto_failure_action == FAIL else None
    first_chunk = records[FIRST_CHUNK] if FIRST_CHUNK in records.columns else None
    entry_id = places.message_id(view.topic, records["partition"], records["offset"], first_chunk)
    rows = batches.unpacked(records.withColumn(_ENTRY_ID, entry_id), refused)
    return filters.inside_bounds(rows, view.begun, view.ended)


def _ranges(view: TopicView) -> dict[int, list[Range]]:
    """What is fetched of each partition: without the largest holes, which need no blocks then."""
    total = sum(one.whole.length for one in view.partitions.values())
    worth = max(_MAY_BE_WORTH, total // WORTH_A_RANGE)
    found = {}
    for partition, one in view.partitions.items():
        found[partition] = without_holes(one.whole, one.excluded.holes(one.whole), worth)
    return found


def _plain_columns(topic: Topic, records: DataFrame) -> dict[str, Callable[[], Column]]:
    """How to make each column of a record that is one plain message; some only of records with headers."""
    partition, offset = records["partition"], records["offset"]
    made: dict[str, Callable[[], Column]] = {
        "value": lambda: records["value"],
        "__key": lambda: records["key"],
        "__topic": lambda: places.topic_name(topic, partition),
        "__messageId": lambda: places.message_id(topic, partition, offset),
        "__publishTime": lambda: records["timestamp"],
        "__partition": lambda: partition,
        "__offset": lambda: offset,
        "__batchIndex": lambda: F.lit(None).cast("int"),
    }
    if "headers" in records.columns:
        said = RecordHeaders(records["headers"])
        made |= _told_by_headers(said)
        made["__orderingKey"] = lambda: said.ordering_key(records["key"])
    return made


def _told_by_headers(said: RecordHeaders) -> dict[str, Callable[[], Column]]:
    return {
        "__eventTime": said.event_time,
        "__messageProperties": said.properties,
        "__producerName": said.producer_name,
        "__sequenceId": said.sequence_id,
        "__schemaVersion": said.schema_version,
    }


def _columns(topic: Topic, messages: DataFrame) -> dict[str, Callable[[], Column]]:
    """How to make each column of a message."""
    key, partition, offset, entry_id = (messages[name] for name in ("key", "partition", "offset", _ENTRY_ID))
    said = RecordHeaders(messages["headers"])
    batch = batches.BatchColumns(messages)

    def either(of_batch: Callable[[], Column], of_record: Callable[[], Column]) -> Callable[[], Column]:
        return lambda: F.when(batch.in_batch, of_batch()).otherwise(of_record())

    return _told_by_headers(said) | {
        "value": lambda: _whole(messages, said, F.when(batch.in_batch, batch.value()).otherwise(messages["value"])),
        "__key": either(batch.key, lambda: said.key(key)),
        "__topic": lambda: places.topic_name(topic, partition),
        "__messageId": either(lambda: batch.message_id(entry_id), lambda: entry_id),
        "__publishTime": lambda: said.publish_time(messages["timestamp"]),
        "__eventTime": either(batch.event_time, said.event_time),
        "__messageProperties": either(batch.properties, said.properties),
        "__orderingKey": either(batch.ordering_key, lambda: said.ordering_key(key)),
        "__partition": lambda: partition,
        "__offset": lambda: offset,
        "__batchIndex": lambda: batch.index,
        "__sequenceId": either(lambda: batch.sequence_id(said.sequence_id()), said.sequence_id),
    }


def _whole(messages: DataFrame, said: RecordHeaders, value: Column) -> Column:
    """The value, unless it is a chunk that nobody put together."""
    alone = said.has(CHUNK)
    if FIRST_CHUNK in messages.columns:
        alone = alone & messages[FIRST_CHUNK].isNull()
    refused = F.raise_error(
        F.concat(
            F.lit("the record at partition "),
            messages["partition"].cast("string"),
            F.lit(", offset "),
            messages["offset"].cast("string"),
            F.lit(" is a chunk of a message, where none was announced: read with chunkedMessages=true"),
        )
    )
    return F.when(alone, refused.cast("binary")).otherwise(value)
