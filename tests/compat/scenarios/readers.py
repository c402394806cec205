"""Readers and table views."""

from __future__ import annotations

from typing import Any

from tests.compat.harness.driver import ScenarioRun, numbers
from tests.compat.harness.scenario import scenario

AREA = "reader"


def _rest(run: ScenarioRun, reader: Any) -> list[Any]:
    found: list[Any] = []
    while True:
        try:
            found.append(reader.read_next(600))
        except run.sdk.Timeout:
            return found


@scenario(area=AREA, title="From the earliest message")
def from_earliest(run: ScenarioRun) -> None:
    topic = run.topic()
    run.send(topic, numbers(5))
    reader = run.reader(topic, run.sdk.MessageId.earliest)
    run.record_messages("read", run.read(reader, 5))
    run.record_messages("and then", _rest(run, reader))


@scenario(area=AREA, title="From the end")
def from_latest(run: ScenarioRun) -> None:
    topic = run.topic()
    run.send(topic, numbers(3))
    reader = run.reader(topic, run.sdk.MessageId.latest)
    run.send(topic, ["after"])
    run.record_messages("read", run.read(reader, 1))
    run.record_messages("and then", _rest(run, reader))


@scenario(area=AREA, title="After an id, or with it")
def from_an_id(run: ScenarioRun) -> None:
    topic = run.topic()
    ids = run.send(topic, numbers(6))
    run.record_messages("after", run.read(run.reader(topic, ids[2]), 3))
    run.record_messages("with", run.read(run.reader(topic, ids[2], start_message_id_inclusive=True), 4))
    wrapped = run.sdk.MessageId.wrap(ids[4])
    run.record_messages("MessageId", run.read(run.reader(topic, wrapped), 1))


@scenario(area=AREA, title="From the end, inclusive: the last message")
def from_latest_inclusive(run: ScenarioRun) -> None:
    topic = run.topic()
    run.send(topic, numbers(3))
    reader = run.reader(topic, run.sdk.MessageId.latest, start_message_id_inclusive=True)
    run.record("available", reader.has_message_available())
    run.record_messages("read", run.read(reader, 1))


@scenario(area=AREA, title="has_message_available is exact")
def available(run: ScenarioRun) -> None:
    topic = run.topic()
    reader = run.reader(topic, run.sdk.MessageId.earliest)
    run.record("empty", reader.has_message_available())
    ids = run.send(topic, numbers(2))
    run.record("two", reader.has_message_available())
    run.read(reader, 1)
    run.record("one", reader.has_message_available())
    run.read(reader, 1)
    run.record("none", reader.has_message_available())
    run.record("after the last", run.reader(topic, ids[1]).has_message_available())
    last = run.reader(topic, ids[1], start_message_id_inclusive=True)
    run.record("with the last", last.has_message_available())
    run.record("from the end", run.reader(topic, run.sdk.MessageId.latest).has_message_available())


@scenario(area=AREA, title="Reading while has_message_available")
def loop(run: ScenarioRun) -> None:
    topic = run.topic()
    run.send(topic, numbers(20))
    reader = run.reader(topic, run.sdk.MessageId.earliest)
    messages = []
    while reader.has_message_available():
        messages.append(reader.read_next())
    run.record_messages("read", messages)


@scenario(area=AREA, title="Seeking by id and by time")
def seek(run: ScenarioRun) -> None:
    topic = run.topic()
    ids = run.send(topic, ["0", "1", "2"])
    reader = run.reader(topic, run.sdk.MessageId.earliest)
    between = run.read(reader, 3)[2].publish_timestamp() + 1
    run.until(lambda: run.is_after(between), "the next milliseconds")
    run.send(topic, ["3", "4"])
    reader.seek(ids[0])
    run.record_messages("by id", run.read(reader, 4))
    reader.seek(between)
    run.record_messages("by time", run.read(reader, 2))
    reader.seek(run.sdk.MessageId.earliest)
    run.record_messages("earliest", run.read(reader, 5))


@scenario(area=AREA, title="Readers leave no subscription behind")
def no_subscription(run: ScenarioRun) -> None:
    topic = run.topic()
    run.send(topic, ["x"])
    reader = run.reader(topic, run.sdk.MessageId.earliest, reader_name="me")
    run.read(reader, 1)
    run.record("topic", reader.topic())
    run.record("connected", reader.is_connected())
    reader.close()
    run.until(lambda: not run.admin.list_subscriptions(topic), "no subscriptions")
    run.record("subscriptions", run.admin.list_subscriptions(topic))


@scenario(area=AREA, title="Two readers of a topic")
def two(run: ScenarioRun) -> None:
    topic = run.topic()
    run.send(topic, numbers(3))
    one = run.reader(topic, run.sdk.MessageId.earliest)
    other = run.reader(topic, run.sdk.MessageId.earliest)
    run.record_messages("one", run.read(one, 3))
    run.record_messages("other", run.read(other, 3))


@scenario(area=AREA, title="A closed reader; a reader with nothing to read; bad arguments")
def closed(run: ScenarioRun) -> None:
    topic = run.topic()
    reader = run.reader(topic, run.sdk.MessageId.earliest)
    run.attempt("nothing there", lambda: reader.read_next(100))
    run.attempt("close", reader.close)
    run.attempt("read", lambda: reader.read_next(100))
    run.attempt("available", reader.has_message_available)
    run.attempt("text as id", lambda: run.reader(topic, "earliest"))
    run.attempt("no topic", lambda: run.reader("a/b", run.sdk.MessageId.earliest))


@scenario(area=AREA, title="A listener")
def listener(run: ScenarioRun) -> None:
    topic = run.topic()
    run.send(topic, numbers(2))
    heard: list[str] = []
    run.reader(
        topic, run.sdk.MessageId.earliest, reader_listener=lambda _reader, message: heard.append(run.view(message))
    )
    run.send(topic, ["2"])
    run.until(lambda: len(heard) == 3, "3 messages heard")
    run.record("heard", heard)


@scenario(area=AREA, title="A reader of a partitioned topic, and of one partition")
def partitioned(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2)
    run.send_partition_by_partition(topic, {0: ["a0", "a1"], 1: ["b0"]})
    earliest = run.sdk.MessageId.earliest
    run.record_messages("one partition", run.read(run.reader(f"{topic}-partition-0", earliest), 2))
    reader = run.attempt("all", lambda: run.reader(topic, earliest))
    if reader is not None:
        run.record_set("all", run.read(reader, 3))
        run.record("left", reader.has_message_available())
