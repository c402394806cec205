"""Transactions: how they end, and what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import scenario
from tests.compat.scenarios.transactional import BY_JAVA, Transactions, after, end, send

AREA: dict[str, Any] = {"area": "transactions: ends", **BY_JAVA}
_LONG_MS = 1_800_000


@scenario(**AREA, title="The states of a transaction")
def states(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    producer = tx.producer(topic)
    for commit in (True, False):
        txn = tx.begin()
        run.record("begun", txn.state)
        send(producer, txn, "a")
        run.record("used", txn.state)
        end(txn, commit=commit)
        run.record(after(commit), txn.state)


@scenario(**AREA, title="A transaction in which nothing happened")
def empty(run: ScenarioRun) -> None:
    tx = Transactions(run)
    for commit in (True, False):
        txn = tx.begin()
        run.attempt("ended", partial(end, txn, commit=commit))
        run.record(after(commit), txn.state)


@scenario(**AREA, title="Ending twice the same way, and the other way")
def ended_twice(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    consumer, producer = tx.consumer(topic), tx.producer(topic)
    for commit in (True, False):
        for again in (True, False):
            txn = tx.begin()
            send(producer, txn, f"{commit} then {again}")
            end(txn, commit=commit)
            what = f"{after(commit)}, {'commit' if again else 'abort'}"
            run.attempt(what, partial(end, txn, commit=again))
            run.record(f"{what}: state", txn.state)
    run.record_messages("seen", run.rest(consumer))


@scenario(**AREA, title="Sending in a transaction that is over")
def sending_after_the_end(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    consumer, producer = tx.consumer(topic), tx.producer(topic)
    for commit in (True, False):
        txn = tx.begin()
        send(producer, txn, f"in it {commit}")
        end(txn, commit=commit)
        run.attempt(f"send {after(commit)}", partial(send, producer, txn, "late"))
        run.record("state", txn.state)
    send(producer, None, "plain")
    run.record_messages("seen", run.receive(consumer, 2))
    run.record_messages("and then", run.rest(consumer))


@scenario(**AREA, title="A transaction whose time is over: its state, its messages, what is refused")
def timed_out(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    consumer, producer = tx.consumer(topic), tx.producer(topic)
    txn = tx.begin(8_000)
    send(producer, txn, "in it")
    send(producer, None, "behind it")
    run.record_messages("after its time", run.receive(consumer, 1))
    run.until(lambda: str(getattr(txn.state, "name", txn.state)) != "OPEN", "the time-out")
    run.record("state", txn.state)
    run.attempt("send", partial(send, producer, txn, "late"))
    run.attempt("commit", txn.commit)
    run.attempt("abort", txn.abort)
    run.record("state, at last", txn.state)
    run.record_messages("and then", run.rest(consumer))


@scenario(**AREA, title="Time-outs that are refused")
def timeouts_refused(run: ScenarioRun) -> None:
    tx = Transactions(run)
    for timeout_ms in (0, -1):
        run.attempt(f"{timeout_ms} ms", partial(tx.begin, timeout_ms))


@scenario(**AREA, title="The shortest time-out and a long one")
def timeouts_taken(run: ScenarioRun) -> None:
    tx = Transactions(run)
    for timeout_ms in (1, _LONG_MS):
        run.attempt(f"{timeout_ms} ms", partial(tx.begin, timeout_ms))


@scenario(**AREA, title="Without enable_transaction there are none")
def not_enabled(run: ScenarioRun) -> None:
    run.attempt("new_transaction", lambda: run.client().new_transaction(60_000))


@scenario(**AREA, title="A transaction of one client with the producer of another")
def two_clients(run: ScenarioRun) -> None:
    topic, one, two = run.topic(), Transactions(run), Transactions(run)
    consumer, txn = one.consumer(topic), one.begin()
    run.attempt("send", partial(send, two.producer(topic), txn, "a"))
    run.attempt("commit", txn.commit)
    run.record_messages("seen", run.rest(consumer))


@scenario(**AREA, title="The producer is closed before the end")
def producer_closed(run: ScenarioRun) -> None:
    for commit in (True, False):
        topic, tx = run.topic(f"topic-{commit}"), Transactions(run)
        consumer, producer, txn = tx.consumer(topic), tx.producer(topic), tx.begin()
        send(producer, txn, "a", "b")
        producer.close()
        run.attempt("ended", partial(end, txn, commit=commit))
        run.record_messages(after(commit), run.rest(consumer))


@scenario(**AREA, title="The client is closed before the end: its transaction times out")
def client_closed(run: ScenarioRun) -> None:
    topic, gone, tx = run.topic(), Transactions(run), Transactions(run)
    consumer = tx.consumer(topic)
    txn = gone.begin(8_000)
    send(gone.producer(topic), txn, "in it")
    gone.client.close()
    send(tx.producer(topic), None, "behind it")
    run.record_messages("received", run.receive(consumer, 1))


@scenario(**AREA, title="A send that fails, and what becomes of its transaction")
def failed_send(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    consumer, producer, txn = tx.consumer(topic), tx.producer(topic), tx.begin()
    send(producer, txn, "a")
    try:
        producer.send(b"x" * 6_000_000, txn=txn)
    except run.sdk.PulsarException:
        run.record("too big")  # InvalidMessage with Java's client, MessageTooBig with Python's and ours
    run.record("state", txn.state)
    run.attempt("another send", partial(send, producer, txn, "b"))
    run.attempt("commit", txn.commit)
    run.record("state after it", txn.state)
    run.record_messages("seen", run.rest(consumer))


@scenario(**AREA, title="A send through a closed producer, and what becomes of its transaction")
def closed_send(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    consumer, producer, txn = tx.consumer(topic), tx.producer(topic), tx.begin()
    send(producer, txn, "a")
    producer.close()
    run.attempt("closed", partial(send, producer, txn, "b"))
    run.record("state", txn.state)
    run.attempt("commit", txn.commit)
    run.record("state after it", txn.state)
    run.record_messages("seen", run.rest(consumer))


@scenario(**AREA, title="A producer with a send time-out")
def send_timeout(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    producer, txn = tx.producer(topic, send_timeout_millis=10_000), tx.begin()
    run.attempt("send", partial(send, producer, txn, "a"))
    run.attempt("commit", txn.commit)
