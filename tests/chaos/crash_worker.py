"""A consumer process of a crash history: it acknowledges, refuses and flushes until it is killed.

It is forked from a server process that has the package loaded, so that a history costs no start of Python. What it does
is written down, one write a line (times are CLOCK_MONOTONIC):

    w t             works now; it subscribes next
    s t             subscribed
    r t number      received
    a t number      will be acknowledged now, by itself or in a transaction
    d t number ...  durably acknowledged: a flush or the commit of the transaction has returned
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import time
from dataclasses import dataclass

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.broker.subscriptions.member.serving import MemberServing
from pulsar_on_kafka.client.client import Client

LOADED = (Client, MemberServing)
"""The package loads these when they are first used: here that is before the fork."""
RECEIVE_MS = 200
TXN_TIMEOUT_MS = 4_000
REFUSED_DELAY_MS = 150


@dataclass(frozen=True)
class CrashShape:
    """What a history is made of, by its seed."""

    seed: int
    type: str
    partitions: int
    messages: int
    batching: bool
    chunks: bool
    delays: bool
    dead_letters: bool
    transactions: bool
    refusals: bool

    @staticmethod
    def of(seed: int) -> CrashShape:
        chance = random.Random(f"shape {seed}")
        kind = chance.choice(("Shared", "KeyShared", "KeyShared", "Failover", "Exclusive"))
        unordered = kind in ("Shared", "KeyShared")
        transactions = chance.random() < 0.25
        return CrashShape(
            seed,
            kind,
            chance.choice((1, 4, 7)),
            chance.randrange(15, 40) if transactions else chance.randrange(40, 120),
            batching=chance.random() < 0.5,
            chunks=chance.random() < 0.25,
            delays=kind == "Shared" and chance.random() < 0.5,
            dead_letters=unordered and chance.random() < 0.4,
            transactions=transactions,
            refusals=chance.random() < 0.4,
        )

    def is_poison(self, number: int) -> bool:
        return self.dead_letters and number % 17 == 5

    def key_of(self, number: int) -> str:
        return f"k{number % 11}"


@dataclass(frozen=True)
class CrashOrders:
    url: str
    topic: str
    evidence: str
    shape: CrashShape
    worker: int


def new_client(url: str) -> pulsar.Client:
    """A client that shares nothing with others of its process."""
    return pulsar.Client(
        url,
        operation_timeout_seconds=120,
        enable_transaction=True,
        ack_persist_interval_ms=50,
        kafka_config={"client.rack": secrets.token_hex(4)},
    )


def subscribe(client: pulsar.Client, topic: str, shape: CrashShape) -> pulsar.Consumer:
    policy = None
    if shape.dead_letters:
        policy = pulsar.ConsumerDeadLetterPolicy(2, f"{topic}-dead", "all")
    return client.subscribe(
        topic,
        "s",
        consumer_type=getattr(pulsar.ConsumerType, shape.type),
        initial_position=pulsar.InitialPosition.Earliest,
        negative_ack_redelivery_delay_ms=REFUSED_DELAY_MS,
        receiver_queue_size=100,
        dead_letter_policy=policy,
    )


def number_of(message: pulsar.Message) -> int:
    return int(bytes(message.data()[:8]))


def _subscribed(client: pulsar.Client, orders: CrashOrders) -> pulsar.Consumer:
    """Waits while another process has an Exclusive subscription."""
    while True:
        try:
            return subscribe(client, orders.topic, orders.shape)
        except pulsar.ConsumerBusy:
            time.sleep(0.05)


def work(orders: CrashOrders) -> None:
    """Runs in the process until it is killed."""
    logging.disable(logging.CRITICAL)
    shape = orders.shape
    chance = random.Random(f"worker {shape.seed} {orders.worker}")
    file = os.open(orders.evidence, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(what: str, *numbers: int) -> None:
        os.write(file, f"{what} {time.monotonic():.6f} {' '.join(map(str, numbers))}\n".encode())

    note("w")
    client = new_client(orders.url)
    consumer = _subscribed(client, orders)
    note("s")
    out = client.create_producer(f"{orders.topic}-out") if shape.transactions else None
    flush_every = chance.choice((1, 3, 10, 40))
    unflushed: list[int] = []
    while True:
        try:
            message = consumer.receive(RECEIVE_MS)
        except pulsar.Timeout:
            continue
        except pulsar.ConsumerBusy:  # it paused for so long that another one has claimed the subscription
            consumer = _subscribed(client, orders)
            continue
        number = number_of(message)
        note("r", number)
        if shape.is_poison(number) or (shape.refusals and chance.random() < 0.1):
            consumer.negative_acknowledge(message)
        elif chance.random() < 0.1:
            continue  # it stays unacknowledged here
        elif out is not None:
            note("a", number)
            try:
                txn = client.new_transaction(TXN_TIMEOUT_MS)
                out.send(b"%08d" % number, txn=txn)
                consumer.acknowledge(message, txn=txn)
                txn.commit()
            except pulsar.PulsarException:
                continue  # it was aborted, or nobody knows
            note("d", number)
        else:
            note("a", number)
            consumer.acknowledge(message)
            unflushed.append(number)
            if len(unflushed) >= flush_every:
                flushed, unflushed = unflushed, []
                try:
                    consumer.flush()
                except pulsar.PulsarException:
                    continue  # of these nothing is known
                note("d", *flushed)
