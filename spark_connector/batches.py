"""Batch entries unpacked inside the JVM: `from_avro`, then one row for each message (see `mapping.batch_entry`)."""

from __future__ import annotations

import json
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro

from mapping.batch_entry import FORMAT_VERSION, SCHEMA
from mapping.headers import BATCH
from spark_connector.filters import ACKED, bit
from spark_connector.headers import RecordHeaders
from spark_connector.places import batch_size_field, message_id_in_batch
from spark_connector.sealed import SEALED

ENTRY: Final = "__entry"
INDEX: Final = "__index"
"""Batch index; null for a message in no batch."""
SIZE_FIELD: Final = "__sizeField"
"""See `places.batch_size_field`; null for a message in no batch."""
PAYLOAD: Final = "__payload"

_SCHEMA: Final = json.dumps(SCHEMA)


def unpacked(records: DataFrame, refused: Column | None = None) -> DataFrame:
    """One row for each message, of batch entries and others: the record's columns, `ENTRY` (the columns of a batch
    entry, else null), `INDEX`, `SIZE_FIELD` and `PAYLOAD`. What of a batch is acknowledged is left out.

    Whatever is the same for all messages of a batch is made before it is taken apart.

    Args:
        refused: an error in the place of a `SEALED` record. Raised here, since what is a filter's, Spark would try on
            records, too, that are left out because they are acknowledged.

    A batch entry that is `SEALED` is one message. One that cannot be read gives nothing, as consumers skip it; one of
    a later format fails the read.
    """
    said = RecordHeaders(records["headers"])
    info = said.text(BATCH)
    in_batch = said.has(BATCH) & ~records[SEALED]
    entry = F.when(in_batch, from_avro(_of_this_format(records["value"], info), _SCHEMA, {"mode": "PERMISSIVE"}))
    parsed = records.withColumns({ENTRY: entry, "__batch": in_batch})
    payloads = F.when(parsed["__batch"], _checked(parsed[ENTRY]["payloads"], info)).otherwise(F.array(parsed["value"]))
    if refused is not None:
        payloads = F.when(parsed[SEALED], F.array(refused)).otherwise(payloads)
    size = F.when(parsed["__batch"], batch_size_field(F.size(parsed[ENTRY]["payloads"])))
    rows = parsed.select("*", size.alias(SIZE_FIELD), F.posexplode(payloads).alias("__pos", PAYLOAD))
    rows = rows.withColumn(INDEX, F.when(rows["__batch"], rows["__pos"]))
    if ACKED in rows.columns:
        word = F.get(rows[ACKED], F.shiftright(rows["__pos"], 6))
        rows = rows.where(F.coalesce(bit(word, rows["__pos"]), F.lit(0)) == 0)
    return rows


def _of_this_format(value: Column, info: Column) -> Column:
    written = F.substring_index(info, ":", 1)
    refused = F.raise_error(
        F.concat(F.lit("a batch entry has format "), written, F.lit(f", this version reads {FORMAT_VERSION}"))
    )
    return F.when(written == str(FORMAT_VERSION), value).otherwise(refused.cast("binary"))


def _checked(payloads: Column, info: Column) -> Column:
    """Null unless there are as many as the header says."""
    return F.when(F.size(payloads) == F.substring_index(info, ":", -1).cast("int"), payloads)


class BatchColumns:
    """What one message of a batch shows, over the rows of `unpacked`; of a message in no batch, null."""

    def __init__(self, rows: DataFrame) -> None:
        self._entry = rows[ENTRY]
        self._payload = rows[PAYLOAD]
        self.index = rows[INDEX]
        self._size_field = rows[SIZE_FIELD]
        self.in_batch = rows[INDEX].isNotNull()

    def value(self) -> Column:
        null = F.coalesce(F.array_contains(self._entry["null_payloads"], self.index), F.lit(False))
        return F.when(~null, self._payload)

    def message_id(self, entry_id: Column) -> Column:
        return message_id_in_batch(entry_id, self.index, self._size_field)

    def key(self) -> Column:
        return self._unless_null("keys", "null_keys")

    def ordering_key(self) -> Column:
        return self._unless_null("ordering_keys", "null_ordering_keys")

    def _unless_null(self, filled: str, nulls: str) -> Column:
        null = F.coalesce(F.array_contains(self._entry[nulls], self.index), F.lit(False))
        return F.when(~null, F.get(self._entry[filled], self.index))

    def properties(self) -> Column:
        empty = F.map_from_arrays(F.array().cast("array<string>"), F.array().cast("array<string>"))
        return F.coalesce(F.get(self._entry["properties"], self.index), empty)

    def event_time(self) -> Column:
        millis = F.get(self._entry["event_times"], self.index)
        return F.when(millis != 0, F.timestamp_millis(millis))

    def sequence_id(self, of_record: Column) -> Column:
        own = F.get(self._entry["sequence_ids"], self.index)
        return F.when(own >= 0, own).otherwise(of_record + self.index)
