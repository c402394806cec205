"""Records that a client of Pulsar's batched or compressed (`PayloadFormat`, format R) become records as the SDK writes
them: by Python on the executors, since neither form nor codecs are anything that Spark knows.

Only of topics that have it on record that there may be some (`ProducerClaims.raw`). Python gets the values of these
records alone, and gives a batch back as a batch entry of columns, which the JVM unpacks as any other. The executors'
Python needs this package, which loads nothing of Kafka's there.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType

from pulsar_on_kafka_mapping.records.record_headers import BATCH, COMPRESSION, PayloadFormat
from pulsar_on_kafka_mapping.wire.column_entries import as_columns_or_none
from pulsar_on_kafka_spark.base.sql_text import column
from pulsar_on_kafka_spark.reading import header_columns
from pulsar_on_kafka_spark.reading.sealed_messages import SEALED

RAW: Final = "__raw"
"""The record was one of these; null: it was none. Else its payload format, as text."""
_BYTES_OF_A_ROW: Final = 640 * 1024
_MAX_ROWS: Final = 100
"""Spark's Python takes so many rows at once, and keeps what it makes of all of them. A record that becomes larger than
a row's share brings empty rows along, so that these have 62 MiB beside the last record's."""
_PAD: Final = "__pad"
_FORMS: Final = ", ".join(f"'{form.value}'" for form in (PayloadFormat.PULSAR_BATCH, PayloadFormat.PULSAR_MESSAGE))


def in_columns(records: DataFrame) -> DataFrame:
    """The same records, with `RAW`: the value of a raw one is what the SDK would have written, null where it cannot be
    read. What is `SEALED` stays as it is.

    Memory: an executor's Python holds 62 MiB decompressed, and one record.
    """
    form = f"substring_index({header_columns.text(BATCH)}, ':', 1)"
    marked = records.selectExpr(
        "*", f"if({SEALED} or `value` is null or not {form} in ({_FORMS}), null, {form}) as {RAW}"
    )
    size = f"coalesce(try_cast(element_at(split({header_columns.text(COMPRESSION)}, ':'), -1) as bigint), 0)"
    pads = f"cast(least(greatest({size} div {_BYTES_OF_A_ROW}, 0), {_MAX_ROWS - 1}) as int)"
    padded = marked.selectExpr("*", f"explode(sequence(0, if({RAW} is null, 0, {pads}))) as {_PAD}")
    padded = padded.withColumn("value", F.expr(f"if({_PAD} = 0, `value`, null)"))
    is_record = f"({RAW} is not null and {_PAD} = 0)"
    # Were it deterministic, Spark would test the pad before Python's turn, and take the empty rows away.
    made = F.udf(as_columns_or_none, BinaryType(), useArrow=False).asNondeterministic()(
        F.expr(f"if({is_record}, `value`, null)"),
        F.expr(f"if({is_record}, {header_columns.value(BATCH)}, null)"),
        F.expr(f"if({is_record}, {header_columns.value(COMPRESSION)}, null)"),
    )
    given = padded.withColumn("__made", made).where(f"{_PAD} = 0")
    kept = [column(name) for name in records.columns if name != "value"]
    return given.selectExpr(*kept, RAW, f"if({RAW} is null, `value`, __made) as `value`")
