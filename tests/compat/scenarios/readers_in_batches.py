"""Readers among batches: where they start, what they say is available."""

from __future__ import annotations

from typing import Any

from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import scenario

AREA = "reader"


def _batch(run: ScenarioRun, topic: str, texts: list[str], **options: Any) -> list[Any]:
    producer = run.producer(topic, batching_enabled=True, batching_max_publish_delay_ms=10_000, **options)
    ids: list[Any] = []
    for text in texts:
        producer.send_async(text.encode(), lambda _result, message_id: ids.append(message_id))
    producer.flush()
    run.until(lambda: len(ids) == len(texts), "all answers")
    producer.close()
    return ids


def _two_batches(run: ScenarioRun) -> tuple[str, list[Any]]:
    topic = run.topic()
    return topic, _batch(run, topic, ["a0", "a1", "a2"]) + _batch(run, topic, ["b0", "b1", "b2"])


def _available(run: ScenarioRun, reader: Any) -> list[Any]:
    found = []
    while reader.has_message_available():
        found += run.read(reader, 1)
    return found


@scenario(area=AREA, title="Among batches: behind each message, and with each")
def each_start(run: ScenarioRun) -> None:
    topic, ids = _two_batches(run)
    for number, start in enumerate(ids):
        for inclusive in (False, True):
            reader = run.reader(topic, start, start_message_id_inclusive=inclusive)
            run.record_messages(f"{number}, inclusive {inclusive}", _available(run, reader))
            reader.close()


@scenario(area=AREA, title="Among batches: from the ends")
def ends(run: ScenarioRun) -> None:
    topic, _ = _two_batches(run)
    for name in ("earliest", "latest"):
        start = getattr(run.sdk.MessageId, name)
        reader = run.reader(topic, start)
        run.record_messages(name, _available(run, reader))
        reader.close()


@scenario(area=AREA, title="has_message_available inside a batch")
def available_inside(run: ScenarioRun) -> None:
    topic, _ = _two_batches(run)
    reader = run.reader(topic, run.sdk.MessageId.earliest)
    seen = []
    for _ in range(6):
        seen.append(reader.has_message_available())
        run.read(reader, 1)
    run.record("before each", seen)
    run.record("after the last", reader.has_message_available())
    _batch(run, topic, ["c0"])
    run.until(reader.has_message_available, "the next batch")
    run.record_messages("the next one", run.read(reader, 1))


@scenario(area=AREA, title="Seeking into batches, by id and by time")
def seek_inside(run: ScenarioRun) -> None:
    topic, ids = _two_batches(run)
    reader = run.reader(topic, run.sdk.MessageId.earliest)
    between = run.read(reader, 6)[-1].publish_timestamp() + 1
    run.until(lambda: run.is_after(between), "the next milliseconds")
    _batch(run, topic, ["c0", "c1"])
    reader.seek(ids[1])
    run.record_messages("behind a1", _available(run, reader))
    reader.seek(between)
    run.record_messages("by time", _available(run, reader))
    reader.seek(ids[5])
    run.record_messages("behind b2", _available(run, reader))


@scenario(area=AREA, title="Seeking into batches, inclusive")
def seek_inclusive(run: ScenarioRun) -> None:
    topic, ids = _two_batches(run)
    reader = run.reader(topic, run.sdk.MessageId.latest, start_message_id_inclusive=True)
    for number in (4, 0, 2):
        reader.seek(ids[number])
        run.record_messages(f"with {number}", _available(run, reader))


@scenario(area=AREA, title="Ids of what a reader reads among batches")
def ids_read(run: ScenarioRun) -> None:
    topic, ids = _two_batches(run)
    found = run.read(run.reader(topic, run.sdk.MessageId.earliest), 6)
    run.record("ids", [message.message_id() for message in found])
    run.record("those that were sent", [a == b.message_id() for a, b in zip(ids, found, strict=True)])


@scenario(area=AREA, title="A small queue among batches")
def small_queue(run: ScenarioRun) -> None:
    topic = run.topic()
    for number in range(4):
        _batch(run, topic, [f"{number}.{index}" for index in range(5)])
    reader = run.reader(topic, run.sdk.MessageId.earliest, receiver_queue_size=1)
    run.record_messages("read", _available(run, reader))


@scenario(area=AREA, title="A consumer that seeks into batches, and acknowledges cumulatively there")
def consumer_inside(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic, batch_index_ack_enabled=True)
    ids = _batch(run, topic, ["a0", "a1", "a2"]) + _batch(run, topic, ["b0", "b1", "b2"])
    run.receive(consumer, 6)
    consumer.seek(ids[1])
    messages = run.receive(consumer, 4)
    run.record_messages("behind a1", messages)
    consumer.acknowledge_cumulative(messages[1])
    consumer.close()
    run.record_messages("the next consumer", run.rest(run.consumer(topic, batch_index_ack_enabled=True)))
