"""A process that consumes through the SDK and may be killed at any instant.

    python -m tests.chaos.worker '{"url": ..., "topic": ..., ...}'      (the fields of `Orders`, as JSON)

Commands come on standard input, one word a line: `subscribe`, `close`, `seek` (to a message received lately). When
standard input ends, so does the process. What it does is written down in its evidence file, one write a line, so that a
SIGKILL takes back nothing that was said (times are CLOCK_MONOTONIC, the same for all processes of the machine; a
position is partition:offset:index, index counting the messages of a batch entry):

    w t                     warm: connected, waiting for commands
    s t                     subscribed
    b t text                subscribing failed: somebody else holds the subscription, or the broker is away
    o t partition version next      owns a partition: recovered its cursor (from the member's own log line)
    l t partition ...       lost partitions (likewise)
    v t partition ...       gave partitions back, saved
    t t partition ...       has partitions of which another consumer than before is the active one now (Failover)
    h t position ...        put into the consumer's inbox by the member
    r t0 t position redeliveries    received, by a call that began at t0
    a t position            will be acknowledged now
    A t position            will be acknowledged now with everything before it
    n t position            will be acknowledged negatively now
    d t aposition|Aposition ...     durably acknowledged: flush, or acknowledge(wait=True), has returned
    x t text                a flush failed: of what was acknowledged since the last one nothing is known
    k t position            will seek now, to behind this message
    K t                     the seek has returned
    E t text                the seek has failed
    f t text                the consumer failed for good
    z t point               gets its signal now, in the middle of a save
    q t                     closes now
    c t                     closed
"""

from __future__ import annotations

import faulthandler
import json
import logging
import operator
import os
import queue
import random
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.broker.cursor import commit_metadata
from pulsar_on_kafka.broker.subscriptions.dispatching.dispatcher import Dispatcher
from pulsar_on_kafka.broker.subscriptions.member.ownership import Ownership
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery, Endpoint
from pulsar_on_kafka_mapping.state.cursors.cursor_state import MAX_METADATA_CHARS
from tests.chaos.cleaner import hasten
from tests.chaos.cuts import Cut

_RECEIVE_MS = 10
_SEEK_AMONG = 2_000
"""A seek goes behind one of so many messages received last."""


@dataclass(frozen=True)
class Orders:
    """Orders for a worker at its start."""

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
    """Flush after so many acknowledgements; 0: acknowledge with wait=True."""
    flush_idle_s: float = 0.0
    """Flush when nothing came for so long, too."""
    cumulative: int = 0
    """Acknowledge every so many messages cumulatively, whatever `residues` and `shuffle` say; 0: never."""
    nack_every: int = 0
    """Refuse about one message in so many, each at most once; 0: none."""
    nack_delay_ms: int = 200
    dead_letters: tuple[int, str] | None = None
    """A dead letter policy: how often a message is redelivered, and the topic of the dead ones. Then positions of other
    residues are poison: they are refused each time."""
    pace_ms: float = 0.0
    """Pause after each message."""
    persist_ms: int = 100
    queue: int = 1000
    cut: tuple[str, str] | None = None
    """A point of a save (`cuts.POINTS`), and the signal that comes there."""
    seed: int = 1
    clock_ahead_s: float = 0.0
    """What its wall clock shows beyond the machine's; negative when it is late."""
    quick_cleaner: bool = False
    """State topics are compacted within seconds (`tests.chaos.cleaner`)."""
    metadata_chars: int = MAX_METADATA_CHARS
    """What it puts into a commit's metadata at most; with less, states go into segments that are not big."""


def residue(partition: int, offset: int, index: int = 0) -> int:
    """A number from 0 to 9 that everybody agrees on and that has no pattern."""
    return crc32(f"{partition}:{offset}:{index}".encode()) % 10


def position_of(message: Delivery | pulsar.Message) -> str:
    return f"{message.feed.slot.number}:{message.offset}:{getattr(message, 'batch_index', 0)}"


class Evidence:
    """A file that only grows."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def say(self, kind: str, *values: object) -> None:
        text = f"{kind} {time.monotonic():.6f} {' '.join(map(str, values))}"
        os.write(self._file, text.replace("\n", " ").encode() + b"\n")

    def received(self, began: float, position: str, redeliveries: int) -> None:
        os.write(self._file, f"r {began:.6f} {time.monotonic():.6f} {position} {redeliveries}\n".encode())

    def watch_inboxes(self) -> None:
        """Say what the member puts into inboxes, right before it does."""
        deliver = Endpoint.deliver

        def said(endpoint: Endpoint, deliveries: Sequence[Delivery]) -> None:
            if deliveries:
                self.say("h", *map(position_of, deliveries))
            deliver(endpoint, deliveries)

        Endpoint.deliver = said  # type: ignore[method-assign, assignment]

    def watch_revocations(self) -> None:
        revoked = Ownership.revoked

        def said(ownership: Ownership, partitions: list[int]) -> None:
            revoked(ownership, partitions)
            self.say("v", *partitions)

        Ownership.revoked = said  # type: ignore[method-assign, assignment]

    def watch_active_consumers(self) -> None:
        choose = Dispatcher.choose_active

        def said(dispatcher: Dispatcher) -> None:
            owned = dict(dispatcher._owned)
            before = {number: partition.active for number, partition in owned.items()}
            choose(dispatcher)
            if changed := [number for number, partition in owned.items() if partition.active is not before[number]]:
                self.say("t", *changed)

        Dispatcher.choose_active = said  # type: ignore[method-assign, assignment]  # watched, as the two above


class OwnershipLog(logging.Handler):
    """Turns the member's log lines about ownership into evidence."""

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(logging.INFO)
        self._evidence = evidence

    def emit(self, record: logging.LogRecord) -> None:
        arguments: Any = record.args if isinstance(record.args, tuple) else ()
        if "recovered from" in record.msg:
            identity, version, _, next_offset, _ = arguments
            self._evidence.say("o", identity.partition, version, next_offset)
        elif "lost partitions" in record.msg:
            self._evidence.say("l", *arguments[1])


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
        self._newest: dict[int, pulsar.Message] = {}
        """By partition, what to acknowledge cumulatively."""
        self._since = 0
        self._received_s = 0.0
        self._acknowledged: list[str] = []
        self._refused: set[str] = set()
        self._lately: deque[pulsar.Message] = deque(maxlen=_SEEK_AMONG)
        self._evidence.watch_inboxes()
        self._evidence.watch_revocations()
        self._evidence.watch_active_consumers()
        if orders.cut is not None:
            Cut(*orders.cut, lambda point: self._evidence.say("z", point))
        log = logging.getLogger("pulsar_on_kafka.broker.subscriptions.member.ownership")
        log.setLevel(logging.INFO)
        log.addHandler(OwnershipLog(self._evidence))

    def run(self) -> None:
        while not self._connected():
            self._pause.wait(0.1)
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
            elif command == "seek":
                self._seek()
            if self._consumer is not None:
                self._work(self._consumer)

    def _connected(self) -> bool:
        try:
            self._client.get_topic_partitions(self._orders.topic)
        except pulsar.PulsarException:  # the broker is away
            return False
        return True

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
        letters = self._orders.dead_letters
        try:
            self._consumer = self._client.subscribe(
                self._orders.topic,
                self._orders.subscription,
                consumer_type=pulsar.ConsumerType[self._orders.type],
                initial_position=pulsar.InitialPosition.Earliest,
                consumer_name=self._orders.name,
                receiver_queue_size=self._orders.queue,
                negative_ack_redelivery_delay_ms=self._orders.nack_delay_ms,
                dead_letter_policy=None if letters is None else pulsar.ConsumerDeadLetterPolicy(*letters, "graves"),
            )
        except pulsar.PulsarException as refused:
            self._evidence.say("b", refused)
        else:
            self._evidence.say("s")

    def _close(self) -> None:
        self._evidence.say("q")
        if self._consumer is not None:
            self._flush(self._consumer)
            consumer, self._consumer = self._consumer, None
            self._forget()
            self._leave(consumer)
        self._evidence.say("c")

    def _work(self, consumer: pulsar.Consumer) -> None:
        began = time.monotonic()
        try:
            message = consumer.receive(timeout_millis=_RECEIVE_MS)
        except pulsar.Timeout:
            self._acknowledge_newest(consumer)
            while self._held:
                self._acknowledge(consumer, self._held.pop())
            if self._acknowledged and time.monotonic() - self._received_s >= self._orders.flush_idle_s:
                self._flush(consumer)
            return
        except pulsar.PulsarException as failure:
            self._fail(failure)
            return
        self._received_s = time.monotonic()
        position = position_of(message)
        self._evidence.received(began, position, message.redelivery_count())
        self._lately.append(message)
        if self._refuses(position):
            self._evidence.say("n", position)
            consumer.negative_acknowledge(message)
        elif self._orders.cumulative:
            self._newest[message.feed.slot.number] = message
            self._since += 1
            if self._since >= self._orders.cumulative:
                self._acknowledge_newest(consumer)
        elif self._is_to_be_acknowledged(position):
            self._held.append(message)
            if len(self._held) > self._orders.shuffle:
                index = self._random.randrange(len(self._held))
                self._held[index], self._held[-1] = self._held[-1], self._held[index]
                self._acknowledge(consumer, self._held.pop())
        if self._orders.pace_ms:
            self._pause.wait(self._orders.pace_ms / 1000)

    def _acknowledge_newest(self, consumer: pulsar.Consumer) -> None:
        self._since = 0
        newest, self._newest = self._newest, {}
        for message in newest.values():
            self._acknowledge(consumer, message, cumulative=True)

    def _is_to_be_acknowledged(self, position: str) -> bool:
        return residue(*map(int, position.split(":"))) in self._orders.residues

    def _refuses(self, position: str) -> bool:
        if self._orders.dead_letters is not None and not self._is_to_be_acknowledged(position):
            return True
        every = self._orders.nack_every
        if not every or position in self._refused or crc32(f"{self._orders.name}/{position}".encode()) % every:
            return False
        self._refused.add(position)
        return True

    def _seek(self) -> None:
        if self._consumer is None or not self._lately:
            return
        message = self._random.choice(self._lately)
        self._evidence.say("k", position_of(message))
        try:
            self._consumer.seek(message.message_id())
        except pulsar.PulsarException as failure:
            self._evidence.say("E", f"{type(failure).__name__}: {failure}")
        else:
            self._evidence.say("K")

    def _acknowledge(self, consumer: pulsar.Consumer, message: pulsar.Message, *, cumulative: bool = False) -> None:
        kind, position = "A" if cumulative else "a", position_of(message)
        self._evidence.say(kind, position)
        self._acknowledged.append(kind + position)
        acknowledge = consumer.acknowledge_cumulative if cumulative else consumer.acknowledge
        try:
            acknowledge(message, wait=self._orders.flush_every == 0)
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

    def _forget(self) -> None:
        self._held = []
        self._newest = {}

    def _fail(self, failure: Exception) -> None:
        self._evidence.say("f", f"{type(failure).__name__}: {failure}")
        consumer, self._consumer = self._consumer, None
        self._forget()
        self._acknowledged = []
        if consumer is not None:
            self._leave(consumer)

    def _leave(self, consumer: pulsar.Consumer) -> None:
        try:
            consumer.close()
        except pulsar.PulsarException as failure:
            self._evidence.say("x", f"close: {failure}")


def work(orders: Orders) -> None:
    if orders.quick_cleaner:
        hasten(operator.setitem)
    commit_metadata.MAX_METADATA_CHARS = orders.metadata_chars  # type: ignore[attr-defined]
    if orders.clock_ahead_s:
        machines, ahead_ns = time.time_ns, int(orders.clock_ahead_s * 1e9)
        time.time_ns = lambda: machines() + ahead_ns
        time.time = lambda: time.time_ns() / 1e9
    Worker(orders).run()


def main() -> None:
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(relativeCreated)d %(levelname)s %(name)s %(message)s"
    )
    logging.getLogger("pulsar_on_kafka.kafka.groups.dead_members").setLevel(logging.INFO)
    faulthandler.register(signal.SIGUSR1)  # what all threads are at, on standard error
    orders = json.loads(sys.argv[1])
    orders["residues"] = tuple(orders.get("residues", Orders.residues))
    work(Orders(**orders))
    # Not an orderly end: who wants that says `close` first.
    os._exit(0)


if __name__ == "__main__":
    main()
