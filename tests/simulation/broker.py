"""A simulated broker executes each request at any time after it was sent.

TCP keeps the order of one connection and nothing more. A proxy, a tunnel or an orphaned socket may deliver a request
long after newer ones of other connections, also when its client has sent the request again, or is dead.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Answer = TypeVar("Answer")


class Request(Generic[Answer]):
    """One request, and the answer of its first execution. `executed` counts its executions."""

    def __init__(self, execute: Callable[[], Answer]) -> None:
        self._execute = execute
        self.executed = 0
        self.answer: Answer | None = None

    def arrives(self) -> None:
        answer = self._execute()
        if not self.executed:
            self.answer = answer
        self.executed += 1


class Connection:
    """One client's connection. The broker executes its requests in their order."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker
        self._sent: deque[Request[Any]] = deque()

    def send(self, execute: Callable[[], Answer]) -> Request[Answer]:
        """Send a request. The broker executes it some time, whatever becomes of the client."""
        request = Request(execute)
        self._send(request)
        return request

    def _send(self, request: Request[Any]) -> None:
        self._sent.append(request)
        if len(self._sent) == 1:
            self._broker.waiting.append(self)

    def call(self, execute: Callable[[], Answer]) -> Answer | None:
        """Send a request and wait for its answer. The requests of other connections may be executed meanwhile."""
        request = self.send(execute)
        self.wait_for(request)
        return request.answer

    def wait_for(self, request: Request[Any]) -> None:
        """Wait until a request of this connection is executed, over any connection."""
        while not request.executed:
            self._broker.execute_one(self if self._broker.draw() < _NEXT_IS_OURS else None)

    def send_again(self) -> Connection:
        """Give the connection up and send what is not executed again on another one, as librdkafka does.

        The requests stay on their way here, so each is executed twice.
        """
        another = Connection(self._broker)
        for request in self._sent:
            another._send(request)
        return another

    def execute_next(self) -> None:
        request = self._sent.popleft()
        if not self._sent:
            self._broker.waiting.remove(self)
        request.arrives()


class SimulatedBroker:
    """The broker's part of a history. The history calls `execute_one` whenever it likes.

    Requests of different connections are executed in any order. The death of a client stops nothing that it has sent.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.waiting: list[Connection] = []
        """Connections that have requests on their way."""

    def connect(self) -> Connection:
        return Connection(self)

    def send(self, execute: Callable[[], Answer]) -> Request[Answer] | Request[Answer | None]:
        """Send a request on a connection of its own, so nothing orders it."""
        return self.connect().send(execute)

    def execute_one(self, connection: Connection | None = None) -> None:
        """Execute the next request of `connection`, or of any. Something must be on its way."""
        (connection or self.waiting[self._rng.randrange(len(self.waiting))]).execute_next()

    def execute_all(self) -> None:
        while self.waiting:
            self.execute_one()

    def draw(self) -> float:
        return self._rng.random()


_NEXT_IS_OURS = 0.8
