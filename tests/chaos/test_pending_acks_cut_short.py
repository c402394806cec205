"""The owner of a cursor is killed, or stopped and outlived, between any two writes of an acknowledgement in a
transaction. Its transaction takes effect or it does not; nobody is told one thing and sees another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from types import TracebackType

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.publishing.transactional_sends import Transaction
from tests.chaos.pending_ack_worker import AFTER_THE_COMMIT, BEFORE_THE_ANSWER
from tests.steps import SHARED, Unique

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
PATIENCE_S = 240.0
SILENCE_MS = 1_500


class Worker:
    """One `pending_ack_worker` on a subscription of its own, and the transaction that it acknowledges in."""

    def __init__(self, client: pulsar.Client, service_url: str, topic: str, point: str, signal_name: str) -> None:
        self.client = client
        self.topic = topic
        self.subscription = f"{point.replace(' ', '-')}-{signal_name}"
        self.signal_name = signal_name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.pending_ack_worker", service_url, topic, self.subscription, point,
             signal_name],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._said: Queue[str] = Queue()
        self._listener = Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        self._listener.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.put(line.strip())
        self._said.put("gone")

    def hears(self, *wanted: str) -> str:
        """The next thing that it says, which begins with one of these."""
        try:
            said = self._said.get(timeout=PATIENCE_S)
        except Empty:
            pytest.fail(f"{self.subscription}: nothing was said, expected {wanted}")
        assert said.startswith(wanted), f"{self.subscription}: {said}, expected {wanted}"
        return said

    def begin(self) -> None:
        deadline = Deadline.after(PATIENCE_S)
        node = self.client._session.node()
        inner = node.transactions.client(deadline).begin(1_800_000, deadline)
        self.txn = Transaction(inner, PATIENCE_S, node.cluster_id)
        self.txn.register_subscription(f"persistent://public/default/{self.topic}", 0, self.subscription)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{inner.id.most_bits} {inner.id.least_bits}\n")
        self._process.stdin.flush()

    def go_on(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def is_cut(self) -> None:
        self.hears("cut")
        if self.signal_name == "SIGKILL":
            self._process.wait(PATIENCE_S)

    def subscribe(self) -> None:
        """Own the partition in this process as soon as Kafka gives it up for the other one."""
        self.consumer = self.client.subscribe(self.topic, self.subscription, SHARED)

    def take_over(self) -> None:
        """`delivered` is what a successor delivers at once."""
        assert self.consumer.receive(int(PATIENCE_S * 1000)).data() in (b"0", b"1")
        self.consumer.redeliver_unacknowledged_messages()
        self.delivered = self.receive(2)

    def receive(self, at_least: int) -> list[str]:
        """At least so many messages, and what else comes in the next moments."""
        found: set[str] = set()
        while len(found) < at_least:
            found.add(self.consumer.receive(int(PATIENCE_S * 1000)).data().decode())
        while True:
            try:
                found.add(self.consumer.receive(SILENCE_MS).data().decode())
            except pulsar.Timeout:
                return sorted(found)

    def left(self) -> list[str]:
        """What one more owner delivers, when nobody else is there any more."""
        self.end()
        self.consumer.close()
        self.consumer = self.client.subscribe(self.topic, self.subscription, SHARED)
        return self.receive(2)


@pytest.fixture
def cut_at(client: pulsar.Client, service_url: str, unique: Unique) -> Iterator[Callable[..., list[Worker]]]:
    """One worker for each point, on a topic with the messages 0, 1 and 2; the first acknowledges 0."""
    with ExitStack() as stack:

        def made(points: tuple[str, ...], signal_name: str) -> list[Worker]:
            topic = unique()
            producer = client.create_producer(topic)
            for number in range(3):
                producer.send(str(number).encode())
            workers = [stack.enter_context(Worker(client, service_url, topic, point, signal_name)) for point in points]
            for worker in workers:
                worker.hears("ready")
            for worker in workers:
                worker.begin()
            return workers

        yield made


@pytest.fixture
def client(service_url: str) -> Iterator[pulsar.Client]:
    made = pulsar.Client(service_url, operation_timeout_seconds=120)
    yield made
    made.close()


def test_an_owner_is_killed_before_it_answers(cut_at: Callable[..., list[Worker]]) -> None:
    """Nobody heard that it is held, so its program cannot commit."""
    workers = cut_at(BEFORE_THE_ANSWER, "SIGKILL")
    for worker in workers:
        worker.is_cut()
        worker.subscribe()
    for worker in workers:
        worker.take_over()
        worker.txn.abort()
        worker.consumer.redeliver_unacknowledged_messages()
        assert worker.receive(3) == ["0", "1", "2"], worker.subscription


def test_an_owner_is_killed_after_the_commit(cut_at: Callable[..., list[Worker]]) -> None:
    workers = cut_at(AFTER_THE_COMMIT, "SIGKILL")
    for worker in workers:
        worker.hears("answer ok")
        worker.txn.commit()
    for worker in workers:
        worker.is_cut()
        worker.subscribe()
    for worker in workers:
        worker.take_over()
        assert worker.delivered == ["1", "2"], worker.subscription
        assert worker.left() == ["1", "2"], worker.subscription


def test_a_former_owner_wakes_up_before_it_answers(cut_at: Callable[..., list[Worker]]) -> None:
    """When its successor delivers the message, it must not say that the transaction holds it."""
    workers = cut_at(("taken over", "mark", "ack", "acked"), "SIGSTOP")
    for worker in workers:
        worker.is_cut()
        worker.subscribe()
    for worker in workers:
        worker.take_over()
    for worker in workers:
        worker.go_on()
    for worker in workers:
        held = worker.hears("answer") == "answer ok"
        if held:
            assert worker.delivered == ["1", "2"], worker.subscription
            worker.txn.commit()
            assert worker.left() == ["1", "2"], worker.subscription
        else:
            worker.txn.abort()
            worker.end()  # awake, it is a consumer as good as this one
            worker.consumer.redeliver_unacknowledged_messages()
            assert worker.receive(3) == ["0", "1", "2"], worker.subscription


def test_a_former_owner_wakes_up_after_the_commit(cut_at: Callable[..., list[Worker]]) -> None:
    workers = cut_at(("settle", "save", "clean"), "SIGSTOP")
    for worker in workers:
        worker.hears("answer ok")
        worker.txn.commit()
    for worker in workers:
        worker.is_cut()
        worker.subscribe()
    for worker in workers:
        worker.take_over()
        assert worker.delivered == ["1", "2"], worker.subscription
    for worker in workers:
        worker.go_on()
    for worker in workers:
        assert worker.left() == ["1", "2"], worker.subscription
