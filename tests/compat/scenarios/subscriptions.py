"""Subscriptions: who may join, where they start, who gets what."""

from __future__ import annotations

from collections import Counter

from pulsar_on_kafka.broker.subscriptions.dispatching.strategy import next_on_ring
from tests.compat.harness.driver import ScenarioRun, numbers
from tests.compat.harness.scenario import PulsarClient, scenario

AREA = "subscriptions"
_TYPES = ("Exclusive", "Shared", "Failover", "KeyShared")


@scenario(area=AREA, title="Which type may join which")
def who_may_join(run: ScenarioRun) -> None:
    for first in _TYPES[:3]:
        for second in _TYPES[:3]:
            topic = run.topic(f"{first}-{second}")
            run.consumer(topic, kind=first)
            run.attempt(f"{second} beside {first}", lambda t=topic, s=second: run.consumer(t, kind=s))  # type: ignore[misc]


@scenario(area=AREA, title="Key_Shared joins only Key_Shared")
def who_may_join_key_shared(run: ScenarioRun) -> None:
    topic = run.topic()
    run.consumer(topic, kind="KeyShared")
    for second in _TYPES:
        run.attempt(second, lambda s=second: run.consumer(topic, kind=s))  # type: ignore[misc]


@scenario(area=AREA, title="A closed consumer leaves its place to another, of another type too")
def place_is_free_after_close(run: ScenarioRun) -> None:
    topic = run.topic()
    for kind in ("Exclusive", "Shared", "Failover", "Exclusive"):
        consumer = run.attempt(kind, lambda k=kind: run.consumer(topic, kind=k))  # type: ignore[misc]
        if consumer is not None:
            consumer.close()


@scenario(area=AREA, title="A second client is refused by an Exclusive subscription as well")
def exclusive_among_clients(run: ScenarioRun) -> None:
    topic = run.topic()
    run.consumer(topic)
    other = run.client()
    run.attempt("second", lambda: other.subscribe(topic, "sub"))
    run.attempt("another subscription", lambda: other.subscribe(topic, "other"))


@scenario(area=AREA, title="A new subscription starts at the end, or at the beginning when told so")
def initial_position(run: ScenarioRun) -> None:
    topic = run.topic()
    run.send(topic, ["before-1", "before-2"])
    latest = run.consumer(topic, "latest")
    earliest = run.consumer(topic, "earliest", initial_position=run.sdk.InitialPosition.Earliest)
    run.send(topic, ["after"])
    run.record_messages("latest", run.receive(latest, 1))
    run.record_messages("earliest", run.receive(earliest, 3))


@scenario(area=AREA, title="The initial position of an existing subscription is not looked at")
def initial_position_only_once(run: ScenarioRun) -> None:
    topic = run.topic()
    run.send(topic, ["before"])
    run.consumer(topic).close()
    run.send(topic, ["after"])
    again = run.consumer(topic, initial_position=run.sdk.InitialPosition.Earliest)
    run.record_messages("received", run.receive(again, 1))


@scenario(area=AREA, title="A subscription keeps its place while nobody is there")
def keeps_its_place(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(["1", "2"])
    run.receive_acked(consumer, 1)
    consumer.close()
    run.send(topic, ["3"])
    run.record_messages("received", run.receive(run.consumer(topic), 2))


@scenario(area=AREA, title="Subscriptions of a topic do not know each other")
def independent(run: ScenarioRun) -> None:
    topic = run.topic()
    one, other = run.consumer(topic, "one"), run.consumer(topic, "other")
    run.send(topic, ["1", "2", "3"])
    run.record_messages("one", run.receive_acked(one, 3))
    run.record_messages("other", run.receive(other, 3))


@scenario(area=AREA, title="Shared: every message goes to one consumer, all of them take part")
def shared_divides(run: ScenarioRun) -> None:
    topic = run.topic()
    consumers = [run.consumer(topic, kind="Shared", receiver_queue_size=10) for _ in range(2)]
    run.send(topic, numbers(60))
    shares = [run.rest(consumer) for consumer in consumers]
    run.record("received", Counter(run.view(message) for share in shares for message in share))
    run.record("all took part", all(shares))


@scenario(area=AREA, title="Shared: a closing consumer's unacknowledged messages go to the other")
def shared_hands_over(run: ScenarioRun) -> None:
    topic, first, _ = run.subscribed(["1", "2", "3"], kind="Shared")
    taken = run.receive(first, 3)
    first.acknowledge(taken[1])
    second = run.consumer(topic, kind="Shared")
    first.close()
    run.record_set("second", run.receive(second, 2))
    run.record_messages("and then", run.rest(second))


@scenario(area=AREA, title="Failover: one consumer gets everything, the next goes on when it leaves")
def failover_goes_on(run: ScenarioRun) -> None:
    topic = run.topic(partitions=1)
    active = run.consumer(topic, kind="Failover", consumer_name="a")
    waiting = run.consumer(topic, kind="Failover", consumer_name="b")
    run.send(topic, ["1", "2", "3"])
    first = run.receive(active, 3)
    run.record_messages("active", first)
    run.record_messages("waiting", run.rest(waiting))
    active.acknowledge(first[0])
    active.close()
    run.record_messages("after the fail-over", run.receive(waiting, 2))


@scenario(area=AREA, title="Failover: what the active consumer holds comes to the next one; its acks still count")
def failover_late_acknowledgements(run: ScenarioRun) -> None:
    topic, former, _ = run.subscribed(["1", "2", "3", "4", "5", "6"], kind="Failover", consumer_name="b", partitions=1)
    held = run.receive(former, 6)
    run.record_messages("active", held)
    following = run.client().subscribe(topic, "sub", run.sdk.ConsumerType.Failover, consumer_name="a")
    run.record_messages("the next one", run.receive(following, 6))
    former.acknowledge(held[4])
    former.acknowledge_cumulative(held[2])
    run.record_messages("the former one", run.rest(former))
    following.close()
    run.record_messages("active again", run.receive(former, 2))
    run.record_messages("and then", run.rest(former))


@scenario(area=AREA, title="Failover: who joins or leaves brings nothing again where the active consumer stays")
def failover_stays(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2)
    consumers = {name: run.consumer(topic, kind="Failover", consumer_name=name) for name in ("a", "c")}
    for consumer in consumers.values():
        run.rest(consumer, 1500)  # until both know which partitions are theirs
    run.send_partition_by_partition(topic, {0: ["p0-1", "p0-2"], 1: ["p1-1", "p1-2"]})
    for name, consumer in consumers.items():
        run.record_messages(name, run.receive(consumer, 2))
    consumers["b"] = run.client().subscribe(topic, "sub", run.sdk.ConsumerType.Failover, consumer_name="b")
    for name, consumer in consumers.items():
        run.record_messages(f"{name} beside b", run.rest(consumer, 1500))
    consumers.pop("b").close()
    for name, consumer in consumers.items():
        run.record_messages(f"{name} after b", run.rest(consumer, 1500))


@scenario(area=AREA, title="Exclusive: what was not acknowledged comes again, in order")
def exclusive_again(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(["1", "2", "3", "4"])
    messages = run.receive(consumer, 4)
    consumer.acknowledge(messages[1])
    consumer.close()
    run.record_messages("again", run.receive(run.consumer(topic), 3))


@scenario(area=AREA, title="Unsubscribing forgets the subscription")
def unsubscribe(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(["1", "2"])
    run.receive_acked(consumer, 1)
    consumer.unsubscribe()
    run.attempt("receive", lambda: consumer.receive(100))
    run.attempt("once more", consumer.unsubscribe)
    run.attempt("close", consumer.close)
    again = run.consumer(topic, initial_position=run.sdk.InitialPosition.Earliest)
    run.record_messages("from the start", run.receive(again, 2))


@scenario(area=AREA, title="Unsubscribing is refused while another consumer is there")
def unsubscribe_with_others(run: ScenarioRun) -> None:
    topic = run.topic()
    one, _other = run.consumer(topic, kind="Shared"), run.consumer(topic, kind="Shared")
    run.attempt("unsubscribe", one.unsubscribe)


@scenario(area=AREA, title="Names of consumers and subscriptions")
def names(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic, "my-sub", consumer_name="me")
    run.record("names", [consumer.consumer_name(), consumer.subscription_name(), consumer.topic()])
    run.record("connected", consumer.is_connected())
    other = run.consumer(topic, "other")
    run.record("a name is made", bool(other.consumer_name()))


@scenario(area=AREA, title="Subscription names with strange characters")
def strange_names(run: ScenarioRun) -> None:
    for name in ("with space", "ümläut", "a/b", "a:b", "a%20b", "日本", "UPPER.lower_-"):
        topic = run.topic()
        consumer = run.attempt(name, lambda n=name, t=topic: run.consumer(t, n))  # type: ignore[misc]
        if consumer is not None:
            run.record("name", consumer.subscription_name())
            consumer.close()


@scenario(area=AREA, title="Consumers with properties")
def properties(run: ScenarioRun) -> None:
    consumer = run.subscribed(["1"], properties={"team": "billing"}).consumer
    run.record_messages("received", run.receive(consumer, 1))


@scenario(area=AREA, title="Messages already delivered to a Shared consumer stay with it when another joins")
def shared_latecomer(run: ScenarioRun) -> None:
    topic, first, _ = run.subscribed(["1", "2", "3"], kind="Shared")
    run.record_messages("first", run.receive(first, 3))
    second = run.consumer(topic, kind="Shared")
    run.record_messages("second", run.rest(second))


@scenario(area=AREA, title="A queue of one message still gives all, in order")
def queue_of_one(run: ScenarioRun) -> None:
    consumer = run.subscribed(numbers(20), receiver_queue_size=1).consumer
    run.record_messages("received", run.receive_acked(consumer, 20))


@scenario(area=AREA, title="A queue of none gives one message at a time")
def queue_of_none(run: ScenarioRun) -> None:
    consumer = run.subscribed(["1", "2", "3"], kind="Shared", receiver_queue_size=0).consumer
    received = []
    for _ in range(3):
        message = consumer.receive()
        received.append(message)
        consumer.acknowledge(message)
    run.record_messages("received", received)


@scenario(area=AREA, title="What a closed consumer held comes to the next one, with its count")
def count_after_close(run: ScenarioRun) -> None:
    topic = run.topic()
    for turn in range(3):
        consumer = run.consumer(topic, kind="Shared")
        if not turn:
            run.send(topic, ["x"])
        run.record_messages("received", run.receive(consumer, 1), "data", "redelivery_count")
        consumer.close()


@scenario(area=AREA, title="Failover on a partitioned topic: the partitions are shared out by name")
def failover_partitions(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2)
    consumers = {name: run.consumer(topic, kind="Failover", consumer_name=name) for name in ("a", "b")}
    for consumer in consumers.values():
        run.rest(consumer, 1500)  # until both know which partitions are theirs
    run.send_partition_by_partition(topic, {0: ["p0-1", "p0-2"], 1: ["p1-1", "p1-2"]})
    for name, consumer in consumers.items():
        run.record_messages(name, run.rest(consumer))


@scenario(area=AREA, title="Failover on topics without partitions: a ring of hashes shares them out")
def failover_topics(run: ScenarioRun) -> None:
    names = ["a", "b", "c"]
    topics = [run.topic(f"topic-{number}") for number in range(6)]
    consumers = {
        topic: {name: run.consumer(topic, kind="Failover", consumer_name=name) for name in names} for topic in topics
    }
    run.rest(consumers[topics[-1]]["a"], 2500)  # until all of them know who is active
    for topic in topics:
        run.send(topic, ["1", "2"])
        active = consumers[topic].pop(names[next_on_ring(topic, names)])
        run.record_messages("the ring's choice", run.receive(active, 2))
        run.record_messages(
            "the others", [message for each in consumers[topic].values() for message in run.rest(each, 200)]
        )


@scenario(area=AREA, title="Priority: who has the lower level is served first", client=PulsarClient.JAVA)
def priority(run: ScenarioRun) -> None:
    topic = run.topic()
    low = run.consumer(topic, kind="Shared", priority_level=1, receiver_queue_size=10)
    high = run.consumer(topic, kind="Shared", priority_level=0, receiver_queue_size=10)
    run.send(topic, numbers(14))
    of_low = run.rest(low)
    run.record("numbers", [len(run.rest(high)), len(of_low)])
    run.record_messages("of the lower level", of_low)
