"""A home moves one tenant's producers, consumers and readers of one client from cluster to cluster."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.base.worker import Retry, Worker, aside, side_by_side
from pulsar_on_kafka.broker.lookup.tenant_locations import Directory, TenantPlace
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.failover.preconnect import Ahead
from pulsar_on_kafka.exceptions import AlreadyClosed, ConnectError, PulsarException, Timeout

_log: Final = logging.getLogger(__name__)

WAIT_S: Final = 30.0
"""The wait of one request for changes at the lookup service."""
_RETRY_INTERVAL_S: Final = 1.0
"""The pause after a failed request, or a failed opening on the new cluster."""
_EXPIRE_S: Final = 0.1
_AT_ONCE: Final = 16
"""The limit of travellers that leave, or arrive, in parallel."""
_WAIT_BETWEEN_S: Final = 0.5
"""The same while the tenant is between two clusters: what waits for it is answered in time."""

OpenSession = Callable[[TenantPlace], Session]


class Traveller(Protocol):
    """A traveller is a producer, consumer or reader that moves with its tenant. It is called by one thread of the home
    at a time, in this order; others travel at the same time."""

    def pause(self) -> None:
        """Take nothing more from the application, give it nothing more. Does not wait."""

    def depart(self) -> None:
        """Settle what is under way, and leave the cluster. Raises nothing."""

    def look_ahead(self, session: Session) -> None:
        """Prefetches the metadata that `arrive` needs of that cluster. Changes nothing there, or here. It may not be
        called, or be called during the arrival. Raises LayerError, PulsarException: not possible now."""

    def arrive(self, session: Session) -> None:
        """Go on there. Raises PulsarException: not possible now, to be tried again."""

    def expire(self) -> None:
        """Answer what has waited for too long."""

    def abandon(self) -> None:
        """Handles the closing of the client: waiting callers get an error. Objects that were open on a cluster are
        closed already."""


class TenantHome:
    """The home follows one tenant through the map, and moves the tenant's travellers along. Thread-safe; one thread,
    which requests changes from the first producer, consumer or reader until `close`, and up to 16 more while all
    travellers leave a cluster, or arrive.

    Without a reply about the tenant's place, all travellers stay. While the tenant is between two clusters with a known
    next one, the home connects to the next one and reads its metadata.
    """

    def __init__(
        self,
        tenant: str,
        directory: Directory,
        open_session: OpenSession,
        operation_timeout_s: float,
        leave_s: float | None = None,
    ) -> None:
        """`leave_s`: the time-out for leaving a cluster that may be dead; None: no time-out. The rest continues in
        parallel with the work on the next cluster."""
        self.tenant = tenant
        self.leave_s = leave_s
        self._directory = directory
        self._open_session = open_session
        self.operation_timeout_s = operation_timeout_s
        self._place: TenantPlace | None = None
        self._session: Session | None = None
        self._called: tuple[Session, str] | None = None
        """The name of that session's cluster, where the map does not contain it."""
        self._ahead: Ahead | None = None
        self._failure = ""
        """The reason why no traveller can arrive; '' where they can. Logged when it changes."""
        self._closing: list[threading.Thread] = []
        """Sessions of clusters that were left. Both of the home's thread."""
        self._away: list[Traveller] = []
        """Travellers that left a cluster and have not arrived on one yet."""
        self._travellers: list[Traveller] = []
        self._settled = threading.Condition(threading.RLock())
        self._reported_nothing = False
        """Whether the last request for changes got no reply."""
        self._moving = threading.Lock()
        """Held during an arrival or a move, so that no object opens on a cluster that is being left."""
        self._worker = Worker(
            f"pok-tenant-{tenant}", self._follow, f"tenant={tenant} a move went wrong", retry=Retry(_RETRY_INTERVAL_S)
        )

    # For the client -----------------------------------------------------------------------------------------------

    def session(self) -> Session:
        """The session on the cluster that has the tenant; during a switch, the call waits for the next cluster.

        Raises:
            ConnectError: no lookup service returns the tenant's place.
            Timeout: it was switching for longer than the operation timeout.
            AlreadyClosed: the client was closed.
        """
        deadline = Deadline.after(self.operation_timeout_s)
        if self._place is None:
            with self._moving, pulsar_errors():
                self._begin(deadline)
        with self._settled:
            if not self._settled.wait_for(lambda: self._session or self._worker.ended, deadline.remaining_s()):
                raise Timeout(
                    f"tenant {self.tenant} is between two clusters for more than {self.operation_timeout_s:g} s"
                )
            if self._session is None:
                raise AlreadyClosed("the client is closed")
            return self._session

    def join(self, traveller: Traveller) -> None:
        """Opens the traveller on the tenant's cluster now, and moves it with the tenant. Raises the errors of the
        opening.

        Where the map may soon name another cluster (`leave_s`), an unresponsive cluster is retried until the operation
        timeout.
        """
        deadline = Deadline.after(self.operation_timeout_s)
        while True:
            try:
                session = self.session()
                if self.leave_s is not None:
                    session.check_answers(
                        Deadline.after(self.leave_s)
                    )  # or a move would wait for the attempts of a traveller
                with self._moving:
                    if session is not self._session:
                        continue  # it moved just then
                    traveller.arrive(session)
                    self._travellers.append(traveller)
                    return
            except ConnectError:
                if self.leave_s is None or deadline.passed() or self._worker.pause(_EXPIRE_S):
                    raise

    def leave(self, traveller: Traveller) -> None:
        with self._settled:
            self._travellers = [each for each in self._travellers if each is not traveller]
            self._away = [each for each in self._away if each is not traveller]

    def end(self) -> None:
        """Ends the thread as soon as nothing keeps it waiting: see `close`."""
        self._worker.end()
        with self._settled:
            self._settled.notify_all()

    def close(self) -> Session | None:
        """End the thread; the session that is left, for the client to close."""
        self.end()
        self._worker.close(Deadline.never())
        if self._ahead is not None:
            self._ahead.drop()
            self._ahead.join()
        for thread in self._closing:
            thread.join(self.leave_s)
        session, self._session = self._session, None
        return session

    def abandon(self) -> None:
        for traveller in self._travellers:
            traveller.abandon()

    def part(self, leave: Callable[[], None]) -> None:
        """Runs `leave`, which raises nothing and leaves a cluster: returns when that is done, or after the time-out."""
        if self.leave_s is None:
            leave()
            return
        aside("pok-parting", leave).join(self.leave_s)

    def cluster_of(self, session: Session) -> str:
        """The cluster's name in copies of its messages; Kafka's cluster id without a name. Raises LayerError."""
        place = self._place
        if place is not None and place.cluster:
            return place.cluster
        known = self._called
        if known is None or known[0] is not session:
            node = session.node()
            name = node.clusters.registry(session.deadline()).local or node.cluster_id
            known = self._called = (session, name)
        return known[1]

    # The thread ---------------------------------------------------------------------------------------------------

    def _begin(self, deadline: Deadline) -> None:
        if self._worker.ended:
            raise AlreadyClosed("the client is closed")
        if self._place is not None:
            return
        place = self._directory.place(self.tenant, deadline)
        if not place.switching:
            self._session = self._open_session(place)
        self._place = place
        self._worker.start()

    def _follow(self) -> float:
        waiting = bool(self._away) or self._session is None
        assert self._place is not None  # noqa: S101 - `_begin`
        try:
            place = self._directory.changed(self._place, _WAIT_BETWEEN_S if waiting else WAIT_S)
            self._reported_nothing = False
        except LayerError as failure:
            if not self._reported_nothing and not self._worker.ended:
                _log.warning("tenant=%s stays where it is, no lookup service reports changes: %s", self.tenant, failure)
            self._reported_nothing = True
            self._worker.pause(_EXPIRE_S if waiting else _RETRY_INTERVAL_S)
            place = self._place
        if self._worker.ended:
            return 0.0
        if place.version != self._place.version:
            self._move(place)
        elif waiting:
            with self._moving:
                self._settle_now(place)
        return 0.0

    def _move(self, place: TenantPlace) -> None:
        before, self._place = self._place, place
        assert before is not None  # noqa: S101 - a moving traveller has a former place
        if before.is_same_cluster(place) and not place.switching and self._session is not None:
            return
        _log.info("tenant=%s on cluster %s %s", self.tenant, place.cluster, place.state.value)
        with self._moving:
            self._look_ahead(place)
            self._leave_cluster()
            self._settle_now(place)

    def _look_ahead(self, place: TenantPlace) -> None:
        """Connects to the next cluster of the tenant, while its travellers leave the former one."""
        reached = place.reached
        if reached is None:
            return
        if self._ahead is not None:
            self._ahead.drop()
        try:
            session = self._open_session(reached)
        except PulsarException as failure:
            _log.warning("tenant=%s goes to cluster %s: %s", self.tenant, reached.cluster, failure)
            return
        self._ahead = Ahead(reached, session, [traveller.look_ahead for traveller in self._travellers])

    def _session_at(self, place: TenantPlace) -> Session:
        """The session that was opened ahead, if it is on that cluster; otherwise a new, connected one. Raises
        PulsarException: not possible now."""
        ahead = self._ahead
        session = ahead.take_for(place) if ahead is not None else None
        session = session or self._open_session(place)
        try:
            with pulsar_errors():
                session.node()
        except PulsarException:
            session.close()
            raise
        return session

    def _leave_cluster(self) -> None:
        session, self._session = self._session, None
        staying = [each for each in self._travellers if not any(each is gone for gone in self._away)]
        for traveller in staying:
            self._bear(traveller.pause)
        side_by_side([partial(self._bear, traveller.depart) for traveller in staying], _AT_ONCE)
        with self._settled:
            self._away = list(self._travellers)
        if staying:
            _log.info("tenant=%s has left a cluster, producers, consumers and readers=%d", self.tenant, len(staying))
        if session is not None:  # nothing of it is waited for, but by `close`
            self._closing = [each for each in self._closing if each.is_alive()]
            self._closing.append(aside(f"pok-left-{self.tenant}", partial(self._close, session)))

    def _close(self, session: Session) -> None:
        try:
            session.close()
        except PulsarException as failure:
            _log.warning("tenant=%s leaving a cluster: %s", self.tenant, failure)

    def _settle_now(self, place: TenantPlace) -> None:
        """Lets all travellers without a cluster arrive, if the tenant has one; failed arrivals are retried."""
        if not place.switching:
            try:
                session = self._session
                if session is None:
                    session = self._session_at(place)
                    with self._settled:
                        self._session = session
                        self._settled.notify_all()
                arriving = list(self._away)
                side_by_side([partial(self._arrive, each, session) for each in arriving], _AT_ONCE)
                if arriving:
                    _log.info("tenant=%s continues on cluster %s", self.tenant, place.cluster)
                self._failure = ""
            except PulsarException as failure:
                if self._failure != str(failure):
                    self._failure = str(failure)
                    _log.warning("tenant=%s cannot go on yet on cluster %s: %s", self.tenant, place.cluster, failure)
                self._worker.pause(_EXPIRE_S)
        for traveller in list(self._away):
            self._bear(traveller.expire)

    def _bear(self, action: Callable[[], None]) -> None:
        """One traveller's trouble is no reason for the others to stay."""
        try:
            action()
        except Exception:  # they raise nothing that is meant to be raised
            _log.exception("tenant=%s a traveller's step went wrong", self.tenant)

    def _arrive(self, traveller: Traveller, session: Session) -> None:
        """Lets a traveller arrive. After an unexpected failure it stays away and is retried, as one that cannot arrive
        yet."""
        try:
            traveller.arrive(session)
        except PulsarException:
            raise
        except Exception:  # a fault of this product or the application: the others arrive all the same
            _log.exception("tenant=%s a traveller could not arrive, it is tried again", self.tenant)
            return
        with self._settled:
            self._away = [each for each in self._away if each is not traveller]
