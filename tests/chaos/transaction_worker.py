"""A process that sends in one transaction after the other until its standard input ends, and serves coordinators.

It says of each what it was told: {"txn": "0:7", "value": "w-3", "told": "COMMITTED"}. Commits and aborts take turns.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import dataclass

import pulsar_on_kafka as pulsar

TIMEOUT_MS = 15_000


@dataclass(frozen=True)
class TransactionOrders:
    """Each transaction sends one message to `single` and one to `spread`."""

    service_url: str
    name: str
    single: str
    spread: str


def say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def one(client: pulsar.Client, producers: list[pulsar.Producer], value: str, *, commit: bool) -> None:
    txn = client.new_transaction(TIMEOUT_MS)
    told = "nothing"
    try:
        for producer in producers:
            producer.send(value.encode(), txn=txn)
        if commit:
            txn.commit()
        else:
            txn.abort()
        told = txn.state.value
    except pulsar.PulsarException as failure:
        told = f"{type(failure).__name__}: {failure}"
    finally:
        say(txn=str(txn), value=value, told=told)


def main() -> None:
    orders = TransactionOrders(**json.loads(sys.argv[1]))
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    client = pulsar.Client(orders.service_url, enable_transaction=True)
    producers = [client.create_producer(topic) for topic in (orders.single, orders.spread)]
    number = 0
    while not ended.is_set():
        try:
            one(client, producers, f"{orders.name}-{number}", commit=number % 3 > 0)
        except pulsar.PulsarException as failure:  # none was begun
            say(trouble=f"{type(failure).__name__}: {failure}")
        number += 1
    client.close()


if __name__ == "__main__":
    main()
