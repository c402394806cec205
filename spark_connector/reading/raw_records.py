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

from pulsar_on_kafka.mapping.records.record_headers import BATCH, COMPRESSION, PayloadFormat
from pulsar_on_kafka.mapping.wire.column_entries import as_columns_or_none
from pulsar_on_kafka.spark.base.sql_text import column
from pulsar_on_kafka.spark.reading import header_columns as said
from pulsar_on_kafka.spark.reading.sealed_messages import SEALED

RAW: Final = "__raw"
"""The record was one of these; null: it was none. Else its payload format, as text."""
_FORMS: Final = ", ".join(f"'{form.value}'" for form in (PayloadFormat.PULSAR_BATCH, PayloadFormat.PULSAR_MESSAGE))


def in_columns(records: DataFrame) -> DataFrame:
    """The same records, with `RAW`: the value of a raw one is what the SDK would have written, null where it cannot be
    read. What is `SEALED` stays as it is."""
    form = f"substring_index({said.text(BATCH)}, ':', 1)"
    marked = records.selectExpr(
        "*", f"if({SEALED} or `value` is null or not {form} in ({_FORMS}), null, {form}) as {RAW}"
    )
    made = F.udf(as_columns_or_none, BinaryType(), useArrow=False)(
        F.expr(f"if({RAW} is null, null, `value`)"),
        F.expr(f"if({RAW} is null, null, {said.value(BATCH)})"),
        F.expr(f"if({RAW} is null, null, {said.value(COMPRESSION)})"),
    )
    given = marked.withColumn("__made", made)
    kept = [column(name) for name in records.columns if name != "value"]
    return given.selectExpr(*kept, RAW, f"if({RAW} is null, `value`, __made) as `value`")
