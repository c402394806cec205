"""What Spark compiles of a read, the JVM compiles, too: a method that is too long for that takes six times as long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.spark import read_pulsar
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.state_topics import TOPICS
from tests.seeds import first_of
from tests.steps import EARLIEST, SHARED, Unique, receive

HUGE_METHOD_BYTES = 8000
"""HotSpot's HugeMethodLimit."""


@pytest.fixture
def place(service_url: str, unique: Unique) -> dict[str, str]:
    """Of a topic of batches and single messages, some of each acknowledged on `s`. It is the first one of its instance,
    whose ledger ids differ in length, as no other's do, which takes more code."""
    instance = "i" + unique()[-9:]
    name = next(name for name in iter(unique, "") if TOPICS.partition_for(str(TopicName.parse(name))) == 0)
    with AdminClient(service_url, instance=instance) as admin:
        admin.create_partitioned_topic(name, 4)
        assert admin.node.topics.open(TopicName.parse(name), Deadline.after(60)).layout.incarnation == 0
    client = pulsar.Client(service_url, instance=instance)
    consumer = client.subscribe(name, "s", SHARED, initial_position=EARLIEST)
    for batching in (True, False):
        producer = client.create_producer(name, batching_enabled=batching, batching_max_publish_delay_ms=1000)
        for number in range(100):
            producer.send_async(b"%d" % number, None, partition_key=f"k{number}", event_timestamp=number)
        producer.flush()
    for message in receive(consumer, 200)[::2]:
        consumer.acknowledge(message)
    client.close()
    return {"service_url": service_url, "instance": instance, "topic": name}


@pytest.fixture
def planned_at_once(spark: SparkSession) -> Iterator[None]:
    """Else a plan with a join is compiled while it runs."""
    adaptive = "spark.sql.adaptive.enabled"
    before = spark.conf.get(adaptive)
    spark.conf.set(adaptive, value=False)
    yield
    spark.conf.set(adaptive, str(before))


@pytest.mark.long
@pytest.mark.usefixtures("planned_at_once")
@pytest.mark.parametrize(
    "options",
    first_of(
        1,
        [
            {"subscription": "s", "pulsarEntries": True, "chunkedMessages": True},
            {"subscription": "s"},
            {"pulsarEntries": True},
            {"chunkedMessages": True},
            {},
        ],
        later=0,
    ),
)
@pytest.mark.parametrize("columns", ["all", None])
def test_no_method_is_longer_than_the_jvm_compiles(
    spark: SparkSession, place: dict[str, str], options: dict[str, Any], columns: str | None
) -> None:
    wanted: dict[str, Any] = {} if columns is None else {"columns": columns}
    frame = read_pulsar(spark, **place, **options, **wanted)
    chosen = [frame, *(frame.select(*{"value", name}) for name in frame.columns)]
    sizes = {", ".join(each.columns): longest_method(spark, each) for each in chosen}
    assert max(sizes.values()) > 0
    assert {columns: size for columns, size in sizes.items() if size > HUGE_METHOD_BYTES} == {}


def longest_method(spark: SparkSession, frame: DataFrame) -> int:
    """In bytes of bytecode; 0 where Spark compiles nothing."""
    jvm: Any = spark._jvm
    debug = getattr(getattr(jvm.org.apache.spark.sql.execution.debug, "package$"), "MODULE$")
    plan = frame._jdf.queryExecution().executedPlan()
    parts = jvm.scala.jdk.javaapi.CollectionConverters.asJava(debug.codegenStringSeq(plan))
    return max((part._3().maxMethodCodeSize() for part in parts), default=0)
