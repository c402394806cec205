"""Subscriptions over several topics, and over patterns."""

from __future__ import annotations

import re

from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import scenario

MULTI = "multi topics"
PATTERN = "pattern"
_NAMED = ("data", "topic_name")
_DISCOVERY_MS = 90_000
"""The official client takes `pattern_auto_discovery_period` and looks every 60 s."""


@scenario(area=MULTI, title="A list of topics gives the messages of all")
def several(run: ScenarioRun) -> None:
    topics = [run.topic("a"), run.topic("b"), run.topic("split", partitions=2)]
    consumer = run.consumer(topics)
    for index, topic in enumerate(topics):
        run.send(topic, [f"{index}-1", f"{index}-2"])
    messages = run.receive(consumer, 6)
    run.record_set("received", messages)
    run.record("topics", {message.topic_name().partition("-partition-")[0] for message in messages})


@scenario(area=MULTI, title="Acknowledgements reach the message's own topic")
def acknowledgements(run: ScenarioRun) -> None:
    topics = [run.topic("a"), run.topic("b")]
    consumer = run.consumer(topics, kind="Shared")
    for topic in topics:
        run.send(topic, ["1", "2", "3"])
    for message in run.receive(consumer, 6):
        if run.view(message) != "2":
            consumer.acknowledge(message)
    consumer.close()
    again = run.consumer(topics, kind="Shared")
    run.record_set("again", run.receive(again, 2), *_NAMED)
    run.record_messages("and then", run.rest(again))


@scenario(area=MULTI, title="The subscription is one of each topic")
def one_of_each(run: ScenarioRun) -> None:
    topics = [run.topic("a"), run.topic("b")]
    consumer = run.consumer(topics)
    for topic in topics:
        run.send(topic, ["x"])
    run.receive_acked(consumer, 2)
    consumer.close()
    run.send(topics[1], ["y"])
    run.record_messages("b alone", run.receive(run.consumer(topics[1]), 1))
    run.record_messages("a alone", run.rest(run.consumer(topics[0])))


@scenario(area=MULTI, title="Negative acknowledgements")
def negative(run: ScenarioRun) -> None:
    topics = [run.topic("a"), run.topic("b")]
    consumer = run.consumer(topics, kind="Shared", negative_ack_redelivery_delay_ms=200)
    for topic in topics:
        run.send(topic, ["x"])
    for message in run.receive(consumer, 2):
        consumer.negative_acknowledge(message)
    run.record_set("again", run.receive(consumer, 2), *_NAMED, "redelivery_count")


@scenario(area=MULTI, title="An id without its topic cannot be acknowledged")
def id_without_topic(run: ScenarioRun) -> None:
    topics = [run.topic("a"), run.topic("b")]
    consumer = run.consumer(topics)
    run.send(topics[0], ["x"])
    found = run.receive(consumer, 1)[0].message_id()
    bare = run.sdk.MessageId.deserialize(found.serialize())
    named = run.sdk.MessageId.deserialize(found.serialize(), topic=topics[0])
    run.attempt("without", lambda: consumer.acknowledge(bare))
    run.attempt("with", lambda: consumer.acknowledge(named))


@scenario(area=MULTI, title="An Exclusive consumer of one topic shuts out a list with it")
def busy(run: ScenarioRun) -> None:
    topics = [run.topic("a"), run.topic("b")]
    run.consumer(topics[1])
    run.attempt("list", lambda: run.consumer(topics))


@scenario(area=MULTI, title="Seeking all topics by time")
def seek_by_time(run: ScenarioRun) -> None:
    topics = [run.topic("a"), run.topic("b")]
    consumer = run.consumer(topics)
    for topic in topics:
        run.send(topic, ["1", "2"])
    run.receive_acked(consumer, 4)
    if run.attempt("seek", lambda: [consumer.seek(1)]):
        run.record_set("again", run.receive(consumer, 4))


@scenario(area=MULTI, title="Names of a consumer of several topics; bad lists")
def bad_lists(run: ScenarioRun) -> None:
    topics = [run.topic("a"), run.topic("b")]
    consumer = run.consumer(topics, "my-sub")
    run.record("subscription", consumer.subscription_name())
    run.record("connected", consumer.is_connected())
    run.attempt("a bad name", lambda: run.consumer([topics[0], "a/b"], "other"))
    run.attempt("a tuple", lambda: run.consumer((topics[0], topics[1]), "other"))


@scenario(area=MULTI, title="A listener of several topics")
def listener(run: ScenarioRun) -> None:
    topics = [run.topic("a"), run.topic("b")]
    heard: list[str] = []

    def hear(consumer: object, message: object) -> None:
        heard.append(run.view(message))
        consumer.acknowledge(message)  # type: ignore[attr-defined]

    run.consumer(topics, message_listener=hear)
    for index, topic in enumerate(topics):
        run.send(topic, [f"{index}-1", f"{index}-2"])
    run.until(lambda: len(heard) == 4, "4 messages heard")
    run.record("heard", set(heard))


def _pattern(run: ScenarioRun, prefix: str) -> re.Pattern[str]:
    return re.compile(f"persistent://public/default/{prefix}.*")


@scenario(area=PATTERN, title="A pattern finds the topics that are there")
def existing(run: ScenarioRun) -> None:
    topics = [run.topic("in-a"), run.topic("in-b"), run.topic("out")]
    for topic in topics:
        run.producer(topic).close()
    prefix = topics[0].rpartition("/")[2].removesuffix("a")
    consumer = run.consumer(_pattern(run, prefix))
    for topic in topics:
        run.send(topic, ["x"])
    run.record_set("received", run.receive(consumer, 2), *_NAMED)
    run.record_messages("and then", run.rest(consumer))


@scenario(area=PATTERN, title="New topics are found", time_limit_s=110)
def discovery(run: ScenarioRun) -> None:
    first = run.topic("in-a")
    run.producer(first).close()
    prefix = first.rpartition("/")[2].removesuffix("a")
    consumer = run.consumer(
        _pattern(run, prefix), pattern_auto_discovery_period=1, initial_position=run.sdk.InitialPosition.Earliest
    )
    run.send(first, ["1"])
    run.send(run.topic("in-b"), ["2"])
    run.record_set("received", [consumer.receive(_DISCOVERY_MS) for _ in range(2)], *_NAMED)


@scenario(area=PATTERN, title="A pattern finds partitioned topics")
def partitioned(run: ScenarioRun) -> None:
    topic = run.topic("in-split", partitions=2)
    prefix = topic.rpartition("/")[2].removesuffix("split")
    consumer = run.consumer(_pattern(run, prefix))
    run.send_partition_by_partition(topic, {0: ["a"], 1: ["b"]})
    run.record_set("received", run.receive(consumer, 2), *_NAMED)


@scenario(area=PATTERN, title="A pattern that nothing matches waits", time_limit_s=110)
def nothing_yet(run: ScenarioRun) -> None:
    topic = run.topic("late-a")
    prefix = topic.rpartition("/")[2].removesuffix("a")
    consumer = run.consumer(
        _pattern(run, prefix), pattern_auto_discovery_period=1, initial_position=run.sdk.InitialPosition.Earliest
    )
    run.attempt("nothing", lambda: consumer.receive(500))
    run.send(topic, ["x"])
    run.record_messages("received", [consumer.receive(_DISCOVERY_MS)])
