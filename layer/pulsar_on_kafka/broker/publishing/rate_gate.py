"""The rate gate stands between a producer and librdkafka while the topic has a publish rate.

Messages above the rate wait, count as under way, and end with `Timeout` when they waited as long as a send may: as with
a broker of Pulsar, which stops to read the producer's connection.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from math import inf
from typing import Any, Final

from pulsar_on_kafka.base.reentry import ReentryGuard
from pulsar_on_kafka.broker.metadata.rates.policy_rates import PublishRate
from pulsar_on_kafka.broker.metadata.rates.publish_rates import PublishRates
from pulsar_on_kafka.broker.publishing.held_records import REPORT, HeldRecord, Produce, fail_held, let_out
from pulsar_on_kafka.exceptions import PulsarException
from pulsar_on_kafka.kafka.errors import local_refusal, local_timeout
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka_mapping.records.message_record import batch_info

_EXCEEDED: Final = "the topic's publish rate is exceeded"
_VALUE: Final = 1
_KEY: Final = 2
_PARTITION: Final = 3
_HEADERS: Final = 7
"""Positions in `produce`'s arguments."""


class RateGate:
    """The gate of one producer. Thread-safe. Memory: the records that wait, whose messages count as under way."""

    def __init__(self, rates: PublishRates, kafka_topic: str, send_timeout_ms: int, *, holds: bool) -> None:
        """`send_timeout_ms`: how long a message waits at most; 0 for as long as it takes. Without `holds` records only
        count: the caller holds its messages back (`wait_s`)."""
        self._rates = rates
        self._rate = rates.of(kafka_topic)
        self._timeout_s = send_timeout_ms / 1000 or inf
        self._holds = holds
        self._held: dict[int, deque[HeldRecord]] = {}
        """By partition; empty ones stay."""
        self._lock = ReentryGuard()
        self._due_s: dict[int, float] = {}
        """By partition, when the waiting records are looked at next."""
        self._refusal: PulsarException | None = None
        self.active = False
        """Otherwise nothing needs to pass here."""
        self.limited_times = 0
        """The number of times that the producer was held back."""

    def over(self, kafka: KafkaProducer) -> Produce:
        """`kafka.produce`, behind the gate."""
        produce = partial(self._produce, kafka.produce)

        def limited(*arguments: Any) -> None:
            partition = arguments[_PARTITION]
            with self._lock:
                held = self._held.setdefault(partition, deque())
                if not self._holds or not (held or self._rate.wait_s(partition) > 0):
                    produce(*arguments)
                    return
                held.append(HeldRecord(self._rates.clock.monotonic(), kafka, produce, arguments))
                begins = len(held) == 1
            if begins:
                self.limited_times += 1
                self._wait(partition)

        return limited

    def wait_s(self, partition: int) -> float:
        """The time for which the producer of this partition is to be held back; 0.0: not at all."""
        return self._rate.wait_s(partition) if self.active else 0.0

    def follow(self, rate: PublishRate | None) -> None:
        """Apply this rate of the topic. For a policy watch: what waits may go at once."""
        self._rate.follow(rate)
        if rate is not None:
            self.active = True
        for partition in list(self._held) if self.active else ():
            self._look(partition)
        if rate is None:
            self.active = False

    def give_up(self, why: PulsarException) -> None:
        """Refuse what waits: the producer was closed or thrown out."""
        self._refusal = why
        for held in list(self._held.values()):
            fail_held(self._lock, held, lambda _: True, lambda: local_refusal(str(why)))

    def why(self) -> PulsarException | None:
        """The error for messages that were refused."""
        return None if self._refusal is None else type(self._refusal)(str(self._refusal))

    def _produce(self, produce: Produce, *arguments: Any) -> None:
        """Produce a record, and count it and its offset."""
        value, key, partition, report = (arguments[place] for place in (_VALUE, _KEY, _PARTITION, REPORT))
        rate = self._rate

        def reported(error: Any, record: Any) -> None:
            offset = None if error is not None or record is None else record.offset()
            if offset is not None:
                rate.stored(partition, offset)
            report(error, record)

        produce(*arguments[:REPORT], reported, *arguments[REPORT + 1 :])
        batch = batch_info(arguments[_HEADERS])
        rate.sent(partition, 1 if batch is None else batch.messages, len(value or b"") + len(key or b""))

    def _wait(self, partition: int) -> None:
        """Look again when the rate allows the next record, or the first one has waited too long."""
        held, now_s = self._held[partition], self._rates.clock.monotonic()
        with self._lock:
            if not held:
                return
            due_s = min(now_s + self._rate.wait_s(partition), held[0].since_s + self._timeout_s)
            if due_s >= self._due_s.get(partition, inf):
                return
            self._due_s[partition] = due_s
        self._rates.call_at(due_s, partial(self._look_at, partition, due_s))

    def _look_at(self, partition: int, due_s: float) -> None:
        with self._lock:
            if self._due_s.get(partition) == due_s:
                del self._due_s[partition]
        self._look(partition)

    def _look(self, partition: int) -> None:
        latest_s = self._rates.clock.monotonic() - self._timeout_s
        held, rate = self._held[partition], self._rate
        fail_held(self._lock, held, lambda record: record.since_s <= latest_s, lambda: local_timeout(_EXCEEDED))
        let_out(self._lock, held, lambda: bool(held) and rate.wait_s(partition) <= 0)
        self._wait(partition)
