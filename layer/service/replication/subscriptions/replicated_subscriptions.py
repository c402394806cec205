"""The role of replicated subscriptions, shared out among processes by a Kafka group.

Whoever is assigned partition i of `subscription_progress` tells other clusters of the subscriptions of its topics, and
takes over what they say. One thread serves all partitions of a process, in rounds.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.role_state import RoleName, RoleState
from pulsar_on_kafka.base.turns import Turns
from pulsar_on_kafka.base.worker import Retry, Worker
from pulsar_on_kafka.kafka.groups.membership import GroupCallbacks, GroupConsumer
from pulsar_on_kafka.kafka.groups.shared_work import Assignment, SharedWork
from pulsar_on_kafka.kafka.reading.range_reader import RangeReader
from pulsar_on_kafka.mapping.state.state_topics import SUBSCRIPTION_PROGRESS
from pulsar_on_kafka.node.node import Node
from pulsar_on_kafka.node.sides.origin_reading import OriginReading
from pulsar_on_kafka.service.replication.remote import Peers
from pulsar_on_kafka.service.replication.subscriptions.progress_words import ProgressWords
from pulsar_on_kafka.service.replication.subscriptions.snapshot_sync import SnapshotSync
from pulsar_on_kafka.service.replication.subscriptions.subscription_sync import SubscriptionSync
from pulsar_on_kafka.service.replication.subscriptions.sync_round import SyncRound

_WORK: Final = "replication"
EVERY_S: Final = 1.0
_ROUND_S: Final = 120.0
_AGAIN_MOST_S: Final = 30.0
_QUEUE_KBYTES: Final = 4096


class ReplicatedSubscriptions:
    """Thread-safe; joins the group when it is made, and leaves it in `close`.

    A round a second, and at once while there is more to read. Memory: `SubscriptionSync`'s, and 4 MB of records.
    """

    def __init__(
        self,
        node: Node,
        secrets: Mapping[str, Mapping[str, str]] | None = None,
        *,
        member: str = "",
        every_s: float = EVERY_S,
    ) -> None:
        """`secrets`: librdkafka's options for other clusters, by their names, on top of what is registered. `member`:
        see `Services.member_sharing`."""
        self._node = node
        self._member = member
        self._every_s = every_s
        self._peers = Peers(node, secrets or {})
        self._reader = RangeReader(node.settings.reader(fetch_queue_kbytes=_QUEUE_KBYTES))
        words, peers = ProgressWords(node.progress), self._peers.progress
        snapshots = SnapshotSync(node, self._reader, words, peers)
        self._sync = SubscriptionSync(node, OriginReading(node.admin, self._reader), words, peers, snapshots)
        self._lock = threading.Lock()
        self._assigned: set[int] = set()
        self._lost: set[int] = set()
        self._rounds = 0
        self._turns = Turns()
        self._moved = threading.Condition()
        retry = Retry(every_s, _AGAIN_MOST_S)
        self._thread = Worker("pok-subscriptions", self._work, "replicated subscriptions wait", retry=retry)
        self._thread.start()
        self._group = SharedWork(
            node.settings.instance.group(SUBSCRIPTION_PROGRESS, _WORK),
            self._open_member,
            Assignment(self._on_assigned, self._on_revoked),
            name="pok-subscriptions-group",
            without="this process tells no other cluster what replicated subscriptions have done with",
        )

    def wait_for_round(self, deadline: Deadline) -> bool:
        """Whether a round that began after this call, over at least one partition of the state topic, ended with
        nothing left to do."""
        with self._moved:
            wanted = self._rounds + 2  # one may be under way
            while self._rounds < wanted and not deadline.passed():
                self._thread.wake()
                self._moved.wait(min(self._every_s, deadline.remaining_s()))
            return self._rounds >= wanted

    def state(self) -> RoleState:
        threads = ((self._thread.name, self._thread.is_alive()), ("pok-subscriptions-group", self._group.is_alive()))
        with self._lock:
            partitions = len(self._assigned)
        return RoleState(
            RoleName.SUBSCRIPTIONS.value,
            self._group.answered,
            partitions,
            tuple(name for name, alive in threads if not alive and not self._thread.ended),
            (("progress", self._turns.seen()),),
        )

    def close(self, deadline: Deadline) -> None:
        """Leave the group, and end the threads; a second call does nothing."""
        self._thread.end()
        self._group.close(deadline)
        self._thread.close(deadline)
        self._reader.close()
        self._peers.close()

    # Its own thread -----------------------------------------------------------------------------------------------

    def _work(self) -> float:
        with self._lock:
            owns = bool(self._assigned)
        with self._turns.one():
            done = self._round()
        if done.behind:
            return 0.0
        if owns:
            self._tell_of_round()
        return self._every_s

    def _round(self) -> SyncRound:
        with self._lock:
            owned, lost, self._lost = sorted(self._assigned), self._lost - self._assigned, set()
        self._sync.forget(sorted(lost))
        return self._sync.round(owned, Deadline.after(_ROUND_S))

    def _tell_of_round(self) -> None:
        with self._moved:
            self._rounds += 1
            self._moved.notify_all()

    # The membership's thread --------------------------------------------------------------------------------------

    def _open_member(self, callbacks: GroupCallbacks) -> GroupConsumer:
        group = self._node.settings.instance.group(SUBSCRIPTION_PROGRESS, _WORK)
        return self._node.member_sharing(SUBSCRIPTION_PROGRESS, group, callbacks, self._member)

    def _on_assigned(self, partitions: list[int]) -> None:
        with self._lock:
            self._assigned.update(partitions)
        self._thread.wake()

    def _on_revoked(self, partitions: list[int]) -> None:
        with self._lock:
            self._assigned.difference_update(partitions)
            self._lost.update(partitions)
