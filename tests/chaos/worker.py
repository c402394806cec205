"""A process that consumes through the SDK and may be killed at any instant.

    python -m tests.chaos.worker '{"url": ..., "topic": ..., ...}'      (the fields of `Orders`, as JSON)

Commands come on standard input, one word a line: `subscribe`, `close`. When standard input ends, so does the process.
What it does is written down in its evidence file, one write a line, so that a SIGKILL takes back nothing that was said
(times are CLOCK_MONOTONIC, the same for all processes of the machine):

    w t                     warm: connected, waiting for commands
    s t                     subscribed
    b t text                subscribing was refused: somebody else holds the subscription
    o t partition version next      owns a partition: recovered its cursor (from the member's own log line)
    l t partition ...       lost partitions (likewise)
    r t0 t partition offset redeliveries    received, by a call that began at t0
    a t partition offset    will be acknowledged now
    d t partition:offset ...        durably acknowledged: flush, or acknowledge(wait=True), has returned
    x t text                a flush failed: of what was acknowledged since the last one nothing is known
    f t text                the consumer failed for good
    q t                     closes now
    c t                     closed
"""

from __future__ import annotations

import json
import logging
import os
import queue
import random
import sys
import threading
import time
from dataclasses import dataclass
from zlib import crc32

import layer as pulsar

_RECEIVE_MS = 10


@dataclass(frozen=True)
class Orders:
    """What a worker is told at its start."""

    url: str
    topic: str
    subscription: str
    evidence: str
    type: str = "Shared"
    name: str = "worker"
    residues: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6, 7, 8)
    """Positions whose `residue` is one of these (of 0 to 9) are acknowledged, the others only looked at."""
    shuffle: int = 0
    """Acknowledge in random order: so many messages are held back."""
    flush_every: int = 50
    """Flush after so many acknowledgements, and when nothing comes; 0: acknowledge with wait=True."""
    pace_ms: float = 0.0
    """Pause after each message."""
    persist_ms: int = 100
    queue: int = 1000
    seed: int = 1


def residue(partition: int, offset: int) -> int:
    """A number from 0 to 9 that everybody agrees on and that has no pattern."""
    return crc32(f"{partition}:{offset}".encode()) % 10


class Evidence:
    """A file that only grows."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def say(self, kind: str, *values: object) -> None:
        text = f"{kind} {time.monotonic():.6f} {' '.join(map(str, values))}"
        os.write(self._file, text.replace("\n", " ").encode() + b"\n")

    def received(self, began: float, partition: int, offset: int, redeliveries: int) -> None:
        os.write(self._file, f"r {began:.6f} {time.monotonic():.6f} {partition} {offset} {redeliveries}\n".encode())


class OwnershipLog(logging.Handler):
    """Turns the member's log lines about ownership into evidence."""

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(logging.INFO)
        self._evidence = evidence

    def emit(self, record: logging.LogRecord) -> None:
        arguments = record.args if isinstance(record.args, tuple) else ()
        if "recovered from" in record.msg:
            identity, version, _, next_offset, _ = arguments
            self._evidence.say("o", identity.partition, version, next_offset)  # type: ignore[union-attr]
        elif "lost partitions" in record.msg:
            self._evidence.say("l", *arguments[1])  # type: ignore[misc]


class Worker:
    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._evidence = Evidence(orders.evidence)
        self._random = random.Random(orders.seed)
        self._commands: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._pause = threading.Event()
        self._client = pulsar.Client(orders.url, ack_persist_interval_ms=orders.persist_ms)
        self._consumer: pulsar.Consumer | None = None
        self._held: list[pulsar.Message] = []
        self._acknowledged: list[str] = []
        log = logging.getLogger("layer.dispatch.member")
        log.setLevel(logging.INFO)
        log.addHandler(OwnershipLog(self._evidence))

    def run(self) -> None:
        self._client.get_topic_partitions(self._orders.topic)
        self._evidence.say("w")
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            command = self._next_command()
            if command == "end":
                return
            if command == "subscribe":
                self._subscribe()
            elif command == "close":
                self._close()
            if self._consumer is not None:
                self._work(self._consumer)

    def _listen(self) -> None:
        for line in sys.stdin:
            self._commands.put(line.strip())
        self._commands.put("end")

    def _next_command(self) -> str | None:
        try:
            return self._commands.get(block=self._consumer is None)
        except queue.Empty:
            return None

    def _subscribe(self) -> None:
        try:
            self._consumer = self._client.subscribe(
                self._orders.topic,
                self._orders.subscription,
                consumer_type=pulsar.ConsumerType[self._orders.type],
                initial_position=pulsar.InitialPosition.Earliest,
                consumer_name=self._orders.name,
                receiver_queue_size=self._orders.queue,
            )
        except pulsar.ConsumerBusy as busy:
            self._evidence.say("b", busy)
        else:
            self._evidence.say("s")

    def _close(self) -> None:
        self._evidence.say("q")
        if self._consumer is not None:
            self._flush(self._consumer)
            self._consumer.close()
            self._consumer = None
            self._held = []
        self._evidence.say("c")

    def _work(self, consumer: pulsar.Consumer) -> None:
        began = time.monotonic()
        try:
            message = consumer.receive(timeout_millis=_RECEIVE_MS)
        except pulsar.Timeout:
            while self._held:
                self._acknowledge(consumer, self._held.pop())
            if self._acknowledged:
                self._flush(consumer)
            return
        except pulsar.PulsarException as failure:
            self._fail(failure)
            return
        partition, offset = message.feed.slot.number, message.offset
        self._evidence.received(began, partition, offset, message.redelivery_count())
        if residue(partition, offset) in self._orders.residues:
            self._held.append(message)
            if len(self._held) > self._orders.shuffle:
                index = self._random.randrange(len(self._held))
                self._held[index], self._held[-1] = self._held[-1], self._held[index]
                self._acknowledge(consumer, self._held.pop())
        if self._orders.pace_ms:
            self._pause.wait(self._orders.pace_ms / 1000)

    def _acknowledge(self, consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        partition, offset = message.feed.slot.number, message.offset
        self._evidence.say("a", partition, offset)
        self._acknowledged.append(f"{partition}:{offset}")
        try:
            consumer.acknowledge(message, wait=self._orders.flush_every == 0)
        except pulsar.PulsarException as failure:
            self._unknown(failure)
            return
        if self._orders.flush_every == 0:
            self._say_durable()
        elif len(self._acknowledged) >= self._orders.flush_every:
            self._flush(consumer)

    def _flush(self, consumer: pulsar.Consumer) -> None:
        try:
            consumer.flush()
        except pulsar.PulsarException as failure:
            self._unknown(failure)
        else:
            self._say_durable()

    def _say_durable(self) -> None:
        if self._acknowledged:
            self._evidence.say("d", *self._acknowledged)
            self._acknowledged = []

    def _unknown(self, failure: Exception) -> None:
        self._evidence.say("x", f"{type(failure).__name__}: {failure}")
        self._acknowledged = []

    def _fail(self, failure: Exception) -> None:
        self._evidence.say("f", f"{type(failure).__name__}: {failure}")
        consumer, self._consumer = self._consumer, None
        self._held = []
        self._acknowledged = []
        if consumer is not None:
            try:
                consumer.close()
            except pulsar.PulsarException as also:
                self._evidence.say("x", f"close: {also}")


def main() -> None:
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(relativeCreated)d %(levelname)s %(name)s %(message)s"
    )
    orders = json.loads(sys.argv[1])
    orders["residues"] = tuple(orders.get("residues", Orders.residues))
    Worker(Orders(**orders)).run()
    # Not an orderly end: who wants that says `close` first.
    os._exit(0)


if __name__ == "__main__":
    main()
