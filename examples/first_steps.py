"""A Shared subscription in one page: every message is acknowledged by itself, and a refused one comes again.

    python examples/first_steps.py

It needs a Kafka broker, as `pok standalone` starts one. Look at the holes that it leaves afterwards:

    pok subscriptions show orders -s billing
"""

from __future__ import annotations

import sys

import pulsar_on_kafka as pulsar

ORDERS = 60
NOT_YET = {7, 19, 20, 21, 42}
"""Orders that nobody bills today: they stay unacknowledged, and nothing behind them waits."""


def main(url: str = "kafka://localhost:9092", topic: str = "orders") -> None:
    client = pulsar.Client(url)
    consumer = client.subscribe(
        topic,
        "billing",
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        negative_ack_redelivery_delay_ms=200,
    )
    producer = client.create_producer(topic)
    for number in range(ORDERS):
        producer.send(f"order {number}".encode())

    billed = refused = 0
    while billed < ORDERS - len(NOT_YET):
        message = consumer.receive(timeout_millis=10_000)
        number = int(message.data().split()[1])
        if number in NOT_YET:
            continue
        if number == 3 and not message.redelivery_count():
            consumer.negative_acknowledge(message)
            refused += 1
            continue
        consumer.acknowledge(message)
        billed += 1
    print(f"{billed} orders are billed, {refused} of them when it came again, {len(NOT_YET)} are left")
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
