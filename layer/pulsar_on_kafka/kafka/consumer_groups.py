"""Requests to the coordinator of a consumer group, which avoid two faults of librdkafka.

Both end the whole process, and both were seen when a broker was killed and came back (librdkafka 2.16):

* A request that times out while its coordinator is not reachable is resumed once a broker is back, although its memory
  is freed: `Assertion 'eonce->refcnt > 0' failed` (confluentinc/librdkafka#4605). So none times out there: each gets
  librdkafka's maximum of an hour, and the caller has a time limit of its own.
* NOT_COORDINATOR in answer to a request about offsets is followed through a null pointer (#5040). So offsets are
  requested only after the coordinator has described the group without an error.

And a request whose coordinator went away may wait for ever beside a cluster that is back (#3847). So these requests
have a handle of their own, which is replaced by a new one after five seconds without a reply.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from pulsar_on_kafka.base.clock import Clock, SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.kafka import handles

_T = TypeVar("_T")
_NEVER_S: Final = 3600.0
"""The longest that librdkafka lets an admin request take."""
_LATE_S: Final = 5.0
_RETRY_INTERVAL_S: Final = 0.1
_ON_THE_MOVE: Final = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


class _Owed(NamedTuple):
    future: Future[Any]
    since: float
    """Monotonic seconds."""


class GroupRequests(OfOneProcess):
    """The requests. Thread-safe. At most one request per group is under way, and after five seconds it is repeated. A
    request whose caller left counts until then, or until its reply: memory is bounded by the groups in use."""

    def __init__(self, open_handle: Callable[[], AdminClient], clock: Clock | None = None) -> None:
        """`open_handle` gives a new admin client; there is one from the first request on."""
        self._open_handle = open_handle
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._handle: AdminClient | None = None
        self._owed: dict[str, _Owed] = {}
        self._pause: Final = threading.Event()  # never set

    def describe(self, group_id: str, deadline: Deadline, *, with_rights: bool = False) -> Any:
        """confluent-kafka's description of the group, read after the call began.

        While the coordinator moves, as it does for the first group of a cluster, the request is repeated.

        Raises:
            KafkaException: the coordinator refuses.
            TimeoutError: (of concurrent.futures) no reply before the deadline.
        """

        def request(handle: AdminClient) -> Future[Any]:
            requested = handle.describe_consumer_groups(
                [group_id], include_authorized_operations=with_rights, request_timeout=_NEVER_S
            )
            return requested[group_id]

        while True:
            try:
                return self._request(group_id, request, deadline)
            except KafkaException as failure:
                if failure.args[0].code() not in _ON_THE_MOVE or deadline.passed():
                    raise
            self._pause.wait(min(_RETRY_INTERVAL_S, deadline.remaining_s()))

    def about_offsets(
        self, group_id: str, request: Callable[[AdminClient, float], Future[_T]], deadline: Deadline
    ) -> _T:
        """The answer to a request that reads or sets offsets; it is given the timeout to use. Raises as `describe`."""
        try:
            self.describe(group_id, deadline)
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise
        return self._request(group_id, lambda handle: request(handle, _NEVER_S), deadline)

    def delete(self, group_id: str, deadline: Deadline) -> None:
        self._request(
            group_id,
            lambda handle: handle.delete_consumer_groups([group_id], request_timeout=_NEVER_S)[group_id],
            deadline,
        )

    def close(self) -> None:
        """Give up the handle; a later request opens another."""
        with self._lock:
            handle, self._handle = self._handle, None
            self._owed.clear()
        handles.release(handle)

    def _request(self, group_id: str, request: Callable[[AdminClient], Future[_T]], deadline: Deadline) -> _T:
        while True:
            future, ours, given_up = self._under_way(group_id, request)
            handles.release(given_up)  # outside of the lock: librdkafka ends only when its callbacks do
            if ours:
                future.add_done_callback(lambda done: self._answered(group_id, done))
            wait((future,), min(deadline.remaining_s(), _LATE_S))
            if ours and future.done():
                return future.result()
            if deadline.passed():
                raise FutureTimeoutError

    def _under_way(
        self, group_id: str, request: Callable[[AdminClient], Future[_T]]
    ) -> tuple[Future[_T], bool, AdminClient | None]:
        """The request about a group that is to be waited for, whether it is this one, and the handle that is not used
        any more."""
        with self._lock:
            earlier = self._owed.get(group_id)
            if earlier is not None and not earlier.future.done() and not self._is_late(earlier):
                return earlier.future, False, None
            given_up = None
            if any(map(self._is_late, self._owed.values())):
                given_up, self._handle = self._handle, None
                self._owed.clear()
            if self._handle is None:
                self._handle = handles.opened(self._open_handle, reserved=True)
            future = request(self._handle)
            self._owed[group_id] = _Owed(future, self._clock.monotonic())
            return future, True, given_up

    def _is_late(self, owed: _Owed) -> bool:
        return self._clock.monotonic() - owed.since >= _LATE_S

    def _answered(self, group_id: str, future: Future[Any]) -> None:
        with self._lock:
            owed = self._owed.get(group_id)
            if owed is not None and owed.future is future:
                del self._owed[group_id]
