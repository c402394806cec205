"""Removes members of Kafka's groups whose process is dead, or that were closed without LeaveGroup, before the session
time-out.

Kafka detects a death by the session time-out, 6 s later; until then its partitions have no owner. Another member on the
same machine, or the next one to join, detects it sooner (`base.processes`) and sends LeaveGroup in its name
(`GoodByes`). Kafka then refuses every commit of the removed member, as after its session.
"""

from __future__ import annotations

import logging
import math
import random
import threading
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.processes import is_dead_process, is_of_this_machine, is_over, process_of, this_process
from pulsar_on_kafka.base.worker import Retry, Worker
from pulsar_on_kafka.kafka.records import GroupDescription, GroupMember
from pulsar_on_kafka.kafka.settings import SESSION_TIMEOUT_MS

_log: Final = logging.getLogger(__name__)

LOOK_S: Final = 0.1
"""The interval of checks of `/proc` for dead processes."""
NEXT: Final = 3
"""The number of a group's processes on this machine that each one watches: those behind it, by name, in a ring. If all
three die, their watcher checks all other dead processes too."""
_ANSWER_S: Final = 2.0
_SESSION_S: Final = SESSION_TIMEOUT_MS / 1000
_SETTLED_S: Final = 0.5
"""The delay of a check after a rebalance: other members may join or leave at the same moment."""
_RETRY_INTERVAL_S: Final = 0.3
_PREPARE_AFTER_S: Final = 5.0


class GroupDescriber(Protocol):
    """Source: `KafkaAdmin`."""

    def describe_group(self, group_id: str, deadline: Deadline) -> GroupDescription: ...


class LeaveGroupRequests(Protocol):
    """Source: `GoodByes`."""

    def prepare(self) -> None: ...

    def send(self, group_id: str, member_ids: Sequence[str], deadline: Deadline) -> None: ...


def watched_by(own: str, processes: Iterable[str]) -> tuple[str, ...]:
    """The up to three processes that are behind `own` in the ring of these."""
    others = sorted(set(processes) - {own})
    behind = [each for each in others if each > own]
    return tuple([*behind, *others][: min(NEXT, len(others))])


class Departures:
    """Watches the groups of this process. Thread-safe; one thread checks while there are any memberships.

    Memory: for each membership the names of up to three processes.
    """

    def __init__(self, groups: GroupDescriber, good_byes: LeaveGroupRequests, clock: Clock) -> None:
        self._groups = groups
        self._good_byes = good_byes
        self._clock = clock
        self._lock = threading.Lock()
        self._all_local_peers: set[LocalPeers] = set()
        self._worker = Worker("pok-departures", self._look, "looking for processes that died", retry=Retry(LOOK_S))
        self._prepare_s: float | None = None
        self._prepared = False
        self._unable = ""
        """The reason why LeaveGroup cannot be sent."""

    def local_peers(self, group_id: str, client_id: str) -> LocalPeers:
        """The company of the member that this process will be in the group with this client id."""
        return LocalPeers(self, group_id, client_id)

    def close(self) -> None:
        """Look no more."""
        self._worker.end()

    def see_off(self, group_id: str, *, besides: str = "") -> tuple[GroupMember, ...]:
        """Removes dead members from the group, and `besides` a member with that client id. Returns the remaining
        members.

        Kafka has 2 s to list the members, and then 6 s to remove them, after which the session time-out does so.

        Raises:
            LayerError: the group does not reply, or does not remove them.
        """
        members = self._groups.describe_group(group_id, Deadline.after(_ANSWER_S)).members
        over = [member for member in members if member.client_id == besides or is_over(member.client_id)]
        if over and not self._unable:
            try:
                self._good_byes.prepare()  # which takes seconds on a busy machine
                self._good_byes.send(group_id, [member.member_id for member in over], Deadline.after(_SESSION_S))
            except (errors.NotSupportedYet, errors.NotAuthorized) as failure:
                self._cannot(failure)
            else:
                _log.info("group=%s removed %d dead members", group_id, len(over))
        return tuple(member for member in members if member not in over)

    def watch(self, local_peers: LocalPeers) -> None:
        """Make members of this group that die leave it, until `forget`."""
        with self._lock:
            self._all_local_peers.add(local_peers)
            first = len(self._all_local_peers) == 1
        self._worker.start()
        if first:
            self._worker.wake()

    def forget(self, local_peers: LocalPeers) -> None:
        with self._lock:
            self._all_local_peers.discard(local_peers)

    def now_s(self) -> float:
        return self._clock.monotonic()

    def _cannot(self, why: errors.LayerError) -> None:
        if not self._unable:
            self._unable = str(why)
            _log.warning("processes that die leave Kafka's groups only when their session of 6 s is over: %s", why)

    # Its own thread -----------------------------------------------------------------------------------------------

    def _look(self) -> float:
        with self._lock:
            all_local_peers = list(self._all_local_peers)
        if not all_local_peers:
            return math.inf
        self.look(all_local_peers)
        return LOOK_S

    def look(self, all_local_peers: Sequence[LocalPeers]) -> None:
        """Removes members that died from their groups, and updates the watched processes after membership changes."""
        now_s = self.now_s()
        watched = {process for local_peers in all_local_peers for process in local_peers.watched}
        dead = {process for process in watched if is_dead_process(process)}
        for local_peers in all_local_peers:
            if local_peers.due_s <= now_s or dead.intersection(local_peers.watched):
                local_peers.look()
        if watched and not self._prepared:
            self._prepare(now_s)

    def _prepare(self, now_s: float) -> None:
        """Loads what LeaveGroup needs, but not while programs start."""
        if self._prepare_s is None:
            self._prepare_s = now_s + _PREPARE_AFTER_S
        if now_s < self._prepare_s:
            return
        self._prepared = True
        try:
            self._good_byes.prepare()
        except errors.NotSupportedYet as failure:
            self._cannot(failure)


class LocalPeers:
    """The other members of a group, updated by one member of this process. All methods except `changed` may send
    requests to Kafka."""

    def __init__(self, departures: Departures, group_id: str, client_id: str) -> None:
        self._departures = departures
        self._group_id = group_id
        self._client_id = client_id
        self.due_s = math.inf
        """The time of the next check of the group, by the monotonic clock."""
        self.watched: tuple[str, ...] = ()
        """Processes of this machine."""

    def joining(self) -> None:
        """Take members that are over out of the group, so that this join does not wait for them."""
        self.look()
        self._departures.watch(self)

    def changed(self) -> None:
        """There was a rebalance. Returns at once."""
        self.due_s = self._departures.now_s() + random.uniform(_SETTLED_S, 2 * _SETTLED_S)

    def left(self) -> None:
        """Handles the closing of this member. While it was waiting for an assignment it could not send LeaveGroup: the
        coordinator's broker reads the next request of a connection after the reply to the one before."""
        self._departures.forget(self)
        try:
            self._departures.see_off(self._group_id, besides=self._client_id)
        except errors.LayerError as failure:
            _log.debug("group=%s leaving: %s", self._group_id, failure)

    def look(self) -> None:
        """Take members that are over out of the group, and watch those that live."""
        try:
            living = self._departures.see_off(self._group_id)
        except errors.LayerError as failure:
            _log.debug("group=%s looking for processes that died: %s", self._group_id, failure)
            self.due_s = self._departures.now_s() + _RETRY_INTERVAL_S
            return
        self.due_s = math.inf
        processes = {process_of(member.client_id) for member in living}
        self.watched = watched_by(this_process(), filter(is_of_this_machine, processes))
