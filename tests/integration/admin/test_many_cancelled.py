"""Many of very many delayed messages are cancelled: none of these is delivered, the others all are."""

from __future__ import annotations

import time

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.integration.admin.test_cancelled_messages import delayed_until_seen
from tests.steps import SHARED, Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize(
    ("count", "delay_s"), [(1_000, 0), pytest.param(1_000_000, 360, marks=[pytest.mark.soak, pytest.mark.timeout(0)])]
)
def test_every_tenth_of_many_delayed_messages_is_cancelled(
    client: pulsar.Client, admin_elsewhere: AdminClient, unique: Unique, count: int, delay_s: int
) -> None:
    """`make soak ARGS="-k every_tenth"` prints how long each step takes for a million. `delay_s`: 0 for an hour, which
    is made shorter behind the cancellation."""
    admin, topic = admin_elsewhere, unique()
    admin.create_topic(topic)
    admin.create_subscription(topic, "s", from_earliest=True)
    began_s = time.monotonic()

    def report(step: str) -> None:
        print(f"{time.monotonic() - began_s:6.1f} s  {step}")

    due_ms = time.time_ns() // 1_000_000 + (delay_s or 3_600) * 1000
    producer = client.create_producer(topic, block_if_queue_full=True, max_pending_messages=10_000)
    for number in range(count):
        producer.send_async(b"%d" % number, None, {"n": str(number % 10)}, deliver_at=due_ms)
    producer.flush()
    report(f"{count:,} sent")
    consumer = client.subscribe(topic, "s", SHARED, receiver_queue_size=10_000)
    delayed_until_seen(consumer, count)
    report("delayed by the owner")
    assert admin.cancel_messages(topic, properties={"n": "3"}) == {"s": count // 10}
    report(f"{count // 10:,} cancelled")
    assert time.time_ns() // 1_000_000 < due_ms, "too late on this machine"
    delayed_until_seen(consumer, count - count // 10)
    if not delay_s:
        assert admin.reschedule_messages(topic, deliver_at=0, delayed=True) == count - count // 10
    received: set[int] = set()
    while len(received) < count - count // 10:
        message = consumer.receive(delay_s * 1000 + 120_000)
        received.add(int(message.data()))
        consumer.acknowledge(message)
    report("the others received")
    assert not any(number % 10 == 3 for number in received)
    consumer.flush()
    until(lambda: admin.subscription_stats(topic, "s").backlog == 0, "nothing to be left")
