"""One librdkafka producer shared by everything in the process that writes with the same settings.

librdkafka calls back only from inside `poll`. A thread that does nothing else would take the GIL from the sender once
per message; so busy senders poll for themselves (`poll_inline`, every few dozen messages), and the thread of this class
polls only while nobody else does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from layer import errors
from layer.deadline import Deadline
from layer.kafka import handles
from layer.kafka.errors import translate
from layer.kafka.events import ErrorEvents

DeliveryCallback = Callable[[KafkaError | None, Any], None]
Headers = Sequence[tuple[str, bytes | None]]

_log = logging.getLogger(__name__)

_INLINE_IS_RECENT_S: Final = 0.002
_POLL_S: Final = 0.02


class KafkaProducer:
    """Appends records. Thread-safe; delivery callbacks run one at a time, in whichever thread polls.

    At most 1,000,000 records and 1 GiB wait in librdkafka's queue (`LocalQueueFull` above that).
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._events = ErrorEvents("producer")
        self._handle = Producer({**config, "error_cb": self._events})
        handles.track(self._handle)
        self.produce: Callable[..., None] = self._handle.produce
        """librdkafka's own `produce`, called directly because a Python frame per message is what costs most.
        Raises BufferError when the local queue is full; follow every call by `wake()` if `asleep`."""
        self._poll_lock = threading.Lock()
        self._work = threading.Event()
        self.asleep = True
        self._last_inline_s = 0.0
        self._closing = False
        self._thread = threading.Thread(target=self._poll_forever, name="pok-producer", daemon=True)
        self._thread.start()

    @property
    def fatal(self) -> errors.LayerError | None:
        """Why librdkafka gave this instance up; what was under way is answered with an error, nothing new is taken."""
        return self._events.fatal

    def connect(self, deadline: Deadline) -> None:
        """Meet the cluster now: the first append of an idempotent producer otherwise waits half a second for it.

        Raises:
            ConnectFailed: no broker answered in time.
        """
        try:
            self._handle.list_topics(topic="", timeout=max(0.05, min(deadline.remaining_s(), 3600.0)))
        except KafkaException as failure:
            raise errors.ConnectFailed(str(translate(failure, "connecting"))) from failure

    def wake(self) -> None:
        """Tell the polling thread that there is something to wait for; needed only while it is `asleep`."""
        self._work.set()

    def poll_inline(self, timeout_s: float = 0.0) -> bool:
        """Serve delivery callbacks in the calling thread; False when another thread is at it."""
        self._last_inline_s = time.monotonic()  # first: the polling thread steps back when it sees a busy sender
        if not self._poll_lock.acquire(blocking=False):
            return False
        try:
            self._handle.poll(timeout_s)
        finally:
            self._poll_lock.release()
            self._last_inline_s = time.monotonic()
        return True

    def _poll_forever(self) -> None:
        pause = threading.Event()
        while not self._closing:
            if self.asleep:
                self._work.wait()
                self._work.clear()
                self.asleep = False
            busy_sender = time.monotonic() - self._last_inline_s < _INLINE_IS_RECENT_S
            if busy_sender or not self._poll_lock.acquire(blocking=False):
                pause.wait(_INLINE_IS_RECENT_S)
                continue
            try:
                self._handle.poll(_POLL_S)
            except Exception:  # a callback's; everybody's reports go on coming through here
                _log.exception("a delivery callback failed")
            finally:
                self._poll_lock.release()
            if len(self._handle) == 0:
                self.asleep = True
                if len(self._handle) > 0:  # a record came in before its sender could see us asleep
                    self.asleep = False

    def enqueue(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, delivered: DeliveryCallback
    ) -> None:
        """`produce` with its refusals translated, for those whom a Python frame costs nothing. Follow it by `wake()`.

        Raises:
            BufferError: the local queue is full.
            LayerError: refused, not written.
        """
        try:
            self.produce(topic, value, key, partition, delivered)
        except KafkaException as refused:
            raise translate(refused, f"append to {topic}-{partition}") from refused

    def append(self, topic: str, partition: int, key: bytes | None, value: bytes | None, deadline: Deadline) -> int:
        """Append one record, wait until every in-sync replica has it, and give its offset.

        Raises:
            AppendFailed: certainly not written.
            AppendOutcomeUnknown: the deadline passed while it was under way.
        """
        done = threading.Event()
        outcome: list[tuple[KafkaError | None, int]] = []

        def delivered(error: KafkaError | None, record: Any) -> None:
            outcome.append((error, record.offset() or 0))
            done.set()

        try:
            self.enqueue(topic, partition, key, value, delivered)
        except BufferError as full:
            raise errors.AppendFailed(f"append to {topic}-{partition}: the local queue is full") from full
        self.wake()
        if not done.wait(deadline.remaining_s()):
            raise errors.AppendOutcomeUnknown(f"append to {topic}-{partition} was not answered in time")
        error, offset = outcome[0]
        if error is not None:
            raise translate(error, f"append to {topic}-{partition}")
        return offset

    def outstanding(self) -> int:
        """Records handed over and not yet answered."""
        return len(self._handle)

    def close(self, deadline: Deadline) -> int:
        """Wait for what is under way, end the thread, and give the number of records left unanswered."""
        if not handles.is_ours(self._handle):
            return 0
        left = int(self._handle.flush(min(deadline.remaining_s(), 2**31 - 1)))
        self._closing = True
        self.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(_POLL_S + 1.0)
        handles.release(self._handle)
        return left
