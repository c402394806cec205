"""Message listeners."""

from __future__ import annotations

import threading
from typing import Any

from tests.compat.harness.driver import ScenarioRun, numbers
from tests.compat.harness.scenario import scenario

AREA = "listeners"


class _Heard:
    """A message listener keeps what it heard, and acknowledges it if wanted."""

    def __init__(self, run: ScenarioRun, *, acknowledge: bool = True) -> None:
        self._run = run
        self._acknowledge = acknowledge
        self.texts: list[str] = []
        self.threads: set[str] = set()

    def __call__(self, consumer: Any, message: Any) -> None:
        self.texts.append(self._run.view(message))
        self.threads.add(threading.current_thread().name)
        if self._acknowledge:
            consumer.acknowledge(message)

    def wait_for(self, count: int) -> None:
        self._run.until(lambda: len(self.texts) >= count, f"{count} messages heard")


@scenario(area=AREA, title="A listener hears all, in order")
def in_order(run: ScenarioRun) -> None:
    topic = run.topic()
    heard = _Heard(run)
    run.consumer(topic, message_listener=heard)
    run.send(topic, numbers(20))
    heard.wait_for(20)
    run.record("heard", heard.texts)


@scenario(area=AREA, title="A listener hears what waited before it was there")
def backlog(run: ScenarioRun) -> None:
    topic = run.topic()
    run.consumer(topic).close()
    run.send(topic, numbers(3))
    heard = _Heard(run)
    run.consumer(topic, message_listener=heard)
    heard.wait_for(3)
    run.record("heard", heard.texts)


@scenario(area=AREA, title="receive on a consumer with a listener is refused")
def receive_is_refused(run: ScenarioRun) -> None:
    consumer = run.consumer(run.topic(), message_listener=_Heard(run))
    run.attempt("receive", lambda: consumer.receive(100))


@scenario(area=AREA, title="A failing listener hears the next message all the same")
def failing(run: ScenarioRun) -> None:
    topic = run.topic()
    texts: list[str] = []

    def listener(consumer: Any, message: Any) -> None:
        texts.append(run.view(message))
        if len(texts) == 1:
            raise RuntimeError("of course")

    run.consumer(topic, message_listener=listener)
    run.send(topic, numbers(3))
    run.until(lambda: len(texts) == 3, "3 messages heard")
    run.record("heard", texts)


@scenario(area=AREA, title="Paused it hears nothing, resumed it goes on")
def pause_and_resume(run: ScenarioRun) -> None:
    topic = run.topic()
    heard = _Heard(run)
    consumer = run.consumer(topic, message_listener=heard)
    run.send(topic, numbers(2))
    heard.wait_for(2)
    consumer.pause_message_listener()
    silent = threading.Event()
    run.send(topic, ["2", "3"])
    silent.wait(1.0)
    run.record("while paused", heard.texts)
    consumer.resume_message_listener()
    heard.wait_for(4)
    run.record("resumed", heard.texts)


@scenario(area=AREA, title="A negative acknowledgement from a listener")
def negative(run: ScenarioRun) -> None:
    topic = run.topic()
    found: list[list[Any]] = []

    def listener(consumer: Any, message: Any) -> None:
        found.append([run.view(message), message.redelivery_count()])
        if message.redelivery_count() < 2:
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)

    run.consumer(topic, kind="Shared", message_listener=listener, negative_ack_redelivery_delay_ms=100)
    run.send(topic, ["x"])
    run.until(lambda: len(found) == 3, "3 deliveries")
    run.record("deliveries", found)


@scenario(area=AREA, title="Two listeners of a Shared subscription share the messages")
def shared(run: ScenarioRun) -> None:
    topic = run.topic()
    one, other = _Heard(run), _Heard(run)
    run.consumer(topic, kind="Shared", message_listener=one, receiver_queue_size=2)
    run.consumer(topic, kind="Shared", message_listener=other, receiver_queue_size=2)
    run.send(topic, numbers(40))
    run.until(lambda: len(one.texts) + len(other.texts) == 40, "40 messages heard")
    run.record("heard", sorted(one.texts + other.texts, key=int))
    run.record("both took part", bool(one.texts) and bool(other.texts))
