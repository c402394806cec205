"""The role of replicated subscriptions, shared among processes by a Kafka group.

The member with partition i of `subscription_progress` reports the subscriptions of its topics to other clusters, and
applies their reports. One thread serves all partitions of a process, in rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.role_state import RoleName
from pulsar_on_kafka.base.worker import Retry
from pulsar_on_kafka.broker.metadata.policies import REPLICATED_SUBSCRIPTIONS_SNAPSHOT_FREQUENCY_MILLIS
from pulsar_on_kafka.broker.node.cross_cluster.origin_reader import OriginReading
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.node.shared_role import SharedRole
from pulsar_on_kafka.kafka.reading.range_reader import RangeReader
from pulsar_on_kafka.service.replication.remote import RemoteClusters
from pulsar_on_kafka.service.replication.subscriptions.progress_records import ProgressWords, SyncRound
from pulsar_on_kafka.service.replication.subscriptions.subscription_sync import SubscriptionSync
from pulsar_on_kafka_mapping.state.state_topics import SUBSCRIPTION_PROGRESS

_POLICY_S: Final = 10.0
_ROUND_S: Final = 120.0
_MAX_RETRY_INTERVAL_S: Final = 30.0
_QUEUE_KBYTES: Final = 4096


class ReplicatedSubscriptions(SharedRole):
    """Thread-safe; joins the group when it is made, and leaves it in `close`.

    Rounds at the interval of a policy, and at once while there is more to read. Memory: `SubscriptionSync`'s, and 4 MB
    of records.
    """

    role = RoleName.SUBSCRIPTIONS
    topic = SUBSCRIPTION_PROGRESS
    work = "replication"
    thread = "pok-subscriptions"
    turns = "progress"
    failing = "replicated subscriptions wait"
    without = "this process reports no progress of replicated subscriptions to other clusters"

    def __init__(
        self,
        node: Node,
        secrets: Mapping[str, Mapping[str, str]] | None = None,
        *,
        member: str = "",
        every_s: float | None = None,
    ) -> None:
        """`secrets`: librdkafka's options for other clusters, by their names, on top of what is registered. `member`:
        see `Services.member_sharing`. `every_s`: the pause between two rounds; None: that of the cluster's policy."""
        self._fixed_s = every_s
        retry_s = REPLICATED_SUBSCRIPTIONS_SNAPSHOT_FREQUENCY_MILLIS.default / 1000 if every_s is None else every_s
        super().__init__(node, member, retry_s, Retry(retry_s, _MAX_RETRY_INTERVAL_S))
        self._peers = RemoteClusters(node, secrets or {})
        self._reader = RangeReader(node.settings.reader(fetch_queue_kbytes=_QUEUE_KBYTES))
        origins = OriginReading(node.admin, self._reader)
        self._sync = SubscriptionSync(node, origins, ProgressWords(node.progress), self._peers.progress)
        self.begin()

    def close(self, deadline: Deadline) -> None:
        super().close(deadline)
        self._reader.close()
        self._peers.close()

    # Its own thread -----------------------------------------------------------------------------------------------

    def _run(self) -> float:
        with self._worker.turns.one():
            return 0.0 if self._round().behind else self._pause_s()

    def _pause_s(self) -> float:
        policy = REPLICATED_SUBSCRIPTIONS_SNAPSHOT_FREQUENCY_MILLIS
        if self._fixed_s is not None:
            return self._fixed_s
        return float(self._node.namespaces.of_cluster(policy, Deadline.after(_POLICY_S)) / 1000)

    def _round(self) -> SyncRound:
        with self._lock:
            owned, lost, self._lost = sorted(self._assigned), self._lost - self._assigned, set()
        self._sync.forget(sorted(lost))
        return self._sync.round(owned, Deadline.after(_ROUND_S))
