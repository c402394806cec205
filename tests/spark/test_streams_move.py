"""A stream whose `service.url` is a map of tenants goes on at the tenant's next cluster with its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.embedded import BrokerOptions, EmbeddedBroker
from pulsar_on_kafka.spark import acknowledge, read_pulsar
from pulsar_on_kafka_spark.base.errors import InvalidReadOption, NotReadable
from tests.brokers import available
from tests.spark.streams import Stream, produce
from tests.steps import SHARED, Missing, Unique
from tests.waiting import until

pytestmark = pytest.mark.long


@pytest.fixture
def east(missing: Missing) -> Iterator[str]:
    with available(missing, EmbeddedBroker(BrokerOptions(heap_mb=384))) as broker:
        yield f"kafka://{broker.bootstrap}"


class Map:
    """The file with the map of tenants; west is the broker of all tests."""

    def __init__(self, path: Path, west: str, east: str) -> None:
        self._path = path
        self._clusters = {"west": west, "east": east}
        self.url = f"pok+map://{path}"

    def assign(self, tenant: str, entry: object) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps({"clusters": self._clusters, "tenants": {tenant: entry, "other": "east"}}))
        new.rename(self._path)


def _topic_on_both(tenant: str, *service_urls: str) -> str:
    """With a subscription from its beginning."""
    topic = f"persistent://{tenant}/eu/orders"
    for url in service_urls:
        with AdminClient(url) as admin:
            admin.create_namespace(f"{tenant}/eu")
            admin.create_topic(topic)
            admin.create_subscription(topic, "s", from_earliest=True)
    return topic


def test_a_stream_goes_on_at_the_next_cluster(
    spark: SparkSession, service_url: str, east: str, tmp_path: Path, unique: Unique
) -> None:
    tenant = unique()
    topic, places = _topic_on_both(tenant, service_url, east), Map(tmp_path / "tenants.json", service_url, east)
    places.assign(tenant, "west")
    over = Stream(spark, places.url, topic, tmp_path)
    with closing(pulsar.Client(service_url)) as west:
        produce(west, topic, range(6))
    query = over.start()
    until(lambda: sorted(over.sink.values()) == list(range(6)), "the stream to deliver what the west has")
    places.assign(tenant, {"cluster": "west", "state": "SWITCHING", "target": "east"})
    with pytest.raises(StreamingQueryException, match="again with the same checkpoint when it has moved"):
        query.awaitTermination()
    with pytest.raises(NotReadable, match="is switching from cluster west"):
        over.start()
    with closing(pulsar.Client(east)) as client:  # as a migration does it
        consumer = client.subscribe(topic, "s", SHARED)
        produce(client, topic, range(-3, 10))
        for _ in range(3 + 6):
            consumer.acknowledge(consumer.receive(20_000))
        consumer.flush()
        consumer.close()
        places.assign(tenant, "east")
        over.run()
        assert sorted(over.sink.values()) == list(range(10)), "nothing twice, and nothing left out"
        produce(client, topic, range(10, 12))
    assert sorted(int(row["value"]) for row in read_pulsar(spark, **over.options).select("value").collect()) == [10, 11]
    left = read_pulsar(spark, **over.options).where("value = '10'")
    assert acknowledge(left, **over.options) == 1
    over.run()
    assert sorted(over.sink.values()) == [*range(10), 11]


def test_a_batch_that_the_move_interrupts_is_delivered_again(
    spark: SparkSession, service_url: str, east: str, tmp_path: Path, unique: Unique
) -> None:
    """It was not acknowledged. A stream that acknowledges nothing says how to begin."""
    tenant = unique()
    topic, places = _topic_on_both(tenant, service_url, east), Map(tmp_path / "tenants.json", service_url, east)
    for url in (service_url, east):
        with closing(pulsar.Client(url)) as client:
            produce(client, topic, range(4))
    places.assign(tenant, "west")
    over = Stream(spark, places.url, topic, tmp_path)
    reading = Stream(spark, places.url, topic, tmp_path / "reading", acknowledge=False)
    reading.run()

    def moves(df: DataFrame, batch_id: int) -> None:
        over.sink.write(df, batch_id)
        places.assign(tenant, "east")

    with pytest.raises(StreamingQueryException, match="and is on cluster east now: start the query again"):
        over.run(moves)
    over.run()
    assert over.sink.batches() == {0: [0, 1, 2, 3], 1: [0, 1, 2, 3]}
    with AdminClient(east) as admin:
        assert admin.subscription_stats(topic, "s").backlog == 0
    with pytest.raises(StreamingQueryException, match="start with another checkpoint, and startingTime"):
        reading.run()
    with pytest.raises(InvalidReadOption, match=f"the topics are of tenants other, {tenant}, expected one"):
        read_pulsar(spark, service_url=places.url, topics=f"{topic},persistent://other/eu/orders")
