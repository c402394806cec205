"""Scenarios about transactions share these steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tests.compat.harness.driver import ScenarioRun, numbers
from tests.compat.harness.scenario import PulsarClient

BY_JAVA: Final[dict[str, Any]] = {"client": PulsarClient.JAVA, "time_limit_s": 120.0}
"""Of Pulsar's clients only Java's has transactions among those that the harness drives."""


class Transactions:
    """A client with transactions and what is opened of it."""

    def __init__(self, run: ScenarioRun) -> None:
        self._run = run
        self.client = run.client(enable_transaction=True, operation_timeout_seconds=60)

    def begin(self, timeout_ms: int = 60_000) -> Any:
        return self.client.new_transaction(timeout_ms)

    def producer(self, topic: str, **options: Any) -> Any:
        return self.client.create_producer(topic, **options)

    def consumer(self, topic: Any, kind: str = "Exclusive", subscription: str = "sub", **options: Any) -> Any:
        """`kind` is the name of a ConsumerType."""
        return self.client.subscribe(
            topic, subscription, consumer_type=getattr(self._run.sdk.ConsumerType, kind), **options
        )

    def sent(self, topic: str, texts: Iterable[str], *, commit: bool) -> None:
        """Send texts in a transaction of their own, and end it."""
        txn, producer = self.begin(), self.producer(topic)
        send(producer, txn, *texts)
        end(txn, commit=commit)
        producer.close()


def send(producer: Any, txn: Any, *texts: str) -> list[Any]:
    """Send texts one after the other, in a transaction or (None) without; gives the ids."""
    return [producer.send(text.encode(), **({} if txn is None else {"txn": txn})) for text in texts]


def again(
    run: ScenarioRun,
    tx: Transactions,
    topic: str,
    what: str,
    kind: str = "Shared",
    subscription: str = "sub",
    closing: Any = None,
) -> None:
    """Record what a consumer gets that comes next, when the one that is to be closed (`closing`) was."""
    if closing is not None:
        closing.close()
    consumer = tx.consumer(topic, kind, subscription)
    run.record_set(what, run.rest(consumer, 1_500))
    consumer.close()


def filled(run: ScenarioRun, tx: Transactions, topic: str, count: int, kind: str = "Shared", **options: Any) -> Any:
    """A consumer that has received `count` messages, "0" and so on, and these."""
    consumer = tx.consumer(topic, kind, **options)
    send(tx.producer(topic), None, *numbers(count))
    return consumer, run.receive(consumer, count)


def begun(run: ScenarioRun, count: int, kind: str = "Shared", *, name: str = "topic", **options: Any) -> Any:
    """A topic, its transactions, and a consumer with its messages as `filled` has it."""
    topic, tx = run.topic(name), Transactions(run)
    return topic, tx, *filled(run, tx, topic, count, kind, **options)


def end(txn: Any, *, commit: bool) -> None:
    if commit:
        txn.commit()
    else:
        txn.abort()


def after(commit: bool) -> str:
    return "after the commit" if commit else "after the abort"


def send_together(producer: Any, txn: Any, *texts: str) -> None:
    """Send texts as one batch, where the producer makes batches."""
    for text in texts:
        producer.send_async(text.encode(), lambda result, message_id: None, txn=txn)
    producer.flush()
