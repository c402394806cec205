"""Unanswered commands of a coordinator, from its own process (futures) and from others (requests)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import (
    AppendOutcomeUnknown,
    DeadlineExceeded,
    InvalidOption,
    LayerError,
    TransactionCoordinatorNotFound,
    TransactionOutcomeUnknown,
)
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_keys import TransactionRequestKey, decode_key
from pulsar_on_kafka_mapping.state.transactions.transaction_requests import (
    Begin,
    Command,
    End,
    decode_transaction_request,
)

_log: Final = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class WaitingCommand:
    """One command. Either `future` is set or `request` is not "".

    `written`: records for it were appended at some time, or may have been. `new_key` is the NEW of a begin command.
    `refusal` is why a request is refused whatever the state is.
    """

    command: Command | None
    future: Future[TxnId] | None = None
    request: str = ""
    deadline: Deadline = field(default_factory=Deadline.never)
    until_ms: int = 0
    refusal: LayerError | None = None
    written: bool = False
    unknown: bool = False
    new_key: bytes | None = None
    local_id: int = -1

    def settle(self, txn: TxnId) -> None:
        if self.future is not None and not self.future.done():
            self.future.set_result(txn)

    def fail(self, error: LayerError) -> None:
        if self.future is not None and not self.future.done():
            self.future.set_exception(error)

    def give_up(self, why: LayerError) -> None:
        """Fails the command: this process will not execute it; perhaps it was done."""
        if not self.written:
            self.fail(why)
        elif isinstance(self.command, End):
            self.fail(TransactionOutcomeUnknown(f"ending {self.command.txn}: {why}"))
        else:
            self.fail(AppendOutcomeUnknown(f"{self.command!r:.200}: {why}"))


class CoordinatorCommands:
    """The waiting commands, for the coordinator's thread. Memory: `most` commands; a request beyond that is dropped,
    and its sender resends it."""

    def __init__(self, coordinator: int, most: int, longest_ms: int, clock: Clock) -> None:
        """A request that may be executed for more than `longest_ms` is refused."""
        self._coordinator = coordinator
        self._most = most
        self._longest_ms = longest_ms
        self._clock = clock
        self._waiting: dict[WaitingCommand, None] = {}
        self._to_begin: dict[WaitingCommand, None] = {}
        """Begin commands, until they are admitted."""
        self._requests: dict[str, WaitingCommand] = {}
        self.unreadable_requests = 0
        """Requests that could neither be read nor answered."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._to_begin)

    def __iter__(self) -> Iterator[WaitingCommand]:
        """Over those that are to be seen to now; any may be dropped meanwhile."""
        return iter(list(self._waiting))

    def add(self, waiting: WaitingCommand) -> None:
        (self._to_begin if isinstance(waiting.command, Begin) else self._waiting)[waiting] = None

    def let_in(self, most: int) -> bool:
        """Admits this many of the waiting begin commands; returns whether more are left."""
        for waiting in list(islice(self._to_begin, most)):
            del self._to_begin[waiting]
            self._waiting[waiting] = None
        return bool(self._to_begin)

    def receive(self, record: LogRecord) -> None:
        try:
            key = decode_key(record.key)
            if not isinstance(key, TransactionRequestKey) or key.coordinator != self._coordinator:
                raise CorruptRecord(f"{key}, expected a request to coordinator {self._coordinator}")
        except CorruptRecord as reason:
            self.unreadable_requests += 1
            _log.warning("coordinator=%d offset=%d skipped a request: %s", self._coordinator, record.offset, reason)
            return
        if key.request in self._requests or len(self) >= self._most:
            return
        waiting = self._requests[key.request] = self._read(key.request, record.value or b"")
        self.add(waiting)

    def _read(self, request: str, value: bytes) -> WaitingCommand:
        now_ms = self._clock.now_ms()
        try:
            requested = decode_transaction_request(value)
            left_ms = requested.until_ms - now_ms
            if 0 < left_ms <= self._longest_ms:
                return WaitingCommand(requested.command, request=request, until_ms=requested.until_ms)
            reason = (
                f"the request may be executed for {left_ms} ms more, expected 1 to {self._longest_ms}: clocks differ"
            )
        except CorruptRecord as corrupt:
            reason = str(corrupt)
        until_ms = now_ms + self._longest_ms
        return WaitingCommand(None, request=request, until_ms=until_ms, refusal=InvalidOption(reason))

    def drop(self, waiting: WaitingCommand) -> None:
        self._waiting.pop(waiting, None)
        self._to_begin.pop(waiting, None)
        self._requests.pop(waiting.request, None)

    def drop_late(self) -> None:
        """Drops commands whose callers no longer wait."""
        now_ms = self._clock.now_ms()
        for waiting in (*self._waiting, *self._to_begin):
            if waiting.request and waiting.until_ms <= now_ms:
                self.drop(waiting)
            elif not waiting.request and waiting.deadline.passed():
                waiting.give_up(DeadlineExceeded(f"the deadline passed in coordinator {self._coordinator}"))
                self.drop(waiting)

    def resign(self, why: LayerError | None = None) -> None:
        """Give all up: another process serves, or will."""
        for waiting in (*self._waiting, *self._to_begin):
            waiting.give_up(
                why or TransactionCoordinatorNotFound(f"coordinator {self._coordinator} is not here any more")
            )
        self._waiting.clear()
        self._to_begin.clear()
        self._requests.clear()
