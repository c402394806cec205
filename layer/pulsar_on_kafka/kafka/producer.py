"""One librdkafka producer shared by everything in the process that writes with the same settings.

librdkafka reports only from inside `poll`. A thread that does nothing else would take the GIL from the sender once
per message; so busy senders poll for themselves (`poll_inline`, every few dozen messages), and the polling thread
polls only while no sender does. A sender that finds another thread at it, with many reports to come, lets that one
end: two that take the GIL from each other for every report are slower than one after the other.

The main thread never polls: a signal handler may interrupt it anywhere and call this package. It has the polling thread
poll, and waits for that. What programs gave (callbacks of sends, logging handlers) never runs inside `poll`, which
cannot be entered twice: reports put it into a queue (`call_later`), and one thread at a time works that off, holding no
lock.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline, pause, wait_until
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.base.reentry import Callbacks, check_may_wait, in_callback
from pulsar_on_kafka.base.worker import aside
from pulsar_on_kafka.kafka import handles
from pulsar_on_kafka.kafka.errors import ErrorEvents, translate
from pulsar_on_kafka.kafka.rights import on_topic
from pulsar_on_kafka.kafka.settings import LIBRDKAFKA_LOG

DeliveryCallback = Callable[[KafkaError | None, Any], None]
Headers = Sequence[tuple[str, bytes | None]]

_log = logging.getLogger(__name__)

_INLINE_IS_RECENT_S: Final = 0.002
_POLL_S: Final = 0.02
_MANY: Final = 1_000
"""Records under way from which on a sender waits for a thread that serves callbacks."""
_TURN_S: Final = 0.02
"""The longest turn: a callback may wait for a lock of the sender."""
_GIVE_UP_S: Final = 5.0
_WORTH_A_TURN: Final = 256
"""Records under way from which on the main thread has the polling thread poll."""
_CALLS_TOGETHER: Final = 256
_ASLEEP_S: Final = 10.0
"""The interval at which the polling thread serves librdkafka without sends: while no broker replies, librdkafka queues
some seven events a second."""


class DeliveryWait:
    """A wait until a delivery callback settles it; one thread."""

    __slots__ = ("settled", "woken")

    def __init__(self) -> None:
        self.settled = False
        self.woken = threading.Event()

    def settle(self) -> None:
        self.settled = True
        self.woken.set()


class _LaterLog:
    """The logger of one librdkafka producer: its lines are logged outside of `poll`."""

    def __init__(self, call_later: Callable[[Callable[[], object]], None]) -> None:
        self._call_later = call_later

    def log(self, level: int, *line: Any) -> None:
        if LIBRDKAFKA_LOG.isEnabledFor(level):
            self._call_later(lambda: LIBRDKAFKA_LOG.log(level, *line))


class KafkaProducer(OfOneProcess):
    """Appends records. Thread-safe; delivery callbacks run one at a time, in whichever thread polls. They return at
    once: slow calls, and calls of a program, are put into the queue of `call_later`.

    At most 1,000,000 records and 1 GiB wait in librdkafka's queue, or the limits of `kafka_config`; BufferError above
    that.
    """

    def __init__(self, config: dict[str, Any], *, served_by_waiting: bool = False) -> None:
        """`served_by_waiting`: all its delivery callbacks are of those who `wait_for` them and may run in any of their
        threads: that saves a thread's turn for each."""
        self._served_by_waiting = served_by_waiting
        self._turns = threading.Lock()
        self._serving: DeliveryWait | None = None
        """The waiting thread that polls for all."""
        self._waiting: dict[DeliveryWait, None] = {}
        self._reports: deque[Callable[[], object]] = deque()
        self._calls: deque[Callable[[], object]] = deque()
        self.call_later: Callable[[Callable[[], object]], None] = self._calls.append
        """Has a call made outside of `poll`, in order, by one thread at a time. Returns at once. From outside of a
        delivery callback follow it by `make_calls`."""
        self._calling = threading.Lock()
        """Held by the thread that makes them."""
        self.callbacks = Callbacks()
        self._caller_thread: threading.Thread | None = None
        self._call_required: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._events = ErrorEvents("producer", self.call_later)
        logger = {"logger": _LaterLog(self.call_later)} if config.get("logger") is LIBRDKAFKA_LOG else {}
        made = {**config, **logger, "error_cb": self._events}
        self._handle = handles.opened(lambda: Producer(made), reserved=True)
        self.produce: Callable[..., None] = self._handle.produce
        """librdkafka's own `produce`, called directly because a Python frame per message is what costs most.
        Raises BufferError when the local queue is full; follow every call by `wake()` if `asleep`."""
        self._full_at: int | None = None
        """The number of records under way when librdkafka's queue was full."""
        self._poll_lock = threading.Lock()
        self._poller: int | None = None
        """The thread that holds the lock."""
        self._work: queue.SimpleQueue[None] = queue.SimpleQueue()
        """Wakes the polling thread. An Event would not do: a signal handler may interrupt the one who sets it."""
        self._turns_requested: deque[threading.Lock] = deque()
        """Turns requested by the main thread, which waits until each is released."""
        self.asleep = True
        self._last_inline_s = 0.0
        self._closing = False
        self._main = threading.main_thread().ident
        self._thread = aside("pok-producer", self._poll_forever)

    @property
    def fatal(self) -> errors.LayerError | None:
        """Why this instance was given up, by librdkafka or by `give_up`; what was under way is answered with an error,
        and nothing new is to be sent by it."""
        return self._events.fatal

    def give_up(self, why: errors.LayerError) -> None:
        """Answer everything that is under way with an error, and have none of it stored later: but for the one request
        of each broker that may be on its way to it. A second call does nothing."""
        if self._events.fatal is None:
            self._events.fatal = why
            self._handle.purge()  # returns at once: what confluent-kafka calls blocking is librdkafka's non-blocking
            self.wake()

    def note_full(self) -> None:
        """`produce` raised BufferError."""
        self._full_at = len(self._handle)

    @property
    def full(self) -> bool:
        """Whether the queue was full, without a report since: a retry would be in vain."""
        if self._full_at is not None and len(self._handle) < self._full_at:
            self._full_at = None
        return self._full_at is not None

    def connect(self, deadline: Deadline) -> None:
        """Meet the cluster now: the first append of an idempotent producer otherwise waits half a second for it.

        Raises:
            ConnectFailed: no broker answered in time.
        """
        if not wait_until(lambda: bool(handles.met_cluster(self._handle)), deadline):
            raise errors.ConnectFailed("no broker answered in time")

    def learn_partitions(self, topic: str, partitions: int, deadline: Deadline) -> None:
        """Returns once librdkafka knows that `topic` has that many partitions; its own interval is some minutes.

        Raises:
            DeadlineExceeded: the brokers do not report it in time.
        """

        def known() -> bool:
            try:
                reported = self._handle.list_topics(topic, timeout=max(0.05, min(deadline.remaining_s(), 3600.0)))
            except KafkaException as failure:
                raise translate(failure, f"requesting the partitions of {topic}") from failure
            return len(reported.topics[topic].partitions) >= partitions

        if not wait_until(known, deadline):
            raise errors.DeadlineExceeded(f"topic {topic}: no broker reported {partitions} partitions in time")

    def wake(self) -> None:
        """Wakes the polling thread because records are under way; needed only while it is `asleep`."""
        self._work.put(None)

    def wait_for(self, waiting: DeliveryWait, deadline: Deadline) -> bool:
        """Return once `waiting`, of records that were handed over before, is settled; False when the deadline passes
        first."""
        if not self._served_by_waiting or threading.get_ident() == self._main:
            self.wake()
            return waiting.settled or waiting.woken.wait(min(deadline.remaining_s(), threading.TIMEOUT_MAX))
        try:
            while not (waiting.settled or deadline.passed()):
                if self._may_serve(waiting):
                    if not self.poll_inline(min(_POLL_S, deadline.remaining_s())):
                        waiting.woken.wait(_INLINE_IS_RECENT_S)  # the polling thread is at it
                else:
                    waiting.woken.wait(min(deadline.remaining_s(), threading.TIMEOUT_MAX))
                    waiting.woken.clear()
        finally:
            self._leave_serving(waiting)
        return waiting.settled

    def _may_serve(self, waiting: DeliveryWait) -> bool:
        if self._serving is waiting:
            return True
        with self._turns:
            if self._serving is None:
                self._serving = waiting
                return True
            self._waiting[waiting] = None
            return False

    def _leave_serving(self, waiting: DeliveryWait) -> None:
        """Ends serving by this thread, which lets another waiting one serve."""
        with self._turns:
            self._waiting.pop(waiting, None)
            if self._serving is waiting:
                self._serving = None
            if self._serving is None:
                for successor in self._waiting:
                    successor.woken.set()
                    break
        if not waiting.settled:
            self.wake()  # its callbacks come when it is gone

    def poll_inline(self, timeout_s: float = 0.0, *, calls: bool = True) -> bool:
        """Serves delivery callbacks, and then the calls that they queued, in the calling thread; False when another
        thread serves. While more than 1,000 records are under way, that one has 20 ms to end. For the main thread the
        polling thread serves, once without a `timeout_s`; with one the main thread gets False, and must wait.

        Without `calls` another thread makes the calls, since a program's callback may wait for the calling thread.
        """
        if threading.get_ident() == self._main:
            if timeout_s > 0:
                self._last_inline_s = 0.0
                return False
            return self._have_polled()
        self._last_inline_s = time.monotonic()  # first: the polling thread steps back when it sees a busy sender
        if not self._poll_lock.acquire(blocking=False) and not self._wait_for_turn():
            return False
        try:
            self._poller = threading.get_ident()
            self._serve(timeout_s)
        finally:
            self._poller = None
            self._poll_lock.release()
            self._last_inline_s = time.monotonic()
        if not calls:
            self.make_calls()
        elif self._calls:
            self._call_now()
        return True

    def _have_polled(self) -> bool:
        """Lets the polling thread poll once, if enough is under way; the main thread makes the calls itself."""
        if len(self._handle) < _WORTH_A_TURN or self._closing:
            return False
        turn = threading.Lock()
        turn.acquire()
        self._turns_requested.append(turn)
        self._last_inline_s = time.monotonic()
        self._work.put(None)
        polled = turn.acquire(timeout=_TURN_S)
        self._last_inline_s = time.monotonic()
        if self._calls:
            self._call_now()
        return polled

    def _wait_for_turn(self) -> bool:
        many = len(self._handle) > _MANY and self._poller != threading.get_ident()
        return many and self._poll_lock.acquire(timeout=_TURN_S)

    def wait_for_reports(self, timeout_s: float = 0.05, *, calls: bool = True) -> None:
        """`poll_inline`, or as long a wait where another thread is at it: for those who wait in a loop."""
        self.wake()
        if not self.poll_inline(timeout_s, calls=calls):
            pause(timeout_s)

    # Calls of programs --------------------------------------------------------------------------------------------

    def make_calls(self) -> None:
        """Wakes the thread that makes the waiting calls."""
        if self._calls:
            if self._caller_thread is None:
                self._caller_thread = aside("pok-callbacks", self._call_forever)
            self._call_required.put(None)

    def wait_for_calls(self, deadline: Deadline) -> None:
        """Return when the calls that wait now were made. Not for the thread that makes them."""
        made = threading.Lock()
        made.acquire()
        self.call_later(made.release)
        self.make_calls()
        made.acquire(timeout=deadline.remaining_s())

    def check_may_wait(self) -> None:
        """Raises Refused: the calling thread is inside `poll`, or a signal handler has interrupted it where it holds
        what the threads need that it would wait for."""
        if self._poller == threading.get_ident():
            raise errors.Refused("a delivery callback cannot wait for other deliveries: call this from another thread")
        check_may_wait()

    def _call_now(self) -> None:
        """Make the calls that wait, unless another thread does, or this one is in the middle of one."""
        calls, calling = self._calls, self._calling
        with self.callbacks:  # before the lock: a signal handler may come between the two
            while calls and calling.acquire(blocking=False):
                try:
                    while calls:
                        call = calls.popleft()
                        try:
                            call()
                        except Exception:  # the program's
                            _log.exception("a send callback failed")
                finally:
                    calling.release()

    def _call_forever(self) -> None:
        while not self._closing or self._calls:
            try:
                self._call_required.get(timeout=_ASLEEP_S)
            except queue.Empty:
                continue
            try:
                self._call_now()
            except BaseException:  # a program's `sys.exit()`: the calls of others are made all the same
                _log.exception("a send callback ends no thread")

    def _serve(self, timeout_s: float) -> int:
        """The number of reports and other events."""
        while self._reports:
            self._reports.popleft()()
        try:
            return self._handle.poll(timeout_s)
        except KafkaException as raised:
            if not raised.args[0].fatal():
                raise
            self._events(raised.args[0])  # confluent-kafka raises a fatal error here instead of calling `error_cb`
            return 0

    def report(self, report: Callable[[], object]) -> None:
        """Queues `report`, which is called like librdkafka's reports, between two of them: librdkafka has none for it.
        Returns at once."""
        self._reports.append(report)
        self.wake()

    def _poll_forever(self) -> None:
        while not self._closing:
            requested = len(self._turns_requested)
            if self.asleep and not requested:
                self._wait_for_work(_ASLEEP_S)
                self.asleep = False
                requested = len(self._turns_requested)
            busy_sender = not requested and time.monotonic() - self._last_inline_s < _INLINE_IS_RECENT_S
            if busy_sender or not self._poll_lock.acquire(blocking=False):
                self._wait_for_work(_INLINE_IS_RECENT_S)
                continue
            try:
                self._poller = threading.get_ident()
                served = self._serve(0.0 if requested else _POLL_S)
                while served and not requested and 0 < len(self._calls) < _CALLS_TOGETHER:
                    served = self._serve(0.0)  # two threads would take the GIL from each other for every report
            except Exception:  # a callback's; the thread must continue to serve all reports
                _log.exception("a delivery callback failed")
            finally:
                self._poller = None
                self._poll_lock.release()
            for _ in range(requested):
                self._turns_requested.popleft().release()
            asleep = len(self._handle) == 0
            if asleep or not requested:  # otherwise the main thread makes them
                self.make_calls()
            if asleep:
                self.asleep = True
                if len(self._handle) > 0:  # a record came in before its sender could see us asleep
                    self.asleep = False
        self._give_up_rest()

    def _wait_for_work(self, seconds: float) -> None:
        try:
            self._work.get(timeout=seconds)
            while True:
                self._work.get_nowait()
        except queue.Empty:
            pass

    def _give_up_rest(self) -> None:
        self._handle.purge()
        deadline = Deadline.after(_GIVE_UP_S)
        while (len(self._handle) > 0 or self._reports) and not deadline.passed():
            try:
                if not self.poll_inline(_POLL_S):
                    pause(_INLINE_IS_RECENT_S)
            except Exception:  # the application's; the reports of others still come through here
                _log.exception("a delivery callback failed")
        self._call_required.put(None)
        handles.release(self._handle)

    def enqueue(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        delivered: DeliveryCallback,
        headers: Headers | None = None,
        timestamp_ms: int = 0,
    ) -> None:
        """`produce` with its refusals translated, for callers outside the hot path. Follow it by `wake()`.

        Raises:
            BufferError: the local queue is full.
            LayerError: refused, not written.
        """
        try:
            self.produce(topic, value, key, partition, delivered, None, timestamp_ms, headers)
        except KafkaException as refused:
            raise self.why_refused(refused, topic, f"append to {topic}-{partition}") from refused

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        deadline: Deadline,
        headers: Headers | None = None,
    ) -> int:
        """Append one record, wait until every in-sync replica has it, and give its offset.

        Raises:
            AppendFailed: certainly not written.
            AppendOutcomeUnknown: the deadline passed while it was under way.
        """
        waiting, what = DeliveryWait(), f"append to {topic}-{partition}"
        outcome: list[tuple[KafkaError | None, int | None]] = []

        def delivered(error: KafkaError | None, record: Any) -> None:
            outcome.append((error, record.offset()))
            waiting.settle()

        try:
            self.enqueue(topic, partition, key, value, delivered, headers)
        except BufferError as full:
            raise errors.AppendFailed(f"{what}: the local queue is full") from full
        if not self.wait_for(waiting, deadline):
            raise errors.AppendOutcomeUnknown(f"{what} was not answered in time")
        error, offset = outcome[0]
        if error is not None:
            raise self.why_refused(error, topic, what)
        if offset is None:
            raise errors.AppendOutcomeUnknown(f"{what}: stored by an earlier try, offset unknown")
        return offset

    def why_refused(self, error: KafkaError | KafkaException, topic: str, what: str) -> errors.LayerError:
        """This product's error for a failed record of `topic`; `what` describes the operation in words."""
        if isinstance(self.fatal, errors.NotAuthorized):
            # A client that may write nowhere may not even begin; the first topic where it may changes that.
            return errors.NotAuthorized(f"{what}: {self.fatal}; {on_topic('Write', topic)}")
        return translate(error, what, on_topic("Write", topic))

    def outstanding(self) -> int:
        return len(self._handle)

    def close(self, deadline: Deadline) -> int:
        """Waits for records under way, then abandons the rest: each of its callbacks gets an error. Returns their
        number.

        From inside a delivery callback, or a program's callback, it waits for nothing; the thread then ends by itself.
        """
        if not handles.is_ours(self._handle):
            return 0
        from_callback = self._poller == threading.get_ident() or in_callback()
        if not from_callback:
            self.wake()
            wait_until(lambda: self._all_answered(deadline), deadline)
        left = len(self._handle)
        self._closing = True
        self.wake()
        if not from_callback:
            self._thread.join(_GIVE_UP_S + _POLL_S)
        return left

    def _all_answered(self, deadline: Deadline) -> bool:
        if len(self._handle) > 0:
            self.poll_inline(min(_POLL_S, deadline.remaining_s()))
        return not (len(self._handle) or self._reports or self._calls or self._calling.locked())
