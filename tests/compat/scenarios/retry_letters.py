"""Retry letters: `reconsumeLater` of the Java client, `reconsume_later` of ours. The Python client has none."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.compat.harness.driver import PATIENCE_MS, ScenarioRun
from tests.compat.harness.scenario import PulsarClient, scenario

AREA = "retry letters"
BY_JAVA: dict[str, Any] = {"area": AREA, "client": PulsarClient.JAVA}
ORIGINS = ("ORIGIN_MESSAGE_ID", "ORIGIN_MESSAGE_IDY_TIME")


def _subscribe(run: ScenarioRun, topic: Any, most: int | None = None, subscription: str = "sub", **options: Any) -> Any:
    policy = None if most is None else run.sdk.ConsumerDeadLetterPolicy(max_redeliver_count=most)
    given = {"kind": "Shared", "retry_enable": True, "dead_letter_policy": policy, **options}
    return run.consumer(topic, subscription, **given)


def _properties(message: Any) -> dict[str, str]:
    """Without ids, whose ledgers are any number; `_origin` looks at those."""
    return {name: value for name, value in message.properties().items() if name not in ORIGINS}


def _refused(run: ScenarioRun, what: str, call: Callable[[], None]) -> None:
    """Java's client throws the base of its exceptions for these, ours a class of its own under the same base: what is
    compared is that they are refused."""
    try:
        call()
    except run.sdk.PulsarException:
        run.record(what, "refused")
    else:
        run.record(what, "works")


def _origin(message: Any, sent: Any) -> list[Any]:
    """How the two properties of the origin are written, and whether they name it."""
    found = []
    for name in ORIGINS:
        text = message.properties().get(name, "")
        numbers = [int(number) for number in re.findall(r"-?\d+", text)]
        found.append([re.sub(r"-?\d+", "n", text), numbers[:2] == [sent.ledger_id(), sent.entry_id()]])
    return found


@scenario(**BY_JAVA, title="A letter comes from the retry topic, with everything of its message")
def comes_again(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = _subscribe(run, topic)
    producer = run.producer(topic)
    producer.send(b"x", properties={"a": "1"}, partition_key="k", ordering_key="o", event_timestamp=7)
    first = run.receive(consumer, 1)[0]
    consumer.reconsume_later(first, 300)
    letter = run.receive(consumer, 1)[0]
    run.record("letter", run.view(letter, "data", "partition_key", "topic_name", "redelivery_count"))
    run.record("properties", _properties(letter))


@scenario(**BY_JAVA, title="Ordering key and event time of a letter")
def ordering_key(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = _subscribe(run, topic)
    run.producer(topic).send(b"x", partition_key="k", ordering_key="o", event_timestamp=7)
    consumer.reconsume_later(run.receive(consumer, 1)[0], 0)
    run.record("letter", run.view(run.receive(consumer, 1)[0], "ordering_key", "event_timestamp"))


@scenario(**BY_JAVA, title="The origin of a letter is its first message, however often it is put off")
def origin(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = _subscribe(run, topic)
    run.send(topic, ["x"])
    message = run.receive(consumer, 1)[0]
    sent = message.message_id()
    for _ in range(3):
        consumer.reconsume_later(message, 0)
        message = run.receive(consumer, 1)[0]
        run.record("origin", _origin(message, sent))
        run.record("times", message.properties()["RECONSUMETIMES"])


@scenario(**BY_JAVA, title="The origin of messages of a batch, and of partitions")
def origin_of_many(run: ScenarioRun) -> None:
    batched, split = run.topic("batched"), run.topic("split", partitions=2)
    producer = run.producer(batched, batching_enabled=True, batching_max_publish_delay_ms=10_000)
    consumer = _subscribe(run, batched)
    for text in ("a", "b"):
        producer.send_async(text.encode(), None)
    producer.flush()
    _record_origins(run, "of a batch", consumer, 2)
    consumer = _subscribe(run, split)
    run.send_partition_by_partition(split, {0: ["0"], 1: ["1"]})
    _record_origins(run, "of partitions", consumer, 2)


def _record_origins(run: ScenarioRun, what: str, consumer: Any, count: int) -> None:
    messages = {run.view(message): message for message in run.receive(consumer, count)}
    for message in messages.values():
        consumer.reconsume_later(message, 0)
    letters = sorted(run.receive(consumer, count), key=run.view)
    run.record(what, [_origin(letter, messages[run.view(letter)].message_id()) for letter in letters])
    run.record("last numbers", [letter.properties()["ORIGIN_MESSAGE_ID"].split(":")[2:] for letter in letters])


@scenario(**BY_JAVA, title="What dead letters say of their origin, after retries and after refusals")
def origin_of_the_dead(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2)
    dead = run.consumer(f"{topic}-sub-DLQ", "undertaker")
    consumer = _subscribe(run, topic, most=1, negative_ack_redelivery_delay_ms=300)
    for how in ("put off", "refused"):
        sent = run.producer(f"{topic}-partition-1").send(b"x", event_timestamp=7, properties={"a": "1"})
        for _ in range(2):
            message = run.receive(consumer, 1)[0]
            if how == "put off":
                consumer.reconsume_later(message, 0)
            else:
                consumer.negative_acknowledge(message)
        letter = run.receive_acked(dead, 1)[0]
        run.record(how, [_origin(letter, sent), letter.event_timestamp()])
        run.record("properties", _properties(letter))


@scenario(**BY_JAVA, title="Before its delay a letter does not come")
def delay(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = _subscribe(run, topic)
    run.send(topic, ["x"])
    consumer.reconsume_later(run.receive(consumer, 1)[0], 4000)
    run.record_messages("at once", run.rest(consumer, 1500))
    run.record_messages("in time", run.receive(consumer, 1))


@scenario(**BY_JAVA, title="Properties given with the call are on the letter")
def own_properties(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = _subscribe(run, topic)
    run.producer(topic).send(b"x", properties={"a": "message's", "b": "message's"})
    message = run.receive(consumer, 1)[0]
    consumer.reconsume_later(message, 0, {"b": "call's", "c": "call's"})
    message = run.receive(consumer, 1)[0]
    run.record("first", _properties(message))
    consumer.reconsume_later(message, 0, {"c": "second call's"})
    run.record("second", _properties(run.receive(consumer, 1)[0]))


@scenario(**BY_JAVA, title="After the retries that are allowed the message lies in the dead letter topic")
def dead_letter(run: ScenarioRun) -> None:
    topic = run.topic()
    dead = run.consumer(f"{topic}-sub-DLQ", "undertaker")
    consumer = _subscribe(run, topic, most=2)
    run.producer(topic).send(b"x", properties={"a": "1"}, partition_key="k")
    for _ in range(3):
        message = run.receive(consumer, 1)[0]
        run.record("delivered", [message.properties().get("RECONSUMETIMES"), message.topic_name()])
        consumer.reconsume_later(message, 0)
    letter = run.receive(dead, 1)[0]
    run.record("dead", run.view(letter, "data", "partition_key"))
    run.record("names of properties", set(letter.properties()))
    run.record("properties", _properties(letter))
    run.record_messages("again", run.rest(consumer))


@scenario(**BY_JAVA, title="A dead letter topic of one's own, with an initial subscription")
def own_dead_letter_topic(run: ScenarioRun) -> None:
    topic, letters = run.topic(), run.topic("letters")
    policy = run.sdk.ConsumerDeadLetterPolicy(
        max_redeliver_count=1, dead_letter_topic=letters, initial_subscription_name="kept"
    )
    consumer = run.consumer(topic, kind="Shared", retry_enable=True, dead_letter_policy=policy)
    run.send(topic, ["x"])
    for _ in range(2):
        consumer.reconsume_later(run.receive(consumer, 1)[0], 0)
    run.record_messages("again", run.rest(consumer))
    run.record_messages("dead", run.receive(run.consumer(letters, "kept"), 1))


@scenario(**BY_JAVA, title="What was put off is acknowledged, and its letter is not")
def acknowledged(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = _subscribe(run, topic)
    run.send(topic, ["x", "y"])
    x, y = run.receive(consumer, 2)
    consumer.reconsume_later(x, 0)
    consumer.acknowledge(y)
    run.receive(consumer, 1)
    consumer.close()
    run.until(lambda: run.admin.backlog(topic, "sub") == 0, "the backlog of the topic to go")
    run.record("backlog of the topic", run.admin.backlog(topic, "sub"))
    run.record("backlog of the letters", run.admin.backlog(f"{topic}-sub-RETRY", "sub"))


@scenario(**BY_JAVA, title="A letter waits for the next consumer")
def kept(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = _subscribe(run, topic)
    run.send(topic, ["x", "y"])
    for message in run.receive(consumer, 2):
        consumer.reconsume_later(message, 500)
    consumer.close()
    consumer = _subscribe(run, topic)
    run.record_set("letters", run.receive(consumer, 2))
    run.record_messages("and then", run.rest(consumer))


@scenario(**BY_JAVA, title="A letter that is refused comes again as any message, counted")
def negative(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = _subscribe(run, topic, negative_ack_redelivery_delay_ms=300)
    run.send(topic, ["x"])
    consumer.reconsume_later(run.receive(consumer, 1)[0], 0)
    letter = run.receive(consumer, 1)[0]
    consumer.negative_acknowledge(letter)
    again = run.receive(consumer, 1)[0]
    run.record("again", run.view(again, "data", "redelivery_count", "topic_name"))
    run.record("times", again.properties()["RECONSUMETIMES"])


@scenario(**BY_JAVA, title="Refusals by negative acknowledgement lead to the dead letter topic as well")
def negative_to_dead(run: ScenarioRun) -> None:
    topic = run.topic()
    dead = run.consumer(f"{topic}-sub-DLQ", "undertaker")
    consumer = _subscribe(run, topic, most=1, negative_ack_redelivery_delay_ms=300)
    run.send(topic, ["x"])
    for _ in range(2):
        consumer.negative_acknowledge(run.receive(consumer, 1)[0])
    run.record_messages("dead", run.receive(dead, 1))


def _record_two_letters(run: ScenarioRun, consumer: Any) -> None:
    for message in run.receive(consumer, 2):
        consumer.reconsume_later(message, 0)
    letters = sorted(run.receive(consumer, 2), key=lambda letter: bytes(letter.data()))
    run.record_messages("letters", letters, "data", "topic_name")
    run.record("origins", [letter.properties()["REAL_TOPIC"] for letter in letters])


@scenario(**BY_JAVA, title="Several topics share the retry topic of the first one")
def several_topics(run: ScenarioRun) -> None:
    first, second = run.topic("a"), run.topic("b")
    consumer = _subscribe(run, [first, second])
    for topic in (first, second):
        run.send(topic, [topic.rpartition("-")[2]])
    _record_two_letters(run, consumer)


@scenario(**BY_JAVA, title="A partitioned topic")
def partitioned(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2)
    consumer = _subscribe(run, topic)
    run.send_partition_by_partition(topic, {0: ["0"], 1: ["1"]})
    _record_two_letters(run, consumer)


@scenario(**BY_JAVA, title="Retry letters on Exclusive and Failover do not wait")
def exclusive(run: ScenarioRun) -> None:
    for kind in ("Exclusive", "Failover"):
        topic = run.topic(kind.lower())
        consumer = _subscribe(run, topic, kind=kind)
        run.send(topic, ["x", "y"])
        x, _ = run.receive(consumer, 2)
        consumer.reconsume_later(x, 2000)
        run.record_messages(kind, run.receive(consumer, 1))


@scenario(**BY_JAVA, title="A consumer without retries refuses reconsume_later")
def not_enabled(run: ScenarioRun) -> None:
    consumer = run.subscribed(["x"], kind="Shared").consumer
    message = run.receive(consumer, 1)[0]
    _refused(run, "reconsume_later", lambda: consumer.reconsume_later(message, 100))


@scenario(**BY_JAVA, title="reconsume_later after close")
def closed(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = _subscribe(run, topic)
    run.send(topic, ["x"])
    message = run.receive(consumer, 1)[0]
    consumer.close()
    _refused(run, "reconsume_later", lambda: consumer.reconsume_later(message, 100))
    consumer = _subscribe(run, topic)
    run.record_messages("the message", [consumer.receive(PATIENCE_MS)])


@scenario(**BY_JAVA, title="Two subscriptions have their own letters")
def two_subscriptions(run: ScenarioRun) -> None:
    topic = run.topic()
    first, second = _subscribe(run, topic, subscription="a"), _subscribe(run, topic, subscription="b")
    run.send(topic, ["x"])
    first.reconsume_later(run.receive(first, 1)[0], 0)
    letter = run.receive(first, 1)[0]
    run.record("letter", [letter.topic_name(), letter.properties()["REAL_SUBSCRIPTION"]])
    run.record_messages("the other one", run.receive(second, 1), "data", "topic_name")
    run.record_messages("and then", run.rest(second))
