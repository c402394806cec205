"""Many processes that consume one partition: how much they do, how late messages come, what leases cost.

The processes are started here and told of their work by what `multiprocessing` shares; each sleeps at every message.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Producer

from benchmarks import machine
from benchmarks.model import OWN_SDK
from benchmarks.pacing import STAMP, percentiles, send_paced
from benchmarks.plan import PENDING
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka_mapping.state.state_topics import DELIVERIES

_SUBSCRIPTION: Final = "fleet"
_WARM_UP: Final = b"warm-up"
_PATIENCE_S: Final = 120.0
_POLL_MS: Final = 100
_TOLD_EVERY: Final = 20

Take = Callable[[], tuple[bytes, Callable[[], object]] | None]
"""The next payload and its acknowledgement; None when none came for a moment."""


@dataclass(frozen=True, slots=True)
class _Shared:
    """State that the processes of a fleet share: `met` is raised by each at its first message, `done` counts the
    others."""

    met: Any
    done: Any
    over: Any
    answers: Any

    @classmethod
    def make(cls) -> _Shared:
        context = multiprocessing.get_context("spawn")
        return cls(context.Semaphore(0), context.Value("q", 0), context.Event(), context.Queue())


def fleet(
    sdk: str, url: str, topic: str, messages: int, processes: int, work_ms: float = 1.0, rate: int = 0
) -> dict[str, Any]:
    """`messages` of 200 B for `processes`, each of which takes `work_ms` for a message; at once, or `rate` a second."""
    module = importlib.import_module(sdk)
    client = module.Client(url)
    producer = client.create_producer(topic, block_if_queue_full=True, max_pending_messages=PENDING)
    failed: list[str] = []

    def send(payload: bytes) -> None:
        producer.send_async(
            payload, lambda result, _: None if result == module.Result.Ok else failed.append(str(result))
        )

    start = {"sdk": sdk, "url": url, "topic": topic, "work_ms": work_ms}
    with _fleet(_sdk_member, start, processes, send) as shared:
        before = _lease_traffic(client, topic) if sdk == OWN_SDK else None
        found = _measure(shared, messages, processes, rate, send, producer.flush)
        after = _lease_traffic(client, topic) if sdk == OWN_SDK else None
    client.close()
    if failed:
        raise RuntimeError(f"{len(failed)} messages were not stored, the first one: {failed[0]}")
    if before is not None and after is not None:
        records, size = (now - then for now, then in zip(after, before, strict=True))
        found |= {"lease_records": round(records / messages, 4), "lease_bytes": round(size / messages, 2)}
    return found


def share_group_fleet(
    topic: str,
    messages: int,
    config: dict[str, Any],
    consumer_config: dict[str, Any],
    processes: int,
    work_ms: float = 1.0,
    rate: int = 0,
) -> dict[str, Any]:
    """The same with a Kafka share group: confluent-kafka's `ShareConsumer`, acknowledging each message."""
    producer = Producer(config)

    def send(payload: bytes) -> None:
        producer.produce(topic, payload)
        producer.poll(0)

    start = {"servers": consumer_config["bootstrap.servers"], "topic": topic, "work_ms": work_ms}
    with _fleet(_share_group_member, start, processes, send) as shared:
        return _measure(shared, messages, processes, rate, send, producer.flush)


@contextmanager
def _fleet(
    target: Callable[..., None], start: dict[str, Any], processes: int, send: Callable[[bytes], None]
) -> Iterator[_Shared]:
    """The processes run, and each has had a message."""
    shared = _Shared.make()
    context = multiprocessing.get_context("spawn")
    members = [context.Process(target=target, args=(shared,), kwargs=start, daemon=True) for _ in range(processes)]
    for member in members:
        member.start()
    try:
        met, deadline = 0, Deadline.after(_PATIENCE_S)
        while met < processes:
            deadline.check(f"each of {processes} processes to receive something, {met} did")
            send(_WARM_UP)
            met += bool(shared.met.acquire(timeout=0.02))
        yield shared
    finally:
        shared.over.set()
        for member in members:
            member.join(20)
            member.kill()


def _measure(
    shared: _Shared,
    messages: int,
    processes: int,
    rate: int,
    send: Callable[[bytes], None],
    flush: Callable[[], object],
) -> dict[str, Any]:
    busy_s, all_s = machine.cpu_s()
    lag_ms = send_paced(messages, rate or 1_000_000, send)
    flush()
    deadline = Deadline.after(_PATIENCE_S)
    pause = threading.Event()
    now_busy_s = now_all_s = 0.0
    while (done := shared.done.value) < messages:
        deadline.check(f"{messages} messages to be worked off, {done} were")
        if 3 * done < 2 * messages or not now_all_s:
            now_busy_s, now_all_s = machine.cpu_s()
        pause.wait(0.02)
    shared.over.set()
    answers = [shared.answers.get(timeout=_PATIENCE_S) for _ in range(processes)]
    latencies: dict[int, int] = {}
    for _, _, theirs, _ in answers:
        latencies.update(theirs)
    if len(latencies) != messages:
        raise RuntimeError(f"{len(latencies)} of {messages} messages came")
    began, ended = min(first for first, _, _, _ in answers if first), max(last for _, last, _, _ in answers)
    per_s = messages / ((ended - began) / 1e9)
    shares = sorted(len(theirs) for _, _, theirs, _ in answers)
    written = sum(writes for _, _, _, writes in answers)
    return {
        "per_s": round(per_s),
        "per_process_s": round(per_s / processes, 1),
        "least_share": round(shares[0] * processes / messages, 3),
        "twice": sum(shares) - messages,
        "sender_lag_ms": lag_ms,
        "cores_busy": round((now_busy_s - busy_s) / (now_all_s - all_s), 3),
        **({"lease_requests": round(written / messages, 4)} if written else {}),
        **percentiles([latencies[number] for number in range(messages)], rate or messages),
    }


def _work(shared: _Shared, take: Take, work_ms: float, writes: Callable[[], int]) -> None:
    """`writes`: requests to `deliveries` that this process has made up to now."""
    latencies: dict[int, int] = {}
    before = 0
    first_ns = last_ns = untold = 0
    pause = threading.Event()
    met = False
    while not shared.over.is_set():
        taken = take()
        if taken is not None:
            payload, acknowledge = taken
            now_ns = time.monotonic_ns()
            if payload != _WARM_UP:
                number, due_ns = STAMP.unpack_from(payload)
                latencies[number] = now_ns - due_ns
                if not first_ns:
                    first_ns, before = now_ns, writes()
                untold += 1
                if work_ms:
                    pause.wait(work_ms / 1000)
            acknowledge()
            last_ns = time.monotonic_ns()
            if not met:
                met = True
                shared.met.release()
        if untold >= _TOLD_EVERY or (untold and taken is None):
            with shared.done.get_lock():
                shared.done.value += untold
            untold = 0
    written = writes() - before if first_ns else 0
    shared.answers.put((first_ns, last_ns if first_ns else 0, latencies, written))


def _sdk_member(shared: _Shared, sdk: str, url: str, topic: str, work_ms: float) -> None:
    module = importlib.import_module(sdk)
    client = module.Client(url)
    consumer = client.subscribe(
        topic, _SUBSCRIPTION, module.ConsumerType.Shared, initial_position=module.InitialPosition.Earliest
    )

    def take() -> tuple[bytes, Callable[[], object]] | None:
        try:
            message = consumer.receive(_POLL_MS)
        except module.Timeout:
            return None
        return message.data(), lambda: consumer.acknowledge(message)

    def writes() -> int:
        return client._session.node().memberships.deliveries.writes if sdk == OWN_SDK else 0

    gc.freeze()  # see docs/workers.md
    _work(shared, take, work_ms, writes)
    client.close()


def _share_group_member(shared: _Shared, servers: str, topic: str, work_ms: float) -> None:
    from confluent_kafka import AcknowledgeType, ShareConsumer

    options = {"bootstrap.servers": servers, "group.id": f"{topic}-fleet", "share.acknowledgement.mode": "explicit"}
    with ShareConsumer(options) as consumer:
        consumer.subscribe([topic])
        waiting: list[Any] = []

        def take() -> tuple[bytes, Callable[[], object]] | None:
            if not waiting:
                waiting.extend(message for message in consumer.poll(_POLL_MS / 1000) if message.error() is None)
                waiting.reverse()
            if not waiting:
                return None
            message = waiting.pop()
            return message.value(), lambda: consumer.acknowledge(message, AcknowledgeType.ACCEPT)

        gc.freeze()
        _work(shared, take, work_ms, lambda: 0)
        for message in waiting:
            consumer.acknowledge(message, AcknowledgeType.RELEASE)


def _lease_traffic(client: Any, topic: str) -> tuple[int, int]:
    """Records and bytes, keys and values, in the topic's partition of `deliveries` so far."""
    log, deadline = client._session.node().log, Deadline.after(_PATIENCE_S)
    partition = DELIVERIES.partition_for(f"persistent://public/default/{topic}")
    records = size = 0
    end = log.end_offset(DELIVERIES, partition, deadline)
    for batch in log.read(DELIVERIES, partition, log.start_offset(DELIVERIES, partition, deadline), end, deadline):
        records += len(batch)
        size += sum(len(record.key) + len(record.value or b"") for record in batch)
    return records, size
