"""Programs written for pulsar-spark, or for a stream that is a DataFrame, read in an error what to write."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from pulsar_on_kafka.spark import stream_pulsar
from pulsar_on_kafka_spark.base.pulsar_format import register_pulsar_format


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda spark: spark.read.format("pulsar").option("topic", "orders").load(), id="read"),
        pytest.param(lambda spark: spark.readStream.format("pulsar").load(), id="stream", marks=pytest.mark.long),
        pytest.param(
            lambda spark: spark.range(1).write.format("pulsar").mode("append").save(),
            id="write",
            marks=pytest.mark.long,
        ),
    ],
)
def test_the_format_pulsar_says_what_to_write(spark: SparkSession, use: Callable[[SparkSession], object]) -> None:
    register_pulsar_format(spark)  # a second time does nothing
    with pytest.raises(
        AnalysisException, match=r"format\('pulsar_on_kafka'\).*read_pulsar\(spark.*stream_pulsar.*write_pulsar"
    ):
        use(spark)


@pytest.mark.parametrize("name", ["writeStream", "select", "load", "isStreaming", "start", "foreachBatch"])
def test_a_stream_says_how_it_is_used(spark: SparkSession, name: str) -> None:
    stream = stream_pulsar(spark, service_url="kafka://localhost:1", topic="orders")
    with pytest.raises(
        AttributeError, match=rf"PulsarStream has no {name}: .*\.foreach_batch\(fn, checkpoint=\.\.\.\)"
    ):
        getattr(stream, name)
    assert not hasattr(stream, "__arrow_c_stream__")
