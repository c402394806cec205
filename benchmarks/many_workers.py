"""Many topics in one process: what they cost a gateway, a Pulsar broker and an SDK while nothing happens.

The official clients are in processes of their own. Each wait has a deadline: what a server cannot open is an error that
names the number of open topics, and what the server holds by then.
"""

from __future__ import annotations

import importlib
import multiprocessing
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import psutil
import pulsar

from benchmarks.gateways import gateway_to
from benchmarks.model import OWN_SDK
from benchmarks.pacing import STAMP, percentiles, send_paced
from benchmarks.session import run_worker
from benchmarks.worker import WorkerFailed
from pulsar_on_kafka.base.deadline import Deadline
from tests.waiting import until

_OPEN_S: Final = 900.0
_ANSWER_S: Final = 120.0
"""For the rest of a measurement after its planned time."""
_SERVED_S: Final = 600.0
_SETTLE_S: Final = 5.0
_REST_S: Final = 20.0
_CLIENTS: Final = 8
_OPENERS: Final = 16
"""Threads that open topics at a time, of one process."""
_PACED: Final = {20: 15, 200: 10}
"""Seconds of each rate."""
_SUBSCRIPTION: Final = "many"
_HELD: Final = b"held"
_MB: Final = 1 << 20


class _Opened(NamedTuple):
    topics: int
    took_s: float
    failure: str | None


# The server's side ----------------------------------------------------------------------------------------------------


def gateway_topics(sdk: str, url: str, topic: str, messages: int) -> dict[str, Any]:
    """A gateway of its own with `messages` topics, each with a producer and a Shared consumer. At the end it is killed,
    and another gateway serves the topics.

    `served_s` is from when the other gateway listens until each consumer has its unacknowledged message again,
    `from_kill_s` from the kill, with the start of the process.
    """
    assert sdk == OWN_SDK
    topics = _topics(topic, messages)
    with _clients() as late, gateway_to(url) as serving:
        gateway = psutil.Process(serving.pid)
        with _clients() as clients:
            found = _measure(gateway, serving.url, clients, topics, _listening(url))
            clients.send(("hold",))
            _answer(clients, f"{messages} messages to be received", _ANSWER_S)
            killed_ns = time.monotonic_ns()
            gateway.kill()
        with gateway_to(url) as other:
            listens_ns = time.monotonic_ns()
            late.send(("open", other.url, topics, False))
            opened: _Opened = _answer(late, f"{messages} topics to be open again", _OPEN_S + _ANSWER_S)
            _require_all(opened, messages, psutil.Process(other.pid), other.url)
            late.send(("served",))
            served, last_ns = _answer(late, "unacknowledged messages", _SERVED_S + _ANSWER_S)
            if served < messages:
                raise WorkerFailed(f"{served} of {messages} topics are served {_SERVED_S:.0f} s after the opening")
    return {
        **found,
        "served_s": round((last_ns - listens_ns) / 1e9, 2),
        "from_kill_s": round((last_ns - killed_ns) / 1e9, 2),
    }


def pulsar_topics(sdk: str, url: str, topic: str, messages: int) -> dict[str, Any]:
    """The same with a running Pulsar, without the take-over."""
    assert sdk != OWN_SDK
    with _clients() as clients:
        return _measure(_listening(url), url, clients, _topics(topic, messages), None)


def _topics(topic: str, number: int) -> list[str]:
    return [f"{topic}-{each}" for each in range(number)]


def _measure(
    server: psutil.Process, url: str, clients: Connection, topics: list[str], kafka: psutil.Process | None
) -> dict[str, Any]:
    empty = server.memory_info().rss
    clients.send(("open", url, topics, True))
    opened: _Opened = _answer(clients, f"{len(topics)} topics to be open", _OPEN_S + _ANSWER_S)
    _require_all(opened, len(topics), server, url)
    threading.Event().wait(_SETTLE_S)
    found = {"open_s": round(opened.took_s, 2), "opens_per_s": round(len(topics) / opened.took_s, 1)}
    found |= _held_by(server, url) | {"grown_mb": round((server.memory_info().rss - empty) / _MB, 1)}
    found |= _at_rest({"rest_cores": server, **({"kafka_rest_cores": kafka} if kafka else {})})
    for rate, seconds in _PACED.items():
        clients.send(("pace", rate, seconds))
        paced = _answer(clients, f"messages at {rate}/s", seconds + 2 * _ANSWER_S)
        found |= {f"{name}_at_{rate}": value for name, value in paced.items()}
    return found


def _require_all(opened: _Opened, topics: int, server: psutil.Process, url: str) -> None:
    if opened.topics == topics:
        return
    said = f"{opened.topics} of {topics} topics were open after {opened.took_s:.0f} s: {opened.failure}"
    try:
        held = ", ".join(f"{value} {name}" for name, value in _held_by(server, url).items())
    except psutil.NoSuchProcess:
        held = "has ended"
    raise WorkerFailed(f"{said}; the server: {held}")


def _held_by(server: psutil.Process, url: str) -> dict[str, int]:
    port = urlsplit(url).port
    sockets = [each for each in server.net_connections("tcp") if each.raddr and each.laddr.port == port]
    return {"threads": server.num_threads(), "files": server.num_fds() - len(sockets)}


def _at_rest(servers: dict[str, psutil.Process]) -> dict[str, float]:
    """Cores that each of them uses while no message is sent."""
    before = {name: server.cpu_times() for name, server in servers.items()}
    begun_s = time.monotonic()
    threading.Event().wait(_REST_S)
    lasted_s = time.monotonic() - begun_s
    after = {name: server.cpu_times() for name, server in servers.items()}
    used = {name: after[name].user + after[name].system - before[name].user - before[name].system for name in servers}
    return {name: round(cpu_s / lasted_s, 4) for name, cpu_s in used.items()}


def _listening(url: str) -> psutil.Process:
    """The process behind a service URL of this machine."""
    port = urlsplit(url).port
    for each in psutil.net_connections("tcp"):
        if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port and each.pid:
            return psutil.Process(each.pid)
    raise WorkerFailed(f"no process of this user listens at {url}")


# The clients' side ----------------------------------------------------------------------------------------------------


@contextmanager
def _clients() -> Iterator[Connection]:
    """A process of official clients, which ends by SIGKILL: nothing is closed in good order."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        process.kill()
        process.join()


def _answer(clients: Connection, what: str, seconds: float) -> Any:
    try:
        if clients.poll(seconds):
            answer = clients.recv()
            if isinstance(answer, Exception):
                raise WorkerFailed(f"the clients waited for {what}: {answer}") from answer
            return answer
    except EOFError as ended:
        raise WorkerFailed(f"the process of the clients ended before {what}") from ended
    raise WorkerFailed(f"no answer of the clients in {seconds:.0f} s: {what}")


def _serve(pipe: Connection) -> None:
    topics = _OpenTopics()
    while True:
        command, *arguments = pipe.recv()
        try:
            pipe.send(getattr(topics, command)(*arguments))
        except Exception as failure:
            pipe.send(RuntimeError(f"{type(failure).__name__}: {failure}"))


class _OpenTopics:
    """The producers and consumers of a process, and what its consumers have received."""

    def __init__(self) -> None:
        self._producers: list[pulsar.Producer] = []
        self._consumers: list[pulsar.Consumer] = []
        self._latencies: dict[int, int] = {}
        """Nanoseconds, by the number of the message."""
        self._held: dict[str, int] = {}
        """The time of the first message of each topic that is not to be acknowledged."""

    def open(self, url: str, topics: list[str], producing: bool) -> _Opened:
        clients = [
            pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")) for _ in range(_CLIENTS)
        ]
        begun_s, deadline = time.monotonic(), Deadline.after(_OPEN_S)
        failures: list[str] = []

        def open_one(number: int) -> None:
            if failures or deadline.passed():
                return
            client, topic = clients[number % _CLIENTS], topics[number]
            try:
                consumer = client.subscribe(
                    topic, _SUBSCRIPTION, pulsar.ConsumerType.Shared, message_listener=self._receive
                )
                if producing:
                    self._producers.append(client.create_producer(topic))
            except Exception as failure:
                failures.append(f"{type(failure).__name__}: {failure}")
            else:
                self._consumers.append(consumer)

        with ThreadPoolExecutor(_OPENERS) as openers:
            list(openers.map(open_one, range(len(topics))))
        late = None if len(self._consumers) == len(topics) else f"{_OPEN_S:.0f} s were over"
        return _Opened(len(self._consumers), time.monotonic() - begun_s, failures[0] if failures else late)

    def _receive(self, consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        """Called by the clients' threads."""
        payload, now_ns = message.data(), time.monotonic_ns()
        if payload == _HELD:
            self._held.setdefault(message.topic_name(), now_ns)
            return
        number, due_ns = STAMP.unpack_from(payload)
        self._latencies[number] = now_ns - due_ns
        consumer.acknowledge(message)

    def pace(self, rate: int, seconds: int) -> dict[str, float]:
        """Send messages to random topics."""
        self._latencies.clear()
        choice, messages = random.Random(rate), rate * seconds
        send_paced(messages, rate, lambda payload: choice.choice(self._producers).send_async(payload, _ignore))
        _wait(lambda: len(self._latencies) >= messages, lambda: f"{len(self._latencies)} of {messages} came")
        figures = percentiles([self._latencies[number] for number in range(messages)], rate)
        return {name: figures[name] for name in ("p50_ms", "p99_ms")}

    def hold(self) -> None:
        """Send each topic a message, which stays unacknowledged."""
        for producer in self._producers:
            producer.send_async(_HELD, _ignore)
        topics = len(self._producers)
        _wait(lambda: len(self._held) >= topics, lambda: f"{len(self._held)} of {topics} came")

    def served(self) -> tuple[int, int]:
        """The number of topics whose unacknowledged message has come, and the time of the last one."""
        deadline, pause = Deadline.after(_SERVED_S), threading.Event()
        while len(self._held) < len(self._consumers) and not deadline.passed():
            pause.wait(0.01)
        times = list(self._held.values())
        return len(times), max(times, default=0)


def _ignore(*_: object) -> None:
    """What was not stored does not come, which is what is waited for."""


def _wait(is_done: Callable[[], bool], missing: Callable[[], str]) -> None:
    until(is_done, missing, _ANSWER_S)


# The SDK --------------------------------------------------------------------------------------------------------------


def fill(sdk: str, url: str, topic: str, topics: int) -> dict[str, Any]:
    """Topics with a message each."""
    module = importlib.import_module(sdk)
    client = module.Client(url)

    def fill_one(name: str) -> None:
        producer = client.create_producer(name)
        producer.send(b"x" * 200)
        producer.close()

    with ThreadPoolExecutor(_OPENERS) as fillers:
        list(fillers.map(fill_one, _topics(topic, topics)))
    client.close()
    return {}


def pattern(sdk: str, url: str, topic: str, messages: int) -> dict[str, Any]:
    """One consumer of a pattern that matches `messages` topics, in this process: threads, files, and cores at rest."""
    run_worker("many_workers", "fill", {"sdk": sdk, "url": url, "topic": topic, "topics": messages})
    module, me = importlib.import_module(sdk), psutil.Process()
    client = module.Client(url)
    empty, begun_s, deadline = me.memory_info().rss, time.monotonic(), Deadline.after(_OPEN_S)
    consumer = client.subscribe(
        re.compile(f"persistent://public/default/{topic}-.*"),
        _SUBSCRIPTION,
        module.ConsumerType.Shared,
        initial_position=module.InitialPosition.Earliest,
    )
    open_s = time.monotonic() - begun_s
    _receive(module, consumer, messages, deadline)
    return {
        "open_s": round(open_s, 2),
        "received_s": round(time.monotonic() - begun_s, 2),
        **_resting(me, empty),
        **_close(client),
    }


def subscriptions(sdk: str, url: str, topic: str, messages: int) -> dict[str, Any]:
    """`messages` subscriptions, each of a topic of its own, opened one after the other in this process."""
    run_worker("many_workers", "fill", {"sdk": sdk, "url": url, "topic": topic, "topics": messages})
    module, me = importlib.import_module(sdk), psutil.Process()
    client = module.Client(url)
    empty, begun_s, deadline = me.memory_info().rss, time.monotonic(), Deadline.after(_OPEN_S)
    consumers: list[Any] = []
    for name in _topics(topic, messages):
        deadline.check(f"{messages} subscriptions to be open, {len(consumers)} are")
        consumers.append(
            client.subscribe(
                name,
                _SUBSCRIPTION,
                module.ConsumerType.Shared,
                initial_position=module.InitialPosition.Earliest,
            )
        )
    open_s = time.monotonic() - begun_s
    for consumer in consumers:
        _receive(module, consumer, 1, deadline)
    return {
        "open_s": round(open_s, 2),
        "received_s": round(time.monotonic() - begun_s, 2),
        **_resting(me, empty),
        **_close(client),
    }


def _receive(module: Any, consumer: Any, messages: int, deadline: Deadline) -> None:
    for number in range(messages):
        try:
            message = consumer.receive(max(1, int(deadline.remaining_s() * 1000)))
        except module.Timeout:
            raise WorkerFailed(f"{number} of {messages} messages came in {_OPEN_S:.0f} s") from None
        consumer.acknowledge(message)


def _resting(me: psutil.Process, empty: int) -> dict[str, Any]:
    threading.Event().wait(_SETTLE_S)
    held = {"threads": me.num_threads(), "files": me.num_fds()}
    return {**held, "grown_mb": round((me.memory_info().rss - empty) / _MB, 1), **_at_rest({"rest_cores": me})}


def _close(client: Any) -> dict[str, float]:
    begun_s = time.monotonic()
    client.close()
    return {"close_s": round(time.monotonic() - begun_s, 2)}
