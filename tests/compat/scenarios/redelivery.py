"""Messages that come again: negative acknowledgements, time-outs, asking for it."""

from __future__ import annotations

from typing import Any

from tests.compat.harness.driver import PATIENCE_MS, ScenarioRun, numbers
from tests.compat.harness.scenario import scenario

NACKS = "negative acks"
SOON: dict[str, Any] = {"negative_ack_redelivery_delay_ms": 200}
COUNTED = ("data", "redelivery_count")


@scenario(area=NACKS, title="A negatively acknowledged message comes again, counted")
def comes_again(run: ScenarioRun) -> None:
    consumer = run.subscribed(numbers(3), kind="Shared", **SOON).consumer
    messages = run.receive(consumer, 3)
    consumer.negative_acknowledge(messages[1])
    run.record_messages("first", messages, *COUNTED)
    run.record_messages("again", run.receive(consumer, 1), *COUNTED)
    run.record_messages("and then", run.rest(consumer))


@scenario(area=NACKS, title="The count grows with every time")
def count_grows(run: ScenarioRun) -> None:
    consumer = run.subscribed(["x"], kind="Shared", **SOON).consumer
    for turn in range(4):
        message = run.receive(consumer, 1)[0]
        run.record("turn", [turn, message.redelivery_count()])
        consumer.negative_acknowledge(message)


@scenario(area=NACKS, title="By id")
def by_id(run: ScenarioRun) -> None:
    consumer = run.subscribed(numbers(2), kind="Shared", **SOON).consumer
    messages = run.receive(consumer, 2)
    consumer.negative_acknowledge(messages[0].message_id())
    run.record_messages("again", run.receive(consumer, 1), *COUNTED)


@scenario(area=NACKS, title="Before the delay nothing comes")
def waits(run: ScenarioRun) -> None:
    consumer = run.subscribed(["x"], kind="Shared", negative_ack_redelivery_delay_ms=3000).consumer
    consumer.negative_acknowledge(run.receive(consumer, 1)[0])
    run.record_messages("at once", run.rest(consumer, 1000))
    run.record_messages("in time", run.receive(consumer, 1), *COUNTED)


def _closes(run: ScenarioRun, *, other: bool = False, **options: Any) -> None:
    """A consumer refuses a message for long, and closes; what the next one (or, there already, the `other` one) gets of
    it soon."""
    topic, consumer, _ = run.subscribed(["x", "y"], kind="Shared", negative_ack_redelivery_delay_ms=30_000, **options)
    for message in run.receive(consumer, 2):
        if run.view(message) == "x":
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
    following = run.consumer(topic, kind="Shared", **options) if other else None
    consumer.close()
    if following is None:
        following = run.consumer(topic, kind="Shared", **options)
    run.record_messages("soon", run.rest(following, 4000), *COUNTED)


@scenario(area=NACKS, title="A message that was refused for long, when its consumer closes")
def closed_meanwhile(run: ScenarioRun) -> None:
    _closes(run)


@scenario(area=NACKS, title="The same beside another consumer")
def closed_beside_another(run: ScenarioRun) -> None:
    _closes(run, other=True)


@scenario(area=NACKS, title="The same with a dead letter policy")
def closed_with_dead_letters(run: ScenarioRun) -> None:
    _closes(run, dead_letter_policy=run.sdk.ConsumerDeadLetterPolicy(max_redeliver_count=5))


@scenario(area=NACKS, title="The same with a dead letter policy, beside another consumer")
def closed_with_dead_letters_beside_another(run: ScenarioRun) -> None:
    _closes(run, other=True, dead_letter_policy=run.sdk.ConsumerDeadLetterPolicy(max_redeliver_count=5))


@scenario(area=NACKS, title="An acknowledgement while the delay runs")
def acknowledged_meanwhile(run: ScenarioRun) -> None:
    consumer = run.subscribed(numbers(2), kind="Shared", negative_ack_redelivery_delay_ms=1000).consumer
    messages = run.receive(consumer, 2)
    consumer.negative_acknowledge(messages[0])
    consumer.negative_acknowledge(messages[1])
    consumer.acknowledge(messages[0])
    run.record_messages("again", run.receive(consumer, 1), *COUNTED)
    run.record_messages("and then", run.rest(consumer))


@scenario(area=NACKS, title="Another consumer may get it")
def goes_to_others(run: ScenarioRun) -> None:
    topic, first, _ = run.subscribed(["x"], kind="Shared", negative_ack_redelivery_delay_ms=1000)
    first.negative_acknowledge(run.receive(first, 1)[0])
    second = run.consumer(topic, kind="Shared")
    first.close()
    run.record_messages("second", run.receive(second, 1))


@scenario(area=NACKS, title="On Exclusive, what follows comes again with it")
def on_exclusive(run: ScenarioRun) -> None:
    consumer = run.subscribed(numbers(4), **SOON).consumer
    messages = run.receive(consumer, 4)
    consumer.acknowledge(messages[0])
    consumer.negative_acknowledge(messages[2])
    run.record_messages("again", run.rest(consumer, 1500), *COUNTED)


@scenario(area=NACKS, title="On a partitioned topic")
def on_partitions(run: ScenarioRun) -> None:
    consumer = run.subscribed(numbers(6), kind="Shared", **SOON, partitions=3).consumer
    for message in run.receive(consumer, 6):
        consumer.negative_acknowledge(message)
    run.record_set("again", run.receive(consumer, 6), *COUNTED)


@scenario(area=NACKS, title="redeliver_unacknowledged_messages on Shared gives all again, in order, counted")
def redeliver_shared(run: ScenarioRun) -> None:
    consumer = run.subscribed(numbers(5), kind="Shared").consumer
    consumer.acknowledge(run.receive(consumer, 5)[2])
    run.record_messages("nothing more", run.rest(consumer))  # the official client sends acknowledgements a moment later
    for _ in range(2):
        consumer.redeliver_unacknowledged_messages()
        run.record_messages("again", run.receive(consumer, 4), *COUNTED)


@scenario(area=NACKS, title="redeliver_unacknowledged_messages on Exclusive starts after the mark-delete position")
def redeliver_exclusive(run: ScenarioRun) -> None:
    consumer = run.subscribed(numbers(5)).consumer
    messages = run.receive(consumer, 5)
    consumer.acknowledge_cumulative(messages[1])
    consumer.acknowledge(messages[3])
    consumer.redeliver_unacknowledged_messages()
    run.record_messages("again", run.receive(consumer, 2), "data")
    run.record_messages("and then", run.rest(consumer))


@scenario(area="ack timeout", title="What is not acknowledged in time comes again, counted")
def timeout_passes(run: ScenarioRun) -> None:
    consumer = run.subscribed(numbers(3), kind="Shared", unacked_messages_timeout_ms=10_000).consumer
    messages = run.receive(consumer, 3)
    consumer.acknowledge(messages[0])
    run.record_set("again", [consumer.receive(PATIENCE_MS + 10_000) for _ in range(2)], *COUNTED)


@scenario(area="ack timeout", title="An acknowledged message does not come again")
def timeout_of_acknowledged(run: ScenarioRun) -> None:
    consumer = run.subscribed(numbers(2), kind="Shared", unacked_messages_timeout_ms=10_000).consumer
    run.receive_acked(consumer, 2)
    run.record_messages("again", run.rest(consumer, 12_000))


@scenario(area="ack timeout", title="Which time-outs are accepted")
def timeout_range(run: ScenarioRun) -> None:
    topic = run.topic()
    for timeout_ms in (0, 1, 9_999, 10_000):
        consumer = run.attempt(
            str(timeout_ms),
            lambda ms=timeout_ms: run.consumer(topic, unacked_messages_timeout_ms=ms),  # type: ignore[misc]
        )
        if consumer is not None:
            consumer.close()
