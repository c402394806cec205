"""Ends or stops a process between two writes of a transaction, whichever of its parts makes them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from pulsar_on_kafka.broker.transactions.effects.kafka_partitions import KafkaDataPartitions
from pulsar_on_kafka.statelog.kafka_log import KafkaStateLog
from pulsar_on_kafka_mapping.state.state_keys import (
    PendingAckEndKey,
    PendingAckKey,
    TransactionBufferKey,
    TransactionLogKey,
    decode_key,
)
from pulsar_on_kafka_mapping.state.transactions.transaction_log import (
    NewTransaction,
    PartitionsAdded,
    StatusUpdated,
    SubscriptionsAdded,
    decode_log_value,
)
from tests.chaos.wrapping import wrap

STEPS: Final = (
    "NEW", "ADD_PARTITION", "OPEN", "send 1", "send 2", "ADD_SUBSCRIPTION", "ack", "commit", "COMMITTING", "marker",
    "END", "OPEN gone", "COMMITTED", "acks gone", "abort", "ABORTING", "ABORTED entry", "ABORTED",
)  # fmt: skip
"""In the order of a transaction's life; what ends only with an abort comes last. Small letters: the program's calls."""


class TransactionCut:
    """`signal_name` comes before or after (`when`) the `nth` time that this process takes `step`."""

    def __init__(self, step: str, when: str, nth: int, signal_name: str, say: Callable[[str], None]) -> None:
        if step not in STEPS or when not in ("before", "after"):
            raise ValueError(f"cut {when} {step}, expected before or after one of {', '.join(STEPS)}")
        self._step = step
        self._when = when
        self._left = nth
        self._signal = signal.Signals[signal_name]
        self._say = say
        self._wrap(
            KafkaStateLog, KafkaStateLog.append_many, lambda _log, _topic, _partition, records, *_: steps_of(records)
        )
        self._wrap(
            KafkaStateLog,
            KafkaStateLog.append_apart,
            lambda _log, groups, *_: steps_of([each for *_, group in groups for each in group]),
        )
        self._wrap(
            KafkaStateLog, KafkaStateLog.append, lambda _log, _topic, _partition, *record: steps_of([record[:2]])
        )
        self._wrap(KafkaDataPartitions, KafkaDataPartitions.append_markers, lambda *_: {"marker"})

    def step(self, name: str, action: Callable[[], Any]) -> Any:
        """A step that the program itself takes."""
        return self._around({name}, action)

    def _wrap(self, owner: type[Any], function: Callable[..., Any], steps: Callable[..., set[str]]) -> None:
        def around(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
            return self._around(steps(*arguments, *named.values()), lambda: original(*arguments, **named))

        wrap(owner, function, around)

    def _around(self, steps: set[str], action: Callable[[], Any]) -> Any:
        if self._step not in steps or self._left == 0:
            return action()
        self._left -= 1
        now = self._left == 0
        if now and self._when == "before":
            self._cut()
        try:
            return action()
        finally:
            if now and self._when == "after":
                self._cut()
            elif now:
                self._say(f"took {self._step}")

    def _cut(self) -> None:
        self._say(f"{self._when} {self._step}")
        os.kill(os.getpid(), self._signal)
        self._say(f"went on {self._when} {self._step}")


def steps_of(records: Sequence[tuple[bytes, bytes | None]]) -> set[str]:
    """What an append of these records to a state topic does for transactions."""
    return {step for key, value in records for step in _steps(key, value)}


def _steps(key: bytes, value: bytes | None) -> Iterator[str]:
    match decode_key(key):
        case TransactionLogKey() if value is not None:
            match decode_log_value(value):
                case NewTransaction():
                    yield "NEW"
                case PartitionsAdded():
                    yield "ADD_PARTITION"
                case SubscriptionsAdded():
                    yield "ADD_SUBSCRIPTION"
                case StatusUpdated(status=status):
                    yield status.value
        case TransactionBufferKey(kind="OPEN"):
            yield "OPEN" if value is not None else "OPEN gone"
        case TransactionBufferKey(kind="ABORTED") if value is not None:
            yield "ABORTED entry"
        case PendingAckKey():
            yield "ack" if value is not None else "acks gone"
        case PendingAckEndKey() if value is not None:
            yield "END"
