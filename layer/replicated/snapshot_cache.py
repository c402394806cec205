"""The snapshots that a subscription has ahead of it. Pure.

Source: Pulsar's `ReplicatedSubscriptionSnapshotCache`.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from pulsar_on_kafka.mapping.records.subscription_markers import Snapshot

MOST: Final = 10
"""Snapshots of one subscription. Source: Pulsar's `replicatedSubscriptionsSnapshotMaxCachedPerSubscription`."""


class SnapshotCache:
    """Memory: `MOST` snapshots. Of more that one goes which leaves the smallest gap behind, never the first or the
    last: so a subscription that is far behind passes one now and then."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._snapshots: list[Snapshot] = []

    def __len__(self) -> int:
        return len(self._snapshots)

    def add(self, snapshot: Snapshot) -> None:
        """One that was read behind all others; what does not lie behind them says nothing new."""
        found = self._snapshots
        if found and snapshot.local <= found[-1].local:
            return
        found.append(snapshot)
        if len(found) > self._most:
            _, at = min((found[at + 1].local - found[at - 1].local, at) for at in range(1, len(found) - 1))
            del found[at]

    def passed(self, next_unacked: int) -> Snapshot | None:
        """The last one that a mark-delete of `next_unacked` - 1 has passed. It stays until `drop`."""
        at = bisect_left(self._snapshots, next_unacked, key=lambda snapshot: snapshot.local)
        return self._snapshots[at - 1] if at else None

    def drop(self, upto: Snapshot) -> None:
        """This one, and all before it, were told of."""
        self._snapshots = [each for each in self._snapshots if each.local > upto.local]
