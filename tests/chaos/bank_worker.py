"""A process that consumes, processes and produces in transactions, and may be killed at any instant.

    python -m tests.chaos.bank_worker '{"url": ..., "source": ..., ...}'    (the fields of `BankOrders`, as JSON)

Each message of the source is sent to two topics and acknowledged, in one transaction; some are aborted, and tried again
when they come back. What it does is written down in its evidence file, one write a line (times: CLOCK_MONOTONIC):

    s t                     subscribed
    b t txn text            began a transaction for this message
    e t txn                 will commit now; a (abort) for one that it aborts
    d t txn                 was told that it is committed
    u t txn                 was told that it is aborted
    x t txn text            was told something else; nothing is known
    z t cut                 gets its signal now (`went on ...`: it was continued)
    q t                     ended by itself
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pulsar_on_kafka as pulsar
from tests.chaos.transaction_cuts import TransactionCut

_RECEIVE_MS = 500


@dataclass(frozen=True)
class BankOrders:
    """Orders for a worker at its start. `cut` is "before STEP" or "after STEP" of `TransactionCut`, or nothing."""

    url: str
    source: str
    targets: tuple[str, str]
    evidence: str
    subscription: str = "bank"
    name: str = "worker"
    timeout_ms: int = 20_000
    transfers: bool = False
    """Messages are accounts; each transaction moves something between two, and tells it to the second target."""
    abort_every: int = 3
    """Abort each such transaction; 0: none."""
    cut: str = ""
    nth: int = 2
    signal_name: str = "SIGKILL"
    last_s: float = 240.0
    """It ends by itself after so long."""


class Account(NamedTuple):
    """The message of an account: "number balance"."""

    number: int
    balance: int

    def payload(self) -> bytes:
        return f"{self.number} {self.balance}".encode()

    @classmethod
    def read(cls, payload: bytes) -> Account:
        return cls(*map(int, payload.split()))


class Leg(NamedTuple):
    """One leg of a transfer, on one account: "transfer account amount"."""

    transfer: str
    account: int
    amount: int

    def payload(self) -> bytes:
        return f"{self.transfer} {self.account} {self.amount}".encode()

    @classmethod
    def read(cls, payload: bytes) -> Leg:
        transfer, account, amount = payload.decode().split()
        return cls(transfer, int(account), int(amount))


class Bank:
    """One worker. Single-threaded but for the SDK."""

    def __init__(self, orders: BankOrders) -> None:
        self._orders = orders
        self._file = os.open(orders.evidence, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        when, _, step = orders.cut.partition(" ")
        self._cut = TransactionCut(step, when, orders.nth, orders.signal_name, self._cutting) if step else None
        self._client = pulsar.Client(orders.url, enable_transaction=True, operation_timeout_seconds=90)
        self._producers = [self._client.create_producer(target) for target in orders.targets]
        self._begun = 0

    def _say(self, kind: str, text: str = "") -> None:
        os.write(self._file, f"{kind} {time.monotonic()} {text}\n".encode())

    def _cutting(self, text: str) -> None:
        self._say("z", text)

    def run(self) -> None:
        orders = self._orders
        consumer = self._client.subscribe(
            orders.source,
            orders.subscription,
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=4,
            negative_ack_redelivery_delay_ms=100,
        )
        self._say("s")
        until_s = time.monotonic() + orders.last_s
        while time.monotonic() < until_s:
            messages: list[Any] = []
            with suppress(pulsar.Timeout):
                while len(messages) < 1 + orders.transfers:
                    messages.append(consumer.receive(_RECEIVE_MS))
            if len(messages) <= orders.transfers or not self._one(consumer, messages):
                for message in messages:
                    consumer.negative_acknowledge(message)
        self._say("q")

    def _one(self, consumer: Any, messages: list[Any]) -> bool:
        """Whether the messages are seen to, by a commit or an abort."""
        try:
            txn = self._client.new_transaction(self._orders.timeout_ms)
        except pulsar.PulsarException:
            return False
        self._begun += 1
        text = b" ".join(message.data() for message in messages).decode()
        self._say("b", f"{txn.txn_id.most_bits}:{txn.txn_id.least_bits} {text}")
        kind = "x"
        try:
            for number, (producer, payloads) in enumerate(
                zip(self._producers, self._made_of(messages), strict=True), 1
            ):
                for payload in payloads:
                    key = f"{payload.decode()} {self._orders.name} {self._begun}"  # another partition each time
                    self._step(f"send {number}", partial(producer.send, payload, txn=txn, partition_key=key))
            for message in messages:
                consumer.acknowledge(message, txn=txn)
            if self._orders.abort_every and self._begun % self._orders.abort_every == 0:
                self._say("a", f"{txn.txn_id.most_bits}:{txn.txn_id.least_bits}")
                self._step("abort", txn.abort)
                kind = "u"
            else:
                self._say("e", f"{txn.txn_id.most_bits}:{txn.txn_id.least_bits}")
                self._step("commit", txn.commit)
                kind = "d"
        except pulsar.PulsarException as failure:
            self._say("x", f"{txn.txn_id.most_bits}:{txn.txn_id.least_bits} {failure}")
            with suppress(pulsar.PulsarException):
                txn.abort()
            return False
        self._say(kind, f"{txn.txn_id.most_bits}:{txn.txn_id.least_bits}")
        return True

    def _made_of(self, messages: list[Any]) -> tuple[list[bytes], list[bytes]]:
        """What goes to the first target and to the second."""
        if not self._orders.transfers:
            return [messages[0].data()], [messages[0].data()]
        (giver, has), (taker, had) = (Account.read(message.data()) for message in messages)
        amount = random.randint(0, has)
        name = f"{self._orders.name}-{self._begun}"
        return (
            [Account(giver, has - amount).payload(), Account(taker, had + amount).payload()],
            [Leg(name, giver, -amount).payload(), Leg(name, taker, amount).payload()],
        )

    def _step(self, name: str, action: Callable[[], Any]) -> None:
        if self._cut is None:
            action()
        else:
            self._cut.step(name, action)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    Bank(BankOrders(**{**given, "targets": tuple(given["targets"])})).run()
