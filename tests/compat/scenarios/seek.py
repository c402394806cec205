"""Seeking: by id, by time, to the ends."""

from __future__ import annotations

from typing import Any

from tests.compat.harness.driver import PATIENCE_MS, ScenarioRun, numbers
from tests.compat.harness.scenario import scenario

AREA = "seek"


@scenario(area=AREA, title="After a seek to an id the next one comes")
def to_an_id(run: ScenarioRun) -> None:
    _, consumer, ids = run.subscribed(numbers(6))
    run.receive_acked(consumer, 6)
    consumer.seek(ids[2])
    run.record_messages("received", run.receive(consumer, 3))
    run.record_messages("and then", run.rest(consumer))


@scenario(area=AREA, title="With start_message_id_inclusive that one comes too")
def inclusive(run: ScenarioRun) -> None:
    _, consumer, ids = run.subscribed(numbers(5), start_message_id_inclusive=True)
    run.receive_acked(consumer, 5)
    consumer.seek(ids[2])
    run.record_messages("received", run.receive(consumer, 3))


@scenario(area=AREA, title="To the earliest message")
def to_earliest(run: ScenarioRun) -> None:
    topic = run.topic()
    run.send(topic, ["before"])
    consumer = run.consumer(topic)
    run.send(topic, numbers(3))
    run.receive_acked(consumer, 3)
    consumer.seek(run.sdk.MessageId.earliest)
    run.record_messages("received", run.receive(consumer, 4))


@scenario(area=AREA, title="To the end: only what is sent afterwards comes")
def to_latest(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(numbers(3))
    run.receive(consumer, 1)
    consumer.seek(run.sdk.MessageId.latest)
    run.send(topic, ["after"])
    run.record_messages("received", run.receive(consumer, 1))
    run.record_messages("and then", run.rest(consumer))


@scenario(area=AREA, title="To a time")
def to_a_time(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(["1", "2"])
    messages = run.receive_acked(consumer, 2)
    between = messages[1].publish_timestamp() + 1
    run.until(lambda: run.is_after(between), "the next milliseconds")
    run.send(topic, ["3", "4"])
    run.receive_acked(consumer, 2)
    consumer.seek(between)
    run.record_messages("received", run.receive(consumer, 2))
    run.record_messages("and then", run.rest(consumer))


@scenario(area=AREA, title="To the very time of a message")
def to_the_time_of_a_message(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    producer = run.producer(topic)
    times = []
    for text in ("1", "2", "3"):
        producer.send(text.encode())
        times.append(run.receive_acked(consumer, 1)[0].publish_timestamp())
        run.until(lambda: run.is_after(times[-1] + 2), "the next milliseconds")
    consumer.seek(times[1])
    run.record_messages("received", run.receive(consumer, 2))


@scenario(area=AREA, title="To a time in the far past, and in the future")
def to_far_times(run: ScenarioRun) -> None:
    consumer = run.subscribed(numbers(3)).consumer
    last = run.receive_acked(consumer, 3)[2]
    consumer.seek(1)
    run.record_messages("the past", run.receive(consumer, 3))
    consumer.seek(last.publish_timestamp() + 3_600_000)
    run.record_messages("the future", run.rest(consumer))


@scenario(area=AREA, title="Forward: what lies between is skipped for good")
def forward(run: ScenarioRun) -> None:
    topic, consumer, ids = run.subscribed(numbers(6))
    run.receive(consumer, 1)
    consumer.seek(ids[3])
    run.record_messages("received", run.receive_acked(consumer, 2))
    consumer.close()
    run.record_messages("next time", run.rest(run.consumer(topic)))


@scenario(area=AREA, title="A seek forgets acknowledgements behind it")
def forgets_acknowledgements(run: ScenarioRun) -> None:
    _, consumer, ids = run.subscribed(numbers(5), kind="Shared")
    for message in run.receive(consumer, 5)[::2]:
        consumer.acknowledge(message)
    consumer.seek(ids[0])
    run.record_messages("received", run.receive(consumer, 4), "data", "redelivery_count")


@scenario(area=AREA, title="A seek is kept by the subscription")
def is_kept(run: ScenarioRun) -> None:
    topic, consumer, ids = run.subscribed(numbers(4))
    run.receive_acked(consumer, 4)
    consumer.seek(ids[1])
    run.receive(consumer, 1)
    consumer.seek(run.sdk.MessageId.earliest)
    consumer.close()
    run.record_messages("received", run.receive(run.consumer(topic), 4))


@scenario(area=AREA, title="With an id made by hand, and with MessageId")
def with_made_ids(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    found = run.send(topic, numbers(4))[1]
    run.receive_acked(consumer, 4)
    made = run.sdk.MessageId(-1, found.ledger_id(), found.entry_id(), -1)
    for name, target in (("made", made), ("wrapped", run.sdk.MessageId.wrap(found))):
        consumer.seek(target)
        run.record_messages(name, run.receive(consumer, 2))


@scenario(area=AREA, title="Arguments of other types")
def bad_arguments(run: ScenarioRun) -> None:
    consumer = run.consumer(run.topic())
    for name, target in (("text", "1:2"), ("None", None), ("float", 1.5)):
        run.attempt(name, lambda t=target: consumer.seek(t))  # type: ignore[misc]


@scenario(area=AREA, title="On a partitioned topic, by time")
def partitioned_by_time(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(numbers(4), kind="Shared", partitions=2)
    messages = run.receive_acked(consumer, 4)
    between = max(message.publish_timestamp() for message in messages) + 1
    run.until(lambda: run.is_after(between), "the next milliseconds")
    run.send(topic, ["new-1", "new-2"])
    run.receive_acked(consumer, 2)
    consumer.seek(between)
    run.record_set("received", run.receive(consumer, 2))
    consumer.seek(0)
    run.record_set("from the start", run.receive(consumer, 6))


@scenario(area=AREA, title="On a partitioned topic, to the ends")
def partitioned_to_the_ends(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(numbers(4), kind="Shared", partitions=2)
    run.receive_acked(consumer, 4)
    if run.attempt("earliest", lambda: [consumer.seek(run.sdk.MessageId.earliest)]):
        run.record_set("received", run.receive_acked(consumer, 4))
    if run.attempt("latest", lambda: [consumer.seek(run.sdk.MessageId.latest)]):
        run.send(topic, ["after"])
        run.record_set("after it", run.receive(consumer, 1))


@scenario(area=AREA, title="get_last_message_id")
def last_message_id(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    run.record("of an empty topic", consumer.get_last_message_id())
    last = run.send(topic, numbers(3))[-1]
    found: Any = consumer.get_last_message_id()
    run.record("of three messages", found.entry_id())
    run.record("is the last one's", [found.ledger_id() == last.ledger_id(), found.entry_id() == last.entry_id()])


@scenario(area=AREA, title="A seek while messages wait in the queue")
def with_a_full_queue(run: ScenarioRun) -> None:
    _, consumer, ids = run.subscribed(numbers(50), receiver_queue_size=100)
    consumer.receive(PATIENCE_MS)
    consumer.seek(ids[39])
    run.record_messages("received", run.receive(consumer, 10))
    consumer.seek(ids[4])
    run.record_messages("back", run.receive(consumer, 3))


@scenario(area=AREA, title="Two Shared consumers: a seek by one of them is for both")
def shared_by_one(run: ScenarioRun) -> None:
    topic = run.topic()
    consumers = [run.consumer(topic, kind="Shared") for _ in range(2)]
    run.send(topic, numbers(10))
    taken = 0
    while taken < 10:
        for consumer in consumers:
            for message in run.rest(consumer, 300):
                consumer.acknowledge(message)
                taken += 1
    consumers[0].seek(run.sdk.MessageId.earliest)
    again: list[Any] = []
    while len(again) < 10:
        for consumer in consumers:
            again += run.rest(consumer, 300)
    run.record_set("again", again)


@scenario(area=AREA, title="Forward with start_message_id_inclusive: what lies before is skipped for good")
def forward_inclusive(run: ScenarioRun) -> None:
    topic, consumer, ids = run.subscribed(numbers(6), start_message_id_inclusive=True)
    run.receive(consumer, 1)
    consumer.seek(ids[3])
    run.record_messages("received", run.receive_acked(consumer, 2))
    consumer.close()
    run.record_messages("next time", run.rest(run.consumer(topic)))
