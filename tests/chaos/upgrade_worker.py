"""A program of the public calls alone, which two versions of the package run: see `test_rolling_upgrade.py`.

    python upgrade_worker.py URL TOPIC produce NAME
    python upgrade_worker.py URL TOPIC consume NAME SUBSCRIPTION TYPE
    python upgrade_worker.py URL TOPIC transfer NAME SUBSCRIPTION TYPE

`transfer` acknowledges messages and sends copies of them to the topic `TOPIC-moved`, in transactions.

It prints `ready`, then a line for each stored or received message, and ends at SIGTERM. A Shared consumer refuses each
eleventh message at its first delivery.
"""

from __future__ import annotations

import signal
import sys
import threading
import time

import pulsar_on_kafka as pulsar

_KEYS = 10
_PAUSE_S = 0.02
_REFUSED = 11


def _produce(client: pulsar.Client, topic: str, name: str, stop: threading.Event) -> None:
    producer = client.create_producer(topic, producer_name=name, batching_enabled=False)
    print("ready", flush=True)
    number = 0
    while not stop.wait(_PAUSE_S):
        key = f"{name}-{number % _KEYS}"
        producer.send(f"{key}:{number}".encode(), partition_key=key)
        print("sent", f"{key}:{number}", flush=True)
        number += 1
    producer.close()


def _subscribed(client: pulsar.Client, topic: str, subscription: str, kind: str) -> pulsar.Consumer:
    return client.subscribe(
        topic,
        subscription,
        consumer_type=getattr(pulsar.ConsumerType, kind),
        initial_position=pulsar.InitialPosition.Earliest,
        negative_ack_redelivery_delay_ms=500,
    )


def _consume(client: pulsar.Client, topic: str, subscription: str, kind: str, stop: threading.Event) -> None:
    consumer = _subscribed(client, topic, subscription, kind)
    print("ready", flush=True)
    while not stop.is_set():
        try:
            message = consumer.receive(500)
        except pulsar.Timeout:
            continue
        text = message.data().decode()
        print("got", text, time.monotonic_ns(), message.redelivery_count(), flush=True)
        if kind == "Shared" and not message.redelivery_count() and int(text.partition(":")[2]) % _REFUSED == 0:
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
    consumer.close()


def _transfer(client: pulsar.Client, topic: str, subscription: str, kind: str, stop: threading.Event) -> None:
    consumer = _subscribed(client, topic, subscription, kind)
    producer = client.create_producer(f"{topic}-moved", batching_enabled=False)
    print("ready", flush=True)
    while not stop.is_set():
        messages = consumer.batch_receive()
        if not messages:
            continue
        try:
            transaction = client.new_transaction(60_000)
            for message in messages:
                producer.send(message.data(), txn=transaction)
                consumer.acknowledge(message, txn=transaction)
            transaction.commit()
        except pulsar.PulsarException as failure:
            print("failed", type(failure).__name__, flush=True)
            for message in messages:
                consumer.negative_acknowledge(message)
            continue
        print("moved", len(messages), flush=True)
    producer.close()
    consumer.close()


def main(url: str, topic: str, work: str, name: str, subscription: str = "", kind: str = "") -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    client = pulsar.Client(url, enable_transaction=work == "transfer")
    if work == "produce":
        _produce(client, topic, name, stop)
    elif work == "transfer":
        _transfer(client, topic, subscription, kind, stop)
    else:
        _consume(client, topic, subscription, kind, stop)
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
