"""The quota gate stands between a producer and librdkafka while the backlog quota of its topic is exceeded.

As the official client does while it cannot reconnect: under `producer_request_hold` messages wait, count as under way,
and end with `Timeout` when they waited as long as a send may; under `producer_exception` they are refused. Source:
`ProducerImpl::handleCreateProducer` of the C++ client, `BacklogQuotaManager` of Pulsar 4.0.7.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from pulsar_on_kafka.base.reentry import ReentryGuard
from pulsar_on_kafka.broker.publishing.held_records import HeldRecord, Produce, fail_held, let_out
from pulsar_on_kafka.exceptions import AlreadyClosed, ProducerBlockedQuotaExceededException, PulsarException
from pulsar_on_kafka.kafka.errors import local_refusal, local_timeout
from pulsar_on_kafka.kafka.producer import KafkaProducer

_EXCEEDED: Final = "the topic's backlog quota is exceeded"


class QuotaGate:
    """The gate holds a producer's records back, or refuses them, while it is closed. Thread-safe; open at first.
    Memory: the records that wait, whose messages count as under way."""

    def __init__(self, send_timeout_ms: int) -> None:
        """`send_timeout_ms`: how long a message waits at most; 0 for as long as it takes."""
        self._timeout_s = send_timeout_ms / 1000
        self._held: deque[HeldRecord] = deque()
        self._lock = ReentryGuard()
        self._refusal: PulsarException | None = None
        self.closed = False
        """Otherwise nothing needs to pass here."""

    def over(self, kafka: KafkaProducer, produce: Produce) -> Produce:
        """`produce` of this Kafka producer, behind the gate. Besides it raises `why()`."""

        def gated(*arguments: Any) -> None:
            with self._lock:
                if self.closed and self._refusal is not None:
                    raise type(self._refusal)(str(self._refusal))
                if self.closed:
                    self._held.append(HeldRecord(time.monotonic(), kafka, produce, arguments))
                    return
            produce(*arguments)

        return gated

    def hold(self) -> None:
        with self._lock:
            self.closed, self._refusal = True, None

    def refuse(self, why: str) -> None:
        """Refuse messages from now on, also those that wait."""
        with self._lock:
            self.closed, self._refusal = True, ProducerBlockedQuotaExceededException(why)
        self._fail(lambda _: True)

    def expire(self) -> None:
        latest_s = time.monotonic() - self._timeout_s
        if self._timeout_s > 0:
            self._fail(lambda held: held.since_s <= latest_s)

    def open(self) -> None:
        """Let out what waits, in the order in which it came; then everything passes. From one thread at a time."""
        self._refusal = None

        def may_go() -> bool:
            if not self._held:
                self.closed = False
            return self.closed

        let_out(self._lock, self._held, may_go)

    def give_up(self) -> None:
        """Refuse what waits, and what still comes, as the producer is closed. Nothing happens to an open gate."""
        with self._lock:
            if self.closed:
                self._refusal = AlreadyClosed(f"the producer was closed while {_EXCEEDED}")
        self._fail(lambda _: True)

    def why(self) -> PulsarException | None:
        """The error for messages that are refused at present."""
        return None if self._refusal is None else type(self._refusal)(str(self._refusal))

    def _fail(self, which: Callable[[HeldRecord], bool]) -> None:
        def error() -> Any:
            return local_timeout(_EXCEEDED) if self._refusal is None else local_refusal(str(self._refusal))

        fail_held(self._lock, self._held, which, error)
