"""Subscriptions on single partitions of a topic."""

from __future__ import annotations

from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import scenario

AREA = "one partition"


def _part(topic: str, partition: int) -> str:
    return f"{topic}-partition-{partition}"


def _send(run: ScenarioRun, topic: str, *partitions: int, count: int = 1) -> None:
    run.send_partition_by_partition(topic, {p: [f"{p}.{number}" for number in range(count)] for p in partitions})


@scenario(area=AREA, title="Its names, its last message, and what it does not see")
def alone(run: ScenarioRun) -> None:
    topic = run.topic(partitions=3)
    consumer = run.consumer(_part(topic, 1))
    run.record("topic", consumer.topic())
    _send(run, topic, 0, 1, 2, count=2)
    messages = run.receive(consumer, 2)
    run.record_messages("received", messages, "data", "topic_name")
    run.record("last", consumer.get_last_message_id() == messages[-1].message_id())
    run.record_messages("and then", run.rest(consumer))


@scenario(area=AREA, title="Acknowledgements of a partition are those of the whole topic's subscription")
def then_whole(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2)
    earliest = run.sdk.InitialPosition.Earliest
    _send(run, topic, 0, 1, count=4)
    consumer = run.consumer(_part(topic, 1), kind="Shared", initial_position=earliest)
    for message in run.receive(consumer, 4):
        if run.view(message) in ("1.0", "1.2"):
            consumer.acknowledge(message)
    consumer.close()
    whole = run.consumer(topic, kind="Shared", initial_position=earliest)
    run.record_set("whole", run.receive(whole, 6))
    run.record_messages("and then", run.rest(whole))


@scenario(area=AREA, title="Acknowledgements of the whole topic's subscription are those of its partitions")
def whole_first(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2)
    whole = run.consumer(topic, kind="Shared")
    _send(run, topic, 0, 1, count=4)
    for message in run.receive(whole, 8):
        if run.view(message).endswith((".1", ".2")):
            whole.acknowledge(message)
    whole.close()
    for partition in (0, 1):
        consumer = run.consumer(_part(topic, partition), kind="Shared")
        run.record_set(f"partition {partition}", run.receive(consumer, 2))
        run.record_messages("and then", run.rest(consumer))


@scenario(area=AREA, title="A partition that did not have the subscription gets it with the whole topic")
def spreading(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2)
    run.consumer(_part(topic, 1), kind="Shared").close()
    _send(run, topic, 0, 1)
    run.record("backlog", run.admin.backlog(topic, "sub"))
    whole = run.consumer(topic, kind="Shared")
    _send(run, topic, 0, 1, count=2)
    run.record_set("received", run.receive(whole, 5))
    run.record_messages("and then", run.rest(whole))


@scenario(area=AREA, title="Each partition has its own type and its own exclusive consumer")
def types(run: ScenarioRun) -> None:
    topic = run.topic(partitions=3)
    run.attempt("exclusive on 0", lambda: run.consumer(_part(topic, 0)))
    run.attempt("exclusive on 1", lambda: run.consumer(_part(topic, 1)))
    run.attempt("shared on 2", lambda: run.consumer(_part(topic, 2), kind="Shared"))
    run.attempt("shared on 2 again", lambda: run.consumer(_part(topic, 2), kind="Shared"))
    run.attempt("exclusive on 0 again", lambda: run.consumer(_part(topic, 0)))
    run.attempt("failover on 2", lambda: run.consumer(_part(topic, 2), kind="Failover"))
    run.attempt("the whole", lambda: run.consumer(topic))


@scenario(area=AREA, title="Removing the subscription from one partition")
def removing(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2)
    earliest = run.sdk.InitialPosition.Earliest
    _send(run, topic, 0, 1, count=2)
    whole = run.consumer(topic, initial_position=earliest)
    run.receive_acked(whole, 4)
    whole.close()
    consumer = run.consumer(_part(topic, 1))
    run.attempt("remove", consumer.unsubscribe)
    run.record("listed", run.admin.list_subscriptions(topic))
    consumer = run.consumer(_part(topic, 1), initial_position=earliest)
    run.record_messages("from the beginning", run.receive(consumer, 2))
    consumer.close()
    whole = run.consumer(topic)
    run.record_messages("partition 0 as it was", run.receive(whole, 2))
    run.record_messages("and then", run.rest(whole))


@scenario(area=AREA, title="A list of partitions, and partitions that are not there")
def several(run: ScenarioRun) -> None:
    topic = run.topic(partitions=3)
    earliest = run.sdk.InitialPosition.Earliest
    _send(run, topic, 0, 1, 2)
    consumer = run.consumer([_part(topic, 0), _part(topic, 2)], kind="Shared", initial_position=earliest)
    messages = run.receive(consumer, 2)
    run.record_set("received", messages, "data", "topic_name")
    for message in messages:
        consumer.acknowledge(message)
    run.record_messages("and then", run.rest(consumer))
    run.attempt("partition 7", lambda: run.consumer(_part(topic, 7)))


@scenario(area=AREA, title="Dead letters and negative acknowledgements on one partition")
def redelivery(run: ScenarioRun) -> None:
    topic, dead = run.topic(partitions=2), run.topic("dead")
    letters = run.consumer(dead)
    policy = run.sdk.ConsumerDeadLetterPolicy(max_redeliver_count=1, dead_letter_topic=dead)
    consumer = run.consumer(
        _part(topic, 1), kind="Shared", dead_letter_policy=policy, negative_ack_redelivery_delay_ms=100
    )
    _send(run, topic, 0, 1)
    for _ in range(2):
        message = run.receive(consumer, 1)[0]
        run.record("delivered", [run.view(message), message.redelivery_count()])
        consumer.negative_acknowledge(message)
    run.record_messages("dead letter", run.receive(letters, 1))


@scenario(area=AREA, title="Consumers of a partition beside one of the whole topic")
def beside_whole(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2)
    whole = run.consumer(topic, kind="Shared")
    _send(run, topic, 0, 1)
    run.receive_acked(whole, 2)
    run.attempt("shared on a partition", lambda: run.consumer(_part(topic, 1), kind="Shared"))
