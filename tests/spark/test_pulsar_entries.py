"""What the official clients batched and compressed: Spark refuses the read, and gives no row that is wrong."""

from __future__ import annotations

import time

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.spark import read_pulsar
from tests.pulsar_entries import cases
from tests.pulsar_entries.stored import records_of, write
from tests.steps import Unique


@pytest.mark.parametrize(
    ("name", "form"),
    [("java: LZ4 batch", 2), ("python: NONE batch", 2), ("java: ZSTD single", 3), ("python: SNAPPY chunks", 3)],
)
def test_a_read_that_meets_one_is_refused(
    spark: SparkSession, admin: AdminClient, bootstrap: str, service_url: str, unique: Unique, name: str, form: int
) -> None:
    topic = unique()
    admin.create_topic(topic)
    case = next(each for each in cases() if each.name == name)
    write(bootstrap, f"public.default.{topic}", records_of(case, now_ms=int(time.time() * 1000)))
    with pytest.raises(PySparkException, match=f"a batch entry has format {form}, this version reads 1"):
        read_pulsar(spark, service_url=service_url, topics=topic).collect()
