"""batch_receive: what ends a batch, and what happens to its messages."""

from __future__ import annotations

from typing import Any

from tests.compat.harness.driver import ScenarioRun, numbers
from tests.compat.harness.scenario import scenario

AREA = "batch receive"


def _consumer(run: ScenarioRun, topic: Any, policy: tuple[int, int, int], **options: Any) -> Any:
    return run.consumer(topic, batch_receive_policy=run.sdk.ConsumerBatchReceivePolicy(*policy), **options)


@scenario(area=AREA, title="It ends at its bytes")
def ends_at_bytes(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = _consumer(run, topic, (-1, 1000, 4000))
    run.send(topic, ["x" * 300] * 10)
    sizes: list[int] = []
    while sum(sizes) < 10:
        sizes.append(len(consumer.batch_receive()))
    run.record("all came", sum(sizes))
    run.record("the first one", sizes[0])


@scenario(area=AREA, title="A message larger than its bytes comes alone")
def one_large(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = _consumer(run, topic, (-1, 100, 4000))
    run.send(topic, ["x" * 300] * 2)
    run.record("sizes", [[len(message.data()) for message in consumer.batch_receive()] for _ in range(2)])


@scenario(area=AREA, title="Batch entries are taken apart")
def of_batch_entries(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = _consumer(run, topic, (4, -1, 4000))
    producer = run.producer(topic, batching_enabled=True, batching_max_publish_delay_ms=10_000)
    for text in numbers(8):
        producer.send_async(text.encode(), None)
    producer.flush()
    for _ in range(2):
        run.record_messages("batch", consumer.batch_receive())


@scenario(area=AREA, title="receive and batch_receive take turns")
def mixed(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = _consumer(run, topic, (2, -1, 4000))
    run.send(topic, numbers(6))
    run.record_messages("one", run.receive(consumer, 1))
    run.record_messages("two", consumer.batch_receive())
    run.record_messages("one", run.receive(consumer, 1))
    run.record_messages("two", consumer.batch_receive())


@scenario(area=AREA, title="What is refused comes in a later batch, counted")
def refused(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = _consumer(run, topic, (3, -1, 4000), kind="Shared", negative_ack_redelivery_delay_ms=200)
    run.send(topic, numbers(3))
    for message in consumer.batch_receive():
        consumer.negative_acknowledge(message)
    run.record_set("again", consumer.batch_receive(), "data", "redelivery_count")


@scenario(area=AREA, title="Of several topics, and of partitions")
def several_topics(run: ScenarioRun) -> None:
    topics = [run.topic("a"), run.topic("b", partitions=2)]
    consumer = _consumer(run, topics, (6, -1, 4000), kind="Shared")
    run.send(topics[0], ["a1", "a2"])
    run.send(topics[1], ["b1", "b2", "b3", "b4"])
    found: list[Any] = []
    while len(found) < 6:
        found += consumer.batch_receive()
    run.record_set("received", found)


@scenario(area=AREA, title="After close, and on an empty topic with a time")
def ends(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = _consumer(run, topic, (3, -1, 300))
    run.record_messages("nothing", consumer.batch_receive())
    consumer.close()
    run.attempt("after close", consumer.batch_receive)


@scenario(area=AREA, title="What a policy says of itself")
def policy(run: ScenarioRun) -> None:
    made = run.sdk.ConsumerBatchReceivePolicy(5, 600, 700).policy()
    run.record("policy", [made.getMaxNumMessages(), made.getMaxNumBytes(), made.getTimeoutMs()])
