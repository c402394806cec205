"""Acknowledgements in transactions: cumulative ones, and those of messages of batches."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.compat.harness.driver import ScenarioRun, numbers
from tests.compat.harness.scenario import scenario
from tests.compat.scenarios.transactional import (
    BY_JAVA,
    Transactions,
    again,
    begun,
    end,
    filled,
    send_together,
)

AREA: dict[str, Any] = {"area": "transactions: acks", **BY_JAVA}
_ENDS = (True, False)


@scenario(**AREA, title="Cumulatively: after the commit nothing comes again, after the abort all of it")
def cumulative(run: ScenarioRun) -> None:
    for kind in ("Exclusive", "Failover"):
        for commit in _ENDS:
            topic, tx, consumer, messages = begun(run, 5, kind, name=f"{kind}-{commit}")
            txn = tx.begin()
            consumer.acknowledge_cumulative(messages[2], txn=txn)
            end(txn, commit=commit)
            if commit:
                run.record_messages(f"{kind}, committed", run.rest(consumer))
            again(run, tx, topic, f"{kind}, next, committed: {commit}", kind, closing=consumer)


@scenario(**AREA, title="After an abort the same consumer gets again what was acknowledged cumulatively")
def cumulative_abort(run: ScenarioRun) -> None:
    _topic, tx, consumer, messages = begun(run, 5, "Exclusive")
    txn = tx.begin()
    consumer.acknowledge_cumulative(messages[2], txn=txn)
    txn.abort()
    run.record_messages("of itself", run.rest(consumer))
    consumer.redeliver_unacknowledged_messages()
    run.record_messages("when it asks", run.receive(consumer, 5))


@scenario(**AREA, title="Cumulatively on Shared and Key_Shared")
def cumulative_shared(run: ScenarioRun) -> None:
    for kind in ("Shared", "KeyShared"):
        topic, tx, consumer, messages = begun(run, 2, kind, name=kind)
        txn = tx.begin()
        try:
            consumer.acknowledge_cumulative(messages[1], txn=txn)
        except run.sdk.PulsarException:
            run.record("refused")  # InvalidConfiguration with Java's client alone
        run.attempt("commit", txn.commit)
        again(run, tx, topic, "left", kind, closing=consumer)


@scenario(**AREA, title="Cumulatively, further and less far in the same transaction")
def cumulative_twice(run: ScenarioRun) -> None:
    topic, tx, consumer, messages = begun(run, 6, "Exclusive")
    txn = tx.begin()
    run.attempt("to 1", partial(consumer.acknowledge_cumulative, messages[1], txn=txn))
    run.attempt("to 3", partial(consumer.acknowledge_cumulative, messages[3], txn=txn))
    txn.commit()
    again(run, tx, topic, "left", "Exclusive", closing=consumer)


@scenario(**AREA, title="Cumulatively less far than before in the same transaction")
def cumulative_back(run: ScenarioRun) -> None:
    for back in (1, 2):
        topic, tx, consumer, messages = begun(run, 4, "Exclusive", name=f"topic-{back}")
        txn = tx.begin()
        consumer.acknowledge_cumulative(messages[2], txn=txn)
        run.attempt(f"to {back}", partial(consumer.acknowledge_cumulative, messages[back], txn=txn))
        run.attempt("commit", txn.commit)
        again(run, tx, topic, "left", "Exclusive", closing=consumer)


@scenario(**AREA, title="Cumulatively in two open transactions")
def cumulative_conflict(run: ScenarioRun) -> None:
    topic, tx, consumer, messages = begun(run, 5, "Exclusive")
    one, two = tx.begin(), tx.begin()
    run.attempt("one to 1", partial(consumer.acknowledge_cumulative, messages[1], txn=one))
    run.attempt("two to 3", partial(consumer.acknowledge_cumulative, messages[3], txn=two))
    run.attempt("one is committed", one.commit)
    run.attempt("two is committed", two.commit)
    again(run, tx, topic, "left", "Exclusive", closing=consumer)


def _cumulative_and_single(run: ScenarioRun, *, of_one: bool) -> None:
    for first in ("cumulative", "single"):
        topic, tx, consumer, messages = begun(run, 5, "Exclusive", name=first)
        one = tx.begin()
        two = one if of_one else tx.begin()
        if first == "cumulative":
            consumer.acknowledge_cumulative(messages[2], txn=one)
            run.attempt("single below", partial(consumer.acknowledge, messages[1], txn=two))
        else:
            consumer.acknowledge(messages[1], txn=one)
            run.attempt("cumulative over it", partial(consumer.acknowledge_cumulative, messages[2], txn=two))
        run.attempt("commit", one.commit)
        if not of_one:
            run.attempt("commit of the other", two.commit)
        again(run, tx, topic, f"{first} first", "Exclusive", closing=consumer)


@scenario(**AREA, title="A single message and a cumulative acknowledgement in one transaction")
def cumulative_and_single(run: ScenarioRun) -> None:
    _cumulative_and_single(run, of_one=True)


@scenario(**AREA, title="A single message and a cumulative acknowledgement in two transactions")
def cumulative_and_single_of_two(run: ScenarioRun) -> None:
    _cumulative_and_single(run, of_one=False)


@scenario(**AREA, title="Cumulatively to what is acknowledged already")
def cumulative_acknowledged_before(run: ScenarioRun) -> None:
    topic, tx, consumer, messages = begun(run, 5, "Exclusive")
    consumer.acknowledge_cumulative(messages[2])
    run.until(lambda: run.admin.backlog(topic, "sub") == 2, "the acknowledgement")
    for number in (1, 2, 3):
        txn = tx.begin()
        run.attempt(f"to {number}", partial(consumer.acknowledge_cumulative, messages[number], txn=txn))
        txn.abort()


@scenario(**AREA, title="Cumulatively inside a partitioned topic: of one partition")
def cumulative_one_partition(run: ScenarioRun) -> None:
    topic, tx = run.topic("topic", 2), Transactions(run)
    part = f"{topic}-partition-1"
    consumer, messages = filled(run, tx, part, 4, "Failover")
    txn = tx.begin()
    consumer.acknowledge_cumulative(messages[2], txn=txn)
    txn.commit()
    again(run, tx, part, "left", "Failover", closing=consumer)


def _batch(run: ScenarioRun, tx: Transactions, topic: str, kind: str = "Shared") -> Any:
    """A consumer that has received a batch of four, and its messages."""
    consumer = tx.consumer(topic, kind, batch_index_ack_enabled=True)
    producer = tx.producer(topic, batching_enabled=True, batching_max_publish_delay_ms=10_000)
    send_together(producer, None, *numbers(4))
    return consumer, run.receive(consumer, 4)


@scenario(**AREA, title="A part of a batch: committed, aborted")
def batch_index(run: ScenarioRun) -> None:
    for commit in _ENDS:
        topic, tx = run.topic(f"topic-{commit}"), Transactions(run)
        consumer, messages = _batch(run, tx, topic)
        txn = tx.begin()
        for message in messages[:2]:
            consumer.acknowledge(message, txn=txn)
        end(txn, commit=commit)
        came = [*run.receive(consumer, 0 if commit else 4), *run.rest(consumer)]
        run.record_set(f"again, committed: {commit}", came)
        again(run, tx, topic, "left", closing=consumer)


@scenario(**AREA, title="Parts of a batch in two transactions, one is aborted")
def batch_index_two(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    consumer, messages = _batch(run, tx, topic)
    one, two = tx.begin(), tx.begin()
    run.attempt("3 in one", partial(consumer.acknowledge, messages[3], txn=one))
    run.attempt("2 in one", partial(consumer.acknowledge, messages[2], txn=one))
    run.attempt("0 in two", partial(consumer.acknowledge, messages[0], txn=two))
    run.attempt("two is aborted", two.abort)
    run.attempt("one is committed", one.commit)
    again(run, tx, topic, "left", closing=consumer)


@scenario(**AREA, title="One message of a batch in two transactions")
def batch_index_conflict(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    consumer, messages = _batch(run, tx, topic)
    one, two = tx.begin(), tx.begin()
    run.attempt("one", partial(consumer.acknowledge, messages[1], txn=one))
    run.attempt("two", partial(consumer.acknowledge, messages[1], txn=two))
    run.attempt("another one in two", partial(consumer.acknowledge, messages[2], txn=two))
    run.attempt("two is aborted", two.abort)
    run.attempt("one is committed", one.commit)
    again(run, tx, topic, "left", closing=consumer)


@scenario(**AREA, title="A batch, all of it, message by message in one transaction")
def batch_whole(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    consumer, messages = _batch(run, tx, topic)
    txn = tx.begin()
    for message in messages:
        consumer.acknowledge(message, txn=txn)
    txn.commit()
    run.until(lambda: run.admin.backlog(topic, "sub") == 0, "no backlog")
    again(run, tx, topic, "left", closing=consumer)


@scenario(**AREA, title="Cumulatively into a batch")
def batch_cumulative(run: ScenarioRun) -> None:
    for commit in _ENDS:
        topic, tx = run.topic(f"topic-{commit}"), Transactions(run)
        consumer, messages = _batch(run, tx, topic, "Exclusive")
        txn = tx.begin()
        consumer.acknowledge_cumulative(messages[1], txn=txn)
        end(txn, commit=commit)
        again(run, tx, topic, f"committed: {commit}", "Exclusive", closing=consumer)
