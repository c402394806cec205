"""A death costs those who go on: three processes share a partition, and the one that owns it ends.

It holds every message, received and not acknowledged, when it ends: by `kill -9`, or in good order for comparison. The
other two are given all of them. Each process has a pipe of its own: a lock that a killed one holds stays locked.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final

from benchmarks.plan import FIRST, PENDING
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline

_SUBSCRIPTION: Final = "mourners"
_WARM_UP: Final = b"warm-up"
_PADDING: Final = b"x" * 192
_PATIENCE_S: Final = 300.0
_AT_REST_S: Final = 2.0
"""From the last message before the end until the end: by then what was acknowledged is saved."""
_POLL_MS: Final = 50
_TOLD_EVERY: Final = 100
_WORKERS_TELL_EVERY: Final = 20
_WORKERS_QUEUED: Final = 200
_WORK_S: Final = 0.003
_REFUSED_EVERY: Final = 10
_BEFORE_S: Final = 6.0
"""All work for so long before the owner is killed."""
_RATE_S: Final = 3.0
"""The last of that, from which the rate before is taken."""
_TAKEN_OVER_S: Final = 2.0
_AFTER_S: Final = 12.0
"""The rate after a take-over is that from 2 to 12 s after the kill."""
_LOOK_EVERY_S: Final = 0.5
_MAX_QUEUED: Final = 50_000
_MIN_QUEUED: Final = 1_000
"""The SDKs' default."""

Arrivals = list[tuple[int, int]]
"""Number of a message, and `CLOCK_MONOTONIC` in nanoseconds."""


@dataclass(frozen=True, slots=True)
class _Member:
    process: BaseProcess
    pipe: Connection

    def leave(self) -> None:
        self.pipe.send(None)


def after_death(
    sdk: str,
    url: str,
    topic: str,
    messages: int,
    most_redeliveries: int | None = None,
    killed: bool = True,
    survivors: int = 2,
) -> dict[str, Any]:
    """The owner ends with `messages` of 200 B in its hands. `most_redeliveries`: of a dead letter policy, if any."""
    module = importlib.import_module(sdk)
    client = module.Client(url)
    producer = client.create_producer(topic, block_if_queue_full=True, max_pending_messages=PENDING)
    start = {"sdk": sdk, "url": url, "topic": topic, "most_redeliveries": most_redeliveries}
    with _started(_hold, {**start, "messages": messages}) as owner:
        _expect([owner], "the owner to be there")
        for number in range(messages):
            producer.send_async(number.to_bytes(8, "big") + _PADDING, lambda *_: None)
        producer.flush()
        _expect([owner], f"the owner to have {messages} messages")
        with ExitStack() as stack:
            others = [stack.enter_context(_started(_go_on, start)) for _ in range(survivors)]
            _expect(others, "each of the others to receive something", lambda: producer.send(_WARM_UP))
            threading.Event().wait(_AT_REST_S)
            ended_ns = time.monotonic_ns()
            if killed:
                owner.process.kill()
            else:
                owner.leave()
            found = _arrivals(others, messages)
            for other in others:
                other.leave()
    client.close()
    return _figures(found, ended_ns)


def refusing_after_death(
    sdk: str, url: str, topic: str, messages: int, most_redeliveries: int, survivors: int = 2
) -> dict[str, Any]:
    """The owner is killed while all work, and each process refuses one message in ten. `messages` must last for all."""
    module = importlib.import_module(sdk)
    client, admin = module.Client(url), AdminClient(url)
    producer = client.create_producer(topic, block_if_queue_full=True, max_pending_messages=PENDING)
    start = {"sdk": sdk, "url": url, "topic": topic, "most_redeliveries": most_redeliveries}
    with ExitStack() as stack:
        owner = stack.enter_context(_started(_work, start))
        _expect([owner], "the owner to be there")
        others = [stack.enter_context(_started(_work, start)) for _ in range(survivors)]
        _expect(others, "the others to be there")
        for number in range(messages):
            producer.send_async(number.to_bytes(8, "big") + _PADDING, lambda *_: None)
        producer.flush()
        before = _arrivals_until(others, Deadline.after(_BEFORE_S))
        killed_ns = time.monotonic_ns()
        owner.process.kill()
        after: Arrivals = []
        suspects: list[tuple[int, float]] = []
        over = Deadline.after(_PATIENCE_S)
        while not suspects or suspects[-1][0] or time.monotonic_ns() < killed_ns + _AFTER_S * 1e9:
            over.check(f"the suspects to be worked off, {suspects[-1:]} are left")
            after += _arrivals_until(others, Deadline.after(_LOOK_EVERY_S))
            left = sum(each.suspects for each in admin.subscription_stats(topic, _SUBSCRIPTION).partitions)
            if left or suspects:
                suspects.append((left, (time.monotonic_ns() - killed_ns) / 1e9))
            elif time.monotonic_ns() > killed_ns + _AFTER_S * 1e9:
                break  # there were none
    admin.close()
    client.close()
    per_s = [
        sum(begin_s <= (at_ns - killed_ns) / 1e9 < end_s for _, at_ns in before + after) / (end_s - begin_s)
        for begin_s, end_s in ((-_RATE_S, 0.0), (_TAKEN_OVER_S, _AFTER_S))
    ]
    return {
        "before_per_s": round(per_s[0]),
        "after_per_s": round(per_s[1]),
        "lost": round(1 - per_s[1] / max(per_s[0], 1.0), 3),
        "suspects": max((left for left, _ in suspects), default=0),
        "suspects_s": round(suspects[-1][1], 1) if suspects else 0.0,
    }


def _figures(found: Arrivals, ended_ns: int) -> dict[str, Any]:
    first: dict[int, int] = {}
    for number, at_ns in found:
        first[number] = min(at_ns, first.get(number, at_ns))
    times_s = [(at_ns - ended_ns) / 1e9 for at_ns in sorted(first.values())]
    silence_s, last_s = times_s[0], times_s[-1]
    return {
        "silence_s": round(silence_s, 3),
        "first_second": sum(each <= silence_s + 1 for each in times_s),
        f"first_{FIRST}_s": round(times_s[min(FIRST, len(times_s)) - 1] - silence_s, 3),
        "done_s": round(last_s - silence_s, 3),
        "per_s": round(len(times_s) / max(last_s - silence_s, 0.001)),
        "twice": len(found) - len(first),
    }


def _arrivals_until(members: Sequence[_Member], deadline: Deadline) -> Arrivals:
    found: Arrivals = []
    while not deadline.passed():
        for pipe in wait([member.pipe for member in members], timeout=deadline.remaining_s()):
            assert isinstance(pipe, Connection)
            found += pipe.recv()
    return found


# The processes --------------------------------------------------------------------------------------------------------


@contextmanager
def _started(target: Callable[..., None], start: dict[str, Any]) -> Iterator[_Member]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs,), kwargs=start, daemon=True)
    process.start()
    theirs.close()
    try:
        yield _Member(process, ours)
        process.join(20)
    finally:
        process.kill()
        process.join()


def _subscribe(
    client: Any, module: Any, topic: str, most_redeliveries: int | None, queue: int, refused_again_ms: int = 60_000
) -> Any:
    policy = {}
    if most_redeliveries is not None:
        policy["dead_letter_policy"] = module.ConsumerDeadLetterPolicy(most_redeliveries, f"{topic}-DLQ")
    return client.subscribe(
        topic,
        _SUBSCRIPTION,
        module.ConsumerType.Shared,
        initial_position=module.InitialPosition.Earliest,
        receiver_queue_size=queue,
        negative_ack_redelivery_delay_ms=refused_again_ms,
        **policy,
    )


def _hold(pipe: Connection, sdk: str, url: str, topic: str, most_redeliveries: int | None, messages: int) -> None:
    """Says "there" twice: when it has subscribed, and when it has all messages, which it never acknowledges."""
    module = importlib.import_module(sdk)
    client = module.Client(url)
    queue = min(_MAX_QUEUED, max(_MIN_QUEUED, messages))
    consumer = _subscribe(client, module, topic, most_redeliveries, queue)
    pipe.send("there")
    held = 0
    while not pipe.poll():
        try:
            message = consumer.receive(_POLL_MS)
        except module.Timeout:
            continue
        if message.data() == _WARM_UP:
            consumer.acknowledge(message)
            continue
        held += 1
        if held == messages:
            pipe.send("there")
    client.close()


def _go_on(pipe: Connection, sdk: str, url: str, topic: str, most_redeliveries: int | None) -> None:
    """Says "there" at its first message; then tells what it receives, and acknowledges each."""
    module = importlib.import_module(sdk)
    client = module.Client(url)
    consumer = _subscribe(client, module, topic, most_redeliveries, _MIN_QUEUED)
    gc.freeze()  # see docs/workers.md
    met = False
    untold: Arrivals = []
    while not pipe.poll():
        try:
            message = consumer.receive(_POLL_MS)
        except module.Timeout:
            message = None
        else:
            payload, now_ns = message.data(), time.monotonic_ns()
            consumer.acknowledge(message)
            if payload != _WARM_UP:
                untold.append((int.from_bytes(payload[:8], "big"), now_ns))
            elif not met:
                met = True
                pipe.send("there")
        if untold and (message is None or len(untold) >= _TOLD_EVERY):
            pipe.send(untold)
            untold = []
    client.close()


def _work(pipe: Connection, sdk: str, url: str, topic: str, most_redeliveries: int) -> None:
    """Says "there" when it has subscribed; then works 3 ms on each message, and refuses one in ten at once."""
    module = importlib.import_module(sdk)
    client = module.Client(url)
    consumer = _subscribe(client, module, topic, most_redeliveries, _WORKERS_QUEUED, refused_again_ms=300)
    pipe.send("there")
    untold: Arrivals = []
    while not pipe.poll():
        try:
            message = consumer.receive(_POLL_MS)
        except module.Timeout:
            message = None
        else:
            number = int.from_bytes(message.data()[:8], "big")
            if number % _REFUSED_EVERY == 0:
                consumer.negative_acknowledge(message)
            else:
                time.sleep(_WORK_S)
                consumer.acknowledge(message)
            untold.append((number, time.monotonic_ns()))
        if untold and (message is None or len(untold) >= _WORKERS_TELL_EVERY):
            pipe.send(untold)
            untold = []
    client.close()


def _expect(members: Sequence[_Member], what: str, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Each says "there"; `meanwhile` is called fifty times a second."""
    missing, deadline = {member.pipe for member in members}, Deadline.after(_PATIENCE_S)
    while missing:
        deadline.check(what)
        meanwhile()
        for pipe in wait(list(missing), timeout=0.02):
            assert isinstance(pipe, Connection)
            pipe.recv()
            missing.discard(pipe)


def _arrivals(members: Sequence[_Member], messages: int) -> Arrivals:
    """Everything that was received until nothing was missing."""
    found: Arrivals = []
    numbers: set[int] = set()
    deadline = Deadline.after(_PATIENCE_S)
    while len(numbers) < messages:
        deadline.check(f"{messages} messages to come again, {len(numbers)} did")
        for pipe in wait([member.pipe for member in members], timeout=1):
            assert isinstance(pipe, Connection)
            told = pipe.recv()
            found.extend(told)
            numbers.update(number for number, _ in told)
    return found
