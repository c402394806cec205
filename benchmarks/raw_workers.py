"""The same work on confluent-kafka alone, with the settings that the layer uses (`config`)."""

from __future__ import annotations

import statistics
import time
import uuid
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from benchmarks.pacing import Receiver, collect, send_paced
from benchmarks.plan import PENDING

_HEADER: Final = [("producer", b"standalone-0-0:12345678")]  # about as long as ours
_POLL_EVERY: Final = 100
_DEFAULT_FETCHING: Final = (
    "queued.max.messages.kbytes",
    "fetch.queue.backoff.ms",
    "fetch.message.max.bytes",
    "fetch.max.bytes",
)


class _Counted:
    def __init__(self) -> None:
        self.delivered = 0
        self.failed = 0

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.failed += 1

    def require(self, expected: int) -> None:
        if self.delivered != expected or self.failed:
            raise RuntimeError(f"{self.delivered} of {expected} were delivered, {self.failed} failed")


def produce(config: dict[str, Any], topic: str, messages: int, size: int, header: bool = False) -> dict[str, Any]:
    """produce with a callback, poll(0) every 100 messages; the time ends with the last callback."""
    producer = Producer({**config, "queue.buffering.max.messages": PENDING})
    payload = b"x" * size
    options: dict[str, Any] = {"headers": _HEADER} if header else {}
    _send_all(producer, topic, 5_000, payload, options)  # warm-up; nobody reads this topic
    start_s = time.monotonic()
    _send_all(producer, topic, messages, payload, options)
    took_s = time.monotonic() - start_s
    return {"per_s": round(messages / took_s), "took_s": round(took_s, 2)}


def _send_all(producer: Producer, topic: str, messages: int, payload: bytes, options: dict[str, Any]) -> None:
    counted = _Counted()
    send, poll = producer.produce, producer.poll
    for number in range(messages):
        while True:
            try:
                send(topic, payload, on_delivery=counted, **options)
                break
            except BufferError:
                poll(0.01)
        if number % _POLL_EVERY == 0:
            poll(0)
    producer.flush()
    counted.require(messages)


def receive(config: dict[str, Any], topic: str, messages: int, default_fetching: bool = False) -> dict[str, Any]:
    """consume(1000), value, key and headers of each; from the first batch, which is not counted, to the last."""
    settings = {name: value for name, value in config.items() if not (default_fetching and name in _DEFAULT_FETCHING)}
    consumer = Consumer({**settings, "group.id": f"raw-{uuid.uuid4().hex}", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    batch = consumer.consume(1000, 30)
    first = received = len(batch)
    cpu_s, start_s = time.process_time(), time.monotonic()
    while received < messages:
        batch = consumer.consume(min(1000, messages - received), 30)
        if not batch:
            raise RuntimeError(f"no message for 30 s after {received} of {messages}")
        for message in batch:
            message.value()
            message.key()
            message.headers()
        received += len(batch)
    took_s = time.monotonic() - start_s
    cpu_s = time.process_time() - cpu_s
    # Events that are no messages would count as messages above, and end elsewhere than at the last offset.
    if received != messages or batch[-1].error() is not None or batch[-1].offset() != messages - 1:
        raise RuntimeError(f"received {received}, the last at {batch[-1].offset()}, instead of {messages} messages")
    consumer.close()
    return {
        "per_s": round((messages - first) / took_s),
        "took_s": round(took_s, 2),
        "cpu_s": round(cpu_s, 2),  # far below took_s: librdkafka slept, and the rate says nothing about its cost
    }


def latency(
    config: dict[str, Any], consumer_config: dict[str, Any], topic: str, messages: int, rate: int
) -> dict[str, Any]:
    producer = Producer(config)
    receiver = Receiver(
        "raw_workers",
        "latency_receiver",
        {"config": consumer_config, "topic": topic, "messages": messages, "rate": rate},
    )
    receiver.wait_ready()
    counted = _Counted()

    def send(payload: bytes) -> None:
        producer.produce(topic, payload, on_delivery=counted)
        producer.poll(0)

    lag_ms = send_paced(messages, rate, send)
    producer.flush()
    counted.require(messages)
    return {**receiver.result(), "sender_lag_ms": lag_ms}


def latency_receiver(config: dict[str, Any], topic: str, messages: int, rate: int) -> dict[str, Any]:
    consumer = Consumer({**config, "group.id": f"raw-{uuid.uuid4().hex}", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.poll(1)  # the fetch is under way before the sender starts

    def next_payloads() -> list[bytes]:
        message = consumer.poll(1)
        return [] if message is None or message.error() is not None else [message.value() or b""]

    result = collect(messages, rate, next_payloads)
    consumer.close()
    return dict(result)


def opening(
    config: dict[str, Any], consumer_config: dict[str, Any], topic: str, messages: int, times: int
) -> dict[str, Any]:
    """A Producer until its first delivery; a group member until its first message. Both are made anew each time.

    The counted producer connects (`list_topics`) before it sends. One that does not, `producer_unconnected_ms`, waits
    half a second in librdkafka's timer for an idempotent producer's id; measured against that, any opening looks quick.
    """
    backlog = Producer(config)
    _send_all(backlog, topic, messages, b"x" * 200, {})
    readings: list[tuple[float, float, float]] = []
    for _ in range(times + 1):
        unconnected_s = _until_first_delivery(config, topic, connect=False)
        connected_s = _until_first_delivery(config, topic, connect=True)
        subscribe_s = time.monotonic()
        consumer = Consumer({**consumer_config, "group.id": f"raw-{uuid.uuid4().hex}", "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        message = None
        while message is None or message.error() is not None:
            message = consumer.poll(1)
        received_s = time.monotonic()
        consumer.close()
        readings.append((connected_s, unconnected_s, received_s - subscribe_s))
    columns = zip(*readings[1:], strict=True)
    return {
        name: round(statistics.median(column) * 1000, 2)
        for name, column in zip(("producer_ms", "producer_unconnected_ms", "consumer_ms"), columns, strict=True)
    }


def _until_first_delivery(config: dict[str, Any], topic: str, *, connect: bool) -> float:
    start_s = time.monotonic()
    producer = Producer(config)
    if connect:
        producer.list_topics(topic, timeout=30)
    counted = _Counted()
    producer.produce(topic, b"x" * 200, on_delivery=counted)
    while not counted.delivered and not counted.failed:
        producer.poll(1)
    took_s = time.monotonic() - start_s
    counted.require(1)
    return took_s
