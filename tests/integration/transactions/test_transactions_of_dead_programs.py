"""All programs with transactions are dead: what they held comes to consumers without, soon after its time is over."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time

import pytest

import pulsar_on_kafka as pulsar
from tests.integration.transaction_support import PATIENCE_S
from tests.steps import Unique

pytestmark = [pytest.mark.kafka, pytest.mark.kills]

TIMEOUT_S = 8
DYING = textwrap.dedent("""
    import os, sys
    import pulsar_on_kafka as pulsar
    client = pulsar.Client(sys.argv[1], enable_transaction=True, stand_in=False)
    consumer = client.subscribe(sys.argv[2], "s", consumer_type=pulsar.ConsumerType.Shared)
    txn = client.new_transaction(int(sys.argv[3]) * 1000)
    client.create_producer(sys.argv[2]).send(b"never", txn=txn)
    for _ in range(3):
        consumer.acknowledge(consumer.receive(60_000), txn=txn)
    print("holds", flush=True)
    os._exit(9)
""")


def test_what_dead_programs_acknowledged_comes_to_a_consumer_without_transactions(
    service_url: str, unique: Unique
) -> None:
    topic = f"persistent://public/default/{unique()}"
    client = pulsar.Client(service_url, operation_timeout_seconds=120)
    try:
        client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared).close()
        producer = client.create_producer(topic)
        for number in range(3):
            producer.send(b"%d" % number)
        dying = subprocess.run(
            [sys.executable, "-c", DYING, service_url, topic, str(TIMEOUT_S)], stdout=subprocess.PIPE, timeout=120
        )
        assert dying.stdout == b"holds\n"
        died_s = time.monotonic()
        consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
        producer.send(b"behind")
        found: set[bytes] = set()
        while len(found) < 4:
            message = consumer.receive(int(PATIENCE_S * 1000))
            found.add(message.data())
            print(f"    {message.data()!r} came {time.monotonic() - died_s:.1f} s after the death", flush=True)
        assert found == {b"0", b"1", b"2", b"behind"}
    finally:
        client.close()
