"""The measured programs, written once against the API that `pulsar` and `layer` share.

Each takes `sdk`, the module's name, and `url`, its service URL, and returns plain numbers.
"""

from __future__ import annotations

import importlib
import itertools
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.pacing import Receiver, collect, send_paced
from benchmarks.plan import PENDING

_SETTLE_S = 60.0
_THREADS = 32
_ONE_IN = 10
"""So many transactions, and one of them is aborted."""


class _Counted:
    """Counts deliveries. The SDK calls it from one thread at a time."""

    def __init__(self, sdk: Any, expected: int) -> None:
        self._ok = sdk.Result.Ok
        self._expected = expected
        self.delivered = 0
        self.failed = 0
        self._all = threading.Event()

    def __call__(self, result: Any, message_id: Any) -> None:
        if result == self._ok:
            self.delivered += 1
        else:
            self.failed += 1
        if self.delivered + self.failed == self._expected:
            self._all.set()

    def require_all(self) -> None:
        if not self._all.wait(_SETTLE_S) or self.failed:
            raise RuntimeError(f"{self.delivered} of {self._expected} were delivered, {self.failed} failed")


def produce(sdk: str, url: str, topic: str, messages: int, size: int, batching: bool = False) -> dict[str, Any]:
    """send_async with a callback; the time ends with the last callback. Batches have the official default limits."""
    module = importlib.import_module(sdk)
    client = module.Client(url)
    producer = client.create_producer(
        topic, block_if_queue_full=True, max_pending_messages=PENDING, batching_enabled=batching
    )
    payload = b"x" * size
    _warm_up(module, client, topic, payload)
    counted = _Counted(module, messages)
    send_async = producer.send_async
    start_s = time.monotonic()
    for _ in range(messages):
        send_async(payload, counted)
    producer.flush()
    counted.require_all()
    took_s = time.monotonic() - start_s
    client.close()
    return {"per_s": round(messages / took_s), "took_s": round(took_s, 2)}


def produce_in_transactions(
    sdk: str, url: str, topic: str, messages: int, size: int, in_transaction: int
) -> dict[str, Any]:
    """Commit so many messages, `in_transaction` in each, by many threads; every tenth transaction is aborted."""
    module = importlib.import_module(sdk)
    client = module.Client(url, enable_transaction=True)
    producer = client.create_producer(topic, block_if_queue_full=True, max_pending_messages=PENDING)
    payload = b"x" * size
    numbers = itertools.count()
    left = iter(range(0, messages, in_transaction))

    def work() -> None:
        for start in left:
            while next(numbers) % _ONE_IN == _ONE_IN - 1:
                _in_a_transaction(client, producer, payload, in_transaction).abort()
            _in_a_transaction(client, producer, payload, min(in_transaction, messages - start)).commit()

    start_s = time.monotonic()
    with ThreadPoolExecutor(_THREADS) as threads:
        for done in [threads.submit(work) for _ in range(_THREADS)]:
            done.result()
    took_s = time.monotonic() - start_s
    client.close()
    return {"per_s": round(messages / took_s), "took_s": round(took_s, 2)}


def _in_a_transaction(client: Any, producer: Any, payload: bytes, count: int) -> Any:
    txn = client.new_transaction()
    for _ in range(count):
        producer.send_async(payload, None, txn=txn)
    return txn


def _warm_up(module: Any, client: Any, topic: str, payload: bytes) -> None:
    """Send to another topic, so that the measured one holds just what was measured."""
    messages = 5_000
    producer = client.create_producer(f"{topic}-warm-up", block_if_queue_full=True, max_pending_messages=PENDING)
    counted = _Counted(module, messages)
    for _ in range(messages):
        producer.send_async(payload, counted)
    producer.flush()
    counted.require_all()
    producer.close()


def receive(
    sdk: str,
    url: str,
    topic: str,
    messages: int,
    size: int,
    subscription: str,
    batching: bool = False,
    in_transaction: int = 0,
    filtered: bool = True,
) -> dict[str, Any]:
    """receive, data, acknowledge, one by one, on a Shared subscription; from the first message to the last ack.
    `batching` and `in_transaction` tell how the topic was filled. `records_per_s` counts all records of the log that
    are read for that, aborted ones and markers, too. `filtered=False` (ours only): aborted messages are received, too.
    """
    if not filtered:
        _let_everything_pass()
    module = importlib.import_module(sdk)
    client = module.Client(url)
    consumer = client.subscribe(
        topic,
        subscription,
        consumer_type=module.ConsumerType.Shared,
        initial_position=module.InitialPosition.Earliest,
    )
    first = consumer.receive()
    received_bytes = len(first.data())
    consumer.acknowledge(first)
    take, acknowledge = consumer.receive, consumer.acknowledge
    start_s = time.monotonic()
    for _ in range(messages - 1):
        message = take()
        received_bytes += len(message.data())
        acknowledge(message)
    took_s = time.monotonic() - start_s
    client.close()
    if received_bytes != messages * size:
        raise RuntimeError(f"{received_bytes} bytes were received instead of {messages * size}")
    closed_s = time.monotonic() - start_s - took_s
    return {
        "per_s": round((messages - 1) / took_s),
        "records_per_s": round((_records(messages, in_transaction, filtered=filtered) - 1) / took_s),
        "took_s": round(took_s, 2),
        "close_s": round(closed_s, 2),
    }


def _let_everything_pass() -> None:
    """Take the read-committed filter out of this process's layer, which the peers' processes do not even import."""
    found = importlib.import_module("pulsar_on_kafka.broker.subscriptions.records.read_committed")

    def take(_: Any, offsets: list[int], records: list[Any], looked: Any, end: int) -> Any:
        return found.Passed(offsets, records, looked.odd, found.BitMap64(), end)

    found.ReadCommitted.take = take


def _records(messages: int, in_transaction: int, *, filtered: bool = True) -> int:
    """What is read of the log after `produce_in_transactions`, give or take what the threads abort at the end."""
    if not in_transaction:
        return messages
    committed = -(-messages // in_transaction)
    if not filtered:
        return messages + committed
    aborted = committed // (_ONE_IN - 1)
    return messages + aborted * in_transaction + committed + aborted


def key_shared(sdk: str, url: str, topic: str, messages: int, size: int, keys: int, consumers: int) -> dict[str, Any]:
    """receive and acknowledge on a Key_Shared subscription, one thread a consumer, first message to last ack."""
    module = importlib.import_module(sdk)
    client = module.Client(url)
    counted = _Counted(module, messages)
    producer = client.create_producer(
        topic, block_if_queue_full=True, max_pending_messages=PENDING, batching_enabled=False
    )
    payload = b"x" * size
    for number in range(messages):
        producer.send_async(payload, counted, partition_key=f"key-{number % keys}")
    producer.flush()
    counted.require_all()
    made = [
        client.subscribe(
            topic, "s", module.ConsumerType.KeyShared, initial_position=module.InitialPosition.Earliest,
            consumer_name=f"c{number}",
        )
        for number in range(consumers)
    ]  # fmt: skip
    took_s = _receive_all(module, made, messages)
    client.close()
    return {"per_s": round(messages / took_s), "took_s": round(took_s, 2)}


def delayed(sdk: str, url: str, topic: str, messages: int, size: int) -> dict[str, Any]:
    """Messages that are all due at one moment: from then to the last ack, on a Shared subscription."""
    module = importlib.import_module(sdk)
    client = module.Client(url)
    consumer = client.subscribe(topic, "s", module.ConsumerType.Shared)
    counted = _Counted(module, messages)
    producer = client.create_producer(
        topic, block_if_queue_full=True, max_pending_messages=PENDING, batching_enabled=False
    )
    payload = b"x" * size
    due_s = time.time() + 3 + messages / 10_000
    for _ in range(messages):
        producer.send_async(payload, counted, deliver_at=int(due_s * 1000))
    producer.flush()
    counted.require_all()
    late_s = time.time() - due_s
    if late_s > 0:
        raise RuntimeError(f"sending took {late_s:.1f} s longer than until the messages are due")
    _receive_all(module, [consumer], messages)
    took_s = time.time() - due_s
    client.close()
    return {"per_s": round(messages / took_s), "took_s": round(took_s, 2)}


def _receive_all(module: Any, consumers: list[Any], messages: int) -> float:
    """Receive and acknowledge so many with one thread a consumer; from the first one received to the last ack."""
    left = [messages]
    began: list[float] = []
    ended: list[float] = []
    lock = threading.Lock()

    def work(consumer: Any) -> None:
        take, acknowledge = consumer.receive, consumer.acknowledge
        while left[0] > 0:
            try:
                message = take(2000)
            except module.Timeout:
                continue
            if not began:
                began.append(time.monotonic())
            acknowledge(message)
            with lock:
                left[0] -= 1
        ended.append(time.monotonic())

    threads = [threading.Thread(target=work, args=(consumer,)) for consumer in consumers]
    for thread in threads:
        thread.start()
    done_by = time.monotonic() + 240
    while left[0] > 0:
        if time.monotonic() > done_by:
            raise RuntimeError(f"{left[0]} of {messages} messages did not come")
        threads[0].join(0.05)
    finished_s = time.monotonic()
    for thread in threads:
        thread.join()
    return min(ended, default=finished_s) - began[0]


def make_topic(sdk: str, url: str, topic: str) -> dict[str, Any]:
    """Opening a producer creates the topic, with the settings that this SDK's topics have."""
    client = importlib.import_module(sdk).Client(url)
    client.create_producer(topic).close()
    client.close()
    return {}


def latency(sdk: str, url: str, topic: str, messages: int, rate: int) -> dict[str, Any]:
    module = importlib.import_module(sdk)
    client = module.Client(url)
    producer = client.create_producer(topic, block_if_queue_full=True, max_pending_messages=PENDING)
    arguments = {"sdk": sdk, "url": url, "topic": topic, "messages": messages, "rate": rate}
    receiver = Receiver("sdk_workers", "latency_receiver", arguments)
    receiver.wait_ready()
    counted = _Counted(module, messages)
    lag_ms = send_paced(messages, rate, lambda payload: producer.send_async(payload, counted))
    producer.flush()
    counted.require_all()
    result = receiver.result()
    client.close()
    return {**result, "sender_lag_ms": lag_ms}


def latency_receiver(sdk: str, url: str, topic: str, messages: int, rate: int) -> dict[str, Any]:
    module = importlib.import_module(sdk)
    client = module.Client(url)
    consumer = client.subscribe(topic, "latency", consumer_type=module.ConsumerType.Shared)

    def next_payloads() -> list[bytes]:
        message = consumer.receive()
        consumer.acknowledge(message)
        return [message.data()]

    result = collect(messages, rate, next_payloads)
    client.close()
    return dict(result)


def opening(sdk: str, url: str, topic: str, messages: int, times: int) -> dict[str, Any]:
    """Medians of `times` openings after one that is not counted; `messages` wait in the topic for each consumer."""
    module = importlib.import_module(sdk)
    client = module.Client(url)
    with_backlog = client.create_producer(topic)
    for _ in range(messages):
        with_backlog.send(b"x" * 200)
    with_backlog.close()
    readings: list[tuple[float, float, float, float]] = []
    for number in range(times + 1):
        start_s = time.monotonic()
        producer = client.create_producer(topic)
        created_s = time.monotonic()
        producer.send(b"x" * 200)
        sent_s = time.monotonic()
        producer.close()
        subscribe_s = time.monotonic()
        consumer = client.subscribe(
            topic,
            f"opening-{number}",
            consumer_type=module.ConsumerType.Shared,
            initial_position=module.InitialPosition.Earliest,
        )
        subscribed_s = time.monotonic()
        consumer.receive()
        received_s = time.monotonic()
        consumer.close()
        readings.append((created_s - start_s, sent_s - start_s, subscribed_s - subscribe_s, received_s - subscribe_s))
    client.close()
    names = ("create_producer_ms", "producer_ms", "subscribe_ms", "consumer_ms")
    columns = zip(*readings[1:], strict=True)
    return {name: round(statistics.median(column) * 1000, 2) for name, column in zip(names, columns, strict=True)}


def probe(sdk: str, url: str, topic: str) -> dict[str, Any]:
    """The librdkafka settings that the layer's producer really uses, and those of a consumer of librdkafka in its
    place, for the raw cells."""
    from pulsar_on_kafka.broker.node.services import FETCH_QUEUE_KBYTES
    from pulsar_on_kafka.kafka.settings import KafkaSettings

    seen: dict[str, dict[str, Any]] = {}
    make_producer = KafkaSettings.producer

    def producer(self: KafkaSettings, **options: Any) -> dict[str, Any]:
        # The first is the topic's own producer only if nothing internal opens one before: so the last one wins.
        seen["producer"] = make_producer(self, **options)
        seen["consumer"] = self.group_member(
            group_id="probe", client_id="probe", fetch_queue_kbytes=FETCH_QUEUE_KBYTES, partitioned=False
        )
        return seen["producer"]

    KafkaSettings.producer = producer  # type: ignore[method-assign]
    module = importlib.import_module(sdk)
    client = module.Client(url)
    opened = client.create_producer(topic, batching_enabled=False)
    opened.send(b"x")
    consumer = client.subscribe(
        topic,
        "probe",
        consumer_type=module.ConsumerType.Shared,
        initial_position=module.InitialPosition.Earliest,
    )
    consumer.receive()
    client.close()
    if set(seen) != {"producer", "consumer"}:
        raise RuntimeError(f"the layer asked KafkaSettings for {sorted(seen)} only; the raw cells cannot copy the rest")
    return {kind: plain(config) for kind, config in seen.items()}


def plain(config: dict[str, Any]) -> dict[str, Any]:
    """Without what is no plain value (loggers, callbacks)."""
    return {name: value for name, value in config.items() if isinstance(value, str | int | float | bool)}
