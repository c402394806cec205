"""Message ids in SQL, beside the function that makes the SDK's."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka_mapping.ids.ledger_ids import MAX_INCARNATION, MAX_PARTITION, MAX_RANGE, LedgerLayout
from pulsar_on_kafka_mapping.ids.message_id import FirstChunk, encode_message_id
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_spark.reading import record_places as places
from tests.seeds import first_of


@pytest.mark.parametrize("ledgers", first_of(1, [MAX_RANGE + 1, 1, 1000, 1 << 15], later=1))
@pytest.mark.parametrize(
    ("incarnation", "partitions", "size"),
    [
        (0, 1, 50_000),
        (0, MAX_PARTITION + 1, 50_000),
        (1, 32, 1),
        (5, 3, 100),
        (77, MAX_PARTITION + 1, 4_194_304),
        (2**20 - 1, 1, 50_000),
        (MAX_INCARNATION, MAX_PARTITION + 1, 50_000),
    ],
)
def test_bytes_of_ids(spark: SparkSession, incarnation: int, partitions: int, size: int, ledgers: int) -> None:
    layout = LedgerLayout(incarnation, size)
    partitioned = partitions > 1
    topic = Topic(TopicName.parse("t"), "t", "id", partitions, partitioned, layout)
    chance = random.Random(f"{incarnation} {partitions} {size}")
    rows: list[tuple[int, int, int | None, int | None, int | None]] = []
    edges = [0, 1, 127, 128, 16_383, 16_384, 2**21 - 1, 2**21, size - 1, size, ledgers * size - 1]
    for partition in {0, 1, 31, 32, 33, 127, 128, 8191} & set(range(partitions)):
        for offset in [*edges, *(chance.randrange(2 ** chance.randrange(1, 44)) for _ in range(20))]:
            if offset < ledgers * size:
                batch = chance.choice([None, 1, 128, 20_000, 2**31 - 1])
                index = None if batch is None else chance.randrange(batch)
                first = chance.choice([None, chance.randrange(offset + 1)]) if batch is None else None
                rows.append((partition, offset, index, batch, first))
    end = max(offset for _, offset, *_ in rows) + 1
    plain = places.message_id(topic, "partition", "offset", end)
    whole = places.message_id(topic, "partition", "offset", end, "first")
    in_batch = places.message_id_in_batch(plain, "batch", places.batch_size_field("batches"))
    made = spark.createDataFrame(rows, "partition int, offset bigint, batch int, batches int, first bigint").selectExpr(
        "*", f"{plain} as plain", f"if(batch is null, {whole}, {in_batch}) as full"
    )
    for row in made.collect():
        shown = row["partition"] if partitioned else -1
        place = layout.position(row["partition"], row["offset"])
        assert bytes(row["plain"]) == encode_message_id(*place, shown)
        chunk = None if row["first"] is None else FirstChunk(*layout.position(row["partition"], row["first"]))
        index, batches = (-1, 0) if row["batch"] is None else (row["batch"], row["batches"])
        assert bytes(row["full"]) == encode_message_id(*place, shown, index, batches, chunk)
