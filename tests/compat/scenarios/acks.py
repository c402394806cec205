"""Acknowledging one message, several, and everything up to one."""

from __future__ import annotations

from tests.compat.harness.driver import ScenarioRun, numbers
from tests.compat.harness.scenario import scenario

AREA = "acks"


@scenario(area=AREA, title="Holes: single acknowledgements are kept for the next consumer")
def holes(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(numbers(10), kind="Shared")
    for index, message in enumerate(run.receive(consumer, 10)):
        if index % 3 == 0:
            consumer.acknowledge(message)
    consumer.close()
    again = run.consumer(topic, kind="Shared")
    run.record_messages("again", run.receive(again, 6))
    run.record_messages("and then", run.rest(again))


@scenario(area=AREA, title="Acknowledging by message, by native id and by MessageId")
def by_every_kind_of_id(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(numbers(4))
    messages = run.receive(consumer, 4)
    run.attempt("message", lambda: consumer.acknowledge(messages[0]))
    run.attempt("native id", lambda: consumer.acknowledge(messages[1].message_id()))
    run.attempt("MessageId", lambda: consumer.acknowledge(run.sdk.MessageId.wrap(messages[2].message_id())))
    consumer.close()
    run.record_messages("again", run.receive(run.consumer(topic), 1))


@scenario(area=AREA, title="Acknowledging twice is no error")
def twice(run: ScenarioRun) -> None:
    consumer = run.subscribed(numbers(2)).consumer
    message = run.receive(consumer, 1)[0]
    run.attempt("first", lambda: consumer.acknowledge(message))
    run.attempt("second", lambda: consumer.acknowledge(message))
    run.record_messages("next", run.receive(consumer, 1))


@scenario(area=AREA, title="Acknowledging by an id made by hand or read back from bytes")
def by_made_ids(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(numbers(3))
    ids = [message.message_id() for message in run.receive(consumer, 3)]
    made = run.sdk.MessageId(ids[0].partition(), ids[0].ledger_id(), ids[0].entry_id(), ids[0].batch_index())
    run.attempt("made", lambda: consumer.acknowledge(made))
    run.attempt("read back", lambda: consumer.acknowledge(run.sdk.MessageId.deserialize(ids[1].serialize())))
    consumer.close()
    run.record_messages("again", run.receive(run.consumer(topic), 1))


@scenario(area=AREA, title="A message may be acknowledged by another consumer of the subscription")
def by_another_consumer(run: ScenarioRun) -> None:
    topic, first, _ = run.subscribed(numbers(2), kind="Shared")
    messages = run.receive(first, 2)
    second = run.consumer(topic, kind="Shared")
    run.attempt("acknowledge", lambda: second.acknowledge(messages[0]))
    run.until(lambda: run.admin.backlog(topic, "sub") == 1, "a backlog of 1")
    first.close()
    run.record_messages("left", run.receive(second, 1))
    run.record_messages("and then", run.rest(second))


@scenario(area=AREA, title="The backlog counts what is not acknowledged")
def backlog(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(numbers(5))
    messages = run.receive(consumer, 5)
    consumer.acknowledge(messages[0])
    consumer.acknowledge(messages[3])
    run.until(lambda: run.admin.backlog(topic, "sub") == 3, "a backlog of 3")
    consumer.acknowledge_cumulative(messages[4])
    run.until(lambda: run.admin.backlog(topic, "sub") == 0, "no backlog")
    run.record("both were seen")


@scenario(area="cumulative", title="A cumulative acknowledgement takes everything up to it")
def upto(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(numbers(6))
    consumer.acknowledge_cumulative(run.receive(consumer, 6)[3])
    consumer.close()
    run.record_messages("again", run.receive(run.consumer(topic), 2))


@scenario(area="cumulative", title="A cumulative acknowledgement below an earlier one changes nothing")
def below(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(numbers(6))
    messages = run.receive(consumer, 6)
    run.attempt("up to 4", lambda: consumer.acknowledge_cumulative(messages[4]))
    run.attempt("up to 1", lambda: consumer.acknowledge_cumulative(messages[1]))
    consumer.close()
    run.record_messages("again", run.receive(run.consumer(topic), 1))


@scenario(area="cumulative", title="Single and cumulative acknowledgements together")
def with_single(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(numbers(8))
    messages = run.receive(consumer, 8)
    consumer.acknowledge(messages[6])
    consumer.acknowledge_cumulative(messages[2].message_id())
    consumer.acknowledge(messages[4])
    consumer.close()
    again = run.consumer(topic)
    run.record_messages("again", run.receive(again, 3))
    run.record_messages("and then", run.rest(again))


@scenario(area="cumulative", title="Shared and Key_Shared refuse cumulative acknowledgements")
def refused_on_shared(run: ScenarioRun) -> None:
    consumer = run.subscribed(numbers(1), kind="Shared").consumer
    message = run.receive(consumer, 1)[0]
    run.attempt("by message", lambda: consumer.acknowledge_cumulative(message))
    run.attempt("by id", lambda: consumer.acknowledge_cumulative(message.message_id()))


@scenario(area="cumulative", title="Failover takes cumulative acknowledgements, a partition at a time")
def on_partitions(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2)
    consumer = run.consumer(topic, kind="Failover")
    run.send_partition_by_partition(topic, {0: ["a0", "a1", "a2"], 1: ["b0", "b1", "b2"]})
    found = {run.view(message): message for message in run.receive(consumer, 6)}
    consumer.acknowledge_cumulative(found["a1"])
    consumer.close()
    again = run.consumer(topic, kind="Failover")
    run.record_set("again", run.receive(again, 4))
    run.record_messages("and then", run.rest(again))
