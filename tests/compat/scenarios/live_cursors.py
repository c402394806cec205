"""Administration of subscriptions whose consumers are connected: reset, skip, clear, unsubscribe."""

from __future__ import annotations

from typing import Any

from tests.compat.harness.driver import ScenarioRun, numbers
from tests.compat.harness.scenario import scenario

AREA = "live cursors"


def _backlog_is(run: ScenarioRun, topic: str, what: str, count: int) -> None:
    run.until(lambda: run.admin.backlog(topic, "sub") == count, f"a backlog of {count}")
    run.record(what, count)


@scenario(area=AREA, title="Resetting to a time: the consumer gets everything from there")
def reset_to_a_time(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(["1", "2"])
    between = run.receive_acked(consumer, 2)[1].publish_timestamp() + 1
    run.until(lambda: run.is_after(between), "the next milliseconds")
    run.send(topic, ["3", "4"])
    run.receive_acked(consumer, 2)
    run.attempt("reset", lambda: run.admin.reset_cursor(topic, "sub", between))
    run.record_messages("received", run.receive(consumer, 2), "data", "redelivery_count")
    run.record_messages("and then", run.rest(consumer))


@scenario(area=AREA, title="Resetting to the past and to the future")
def reset_far(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(numbers(4), kind="Shared")
    last = run.receive_acked(consumer, 4)[-1]
    run.attempt("the past", lambda: run.admin.reset_cursor(topic, "sub", 1))
    run.record_messages("received", run.receive(consumer, 4))
    future = last.publish_timestamp() + 3_600_000
    run.attempt("the future", lambda: run.admin.reset_cursor(topic, "sub", future))
    run.record_messages("nothing", run.rest(consumer))
    run.send(topic, ["new"])
    run.record_messages("what is new", run.receive(consumer, 1))


@scenario(area=AREA, title="Resetting to a message: it comes next")
def reset_to_a_message(run: ScenarioRun) -> None:
    topic, consumer, ids = run.subscribed(numbers(5))
    run.receive_acked(consumer, 5)
    run.attempt("reset", lambda: run.admin.reset_cursor_to(topic, "sub", ids[2]))
    run.record_messages("received", run.receive(consumer, 3))
    run.record_messages("and then", run.rest(consumer))


@scenario(area=AREA, title="Resetting drops what waits in the inboxes")
def reset_with_full_inboxes(run: ScenarioRun) -> None:
    topic, consumer, ids = run.subscribed(numbers(20))
    run.receive(consumer, 1)
    run.attempt("reset", lambda: run.admin.reset_cursor_to(topic, "sub", ids[15]))
    run.record_messages("received", run.receive(consumer, 5))
    run.record_messages("and then", run.rest(consumer))


@scenario(area=AREA, title="Resetting a Shared subscription with two consumers: acknowledgements are forgotten")
def reset_shared(run: ScenarioRun) -> None:
    topic = run.topic()
    first, second = (run.consumer(topic, kind="Shared") for _ in range(2))
    ids = run.send(topic, numbers(10))
    for consumer in (first, second):
        for message in run.rest(consumer):
            consumer.acknowledge(message)
    _backlog_is(run, topic, "backlog", 0)
    run.attempt("reset", lambda: run.admin.reset_cursor_to(topic, "sub", ids[4]))
    run.record_set("received", [*run.rest(first), *run.rest(second)])


@scenario(area=AREA, title="A seek of one consumer moves the others of the subscription")
def seek_moves_all(run: ScenarioRun) -> None:
    topic = run.topic()
    first, second = (run.client().subscribe(topic, "sub", consumer_type=run.sdk.ConsumerType.Shared) for _ in range(2))
    run.send(topic, numbers(10))
    for consumer in (first, second):
        for message in run.rest(consumer):
            consumer.acknowledge(message)
    first.seek(run.sdk.MessageId.earliest)
    run.record_set("received", [*run.rest(first), *run.rest(second)])


@scenario(area=AREA, title="Resetting a partitioned topic")
def reset_partitioned(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(numbers(9), kind="Shared", partitions=3)
    run.receive_acked(consumer, 9)
    run.attempt("reset", lambda: run.admin.reset_cursor(topic, "sub", 1))
    run.record_set("received", run.receive(consumer, 9))


@scenario(area=AREA, title="Skipping messages that wait in the inbox: they come; the next consumer does not get them")
def skip(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(numbers(6))
    run.record_messages("received", run.receive(consumer, 1))
    run.attempt("skip", lambda: run.admin.skip(topic, "sub", 3))
    _backlog_is(run, topic, "backlog", 3)
    run.record_messages("from the inbox", run.receive(consumer, 5))
    consumer.close()
    again = run.consumer(topic)
    run.record_messages("next time", run.receive(again, 3))
    run.record_messages("and then", run.rest(again))


@scenario(area=AREA, title="Skipping counts what is not acknowledged")
def skip_with_holes(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(numbers(8), kind="Shared")
    for message in run.receive(consumer, 8)[1::2]:
        consumer.acknowledge(message)
    _backlog_is(run, topic, "backlog", 4)
    run.attempt("skip", lambda: run.admin.skip(topic, "sub", 2))
    _backlog_is(run, topic, "backlog after it", 2)
    consumer.redeliver_unacknowledged_messages()
    run.record_messages("again", run.receive(consumer, 2))


@scenario(area=AREA, title="Skipping more than there is")
def skip_too_many(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(numbers(3), kind="Shared")
    run.receive(consumer, 3)
    run.attempt("skip", lambda: run.admin.skip(topic, "sub", 10))
    _backlog_is(run, topic, "backlog", 0)
    run.send(topic, ["new"])
    run.record_messages("what is new", run.receive(consumer, 1))


@scenario(area=AREA, title="Clearing the backlog: nothing comes again, what is new comes")
def clear(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(numbers(6), kind="Shared")
    run.receive(consumer, 6)
    run.attempt("clear", lambda: run.admin.clear_backlog(topic, "sub"))
    _backlog_is(run, topic, "backlog", 0)
    consumer.redeliver_unacknowledged_messages()
    run.record_messages("again", run.rest(consumer))
    run.send(topic, ["new"])
    run.record_messages("what is new", run.receive(consumer, 1))


@scenario(area=AREA, title="Clearing a backlog that was not read yet")
def clear_unread(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(numbers(30), receiver_queue_size=2)
    run.receive(consumer, 1)
    run.attempt("clear", lambda: run.admin.clear_backlog(topic, "sub"))
    _backlog_is(run, topic, "backlog", 0)
    consumer.close()
    again = run.consumer(topic)
    run.send(topic, ["new"])
    run.record_messages("next time", run.receive(again, 1))
    run.record_messages("and then", run.rest(again))


@scenario(area=AREA, title="Clearing a partitioned topic; messages are not skipped there")
def clear_partitioned(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(numbers(6), kind="Shared", partitions=2)
    run.receive(consumer, 6)
    run.attempt("clear", lambda: run.admin.clear_backlog(topic, "sub"))
    _backlog_is(run, topic, "backlog", 0)
    consumer.redeliver_unacknowledged_messages()
    run.record_messages("again", run.rest(consumer))


@scenario(area=AREA, title="Acknowledging, after a reset, what came before it")
def stale_acknowledgements(run: ScenarioRun) -> None:
    topic, consumer, ids = run.subscribed(numbers(4), kind="Shared")
    before = run.receive(consumer, 4)
    run.attempt("reset", lambda: run.admin.reset_cursor_to(topic, "sub", ids[0]))
    run.record_messages("received", run.receive(consumer, 4))
    for message in before[:2]:
        run.attempt("acknowledge", lambda m=message: consumer.acknowledge(m))  # type: ignore[misc]
    _backlog_is(run, topic, "backlog", 2)


@scenario(area=AREA, title="A subscription with a consumer is deleted by force only")
def unsubscribe(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(numbers(2))
    run.receive(consumer, 1)
    run.attempt("without force", lambda: run.admin.unsubscribe(topic, "sub"))
    run.record_messages("still there", run.receive(consumer, 1))
    run.attempt("by force", lambda: run.admin.unsubscribe(topic, "sub", force=True))


@scenario(area=AREA, title="What a consumer sees whose subscription was deleted by force")
def unsubscribed(run: ScenarioRun) -> None:
    topic, consumer, _ = run.subscribed(numbers(2), kind="Shared")
    run.receive_acked(consumer, 1)
    run.attempt("by force", lambda: run.admin.unsubscribe(topic, "sub", force=True))

    def received() -> Any:
        run.record_messages("received", run.rest(consumer))

    run.attempt("receive", received)
    run.record("listed", run.admin.list_subscriptions(topic))


@scenario(area=AREA, title="Deleting a subscription without consumers by force; one that is not there")
def unsubscribe_idle(run: ScenarioRun) -> None:
    topic = run.topic()
    run.consumer(topic).close()
    run.attempt("by force", lambda: run.admin.unsubscribe(topic, "sub", force=True))
    run.record("listed", run.admin.list_subscriptions(topic))
    run.attempt("again", lambda: run.admin.unsubscribe(topic, "sub", force=True))
