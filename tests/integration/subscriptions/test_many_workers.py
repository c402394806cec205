"""Two hundred consumers in eight processes on one partition."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count, islice
from pathlib import Path

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from tests.steps import Unique, nothing_comes
from tests.waiting import until

PROCESSES, CONSUMERS_OF_EACH = 8, 25
CONSUMERS = PROCESSES * CONSUMERS_OF_EACH
MESSAGES = 10_000
KEYS = 1_000

PROGRAM = """
import sys, threading
import pulsar_on_kafka as pulsar

url, topic, kind, number, consumers = sys.argv[1:]
client = pulsar.Client(url)
saying = threading.Lock()

def work(consumer, message):
    with saying:
        print(consumer.consumer_name(), message.data().decode(), flush=True)
    consumer.acknowledge(message)

for each in range(int(consumers)):
    client.subscribe(
        topic, "s", pulsar.ConsumerType[kind], message_listener=work, consumer_name=f"{number}-{each}",
        receiver_queue_size=20, initial_position=pulsar.InitialPosition.Earliest,
    )
print("ready", flush=True)
sys.stdin.read()
client.close()
print("closed", flush=True)
"""


class WorkerProcess:
    """Has consumers that work at once. `got`: pairs of a consumer's name and a message's number, in the order of
    receipt."""

    def __init__(self, *arguments: str) -> None:
        self.got: list[tuple[str, int]] = []
        self.said: set[str] = set()
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            cwd=Path(__file__).parents[3],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                consumer, _, number = line.strip().partition(" ")
                if number:
                    self.got.append((consumer, int(number)))
                else:
                    self.said.add(consumer)

    def close(self) -> None:
        """In good order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0
        self._listener.join(60)
        assert "closed" in self.said

    def kill(self) -> None:
        assert self._process.stdin is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._listener.join(60)


@contextmanager
def workers(*arguments: str) -> Iterator[list[WorkerProcess]]:
    with ExitStack() as stack:
        started = [WorkerProcess(*arguments, str(n), str(CONSUMERS_OF_EACH)) for n in range(PROCESSES)]
        for worker in started:
            stack.callback(worker.kill)
        for worker in started:
            until(lambda worker=worker: "ready" in worker.said, "the consumers to be there")  # type: ignore[misc]
        yield started


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.parametrize("kind", ["Shared", pytest.param("KeyShared", marks=pytest.mark.soak)])
def test_two_hundred_consumers_share_one_partition(
    client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique, kind: str
) -> None:
    topic = unique()
    with workers(service_url, topic, kind) as started:
        until(lambda: len(admin.subscription_consumers(topic, "s")) == CONSUMERS, "operators to see all")
        producer = client.create_producer(topic, block_if_queue_full=True)

        def all_received(messages: int) -> None:
            until(lambda: sum(len(each.got) for each in started) >= messages, "all messages to be received")

        deadline, numbers = Deadline.after(240), count(1)
        sent = 0
        while sent < MESSAGES or not all(each.got for each in started):  # the owner hears of the others' consumers
            deadline.check("each process to get a message")
            if sent >= MESSAGES:
                all_received(sent)
            for sent in islice(numbers, KEYS):
                producer.send_async(str(sent).encode(), None, partition_key=str(sent % KEYS))
            producer.flush()
        all_received(sent)
        for worker in started:
            worker.close()
        received = [number for worker in started for _, number in worker.got]
        assert sorted(received) == list(range(1, sent + 1))
        by_consumer = Counter(consumer for worker in started for consumer, _ in worker.got)
        assert len(by_consumer) >= CONSUMERS * 0.9, f"{CONSUMERS - len(by_consumer)} consumers got nothing"
        assert all(len(worker.got) > MESSAGES / PROCESSES / 10 for worker in started), [len(w.got) for w in started]
        if kind == "KeyShared":
            check_keys(started)
    assert nothing_comes(client.subscribe(topic, "s", pulsar.ConsumerType[kind]))


def check_keys(started: list[WorkerProcess]) -> None:
    """In order, whoever got them."""
    turns: dict[tuple[int, str], list[int]] = defaultdict(list)
    for worker in started:
        for consumer, number in worker.got:
            turns[number % KEYS, consumer].append(number)
    assert all(numbers == sorted(numbers) for numbers in turns.values())
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for (key, _), numbers in turns.items():
        spans[key].append((numbers[0], numbers[-1]))
    for key, each in spans.items():
        each.sort()
        ends = [last for _, last in each]
        assert all(end < begin for end, (begin, _) in zip(ends, each[1:], strict=False)), f"key {key}: {each}"
