"""Producers: what sending gives, and what arrives."""

from __future__ import annotations

import threading
from typing import Any

from tests.compat.harness.driver import PATIENCE_MS, ScenarioRun
from tests.compat.harness.scenario import scenario

AREA = "producing"


@scenario(area=AREA, title="Messages arrive in the order in which they were sent")
def order(run: ScenarioRun) -> None:
    consumer = run.subscribed([f"m-{number}" for number in range(50)]).consumer
    run.record_messages("received", run.receive(consumer, 50))


@scenario(area=AREA, title="A producer's ids count the entries of a fresh topic from 0")
def ids_count_entries(run: ScenarioRun) -> None:
    run.record("ids", run.send(run.topic(), ["a", "b", "c", "d"]))


@scenario(area=AREA, title="The id that send gives is the id that is received")
def sent_and_received_ids(run: ScenarioRun) -> None:
    _, consumer, sent = run.subscribed(["a", "b", "c"])
    received = [message.message_id() for message in run.receive(consumer, 3)]
    run.record("equal", [one == other for one, other in zip(sent, received, strict=True)])


@scenario(area=AREA, title="send_async calls back with Ok and the id, in order")
def send_async_callbacks(run: ScenarioRun) -> None:
    producer = run.producer(run.topic())
    answers: list[Any] = []
    done = threading.Event()

    def heard(result: Any, message_id: Any) -> None:
        answers.append([str(result).rpartition(".")[2], message_id])
        if len(answers) == 10:
            done.set()

    for number in range(10):
        producer.send_async(str(number).encode(), heard)
    producer.flush()
    run.record("all answered", done.wait(PATIENCE_MS / 1000))
    run.record("answers", answers)


@scenario(area=AREA, title="flush returns when everything is answered")
def flush_waits(run: ScenarioRun) -> None:
    producer = run.producer(run.topic())
    answered: list[int] = []
    for number in range(100):
        producer.send_async(b"x", lambda _result, _id, number=number: answered.append(number))
    producer.flush()
    run.record("answered at return", len(answered))


@scenario(area=AREA, title="last_sequence_id and own sequence ids")
def sequence_ids(run: ScenarioRun) -> None:
    producer = run.producer(run.topic())
    run.record("before", producer.last_sequence_id())
    producer.send(b"a")
    run.record("after one", producer.last_sequence_id())
    producer.send(b"b", sequence_id=17)
    run.record("after an own one", producer.last_sequence_id())
    producer.send(b"c")
    run.record("after the next", producer.last_sequence_id())
    resumed = run.producer(run.topic("other"), initial_sequence_id=41)
    run.record("initial", resumed.last_sequence_id())
    resumed.send(b"d")
    run.record("following", resumed.last_sequence_id())


@scenario(area=AREA, title="Names and topics of producers")
def names(run: ScenarioRun) -> None:
    topic = run.topic()
    named = run.producer(topic, producer_name="my-producer")
    run.record("name", named.producer_name())
    run.record("topic", named.topic())
    run.record("connected", named.is_connected())
    first, second = run.producer(run.topic("other")), run.producer(run.topic("other"))
    run.record(
        "generated names are there and differ",
        bool(first.producer_name()) and first.producer_name() != second.producer_name(),
    )
    short = run.name("short")
    run.record("short name", run.producer(short).topic())


@scenario(area=AREA, title="A producer's name is on its messages")
def producer_name_of_messages(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    run.send(topic, ["a"], producer_name="author")
    run.record_messages("received", run.receive(consumer, 1), "producer_name")


@scenario(area=AREA, title="An empty payload arrives empty")
def empty_payload(run: ScenarioRun) -> None:
    consumer = run.subscribed(["", "after"]).consumer
    run.record_messages("received", run.receive(consumer, 2), "data", "has_null_value")


@scenario(area=AREA, title="A payload of a megabyte arrives whole")
def large_payload(run: ScenarioRun) -> None:
    consumer = run.subscribed(["0123456789abcdef" * 65536]).consumer
    run.record_messages("received", run.receive(consumer, 1))


@scenario(area=AREA, title="A message above the limit is refused at once, the next one goes")
def too_big(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    producer = run.producer(topic)
    run.attempt("six megabytes", lambda: producer.send(b"x" * 6_000_000))
    run.attempt("a small one", lambda: producer.send(b"small"))
    run.record_messages("received", run.receive(consumer, 1))


@scenario(area=AREA, title="Many producers of one topic")
def many_producers(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    producers = [run.producer(topic) for _ in range(5)]
    for number in range(10):
        for index, producer in enumerate(producers):
            producer.send(f"{index}-{number}".encode())
    messages = run.receive(consumer, 50)
    run.record_messages("received", messages)


@scenario(area=AREA, title="A full queue refuses when it may not block")
def full_queue(run: ScenarioRun) -> None:
    producer = run.producer(run.topic(), max_pending_messages=1, block_if_queue_full=False)
    results: list[str] = []
    for _ in range(200):
        producer.send_async(b"x" * 10_000, lambda result, _id: results.append(str(result).rpartition(".")[2]))
    producer.flush()
    run.until(lambda: len(results) == 200, "200 answers")
    run.record("kinds of answers", set(results))


@scenario(area=AREA, title="A full queue is waited for when it may block")
def full_queue_blocks(run: ScenarioRun) -> None:
    producer = run.producer(run.topic(), max_pending_messages=2, block_if_queue_full=True)
    results: list[str] = []
    for _ in range(100):
        producer.send_async(b"x", lambda result, _id: results.append(str(result).rpartition(".")[2]))
    producer.flush()
    run.until(lambda: len(results) == 100, "100 answers")
    run.record("kinds of answers", set(results))


@scenario(area=AREA, title="Operators see the producers of a topic with their properties")
def properties(run: ScenarioRun) -> None:
    topic = run.topic()
    names = [run.name(label) for label in ("one", "two")]
    first = run.producer(topic, producer_name=names[0], properties={"team": "billing", "n": "1", "": ""})
    second = run.producer(topic, producer_name=names[1])
    run.until(lambda: len(run.admin.publishers(topic)) == 2, "two producers to be seen")
    run.record("both", run.admin.publishers(topic))
    first.close()
    run.until(lambda: len(run.admin.publishers(topic)) == 1, "one of them to be gone")
    run.record("one", run.admin.publishers(topic))
    second.close()
    run.until(lambda: not run.admin.publishers(topic), "both to be gone")
    exclusive = run.sdk.ProducerAccessMode.Exclusive
    run.producer(topic, producer_name=names[0], access_mode=exclusive, properties={"team": "audit"})
    run.until(lambda: run.admin.publishers(topic), "the exclusive producer to be seen")
    run.record("exclusive", run.admin.publishers(topic))


@scenario(area=AREA, title="Properties of a producer that are no texts")
def bad_properties(run: ScenarioRun) -> None:
    topic = run.topic()
    for name, given in (("number", {"a": 1}), ("name", {1: "a"}), ("none", None), ("empty", {})):
        run.attempt(name, lambda g=given: run.producer(topic, properties=g))  # type: ignore[misc]
