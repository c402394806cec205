"""Acknowledgements of single messages in transactions: held, applied, undone, in conflict."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.compat.harness.driver import ScenarioRun, numbers
from tests.compat.harness.scenario import scenario
from tests.compat.scenarios.transactional import BY_JAVA, Transactions, again, begun, end, filled, send

AREA: dict[str, Any] = {"area": "transactions: acks", **BY_JAVA}
_ENDS = (True, False)


# Single messages --------------------------------------------------------------------------------------------------


@scenario(**AREA, title="After the commit they do not come again, after the abort they do")
def single(run: ScenarioRun) -> None:
    for commit in _ENDS:
        topic, tx, consumer, messages = begun(run, 5, name=f"topic-{commit}")
        txn = tx.begin()
        for message in messages[:4:2]:
            consumer.acknowledge(message, txn=txn)
        end(txn, commit=commit)
        came = [*run.receive(consumer, 0 if commit else 2), *run.rest(consumer)]
        run.record_set(f"of itself, committed: {commit}", came, "data", "redelivery_count")
        again(run, tx, topic, "of the next", closing=consumer)


@scenario(**AREA, title="By the id alone")
def by_id(run: ScenarioRun) -> None:
    topic, tx, consumer, messages = begun(run, 3)
    txn = tx.begin()
    consumer.acknowledge(messages[1].message_id(), txn=txn)
    txn.commit()
    again(run, tx, topic, "left", closing=consumer)


@scenario(**AREA, title="While the transaction is open, its messages are nobody's")
def held(run: ScenarioRun) -> None:
    for commit in _ENDS:
        topic, tx, consumer, messages = begun(run, 4, name=f"topic-{commit}")
        txn = tx.begin()
        for message in messages[:2]:
            consumer.acknowledge(message, txn=txn)
        consumer.redeliver_unacknowledged_messages()
        run.record_set("asked again", [*run.receive(consumer, 2), *run.rest(consumer)])
        consumer.close()
        other = tx.consumer(topic, "Shared")
        run.record_set("another consumer", [*run.receive(other, 2), *run.rest(other)])
        end(txn, commit=commit)
        run.record_set(f"committed: {commit}", [*run.receive(other, 0 if commit else 2), *run.rest(other)])


@scenario(**AREA, title="The consumer is closed before the end")
def consumer_closed(run: ScenarioRun) -> None:
    for commit in _ENDS:
        topic, tx, consumer, messages = begun(run, 3, name=f"topic-{commit}")
        txn = tx.begin()
        consumer.acknowledge(messages[0], txn=txn)
        consumer.close()
        run.attempt("ended", partial(end, txn, commit=commit))
        again(run, tx, topic, f"committed: {commit}")


@scenario(**AREA, title="Counts of redeliveries after aborts")
def counts(run: ScenarioRun) -> None:
    _topic, tx, consumer, messages = begun(run, 1)
    for _ in range(3):
        txn = tx.begin()
        consumer.acknowledge(messages[0], txn=txn)
        txn.abort()
        messages = run.receive(consumer, 1)
        run.record_messages("again", messages, "data", "redelivery_count")


@scenario(**AREA, title="Every type of subscription")
def subscription_types(run: ScenarioRun) -> None:
    tx = Transactions(run)
    for kind in ("Exclusive", "Failover", "Shared", "KeyShared"):
        topic = run.topic(kind)
        consumer, messages = filled(run, tx, topic, 4, kind)
        committed, aborted = tx.begin(), tx.begin()
        for message in messages[:2]:
            consumer.acknowledge(message, txn=committed)
        consumer.acknowledge(messages[2], txn=aborted)
        committed.commit()
        aborted.abort()
        count = 2 if kind in ("Exclusive", "Failover") else 1
        run.record_set(f"{kind}: again", [*run.receive(consumer, count), *run.rest(consumer)])
        again(run, tx, topic, f"{kind}: next", kind, closing=consumer)


@scenario(**AREA, title="An ordered subscription: what comes again after an abort, and in which order")
def ordered_abort(run: ScenarioRun) -> None:
    for kind in ("Exclusive", "Failover"):
        _topic, tx, consumer, messages = begun(run, 5, kind, name=kind)
        txn = tx.begin()
        consumer.acknowledge(messages[1], txn=txn)
        consumer.acknowledge(messages[3], txn=txn)
        txn.abort()
        run.record_messages(f"{kind}: again", [*run.receive(consumer, 5), *run.rest(consumer)])


@scenario(**AREA, title="Several subscriptions, topics and partitions in one transaction")
def several(run: ScenarioRun) -> None:
    one, parts, tx = run.topic("one"), run.topic("parts", 3), Transactions(run)
    for commit in _ENDS:
        consumers = [
            tx.consumer(one, "Shared", "a"),
            tx.consumer(one, "Shared", "b"),
            tx.consumer(parts, "Shared", "a"),
        ]
        send(tx.producer(one), None, "0")
        send(tx.producer(parts), None, *numbers(6))
        txn = tx.begin()
        for consumer, count in zip(consumers, (1, 1, 6), strict=True):
            for message in run.receive(consumer, count):
                consumer.acknowledge(message, txn=txn)
        end(txn, commit=commit)
        for consumer, count in zip(consumers, (1, 1, 6), strict=True):
            came = [*run.receive(consumer, 0 if commit else count), *run.rest(consumer)]
            run.record_set(f"committed: {commit}", came)
            consumer.close()
        for topic, subscription in ((one, "a"), (one, "b"), (parts, "a")):
            again(run, tx, topic, "next", subscription=subscription)


@scenario(**AREA, title="A consumer of several topics")
def multi_topics(run: ScenarioRun) -> None:
    topics, tx = [run.topic("one"), run.topic("two")], Transactions(run)
    consumer = tx.consumer(topics, "Shared")
    for topic in topics:
        send(tx.producer(topic), None, "0", "1")
    messages = run.receive(consumer, 4)
    txn = tx.begin()
    for message in messages:
        if run.view(message) == "0":
            consumer.acknowledge(message, txn=txn)
    txn.commit()
    consumer.close()
    for topic in topics:
        again(run, tx, topic, "left")


# Conflicts --------------------------------------------------------------------------------------------------------


@scenario(**AREA, title="One message in two open transactions, and what becomes of the second")
def conflict(run: ScenarioRun) -> None:
    topic, tx, consumer, messages = begun(run, 3)
    one, two = tx.begin(), tx.begin()
    run.attempt("the first", partial(consumer.acknowledge, messages[0], txn=one))
    run.attempt("the second", partial(consumer.acknowledge, messages[0], txn=two))
    run.record("states", [one.state, two.state])
    run.attempt("the second, something else", partial(consumer.acknowledge, messages[1], txn=two))
    run.attempt("the first is committed", one.commit)
    run.attempt("the second is committed", two.commit)
    run.record("states, at last", [one.state, two.state])
    again(run, tx, topic, "left", closing=consumer)


@scenario(**AREA, title="After an abort the message is free for another transaction")
def free_after_abort(run: ScenarioRun) -> None:
    topic, tx, consumer, messages = begun(run, 1)
    one, two = tx.begin(), tx.begin()
    consumer.acknowledge(messages[0], txn=one)
    one.abort()
    freed = run.receive(consumer, 1)
    run.attempt("another", partial(consumer.acknowledge, freed[0], txn=two))
    two.commit()
    again(run, tx, topic, "left", closing=consumer)


@scenario(**AREA, title="The same message twice in one transaction")
def twice(run: ScenarioRun) -> None:
    topic, tx, consumer, messages = begun(run, 2)
    txn = tx.begin()
    run.attempt("first", partial(consumer.acknowledge, messages[0], txn=txn))
    run.attempt("again", partial(consumer.acknowledge, messages[0], txn=txn))
    run.attempt("committed", txn.commit)
    again(run, tx, topic, "left", closing=consumer)


@scenario(**AREA, title="A message that is acknowledged already")
def acknowledged_before(run: ScenarioRun) -> None:
    topic, tx, consumer, messages = begun(run, 4)
    consumer.acknowledge(messages[0])
    consumer.acknowledge(messages[2])
    committed = tx.begin()
    consumer.acknowledge(messages[3], txn=committed)
    committed.commit()
    run.until(lambda: run.admin.backlog(topic, "sub") == 1, "the acknowledgements")
    for number in (0, 2, 3):
        txn = tx.begin()
        run.attempt(f"message {number}", partial(consumer.acknowledge, messages[number], txn=txn))
        txn.abort()
    run.record_set("again", run.rest(consumer))


@scenario(**AREA, title="An ordinary acknowledgement of what an open transaction holds")
def plain_of_held(run: ScenarioRun) -> None:
    for commit in _ENDS:
        topic, tx, consumer, messages = begun(run, 2, name=f"topic-{commit}")
        txn = tx.begin()
        consumer.acknowledge(messages[0], txn=txn)
        run.attempt("ordinary", partial(consumer.acknowledge, messages[0]))
        run.attempt("ended", partial(end, txn, commit=commit))
        again(run, tx, topic, f"committed: {commit}", closing=consumer)


@scenario(**AREA, title="A negative acknowledgement of what an open transaction holds")
def negative_of_held(run: ScenarioRun) -> None:
    _topic, tx, consumer, messages = begun(run, 2, negative_ack_redelivery_delay_ms=200)
    txn = tx.begin()
    consumer.acknowledge(messages[0], txn=txn)
    consumer.negative_acknowledge(messages[0])
    consumer.negative_acknowledge(messages[1])
    run.record_set("while it is open", [*run.receive(consumer, 1), *run.rest(consumer)])
    txn.commit()
    run.record_set("and then", run.rest(consumer, 1_500))


@scenario(**AREA, title="Acknowledging in a transaction that is over")
def after_the_end(run: ScenarioRun) -> None:
    topic, tx, consumer, messages = begun(run, 3)
    for commit in _ENDS:
        txn = tx.begin()
        end(txn, commit=commit)
        run.attempt(f"committed: {commit}", partial(consumer.acknowledge, messages[0], txn=txn))
    timed_out = tx.begin(500)
    run.until(lambda: str(getattr(timed_out.state, "name", timed_out.state)) != "OPEN", "the time-out")
    run.attempt("timed out", partial(consumer.acknowledge, messages[1], txn=timed_out))
    again(run, tx, topic, "left", closing=consumer)


@scenario(**AREA, title="A transaction whose time is over gives its messages back")
def timed_out(run: ScenarioRun) -> None:
    _topic, tx, consumer, messages = begun(run, 3)
    txn = tx.begin(8_000)
    for message in messages[:2]:
        consumer.acknowledge(message, txn=txn)
    run.record_set("again", run.receive(consumer, 2))
    run.attempt("commit", txn.commit)
