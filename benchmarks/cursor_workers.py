"""The measured programs of cursors with many holes, written once for `pulsar` and `layer` where both can do it."""

from __future__ import annotations

import importlib
import random
import statistics
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

from benchmarks.model import OWN_SDK
from benchmarks.session import run_worker

_ANSWER_S: Final = 60.0
_QUIET_MS: Final = 5_000
_SAVES: Final = 5
_SEED: Final = 20_131


def holes(
    sdk: str, url: str, topic: str, messages: int, size: int, subscription: str, pattern: str, admin_url: str | None
) -> dict[str, Any]:
    """Receive all, acknowledge a part of it one by one; save; come back in another process and receive the rest.

    `pattern`: `half` (a random half) or `second` (every second one). Ours does not save by itself meanwhile (the
    interval is a minute), so that `full_save_ms` is one save of everything.
    """
    module = importlib.import_module(sdk)
    client = module.Client(url, **({"ack_persist_interval_ms": 60_000} if sdk == OWN_SDK else {}))
    consumer = client.subscribe(topic, subscription, initial_position=module.InitialPosition.Earliest)
    before_mb = resident_mb()
    chosen = chosen_of(messages, pattern)
    take, acknowledge = consumer.receive, consumer.acknowledge
    first = take()
    start_s = time.monotonic()
    some: list[Any] = []
    for number in range(messages):
        message = take() if number else first
        if chosen[number]:
            acknowledge(message)
        elif not number % (messages // (2 * _SAVES)) and len(some) < _SAVES:
            some.append(message)
    took_s = time.monotonic() - start_s
    result: dict[str, Any] = {"per_s": round(messages / took_s), "grown_mb": round(resident_mb() - before_mb, 1)}
    if sdk == OWN_SDK:
        result |= _saves(consumer, some)
    else:
        for message in some:
            acknowledge(message)
    client.close()
    if admin_url is not None:
        unload(admin_url, topic)
    left = chosen.count(0) - len(some)
    where = {"sdk": sdk, "url": url, "topic": topic, "subscription": subscription}
    found = run_worker("cursor_workers", "come_back", {**where, "most": messages})
    if found["delivered"] < left:
        raise RuntimeError(f"{found['delivered']} messages came after the restart, {left} were not acknowledged")
    result |= {
        "first_delivery_ms": found["first_delivery_ms"],
        "recovered_peak_mb": found["peak_mb"],
        "acknowledged_came_again": found["delivered"] - left,
    }
    if sdk == OWN_SDK and found["delivered"] != left:
        raise RuntimeError(f"{found['delivered']} messages came after the restart instead of {left}")
    return result


def _saves(consumer: Any, some: list[Any]) -> dict[str, Any]:
    """Save everything; then, a few times, save after one more acknowledgement."""
    start_s = time.monotonic()
    consumer.flush()
    full_s = time.monotonic() - start_s
    single_ms: list[float] = []
    for message in some:
        consumer.acknowledge(message)
        start_s = time.monotonic()
        consumer.flush()
        single_ms.append((time.monotonic() - start_s) * 1000)
    stats = _partition_stats()
    return {
        "full_save_ms": round(full_s * 1000, 1),
        "save_of_one_ledger_ms": round(statistics.median(single_ms), 2),
        "state_bytes": stats.state_bytes,
        "hole_ranges": stats.holes,
    }


def come_back(sdk: str, url: str, topic: str, subscription: str, most: int) -> dict[str, Any]:
    """A new process: until the first message is there, and how many come, until none does for five seconds."""
    module = importlib.import_module(sdk)
    client = module.Client(url)
    client.create_producer(f"{topic}-warm-up").close()  # connected, as an application is that subscribes
    start_s = time.monotonic()
    consumer = client.subscribe(topic, subscription)
    consumer.receive()
    first_s = time.monotonic() - start_s
    delivered = 1
    try:
        while delivered < most:
            consumer.receive(_QUIET_MS)
            delivered += 1
    except module.Timeout:
        pass
    client.close()
    return {"first_delivery_ms": round(first_s * 1000, 1), "delivered": delivered}


def ack_rate(
    sdk: str, url: str, topic: str, messages: int, size: int, subscription: str, measured: int, with_holes: bool
) -> dict[str, Any]:
    """Receive and acknowledge each of the last `measured` messages, with every second one of those before acknowledged,
    or with none of them there."""
    module = importlib.import_module(sdk)
    client = module.Client(url)
    consumer = client.subscribe(topic, subscription, initial_position=module.InitialPosition.Earliest)
    take, acknowledge = consumer.receive, consumer.acknowledge
    measured = min(measured, messages // 2)
    before = messages - measured
    for number in range(before):
        message = take()
        if with_holes and number & 1:
            acknowledge(message)
    if not with_holes:
        consumer.acknowledge_cumulative(message)
    consumer.flush()
    begun = take()
    acknowledge(begun)
    start_s = time.monotonic()
    for _ in range(measured - 1):
        acknowledge(take())
    took_s = time.monotonic() - start_s
    consumer.flush()
    stats = _partition_stats()
    client.close()
    return {"per_s": round((measured - 1) / took_s), "hole_ranges": stats.holes, "state_bytes": stats.state_bytes}


def many_cursors(sdk: str, url: str, topic: str, messages: int, size: int, cursors: int) -> dict[str, Any]:
    """So many subscriptions with a random half acknowledged; one of them comes back in a new process."""
    module = importlib.import_module(sdk)
    client = module.Client(url)
    chosen = chosen_of(messages, "half")
    state_bytes = 0
    start_s = time.monotonic()
    for number in range(cursors):
        consumer = client.subscribe(topic, f"many-{cursors}-{number}", initial_position=module.InitialPosition.Earliest)
        for wanted in chosen:
            message = consumer.receive()
            if wanted:
                consumer.acknowledge(message)
        consumer.flush()
        state_bytes += _partition_stats().state_bytes
        consumer.close()
    took_s = time.monotonic() - start_s
    client.close()
    where = {"sdk": sdk, "url": url, "topic": topic, "subscription": f"many-{cursors}-{cursors // 2}"}
    found = run_worker("cursor_workers", "come_back", {**where, "most": messages})
    if found["delivered"] != chosen.count(0):
        raise RuntimeError(f"{found['delivered']} messages came back instead of {chosen.count(0)}")
    return {
        "first_delivery_ms": found["first_delivery_ms"],
        "recovered_peak_mb": found["peak_mb"],
        "state_bytes": state_bytes,
        "made_and_saved_ms_each": round(took_s / cursors * 1000, 1),
    }


def chosen_of(messages: int, pattern: str) -> bytes:
    """One byte for each message: 1 for those that are acknowledged."""
    if pattern == "second":
        return bytes(number & 1 for number in range(messages))
    if pattern == "half":
        return bytes(byte & 1 for byte in random.Random(_SEED).randbytes(messages))
    raise ValueError(f"pattern must be half or second, got {pattern!r}")


def unload(admin_url: str, topic: str) -> None:
    """Have Pulsar's broker close a topic, so that it reads its cursors back when somebody comes."""
    request = urllib.request.Request(f"{admin_url}/admin/v2/persistent/public/default/{topic}/unload", method="PUT")  # noqa: S310 - http
    with urllib.request.urlopen(request, timeout=_ANSWER_S):  # noqa: S310 - http
        pass


def resident_mb() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def _partition_stats() -> Any:
    from pulsar_on_kafka.base.deadline import Deadline
    from pulsar_on_kafka.broker.node.node import live_nodes

    (node,) = live_nodes()
    (member,) = node.memberships.members().values()
    (stats,) = member.stats(Deadline.after(_ANSWER_S))
    return stats
