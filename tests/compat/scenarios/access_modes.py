"""Access modes of producers."""

from __future__ import annotations

import threading
from typing import Any

from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import scenario

AREA = "access modes"


def _producer(run: ScenarioRun, topic: str, mode: str, **options: Any) -> Any:
    return run.producer(topic, access_mode=getattr(run.sdk.ProducerAccessMode, mode), **options)


@scenario(area=AREA, title="Exclusive: a second producer of any mode is refused, until the first is closed")
def exclusive(run: ScenarioRun) -> None:
    topic = run.topic()
    first = _producer(run, topic, "Exclusive")
    run.attempt("a second Exclusive", lambda: _producer(run, topic, "Exclusive"))
    run.attempt("a Shared one", lambda: _producer(run, topic, "Shared"))
    run.attempt("the first sends", lambda: first.send(b"x"))
    first.close()
    run.attempt("after its close", lambda: _producer(run, topic, "Exclusive").send(b"y"))


@scenario(area=AREA, title="Exclusive beside Shared is refused")
def exclusive_beside_shared(run: ScenarioRun) -> None:
    topic = run.topic()
    shared = _producer(run, topic, "Shared")
    run.attempt("Exclusive", lambda: _producer(run, topic, "Exclusive"))
    run.attempt("the Shared one sends", lambda: shared.send(b"x"))


@scenario(area=AREA, title="ExclusiveWithFencing throws the first one out")
def fencing(run: ScenarioRun) -> None:
    topic = run.topic()
    first = _producer(run, topic, "Exclusive")
    run.attempt("first", lambda: first.send(b"1"))
    second = run.attempt("fencing", lambda: _producer(run, topic, "ExclusiveWithFencing"))
    if second is not None:
        run.attempt("the new one sends", lambda: second.send(b"2"))
    run.attempt("the old one sends", lambda: first.send(b"3"))
    consumer = run.consumer(topic, initial_position=run.sdk.InitialPosition.Earliest)
    run.record_messages("stored", [*run.receive(consumer, 2), *run.rest(consumer)])


@scenario(area=AREA, title="WaitForExclusive waits for its turn")
def waiting(run: ScenarioRun) -> None:
    topic = run.topic()
    first = _producer(run, topic, "Exclusive")
    other = run.client()
    made: list[Any] = []

    def wait() -> None:
        try:
            made.append(other.create_producer(topic, access_mode=run.sdk.ProducerAccessMode.WaitForExclusive))
        except Exception as error:
            made.append(run.error_name(error))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    run.attempt("the first sends meanwhile", lambda: first.send(b"1"))
    run.record("has it", len(made))
    first.close()
    thread.join(20)
    run.attempt("then it is its turn", lambda: made[0].send(b"2"))


@scenario(area=AREA, title="WaitForExclusive gives up after the operation timeout")
def waiting_in_vain(run: ScenarioRun) -> None:
    topic = run.topic()
    first = _producer(run, topic, "Exclusive")
    other, mode = run.client(operation_timeout_seconds=2), run.sdk.ProducerAccessMode.WaitForExclusive
    run.attempt("the second one", lambda: other.create_producer(topic, access_mode=mode))
    run.attempt("the first sends", lambda: first.send(b"1"))
    first.close()
    run.attempt("the next one", lambda: _producer(run, topic, "WaitForExclusive").send(b"2"))


@scenario(area=AREA, title="Exclusive producers of a partitioned topic")
def exclusive_partitioned(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2)
    first = _producer(run, topic, "Exclusive")
    run.attempt("a second one", lambda: _producer(run, topic, "Exclusive"))
    run.attempt("a Shared one", lambda: _producer(run, topic, "Shared"))
    run.attempt("of one partition", lambda: _producer(run, f"{topic}-partition-1", "Exclusive"))
    run.attempt("the first sends", lambda: [first.send(b"x") for _ in range(4)])
    first.close()
    run.attempt("after its close", lambda: _producer(run, topic, "Exclusive").send(b"y"))


@scenario(area=AREA, title="Whoever is waiting is next, before those that come later")
def waiting_is_next(run: ScenarioRun) -> None:
    topic = run.topic()
    first = _producer(run, topic, "Exclusive")
    other = run.client()
    made: list[Any] = []
    mode = run.sdk.ProducerAccessMode.WaitForExclusive
    thread = threading.Thread(target=lambda: made.append(other.create_producer(topic, access_mode=mode)), daemon=True)
    thread.start()
    run.attempt("Shared, meanwhile", lambda: _producer(run, topic, "Shared"))
    run.attempt("Exclusive, meanwhile", lambda: _producer(run, topic, "Exclusive"))
    first.close()
    thread.join(20)
    run.attempt("it sends", lambda: made[0].send(b"x"))
    run.attempt("Exclusive, now", lambda: _producer(run, topic, "Exclusive"))
    made[0].close()
    run.attempt("Shared, in the end", lambda: _producer(run, topic, "Shared").send(b"y"))


@scenario(area=AREA, title="A named Exclusive producer comes back, and goes on counting")
def comes_back(run: ScenarioRun) -> None:
    topic = run.topic()
    for _ in range(2):
        producer = _producer(run, topic, "Exclusive", producer_name="the-one")
        run.record("ids", [producer.send(b"x") for _ in range(2)])
        run.record("last", producer.last_sequence_id())
        producer.close()


@scenario(area=AREA, title="Exclusive producers of two topics do not know each other")
def two_topics(run: ScenarioRun) -> None:
    producers = [_producer(run, run.topic(label), "Exclusive") for label in ("a", "b")]
    run.attempt("both send", lambda: [producer.send(b"x") for producer in producers])
