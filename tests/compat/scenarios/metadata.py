"""Metadata of messages beside their payload, and ids."""

from __future__ import annotations

import itertools
from typing import Any

from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import scenario

AREA = "message metadata"
IDS = "ids"

_number = itertools.count()


def _sent(run: ScenarioRun, content: bytes = b"x", **options: Any) -> Any:
    topic = run.topic(f"topic-{next(_number)}")
    consumer = run.consumer(topic)
    run.producer(topic).send(content, **options)
    return run.receive(consumer, 1)[0]


@scenario(area=AREA, title="What is not given is empty")
def absent(run: ScenarioRun) -> None:
    message = _sent(run)
    names = ("properties", "partition_key", "ordering_key", "event_timestamp", "redelivery_count", "schema_version")
    run.record("absent", run.view(message, *names, "publish_timestamp", "topic_name", "has_null_value"))
    run.record("encryption", message.encryption_context() is None)


@scenario(area=AREA, title="Properties")
def properties(run: ScenarioRun) -> None:
    given = {"a": "1", "empty": "", "ümläut": "日本", "with space": "a=b;c", "long": "x" * 300}
    run.record("properties", _sent(run, properties=given).properties())


@scenario(area=AREA, title="Properties that are no texts")
def bad_properties(run: ScenarioRun) -> None:
    producer = run.producer(run.topic())
    for name, given in (("number", {"a": 1}), ("bytes", {"a": b"1"}), ("list", ["a"]), ("key", {1: "a"})):
        run.attempt(name, lambda g=given: producer.send(b"x", properties=g))  # type: ignore[misc]


@scenario(area=AREA, title="Keys")
def keys(run: ScenarioRun) -> None:
    for key in ("k", "ümläut", "with space", "a/b:c"):
        run.record("key", _sent(run, partition_key=key).partition_key())
    run.record("both", run.view(_sent(run, partition_key="p", ordering_key="o"), "partition_key", "ordering_key"))
    run.record("ordering key", run.view(_sent(run, ordering_key="o"), "partition_key", "ordering_key"))


@scenario(area=AREA, title="An empty key")
def empty_key(run: ScenarioRun) -> None:
    run.record("empty", run.view(_sent(run, partition_key=""), "partition_key"))


@scenario(area=AREA, title="Event times")
def event_times(run: ScenarioRun) -> None:
    for time_ms in (1, 1_700_000_000_000, 4_102_444_800_000):
        run.record("time", _sent(run, event_timestamp=time_ms).event_timestamp())


@scenario(area=AREA, title="Publish time is now")
def publish_time(run: ScenarioRun) -> None:
    run.record("time", run.view(_sent(run), "publish_timestamp"))


@scenario(area=AREA, title="Names of topics: short, full, partitioned")
def topic_names(run: ScenarioRun) -> None:
    run.record("plain", _sent(run).topic_name())
    topic = run.topic("split", partitions=2)
    consumer = run.consumer(topic)
    run.send(topic, ["a", "b"])
    run.record("partitioned", {message.topic_name() for message in run.receive(consumer, 2)})


@scenario(area=AREA, title="Payloads of every byte")
def every_byte(run: ScenarioRun) -> None:
    run.record("equal", _sent(run, bytes(range(256))).data() == bytes(range(256)))


@scenario(area=AREA, title="value() of a message without a schema is its payload")
def value(run: ScenarioRun) -> None:
    run.record("value", _sent(run, b"payload").value())


@scenario(area=AREA, title="A message does not lose its contents when its consumer is closed")
def after_close(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    run.producer(topic).send(b"payload", properties={"a": "b"})
    message = run.receive(consumer, 1)[0]
    consumer.close()
    run.record("contents", run.view(message, "data", "properties"))


@scenario(area=IDS, title="Ids of messages that are in no batch")
def shape(run: ScenarioRun) -> None:
    found = _sent(run).message_id()
    run.record("parts", [found.entry_id(), found.partition(), found.batch_index()])
    run.record("text", str(found) == f"({found.ledger_id()},{found.entry_id()},-1,-1)")


@scenario(area=IDS, title="Ids of a partitioned topic name the partition")
def of_partitions(run: ScenarioRun) -> None:
    topic = run.topic(partitions=3)
    consumer = run.consumer(topic)
    run.send_partition_by_partition(topic, {0: ["a"], 2: ["c", "d"]})
    found = {run.view(message): message.message_id() for message in run.receive(consumer, 3)}
    run.record("ids", {text: [found[text].partition(), found[text].entry_id()] for text in found})


@scenario(area=IDS, title="Ids order as messages do")
def order(run: ScenarioRun) -> None:
    a, b, c = run.send(run.topic(), ["a", "b", "c"])
    run.record("compared", [a < b, b < c, a <= a, c > a, c >= b, a == a, a != b, a == b])
    earliest, latest = run.sdk.MessageId.earliest, run.sdk.MessageId.latest
    run.record("with the ends", [earliest < a, c < latest, earliest < latest, earliest == earliest])


@scenario(area=IDS, title="Serialised and read back")
def serialised(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2)
    consumer = run.consumer(topic)
    run.send_partition_by_partition(topic, {1: ["a", "b"]})
    for message in run.receive(consumer, 2):
        found = message.message_id()
        again = run.sdk.MessageId.deserialize(found.serialize())
        run.record("equal", [again == found, str(again) == str(found), again.partition()])


@scenario(area=IDS, title="The bytes of an id are Pulsar's")
def bytes_of_an_id(run: ScenarioRun) -> None:
    for parts in ((-1, 0, 0, -1), (-1, 17, 4, -1), (3, 123_456_789, 42, -1), (0, 5, 6, 7)):
        run.record("bytes", run.sdk.MessageId(*parts).serialize().hex())


@scenario(area=IDS, title="Bytes that are no id")
def bad_bytes(run: ScenarioRun) -> None:
    for name, data in (("garbage", b"\xff\xff\xff"), ("text", b"hello"), ("empty", b"")):
        run.attempt(name, lambda d=data: run.sdk.MessageId.deserialize(d))  # type: ignore[misc]


@scenario(area=IDS, title="MessageId: made, wrapped, its parts, its text")
def made(run: ScenarioRun) -> None:
    one = run.sdk.MessageId(2, 10, 20, 3)
    run.record("parts", [one.partition(), one.ledger_id(), one.entry_id(), one.batch_index()])
    run.record("text", str(one))
    run.record("default", str(run.sdk.MessageId()))
    run.record("ends", [str(run.sdk.MessageId.earliest), str(run.sdk.MessageId.latest)])
    other = run.sdk.MessageId(2, 10, 21, 3)
    run.record("compared", [one < other, one == run.sdk.MessageId(2, 10, 20, 3), one != other])
    run.attempt("hash", lambda: hash(one))
