"""Partitioned topics: routing, order, growth."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.compat.harness.driver import ScenarioRun, numbers
from tests.compat.harness.scenario import scenario

AREA = "partitioned topics"


def _partitions(messages: list[Any]) -> Counter[int]:
    return Counter(message.message_id().partition() for message in messages)


@scenario(area=AREA, title="Round robin spreads messages evenly")
def round_robin(run: ScenarioRun) -> None:
    consumer = run.subscribed(numbers(9), partitions=3).consumer
    run.record("messages a partition", sorted(_partitions(run.receive(consumer, 9)).values()))


@scenario(area=AREA, title="A single partition for one producer")
def single_partition(run: ScenarioRun) -> None:
    topic = run.topic(partitions=3)
    consumer = run.consumer(topic)
    single = run.sdk.PartitionsRoutingMode.UseSinglePartition
    run.send(topic, numbers(9), message_routing_mode=single)
    messages = run.receive(consumer, 9)
    run.record("partitions", len(_partitions(messages)))
    run.record_messages("in order", messages)


@scenario(area=AREA, title="A key stays in its partition, in order")
def by_key(run: ScenarioRun) -> None:
    topic = run.topic(partitions=4)
    consumer = run.consumer(topic)
    producer = run.producer(topic)
    for turn in range(4):
        for key in ("a", "b", "c", "d", "e"):
            producer.send(f"{key}{turn}".encode(), partition_key=key)
    messages = run.receive(consumer, 20)
    places: dict[str, set[int]] = {}
    texts: dict[str, list[str]] = {}
    for message in messages:
        places.setdefault(message.partition_key(), set()).add(message.message_id().partition())
        texts.setdefault(message.partition_key(), []).append(run.view(message))
    run.record("partitions of a key", {len(found) for found in places.values()})
    run.record("in order", texts)


@scenario(area=AREA, title="A router of one's own")
def own_router(run: ScenarioRun) -> None:
    topic = run.topic(partitions=3)
    consumer = run.consumer(topic)
    seen: list[Any] = []

    def route(message: Any, partitions: int) -> int:
        seen.append([message.partition_key(), dict(message.properties()), partitions])
        return int(message.partition_key())

    custom = run.sdk.PartitionsRoutingMode.CustomPartition
    producer = run.producer(topic, message_routing_mode=custom, message_router=route)
    for number in (0, 2, 2, 1):
        producer.send(b"x", partition_key=str(number), properties={"n": str(number)})
    messages = run.receive(consumer, 4)
    run.record("partitions", _partitions(messages))
    run.record("what the router saw", seen)


@scenario(area=AREA, title="Order within a partition")
def order(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2)
    consumer = run.consumer(topic)
    run.send_partition_by_partition(topic, {0: ["a1", "a2", "a3"], 1: ["b1", "b2", "b3"]})
    texts: dict[int, list[str]] = {}
    for message in run.receive(consumer, 6):
        texts.setdefault(message.message_id().partition(), []).append(run.view(message))
    run.record("received", texts)


@scenario(area=AREA, title="A consumer of one partition")
def one_partition(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2)
    consumer = run.consumer(f"{topic}-partition-1")
    run.send_partition_by_partition(topic, {0: ["a"], 1: ["b"]})
    run.record_messages("received", run.receive(consumer, 1), "data", "topic_name")
    run.record_messages("and then", run.rest(consumer))


@scenario(area=AREA, title="Consumers and producers find new partitions by being opened again")
def growth(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(["before"], partitions=1)
    run.receive_acked(consumer, 1)
    consumer.close()
    run.admin.update_partitions(topic, 3)
    run.record("partitions", run.shared_client.get_topic_partitions(topic))
    consumer = run.consumer(topic)
    run.send(topic, ["1", "2", "3"])
    messages = run.receive(consumer, 3)
    run.record_set("received", messages)
    run.record("partitions used", len(_partitions(messages)))


@scenario(area=AREA, title="Partitions cannot become fewer; topics cannot be made twice")
def bad_growth(run: ScenarioRun) -> None:
    topic = run.topic(partitions=3)
    run.attempt("fewer", lambda: run.admin.update_partitions(topic, 2))
    run.attempt("again", lambda: run.admin.create_partitioned_topic(topic, 3))
    run.attempt("plain", lambda: run.admin.create_topic(topic))
    run.attempt("none", lambda: run.admin.create_partitioned_topic(run.topic("other"), 0))
    plain = run.topic("plain")
    run.admin.create_topic(plain)
    run.attempt("of a plain topic", lambda: run.admin.update_partitions(plain, 2))


@scenario(area=AREA, title="Acknowledgements are kept in every partition")
def acknowledgements(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(numbers(9), kind="Shared", partitions=3)
    for message in run.receive(consumer, 9):
        if int(run.view(message)) % 2:
            consumer.acknowledge(message)
    consumer.close()
    again = run.consumer(topic, kind="Shared")
    run.record_set("again", run.receive(again, 5))
    run.record_messages("and then", run.rest(again))


@scenario(area=AREA, title="Names of a partitioned topic's producer and consumer")
def names(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2)
    run.record("producer", run.producer(topic).topic())
    run.record("consumer", run.consumer(topic).topic())


@scenario(area=AREA, title="Lazily started producers")
def lazy(run: ScenarioRun) -> None:
    topic = run.topic(partitions=3)
    consumer = run.consumer(topic)
    run.send(topic, ["1", "2", "3"], lazy_start_partitioned_producers=True)
    run.record_set("received", run.receive(consumer, 3))
