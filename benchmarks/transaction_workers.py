"""The measured programs of transactions: our SDK in this process, Pulsar's Java client in a JVM of its own."""

from __future__ import annotations

import importlib
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from benchmarks.finished_transactions import compact, records, write
from benchmarks.java_programs import by_java
from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition
from pulsar_on_kafka.broker.transactions.records.views import TransactionViews
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_BUFFER_SNAPSHOT, TRANSACTION_LOG

_SIZE: Final = 200
_TRANSACTION_MS: Final = 300_000
_SETTLE_S: Final = 120.0
_AT_REST_S: Final = 0.5
_READINGS: Final = 5


def transactions(
    sdk: str,
    url: str,
    topic: str,
    messages: int,
    per_transaction: int,
    open_at_once: int,
    batching: bool = False,
    rate: float = 0.0,
) -> dict[str, Any]:
    """Begin, send, wait for the receipts, commit, in `open_at_once` threads; latencies are of `commit` alone.

    With `rate` (ours only) so many transactions are begun a second, each when it is due or when a thread is free, else
    each thread begins one when it has committed the one before. `lag_ms` is the longest that one was begun late.

    `messages` is their number in all. A fifth more, at least three rounds of all threads, warms up before: ours twice,
    and in between its process comes to rest, since it serves the coordinators, too, and reads their logs first.
    """
    count = max(1, messages // per_transaction)
    warm_up = max(3 * open_at_once, count // 5)
    if sdk == "pulsar":
        shape = count, per_transaction, open_at_once, warm_up, _SIZE, str(batching).lower()
        return by_java("PulsarTransactions", url, topic, *shape)
    module = importlib.import_module(sdk)
    client = module.Client(url, enable_transaction=True)
    producer = client.create_producer(
        topic, block_if_queue_full=True, max_pending_messages=100_000, batching_enabled=batching
    )
    program = _Program(module, client, producer, per_transaction)
    program.run(warm_up, open_at_once)
    _come_to_rest()
    program.run(warm_up, open_at_once)
    start_s = time.monotonic()
    commits_s = sorted(program.run(count, open_at_once, rate))
    took_s = time.monotonic() - start_s
    client.close()
    return {
        **({"lag_ms": round(program.lag_s * 1000, 3)} if rate else {}),
        "per_s": round(count / took_s, 1),
        "took_s": round(took_s, 2),
        "commit_p50_ms": round(commits_s[len(commits_s) // 2] * 1000, 3),
        "commit_p99_ms": round(commits_s[min(len(commits_s) - 1, len(commits_s) * 99 // 100)] * 1000, 3),
    }


def _come_to_rest() -> None:
    """Until this process has taken less than a tenth of a core for half a second."""
    deadline = Deadline.after(_SETTLE_S)
    while True:
        before_s = time.process_time()
        threading.Event().wait(_AT_REST_S)
        if time.process_time() - before_s < _AT_REST_S / 10:
            return
        if deadline.passed():
            raise RuntimeError(f"the process was busy for {_SETTLE_S:.0f} s after its warm-up")


class _Program:
    def __init__(self, module: Any, client: Any, producer: Any, per_transaction: int) -> None:
        self._ok = module.Result.Ok
        self._client = client
        self._producer = producer
        self._per_transaction = per_transaction
        self._payload = b"x" * _SIZE

    def run(self, count: int, open_at_once: int, rate: float = 0.0) -> list[float]:
        """The seconds that each commit took; `rate`: as `transactions`."""
        left = iter(range(count))  # not a queue of futures: what this program keeps, Python's collector looks through
        start_s = time.monotonic()
        self.lag_s = 0.0

        def some() -> list[float]:
            took_s = []
            for number in left:
                if rate:
                    self._await(start_s + number / rate)
                took_s.append(self._one())
            return took_s

        with ThreadPoolExecutor(open_at_once) as pool:
            several = [pool.submit(some) for _ in range(open_at_once)]
            return [took_s for one in several for took_s in one.result()]

    def _await(self, due_s: float) -> None:
        threading.Event().wait(max(0.0, due_s - time.monotonic()))
        self.lag_s = max(self.lag_s, time.monotonic() - due_s)

    def _one(self) -> float:
        txn = self._client.new_transaction(_TRANSACTION_MS)
        settled = threading.Event()
        results: list[Any] = []

        def sent(result: Any, message_id: Any) -> None:
            results.append(result)
            if len(results) == self._per_transaction:
                settled.set()

        for _ in range(self._per_transaction):
            self._producer.send_async(self._payload, sent, txn=txn)
        if not settled.wait(_SETTLE_S) or any(result != self._ok for result in results):
            raise RuntimeError(f"{len(results)} of {self._per_transaction} sends settled: {set(results)}")
        start_s = time.monotonic()
        txn.commit()
        return time.monotonic() - start_s


def start_up(sdk: str, url: str, topic: str, messages: int) -> dict[str, Any]:
    """A coordinator's start-up, and a buffer's first reading, behind `messages` finished transactions, compacted."""
    settings = KafkaSettings(url.removeprefix("kafka://"))
    clock = SystemClock()
    coordinator = len(str(messages))  # another one for each cell
    writing = Node(settings, Deadline.after(_SETTLE_S))
    life = writing.topics.open(TopicName.parse(topic), Deadline.after(_SETTLE_S))
    where = DataPartition(str(life.name), 0, life.layout.incarnation)
    for state_topic in (TRANSACTION_LOG, TRANSACTION_BUFFER_SNAPSHOT):
        writing.log.end_offset(state_topic, 0, Deadline.after(_SETTLE_S))  # makes it
    writing.close(Deadline.after(_SETTLE_S))
    start_s = time.monotonic()
    written = write(settings.bootstrap, records(messages, coordinator, where))
    partitions = {
        TRANSACTION_LOG: TRANSACTION_LOG.partition_of_coordinator(coordinator),
        TRANSACTION_BUFFER_SNAPSHOT: TRANSACTION_BUFFER_SNAPSHOT.partition_for(where.topic),
    }
    left = compact(settings.bootstrap, partitions)
    prepared_s = time.monotonic() - start_s
    node = Node(settings, Deadline.after(_SETTLE_S))
    for state_topic, partition in partitions.items():
        node.log.end_offset(state_topic, partition, Deadline.after(_SETTLE_S))
    serving_ms, known_ms = [], []
    for _ in range(_READINGS):
        start_s = time.monotonic()
        node.transactions._coordinator(coordinator).take_over(Deadline.after(_SETTLE_S))
        serving_ms.append((time.monotonic() - start_s) * 1000)
        start_s = time.monotonic()
        views = TransactionViews(node.log, clock)
        bounds = views.buffers.query(where.topic, lambda entries: entries.open_bounds(where), Deadline.after(_SETTLE_S))
        known_ms.append((time.monotonic() - start_s) * 1000)
        if bounds:
            raise RuntimeError(f"{len(bounds)} transactions seem to be open")
    node.close(Deadline.after(_SETTLE_S))
    return {
        "coordinator_ms": round(statistics.median(serving_ms), 1),
        "buffer_ms": round(statistics.median(known_ms), 1),
        "written": written,
        "left": sum(left.values()),
        "prepared_s": round(prepared_s, 1),
    }
