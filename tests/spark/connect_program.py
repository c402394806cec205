"""A client of a Spark Connect server, which does what it is told: a line of JSON for each step, `[number, step]`, and
one for its answer, `[number, answer]`.

Classic sessions and those of Connect cannot be in one process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import pulsar_on_kafka.spark
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.spark import acknowledge, read_pulsar, stream_pulsar, write_pulsar
from pulsar_on_kafka_spark.base.errors import SparkConnectorError

_COMES_UP_S: Final = 480.0


def shown(rows: list[Row]) -> list[list[Any]]:
    """Rows as JSON has them, sorted."""
    return sorted(([_shown(value) for value in row] for row in rows), key=repr)


def _shown(value: Any) -> Any:
    match value:
        case bytes() | bytearray():
            return value.hex()
        case datetime():
            return value.isoformat()
        case Row():
            return [_shown(part) for part in value]
        case _:
            return value


def main() -> None:
    spark = pulsar_on_kafka.spark.session("tests")
    for line in sys.stdin:
        number, said = json.loads(line)
        try:
            answer: Any = _STEPS[said.pop("do")](spark, **said)
        except SparkConnectorError as refused:
            answer = {"refused": f"{type(refused).__name__}: {refused}"}
        except Exception as failure:  # the test that asked fails, and others go on
            answer = {"failed": f"{type(failure).__name__}: {failure}"}
        print(json.dumps([number, answer]), flush=True)


def _session(spark: SparkSession) -> str:
    return type(spark).__module__


def _read(spark: SparkSession, where: str = "true", **options: Any) -> list[list[Any]]:
    return shown(read_pulsar(spark, **options).where(where).collect())


def _acknowledge(spark: SparkSession, where: str, **options: Any) -> int:
    return acknowledge(read_pulsar(spark, **options).where(where), **options)


def _write(spark: SparkSession, query: str, **options: Any) -> None:
    write_pulsar(spark.sql(query), **options)


def _stream(spark: SparkSession, **options: Any) -> None:
    stream_pulsar(spark, **options)


def _source(spark: SparkSession, checkpoint: str, table: str, **options: Any) -> list[list[Any]]:
    """All that the data source streams until now, by way of a table."""
    rows = spark.readStream.format("pulsar_on_kafka").options(**options).load()
    writer = rows.writeStream.format("parquet").option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.start(table).awaitTermination()
    return shown(spark.read.parquet(table).collect())


def _batches(spark: SparkSession, copies: str, checkpoint: str, **options: Any) -> None:
    """Kafka's own stream, each micro-batch of which is written as messages: on the server, in a Python of its own."""
    url = options["service_url"]
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", url.removeprefix("kafka://"))
    rows = source.option("assign", json.dumps({copies: [0]})).option("startingOffsets", "earliest").load()

    def write(frame: DataFrame, batch_id: int) -> None:
        write_pulsar(frame.select("value"), **options)

    query = rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).trigger(availableNow=True)
    _started(query).awaitTermination()


def _started(query: DataStreamWriter) -> StreamingQuery:
    """Spark gives the Python that runs `foreachBatch` ten seconds to come up, and it needs one of a processor's: it
    imports pandas. On a busy machine ten are too few again and again."""
    patience = Deadline.after(_COMES_UP_S)
    while True:
        try:
            return query.start()
        except PySparkException as failure:
            if "Python worker failed to connect back" not in str(failure) or patience.passed():
                raise


_STEPS: Final[dict[str, Callable[..., Any]]] = {
    "session": _session,
    "read": _read,
    "acknowledge": _acknowledge,
    "write": _write,
    "stream": _stream,
    "source": _source,
    "batches": _batches,
}

if __name__ == "__main__":
    main()
