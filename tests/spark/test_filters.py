"""The filter by itself: ten million acknowledged offsets, and blocks at their edges."""

from __future__ import annotations

import random

import pytest
from pyroaring import BitMap, BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pulsar_on_kafka_spark.planning.excluded_offsets import BLOCK, ExcludedOffsets, block_rows
from pulsar_on_kafka_spark.reading import record_filters
from pulsar_on_kafka_spark.reading.record_filters import without_excluded
from tests.seeds import first_of


def records(spark: SparkSession, partitions: int, count: int) -> DataFrame:
    """So many records of each partition, in the columns that Kafka's source gives for places."""
    found = spark.range(partitions * count)
    return found.select(
        (found["id"] % partitions).cast("int").alias("partition"),
        F.call_function("div", found["id"], F.lit(partitions)).alias("offset"),
    )


@pytest.mark.parametrize("ledgers", first_of(1, [40, 400]))
def test_millions_of_acknowledged_offsets(spark: SparkSession, ledgers: int) -> None:
    """Half of 2, and of 20 million: every ledger another half."""
    chance = random.Random(1)
    halves = [BitMap(chance.sample(range(50_000), 25_000)) for _ in range(10)]
    made = ExcludedOffsets()
    acknowledged = 0
    for ledger in range(ledgers):
        members = halves[ledger % 10]
        made.add(ledger * 50_000, members)
        acknowledged += sum(members) + ledger * 50_000 * len(members)
    all_of_them = ledgers * 50_000
    kept = without_excluded(spark, records(spark, 1, all_of_them), block_rows({0: made}))
    count, total = kept.agg(F.count("*"), F.sum("offset")).collect()[0]
    assert count == all_of_them // 2
    assert total == all_of_them * (all_of_them - 1) // 2 - acknowledged


@pytest.mark.parametrize("most", [record_filters._MAX_IN_PLAN, 0], ids=["literal", "join"])
def test_every_bit_stands_for_its_offset(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(record_filters, "_MAX_IN_PLAN", most)
    chance = random.Random(2)
    edges = {0, 63, 64, 65, BLOCK - 1, BLOCK, BLOCK + 63, 2 * BLOCK - 64, 2 * BLOCK + 1}
    excluded = {p: edges | {chance.randrange(3 * BLOCK) for _ in range(1000)} for p in (0, 2)}
    made = {}
    for partition, offsets in excluded.items():
        made[partition] = ExcludedOffsets()
        made[partition].add_all(BitMap64(offsets))
    kept = without_excluded(spark, records(spark, 3, 3 * BLOCK), block_rows(made))
    assert ("Join" in kept._jdf.queryExecution().optimizedPlan().toString()) == (most == 0)
    found = kept.groupBy("partition").agg(F.count("*"), F.sum("offset")).collect()
    every = sum(range(3 * BLOCK))
    assert {row[0]: (row[1], row[2]) for row in found} == {
        p: (3 * BLOCK - len(excluded.get(p, ())), every - sum(excluded.get(p, ()))) for p in range(3)
    }
