"""Namespaces, and the administration of topics and subscriptions."""

from __future__ import annotations

from tests.compat.harness.driver import ScenarioRun, numbers
from tests.compat.harness.scenario import scenario

NAMESPACES = "namespaces"
AREA = "admin"


@scenario(area=NAMESPACES, title="A namespace is made, used, listed and deleted")
def life(run: ScenarioRun) -> None:
    namespace = run.namespace()
    topic = run.topic(namespace=namespace)
    consumer = run.consumer(topic)
    run.send(topic, ["x"])
    run.record_messages("received", run.receive(consumer, 1), "data", "topic_name")
    run.record("listed", namespace in run.admin.list_namespaces("public"))
    run.record("topics", run.admin.list_topics(namespace))
    run.attempt("delete with a topic", lambda: run.admin.delete_namespace(namespace))
    consumer.close()
    run.admin.delete_topic(topic, force=True)
    run.attempt("delete", lambda: run.admin.delete_namespace(namespace))
    run.attempt("use", lambda: run.producer(topic))


@scenario(area=NAMESPACES, title="Namespaces that are there already, that are not, and that are none")
def refused(run: ScenarioRun) -> None:
    namespace = run.namespace()
    run.attempt("again", lambda: run.admin.create_namespace(namespace))
    run.attempt("delete one that is not there", lambda: run.admin.delete_namespace(f"{namespace}-other"))
    run.attempt("list topics of one that is not there", lambda: run.admin.list_topics(f"{namespace}-other"))


@scenario(area=NAMESPACES, title="Equal topic names in two namespaces are two topics")
def separate(run: ScenarioRun) -> None:
    topics = [run.topic(namespace=run.namespace(label)) for label in ("one", "other")]
    consumers = [run.consumer(topic) for topic in topics]
    for index, topic in enumerate(topics):
        run.send(topic, [str(index)])
    for consumer in consumers:
        run.record_messages("received", run.receive(consumer, 1), "data", "topic_name")


@scenario(area=AREA, title="Topics are made, listed and deleted")
def topics(run: ScenarioRun) -> None:
    namespace = run.namespace()
    plain, split = run.topic("plain", namespace=namespace), run.topic("split", namespace=namespace)
    run.admin.create_topic(plain)
    run.admin.create_partitioned_topic(split, 2)
    run.record("topics", run.admin.list_topics(namespace))
    run.attempt("again", lambda: run.admin.create_topic(plain))
    for topic in (plain, split):
        run.attempt("delete", lambda t=topic: run.admin.delete_topic(t))  # type: ignore[misc]
    run.record("afterwards", run.admin.list_topics(namespace))
    run.attempt("delete again", lambda: run.admin.delete_topic(plain))


@scenario(area=AREA, title="A topic that was deleted and made again is empty")
def reborn(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(["before"])
    consumer.close()
    run.admin.delete_topic(topic, force=True)
    run.admin.create_topic(topic)
    consumer = run.consumer(topic, initial_position=run.sdk.InitialPosition.Earliest)
    run.send(topic, ["after"])
    run.record_messages("received", run.receive(consumer, 1))


@scenario(area=AREA, title="Subscriptions are made, listed and removed")
def subscriptions(run: ScenarioRun) -> None:
    topic = run.topic()
    run.send(topic, ["1", "2"])
    run.admin.create_subscription(topic, "from-start", from_earliest=True)
    run.admin.create_subscription(topic, "from-end")
    run.record("listed", run.admin.list_subscriptions(topic))
    run.attempt("again", lambda: run.admin.create_subscription(topic, "from-end"))
    run.send(topic, ["3"])
    run.record_messages("from the start", run.receive(run.consumer(topic, "from-start"), 3))
    run.record_messages("from the end", run.receive(run.consumer(topic, "from-end"), 1))
    run.attempt("remove with a consumer", lambda: run.admin.unsubscribe(topic, "from-end"))
    run.attempt("remove one that is not there", lambda: run.admin.unsubscribe(topic, "other"))


@scenario(area=AREA, title="Backlog, skip and clear of a subscription without consumers")
def backlog(run: ScenarioRun) -> None:
    topic = run.topic()
    run.consumer(topic).close()
    run.send(topic, numbers(6))
    run.record("backlog", run.admin.backlog(topic, "sub"))
    run.admin.skip(topic, "sub", 2)
    run.record("after skipping two", run.admin.backlog(topic, "sub"))
    consumer = run.consumer(topic)
    run.record_messages("next", run.receive(consumer, 1))
    consumer.close()
    run.admin.clear_backlog(topic, "sub")
    run.record("cleared", run.admin.backlog(topic, "sub"))
    run.record_messages("nothing", run.rest(run.consumer(topic)))


@scenario(area=AREA, title="Resetting a cursor to a time")
def reset_cursor(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(["1", "2"])
    between = run.receive_acked(consumer, 2)[1].publish_timestamp() + 1
    run.until(lambda: run.is_after(between), "the next milliseconds")
    run.send(topic, ["3", "4"])
    run.receive_acked(consumer, 2)
    consumer.close()
    run.admin.reset_cursor(topic, "sub", between)
    run.record_messages("received", run.receive(run.consumer(topic), 2))


@scenario(area=AREA, title="What is asked of things that are not there")
def not_there(run: ScenarioRun) -> None:
    topic = run.topic()
    run.attempt("subscriptions", lambda: run.admin.list_subscriptions(topic))
    run.attempt("delete", lambda: run.admin.delete_topic(topic))
    run.producer(topic)
    run.attempt("backlog", lambda: run.admin.backlog(topic, "nobody"))
    run.attempt("skip", lambda: run.admin.skip(topic, "nobody", 1))
    run.attempt("clear", lambda: run.admin.clear_backlog(topic, "nobody"))


@scenario(area=AREA, title="Deleting a topic with a subscription needs force")
def delete_with_subscription(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    run.attempt("with a consumer", lambda: run.admin.delete_topic(topic))
    consumer.close()
    run.attempt("by force", lambda: run.admin.delete_topic(topic, force=True))


@scenario(area=AREA, title="Deleting a topic with a producer needs force")
def delete_with_producer(run: ScenarioRun) -> None:
    topic = run.topic()
    producer = run.producer(topic)
    producer.send(b"x")
    run.attempt("with a producer", lambda: run.admin.delete_topic(topic))
    producer.close()
    run.attempt("without it", lambda: run.admin.delete_topic(topic))
    run.record("listed", topic in run.admin.list_topics("public/default"))
