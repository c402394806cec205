"""Compacted reading: what is left of a topic after its compaction.

Batches are read with the Java client: the C++ one, which is Python's, makes up an empty message for each that
compaction took out of a batch, which hides what is left (`batches_in_python`).
"""

from __future__ import annotations

from typing import Any

from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import PulsarClient, scenario

AREA = "compaction"
BY_JAVA: dict[str, Any] = {"area": AREA, "client": PulsarClient.JAVA}

_SILENCE_MS = 600


def _rest(run: ScenarioRun, reader: Any) -> list[Any]:
    found: list[Any] = []
    while True:
        try:
            found.append(reader.read_next(_SILENCE_MS))
        except run.sdk.Timeout:
            return found


def _send(run: ScenarioRun, topic: str, messages: list[tuple[str | None, str]], **options: Any) -> None:
    producer = run.producer(topic, batching_max_publish_delay_ms=10_000, **options)
    for key, text in messages:
        producer.send_async(text.encode(), lambda result, message_id: None, partition_key=key)
    producer.flush()
    producer.close()


def _record_left(run: ScenarioRun, topic: str) -> None:
    reader = run.reader(topic, run.sdk.MessageId.earliest, is_read_compacted=True)
    left = _rest(run, reader)
    run.record("left", [(m.partition_key(), m.data().decode(), m.message_id().batch_index()) for m in left])
    consumer = run.consumer(topic, is_read_compacted=True, initial_position=run.sdk.InitialPosition.Earliest)
    run.record_messages("a consumer gets", run.receive(consumer, len(left)))
    run.record_messages("and then", run.rest(consumer))


@scenario(area=AREA, title="Only the newest message of each key is left")
def single_messages(run: ScenarioRun) -> None:
    topic = run.topic()
    _send(run, topic, [("a", "a1"), ("b", "b1"), ("a", "a2"), (None, "no key"), ("c", "c1")])
    run.admin.compact(topic)
    _send(run, topic, [("a", "a3"), (None, "after it")])
    _record_left(run, topic)


@scenario(**BY_JAVA, title="Batches are compacted message by message")
def batches(run: ScenarioRun) -> None:
    topic = run.topic()
    _send(run, topic, [("a", "a1"), ("b", "b1"), ("a", "a2"), ("c", "c1")], batching_enabled=True)
    _send(run, topic, [("b", "b2"), ("d", "d1")], batching_enabled=True)
    run.admin.compact(topic)
    _record_left(run, topic)


@scenario(area=AREA, title="Batches, as Python's client of Pulsar shows them")
def batches_in_python(run: ScenarioRun) -> None:
    batches(run)


@scenario(**BY_JAVA, title="A single message is newer than one of a batch, and the other way round")
def batches_and_single_messages(run: ScenarioRun) -> None:
    topic = run.topic()
    _send(run, topic, [("a", "a1"), ("b", "b1")])
    _send(run, topic, [("a", "a2"), ("c", "c1"), ("d", "d1")], batching_enabled=True)
    _send(run, topic, [("c", "c2")])
    run.admin.compact(topic)
    _record_left(run, topic)


@scenario(**BY_JAVA, title="A batch that is superseded as a whole")
def superseded_batch(run: ScenarioRun) -> None:
    topic = run.topic()
    _send(run, topic, [("a", "a1"), ("b", "b1")], batching_enabled=True)
    _send(run, topic, [("b", "b2"), ("a", "a2")], batching_enabled=True)
    run.admin.compact(topic)
    _record_left(run, topic)


@scenario(**BY_JAVA, title="Messages of a batch without a key")
def batch_without_keys(run: ScenarioRun) -> None:
    topic = run.topic()
    _send(run, topic, [("a", "a1"), (None, "no key"), ("b", "b1")], batching_enabled=True)
    _send(run, topic, [(None, "no key either"), (None, "nor here")], batching_enabled=True)
    run.admin.compact(topic)
    _record_left(run, topic)


@scenario(**BY_JAVA, title="An empty message of a batch")
def empty_in_a_batch(run: ScenarioRun) -> None:
    topic = run.topic()
    _send(run, topic, [("a", "a1"), ("b", "b1"), ("c", "c1")], batching_enabled=True)
    _send(run, topic, [("a", ""), ("d", "d1")], batching_enabled=True)
    run.admin.compact(topic)
    _record_left(run, topic)


@scenario(area=AREA, title="An empty message by itself")
def empty_message(run: ScenarioRun) -> None:
    topic = run.topic()
    _send(run, topic, [("a", "a1"), ("b", "b1"), ("a", "")])
    run.admin.compact(topic)
    _record_left(run, topic)
