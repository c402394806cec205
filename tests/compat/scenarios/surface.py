"""Calls of the official surface that no other area is about: addresses, states, comparing, ids that are foreign."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from tests.compat.harness.driver import ScenarioRun, numbers
from tests.compat.harness.scenario import scenario

AREA = "surface"
IDS = "foreign ids"
VIEW = "table view"


@scenario(area=AREA, title="get_service_info, and ServiceInfo by itself")
def service_info(run: ScenarioRun) -> None:
    info = run.shared_client.get_service_info()
    # The file of authorities is the machine's: certifi's for one, the system's for the other.
    run.record("of the client", [info.service_url == run.service_url, info.use_tls])
    scheme = run.service_url.partition("://")[0]
    made = run.sdk.ServiceInfo(f"{scheme}://a:1")
    run.record("made", [made.service_url.partition("://")[2], made.use_tls, made.tls_trust_certs_file_path])
    run.attempt("of a number", lambda: run.sdk.ServiceInfo(5))


@scenario(area=AREA, title="is_connected of producers, consumers and readers")
def is_connected(run: ScenarioRun) -> None:
    topic = run.topic()
    opened = (run.producer(topic), run.consumer(topic), run.reader(topic, run.sdk.MessageId.latest))
    run.record("open", [one.is_connected() for one in opened])
    for one in opened:
        one.close()
    run.record("closed", [one.is_connected() for one in opened])


@scenario(area=AREA, title="An address with several hosts")
def several_hosts(run: ScenarioRun) -> None:
    scheme, _, address = run.service_url.partition("://")
    client = run.client_at(f"{scheme}://{address},{address}")
    topic = run.topic()
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"x")
    run.record_messages("received", run.receive(consumer, 1))


@scenario(area=AREA, title="The replication flag of a subscription")
def replicate_flag(run: ScenarioRun) -> None:
    topic = run.topic()
    run.consumer(topic, "replicated", replicate_subscription_state_enabled=True)
    run.consumer(topic, "plain")
    run.record("replicated", [run.admin.is_replicated(topic, name) for name in ("replicated", "plain")])


@scenario(area=AREA, title="A queue over all partitions that is smaller than their number")
def small_total_queue(run: ScenarioRun) -> None:
    consumer = run.subscribed(
        numbers(40),
        kind="Shared",
        max_total_receiver_queue_size_across_partitions=2,
        partitions=4,
    ).consumer
    run.record_set("received", run.receive_acked(consumer, 40))


@scenario(area=AREA, title="A listener that is paused before anything comes")
def paused_from_the_start(run: ScenarioRun) -> None:
    topic = run.topic()
    heard: list[str] = []
    come = threading.Event()

    def listen(consumer: Any, message: Any) -> None:
        consumer.acknowledge(message)
        heard.append(run.view(message))
        come.set()

    consumer = run.consumer(topic, message_listener=listen)
    consumer.pause_message_listener()
    run.send(topic, ["a", "b"])
    run.record("heard while paused", come.wait(1.0))
    consumer.resume_message_listener()
    run.until(lambda: len(heard) == 2, "both messages")
    run.record("heard", heard)


@scenario(area=AREA, title="Pausing and resuming without a listener")
def pause_without_listener(run: ScenarioRun) -> None:
    consumer = run.consumer(run.topic())
    run.attempt("pause", consumer.pause_message_listener)
    run.attempt("resume", consumer.resume_message_listener)


@scenario(area=AREA, title="Flushing without messages, twice, and after close")
def flushing(run: ScenarioRun) -> None:
    producer = run.producer(run.topic())
    run.attempt("flush of nothing", producer.flush)
    producer.send(b"x")
    run.attempt("flush", producer.flush)
    producer.close()
    run.attempt("flush after close", producer.flush)


@scenario(area=AREA, title="Results of send_async after close")
def async_after_close(run: ScenarioRun) -> None:
    producer = run.producer(run.topic())
    producer.close()
    answers: list[Any] = []
    run.attempt("send_async", lambda: producer.send_async(b"x", lambda result, _id: answers.append(result)))
    run.until(lambda: answers, "the answer")
    run.record("answers", answers)


@scenario(area=AREA, title="A reader starts by time: sought before it reads")
def reader_by_time(run: ScenarioRun) -> None:
    topic = run.topic()
    run.send(topic, ["before"])
    consumer = run.consumer(topic, initial_position=run.sdk.InitialPosition.Earliest)
    old = run.receive(consumer, 1)[0].publish_timestamp()
    threading.Event().wait(0.05)
    run.send(topic, ["after", "and later"])
    reader = run.reader(topic, run.sdk.MessageId.latest)
    reader.seek(old + 20)
    run.record("available", reader.has_message_available())
    run.record_messages("read", run.read(reader, 2))
    run.record("left", reader.has_message_available())


@scenario(area=AREA, title="A reader reads on in what is sent while it reads")
def reader_follows(run: ScenarioRun) -> None:
    topic = run.topic()
    reader = run.reader(topic, run.sdk.MessageId.latest)
    producer = run.producer(topic)
    for number in range(5):
        producer.send(str(number).encode())
        run.record_messages("read", run.read(reader, 1))


@scenario(area=AREA, title="get_last_message_id of an empty, a filled and a partitioned topic")
def last_ids(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    run.attempt("empty", consumer.get_last_message_id)
    sent = run.send(topic, ["a", "b"])
    last = consumer.get_last_message_id()
    run.record("the last one", [last.ledger_id() == sent[-1].ledger_id(), last.entry_id() == sent[-1].entry_id()])
    run.receive_acked(consumer, 2)
    again = consumer.get_last_message_id()
    run.record("after acknowledging", [again.ledger_id() == last.ledger_id(), again.entry_id() == last.entry_id()])


@scenario(area=AREA, title="Messages that are equal, ids in sets")
def comparing_ids(run: ScenarioRun) -> None:
    _, consumer, sent = run.subscribed(["a", "b"])
    received = [message.message_id() for message in run.receive(consumer, 2)]
    run.record("equal", [sent[0] == received[0], sent[0] == received[1], sent[0] < received[1]])
    copies = [run.sdk.MessageId.deserialize(found.serialize()) for found in received]
    run.record("copies", [copies[0] == received[0], copies[1] > copies[0]])


@scenario(area=AREA, title="A schema's value, and a null value")
def values(run: ScenarioRun) -> None:
    topic = run.topic()
    text = run.sdk.schema.StringSchema()
    consumer = run.consumer(topic, schema=text)
    producer = run.producer(topic, schema=text)
    producer.send("ä")
    producer.send("")
    messages = run.receive(consumer, 2)
    run.record("values", [message.value() for message in messages])
    run.record("null", [message.has_null_value() for message in messages])


@scenario(area=AREA, title="Two clients see each other's messages and subscriptions")
def two_clients(run: ScenarioRun) -> None:
    topic = run.topic()
    one, other = run.client(), run.client()
    consumer = one.subscribe(topic, "s", run.sdk.ConsumerType.Shared)
    producer = other.create_producer(topic)
    for number in range(3):
        producer.send(str(number).encode())
    run.record_messages("received", run.receive_acked(consumer, 3))
    one.close()
    producer.send(b"3")
    run.record_messages("the next one", run.receive(other.subscribe(topic, "s", run.sdk.ConsumerType.Shared), 1))


@scenario(area=AREA, title="Unsubscribing, twice and after close")
def unsubscribing(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    run.attempt("unsubscribe", consumer.unsubscribe)
    run.attempt("again", consumer.unsubscribe)
    closed = run.consumer(topic)
    closed.close()
    run.attempt("after close", closed.unsubscribe)


@scenario(area=IDS, title="Acknowledging an id that is past the end")
def beyond_the_end(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(["a"])
    known = run.receive(consumer, 1)[0].message_id()
    made = run.sdk.MessageId(known.partition(), known.ledger_id(), known.entry_id() + 1000, -1)
    run.attempt("acknowledge", lambda: consumer.acknowledge(made))
    run.send(topic, ["b"])
    run.record_messages("received", run.receive(consumer, 1))


@scenario(area=IDS, title="Acknowledging and refusing what is gone already")
def gone(run: ScenarioRun) -> None:
    consumer = run.subscribed(["a", "b"], kind="Shared", negative_ack_redelivery_delay_ms=200).consumer
    first, second = run.receive_acked(consumer, 2)
    run.attempt("acknowledge", lambda: consumer.acknowledge(first))
    run.attempt("refuse", lambda: consumer.negative_acknowledge(second))
    run.record_messages("again", run.rest(consumer, 1500))


@scenario(area=IDS, title="Ids of an earlier consumer of the subscription")
def of_an_earlier_consumer(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(["a", "b"], kind="Shared")
    first, _ = run.receive(consumer, 2)
    consumer.close()
    consumer = run.consumer(topic, kind="Shared")
    run.receive(consumer, 2)
    run.attempt("acknowledge", lambda: consumer.acknowledge(first))
    consumer.close()
    run.record_messages("the next consumer", run.rest(run.consumer(topic, kind="Shared")))


@scenario(area=IDS, title="The ends of a topic are no messages")
def ends(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(["a"], kind="Shared")
    run.receive(consumer, 1)
    for name in ("earliest", "latest"):
        with suppress(run.sdk.InvalidMessage):  # ours says so; what is compared is that it changes nothing
            consumer.negative_acknowledge(getattr(run.sdk.MessageId, name))
    consumer.close()
    run.record_messages("the next consumer", run.rest(run.consumer(topic, kind="Shared")))


@scenario(area=IDS, title="Bytes of an id with and without the topic's name")
def bytes_with_topic(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2)
    consumer = run.consumer(topic, kind="Shared")
    run.send_partition_by_partition(topic, {0: ["a"], 1: ["b"]})
    messages = run.receive(consumer, 2)
    for message in messages:
        data = message.message_id().serialize()
        consumer.acknowledge(run.sdk.MessageId.deserialize(data, message.topic_name()))
    consumer.close()
    run.record_messages("the next consumer", run.rest(run.consumer(topic, kind="Shared")))


@scenario(area=VIEW, title="What a table view answers of keys that are there and are not")
def view_questions(run: ScenarioRun) -> None:
    topic = run.topic()
    producer = run.producer(topic)
    producer.send(b"1", partition_key="a")
    producer.send(b"no key")
    view = run.shared_client.create_table_view(topic)
    run.record("get", [view.get("a"), view.get(""), view.get("b")])
    run.record("size", len(view))
    run.attempt("get of a number", lambda: view.get(5))
    view.close()
    run.attempt("closed twice", view.close)


@scenario(area=VIEW, title="A table view of an empty topic, and of names that are none")
def view_of_nothing(run: ScenarioRun) -> None:
    view = run.shared_client.create_table_view(run.topic())
    run.record("size", len(view))
    run.attempt("no topic", lambda: run.shared_client.create_table_view("a/b"))
    run.attempt("a number", lambda: run.shared_client.create_table_view(5))


@scenario(area=VIEW, title="Table views leave no subscription behind, and each has its own")
def views_are_apart(run: ScenarioRun) -> None:
    topic = run.topic()
    run.producer(topic).send(b"1", partition_key="a")
    one, other = (run.shared_client.create_table_view(topic) for _ in range(2))
    run.record("both", [one.get("a"), other.get("a")])
    one.close()
    other.close()
    run.until(lambda: not run.admin.list_subscriptions(topic), "no subscription")
    run.record("subscriptions", run.admin.list_subscriptions(topic))


@scenario(area=IDS, title="An id of another topic changes nothing")
def of_another_topic(run: ScenarioRun) -> None:
    one, other = run.topic("one"), run.topic("other")
    consumers = [run.consumer(topic, kind="Shared") for topic in (one, other)]
    for topic in (one, other):
        run.send(topic, ["x"])
    messages = [run.receive(consumer, 1)[0] for consumer in consumers]
    with suppress(run.sdk.InvalidMessage):  # ours says so; what is compared is that it changes nothing
        consumers[0].acknowledge(messages[1])
    for consumer, topic in zip(consumers, (one, other), strict=True):
        consumer.close()
        run.record_messages("the next consumer", run.rest(run.consumer(topic, kind="Shared")))


@scenario(area=IDS, title="Acknowledging cumulatively what is gone already")
def cumulative_gone(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(["a", "b", "c"])
    messages = run.receive(consumer, 3)
    consumer.acknowledge_cumulative(messages[1])
    run.until(lambda: run.admin.backlog(topic, "sub") == 1, "the acknowledgement")
    run.attempt("again", lambda: consumer.acknowledge_cumulative(messages[1]))
    run.attempt("one before", lambda: consumer.acknowledge(messages[0]))
    consumer.close()
    run.record_messages("the next consumer", run.rest(run.consumer(topic)))


def _held_batch(run: ScenarioRun, topic: str) -> tuple[Any, list[Any]]:
    """A consumer with index acks, and the ids of the batch of three that it holds."""
    consumer = run.consumer(topic, kind="Shared", batch_index_ack_enabled=True)
    producer = run.producer(topic, batching_enabled=True, batching_max_publish_delay_ms=10_000)
    for text in ("a", "b", "c"):
        producer.send_async(text.encode(), None)
    producer.flush()
    return consumer, [message.message_id() for message in run.receive(consumer, 3)]


@scenario(area=IDS, title="An id of a batch, acknowledged twice")
def of_a_batch(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer, ids = _held_batch(run, topic)
    for _ in range(2):
        run.attempt("acknowledge", lambda: consumer.acknowledge(ids[0]))
    consumer.close()
    again = run.consumer(topic, kind="Shared", batch_index_ack_enabled=True)
    run.record_messages("the next consumer", run.rest(again))


@scenario(area=IDS, title="An id of a batch that was serialized")
def serialized_of_a_batch(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer, ids = _held_batch(run, topic)
    copy = run.sdk.MessageId.deserialize(ids[2].serialize())
    run.attempt("acknowledge", lambda: consumer.acknowledge(copy))
    consumer.close()
    again = run.consumer(topic, kind="Shared", batch_index_ack_enabled=True)
    run.record_messages("the next consumer", run.rest(again))
