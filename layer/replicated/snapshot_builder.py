"""One snapshot that is being made: every other cluster is asked how far its log is, once or twice. Pure.

When the last answer is read here, everything that lay below the answered positions there was read here before: what was
published there came by the same way as the answer, in order, and what was published here had to be here first. With two
other clusters or more that is not enough: what one of them had got from another one may still be on its way here. So
all are asked once more, and the positions of the first round are taken with the place of the second round's last
answer. Source: Pulsar's `ReplicatedSubscriptionsSnapshotBuilder`. Decision: mapping/decisions/0023.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from pulsar_on_kafka.mapping.records.subscription_markers import Snapshot, SnapshotRequest, SnapshotResponse
from pulsar_on_kafka.mapping.state.clusters.subscription_progress import Origin

TIMEOUT_MS: Final = 30_000
"""Source: Pulsar's `replicatedSubscriptionsSnapshotTimeoutSeconds`."""


class SnapshotBuilder:
    """Memory: a position for each other cluster."""

    def __init__(self, snapshot_id: str, source: str, others: Set[str], now_ms: int, began_at: int) -> None:
        """`others`: the clusters that are asked. `began_at`: how far the log was read."""
        self.began_at = began_at
        self._id = snapshot_id
        self._source = source
        self._others = frozenset(others)
        self._began_ms = now_ms
        self._round = 1
        self._missing = set(others)
        self._upto: dict[Origin, int] = {}

    def request(self) -> SnapshotRequest:
        """The request that is to be written now."""
        return SnapshotRequest(self._id, self._source, self._round)

    def is_over(self, now_ms: int) -> bool:
        """Whether nobody waits for answers any more."""
        return now_ms - self._began_ms > TIMEOUT_MS

    def answered(self, response: SnapshotResponse, offset: int) -> SnapshotRequest | Snapshot | None:
        """An answer was read at `offset` here; gives what is to be written next, if anything.

        An answer that came before, or of another round, changes nothing. One of another life of the topic there than in
        the first round ends it: nothing comes of the snapshot.
        """
        cluster = response.origin.cluster
        if response.round != self._round or cluster not in self._missing:
            return None
        if self._round == 1:
            self._upto[response.origin] = response.upto
        elif response.origin not in self._upto:
            return None
        self._missing.discard(cluster)
        if self._missing:
            return None
        if self._round == 1 and len(self._others) > 1:
            self._round, self._missing = 2, set(self._others)
            return self.request()
        return Snapshot(self._id, self._source, offset, dict(self._upto))
