"""Patterns, with the Java client: it looks for new topics as often as it is told, Python's once a minute."""

from __future__ import annotations

import re
from typing import Any

from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import PulsarClient, scenario

AREA = "pattern"
BY_JAVA: dict[str, Any] = {"area": AREA, "client": PulsarClient.JAVA}
_NAMED = ("data", "topic_name")


def _subscribe(run: ScenarioRun, like: str, ending: str = ".*", **options: Any) -> Any:
    prefix = like.rpartition("-")[0]
    expression = re.compile(f"{re.escape(prefix)}-{ending}".replace("\\-", "-"))
    earliest = run.sdk.InitialPosition.Earliest
    return run.consumer(expression, pattern_auto_discovery_period=1, initial_position=earliest, **options)


@scenario(**BY_JAVA, title="New topics, plain and partitioned ones")
def new_topics(run: ScenarioRun) -> None:
    first = run.topic("a")
    run.producer(first).close()
    consumer = _subscribe(run, first, kind="Shared")
    run.send(first, ["a"])
    run.record_messages("at first", run.receive_acked(consumer, 1), *_NAMED)
    run.send(run.topic("b"), ["b"])
    run.record_messages("a new one", run.receive_acked(consumer, 1), *_NAMED)
    run.send_partition_by_partition(run.topic("c", partitions=2), {0: ["c0"], 1: ["c1"]})
    run.record_set("partitions", run.receive_acked(consumer, 2), *_NAMED)


@scenario(**BY_JAVA, title="Only what matches as a whole, and only of its namespace")
def what_matches(run: ScenarioRun) -> None:
    labels = ("in-1", "in-2", "in-22", "out-1")
    topics = {label: run.topic(label) for label in labels}
    for topic in topics.values():
        run.producer(topic).close()
    prefix = topics["in-1"].removesuffix("in-1")
    pattern = re.compile(f"{re.escape(prefix)}in-[12]".replace("\\-", "-"))
    consumer = run.consumer(pattern, initial_position=run.sdk.InitialPosition.Earliest)
    for label, topic in topics.items():
        run.send(topic, [label])
    run.record_set("received", run.receive(consumer, 2), *_NAMED)
    run.record_messages("and then", run.rest(consumer))


@scenario(**BY_JAVA, title="What is refused comes again, what is acknowledged does not, topic by topic")
def acknowledgements(run: ScenarioRun) -> None:
    topics = [run.topic("a"), run.topic("b")]
    for topic in topics:
        run.send(topic, ["1", "2"])
    consumer = _subscribe(run, topics[0], kind="Shared", negative_ack_redelivery_delay_ms=200)
    for message in run.receive(consumer, 4):
        if run.view(message) == "1":
            consumer.acknowledge(message)
        else:
            consumer.negative_acknowledge(message)
    run.record_set("again", run.receive(consumer, 2), *_NAMED, "redelivery_count")
    consumer.close()
    run.record_set("the next consumer", run.receive(_subscribe(run, topics[0], kind="Shared"), 2), *_NAMED)


@scenario(**BY_JAVA, title="A topic that was deleted is left; made again it is found again")
def deleted_topic(run: ScenarioRun) -> None:
    topics = [run.topic("a"), run.topic("b")]
    for topic in topics:
        run.send(topic, ["first"])
    consumer = _subscribe(run, topics[0], kind="Shared")
    run.record_set("at first", run.receive_acked(consumer, 2), *_NAMED)
    run.admin.delete_topic(topics[1], force=True)
    run.send(topics[0], ["second"])
    run.record_messages("the other one", run.receive_acked(consumer, 1), *_NAMED)
    run.send(topics[1], ["born again"])
    run.record_messages("made again", run.receive_acked(consumer, 1), *_NAMED)
