"""Removes members of Kafka's groups whose process is dead, or that were closed without LeaveGroup, before the session
time-out.

Kafka detects a death by the session time-out, 6 s later; until then its partitions have no owner. Another member on the
same machine, or the next one to join, detects it sooner (`base.processes`) and sends LeaveGroup in its name
(`GroupMembers`). Kafka then refuses every commit of the removed member, as after its session. A process that held many
groups is reported to all of them together.
"""

from __future__ import annotations

import logging
import math
import random
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.processes import is_dead_process, is_of_this_machine, is_over, process_of, this_process
from pulsar_on_kafka.base.worker import FORBIDDEN_RETRY_INTERVAL_S, Retry, Worker
from pulsar_on_kafka.kafka.settings import SESSION_TIMEOUT_MS
from pulsar_on_kafka.kafka.wire.group_messages import DescribedMember

_log: Final = logging.getLogger(__name__)

LOOK_S: Final = 0.1
"""The interval of checks of `/proc` for dead processes."""
NEXT: Final = 3
"""The number of a group's processes on this machine that each one watches: those behind it, by name, in a ring. If all
three die, their watcher checks all other dead processes too."""
_ANSWER_S: Final = 2.0
_ANSWER_EACH_S: Final = 0.001
"""Time for the description of one more group."""
_SESSION_S: Final = SESSION_TIMEOUT_MS / 1000
_SETTLED_S: Final = 0.5
"""The delay of a check after a rebalance: other members may join or leave at the same moment."""
_RETRY_INTERVAL_S: Final = 0.3


class ListsMembers(Protocol):
    """Source: `GroupMembers`."""

    def members_of(
        self, group_ids: Iterable[str], deadline: Deadline
    ) -> Mapping[str, tuple[DescribedMember, ...] | errors.LayerError]: ...

    def remove(
        self, members: Mapping[str, Sequence[str]], deadline: Deadline
    ) -> Mapping[str, errors.LayerError | None]: ...


def watched_by(own: str, processes: Iterable[str]) -> tuple[str, ...]:
    """The up to three processes that are behind `own` in the ring of these."""
    others = sorted(set(processes) - {own})
    behind = [each for each in others if each > own]
    return tuple([*behind, *others][: min(NEXT, len(others))])


class Departures:
    """Watches the groups of this process. Thread-safe; one thread checks while there are any memberships.

    Memory: for each membership the names of up to three processes.
    """

    def __init__(self, groups: ListsMembers, clock: Clock) -> None:
        self._groups = groups
        self._clock = clock
        self._lock = threading.Lock()
        self._all_local_peers: set[LocalPeers] = set()
        self._attended: set[LocalPeers] = set()
        """Those with something to watch, or that are due."""
        self._worker = Worker("pok-departures", self._look, "looking for processes that died", retry=Retry(LOOK_S))
        self._is_unable = False
        """Whether members cannot be removed."""
        self._warned = False

    def local_peers(self, group_id: str, client_id: str) -> LocalPeers:
        """The company of the member that this process will be in the group with this client id."""
        return LocalPeers(self, group_id, client_id)

    def close(self) -> None:
        """Look no more."""
        self._worker.end()

    def see_off(
        self, group_ids: Sequence[str], *, besides: str = ""
    ) -> Mapping[str, tuple[DescribedMember, ...] | errors.LayerError]:
        """Removes dead members from the groups, and `besides` members with that client id. Returns the remaining
        members of each group, or the error for it; nothing where this process cannot remove members.

        Kafka has 2 s to list the members (more for many groups), and then 6 s to remove them, after which the session
        time-out does so.

        Raises:
            LayerError: Kafka does not reply.
        """
        if self._is_unable:
            return {}
        answer_s = _ANSWER_S + _ANSWER_EACH_S * len(group_ids)
        try:
            found = dict(self._groups.members_of(group_ids, Deadline.after(answer_s)))
        except errors.NotSupportedYet as failure:
            self._cannot(failure)
            return {}
        over = {
            group_id: [each for each in members if each.client_id == besides or is_over(each.client_id)]
            for group_id, members in found.items()
            if not isinstance(members, errors.LayerError)
        }
        leaving = {group_id: [each.member_id for each in members] for group_id, members in over.items() if members}
        for group_id, refused in self._groups.remove(leaving, Deadline.after(_SESSION_S)).items():
            members = found[group_id]
            if isinstance(refused, errors.NotAuthorized):
                self._cannot(refused)
            if refused is not None:
                found[group_id] = refused
            elif not isinstance(members, errors.LayerError):
                found[group_id] = tuple(each for each in members if each not in over[group_id])
                _log.info("group=%s removed %d dead members", group_id, len(over[group_id]))
        return found

    def watch(self, local_peers: LocalPeers) -> None:
        """Make members of this group that die leave it, until `forget`."""
        with self._lock:
            self._all_local_peers.add(local_peers)
        self._worker.start()
        self.attend(local_peers)

    def forget(self, local_peers: LocalPeers) -> None:
        with self._lock:
            self._all_local_peers.discard(local_peers)
            self._attended.discard(local_peers)

    def attend(self, local_peers: LocalPeers) -> None:
        """Notes a change of the watched processes of the group, or of its due time."""
        with self._lock:
            if local_peers not in self._all_local_peers:
                return
            if not local_peers.watched and local_peers.due_s == math.inf:
                self._attended.discard(local_peers)
                return
            self._attended.add(local_peers)
            first = len(self._attended) == 1
        if first:
            self._worker.wake()

    def now_s(self) -> float:
        return self._clock.monotonic()

    def warn(self, why: errors.LayerError) -> None:
        """Logs once that deaths are not reported."""
        if not self._warned:
            self._warned = True
            _log.warning("processes that die leave Kafka's groups only when their session of 6 s is over: %s", why)

    def _cannot(self, why: errors.LayerError) -> None:
        self._is_unable = True
        self.warn(why)

    # Its own thread -----------------------------------------------------------------------------------------------

    def _look(self) -> float:
        with self._lock:
            attended = list(self._attended)
        if not attended:
            return math.inf
        self.look(attended)
        return LOOK_S

    def look(self, all_local_peers: Sequence[LocalPeers]) -> None:
        """Removes members that died from their groups, and updates the watched processes after membership changes."""
        now_s = self.now_s()
        watched = {process for local_peers in all_local_peers for process in local_peers.watched}
        dead = {process for process in watched if is_dead_process(process)}
        due = [each for each in all_local_peers if each.due_s <= now_s or not dead.isdisjoint(each.watched)]
        if due:
            self.update(due)

    def update(self, all_local_peers: Sequence[LocalPeers]) -> None:
        """Removes dead members from these groups, and has those watched that live."""
        try:
            found = self.see_off(sorted({each.group_id for each in all_local_peers}))
        except errors.LayerError as failure:
            found = {each.group_id: failure for each in all_local_peers}
        for local_peers in all_local_peers:
            local_peers.take(found.get(local_peers.group_id, ()))


class LocalPeers:
    """The other members of a group, updated by one member of this process. All methods except `changed` may send
    requests to Kafka."""

    def __init__(self, departures: Departures, group_id: str, client_id: str) -> None:
        self._departures = departures
        self.group_id = group_id
        self._client_id = client_id
        self.due_s = math.inf
        """The time of the next check of the group, by the monotonic clock."""
        self.watched: tuple[str, ...] = ()
        """Processes of this machine."""

    def joining(self) -> None:
        """Take members that are over out of the group, so that this join does not wait for them."""
        self._departures.update([self])
        self._departures.watch(self)

    def changed(self) -> None:
        """There was a rebalance. Returns at once."""
        self.due_s = self._departures.now_s() + random.uniform(_SETTLED_S, 2 * _SETTLED_S)
        self._departures.attend(self)

    def left(self) -> None:
        """Handles the closing of this member. While it was waiting for an assignment it could not send LeaveGroup: the
        coordinator's broker reads the next request of a connection after the reply to the one before."""
        self.forget()
        try:
            failure = self._departures.see_off([self.group_id], besides=self._client_id).get(self.group_id)
        except errors.LayerError as raised:
            failure = raised
        if isinstance(failure, errors.LayerError):
            _log.debug("group=%s leaving: %s", self.group_id, failure)

    def forget(self) -> None:
        """Watches the group no more: this member has left it."""
        self._departures.forget(self)

    def take(self, living: tuple[DescribedMember, ...] | errors.LayerError) -> None:
        """Watches the processes of these members; after an error the group is checked again soon."""
        if isinstance(living, errors.LayerError):
            _log.debug("group=%s looking for processes that died: %s", self.group_id, living)
            retry_s = _RETRY_INTERVAL_S
            if isinstance(living, errors.NotAuthenticated | errors.NotAuthorized):
                retry_s = FORBIDDEN_RETRY_INTERVAL_S
                self._departures.warn(living)
            self.due_s, self.watched = self._departures.now_s() + retry_s, ()
        else:
            self.due_s = math.inf
            processes = {process_of(member.client_id) for member in living}
            self.watched = watched_by(this_process(), filter(is_of_this_machine, processes))
        self._departures.attend(self)
