"""Histories of a connection: handles are opened, closed, refused, lost and opened again, and in any order.
Nothing stays attached that no client has, and everything is attached that a client has.

What is attached is stood in for by `Attached`; the connection, its commands and its handles are the gateway's.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_on_kafka.base.errors import StoreError, SubscriptionBusy
from pulsar_on_kafka.gateway.handlers import consumers, producers
from pulsar_on_kafka.gateway.protocol.request_queue import MAX_REQUESTS
from pulsar_on_kafka_mapping.wire.commands import Type, command
from pulsar_on_kafka_mapping.wire.frames import frame
from tests.seeds import in_three
from tests.served_connection import CONNECT, ServedConnection

WAIT_FOR_EXCLUSIVE = 2
TOPIC = "persistent://public/default/t"
OPENS = {Type.SUBSCRIBE: "consumer", Type.PRODUCER: "producer", Type.WATCH_TOPIC_LIST: "watcher"}
CLOSES = {"consumer": Type.CLOSE_CONSUMER, "producer": Type.CLOSE_PRODUCER, "watcher": Type.WATCH_TOPIC_LIST_CLOSE}
SUCCESSES = (Type.SUCCESS, Type.PRODUCER_SUCCESS, Type.WATCH_TOPIC_LIST_SUCCESS)


class Attached:
    """Producers, consumers and watchers as Kafka has them, by the request that opened each."""

    def __init__(self) -> None:
        self.requests: set[int] = set()
        self.producers: set[int] = set()
        self.lost: dict[int, Callable[[], None]] = {}
        self.redelivered: list[int] = []
        self._watchers: dict[object, int] = {}
        self.tell_watcher: Callable[..., None]

    def consumer(self, node: object, asked: Any, wire: Any, deadline: object, going_on: int | None) -> Any:
        return self._handle(asked, wire.lost, wire.bundle)

    def producer(self, node: object, asked: Any, meter: object, deadline: object) -> Any:
        if asked.producer_access_mode == WAIT_FOR_EXCLUSIVE and self.producers:
            return None
        self.requests.add(asked.request_id)
        self.producers.add(asked.request_id)
        sender = SimpleNamespace(outlet=SimpleNamespace(admitted=SimpleNamespace(topic=None)))
        return SimpleNamespace(asked=asked, sender=sender, schema_version=b"")

    def wire_producer(
        self,
        node: object,
        number: int,
        found: Any,
        transactions: object,
        frames: object,
        heard: Any,
        bundle: int,
        generation: int,
    ) -> Any:
        made = self._handle(found.asked, heard.lost, bundle)
        made.sender = SimpleNamespace(name="p", last_sequence_id=lambda: -1, outlet="p")
        made.topic_epoch = None
        return made

    def open(self, watcher: object, namespace: str, selection: Any, told: Any) -> frozenset[str]:
        self.tell_watcher = told
        self._watchers[watcher] = int(namespace)  # the request's number, in these histories
        self.requests.add(int(namespace))
        return frozenset()

    def close(self, watcher: object) -> None:
        self.requests.discard(self._watchers.pop(watcher, -1))

    def _handle(self, asked: Any, lost: Callable[[], None], bundle: int) -> Any:
        request = asked.request_id
        self.requests.add(request)
        self.lost[request] = lost
        made = SimpleNamespace(topic=TOPIC, bundle=bundle, sought_offset=None)

        def close(deadline: object = None) -> None:
            self.requests.discard(request)
            self.producers.discard(request)
            made.endpoint.closed = True

        def unsubscribe(deadline: object, *, force: bool) -> None:
            gone = made.endpoint.closed
            close()
            if force or gone:  # here: the consumer has left, and then the subscription could not be deleted
                raise SubscriptionBusy("it has consumers again")

        made.redeliver_all = lambda epoch: self.redelivered.append(request)
        made.endpoint = SimpleNamespace(
            close=lambda: None, closed=False, topic=TOPIC, bundle=bundle, wake_member=lambda: None, reports_active=False
        )
        made.close, made.unsubscribe = close, unsubscribe
        return _Handle(made)


class _Handle:
    """Equal to itself alone."""

    opened_topic: Any = None

    def __init__(self, made: Any) -> None:
        self.__dict__.update(made.__dict__)


@dataclass
class Work:
    """What threads are to do; done in whatever order, and fails where Kafka does not answer."""

    waiting: list[tuple[Future[Any], Callable[..., Any], tuple[object, ...]]] = field(default_factory=list)

    def submit(self, work: Callable[..., Any], *arguments: object, **caller: object) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, work, arguments))
        return future

    def do(self, at: int, *, fails: bool) -> None:
        future, work, arguments = self.waiting.pop(at)
        try:
            if fails and getattr(getattr(work, "func", work), "__name__", "") not in ("close", "_closed"):
                raise StoreError("Kafka does not answer")
            future.set_result(work(*arguments))
        except Exception as failure:
            future.set_exception(failure)


class Client:
    """What a client has: of each id the request that opened it, if that succeeded and nobody has closed it since."""

    def __init__(self, served: ServedConnection) -> None:
        self.served = served
        self.request = 0
        self.has: dict[tuple[str, int], int] = {}
        self._asked: dict[int, tuple[str, int]] = {}
        self._unsubscribing: dict[int, int] = {}
        self._read = 0

    def open(self, kind: Type, number: int, **fields: Any) -> int:
        what = OPENS[kind]
        self.request += 1
        self._asked[self.request] = what, number
        if what == "watcher":  # the new one replaces it
            self.has.pop((what, number), None)
        self._say(kind, **{f"{what}_id": number}, **fields)
        return self.request

    def close(self, what: str, number: int) -> None:
        self.request += 1
        self.has.pop((what, number), None)
        self._asked = {request: key for request, key in self._asked.items() if key != (what, number)}
        self._say(CLOSES[what], **{f"{what}_id": number})

    def unsubscribe(self, number: int, *, force: bool) -> None:
        self.request += 1
        if ("consumer", number) in self.has:
            self._unsubscribing[self.request] = number
            self._say(Type.UNSUBSCRIBE, consumer_id=number, force=force)

    def _say(self, kind: Type, **fields: Any) -> None:
        self.served.hear(frame(command(kind, request_id=self.request, **fields)))
        self.read()

    def read(self) -> None:
        for kind, said in self.served.said[self._read :]:
            if kind in SUCCESSES and said.request_id in self._asked and getattr(said, "producer_ready", True):
                self.has.setdefault(self._asked.pop(said.request_id), said.request_id)
            elif kind is Type.SUCCESS and said.request_id in self._unsubscribing:
                self.has.pop(("consumer", self._unsubscribing[said.request_id]), None)
            elif kind in (Type.CLOSE_CONSUMER, Type.CLOSE_PRODUCER):
                what = "consumer" if kind is Type.CLOSE_CONSUMER else "producer"
                self.has.pop((what, getattr(said, f"{what}_id")), None)
        self._read = len(self.served.said)


@pytest.fixture
def attached(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Attached]:
    def begin() -> Attached:
        made = Attached()
        monkeypatch.setattr(consumers, "open_consumer", made.consumer)
        monkeypatch.setattr(producers, "open_producer", made.producer)
        monkeypatch.setattr(producers, "WireProducer", made.wire_producer)
        return made

    return begin


def connected(attached: Attached) -> tuple[ServedConnection, Work, Client]:
    work = Work()
    served = ServedConnection(pool=work, watchers=attached)
    served.hear(CONNECT)
    return served, work, Client(served)


def settle(served: ServedConnection, work: Work, client: Client, draw: random.Random) -> None:
    """Kafka answers everything, and those who wait for their turn have had it."""
    for _ in range(3):
        served.time_passes()
        served.turn()
        while work.waiting:
            work.do(draw.randrange(len(work.waiting)), fails=False)
            served.turn()
    client.read()


def step(served: ServedConnection, work: Work, client: Client, attached: Attached, draw: random.Random) -> None:
    number, what = draw.randrange(2), draw.choice(list(CLOSES))
    which = draw.randrange(12)
    if which < 2:
        client.open(Type.SUBSCRIBE, number, topic=TOPIC, subscription="s", subType=draw.randrange(4))
    elif which == 2:
        client.open(Type.PRODUCER, number, topic=TOPIC, producer_access_mode=draw.choice([0, 1, 2, 3]))
    elif which == 3:
        client.open(Type.WATCH_TOPIC_LIST, number, namespace=str(client.request + 1), topics_pattern="a")
    elif which < 6:
        client.close(what, number)
    elif which == 6:
        client.unsubscribe(number, force=draw.random() < 0.5)
    elif which == 7 and attached.lost:
        attached.lost[draw.choice(sorted(attached.lost))]()
    elif which == 8:
        served.unload({TOPIC})
    elif which == 9:
        served.time_passes()
    elif work.waiting:
        work.do(draw.randrange(len(work.waiting)), fails=draw.random() < 0.3)
    served.turn()
    client.read()


@pytest.mark.parametrize("seeds", in_three(150, range(2_000)))
def test_whatever_happens_what_is_attached_is_what_the_client_has(
    seeds: range, attached: Callable[[], Attached]
) -> None:
    for seed in seeds:
        draw, kafka = random.Random(seed), attached()
        served, work, client = connected(kafka)
        for _ in range(draw.randrange(2, 50)):
            step(served, work, client, kafka, draw)
        if draw.random() < 0.5:
            settle(served, work, client, draw)
            assert kafka.requests == set(client.has.values()), f"seed {seed}"
        served.lose()
        settle(served, work, client, draw)
        assert not kafka.requests, f"seed {seed}: attached after the connection has ended"


def test_a_consumer_that_is_closed_while_it_is_opened_never_asks_kafka(attached: Callable[[], Attached]) -> None:
    """Clients that wait in vain give up and come again; what they gave up would take the turns of the others."""
    kafka = attached()
    served, work, client = connected(kafka)
    client.open(Type.SUBSCRIBE, 1, topic=TOPIC, subscription="s", subType=0)
    client.close("consumer", 1)
    client.open(Type.SUBSCRIBE, 1, topic=TOPIC, subscription="s", subType=0)
    kind, said = served.said[-1]
    assert (kind, said.request_id) == (Type.ERROR, client.request)  # the id is free when its first request has ended
    settle(served, work, client, random.Random(0))
    assert not kafka.lost  # nothing was ever attached
    client.open(Type.SUBSCRIBE, 1, topic=TOPIC, subscription="s", subType=0)
    settle(served, work, client, random.Random(0))
    assert kafka.requests == {client.request}


@pytest.mark.parametrize("what", ["consumer", "producer"])
def test_a_close_is_done_however_many_requests_wait(what: str, attached: Callable[[], Attached]) -> None:
    """A close that is refused would leave behind what it was to end, and its client has forgotten it."""
    kafka = attached()
    served, work, client = connected(kafka)
    if what == "consumer":
        client.open(Type.SUBSCRIBE, 1, topic=TOPIC, subscription="s", subType=1)
    else:
        client.open(Type.PRODUCER, 1, topic=TOPIC)
    settle(served, work, client, random.Random(0))
    assert len(kafka.requests) == 1
    for request in range(MAX_REQUESTS):
        served.hear(frame(command(Type.GET_SCHEMA, request_id=10_000 + request, topic=TOPIC)))
    client.close(what, 1)
    while work.waiting:
        work.do(0, fails=True)  # closes are done all the same
        served.turn()
    assert not kafka.requests


def test_a_consumer_that_fails_before_its_client_knows_it_is_opened_anew(attached: Callable[[], Attached]) -> None:
    kafka = attached()
    served, work, client = connected(kafka)
    request = client.open(Type.SUBSCRIBE, 1, topic=TOPIC, subscription="s", subType=0)
    future, open_it, _ = work.waiting.pop()
    consumer = open_it()
    kafka.lost[request]()  # its member has ended
    served.turn()
    future.set_result(consumer)
    settle(served, work, client, random.Random(0))
    said = [kind for kind, _ in served.said[-2:]]
    assert said == [Type.SUCCESS, Type.CLOSE_CONSUMER]
    assert not kafka.requests


def test_a_watcher_hears_of_topics_after_it_hears_that_it_is_open(attached: Callable[[], Attached]) -> None:
    kafka = attached()
    served, work, client = connected(kafka)
    client.open(Type.WATCH_TOPIC_LIST, 1, namespace="1", topics_pattern="a")
    future, open_it, _ = work.waiting.pop()
    found = open_it()
    kafka.tell_watcher([TOPIC], [], {TOPIC})  # a topic comes before the loop has heard of the watcher
    served.turn()
    future.set_result(found)
    served.turn()
    kafka.tell_watcher([], [TOPIC], set())
    served.turn()
    said = [kind for kind, _ in served.said[-3:]]
    assert said == [Type.WATCH_TOPIC_LIST_SUCCESS, Type.WATCH_TOPIC_UPDATE, Type.WATCH_TOPIC_UPDATE]
    client.close("watcher", 1)
    kafka.tell_watcher([TOPIC], [], {TOPIC})
    served.turn()
    assert served.said[-1][0] is Type.SUCCESS


def test_one_read_of_the_socket_may_bring_thousands_of_commands(attached: Callable[[], Attached]) -> None:
    kafka = attached()
    served, work, client = connected(kafka)
    request = client.open(Type.SUBSCRIBE, 1, topic=TOPIC, subscription="s", subType=1)
    settle(served, work, client, random.Random(0))
    many = 5_000
    served.hear(frame(command(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1)) * many)
    assert kafka.redelivered == [request] * many
    assert not served.closed
