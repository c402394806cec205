"""Transactions: what is sent in them, and who sees it when."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import scenario
from tests.compat.scenarios.transactional import BY_JAVA, Transactions, after, end, send, send_together

AREA: dict[str, Any] = {"area": "transactions", **BY_JAVA}


@scenario(**AREA, title="What is sent in a transaction is seen after its commit, not before")
def commit_shows(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    consumer, producer = tx.consumer(topic), tx.producer(topic)
    txn = tx.begin()
    send(producer, txn, "a", "b")
    run.record_messages("before", run.rest(consumer))
    txn.commit()
    run.record_messages("after", run.receive(consumer, 2))
    run.record_messages("and then", run.rest(consumer))


@scenario(**AREA, title="What is sent in a transaction that is aborted is never seen")
def abort_hides(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    consumer, producer = tx.consumer(topic), tx.producer(topic)
    txn = tx.begin()
    send(producer, txn, "a", "b")
    txn.abort()
    send(producer, None, "plain")
    run.record_messages("after", run.receive(consumer, 1))
    run.record_messages("and then", run.rest(consumer))
    late = tx.consumer(topic, subscription="late", initial_position=run.sdk.InitialPosition.Earliest)
    run.record_messages("another subscription", run.receive(late, 1))


@scenario(**AREA, title="One transaction over topics and partitions, committed and aborted")
def several_topics(run: ScenarioRun) -> None:
    one, two, parts, tx = run.topic("one"), run.topic("two"), run.topic("parts", 3), Transactions(run)
    consumers = {name: tx.consumer(topic) for name, topic in (("one", one), ("two", two), ("parts", parts))}
    for commit in (True, False, True):
        txn = tx.begin()
        for name, topic in (("one", one), ("two", two)):
            send(tx.producer(topic), txn, f"{name} {commit}")
        producer = tx.producer(parts)
        send(producer, txn, *[f"part {number} {commit}" for number in range(6)])
        run.record("before", {name: len(run.rest(consumer)) for name, consumer in consumers.items()})
        end(txn, commit=commit)
        for name, consumer in consumers.items():
            run.record_set(f"{name} {after(commit)}", run.receive(consumer, (6 if name == "parts" else 1) * commit))
    for name, consumer in consumers.items():
        run.record_set(f"{name}, and then", run.rest(consumer))


@scenario(**AREA, title="What comes behind the first message of an open transaction waits for its end")
def plain_waits(run: ScenarioRun) -> None:
    for commit in (True, False):
        topic, tx = run.topic(f"topic-{commit}"), Transactions(run)
        consumer, producer = tx.consumer(topic), tx.producer(topic)
        send(producer, None, "before it")
        txn = tx.begin()
        send(producer, txn, "in it")
        send(producer, None, "behind it")
        run.record_messages("at once", run.receive(consumer, 1))
        run.record_messages("and then", run.rest(consumer))
        end(txn, commit=commit)
        run.record_messages(after(commit), run.receive(consumer, 1 + commit))
        run.record_messages("and last", run.rest(consumer))


@scenario(**AREA, title="A transaction that has sent nothing holds up nobody")
def begun_only(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    consumer, producer = tx.consumer(topic), tx.producer(topic)
    older = tx.begin()
    send(producer, None, "plain")
    run.record_messages("plain", run.receive(consumer, 1))
    tx.sent(topic, ["of a younger one"], commit=True)
    run.record_messages("of a younger one", run.receive(consumer, 1))
    send(producer, older, "of the older one")
    run.record_messages("the older one is open", run.rest(consumer))
    older.commit()
    run.record_messages("the older one is committed", run.receive(consumer, 1))


@scenario(**AREA, title="Interleaved transactions: the first to send holds up the others, whoever ends first")
def interleaved(run: ScenarioRun) -> None:
    for ends_first in ("first", "second"):
        topic, tx = run.topic(ends_first), Transactions(run)
        consumer, producer = tx.consumer(topic), tx.producer(topic)
        older, younger = tx.begin(), tx.begin()
        # The younger one is the first to send.
        for number in range(3):
            send(producer, younger, f"first {number}")
            send(producer, older, f"second {number}")
        one, other = (younger, older) if ends_first == "first" else (older, younger)
        one.commit()
        run.record_messages(f"the {ends_first} to send is committed", run.rest(consumer))
        other.commit()
        run.record_messages("both are", run.rest(consumer))


@scenario(**AREA, title="Interleaved transactions of which one is aborted")
def interleaved_abort(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    consumer, producer = tx.consumer(topic), tx.producer(topic)
    first, second, third = tx.begin(), tx.begin(), tx.begin()
    for number in range(2):
        for name, txn in (("first", first), ("second", second), ("third", third)):
            send(producer, txn, f"{name} {number}")
    third.commit()
    run.record_messages("the third is committed", run.rest(consumer))
    first.abort()
    run.record_messages("the first is aborted", run.rest(consumer))
    second.commit()
    run.record_messages("the second is committed", run.rest(consumer))


@scenario(**AREA, title="Sixteen transactions open at once, ended in another order")
def many_open(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    consumer, producer = tx.consumer(topic), tx.producer(topic)
    open_ones = [tx.begin() for _ in range(16)]
    for number, txn in enumerate(open_ones):
        send(producer, txn, str(number))
    for number in (5, 3, 9, 1, 7, 15, 13, 11):
        open_ones[number].commit()
    run.record_messages("while the first is open", run.rest(consumer))
    for number in range(0, 16, 2):
        open_ones[number].abort()
    run.record_messages("afterwards", run.receive(consumer, 8))
    run.record_messages("and then", run.rest(consumer))


@scenario(**AREA, title="Ids of messages and where markers lie")
def ids(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    consumer, producer = tx.consumer(topic), tx.producer(topic)
    txn = tx.begin()
    sent = [*send(producer, None, "a"), *send(producer, txn, "b", "c")]
    txn.commit()
    aborted = tx.begin()
    send(producer, aborted, "d")
    aborted.abort()
    sent += send(producer, None, "e")
    run.record("sent", sent)
    received = [message.message_id() for message in run.receive(consumer, 4)]
    run.record("received", received)
    run.record("the same", [str(one) == str(other) for one, other in zip(sent, received, strict=True)])


@scenario(**AREA, title="Keys, properties and times of what is sent in a transaction")
def metadata(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    consumer, producer = tx.consumer(topic), tx.producer(topic, producer_name="p")
    txn = tx.begin()
    options: dict[str, Any] = {"properties": {"a": "1"}, "partition_key": "k", "ordering_key": "o"}
    producer.send(b"x", txn=txn, event_timestamp=5, **options)
    txn.commit()
    fields = ("data", "properties", "partition_key", "ordering_key", "event_timestamp", "producer_name")
    run.record_messages("received", run.receive(consumer, 1), *fields, "redelivery_count", "publish_timestamp")


@scenario(**AREA, title="Batches: messages of different transactions are in different ones")
def batches(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    consumer = tx.consumer(topic)
    producer = tx.producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1_000)
    one, two = tx.begin(), tx.begin()
    for txn in (one, two):
        send(producer, txn, "alone")  # Java's flush does not wait for the registration that the first send makes
    send_together(producer, one, "a", "b", "c")
    send_together(producer, two, "d", "e")
    one.commit()
    run.record_messages("the first", run.receive(consumer, 1), "data", "message_id")
    run.record_messages("and then", run.rest(consumer))
    two.abort()
    run.record_messages("its batch", run.receive(consumer, 3), "data", "message_id")
    run.record_messages("and last", run.rest(consumer))


@scenario(**AREA, title="send_async in a transaction: the commit waits for what is under way")
def asynchronous(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    consumer, producer = tx.consumer(topic), tx.producer(topic)
    txn = tx.begin()
    results: list[Any] = []
    for number in range(50):
        producer.send_async(str(number).encode(), lambda result, sent: results.append(result), txn=txn)
    txn.commit()
    producer.flush()
    run.record("results", [result.name for result in results])
    run.record_messages("received", run.receive(consumer, 50))


@scenario(**AREA, title="Delayed messages in a transaction")
def delayed(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    consumer, producer = tx.consumer(topic, "Shared"), tx.producer(topic)
    txn, aborted = tx.begin(), tx.begin()
    producer.send(b"later", txn=txn, deliver_after=timedelta(seconds=3))
    producer.send(b"never", txn=aborted, deliver_after=timedelta(seconds=1))
    producer.send(b"now", txn=txn)
    txn.commit()
    aborted.abort()
    run.record_messages("received", run.receive(consumer, 2))
    run.record_messages("and then", run.rest(consumer))


@scenario(**AREA, title="Chunked messages in a transaction")
def chunked(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    consumer = tx.consumer(topic)
    producer = tx.producer(topic, chunking_enabled=True, batching_enabled=False)
    txn, aborted = tx.begin(), tx.begin()
    run.attempt("sent", partial(producer.send, b"x" * 6_000_000, txn=txn))
    run.attempt("sent in another", partial(producer.send, b"y" * 6_000_000, txn=aborted))
    run.record("before", len(run.rest(consumer)))
    run.attempt("committed", txn.commit)
    run.attempt("aborted", aborted.abort)
    send(producer, None, "plain")
    run.record_messages("received", run.rest(consumer, 3_000))


@scenario(**AREA, title="Every type of subscription sees the same")
def subscription_types(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    kinds = ("Exclusive", "Shared", "Failover", "KeyShared")
    consumers = {kind: tx.consumer(topic, kind, kind) for kind in kinds}
    producer = tx.producer(topic)
    committed, aborted = tx.begin(), tx.begin()
    for number in range(6):
        producer.send(f"c{number}".encode(), txn=committed, partition_key=str(number % 2))
        producer.send(f"a{number}".encode(), txn=aborted, partition_key=str(number % 2))
    aborted.abort()
    for kind, consumer in consumers.items():
        run.record_messages(f"{kind}, one is open", run.rest(consumer))
    committed.commit()
    for kind, consumer in consumers.items():
        run.record_messages(f"{kind}, afterwards", run.receive(consumer, 6))


@scenario(**AREA, title="A subscription made at the end while a transaction is open")
def latest_while_open(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    producer, txn = tx.producer(topic), tx.begin()
    send(producer, None, "plain before")
    send(producer, txn, "in it, before")
    consumer = tx.consumer(topic)
    send(producer, txn, "in it, after")
    send(producer, None, "plain after")
    txn.commit()
    run.record_messages("received", run.rest(consumer, 2_000))


@scenario(**AREA, title="A null payload in a transaction")
def null_payload(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    consumer, producer, txn = tx.consumer(topic), tx.producer(topic), tx.begin()
    producer.send(None, txn=txn, partition_key="k")
    producer.send(b"", txn=txn, partition_key="k")
    txn.commit()
    run.record("received", [message.has_null_value() for message in run.receive(consumer, 2)])
