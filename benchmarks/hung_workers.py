"""One consumer of a Key_Shared subscription hangs: what the others get, how late, and what the waiting costs.

All consumers are in one process, a thread each; the sender is a process of its own.
"""

from __future__ import annotations

import importlib
import multiprocessing
import threading
import time
from collections import Counter
from multiprocessing.process import BaseProcess
from typing import Any, Final

from benchmarks.pacing import STAMP, send_paced
from benchmarks.plan import PENDING
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka_mapping.routing.sticky_hash import SLOTS, sticky_key_hash

_SUBSCRIPTION: Final = "hung"
_PATIENCE_S: Final = 120.0
_SILENCE_S: Final = 10.0
"""After the last message was sent: who gets nothing for so long gets nothing more."""
_POLL_MS: Final = 100
_WARM_UP_S: Final = 2
_WARM_UP: Final = b"warm-up"
_BUCKETS_PER_MS: Final = 10


def key_of(number: int, keys: int) -> str:
    return f"key-{number % keys}"


class _Working:
    """A consumer with a thread, which receives and acknowledges. Memory: a number for each tenth of a millisecond."""

    def __init__(self, module: Any, consumer: Any, skip: int) -> None:
        self.consumer = consumer
        self.keys: set[str] = set()
        """Of its warm-up messages."""
        self.received = 0
        self.latencies: Counter[int] = Counter()
        """Messages by their latency in tenths of a millisecond, without the first `skip`."""
        self.silence_s = 0.0
        """The longest that nothing came since the first message."""
        self.last_s = 0.0
        self.hangs = False
        self._module = module
        self._skip = skip
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        take, acknowledge, timeout = self.consumer.receive, self.consumer.acknowledge, self._module.Timeout
        while not self.over.is_set() and not self.hangs:
            try:
                message = take(_POLL_MS)
            except timeout:
                continue
            if self.hangs:
                break
            payload = message.data()
            if payload == _WARM_UP:
                self.keys.add(message.partition_key())
            else:
                self._note(payload)
            acknowledge(message)

    def _note(self, payload: bytes) -> None:
        now_ns = time.monotonic_ns()
        number, due_ns = STAMP.unpack_from(payload)
        self.received += 1
        if number >= self._skip:
            self.latencies[(now_ns - due_ns) * _BUCKETS_PER_MS // 1_000_000] += 1
        if self.last_s:
            self.silence_s = max(self.silence_s, now_ns / 1e9 - self.last_s)
        self.last_s = now_ns / 1e9


def key_shared_hung(
    sdk: str, url: str, topic: str, messages: int, rate: int, consumers: int, keys: int, hangs: bool
) -> dict[str, Any]:
    """`rate` messages of 200 B a second; the first consumer of `consumers` receives nothing of them if it `hangs`.

    The figures are of the other consumers: those that do not hang have as many keys in either case.
    """
    module = importlib.import_module(sdk)
    client = module.Client(url)
    skip = min(_WARM_UP_S * rate, messages // 10)
    working = [
        _Working(
            module,
            client.subscribe(topic, _SUBSCRIPTION, module.ConsumerType.KeyShared, consumer_name=f"c{number}"),
            skip,
        )
        for number in range(consumers)
    ]
    _meet(module, client, topic, working, keys)
    first, others = working[0], working[1:]
    first.hangs = hangs
    if hangs:
        first.thread.join()
    wanted = sum(key_of(number, keys) not in first.keys for number in range(keys)) * messages // keys
    start = {"sdk": sdk, "url": url, "topic": topic, "messages": messages, "rate": rate, "keys": keys}
    began_s = time.monotonic()
    sender = started(send_keys, start)
    sender.join()
    sent_s = time.monotonic() - began_s
    at_the_end = sum(each.received for each in others)
    pause = threading.Event()
    while (received := sum(each.received for each in others)) < wanted:
        if time.monotonic() - max(sent_s + began_s, *(each.last_s for each in others)) > _SILENCE_S:
            break
        pause.wait(0.1)
    ended_s = time.monotonic()
    for each in working:
        each.over.set()
    for each in others:
        each.thread.join()
    latencies = sum((each.latencies for each in others), Counter[int]())
    result = {
        "others_per_s": round(at_the_end / sent_s),
        "others_share": round(received / wanted, 4),
        "silence_s": round(
            max(max(each.silence_s, ended_s - each.last_s if received < wanted else 0.0) for each in others), 2
        ),
        "p50_ms": _percentile(latencies, 0.5),
        "p99_ms": _percentile(latencies, 0.99),
        "sent_per_s": round(messages / sent_s),
    }
    if sender.exitcode:
        raise RuntimeError(f"the sender ended with {sender.exitcode}")
    client.close()
    return result


def _meet(module: Any, client: Any, topic: str, working: list[_Working], keys: int) -> None:
    """One message of each key, so that everybody is there and it is known whose keys are whose."""
    producer = client.create_producer(topic, block_if_queue_full=True, batching_enabled=False)
    for number in range(keys):
        producer.send_async(_WARM_UP, lambda *_: None, partition_key=key_of(number, keys))
    producer.flush()
    producer.close()
    deadline, pause = Deadline.after(_PATIENCE_S), threading.Event()
    while (met := sum(len(each.keys) for each in working)) < keys:
        deadline.check(f"{keys} keys to come, {met} did")
        pause.wait(0.05)


def _percentile(latencies: Counter[int], share: float) -> float:
    left = sum(latencies.values()) * share
    for bucket in sorted(latencies):
        left -= latencies[bucket]
        if left <= 0:
            return bucket / _BUCKETS_PER_MS
    return -1.0


def started(target: Any, start: dict[str, Any]) -> BaseProcess:
    process = multiprocessing.get_context("spawn").Process(target=target, kwargs=start, daemon=True)
    process.start()
    return process


def send_keys(sdk: str, url: str, topic: str, messages: int, rate: int, keys: int) -> None:
    module = importlib.import_module(sdk)
    client = module.Client(url)
    producer = client.create_producer(
        topic, block_if_queue_full=True, max_pending_messages=PENDING, batching_enabled=False
    )
    failed: list[str] = []
    numbers = iter(range(messages))

    def send(payload: bytes) -> None:
        producer.send_async(
            payload,
            lambda result, _: None if result == module.Result.Ok else failed.append(str(result)),
            partition_key=key_of(next(numbers), keys),
        )

    send_paced(messages, rate, send)
    producer.flush()
    client.close()
    if failed:
        raise RuntimeError(f"{len(failed)} messages were not stored, the first one: {failed[0]}")


_WAITING_SHARE: Final = 0.95


def key_shared_waiting(sdk: str, url: str, topic: str, messages: int, keys: int) -> dict[str, Any]:
    """Of `messages` of 200 B, 95 % of the keys are a consumer's that hangs, while another one receives all its own.
    Then the first one receives a tenth of its own (100,000 at most): `back_per_s`, each key in order."""
    module = importlib.import_module(sdk)
    client = module.Client(url)
    policy, mode = module.ConsumerKeySharedPolicy, module.KeySharedMode.Sticky
    edge = round(SLOTS * _WAITING_SHARE)
    hanging, working = (
        client.subscribe(
            topic, _SUBSCRIPTION, module.ConsumerType.KeyShared, consumer_name=name,
            initial_position=module.InitialPosition.Earliest, key_shared_policy=policy(mode, sticky_ranges=[ranges]),
        )
        for name, ranges in (("hanging", (0, edge - 1)), ("working", (edge, SLOTS - 1)))
    )  # fmt: skip
    of_working = [sticky_key_hash(key_of(number, keys).encode()) >= edge for number in range(keys)]
    wanted = sum(of_working[number % keys] for number in range(messages))
    start = {"sdk": sdk, "url": url, "topic": topic, "messages": messages, "rate": 10_000_000, "keys": keys}
    sender = started(send_keys, start)
    began_s = time.monotonic()
    for _ in range(wanted):
        working.acknowledge(working.receive(round(_PATIENCE_S * 1000)))
    took_s = time.monotonic() - began_s
    sender.join()
    count = min(100_000, (messages - wanted) // 10)
    newest: dict[str, int] = {}
    began_s = time.monotonic()
    for _ in range(count):
        message = hanging.receive(round(_PATIENCE_S * 1000))
        number, _ = STAMP.unpack_from(message.data())
        if number <= newest.get(message.partition_key(), -1):
            raise RuntimeError(f"message {number} came after {newest[message.partition_key()]} of its key")
        newest[message.partition_key()] = number
        hanging.acknowledge(message)
    back_s = time.monotonic() - began_s
    client.close()
    return {
        "waiting": messages - wanted,
        "read_per_s": round(messages / took_s),
        "back_per_s": round(count / back_s),
    }
