"""Non-persistent topics."""

from __future__ import annotations

import re

from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import scenario

AREA = "non-persistent"


@scenario(area=AREA, title="Who is there gets the messages")
def present(run: ScenarioRun) -> None:
    topic = run.topic(persistent=False)
    consumers = [run.consumer(topic, name, kind="Shared") for name in ("one", "other")]
    producer = run.producer(topic)
    run.record("topic", producer.topic())
    for number in range(3):
        producer.send(str(number).encode())
    for consumer in consumers:
        run.record_messages("received", run.receive_acked(consumer, 3))


@scenario(area=AREA, title="Nothing is kept for those who come later")
def absent(run: ScenarioRun) -> None:
    topic = run.topic(persistent=False)
    run.send(topic, ["lost"])
    consumer = run.consumer(topic, initial_position=run.sdk.InitialPosition.Earliest)
    run.send(topic, ["seen"])
    run.record_messages("received", run.receive(consumer, 1))
    run.record_messages("and then", run.rest(consumer))


@scenario(area=AREA, title="A non-persistent and a persistent topic of one name are two topics")
def same_name_as_persistent(run: ScenarioRun) -> None:
    persistent = run.topic("same")
    other = persistent.replace("persistent://", "non-persistent://")
    one, two = run.consumer(persistent), run.consumer(other)
    run.send(persistent, ["persistent"])
    run.send(other, ["non-persistent"])
    run.record_messages("persistent", run.receive(one, 1))
    run.record_messages("non-persistent", run.receive(two, 1))


@scenario(area=AREA, title="Nothing is kept while nobody is there, and no subscription either")
def away(run: ScenarioRun) -> None:
    topic = run.topic(persistent=False)
    consumer = run.consumer(topic)
    run.send(topic, ["1"])
    run.record_messages("received", run.receive(consumer, 1))
    run.record("subscriptions", run.admin.list_subscriptions(topic))
    consumer.close()
    run.until(lambda: not run.admin.list_subscriptions(topic), "the subscription to be gone")
    run.send(topic, ["2"])
    consumer = run.consumer(topic, initial_position=run.sdk.InitialPosition.Earliest)
    run.send(topic, ["3"])
    run.record_messages("after it came back", run.receive(consumer, 1))
    run.record_messages("and then", run.rest(consumer))


@scenario(area=AREA, title="Nothing comes again: negative acknowledgements, redelivery, seek")
def not_again(run: ScenarioRun) -> None:
    for kind in ("Exclusive", "Shared"):
        topic = run.topic(kind, persistent=False)
        consumer = run.consumer(topic, kind=kind, negative_ack_redelivery_delay_ms=100)
        run.send(topic, ["1", "2"])
        messages = run.receive(consumer, 2)
        run.record_messages("received", messages)
        consumer.negative_acknowledge(messages[0])
        consumer.redeliver_unacknowledged_messages()
        run.record_messages("refused", run.rest(consumer))
        run.attempt("acknowledge", lambda c=consumer, m=messages: c.acknowledge(m[1]))  # type: ignore[misc]
        run.attempt("seek", lambda c=consumer: c.seek(run.sdk.MessageId.earliest))  # type: ignore[misc]
        run.record_messages("sought", run.rest(consumer))
        run.send(topic, ["3"])
        run.record_messages("later", run.receive(consumer, 1))


@scenario(area=AREA, title="What needs a log is refused")
def needs_a_log(run: ScenarioRun) -> None:
    topic = run.topic(persistent=False)
    consumer = run.consumer(topic)
    run.attempt("last id", consumer.get_last_message_id)
    reader = run.reader(topic, run.sdk.MessageId.earliest)
    run.attempt("has a message", reader.has_message_available)
    run.attempt("seek of a reader", lambda: reader.seek(run.sdk.MessageId.earliest))
    run.attempt("table view", lambda: run.shared_client.create_table_view(topic))
    run.attempt("compacted", lambda: run.consumer(topic, "other", is_read_compacted=True))
    run.attempt("admin subscription", lambda: run.admin.create_subscription(topic, "other"))


@scenario(area=AREA, title="Exclusive consumers, and several subscriptions")
def subscriptions(run: ScenarioRun) -> None:
    topic = run.topic(persistent=False)
    one = run.consumer(topic, "one")
    run.attempt("second exclusive", lambda: run.consumer(topic, "one"))
    run.attempt("shared", lambda: run.consumer(topic, "one", kind="Shared"))
    other = run.consumer(topic, "other", kind="Failover")
    run.send(topic, ["x"])
    for consumer in (one, other):
        run.record_messages("received", run.receive(consumer, 1))
    run.attempt("unsubscribe", other.unsubscribe)
    run.until(lambda: run.admin.list_subscriptions(topic) == ["one"], "one subscription to be left")


@scenario(area=AREA, title="A reader gets what is sent while it is there, wherever it wants to begin")
def reader(run: ScenarioRun) -> None:
    topic = run.topic(persistent=False)
    run.send(topic, ["before"])
    for start in ("earliest", "latest"):
        opened = run.reader(topic, getattr(run.sdk.MessageId, start))
        run.send(topic, [start])
        run.record_messages("read", run.read(opened, 1))
        opened.close()


@scenario(area=AREA, title="Partitions, batches, and delays that are none")
def forms(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2, persistent=False)
    run.record("partitions", run.shared_client.get_topic_partitions(topic))
    consumer = run.consumer(topic, kind="Shared")
    run.send(topic, ["1", "2", "3", "4"])
    run.record_set("received", run.receive(consumer, 4))
    producer = run.producer(topic, batching_enabled=True)
    for number in range(3):
        producer.send_async(str(number).encode(), lambda _result, _id: None, deliver_at=2**42)
    producer.flush()
    run.record_set("batched and delayed", run.receive(consumer, 3))


@scenario(area=AREA, title="Patterns choose between persistent and non-persistent topics")
def patterns(run: ScenarioRun) -> None:
    topics = [run.topic("a"), run.topic("a", persistent=False)]
    for topic in topics:
        run.producer(topic)
    expression = re.compile(re.escape(topics[0]))
    for mode in ("PersistentOnly", "NonPersistentOnly", "AllTopics"):
        chosen = getattr(run.sdk.RegexSubscriptionMode, mode)
        consumer = run.consumer(expression, mode, kind="Shared", regex_subscription_mode=chosen)
        for topic in topics:
            run.send(topic, [topic.partition(":")[0]])
        run.record_set(mode, run.receive(consumer, 2 if mode == "AllTopics" else 1))
        run.record_messages("and then", run.rest(consumer))
        consumer.close()
