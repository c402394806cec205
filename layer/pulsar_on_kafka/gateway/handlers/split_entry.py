"""One entry that was split into several records: their results become one reply."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

from pulsar_on_kafka.broker.publishing.in_flight import NO_ID, OwnCallback
from pulsar_on_kafka.exceptions import PulsarException, Result
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.wire.commands import ServerError


class EntryCallback(Protocol):
    """Replies to the client."""

    def __call__(self, result: Result, message_id: NativeMessageId) -> None: ...

    def refused(self, code: ServerError, reason: str) -> None: ...

    def fail(self, failure: PulsarException) -> None: ...


class SplitEntry:
    """The records of one entry, which get one receipt after the last delivery report. Thread-safe.

    The receipt has the first known id. Its client uses that id, with an index, for each message of the batch. So a seek
    to it begins before all messages, and skips none.
    """

    def __init__(self, sent: EntryCallback, count: int) -> None:
        self.sent = sent
        self._left = count
        self._first: tuple[int, NativeMessageId] | None = None
        self._failure: Callable[[], None] | None = None
        self._lock = threading.Lock()

    @property
    def failed(self) -> bool:
        return self._failure is not None

    def stored(self, at: int, message_id: NativeMessageId) -> None:
        """The id of a duplicate is not known."""
        with self._lock:
            if message_id.entry_id() >= 0 and (self._first is None or at < self._first[0]):
                self._first = at, message_id
        self.answered(1)

    def refused(self, reason: tuple[ServerError, str], records: int) -> None:
        self.fail(partial(self.sent.refused, *reason), records)

    def fail(self, answer: Callable[[], None], records: int = 1) -> None:
        """So many records are not stored. The reply is the first failure."""
        with self._lock:
            self._failure = self._failure or answer
        self.answered(records)

    def answered(self, records: int) -> None:
        """So many more records have their result."""
        with self._lock:
            self._left -= records
            if self._left:
                return
        if self._failure is not None:
            self._failure()
        else:
            self.sent(Result.Ok, NO_ID if self._first is None else self._first[1])


class SplitRecord(OwnCallback):
    """The callback of one record of a split entry."""

    __slots__ = ("_at", "_together")

    prompt = True

    def __init__(self, together: SplitEntry, at: int) -> None:
        self._together = together
        self._at = at

    def __call__(self, result: Result, message_id: NativeMessageId) -> None:
        if result is Result.Ok:
            self._together.stored(self._at, message_id)
        else:
            self._together.fail(partial(self._together.sent, result, message_id))

    def fail(self, failure: PulsarException) -> None:
        self._together.fail(partial(self._together.sent.fail, failure))
