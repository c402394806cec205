"""Transactions beside everything else: readers, seek, dead letters, compaction, schemas, administration."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import scenario
from tests.compat.scenarios.transactional import BY_JAVA, Transactions, end, send

AREA: dict[str, Any] = {"area": "transactions: beside", **BY_JAVA}


def _read_rest(run: ScenarioRun, reader: Any) -> list[Any]:
    found: list[Any] = []
    while True:
        try:
            found.append(reader.read_next(800))
        except run.sdk.Timeout:
            return found


@scenario(**AREA, title="Consume, process, produce: inputs and outputs together or not at all")
def consume_process_produce(run: ScenarioRun) -> None:
    source, target, tx = run.topic("source"), run.topic("target"), Transactions(run)
    consumer, producer = tx.consumer(source, "Shared"), tx.producer(target)
    out = tx.consumer(target)
    send(tx.producer(source), None, "0", "1", "2", "3")
    for commit in (False, True, False, True):
        message = run.receive(consumer, 1)[0]
        txn = tx.begin()
        send(producer, txn, f"{run.view(message)} {'done' if commit else 'failed'}")
        consumer.acknowledge(message, txn=txn)
        end(txn, commit=commit)
    run.record_set("outputs", run.rest(out))
    consumer.close()
    run.record_set("inputs left", run.rest(tx.consumer(source, "Shared")))


@scenario(**AREA, title="A reader sees what is committed")
def reader(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    producer = tx.producer(topic)
    reading = tx.client.create_reader(topic, run.sdk.MessageId.earliest)
    committed, aborted = tx.begin(), tx.begin()
    send(producer, None, "plain")
    send(producer, aborted, "aborted")
    send(producer, committed, "committed")
    run.record_messages("both are open", _read_rest(run, reading))
    committed.commit()
    run.record_messages("one is committed", _read_rest(run, reading))
    aborted.abort()
    run.record_messages("the other is aborted", run.read(reading, 1))
    run.record("has_message_available", reading.has_message_available())
    run.record_messages("and then", _read_rest(run, reading))


@scenario(**AREA, title="A reader that begins behind, inside and at the end of transactions")
def reader_starts(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    producer, txn, aborted = tx.producer(topic), tx.begin(), tx.begin()
    ids = send(producer, txn, "a", "b")
    ids += send(producer, aborted, "x")
    ids += send(producer, txn, "c")
    txn.commit()
    aborted.abort()
    send(producer, None, "plain")
    for number, name in enumerate(("a", "b", "x", "c")):
        reading = tx.client.create_reader(topic, ids[number])
        run.record_messages(f"behind {name}", _read_rest(run, reading))
        reading.close()
    latest = tx.client.create_reader(topic, run.sdk.MessageId.latest)
    run.record("at the end", latest.has_message_available())


@scenario(**AREA, title="Is there a message, when all that is behind is aborted, or open")
def message_available(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    producer = tx.producer(topic)
    send(producer, None, "plain")
    reading = tx.client.create_reader(topic, run.sdk.MessageId.earliest)
    run.record_messages("read", run.read(reading, 1))
    txn = tx.begin()
    send(producer, txn, "a")
    run.record("while it is open", reading.has_message_available())
    txn.abort()
    run.record_messages("after the abort", _read_rest(run, reading))


@scenario(**AREA, title="The last message's id while a transaction is open, and afterwards")
def last_message_id(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    producer, consumer = tx.producer(topic), tx.consumer(topic)
    send(producer, None, "plain")
    run.record("plain", consumer.get_last_message_id())
    txn = tx.begin()
    send(producer, txn, "a", "b")
    run.record("while it is open", consumer.get_last_message_id())
    txn.commit()
    run.receive(consumer, 3)
    run.record("after the commit", consumer.get_last_message_id())


@scenario(**AREA, title="A seek back while a transaction holds acknowledgements")
def seek_while_held(run: ScenarioRun) -> None:
    for commit in (True, False):
        topic, tx = run.topic(f"topic-{commit}"), Transactions(run)
        consumer = tx.consumer(topic, "Shared")
        send(tx.producer(topic), None, "0", "1", "2", "3")
        messages = run.receive(consumer, 4)
        txn = tx.begin()
        for message in messages[1:3]:
            consumer.acknowledge(message, txn=txn)
        consumer.seek(run.sdk.MessageId.earliest)
        run.record_set("after the seek", run.rest(consumer, 2_000))
        run.attempt("ended", partial(end, txn, commit=commit))
        run.record_set(f"committed: {commit}", run.rest(consumer, 2_000))
        consumer.close()
        run.record_set("next", run.rest(tx.consumer(topic, "Shared"), 1_500))


@scenario(**AREA, title="A seek back behind committed acknowledgements, over aborted messages")
def seek_over_ended(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    consumer = tx.consumer(topic)
    tx.sent(topic, ["a"], commit=True)
    tx.sent(topic, ["x"], commit=False)
    tx.sent(topic, ["b"], commit=True)
    txn = tx.begin()
    for message in run.receive(consumer, 2):
        consumer.acknowledge(message, txn=txn)
    txn.commit()
    consumer.seek(run.sdk.MessageId.earliest)
    run.record_messages("again", run.receive(consumer, 2))
    run.record_messages("and then", run.rest(consumer))


@scenario(**AREA, title="Unsubscribing while a transaction holds acknowledgements")
def unsubscribe_while_held(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    consumer = tx.consumer(topic, "Shared")
    send(tx.producer(topic), None, "0")
    txn = tx.begin()
    consumer.acknowledge(run.receive(consumer, 1)[0], txn=txn)
    run.attempt("unsubscribe", consumer.unsubscribe)
    run.attempt("commit", txn.commit)


@scenario(**AREA, title="Aborts count as deliveries of a dead letter policy")
def dead_letters(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    dead = tx.consumer(f"{topic}-sub-DLQ", subscription="undertaker")
    policy = run.sdk.ConsumerDeadLetterPolicy(max_redeliver_count=2)
    consumer = tx.consumer(topic, "Shared", dead_letter_policy=policy)
    send(tx.producer(topic), None, "x")
    for _ in range(3):
        message = run.receive(consumer, 1)[0]
        run.record("count", message.redelivery_count())
        txn = tx.begin()
        consumer.acknowledge(message, txn=txn)
        txn.abort()
    run.record_messages("dead", run.receive(dead, 1))
    run.record_messages("alive", run.rest(consumer))


@scenario(**AREA, title="Compaction takes what is committed, not what is aborted")
def compacted(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    producer = tx.producer(topic)
    producer.send(b"a0", partition_key="a")
    producer.send(b"b0", partition_key="b")
    committed, aborted = tx.begin(), tx.begin()
    producer.send(b"a1", txn=committed, partition_key="a")
    producer.send(b"b1", txn=aborted, partition_key="b")
    committed.commit()
    aborted.abort()
    run.admin.compact(topic)
    reading = tx.client.create_reader(topic, run.sdk.MessageId.earliest, is_read_compacted=True)
    run.record_set("left", _read_rest(run, reading))


@scenario(**AREA, title="Backlogs while a transaction is open and after it")
def backlog(run: ScenarioRun) -> None:
    topic, tx = run.topic(), Transactions(run)
    consumer, producer = tx.consumer(topic, "Shared"), tx.producer(topic)
    send(producer, None, "0", "1")
    messages = run.receive(consumer, 2)
    txn = tx.begin()
    consumer.acknowledge(messages[0], txn=txn)
    run.record("held", run.admin.backlog(topic, "sub"))
    txn.commit()
    run.until(lambda: run.admin.backlog(topic, "sub") == 1, "the committed acknowledgement")
    run.record("committed", run.admin.backlog(topic, "sub"))


@scenario(**AREA, title="Ids of transactions grow")
def transaction_ids(run: ScenarioRun) -> None:
    tx = Transactions(run)
    ids = [tuple(tx.begin().txn_id) for _ in range(40)]
    run.record("all different", len(set(ids)) == len(ids))
    coordinators = {most for most, _ in ids}
    grown = [[least for most, least in ids if most == one] for one in coordinators]
    run.record("each coordinator's grow", all(sorted(each) == each for each in grown))


@scenario(**AREA, title="A deduplicating topic: numbers that transactions sent")
def deduplicated(run: ScenarioRun) -> None:
    namespace = run.namespace()
    run.admin.set_deduplication(namespace, enabled=True)
    topic, tx = run.topic(namespace=namespace), Transactions(run)
    consumer, producer = tx.consumer(topic), tx.producer(topic, producer_name="p")
    committed, aborted = tx.begin(), tx.begin()
    producer.send(b"1", txn=committed, sequence_id=1)
    producer.send(b"2", txn=aborted, sequence_id=2)
    committed.commit()
    aborted.abort()
    producer.send(b"1 again", sequence_id=1)
    producer.send(b"2 again", sequence_id=2)
    producer.send(b"3", sequence_id=3)
    run.record_messages("seen", run.receive(consumer, 2))
    run.record_messages("and then", run.rest(consumer))


@scenario(**AREA, title="Deleting a topic with an open transaction")
def topic_deleted(run: ScenarioRun) -> None:
    topic, other, tx = run.topic("gone"), run.topic("stays"), Transactions(run)
    consumer, txn = tx.consumer(other), tx.begin()
    producer = tx.producer(topic)
    send(producer, txn, "a")
    send(tx.producer(other), txn, "b")
    producer.close()
    run.admin.delete_topic(topic, force=True)
    run.attempt("commit", txn.commit)
    run.record_messages("the other topic", run.rest(consumer, 2_000))
