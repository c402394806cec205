"""Batch entries are unpacked inside the JVM: `from_avro`, then one row for each message
(`mapping.records.batch_entry`).
"""

from __future__ import annotations

import json
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro

from pulsar_on_kafka.mapping.records.batch_entry import FORMAT_VERSION, SCHEMA
from pulsar_on_kafka.mapping.records.record_headers import BATCH
from pulsar_on_kafka.spark.reading.header_columns import NO_PROPERTIES, RecordHeaders
from pulsar_on_kafka.spark.reading.record_filters import ACKED, bit
from pulsar_on_kafka.spark.reading.record_places import batch_size_field, message_id_in_batch
from pulsar_on_kafka.spark.reading.sealed_messages import SEALED

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

    A batch entry that is `SEALED` is one message. One that cannot be read gives nothing, as consumers skip it; one of
    a later format fails the read.
    """
    said = RecordHeaders()
    info = said.text(BATCH)
    in_batch = f"({said.has(BATCH)} and not {SEALED})"
    entry = F.when(F.expr(in_batch), from_avro(F.expr(_of_this_format(info)), _SCHEMA, {"mode": "PERMISSIVE"}))
    parsed = records.withColumns({ENTRY: entry, _BATCH: F.expr(in_batch)})
    of_batch = f"{ENTRY}.payloads"
    count = f"cast(substring_index({info}, ':', -1) as int)"
    payloads = f"if({_BATCH}, if(size({of_batch}) = {count}, {of_batch}, null), array(`value`))"
    if refused is not None:
        payloads = f"if({SEALED}, array({refused}), {payloads})"
    size = f"if({_BATCH}, {batch_size_field(f'size({of_batch})')}, null) as {SIZE_FIELD}"
    rows = parsed.selectExpr("*", size, f"posexplode({payloads}) as ({_POSITION}, {PAYLOAD})")
    rows = rows.selectExpr("*", f"if({_BATCH}, {_POSITION}, null) as {INDEX}")
    if ACKED in rows.columns:
        rows = rows.where(f"coalesce({bit(f'get({ACKED}, shiftright({_POSITION}, 6))', _POSITION)}, 0) = 0")
    return rows


def _of_this_format(info: str) -> str:
    written = f"substring_index({info}, ':', 1)"
    refused = f"raise_error(concat('a batch entry has format ', {written}, ', this version reads {FORMAT_VERSION}'))"
    return f"if({written} = '{FORMAT_VERSION}', `value`, cast({refused} as binary))"


class BatchColumns:
    """One message of a batch shows these columns, as text over the rows of `unpacked`; a message in no batch shows
    null."""

    index: Final = INDEX
    in_batch: Final = f"({INDEX} is not null)"

    @staticmethod
    def value() -> str:
        return f"if({_is_among('null_payloads')}, null, {PAYLOAD})"

    @staticmethod
    def message_id(entry_id: str) -> str:
        return message_id_in_batch(entry_id, INDEX, SIZE_FIELD)

    @staticmethod
    def key() -> str:
        return _unless_null("keys", "null_keys")

    @staticmethod
    def ordering_key() -> str:
        return _unless_null("ordering_keys", "null_ordering_keys")

    @staticmethod
    def properties() -> str:
        return f"coalesce({_own('properties')}, {NO_PROPERTIES})"

    @staticmethod
    def event_time() -> str:
        return f"timestamp_millis(nullif({_own('event_times')}, 0L))"

    @staticmethod
    def sequence_id(of_record: str) -> str:
        own = _own("sequence_ids")
        return f"if({own} >= 0, {own}, {of_record} + {INDEX})"


def _own(field: str) -> str:
    """The message's element of a column of the batch."""
    return f"get({ENTRY}.{field}, {INDEX})"


def _is_among(indices: str) -> str:
    return f"coalesce(array_contains({ENTRY}.{indices}, {INDEX}), false)"


def _unless_null(filled: str, nulls: str) -> str:
    return f"if({_is_among(nulls)}, null, {_own(filled)})"
