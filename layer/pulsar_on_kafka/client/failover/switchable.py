"""Objects that move with a tenant wrap the object that is open on the cluster in use."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.client.failover.tenant_connection import TenantHome, Traveller
from pulsar_on_kafka.exceptions import AlreadyClosed, PulsarException, Timeout

_log: Final = logging.getLogger(__name__)
_T = TypeVar("_T")


class OnOneCluster(Protocol):
    def is_connected(self) -> bool: ...


_Inner = TypeVar("_Inner", bound=OnOneCluster)


class Moving(OfOneProcess, Traveller, Generic[_Inner]):
    """A shell passes calls on to the inner object on the cluster that has the tenant. Thread-safe."""

    def __init__(self, what: str, home: TenantHome, leave: Callable[[_Inner], None]) -> None:
        """`leave` closes an inner object."""
        self._what = what
        self._home = home
        self._leave_cluster = leave
        self._inner: _Inner | None = None
        """The object in use; None between two clusters."""
        self._last: _Inner | None = None
        """The one in use, or that of the cluster that was left."""
        self._gone = False
        self._changing = threading.Condition()

    def pause(self) -> None:
        with self._changing:
            self._inner = None

    def expire(self) -> None:
        """Does nothing: a thread that waits for a message has a deadline of its own."""

    def _part(self, last: _Inner) -> None:
        self._home.part(partial(self._leave_behind, last))

    def _leave_behind(self, last: _Inner) -> None:
        try:
            self._leave_cluster(last)
        except PulsarException as failure:
            _log.warning("%s leaves its cluster: %s", self._what, failure)

    def _use(self, inner: _Inner) -> None:
        """Use it from now on; it ends if the shell was closed meanwhile."""
        with self._changing:
            self._last = inner
            self._inner = None if self._gone else inner
            self._changing.notify_all()
        if self._gone:
            self._leave_cluster(inner)

    def _call(self, call: Callable[[_Inner], _T], deadline: Deadline) -> _T:
        """Calls on the cluster that has the tenant, again when that cluster is left meanwhile. Raises Timeout,
        AlreadyClosed."""
        while True:
            with self._changing:
                if not self._changing.wait_for(lambda: self._gone or self._inner is not None, deadline.remaining_s()):
                    raise Timeout(f"{self._what} is between two clusters")
                inner = self._inner
            if inner is None:
                raise self._is_closed()
            try:
                return call(inner)
            except AlreadyClosed:
                if self._inner is inner:
                    raise

    def _patience(self) -> Deadline:
        return Deadline.after(self._home.operation_timeout_s)

    def _known(self) -> _Inner:
        assert self._last is not None  # noqa: S101 - it was opened in the constructor
        return self._last

    def _is_closed(self) -> AlreadyClosed:
        return AlreadyClosed(f"{self._what} is closed")

    def is_connected(self) -> bool:
        """False between two clusters."""
        inner = self._inner
        return inner is not None and inner.is_connected()

    def leave(self) -> None:
        """`close` on the client's behalf; a second call does nothing."""
        if not self._gone:
            self._home.leave(self)
            with self._changing:
                self._gone = True  # with it: what arrives meanwhile ends by itself
                inner, self._inner = self._inner, None
            self.abandon()
            if inner is not None:
                self._leave_cluster(inner)

    def abandon(self) -> None:
        with self._changing:
            self._gone = True
            self._inner = None
            self._changing.notify_all()
