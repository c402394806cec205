"""Requests to the coordinator of a consumer group, made so that two faults of librdkafka are not met.

Both end the whole process, and both were seen when a broker was killed and came back (librdkafka 2.16):

* A request that times out while its coordinator is not reachable is taken up again once a broker is back, though its
  memory is freed: `Assertion 'eonce->refcnt > 0' failed` (confluentinc/librdkafka#4605). So none times out there: each
  gets the hour that is the most librdkafka takes, the caller waits as long as it likes, and a handle that has owed an
  answer for half an hour is exchanged for a new one.
* NOT_COORDINATOR in answer to a request about offsets is followed through a null pointer (#5040). So offsets are asked
  for only after the coordinator has described the group without complaint.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from layer.clock import Clock, SystemClock
from layer.deadline import Deadline

_T = TypeVar("_T")
_NEVER_S: Final = 3600.0
"""The longest that librdkafka lets an admin request take."""
_TOO_OLD_S: Final = 1800.0


class _Owed(NamedTuple):
    future: Future[Any]
    since: float
    """Monotonic seconds."""


class GroupRequests:
    """Thread-safe. At most one request a group is under way; one whose caller went away counts until it is answered,
    so what waits in librdkafka for a cluster that is away is bounded by the groups asked about."""

    def __init__(
        self, handle: Callable[[], AdminClient], renew: Callable[[], None], clock: Clock | None = None
    ) -> None:
        """`handle` gives the admin client to use now, `renew` exchanges it for a new one."""
        self._handle = handle
        self._renew = renew
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._owed: dict[str, _Owed] = {}

    def describe(self, group_id: str, deadline: Deadline, *, with_rights: bool = False) -> Any:
        """confluent-kafka's description of the group as it is after this call.

        Raises:
            KafkaException: the coordinator says no.
            TimeoutError: (of concurrent.futures) no answer before the deadline.
        """
        return self._ask(
            group_id,
            lambda handle: handle.describe_consumer_groups(
                [group_id], include_authorized_operations=with_rights, request_timeout=_NEVER_S
            )[group_id],
            deadline,
        )

    def about_offsets(
        self, group_id: str, request: Callable[[AdminClient, float], Future[_T]], deadline: Deadline
    ) -> _T:
        """The answer to a request that reads or sets offsets; it is given the timeout to use. Raises as `describe`."""
        try:
            self.describe(group_id, deadline)
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise
        return self._ask(group_id, lambda handle: request(handle, _NEVER_S), deadline)

    def delete(self, group_id: str, deadline: Deadline) -> None:
        """Raises as `describe`."""
        self._ask(
            group_id,
            lambda handle: handle.delete_consumer_groups([group_id], request_timeout=_NEVER_S)[group_id],
            deadline,
        )

    def _ask(self, group_id: str, request: Callable[[AdminClient], Future[_T]], deadline: Deadline) -> _T:
        while True:
            with self._lock:
                earlier = self._owed.get(group_id)
                if earlier is None or earlier.future.done():
                    self._exchange_a_handle_that_owes()
                    future = request(self._handle())
                    self._owed[group_id] = _Owed(future, self._clock.monotonic())
                    break
            if not wait((earlier.future,), _at_most(deadline)).done:
                raise FutureTimeoutError
        future.add_done_callback(lambda done: self._answered(group_id, done))
        return future.result(_at_most(deadline))

    def _answered(self, group_id: str, future: Future[Any]) -> None:
        with self._lock:
            owed = self._owed.get(group_id)
            if owed is not None and owed.future is future:
                del self._owed[group_id]

    def _exchange_a_handle_that_owes(self) -> None:
        oldest = min((owed.since for owed in self._owed.values()), default=None)
        if oldest is not None and self._clock.monotonic() - oldest > _TOO_OLD_S:
            self._owed.clear()
            self._renew()


def _at_most(deadline: Deadline) -> float:
    return min(deadline.remaining_s(), _NEVER_S)
