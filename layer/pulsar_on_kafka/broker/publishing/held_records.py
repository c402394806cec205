"""Records that a gate holds back before librdkafka: in their order, and not for longer than a send may take."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pulsar_on_kafka.base.reentry import ReentryGuard
from pulsar_on_kafka.kafka.errors import answer_for
from pulsar_on_kafka.kafka.producer import KafkaProducer

Produce = Callable[..., None]

REPORT: Final = 4
"""The position in `produce`'s arguments of the callback for the record's result."""


class HeldRecord(NamedTuple):
    since_s: float
    kafka: KafkaProducer
    produce: Produce
    arguments: tuple[Any, ...]
    """The arguments of `produce`, by position."""

    def fail(self, error: Any) -> None:
        self.kafka.report(lambda: self.arguments[REPORT](error, None))


def let_out(guard: ReentryGuard, held: deque[HeldRecord], may_go: Callable[[], bool]) -> None:
    """Hand held records over, until `may_go` returns False. It is called under the guard, and returns False without
    records. Waits while librdkafka's queue is full."""
    while True:
        with guard:
            if not may_go():
                return
            record = held[0]
            try:
                record.produce(*record.arguments)
                failure = None
            except Exception as refused:  # any refusal: the sender gets it
                failure = refused
            if not isinstance(failure, BufferError):
                held.popleft()
        if isinstance(failure, BufferError):
            record.kafka.wait_for_reports()
        elif failure is not None:
            record.fail(answer_for(failure))
        if record.kafka.asleep:
            record.kafka.wake()


def fail_held(
    guard: ReentryGuard, held: deque[HeldRecord], which: Callable[[HeldRecord], bool], error: Callable[[], Any]
) -> None:
    """Fail the first held records, as far as `which` returns True. `error` is called under the guard."""
    while True:
        with guard:
            if not held or not which(held[0]):
                return
            record, failure = held.popleft(), error()
        record.fail(failure)
