"""The DataFrame of one topic's snapshot is Spark's Kafka source, what filters it, and the columns of messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro

from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka_mapping.records.batch_entry import FORMAT_VERSION, SCHEMA
from pulsar_on_kafka_mapping.records.record_headers import BATCH, CHUNK, EVENT_TIME, PUBLISH_TIME, PayloadFormat
from pulsar_on_kafka_mapping.wire.column_entries import UNREADABLE
from pulsar_on_kafka_spark.base.errors import NotReadable
from pulsar_on_kafka_spark.base.spark_session import check_session
from pulsar_on_kafka_spark.base.sql_text import column, text
from pulsar_on_kafka_spark.options.read_options import (
    CORRUPT,
    DISCARD,
    FAIL,
    KEPT_COLUMNS,
    PLACE_COLUMNS,
    TEXT_COLUMNS,
    ReadOptions,
)
from pulsar_on_kafka_spark.planning.excluded_offsets import block_rows
from pulsar_on_kafka_spark.planning.offset_ranges import WORTH_A_RANGE, Range, split, without_holes
from pulsar_on_kafka_spark.planning.visibility import TopicView
from pulsar_on_kafka_spark.reading import header_columns
from pulsar_on_kafka_spark.reading import record_filters as filters
from pulsar_on_kafka_spark.reading import record_places as places
from pulsar_on_kafka_spark.reading.chunk_frames import FIRST_CHUNK, chunk_records, put_together
from pulsar_on_kafka_spark.reading.header_columns import NO_PROPERTIES
from pulsar_on_kafka_spark.reading.kafka_scan import scan_all
from pulsar_on_kafka_spark.reading.raw_records import RAW, in_columns
from pulsar_on_kafka_spark.reading.record_filters import ACKED, bit
from pulsar_on_kafka_spark.reading.record_places import batch_size_field, message_id_in_batch
from pulsar_on_kafka_spark.reading.sealed_messages import SEALED, data_keys, opened, refusal
from pulsar_on_kafka_spark.values.topic_schemas import AS_BYTES, TopicSchemas
from pulsar_on_kafka_spark.values.value_codec import VALUE
from pulsar_on_kafka_spark.values.value_decoding import RawColumns, decoded, needs_key, needs_version

ENTRY: Final = "__entry"
INDEX: Final = "__index"
"""Batch index; null for a message in no batch."""
SIZE_FIELD: Final = "__sizeField"
"""The batch's size as `record_places.batch_size_field` gives it; null for a message in no batch."""
PAYLOAD: Final = "__payload"
_BATCH: Final = "__batch"
_POSITION: Final = "__pos"

_SCHEMA: Final = json.dumps(SCHEMA)


def unpacked(records: DataFrame, refused: str | None = None) -> DataFrame:
    """One row for each message, of batch entries and others: the record's columns, `ENTRY` (the columns of a batch
    entry, else null), `INDEX`, `SIZE_FIELD` and `PAYLOAD`. What of a batch is acknowledged is left out.

    Whatever is the same for all messages of a batch is made before it is taken apart.

    Args:
        refused: an error in the place of a `SEALED` record. Raised here, since what is a filter's, Spark would try on
            records, too, that are left out because they are acknowledged.

    A batch entry that is `SEALED` is one message. One that cannot be read gives nothing, as consumers skip it; likewise
    a message of a raw one. A later format fails the read, as does a raw one that `raw_records` did not see to.
    """
    records = records.selectExpr("*", f"{header_columns.text(BATCH)} as {_BATCH_INFO}")
    in_batch, bytes_of, alone = f"({header_columns.has(BATCH)} and not {SEALED})", _of_this_format(_BATCH_INFO), "false"
    if RAW in records.columns:
        alone = f"coalesce({RAW} = '{PayloadFormat.PULSAR_MESSAGE.value}', false)"
        in_batch, bytes_of = f"({in_batch} and not {alone})", f"if({RAW} is null, {bytes_of}, `value`)"
    entry = F.when(F.expr(in_batch), from_avro(F.expr(bytes_of), _SCHEMA, {"mode": "PERMISSIVE"}))
    of_batch = f"{ENTRY}.payloads"
    parsed = records.withColumns({ENTRY: entry, _BATCH: F.expr(in_batch)}).selectExpr(
        "*", f"size({of_batch}) as {_SIZE}"
    )
    count = f"cast(substring_index({_BATCH_INFO}, ':', -1) as int)"
    unreadable = f"({alone} and `value` is null)"
    payloads = f"if({unreadable}, null, array(`value`))"
    payloads = f"if({_BATCH}, if({_SIZE} = {count}, {of_batch}, null), {payloads})"
    if refused is not None:
        payloads = f"if({SEALED}, array({refused}), {payloads})"
    size = f"if({_BATCH}, {batch_size_field(_SIZE)}, null) as {SIZE_FIELD}"
    rows = parsed.selectExpr("*", size).selectExpr("*", f"posexplode({payloads}) as ({_POSITION}, {PAYLOAD})")
    rows = rows.selectExpr("*", f"if({_BATCH}, {_POSITION}, null) as {INDEX}")
    if ACKED in rows.columns:
        rows = rows.where(f"coalesce({bit(f'get({ACKED}, shiftright({_POSITION}, 6))', _POSITION)}, 0) = 0")
    if RAW in rows.columns:
        rows = rows.where(f"not coalesce({RAW} is not null and {_own('event_times')} = {UNREADABLE}, false)")
    return rows


def _of_this_format(info: str) -> str:
    written = f"substring_index({info}, ':', 1)"
    reported = f"', this version reads {FORMAT_VERSION}; that of a client of Pulsar is read with pulsarEntries=true'"
    refused = f"raise_error(concat('a batch entry has format ', {written}, {reported}))"
    return f"if({written} = '{FORMAT_VERSION}', `value`, cast({refused} as binary))"


def _own(field: str) -> str:
    """The message's element of a column of the batch."""
    return f"get({ENTRY}.{field}, {INDEX})"


def _is_among(indices: str) -> str:
    return f"coalesce(array_contains({ENTRY}.{indices}, {INDEX}), false)"


def _unless_null(filled: str, nulls: str) -> str:
    return f"if({_is_among(nulls)}, null, {_own(filled)})"


_ENTRY_ID: Final = "__entryId"
"""The message id of a record, or of the batch entry that it is."""
_BATCH_INFO: Final = "__batchInfo"
_SIZE: Final = "__size"
_RECORD_KEY: Final = "__recordKey"
_REPLICATED_MS: Final = "__publishMs"
_EVENT_MS: Final = "__eventMs"
_MAY_BE_WORTH: Final = 1_000_000
"""Offsets; a smaller hole takes less time to read than another scan."""


def of_topic(spark: SparkSession, options: ReadOptions, view: TopicView, schemas: TopicSchemas) -> DataFrame:
    """The messages of a snapshot, with the columns that the options name.

    Raises:
        NotReadable: see `block_rows`; or the options exclude headers, and some are needed.
        SparkNotReady: batch entries need spark-avro.
    """
    rich = _is_more_than_plain(view)
    needed = "has schemas by which messages are read according to their headers" if needs_version(schemas) else rich
    if options.plain and needed is not None:
        raise NotReadable(f"{view.topic.name} {needed}: includeHeaders must not be false")
    plain = options.plain or (view.plain and rich is None)
    headers = not plain or needed is not None or not {*options.columns} - {CORRUPT} <= _WITHOUT_HEADERS
    rows = block_rows({p: one.excluded for p, one in view.partitions.items()})
    if plain:
        records = filters.without_excluded(spark, _plain_records(spark, options, view, headers=headers), rows)
        made = _plain_columns(view, with_headers=headers)
        id_text = places.message_id_text(view.topic, "`partition`", "`offset`")
    else:
        check_session(spark, "avro")
        records = scan_all(spark, options, view.topic, _ranges(view), headers=True)
        records = _messages(spark, options, view, filters.without_excluded(spark, records, rows))
        made = _columns(view.topic, put_together=FIRST_CHUNK in records.columns)
        id_text = _id_text(view.topic)
    texts = _texts(made, id_text) if options.text_columns else {}
    return selected(records, made, options.columns, schemas, options.mode, texts)


_WITHOUT_HEADERS: Final = frozenset({*KEPT_COLUMNS, *PLACE_COLUMNS})


def _is_more_than_plain(view: TopicView) -> str | None:
    """Why the snapshot cannot be read as plain messages, whatever is on record of the topic."""
    if any(one.chunked for one in view.partitions.values()):
        return "holds messages in chunks"
    if view.begun or view.ended or any(one.excluded.batches for one in view.partitions.values()):
        return "holds batch entries"
    return None


def _plain_records(spark: SparkSession, options: ReadOptions, view: TopicView, *, headers: bool) -> DataFrame:
    """Records that are one message each, without the excluded ones. Late records of aborted transactions can only be
    recognised by headers: these are read from the lower bound of such records, if they are not read anyway."""
    ranges = _ranges(view)
    unsealed = {p: one for p, one in view.partitions.items() if one.unsealed}
    if headers or not unsealed:
        records = scan_all(spark, options, view.topic, ranges, headers=headers)
        records = filters.without_transactions(records, view) if unsealed else records
    else:
        starts = {p: one.whole.start if one.unsealed_from is None else one.unsealed_from for p, one in unsealed.items()}
        below, above = split(ranges, starts)
        records = scan_all(spark, options, view.topic, above, headers=True)
        records = filters.without_transactions(records, view).drop("headers")
        if below:
            records = scan_all(spark, options, view.topic, below, headers=False).unionByName(records)
    return filters.without_markers(records) if view.marked else records


def _messages(spark: SparkSession, options: ReadOptions, view: TopicView, records: DataFrame) -> DataFrame:
    """One row for each message of records of all kinds: see `unpacked`."""
    chunks = chunk_records(spark, options, view)
    keys = data_keys([each for each in (records, chunks) if each is not None], options.crypto_key_reader)
    records = opened(spark, records, keys)
    if chunks is not None:
        whole = put_together(opened(spark, chunks, keys), records.columns)
        records = records.selectExpr("*", f"cast(null as bigint) as {FIRST_CHUNK}").unionByName(whole)
    records = filters.readable(records, view)
    if view.raw:
        records = in_columns(records)
    if options.crypto_failure_action == DISCARD:
        records = records.where(f"not {SEALED}")
    refused = refusal(str(view.topic.name)) if options.crypto_failure_action == FAIL else None
    first_chunk = FIRST_CHUNK if FIRST_CHUNK in records.columns else None
    entry_id = places.message_id(view.topic, "`partition`", "`offset`", _end(view), first_chunk)
    of_record = {
        _ENTRY_ID: entry_id,
        _RECORD_KEY: header_columns.key("`key`"),
        _REPLICATED_MS: header_columns.number(PUBLISH_TIME),
        _EVENT_MS: header_columns.number(EVENT_TIME),
    }
    rows = unpacked(records.selectExpr("*", *(f"{made} as {name}" for name, made in of_record.items())), refused)
    return filters.inside_bounds(rows, view.begun, view.ended)


def _ranges(view: TopicView) -> dict[int, list[Range]]:
    """The ranges to fetch of each partition: without the largest holes, which need no blocks then."""
    total = sum(one.whole.length for one in view.partitions.values())
    worth = max(_MAY_BE_WORTH, total // WORTH_A_RANGE)
    found = {}
    for partition, one in view.partitions.items():
        found[partition] = without_holes(one.whole, one.excluded.holes(one.whole), worth)
    return found


def _end(view: TopicView) -> int:
    """No offset of the snapshot is that high."""
    return max((one.whole.end for one in view.partitions.values()), default=0)


def _plain_columns(view: TopicView, *, with_headers: bool) -> dict[str, str]:
    """Each column of a record that is one plain message; some only of records with headers."""
    made = {
        "value": "`value`",
        "__key": "`key`",
        "__topic": places.topic_name(view.topic, "`partition`"),
        "__messageId": places.message_id(view.topic, "`partition`", "`offset`", _end(view)),
        "__publishTime": "`timestamp`",
        "__partition": "`partition`",
        "__offset": "`offset`",
        "__batchIndex": "cast(null as int)",
    }
    if with_headers:
        made |= _header_values() | {"__orderingKey": header_columns.ordering_key("`key`")}
    return made


def _texts(made: Mapping[str, str], id_text: str) -> dict[str, str]:
    """`TEXT_COLUMNS` as strings. What of a key is no UTF-8 is replaced: Arrow and Python take no other text."""
    keys = {name: f"make_valid_utf8(cast({made[name]} as string))" for name in TEXT_COLUMNS if name in made}
    return {**keys, "__messageId": id_text}


def _id_text(topic: Topic) -> str:
    alone = places.message_id_text(topic, "`partition`", "`offset`")
    return f"if({INDEX} is null, {alone}, {places.message_id_text_in_batch(topic, alone, INDEX, _SIZE)})"


def _header_values() -> dict[str, str]:
    return {
        "__eventTime": header_columns.event_time(header_columns.number(EVENT_TIME)),
        "__messageProperties": header_columns.properties(),
        "__producerName": header_columns.producer_name(),
        "__sequenceId": header_columns.sequence_id(),
        "__schemaVersion": header_columns.schema_version(),
    }


def _columns(topic: Topic, *, put_together: bool) -> dict[str, str]:
    """Each column of a message. `put_together`: chunks were, and what they made has `FIRST_CHUNK`."""
    own, sequence_id = _header_values(), _own("sequence_ids")

    def either(of_batch: str, of_record: str) -> str:
        return f"if({INDEX} is not null, {of_batch}, {of_record})"

    return own | {
        "value": _whole(
            either(f"if({_is_among('null_payloads')}, null, {PAYLOAD})", "`value`"), put_together=put_together
        ),
        "__key": either(_unless_null("keys", "null_keys"), _RECORD_KEY),
        "__topic": places.topic_name(topic, "`partition`"),
        "__messageId": either(message_id_in_batch(_ENTRY_ID, INDEX, SIZE_FIELD), _ENTRY_ID),
        "__publishTime": header_columns.publish_time(_REPLICATED_MS, "`timestamp`"),
        "__eventTime": header_columns.event_time(either(_own("event_times"), _EVENT_MS)),
        "__messageProperties": either(f"coalesce({_own('properties')}, {NO_PROPERTIES})", header_columns.properties()),
        "__orderingKey": either(
            _unless_null("ordering_keys", "null_ordering_keys"), header_columns.ordering_key("`key`")
        ),
        "__partition": "`partition`",
        "__offset": "`offset`",
        "__batchIndex": INDEX,
        "__sequenceId": either(
            f"if({sequence_id} >= 0, {sequence_id}, {header_columns.sequence_id()} + {INDEX})",
            header_columns.sequence_id(),
        ),
    }


def _whole(value: str, *, put_together: bool) -> str:
    """The value, unless it is a chunk that was not assembled."""
    alone = f"{header_columns.has(CHUNK)} and {FIRST_CHUNK} is null" if put_together else header_columns.has(CHUNK)
    refused = (
        "raise_error(concat('the record at partition ', `partition`, ', offset ', `offset`, "
        "' is a chunk of a message, where none was announced: read with chunkedMessages=true'))"
    )
    return f"if({alone}, cast({refused} as binary), {value})"


_RAW = RawColumns(VALUE, "__pulsar_key", "__pulsar_topic", "__pulsar_partition", "__pulsar_offset", "__pulsar_version")


def selected(
    messages: DataFrame,
    made: Mapping[str, str],
    columns: Sequence[str],
    schemas: TopicSchemas,
    mode: str,
    shown: Mapping[str, str],
) -> DataFrame:
    """The named columns, made of `messages`, and in place of `value` those of its schema.

    Args:
        made: each column as text; `value` gives the payload.
        shown: the same of columns that are selected in another form than `made` has.
    Raises:
        As `decoded`.
    """
    if schemas.reader == AS_BYTES:
        made = {**made, CORRUPT: "cast(null as binary)"}
    chosen = [f"{shown.get(name) or made[name]} as {column(name)}" for name in columns if name in made]
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
    corrupt = CORRUPT if CORRUPT in columns else None
    found = decoded(messages.selectExpr(chosen + beside), schemas, mode=mode, raw=_RAW, corrupt=corrupt)
    of_value = found.columns[: len(found.columns) - len(columns) + 1 - len(beside)]
    names = [part for name in columns for part in (of_value if name == VALUE else [name])]
    return found.select(*map(column, names))
