"""Deduplication by producer name and sequence id, and the policy that switches it on."""

from __future__ import annotations

from typing import Any

from tests.compat.harness.driver import PATIENCE_MS, ScenarioRun
from tests.compat.harness.scenario import PulsarClient, scenario

AREA = "deduplication"


def _namespace(run: ScenarioRun, label: str = "namespace") -> str:
    """One with the policy."""
    namespace = run.namespace(label)
    run.admin.set_deduplication(namespace, enabled=True)
    return namespace


def _is_stored(producer: Any, text: str, sequence: int, **options: Any) -> bool:
    """Whether a send was answered with an id; a duplicate's answer has none."""
    message_id = producer.send(text.encode(), sequence_id=sequence, **options)
    return bool(message_id.ledger_id() >= 0)


def _everything(run: ScenarioRun, topic: str, count: int) -> None:
    consumer = run.consumer(topic, initial_position=run.sdk.InitialPosition.Earliest)
    run.record_messages("stored", run.receive_acked(consumer, count))
    run.record_messages("and then", run.rest(consumer))


@scenario(area=AREA, title="Two producers of one name")
def same_name(run: ScenarioRun) -> None:
    topic = run.topic()
    first = run.producer(topic, producer_name="the-one")
    run.attempt("second", lambda: run.producer(topic, producer_name="the-one"))
    first.close()
    run.attempt("after the close", lambda: run.producer(topic, producer_name="the-one"))


@scenario(area=AREA, title="Without deduplication a repeated sequence id is a message as any other")
def repeated_without(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    producer = run.producer(topic, producer_name="p")
    for text, sequence in (("a", 1), ("b", 1), ("c", 0)):
        producer.send(text.encode(), sequence_id=sequence)
    run.record_messages("received", run.receive(consumer, 3))


@scenario(area=AREA, title="A new producer of the name goes on where the last one was")
def resumed(run: ScenarioRun) -> None:
    topic = run.topic()
    first = run.producer(topic, producer_name="p", initial_sequence_id=10)
    for _ in range(3):
        first.send(b"x")
    run.record("first", first.last_sequence_id())
    first.close()
    run.record("second", run.producer(topic, producer_name="p").last_sequence_id())


@scenario(area=AREA, title="With deduplication a repeated sequence id is stored once")
def repeated_with(run: ScenarioRun) -> None:
    namespace = run.namespace()
    run.admin.set_deduplication(namespace, enabled=True)
    topic = run.topic(namespace=namespace)
    consumer = run.consumer(topic)
    producer = run.producer(topic, producer_name="p")
    for text, sequence in (("a", 1), ("again a", 1), ("b", 2), ("older", 0), ("c", 3)):
        producer.send(text.encode(), sequence_id=sequence)
    run.record("last", producer.last_sequence_id())
    producer.close()
    reopened = run.producer(topic, producer_name="p")
    run.record("resumed", reopened.last_sequence_id())
    reopened.send(b"again c", sequence_id=3)
    reopened.send(b"d", sequence_id=4)
    run.record_messages("received", run.receive(consumer, 4))
    run.record_messages("and then", run.rest(consumer))


def _answers(run: ScenarioRun, **options: Any) -> None:
    topic = run.topic(namespace=_namespace(run))
    producer = run.producer(topic, producer_name="p", **options)
    for sequence in (5, 5, 3, 9, None, None, 10):
        given = {} if sequence is None else {"sequence_id": sequence}
        run.record(f"id of {sequence}", producer.send(str(sequence).encode(), **given))
        run.record("last", producer.last_sequence_id())
    _everything(run, topic, 3)


@scenario(area=AREA, title="Ids and last_sequence_id of what is above, equal to and below the highest")
def answers(run: ScenarioRun) -> None:
    _answers(run)


@scenario(area=AREA, title="The same with batches of one message")
def answers_of_batches(run: ScenarioRun) -> None:
    _answers(run, batching_enabled=True)


@scenario(area=AREA, title="Batches of several messages that overlap")
def overlapping_batches(run: ScenarioRun) -> None:
    topic = run.topic(namespace=_namespace(run))
    producer = run.producer(topic, producer_name="p", batching_enabled=True, batching_max_publish_delay_ms=5000)
    for batch in ((0, 1, 2), (1, 2, 3), (5, 5, 6)):
        for sequence in batch:
            producer.send_async(str(sequence).encode(), None, sequence_id=sequence)
        producer.flush()
    producer.close()
    run.record("reopened", run.producer(topic, producer_name="p").last_sequence_id())
    _everything(run, topic, 6)


@scenario(area=AREA, client=PulsarClient.JAVA, title="The same from the Java client, which judges message by message")
def overlapping_batches_by_java(run: ScenarioRun) -> None:
    overlapping_batches(run)


@scenario(area=AREA, title="Reopened with an initial sequence id, and by another name")
def reopened(run: ScenarioRun) -> None:
    topic = run.topic(namespace=_namespace(run))
    run.send(topic, ["0", "1", "2"], producer_name="p")
    for initial in (1, 0, None, 7):
        producer = run.producer(topic, producer_name="p", initial_sequence_id=initial)
        run.record(f"last, with {initial}", producer.last_sequence_id())
        run.record("next", producer.send(f"after {initial}".encode()))
        run.record("last", producer.last_sequence_id())
        producer.close()
    run.record("another", run.producer(topic, producer_name="q").last_sequence_id())
    _everything(run, topic, 6)


@scenario(area=AREA, title="Producers of two names, and one without a name, do not disturb each other")
def names(run: ScenarioRun) -> None:
    topic = run.topic(namespace=_namespace(run))
    producers = [run.producer(topic, producer_name="p"), run.producer(topic, producer_name="q"), run.producer(topic)]
    for sequence in (3, 3, 2, 4):
        run.record(f"{sequence}", [_is_stored(producer, str(sequence), sequence) for producer in producers])
    _everything(run, topic, 6)


@scenario(area=AREA, title="Exclusive producers are deduplicated too")
def exclusive(run: ScenarioRun) -> None:
    topic = run.topic(namespace=_namespace(run))
    mode = run.sdk.ProducerAccessMode.Exclusive
    producer = run.producer(topic, producer_name="p", access_mode=mode)
    run.record("stored", [_is_stored(producer, "x", sequence) for sequence in (1, 1, 2)])
    producer.close()
    run.record("reopened", run.producer(topic, producer_name="p", access_mode=mode).last_sequence_id())


@scenario(area=AREA, title="Each partition has ids of its own")
def partitions(run: ScenarioRun) -> None:
    topic = run.topic(namespace=_namespace(run), partitions=2)
    options: dict[str, Any] = {
        "producer_name": "p",
        "message_routing_mode": run.sdk.PartitionsRoutingMode.CustomPartition,
        "message_router": lambda message, _: int(message.properties()["to"]),
    }
    producer = run.producer(topic, **options)
    for sequence, to in ((4, 0), (4, 0), (3, 1), (3, 1), (3, 0), (4, 1)):
        run.record(f"{sequence} to {to}", _is_stored(producer, "x", sequence, properties={"to": str(to)}))
    producer.close()
    again = run.producer(topic, **options)
    run.record("reopened", again.last_sequence_id())
    run.record("stored", [_is_stored(again, "x", 4, properties={"to": str(to)}) for to in range(2)])


def _routed(run: ScenarioRun, name: str = "p") -> dict[str, Any]:
    """A producer that sends each message to the partition which its property names."""
    return {
        "producer_name": name,
        "message_routing_mode": run.sdk.PartitionsRoutingMode.CustomPartition,
        "message_router": lambda message, _: int(message.properties()["to"]),
    }


def _counts(run: ScenarioRun, **options: Any) -> None:
    producer = run.producer(run.topic(partitions=3), **_routed(run), **options)
    run.record("before", producer.last_sequence_id())
    for to in (0, 0, 0, 1, 0, 2, 1):
        producer.send(b"x", properties={"to": str(to)})
        run.record(f"after one to {to}", producer.last_sequence_id())


@scenario(area=AREA, title="Each partition is counted for itself, and the last id is the highest of all")
def counted(run: ScenarioRun) -> None:
    _counts(run)


@scenario(area=AREA, title="Each partition is counted for itself, from an initial id on")
def counted_from(run: ScenarioRun) -> None:
    _counts(run, initial_sequence_id=40)


@scenario(area=AREA, title="Each partition is counted for itself, with batches")
def counted_in_batches(run: ScenarioRun) -> None:
    _counts(run, batching_enabled=True)


@scenario(area=AREA, title="The last id of a producer of one partition of several")
def counted_of_one(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2)
    producer = run.producer(f"{topic}-partition-1", producer_name="p")
    for _ in range(3):
        producer.send(b"x")
    run.record("last", producer.last_sequence_id())


@scenario(area=AREA, title="A name that comes back goes on in each partition behind what is stored there")
def resumed_partitions(run: ScenarioRun) -> None:
    topic = run.topic(namespace=_namespace(run), partitions=2)
    producer = run.producer(topic, **_routed(run))
    for to in (0, 0, 0, 0, 0, 1):
        producer.send(b"x", properties={"to": str(to)})
    run.record("last", producer.last_sequence_id())
    producer.close()
    again = run.producer(topic, **_routed(run))
    run.record("reopened", again.last_sequence_id())
    again.send(b"y", properties={"to": "1"})
    run.record("after one to 1", again.last_sequence_id())
    stored = [(n, _is_stored(again, "z", n, properties={"to": "1"})) for n in (1, 2, 3, 4, 5, 6)]
    run.record("stored in 1", stored)
    run.record("stored in 0", [_is_stored(again, "z", n, properties={"to": "0"}) for n in (4, 5, 6)])


@scenario(area=AREA, title="A message that repeats one that is under way is stored once")
def repeated_at_once(run: ScenarioRun) -> None:
    topic = run.topic(namespace=_namespace(run))
    producer = run.producer(topic, producer_name="p")
    results: list[str] = []
    for sequence in (7, 7, 6, 8, 8):
        producer.send_async(
            str(sequence).encode(),
            lambda result, _id: results.append(str(result).rpartition(".")[2]),
            sequence_id=sequence,
        )
    producer.flush()
    run.until(lambda: len(results) == 5, "five answers", PATIENCE_MS / 1000)
    run.record("results", results)
    run.record("last", producer.last_sequence_id())
    _everything(run, topic, 2)


@scenario(area=AREA, title="A running producer follows the policy of its namespace")
def switched_while_running(run: ScenarioRun) -> None:
    namespace = run.namespace()
    topic = run.topic(namespace=namespace)
    producer = run.producer(topic, producer_name="p")
    run.record("without", [_is_stored(producer, "x", sequence) for sequence in (10, 10)])
    run.admin.set_deduplication(namespace, enabled=True)
    # an id below those of before counts: nothing of before is known
    run.until(lambda: not _is_stored(producer, "on", 5), "the policy to be followed")
    run.record("with", [_is_stored(producer, "x", sequence) for sequence in (4, 5, 6)])
    producer.close()
    producer = run.producer(topic, producer_name="p")
    run.record("reopened", producer.last_sequence_id())
    run.admin.set_deduplication(namespace, enabled=False)
    run.until(lambda: _is_stored(producer, "off", 5), "the policy to be followed")
    run.record("without again", [_is_stored(producer, "x", sequence) for sequence in (5, 77)])
    producer.close()

    def reopened() -> Any:
        producer = run.producer(topic, producer_name="p")
        last = producer.last_sequence_id()
        producer.close()
        return last

    # Pulsar forgets the ids some time after it has begun to store what repeats them
    run.until(lambda: reopened() == -1, "the ids to be forgotten")
    run.record("reopened without", reopened())
    run.admin.set_deduplication(namespace, enabled=None)
    run.record("what is set", run.admin.deduplication(namespace))


@scenario(area=AREA, title="A topic's own policy counts before that of its namespace")
def topic_before_namespace(run: ScenarioRun) -> None:
    namespace = run.namespace()
    topic = run.topic(namespace=namespace)
    producer = run.producer(topic, producer_name="p")
    run.record("at first", [run.admin.deduplication(namespace), run.admin.deduplication(topic)])
    run.admin.set_deduplication(topic, enabled=True)
    run.until(lambda: not _is_stored(producer, "x", 1), "the topic's policy to be followed")
    run.admin.set_deduplication(namespace, enabled=False)
    run.record("set", [run.admin.deduplication(namespace), run.admin.deduplication(topic)])
    run.record("stored", _is_stored(producer, "x", 1))
    run.admin.set_deduplication(topic, enabled=False)
    run.admin.set_deduplication(namespace, enabled=True)
    run.until(lambda: _is_stored(producer, "x", 1), "the topic's policy to be followed")
    run.admin.set_deduplication(topic, enabled=None)
    run.until(lambda: not _is_stored(producer, "x", 1), "the namespace's policy to be followed")
    run.record("now", [run.admin.deduplication(namespace), run.admin.deduplication(topic)])


@scenario(area=AREA, title="Policies of what is not there")
def not_there(run: ScenarioRun) -> None:
    namespace = run.namespace(create=False)
    run.attempt("set, of no namespace", lambda: run.admin.set_deduplication(namespace, enabled=True))
    topic = run.topic()
    run.attempt("set, of no topic", lambda: run.admin.set_deduplication(topic, enabled=True))
    run.attempt("get, of no topic", lambda: run.admin.deduplication(topic))
