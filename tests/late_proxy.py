"""A proxy before a Kafka broker that delivers requests late: the client's connection is cut, its request arrives.

    with LateProxy(broker_port) as proxy:
        proxy.hold(OFFSET_COMMIT, 6.0)       # the next one
        proxy.hold_some(random.Random(1), {OFFSET_COMMIT: 0.2}, seconds=(0.5, 8.0))

The broker has to advertise the proxy's port, or clients would pass it by (`late_broker`). TCP allows this and no more:
what one connection carried stays in order, arrives once, and arrives some time. A client that sends the request again
does so over another connection, so the broker executes it twice.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final

from pulsar_on_kafka.embedded.broker import BrokerOptions
from pulsar_on_kafka.embedded.select import open_broker
from pulsar_on_kafka.embedded.settings import HOST, free_port
from tests.brokers import available
from tests.steps import Missing

PRODUCE: Final = 0
OFFSET_COMMIT: Final = 8
DELETE_TOPICS: Final = 20
DELETE_RECORDS: Final = 21
TXN_OFFSET_COMMIT: Final = 28
NAMES: Final = {
    PRODUCE: "Produce",
    OFFSET_COMMIT: "OffsetCommit",
    DELETE_TOPICS: "DeleteTopics",
    DELETE_RECORDS: "DeleteRecords",
    TXN_OFFSET_COMMIT: "TxnOffsetCommit",
}
"""By the number of Kafka's request."""

_CHUNK_BYTES: Final = 1 << 16
_ANSWER_S: Final = 2.0


@contextmanager
def late_broker(missing: Missing) -> Iterator[LateProxy]:
    """A broker of its own behind a proxy: clients find it at `LateProxy.url` alone."""
    broker_port = free_port()
    with LateProxy(broker_port) as proxy:
        advertised = {"advertised.listeners": f"PLAINTEXT://{HOST}:{proxy.port}"}
        options = BrokerOptions(port=broker_port, extra=advertised)
        with available(missing, open_broker("embedded", options)):
            yield proxy


class LateProxy:
    """Runs in a thread of its own. `delivered` counts the requests that arrived late, by name."""

    def __init__(self, broker_port: int, port: int = 0) -> None:
        self._broker_port = broker_port
        self.port = port
        self.delivered: Counter[str] = Counter()
        self._held: dict[int, list[float]] = {}
        self._chance: random.Random | None = None
        self._shares: Mapping[int, float] = {}
        self._seconds = (0.0, 0.0)
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._stopped = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="late-proxy", daemon=True)

    def __enter__(self) -> LateProxy:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    @property
    def url(self) -> str:
        return f"kafka://{HOST}:{self.port}"

    def hold(self, request: int, seconds: float) -> None:
        """Deliver the next one of these requests so much later."""
        self._loop.call_soon_threadsafe(self._held.setdefault(request, []).append, seconds)

    def hold_some(self, chance: random.Random, shares: Mapping[int, float], seconds: tuple[float, float]) -> None:
        """From now on deliver such a share of these requests later, by a time between `seconds`. No shares: none."""

        def change() -> None:
            self._chance, self._shares, self._seconds = chance, shares, seconds

        self._loop.call_soon_threadsafe(change)

    # Inside -------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, HOST, self.port)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stopped.wait()
        server.close()
        await asyncio.sleep(0)  # what was accepted just now has its task
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._carry(client, to_client)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            await _abort(to_client)
            self._tasks.discard(task)

    async def _carry(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        broker, to_broker = await asyncio.open_connection(HOST, self._broker_port)
        answers = asyncio.ensure_future(_answers(broker, to_client))
        answers.add_done_callback(lambda _: to_client.transport.abort())
        try:
            while True:
                head = await client.readexactly(4)
                frame = head + await client.readexactly(int.from_bytes(head, "big"))
                seconds = self._late_by(int.from_bytes(frame[4:6], "big"))
                if seconds is None:
                    to_broker.write(frame)
                    await to_broker.drain()
                    continue
                to_client.transport.abort()
                await asyncio.sleep(seconds)
                to_broker.write(frame)
                await to_broker.drain()
                with suppress(asyncio.TimeoutError):  # a broker drops what it has not read when a connection ends
                    await asyncio.wait_for(asyncio.shield(answers), _ANSWER_S)
                self.delivered[NAMES[int.from_bytes(frame[4:6], "big")]] += 1
                return
        finally:
            answers.cancel()
            await _abort(to_broker)

    def _late_by(self, request: int) -> float | None:
        if self._held.get(request):
            return self._held[request].pop(0)
        if self._chance is not None and self._chance.random() < self._shares.get(request, 0.0):
            return self._chance.uniform(*self._seconds)
        return None


async def _abort(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


async def _answers(broker: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
    """Goes on reading when the client is cut off: the broker answers what arrives late."""
    while data := await broker.read(_CHUNK_BYTES):
        if not to_client.transport.is_closing():
            to_client.write(data)
            await to_client.drain()
