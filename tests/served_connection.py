"""A connection of a gateway whose Kafka never answers: for pure tests, and the fuzzer, of what clients say to it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, cast

from pulsar_on_kafka.base.clock import ClusterClock, SystemClock
from pulsar_on_kafka.base.errors import StoreError
from pulsar_on_kafka.gateway.connection import Connection, Connections
from pulsar_on_kafka.gateway.handlers.exclusive_queue import WaitingProducers
from pulsar_on_kafka.gateway.handlers.session import GatewayContext
from pulsar_on_kafka.gateway.handlers.topic_watchers import TopicWatchers
from pulsar_on_kafka.gateway.handlers.transactions import GatewayTransactions
from pulsar_on_kafka.gateway.login.access import OPEN_ACCESS
from pulsar_on_kafka.gateway.streams.stream_controller import StreamController
from pulsar_on_kafka.gateway.tenants.former_ids import FormerIds
from pulsar_on_kafka.gateway.tenants.served_tenants import ServedTenants
from pulsar_on_kafka_mapping.wire.commands import Type, command, parsed
from pulsar_on_kafka_mapping.wire.frames import FrameCutter, frame

ADDRESS: Final = "pulsar://127.0.0.1:6650"
_SOON_S: Final = 5.0
CONNECT: Final = frame(command(Type.CONNECT, client_version="test", protocol_version=21))


class ServedConnection:
    """It hears bytes, and says commands: each of them is read again here, so what it says is well-formed."""

    def __init__(self, pool: Any = None, watchers: Any = None) -> None:
        """`pool` does what is to be asked of Kafka, `watchers` are those of topics; None: Kafka never answers."""
        self.said: list[tuple[Type, Any]] = []
        self.closed = False
        self.is_disconnected = False
        """Its gateway is disconnected from Kafka."""
        self._cutter = FrameCutter()
        self._soon: deque[Callable[[], object]] = deque()
        self.timers: deque[Callable[[], object]] = deque()
        node: Any = SimpleNamespace(clock=ClusterClock(SystemClock()), transactions=SimpleNamespace(join=None))
        pool = pool or SimpleNamespace(submit=_refuse)
        sharing: Any = SimpleNamespace(
            find=lambda bundle, then: then(ADDRESS), elsewhere=lambda bundle: None,
            is_disconnected=lambda: self.is_disconnected,
            is_new=lambda bundle: False,
        )  # fmt: skip
        nothing: Any = None
        tenants, loop = ServedTenants(node, None), cast("asyncio.AbstractEventLoop", self)
        self._connection = Connection(
            GatewayContext(
                node,
                loop,
                pool,
                sharing,
                tenants,
                ADDRESS,
                OPEN_ACCESS,
                GatewayTransactions(node, OPEN_ACCESS, pool),
                SimpleNamespace(watch=lambda topic, producer: None),  # type: ignore[arg-type]
                SimpleNamespace(watch=lambda topic, consumer: None),  # type: ignore[arg-type]
                SimpleNamespace(watch=lambda topic, session: None, unwatch=lambda session: None),  # type: ignore[arg-type]
                StreamController(
                    node,
                    cast("asyncio.AbstractEventLoop", self),
                    self.call_soon_threadsafe,
                    pool,
                    sharing,
                    nothing,
                    60.0,
                ),
                watchers or TopicWatchers(tenants, nothing),
                WaitingProducers(self.call_later),
                FormerIds(tenants),
            ),
            Connections(),
        )
        self._connection.connection_made(cast("asyncio.Transport", self))

    def hear(self, data: bytes) -> None:
        """As the loop tells it, with all that follows of it at once."""
        if not self.closed:
            self._connection.data_received(data)
        self.turn()
        if self.closed:
            self._connection.connection_lost(None)

    def turn(self) -> None:
        """What other threads have left to the loop."""
        while self._soon:
            self._soon.popleft()()

    def lose(self) -> None:
        """The client is gone."""
        self.closed = True
        self._connection.connection_lost(None)

    def unload(self, topics: set[str]) -> None:
        self._connection.unload(topics)

    def time_passes(self) -> None:
        """Whatever waits for its time comes."""
        for _ in range(len(self.timers)):
            self.timers.popleft()()

    def follow(self) -> None:
        """Its gateway's fleet has changed."""
        self._connection.follow()
        if self.closed:
            self._connection.connection_lost(None)

    # The loop -----------------------------------------------------------------------------------------------------

    def call_soon_threadsafe(self, call: Callable[[], object]) -> None:
        self._soon.append(call)

    call_soon = call_soon_threadsafe

    def call_later(self, delay_s: float, call: Callable[..., object], *arguments: object) -> Any:
        """When `time_passes`; what is to come after more than a few seconds never comes here."""
        if delay_s <= _SOON_S:
            self.timers.append(partial(call, *arguments))
        return SimpleNamespace(cancel=lambda: None)

    # The transport ------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.said += [parsed(each.command) for each in self._cutter.feed(data)]

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> None:
        """Nothing is known of it."""

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        """All that is written is taken."""

    def pause_reading(self) -> None:
        """All that is there is heard."""

    resume_reading = pause_reading


def _refuse(work: Callable[..., object], *arguments: object, **caller: object) -> Future[object]:
    done: Future[object] = Future()
    done.set_exception(StoreError("Kafka does not answer"))
    return done
