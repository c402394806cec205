"""Crash histories of mixed shapes on a broker whose requests arrive late: two processes consume, die, and are judged.

A history is known by its seed: the shape (`CrashShape`), when which process is killed, and the share of requests that
the proxy delivers late. What happens within it is a matter of timing.
"""

from __future__ import annotations

import multiprocessing
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.chaos.crash_worker import (
    TXN_TIMEOUT_MS,
    CrashOrders,
    CrashShape,
    number_of,
    subscribe,
    work,
)
from tests.late_proxy import OFFSET_COMMIT, PRODUCE, TXN_OFFSET_COMMIT, LateProxy
from tests.waiting import until

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.chaos.crash_worker"])
_CHUNKED_BYTES = 2_300_000
_SHARES = {OFFSET_COMMIT: 0.25, PRODUCE: 0.02, TXN_OFFSET_COMMIT: 0.25}
_LATE_S = (0.3, 3.0)
_QUIET_MS = 1_000
_PATIENCE_S = 120.0
"""Patience with a busy machine."""
_IDLE_S = 2.0
"""Processes that receive nothing for so long have nothing to receive."""


@dataclass
class _Worker:
    process: BaseProcess
    evidence: Path

    def lines(self) -> list[tuple[str, float, list[int]]]:
        if not self.evidence.exists():
            return []
        whole = self.evidence.read_text().rpartition("\n")[0]
        rows = (line.split() for line in whole.splitlines())
        return [(kind, float(at), [int(number) for number in numbers]) for kind, at, *numbers in rows]

    def count(self, wanted: str) -> int:
        return sum(kind == wanted for kind, _, _ in self.lines())


@dataclass
class CrashFindings:
    """What one history did, and what was broken in it."""

    shape: CrashShape
    broken: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def expect(self, numbers: set[int], what: str) -> None:
        """Expect that there are none of these."""
        if numbers:
            self.broken.append(f"seed {self.shape.seed}: {what}: {sorted(numbers)[:20]} ({self.shape})")


class CrashHistory:
    """One topic and one subscription."""

    def __init__(self, seed: int, proxy: LateProxy, directory: Path, topic: str) -> None:
        self._shape = CrashShape.of(seed)
        self._chance = random.Random(seed)
        self._proxy = proxy
        self._url = proxy.url
        self._directory = directory
        self._topic = topic
        self._workers: list[_Worker] = []
        self._found = CrashFindings(self._shape)

    def play(self, client: pulsar.Client, admin: AdminClient) -> CrashFindings:
        shape = self._shape
        try:
            admin.create_partitioned_topic(self._topic, shape.partitions, entries_per_ledger=50)
            if shape.transactions:
                client.create_producer(f"{self._topic}-out").close()
            client.subscribe(
                self._topic,
                "s",
                consumer_type=getattr(pulsar.ConsumerType, shape.type),
                initial_position=pulsar.InitialPosition.Earliest,
            ).close()
            self._proxy.hold_some(random.Random(f"late {shape.seed}"), _SHARES, _LATE_S)
            publisher = threading.Thread(target=self._publish, args=(client,), daemon=True)
            publisher.start()
            self._crash()
            publisher.join()
            self._proxy.hold_some(random.Random(), {}, (0.0, 0.0))
            self._judge(client)
        finally:
            self._proxy.hold_some(random.Random(), {}, (0.0, 0.0))
            for worker in self._workers:
                worker.process.kill()
                worker.process.join()
        return self._found

    # What happens -------------------------------------------------------------------------------------------------

    def _publish(self, client: pulsar.Client) -> None:
        shape, chance = self._shape, random.Random(f"publisher {self._shape.seed}")
        producer = client.create_producer(
            self._topic,
            batching_enabled=shape.batching and not shape.chunks,
            batching_max_publish_delay_ms=5,
            chunking_enabled=shape.chunks,
            block_if_queue_full=True,
            send_timeout_millis=0,
        )
        for number in range(shape.messages):
            content = b"%08d" % number
            if shape.chunks and chance.random() < 0.04:
                content += bytes(_CHUNKED_BYTES)
            delay = timedelta(milliseconds=chance.randrange(800)) if shape.delays and chance.random() < 0.3 else None
            producer.send_async(content, None, partition_key=shape.key_of(number), deliver_after=delay)
            if number % 10 == 0:
                producer.flush()
        producer.flush()
        producer.close()

    def _crash(self) -> None:
        """Two processes consume; either is killed in the middle of what it does, and another one takes its place."""
        working = [self._start(), self._start()]
        for _ in range(self._chance.randrange(1, 4)):
            self._let_them_work(working, self._chance.randrange(1, 25))
            threading.Event().wait(self._chance.random() * 1.2)
            place = self._chance.randrange(2)
            self._kill(working[place])
            working[place] = self._start()
        for worker in working:
            self._kill(worker)

    def _let_them_work(self, working: list[_Worker], wanted: int) -> None:
        """Wait until one has received so many messages, or there is nothing for them."""
        until(lambda: any(one.count("s") for one in working), "one of them is subscribed")
        until(lambda: any(one.count("r") for one in self._workers), "a first message")
        received, since_s = -1, 0.0
        while received < wanted:
            now = max(one.count("r") for one in working)
            if now != received:
                received, since_s = now, time.monotonic()
            elif time.monotonic() - since_s > _IDLE_S:
                return
            threading.Event().wait(0.05)

    def _start(self) -> _Worker:
        number = len(self._workers)
        evidence = self._directory / f"{self._shape.seed}-{number}"
        orders = CrashOrders(self._url, self._topic, str(evidence), self._shape, number)
        process = _FORKS.Process(target=work, args=(orders,), daemon=True)
        process.start()
        self._workers.append(_Worker(process, evidence))
        return self._workers[-1]

    def _kill(self, worker: _Worker) -> None:
        if not worker.process.is_alive():
            self._found.broken.append(f"seed {self._shape.seed}: a worker ended by itself ({worker.process.exitcode})")
        worker.process.kill()
        worker.process.join()
        self._found.counts["kills"] += 1

    # What is left -------------------------------------------------------------------------------------------------

    def _judge(self, client: pulsar.Client) -> None:
        shape, found = self._shape, self._found
        lines = [worker.lines() for worker in self._workers]
        acked = {number for each in lines for kind, _, numbers in each if kind == "a" for number in numbers}
        durable_at = {number: at for each in lines for kind, at, numbers in each if kind == "d" for number in numbers}
        sent = set(range(shape.messages))
        received, order, dead = self._work_off(client, sent, acked)
        found.counts.update(
            messages=len(sent), acknowledged=len(acked), durable=len(durable_at), left=len(received), dead=len(dead)
        )
        found.expect(sent - acked - received - dead, "lost")
        found.expect(received & durable_at.keys(), "delivered to the last consumer after a durable acknowledgement")
        found.expect(dead & durable_at.keys(), "dead after a durable acknowledgement")
        for each in lines:
            begun = next((at for kind, at, _ in each if kind == "w"), 0.0)
            again = {n for kind, _, numbers in each if kind == "r" for n in numbers if durable_at.get(n, begun) < begun}
            found.expect(again, "delivered again after a durable acknowledgement")
        if not (shape.delays or shape.refusals or shape.dead_letters or shape.chunks or shape.type == "Shared"):
            misplaced = {number for number, former in order if number < former}
            found.expect(misplaced, "delivered behind a later message of its key")
        if shape.transactions:
            self._judge_outputs(client, sent - dead, set(durable_at))

    def _work_off(
        self, client: pulsar.Client, sent: set[int], acked: set[int]
    ) -> tuple[set[int], list[tuple[int, int]], set[int]]:
        """Gives what the last consumer receives, each with the one of its key before it, and the dead letters."""
        shape = self._shape
        last = subscribe(client, self._topic, shape)
        out = client.create_producer(f"{self._topic}-out") if shape.transactions else None
        letters = (
            client.subscribe(f"{self._topic}-dead", "all", initial_position=pulsar.InitialPosition.Earliest)
            if shape.dead_letters
            else None
        )
        received: set[int] = set()
        order: list[tuple[int, int]] = []
        former: dict[str, int] = {}
        dead: set[int] = set()
        quiet_ms = max(_QUIET_MS, TXN_TIMEOUT_MS + 1_000 if shape.transactions else 0)
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                message = last.receive(quiet_ms)
            except pulsar.Timeout:
                if letters is not None:
                    dead |= _rest(letters)
                late = time.monotonic() > deadline
                if (not sent - acked - received - dead or late) and _is_flushed(last, required=late):
                    break
                continue
            number = number_of(message)
            key = shape.key_of(number)
            if number not in received:
                order.append((number, former.get(key, -1)))
            former[key] = number
            received.add(number)
            if out is None:
                last.acknowledge(message)
            else:
                txn = client.new_transaction(60_000)
                out.send(b"%08d" % number, txn=txn)
                last.acknowledge(message, txn=txn)
                txn.commit()
        last.close()
        return received, order, dead

    def _judge_outputs(self, client: pulsar.Client, sent: set[int], committed: set[int]) -> None:
        outputs = client.subscribe(f"{self._topic}-out", "judge", initial_position=pulsar.InitialPosition.Earliest)
        counted: Counter[int] = Counter()
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                counted[number_of(outputs.receive(_QUIET_MS))] += 1
            except pulsar.Timeout:
                if not sent - counted.keys() or time.monotonic() > deadline:
                    break
        found = self._found
        found.expect({number for number, times in counted.items() if times > 1}, "committed twice")
        found.expect(sent - counted.keys(), "committed by no transaction")
        found.expect(committed - counted.keys(), "reported as committed, and not to be read")


def _rest(consumer: pulsar.Consumer) -> set[int]:
    found: set[int] = set()
    while True:
        try:
            message = consumer.receive(300)
        except pulsar.Timeout:
            return found
        found.add(number_of(message))
        consumer.acknowledge(message)


def _is_flushed(consumer: pulsar.Consumer, *, required: bool) -> bool:
    """Whether what was acknowledged is durable. Where a partition was lost meanwhile it is not, and its messages come
    again."""
    try:
        consumer.flush()
    except pulsar.NotConnected:
        if required:
            raise
        return False
    return True
