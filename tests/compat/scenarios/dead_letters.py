"""Dead letters: what is buried, how, and what it carries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.compat.harness.driver import PATIENCE_MS, ScenarioRun, numbers
from tests.compat.harness.scenario import scenario

AREA = "dead letter"
SOON: dict[str, Any] = {"negative_ack_redelivery_delay_ms": 200}
COUNTED = ("data", "redelivery_count")


def _consumer(run: ScenarioRun, topic: Any, letters: str | None = None, most: int = 1, **options: Any) -> Any:
    policy = run.sdk.ConsumerDeadLetterPolicy(max_redeliver_count=most, dead_letter_topic=letters)
    given = {"kind": "Shared", "dead_letter_policy": policy, **SOON, **options}
    return run.consumer(topic, **given)


def _refuse_all(run: ScenarioRun, consumer: Any, count: int, turns: int = 2) -> None:
    for _ in range(turns):
        for message in run.receive(consumer, count):
            consumer.negative_acknowledge(message)


def _policy(run: ScenarioRun, **options: Any) -> Any:
    return run.sdk.ConsumerDeadLetterPolicy(**options)


def _fail(run: ScenarioRun, consumer: Any, deliveries: int) -> None:
    """Refuse one message until it is gone."""
    for _ in range(deliveries):
        message = consumer.receive(PATIENCE_MS)
        run.record("delivered", [run.view(message), message.redelivery_count()])
        consumer.negative_acknowledge(message)


@scenario(area=AREA, title="After the deliveries that are allowed it lies in the dead letter topic")
def dead_letter(run: ScenarioRun) -> None:
    topic, letters = run.topic(), run.topic("letters")
    dead = run.consumer(letters, "undertaker")
    policy = _policy(run, max_redeliver_count=2, dead_letter_topic=letters)
    consumer = run.consumer(topic, kind="Shared", dead_letter_policy=policy, **SOON)
    run.send(topic, ["poison"])
    _fail(run, consumer, 3)
    run.record_messages("dead", run.receive(dead, 1))
    run.record_messages("again", run.rest(consumer))


@scenario(area=AREA, title="Payload, properties and key come with it")
def dead_letter_contents(run: ScenarioRun) -> None:
    topic, letters = run.topic(), run.topic("letters")
    dead = run.consumer(letters, "undertaker")
    policy = _policy(run, max_redeliver_count=1, dead_letter_topic=letters)
    consumer = run.consumer(topic, kind="Shared", dead_letter_policy=policy, **SOON)
    producer = run.producer(topic)
    producer.send(b"poison", properties={"a": "1"}, partition_key="key")
    _fail(run, consumer, 2)
    message = run.receive(dead, 1)[0]
    properties = dict(message.properties())
    run.record("names of properties", set(properties))
    run.record("own property", properties.get("a"))
    run.record("origin", properties.get("REAL_TOPIC"))
    run.record("contents", run.view(message, "data", "partition_key"))


@scenario(area=AREA, title="The default dead letter topic")
def dead_letter_default_topic(run: ScenarioRun) -> None:
    topic = run.topic()
    dead = run.consumer(f"{topic}-sub-DLQ", "undertaker")
    consumer = run.consumer(topic, kind="Shared", dead_letter_policy=_policy(run, max_redeliver_count=1), **SOON)
    run.send(topic, ["poison"])
    _fail(run, consumer, 2)
    run.record_messages("dead", run.receive(dead, 1))


@scenario(area=AREA, title="An initial subscription keeps the first dead letter")
def dead_letter_initial_subscription(run: ScenarioRun) -> None:
    topic, letters = run.topic(), run.topic("letters")
    policy = _policy(
        run, max_redeliver_count=1, dead_letter_topic=letters, initial_subscription_name="kept-from-the-start"
    )
    consumer = run.consumer(topic, kind="Shared", dead_letter_policy=policy, **SOON)
    run.send(topic, ["poison"])
    _fail(run, consumer, 2)
    run.record_messages("again", run.rest(consumer))
    run.record_messages("dead", run.receive(run.consumer(letters, "kept-from-the-start"), 1))


@scenario(area=AREA, title="Neighbours are not dragged along")
def dead_letter_neighbours(run: ScenarioRun) -> None:
    topic, letters = run.topic(), run.topic("letters")
    dead = run.consumer(letters, "undertaker")
    policy = _policy(run, max_redeliver_count=1, dead_letter_topic=letters)
    consumer = run.consumer(topic, kind="Shared", dead_letter_policy=policy, **SOON)
    run.send(topic, ["good-1", "poison", "good-2"])
    deliveries = 0
    while deliveries < 2:
        message = consumer.receive(PATIENCE_MS)
        if run.view(message) == "poison":
            deliveries += 1
            consumer.negative_acknowledge(message)
        else:
            run.record("good", run.view(message))
            consumer.acknowledge(message)
    run.record_messages("dead", run.receive(dead, 1))
    run.record_messages("again", run.rest(consumer))


@scenario(area=AREA, title="Policies that make no sense")
def dead_letter_bad_policy(run: ScenarioRun) -> None:
    run.attempt("0 redeliveries", lambda: _policy(run, max_redeliver_count=0))
    run.attempt("-1 redeliveries", lambda: _policy(run, max_redeliver_count=-1))
    policy = _policy(run, max_redeliver_count=3, dead_letter_topic="t", initial_subscription_name="s")
    run.record("properties", [policy.max_redeliver_count, policy.dead_letter_topic, policy.initial_subscription_name])


@scenario(area=AREA, title="Ack time-outs count as deliveries", time_limit_s=100)
def dead_letter_by_timeout(run: ScenarioRun) -> None:
    topic, letters = run.topic(), run.topic("letters")
    dead = run.consumer(letters, "undertaker")
    policy = _policy(run, max_redeliver_count=1, dead_letter_topic=letters)
    consumer = run.consumer(topic, kind="Shared", dead_letter_policy=policy, unacked_messages_timeout_ms=10_000)
    run.send(topic, ["poison"])
    for _ in range(2):
        run.record("count", consumer.receive(40_000).redelivery_count())
    # The official client looks at the count only when the message has come once more.
    consumer.redeliver_unacknowledged_messages()
    run.record_messages("dead", run.receive(dead, 1))


def _batch(run: ScenarioRun, topic: str, texts: Sequence[str]) -> None:
    producer = run.producer(topic, batching_enabled=True, batching_max_publish_delay_ms=10_000)
    for text in texts:
        producer.send_async(text.encode(), None, properties={"name": text})
    producer.flush()
    producer.close()


@scenario(area=AREA, title="Exclusive and Failover consumers bury nothing")
def single_active(run: ScenarioRun) -> None:
    for kind in ("Exclusive", "Failover"):
        topic, letters = run.topic(kind), run.topic(f"letters-{kind}")
        dead = run.consumer(letters, "undertaker")
        consumer = _consumer(run, topic, letters, kind=kind)
        run.send(topic, ["poison"])
        for turn in range(4):
            message = run.receive(consumer, 1)[0]
            run.record(kind, [turn, message.redelivery_count()])
            consumer.negative_acknowledge(message)
        run.record_messages("dead", run.rest(dead))


@scenario(area=AREA, title="Messages of a batch are buried one by one, counted together")
def batch(run: ScenarioRun) -> None:
    topic, letters = run.topic(), run.topic("letters")
    dead = run.consumer(letters, "undertaker")
    consumer = _consumer(run, topic, letters)
    _batch(run, topic, ["a", "b", "c"])
    for turn in range(2):
        messages = run.receive(consumer, 3)
        run.record_messages(f"turn {turn}", messages, *COUNTED)
        for message in messages:
            consumer.negative_acknowledge(message)
    buried = run.receive(dead, 3)
    run.record("dead", sorted([run.view(letter), letter.properties().get("name")] for letter in buried))
    run.record("names of properties", sorted({name for letter in buried for name in letter.properties()}))


@scenario(area=AREA, title="Several Shared consumers: each message is buried once")
def several_consumers(run: ScenarioRun) -> None:
    topic, letters = run.topic(), run.topic("letters")
    dead = run.consumer(letters, "undertaker")
    consumers = [_consumer(run, topic, letters) for _ in range(2)]
    run.send(topic, numbers(10))
    deliveries = 0
    while deliveries < 20:
        for consumer in consumers:
            for message in run.rest(consumer, 300):
                deliveries += 1
                consumer.negative_acknowledge(message)
    run.record_set("dead", run.receive(dead, 10))
    run.record_messages("and then", run.rest(dead))
    run.record("deliveries", deliveries)


@scenario(area=AREA, title="One consumer's dead letters come in the order of their messages")
def order(run: ScenarioRun) -> None:
    topic, letters = run.topic(), run.topic("letters")
    dead = run.consumer(letters, "undertaker")
    consumer = _consumer(run, topic, letters)
    run.send(topic, numbers(20))
    _refuse_all(run, consumer, 20)
    run.record_messages("dead", run.receive(dead, 20))


@scenario(area=AREA, title="What is buried is acknowledged")
def acknowledged(run: ScenarioRun) -> None:
    topic, letters = run.topic(), run.topic("letters")
    dead = run.consumer(letters, "undertaker")
    consumer = _consumer(run, topic, letters)
    run.send(topic, ["poison", "also poison"])
    _refuse_all(run, consumer, 2)
    run.receive(dead, 2)
    run.until(lambda: run.admin.backlog(topic, "sub") == 0, "no backlog")
    consumer.close()
    run.record_messages("the next consumer", run.rest(run.consumer(topic, kind="Shared")))


@scenario(area=AREA, title="Key, ordering key and properties go along, the event time as officially")
def contents(run: ScenarioRun) -> None:
    topic, letters = run.topic(), run.topic("letters")
    dead = run.consumer(letters, "undertaker")
    consumer = _consumer(run, topic, letters)
    producer = run.producer(topic)
    producer.send(
        "gift ☠".encode(), properties={"a": "1", "": "empty"}, partition_key="k", ordering_key="o", event_timestamp=7
    )
    _refuse_all(run, consumer, 1)
    letter = run.receive(dead, 1)[0]
    run.record("letter", run.view(letter, "data", "partition_key", "ordering_key", "event_timestamp"))
    run.record("properties", {name: letter.properties().get(name) for name in ("a", "", "REAL_TOPIC")})


@scenario(area=AREA, title="redeliver_unacknowledged_messages counts as well")
def by_redelivery(run: ScenarioRun) -> None:
    topic, letters = run.topic(), run.topic("letters")
    dead = run.consumer(letters, "undertaker")
    consumer = _consumer(run, topic, letters, most=2)
    run.send(topic, ["poison"])
    for _ in range(3):
        run.record_messages("delivered", run.receive(consumer, 1), *COUNTED)
        consumer.redeliver_unacknowledged_messages()
    run.record_messages("dead", run.receive(dead, 1))
    run.record_messages("again", run.rest(consumer))


@scenario(area=AREA, title="A message that is acknowledged at its last chance is not buried")
def last_chance(run: ScenarioRun) -> None:
    topic, letters = run.topic(), run.topic("letters")
    dead = run.consumer(letters, "undertaker")
    consumer = _consumer(run, topic, letters)
    run.send(topic, ["saved"])
    consumer.negative_acknowledge(run.receive(consumer, 1)[0])
    saved = run.receive(consumer, 1)[0]
    run.record("delivered", run.view(saved, *COUNTED))
    consumer.acknowledge(saved)
    run.record_messages("again", run.rest(consumer))
    run.record_messages("dead", run.rest(dead))


@scenario(area=AREA, title="The default dead letter topic of a partitioned topic")
def default_topic_of_partitions(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2)
    dead = {name: run.consumer(f"{topic}{name}-sub-DLQ", "undertaker") for name in ("", "-partition-1")}
    consumer = _consumer(run, topic)
    run.send_partition_by_partition(topic, {1: ["poison"]})
    _refuse_all(run, consumer, 1)
    run.record_messages("again", run.rest(consumer))
    for name, undertaker in dead.items():
        letters = run.rest(undertaker)
        run.record(f"letters of the topic{name}", [[run.view(one), one.properties()["REAL_TOPIC"]] for one in letters])


@scenario(area=AREA, title="A consumer of several topics: each topic has its own dead letters")
def several_topics(run: ScenarioRun) -> None:
    topics = [run.topic("a"), run.topic("b")]
    dead = [run.consumer(f"{topic}-sub-DLQ", "undertaker") for topic in topics]
    consumer = _consumer(run, topics)
    for topic in topics:
        run.send(topic, [topic.rpartition("-")[2]])
    _refuse_all(run, consumer, 2)
    for undertaker in dead:
        letter = run.receive(undertaker, 1)[0]
        run.record("dead", [run.view(letter), letter.properties()["REAL_TOPIC"]])


@scenario(area=AREA, title="On Key_Shared a key goes on behind its dead letter")
def key_shared(run: ScenarioRun) -> None:
    topic, letters = run.topic(), run.topic("letters")
    dead = run.consumer(letters, "undertaker")
    consumer = _consumer(run, topic, letters, kind="KeyShared")
    producer = run.producer(topic)
    producer.send(b"poison", partition_key="k")
    _refuse_all(run, consumer, 1)
    run.record_messages("dead", run.receive(dead, 1), "data", "partition_key")
    for text in ("1", "2"):
        producer.send(text.encode(), partition_key="k")
    run.record_messages("and then", run.receive_acked(consumer, 2), *COUNTED)


@scenario(area=AREA, title="A dead letter may die in its turn, and keeps its first origin")
def of_a_dead_letter(run: ScenarioRun) -> None:
    topic, letters, last = run.topic(), run.topic("letters"), run.topic("last")
    dead = run.consumer(last, "undertaker")
    second = _consumer(run, letters, last)
    consumer = _consumer(run, topic, letters)
    first = run.send(topic, ["poison"])[0]
    _refuse_all(run, consumer, 1)
    _refuse_all(run, second, 1)
    letter = run.receive(dead, 1)[0]
    run.record("dead", [run.view(letter), letter.properties()["REAL_TOPIC"]])
    run.record("the first one's id", letter.properties()["ORIGIN_MESSAGE_ID"] == str(first))
