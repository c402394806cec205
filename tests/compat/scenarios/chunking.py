"""Messages above the limit of 5 MiB, sent in chunks."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from pulsar_on_kafka.base.clock import SystemClock
from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import scenario

AREA = "chunking"

_SOON: dict[str, Any] = {"negative_ack_redelivery_delay_ms": 100}
_TWO_CHUNKS, _THREE_CHUNKS, _FOUR_CHUNKS = 6_000_000, 11_000_000, 16_000_000


def _large(size: int) -> bytes:
    return bytes(number % 251 for number in range(1000)) * (size // 1000)


def _sizes(messages: list[Any]) -> list[int]:
    return [len(message.data()) for message in messages]


@scenario(area=AREA, title="Ten megabytes arrive whole")
def large(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    payload = _large(_THREE_CHUNKS)
    run.producer(topic, chunking_enabled=True).send(payload, properties={"a": "b"}, partition_key="k")
    message = run.receive(consumer, 1)[0]
    run.record("equal", message.data() == payload)
    run.record("metadata", run.view(message, "properties", "partition_key", "redelivery_count"))
    run.attempt("acknowledge", lambda: consumer.acknowledge(message))
    consumer.close()
    run.record_messages("again", run.rest(run.consumer(topic)))


@scenario(area=AREA, title="Small and large messages keep their order")
def order(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    producer = run.producer(topic, chunking_enabled=True)
    for size in (10_000, _TWO_CHUNKS, 20_000, 7_000_000):
        producer.send(_large(size))
    run.record("sizes", _sizes(run.receive(consumer, 4)))


@scenario(area=AREA, title="The id is the last chunk's and tells the first one's")
def ids(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    producer = run.producer(topic, chunking_enabled=True)
    small = producer.send(b"small")
    sent = producer.send(_large(_THREE_CHUNKS))
    _, message = run.receive(consumer, 2)
    for what, given in (
        ("sent", sent),
        ("received", message.message_id()),
        ("read back", run.sdk.MessageId.deserialize(sent.serialize())),
    ):
        texts = str(given).replace(str(small.ledger_id()), "ledger")
        run.record(what, [texts, given.entry_id(), given.partition(), given.batch_index(), given > small])
    run.record("bytes", message.message_id().serialize() == sent.serialize())
    run.record("bytes end in", sent.serialize()[-2:].hex())
    run.record("equal", sent == message.message_id())
    run.record("last sequence id", producer.last_sequence_id())


@scenario(area=AREA, title="The id on a partitioned topic")
def partitioned_ids(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2)
    consumer = run.consumer(topic)
    producer = run.producer(topic, chunking_enabled=True)
    for key in ("a", "b"):
        sent = producer.send(_large(_TWO_CHUNKS), partition_key=key)
        message = run.receive(consumer, 1)[0]
        run.record("id", [message.message_id() == sent, str(sent).count(";"), sent.partition() in (0, 1)])
        consumer.acknowledge(message)
    run.record("left", _sizes(run.rest(consumer)))


@scenario(area=AREA, title="A large message that was not acknowledged comes again")
def again(run: ScenarioRun) -> None:
    for kind in ("Exclusive", "Failover", "Shared", "KeyShared"):
        topic = run.topic(kind)
        consumer = run.consumer(topic, kind=kind)
        producer = run.producer(topic, chunking_enabled=True)
        for size in (_TWO_CHUNKS, 1000, 7_000_000):
            producer.send(_large(size), partition_key="k")
        messages = run.receive(consumer, 3)
        consumer.acknowledge(messages[1])
        consumer.close()
        run.until(lambda topic=topic: run.admin.backlog(topic, "sub") == 4, "the acknowledgement")  # type: ignore[misc]
        other = run.consumer(topic, kind=kind)
        run.record(kind, _sizes(run.receive_acked(other, 2)))
        other.close()
        run.until(lambda topic=topic: run.admin.backlog(topic, "sub") == 0, "no backlog")  # type: ignore[misc]
        run.record(f"{kind} then", _sizes(run.rest(run.consumer(topic, kind=kind))))


@scenario(area=AREA, title="A refused large message comes again whole")
def refused(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic, **_SOON)
    run.producer(topic, chunking_enabled=True).send(_large(_TWO_CHUNKS), partition_key="k")
    consumer.negative_acknowledge(run.receive(consumer, 1)[0])
    message = run.receive(consumer, 1)[0]
    run.record("again", [len(message.data()), run.view(message, "redelivery_count")])
    consumer.acknowledge(message)
    run.record("then", _sizes(run.rest(consumer)))


@scenario(area=AREA, title="A refused large message on Shared and Key_Shared")
def refused_shared(run: ScenarioRun) -> None:
    for kind in ("Shared", "KeyShared"):
        topic = run.topic(kind)
        consumer = run.consumer(topic, kind=kind, **_SOON)
        run.producer(topic, chunking_enabled=True).send(_large(_TWO_CHUNKS), partition_key="k")
        consumer.negative_acknowledge(run.receive(consumer, 1)[0])
        run.record(kind, [[len(each.data()), each.redelivery_count()] for each in run.rest(consumer, 4000)])


@scenario(area=AREA, title="redeliver_unacknowledged_messages")
def redelivered(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic, kind="Shared")
    run.producer(topic, chunking_enabled=True).send(_large(_TWO_CHUNKS))
    run.receive(consumer, 1)
    consumer.redeliver_unacknowledged_messages()
    run.record("again", _sizes(run.receive_acked(consumer, 1)))


@scenario(area=AREA, title="Acknowledged by an id that was serialized, and cumulatively")
def by_id(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    producer = run.producer(topic, chunking_enabled=True)
    for size in (_TWO_CHUNKS, 1000, 7_000_000, 2000):
        producer.send(_large(size))
    messages = run.receive(consumer, 4)
    consumer.acknowledge(run.sdk.MessageId.deserialize(messages[0].message_id().serialize()))
    run.until(lambda: run.admin.backlog(topic, "sub") == 4, "the acknowledgement of both chunks")
    consumer.acknowledge_cumulative(messages[2])
    run.until(lambda: run.admin.backlog(topic, "sub") == 1, "the cumulative acknowledgement")
    consumer.close()
    run.record("left", _sizes(run.rest(run.consumer(topic))))


@scenario(area=AREA, title="Seek to a large message")
def seek(run: ScenarioRun) -> None:
    topic = run.topic()
    for inclusive in (False, True):
        consumer = run.consumer(topic, f"inclusive {inclusive}", start_message_id_inclusive=inclusive)
        producer = run.producer(topic, chunking_enabled=True)
        sent = [producer.send(_large(size)) for size in (1000, _TWO_CHUNKS, 2000)]
        run.receive(consumer, 3)
        consumer.seek(sent[1])
        run.record(f"inclusive {inclusive}", _sizes(run.rest(consumer, 2000)))
        consumer.close()


@scenario(area=AREA, title="Seek to a time")
def seek_to_a_time(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    run.producer(topic, chunking_enabled=True).send(_large(_TWO_CHUNKS))
    message = run.receive(consumer, 1)[0]
    consumer.acknowledge(message)
    consumer.seek(message.publish_timestamp())
    run.record("sizes", _sizes(run.receive(consumer, 1)))


@scenario(area=AREA, title="Readers")
def readers(run: ScenarioRun) -> None:
    topic = run.topic()
    producer = run.producer(topic, chunking_enabled=True)
    sent = [producer.send(_large(size)) for size in (1000, _TWO_CHUNKS, 2000, 7_000_000)]
    for inclusive in (False, True):
        reader = run.reader(topic, sent[1], start_message_id_inclusive=inclusive)
        found = []
        while reader.has_message_available():
            found.append(run.read(reader, 1)[0])
        run.record(f"inclusive {inclusive}", _sizes(found))
        reader.close()
    reader = run.reader(topic, run.sdk.MessageId.earliest)
    run.record("all", _sizes(run.read(reader, 4)))
    reader.seek(sent[2])
    run.record("behind", _sizes(run.read(reader, 1)))


@scenario(area=AREA, title="A table view")
def table_view(run: ScenarioRun) -> None:
    topic = run.topic()
    producer = run.producer(topic, chunking_enabled=True)
    producer.send(b"old", partition_key="k")
    producer.send(_large(_TWO_CHUNKS), partition_key="k")
    view = run.shared_client.create_table_view(topic)
    run.record("size", len(view.get("k")))


@scenario(area=AREA, title="Two producers at the same time")
def at_the_same_time(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic, kind="Shared")
    producers = [run.producer(topic, chunking_enabled=True) for _ in range(2)]

    def send(producer: Any, first: int) -> None:
        for number in range(3):
            producer.send(_large(_THREE_CHUNKS + 1000 * (first + number)))

    threads = [threading.Thread(target=send, args=(each, 10 * i)) for i, each in enumerate(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.record("sizes", sorted(_sizes(run.receive_acked(consumer, 6))))
    run.record("left", _sizes(run.rest(consumer)))


@scenario(area=AREA, title="Each chunk takes a place in the producer's queue")
def full_queue(run: ScenarioRun) -> None:
    topic = run.topic()
    producer = run.producer(topic, chunking_enabled=True, max_pending_messages=2)
    run.attempt("four chunks", lambda: producer.send(_large(_FOUR_CHUNKS)))
    other = run.producer(topic, chunking_enabled=True, max_pending_messages=4)
    run.attempt("with room", lambda: other.send(_large(_FOUR_CHUNKS)))
    run.attempt("and again", lambda: other.send(_large(_FOUR_CHUNKS)))


@scenario(area=AREA, title="Asynchronous sends are answered once, in order")
def answers(run: ScenarioRun) -> None:
    topic = run.topic()
    producer = run.producer(topic, chunking_enabled=True)
    results: list[Any] = []
    for size in (1000, _THREE_CHUNKS, 2000):
        producer.send_async(_large(size), lambda result, given: results.append([str(result), given.entry_id()]))
    producer.flush()
    run.until(lambda: len(results) == 3, "the answers")
    run.record("answers", results)


@scenario(area=AREA, title="Options of producers and consumers")
def options(run: ScenarioRun) -> None:
    run.attempt("both", lambda: run.producer(run.topic(), chunking_enabled=True, batching_enabled=True))
    for most in (-1, 0, 1):
        run.attempt(f"most {most}", lambda most=most: run.consumer(  # type: ignore[misc]
            run.topic(f"most{most}"), max_pending_chunked_message=most))  # fmt: skip
    for flag in (True, 1):
        run.attempt(f"flag {flag}", lambda flag=flag: run.consumer(  # type: ignore[misc]
            run.topic("flag"), f"s{flag}", auto_ack_oldest_chunked_message_on_queue_full=flag))  # fmt: skip
    run.attempt("a word", lambda: run.consumer(run.topic("word"), max_pending_chunked_message="x"))


@scenario(area=AREA, title="Properties above the limit")
def properties(run: ScenarioRun) -> None:
    producer = run.producer(run.topic(), chunking_enabled=True)
    huge = {"p": "x" * 5_300_000}
    run.attempt("with a large message", lambda: producer.send(_large(_TWO_CHUNKS), properties=huge))
    sent = producer.send(_large(_TWO_CHUNKS), properties={"p": "x" * 4_000_000})
    run.record("chunks", sent.entry_id() + 1)  # each carries them


@scenario(area=AREA, title="Delivered later")
def delayed(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic, kind="Shared")
    producer = run.producer(topic, chunking_enabled=True)
    due_ms = SystemClock().now_ms() + 6000
    producer.send(_large(_TWO_CHUNKS), deliver_at=due_ms)
    producer.send(b"now")
    messages = run.receive_acked(consumer, 2)
    # Pulsar's delays have ticks of a second; the chunks' way to a busy broker may take longer than the delay.
    run.record("not before its time", run.is_after(due_ms - 2000))
    run.record("sizes", sorted(_sizes(messages)))


@scenario(area=AREA, title="With a schema, asyncio")
def asyncio_surface(run: ScenarioRun) -> None:
    topic = run.topic()
    schema = run.submodule("schema").StringSchema()
    text = "äöü" * 1_000_000

    async def play() -> None:
        client = run.asyncio.Client(run.service_url, operation_timeout_seconds=20)
        try:
            consumer = await client.subscribe(topic, "sub", schema=schema, max_pending_chunked_message=2)
            producer = await client.create_producer(topic, schema=schema, batching_enabled=False, chunking_enabled=True)
            await producer.send(text)
            message = await consumer.receive()
            run.record("equal", message.value() == text)
            await consumer.acknowledge(message)
        finally:
            client.shutdown()

    asyncio.run(play())
