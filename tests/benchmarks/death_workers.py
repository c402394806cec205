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

from pulsar_on_kafka.base.deadline import Deadline
from tests.benchmarks.plan import FIRST, PENDING

_SUBSCRIPTION: Final = "mourners"
_WARM_UP: Final = b"warm-up"
_PADDING: Final = b"x" * 192
_PATIENCE_S: Final = 300.0
_AT_REST_S: Final = 2.0
"""From the last message before the end until the end: by then what was acknowledged is saved."""
_POLL_MS: Final = 50
_TOLD_EVERY: Final = 100
_MOST_QUEUED: Final = 50_000
_LEAST_QUEUED: Final = 1_000
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


def _subscribe(client: Any, module: Any, topic: str, most_redeliveries: int | None, queue: int) -> Any:
    policy = {}
    if most_redeliveries is not None:
        policy["dead_letter_policy"] = module.ConsumerDeadLetterPolicy(most_redeliveries, f"{topic}-DLQ")
    return client.subscribe(
        topic,
        _SUBSCRIPTION,
        module.ConsumerType.Shared,
        initial_position=module.InitialPosition.Earliest,
        receiver_queue_size=queue,
        **policy,
    )


def _hold(pipe: Connection, sdk: str, url: str, topic: str, most_redeliveries: int | None, messages: int) -> None:
    """Says "there" twice: when it has subscribed, and when it has all messages, which it never acknowledges."""
    module = importlib.import_module(sdk)
    client = module.Client(url)
    queue = min(_MOST_QUEUED, max(_LEAST_QUEUED, messages))
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
    consumer = _subscribe(client, module, topic, most_redeliveries, _LEAST_QUEUED)
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
