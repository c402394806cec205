"""Batch entries and batch_receive."""

from __future__ import annotations

from typing import Any

from tests.compat.harness.driver import ScenarioRun, numbers
from tests.compat.harness.scenario import scenario

AREA = "batching"
_COUNTED = ("data", "redelivery_count")


def _send_batch(run: ScenarioRun, topic: str, texts: list[str], **options: Any) -> list[Any]:
    """Send texts as one batch (the delay is long, `flush` ends it); gives the ids by the order of the answers."""
    given = {"batching_enabled": True, "batching_max_publish_delay_ms": 10_000, **options}
    producer = run.producer(topic, **given)
    ids: list[Any] = []
    for text in texts:
        producer.send_async(text.encode(), lambda _result, message_id: ids.append(message_id))
    producer.flush()
    run.until(lambda: len(ids) == len(texts), "all answers")
    producer.close()
    return ids


@scenario(area=AREA, title="Messages of a batch share the entry and count in it")
def ids(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    run.record("sent", _send_batch(run, topic, numbers(4)))
    messages = run.receive(consumer, 4)
    run.record_messages("received", messages)
    run.record("ids", [message.message_id() for message in messages])


@scenario(area=AREA, title="A batch ends at its number of messages")
def max_messages(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    _send_batch(run, topic, numbers(10), batching_max_messages=4)
    places = [
        (message.message_id().entry_id(), message.message_id().batch_index()) for message in run.receive(consumer, 10)
    ]
    run.record("entry and index", places)


@scenario(area=AREA, title="A batch ends at its bytes")
def max_bytes(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    _send_batch(run, topic, ["x" * 400] * 10, batching_max_allowed_size_in_bytes=1000)
    entries = {message.message_id().entry_id() for message in run.receive(consumer, 10)}
    run.record("more than one entry", len(entries) > 1)


@scenario(area=AREA, title="A batch ends after its delay")
def max_delay(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    producer = run.producer(topic, batching_enabled=True, batching_max_publish_delay_ms=50)
    producer.send_async(b"x", lambda _result, _id: None)
    run.record_messages("received", run.receive(consumer, 1))


@scenario(area=AREA, title="A single message of a batching producer")
def single(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    producer = run.producer(topic, batching_enabled=True)
    run.record("sent", producer.send(b"x"))
    run.record("received", run.receive(consumer, 1)[0].message_id())


@scenario(area=AREA, title="Properties, keys and event times in a batch")
def metadata(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    producer = run.producer(topic, batching_enabled=True, batching_max_publish_delay_ms=10_000)
    for number in range(3):
        producer.send_async(
            str(number).encode(), lambda _result, _id: None, properties={"n": str(number)}, partition_key=f"k{number}",
            event_timestamp=number + 1,
        )  # fmt: skip
    producer.flush()
    run.record_messages("received", run.receive(consumer, 3), "data", "properties", "partition_key", "event_timestamp")


@scenario(area=AREA, title="The key-based builder: a batch for each key")
def key_based(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    producer = run.producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=10_000, batching_type=run.sdk.BatchingType.KeyBased
    )
    for turn in range(3):
        for key in ("a", "b"):
            producer.send_async(f"{key}{turn}".encode(), lambda _result, _id: None, partition_key=key)
    producer.flush()
    keys: dict[int, list[str]] = {}
    for message in run.receive(consumer, 6):
        keys.setdefault(message.message_id().entry_id(), []).append(run.view(message))
    run.record("entries", sorted(keys.values()))


@scenario(area=AREA, title="Acknowledging a part of a batch: without index acks the whole batch comes again")
def partial_ack(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic, kind="Shared")
    _send_batch(run, topic, numbers(4))
    messages = run.receive(consumer, 4)
    consumer.acknowledge(messages[1])
    consumer.close()
    again = run.consumer(topic, kind="Shared")
    run.record_messages("again", run.rest(again))


@scenario(area=AREA, title="Acknowledging all of a batch, one after the other")
def full_ack(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic, kind="Shared")
    _send_batch(run, topic, numbers(3))
    run.receive_acked(consumer, 3)
    consumer.close()
    _send_batch(run, topic, ["next"])
    run.record_messages("received", run.rest(run.consumer(topic, kind="Shared")))


@scenario(area=AREA, title="With index acks only the rest of a batch comes again")
def index_ack(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic, kind="Shared", batch_index_ack_enabled=True)
    _send_batch(run, topic, numbers(5))
    messages = run.receive(consumer, 5)
    consumer.acknowledge(messages[1])
    consumer.acknowledge(messages[3])
    consumer.close()
    again = run.consumer(topic, kind="Shared", batch_index_ack_enabled=True)
    rest = run.receive(again, 3)
    run.record_messages("again", rest)
    run.record("ids", [message.message_id() for message in rest])
    run.record_messages("and then", run.rest(again))


@scenario(area=AREA, title="A cumulative acknowledgement inside a batch, with index acks")
def cumulative_inside(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic, batch_index_ack_enabled=True)
    _send_batch(run, topic, numbers(5))
    consumer.acknowledge_cumulative(run.receive(consumer, 5)[2])
    consumer.close()
    run.record_messages("again", run.receive(run.consumer(topic, batch_index_ack_enabled=True), 2))


@scenario(area=AREA, title="A cumulative acknowledgement at a batch's end")
def cumulative_at_end(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    _send_batch(run, topic, numbers(3))
    _send_batch(run, topic, ["next"])
    consumer.acknowledge_cumulative(run.receive(consumer, 4)[2])
    consumer.close()
    run.record_messages("again", run.receive(run.consumer(topic), 1))


@scenario(area=AREA, title="A negative acknowledgement of one message of a batch")
def negative(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic, kind="Shared", negative_ack_redelivery_delay_ms=200, batch_index_ack_enabled=True)
    _send_batch(run, topic, numbers(3))
    messages = run.receive(consumer, 3)
    consumer.acknowledge(messages[0])
    consumer.acknowledge(messages[2])
    run.until(lambda: run.admin.backlog(topic, "sub") <= 3, "the acknowledgements")
    consumer.negative_acknowledge(messages[1])
    run.record_set("again", run.rest(consumer, 1500), *_COUNTED)


@scenario(area=AREA, title="Seeking into a batch")
def seek_inside(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    found = _send_batch(run, topic, numbers(5))
    run.receive_acked(consumer, 5)
    consumer.seek(found[2])
    run.record_messages("received", run.receive(consumer, 2))


@scenario(area=AREA, title="A reader that starts inside a batch")
def reader_inside(run: ScenarioRun) -> None:
    topic = run.topic()
    found = _send_batch(run, topic, numbers(5))
    run.record_messages("after", run.read(run.reader(topic, found[1]), 3))
    run.record_messages("with", run.read(run.reader(topic, found[1], start_message_id_inclusive=True), 4))


@scenario(area=AREA, title="Sequence ids of a batch")
def sequence_ids(run: ScenarioRun) -> None:
    producer = run.producer(run.topic(), batching_enabled=True, batching_max_publish_delay_ms=10_000)
    for _ in range(5):
        producer.send_async(b"x", lambda _result, _id: None)
    producer.flush()
    run.record("last", producer.last_sequence_id())


@scenario(area=AREA, title="Batches are compressed as told")
def compressed(run: ScenarioRun) -> None:
    for name in ("LZ4", "ZLib", "ZSTD", "SNAPPY"):
        topic = run.topic(name)
        consumer = run.consumer(topic)
        _send_batch(run, topic, numbers(3), compression_type=getattr(run.sdk.CompressionType, name))
        run.record_messages(name, run.receive(consumer, 3))


@scenario(area=AREA, title="batch_receive ends at its number of messages")
def batch_receive_number(run: ScenarioRun) -> None:
    topic = run.topic()
    policy = run.sdk.ConsumerBatchReceivePolicy(3, -1, 5000)
    consumer = run.consumer(topic, batch_receive_policy=policy)
    run.send(topic, numbers(6))
    for _ in range(2):
        messages = consumer.batch_receive()
        run.record_messages("batch", messages)
        for message in messages:
            consumer.acknowledge(message)


@scenario(area=AREA, title="batch_receive ends after its time")
def batch_receive_time(run: ScenarioRun) -> None:
    topic = run.topic()
    policy = run.sdk.ConsumerBatchReceivePolicy(100, -1, 1000)
    consumer = run.consumer(topic, batch_receive_policy=policy)
    run.record_messages("nothing", consumer.batch_receive())
    run.send(topic, numbers(2))
    run.record_messages("something", consumer.batch_receive())


@scenario(area=AREA, title="Batch receive policies that make no sense")
def bad_policies(run: ScenarioRun) -> None:
    topic = run.topic()
    for limits in ((-1, -1, -1), (0, 0, 0), (-1, -1, 100)):

        def subscribe(limits: tuple[int, int, int] = limits) -> None:
            policy = run.sdk.ConsumerBatchReceivePolicy(*limits)
            run.consumer(topic, batch_receive_policy=policy).close()

        run.attempt(str(limits), subscribe)


@scenario(area=AREA, title="A batch payload taken apart: MessageBatch")
def message_batch(run: ScenarioRun) -> None:
    plain = b"\0\0\0\x02\x18\x01a"
    keyed = b"\0\0\0\x0f\x0a\x06\x0a\x01p\x12\x01v\x12\x01k\x18\x01\x28\x07b"
    null = b"\0\0\0\x04\x18\x00\x48\x01"
    batch = run.sdk.MessageBatch().with_message_id(run.sdk.MessageId(3, 10, 20, -1))
    for message in batch.parse_from(plain + keyed + null, 3):
        run.record("id", str(message.message_id()))
        run.record("content", [run.view(message), message.properties(), message.partition_key()])
        run.record("event time", message.event_timestamp())
        run.record("null", message.has_null_value())
    run.attempt("an id that is none", lambda: run.sdk.MessageBatch().with_message_id(5))
    run.attempt("a negative number", lambda: batch.parse_from(plain, -1))
