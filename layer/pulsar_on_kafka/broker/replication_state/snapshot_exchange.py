"""The snapshot exchange of one partition is a machine that receives its log, in the order of offsets, and returns the
markers to write. Pure.

It requests a snapshot every second while messages arrive, replies to requests, and remembers the reported positions of
subscriptions elsewhere. All of its reports stay true, whichever process writes them, and any number of times. So
several machines for one partition do no harm, and unfinished work of a dead one is discarded.

Source: Pulsar's `ReplicatedSubscriptionsController`. Decision: mapping/decisions/0023.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Set
from typing import Final, NamedTuple

from pyroaring import BitMap, BitMap64

from pulsar_on_kafka_mapping.records.subscription_markers import (
    Snapshot,
    SnapshotRequest,
    SnapshotResponse,
    SubscriptionMarker,
    SubscriptionUpdate,
)
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import Origin

TIMEOUT_MS: Final = 30_000
"""Source: Pulsar's `replicatedSubscriptionsSnapshotTimeoutSeconds`."""


class SnapshotBuilder:
    """One snapshot that is being made: every other cluster is requested to report its log's end, once or twice.

    When the last reply is read here, everything below the reported positions there was read here before: messages
    published there arrived by the same way as the reply, in order, and messages published here were here first. With
    two or more other clusters that is not enough: messages that one of them received from another may still be on their
    way here. So all get a second request, and the snapshot has the positions of the first round with the place of the
    second round's last reply. Source: Pulsar's `ReplicatedSubscriptionsSnapshotBuilder`. Memory: a position for each
    other cluster.
    """

    def __init__(self, snapshot_id: str, source: str, others: Set[str], now_ms: int, began_at: int) -> None:
        """`others`: the clusters that get requests. `began_at`: the end of the reading."""
        self.began_at = began_at
        self._id = snapshot_id
        self._source = source
        self._others = frozenset(others)
        self._began_ms = now_ms
        self._round = 1
        self._missing = set(others)
        self._upto: dict[Origin, int] = {}

    def request(self) -> SnapshotRequest:
        return SnapshotRequest(self._id, self._source, self._round)

    def is_over(self, now_ms: int) -> bool:
        """Whether the wait for replies has ended."""
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


EVERY_MS: Final = 1_000
"""Source: Pulsar's `replicatedSubscriptionsSnapshotFrequencyMillis`."""
MAX_SNAPSHOTS: Final = 10
"""Snapshots of one subscription. Source: Pulsar's `replicatedSubscriptionsSnapshotMaxCachedPerSubscription`."""


class Wished(NamedTuple):
    """The author of a request: a subscription of another cluster, and the incarnations of topic and subscription
    there."""

    subscription: str
    cluster: str
    life: tuple[int, int]


class SnapshotExchange:
    """Memory: `SnapshotCache` for each subscription, 30 snapshots that are being made at most, an offset for each
    subscription of another cluster, and a bitmap of messages that their senders keep from some clusters."""

    def __init__(self, here: Origin, first: int, log_start: int) -> None:
        """`first`: the lowest position that any subscription needs. The log is read from there, or where it begins."""
        self.here = here
        self.first = first
        self.position = max(first, log_start)
        """Everything below was read."""
        self.caught_up = False
        """Whether the log was read to its end once: from then on all requests are current."""
        self._last_message = self.position - 1
        """Offsets before the log's beginning, and unread ones, may be messages."""
        self._covered: int | None = None
        """Every message below had been read when the last snapshot began that came to be; None: nothing is known."""
        self._began_ms: int | None = None
        self._building: dict[str, SnapshotBuilder] = {}
        self._asked: list[SnapshotRequest] = []
        self._next: list[SubscriptionMarker] = []
        self._caches: dict[str, SnapshotCache] = {}
        self._updates: dict[Wished, int] = {}
        self._kept: dict[frozenset[str], BitMap64] = {}
        """Messages that are for these clusters only."""

    def message(self, offset: int, only_for: Iterable[str] | None = None) -> None:
        """A record that is no marker. `only_for`: the clusters that its sender named, if any."""
        self._last_message = offset
        if only_for is not None:
            self._kept.setdefault(frozenset(only_for), BitMap64()).add(offset)

    def marker(self, offset: int, marker: SubscriptionMarker, copied_from: str) -> None:
        """A valid marker; `copied_from` is '' where it was written here."""
        match marker:
            case SnapshotRequest() if copied_from == marker.source != self.here.cluster:
                if not self.caught_up:  # old requests were answered, or have timed out
                    asked = (marker.source, marker.round)
                    self._asked = [each for each in self._asked if (each.source, each.round) != asked]
                self._asked.append(marker)
            case SnapshotResponse() if marker.source == self.here.cluster and copied_from == marker.origin.cluster:
                self._answered(marker, offset)
            case Snapshot() if not copied_from and marker.source == self.here.cluster:
                for cache in self._caches.values():
                    cache.add(marker)
            case SubscriptionUpdate() if copied_from == marker.source and self.here in marker.upto:
                wished = Wished(marker.subscription, marker.source, marker.life)
                self._updates[wished] = max(marker.upto[self.here], self._updates.get(wished, -1))

    def reached(self, end: int, log_end: int) -> None:
        """Marks everything below `end` as added; the log ended at `log_end` when reading began."""
        self.position = max(self.position, end)
        self.caught_up = self.caught_up or end >= log_end

    def _answered(self, response: SnapshotResponse, offset: int) -> None:
        builder = self._building.get(response.snapshot_id)
        following = None if builder is None else builder.answered(response, offset)
        if builder is None or following is None:
            return
        self._next.append(following)
        if isinstance(following, Snapshot):
            del self._building[response.snapshot_id]
            self._covered = max(builder.began_at, self._covered or 0)

    def markers(self, now_ms: int, others: Set[str], new_id: str) -> list[SubscriptionMarker]:
        """The markers to write now: replies, second rounds, completed snapshots, and a due request for a new one if
        messages arrived since the last one began. Each is returned once; see `lost`.

        `others`: the clusters that get requests; empty: no snapshot is needed, or possible.
        """
        found: list[SubscriptionMarker] = [
            SnapshotResponse(asked.snapshot_id, asked.source, asked.round, self.here, self.position - 1)
            for asked in self._asked
        ]
        found += self._next
        self._asked, self._next = [], []
        for snapshot_id in [each for each, builder in self._building.items() if builder.is_over(now_ms)]:
            del self._building[snapshot_id]
        if others and self.caught_up and self._is_due(now_ms):
            builder = SnapshotBuilder(new_id, self.here.cluster, others, now_ms, self.position)
            self._building[new_id] = builder
            self._began_ms = now_ms
            found.append(builder.request())
        return found

    def _is_due(self, now_ms: int) -> bool:
        if self._began_ms is not None and 0 <= now_ms - self._began_ms < EVERY_MS:
            return False
        return self._covered is None or self._last_message >= self._covered

    def lost(self) -> None:
        """Markers that were to be written may be lost: there will be one more snapshot."""
        self._covered = None

    def follow(self, subscriptions: Set[str]) -> None:
        """Sets the subscriptions here whose mark-delete is reported by snapshots. For a new one only snapshots read
        from now on count."""
        self._caches = {name: self._caches.get(name, SnapshotCache()) for name in subscriptions}

    def passed(self, subscription: str, next_unacked: int) -> Snapshot | None:
        """The last snapshot that this subscription has passed and that was not reported; see `told`."""
        cache = self._caches.get(subscription)
        return None if cache is None else cache.passed(next_unacked)

    def told(self, subscription: str, snapshot: Snapshot) -> None:
        """Others know it, or are about to."""
        self._caches[subscription].drop(snapshot)

    def updates(self) -> list[tuple[Wished, int]]:
        """Up to which offset here others have done with everything, inclusive; see `applied`."""
        return list(self._updates.items())

    def applied(self, wished: Wished, upto: int) -> None:
        """Marks the report as applied."""
        if self._updates.get(wished, upto) <= upto:
            self._updates.pop(wished, None)

    def news(self, cluster: str, upto: int, next_unacked: int, known: int) -> tuple[int, BitMap]:
        """The new acknowledgements here from another cluster's report that everything up to `upto` is acknowledged:
        offsets that count from the first number. They exclude offsets below `known`, which were applied or reported
        before, and messages that never got there, because their sender named other clusters.

        Differs from Pulsar: mapping/decisions/0023.
        """
        start, end = max(next_unacked, known), upto + 1
        found = BitMap()
        if start < end:
            found.add_range(0, end - start)
            window = BitMap64()
            window.add_range(start, end)
            for clusters, offsets in self._kept.items():
                if cluster not in clusters:
                    found -= BitMap([offset - start for offset in offsets & window])
        return start, found

    def forget_below(self, offset: int) -> None:
        """No subscription stands before it. One that is set back needs another exchange, which reads again."""
        self.first = max(self.first, offset)
        for offsets in self._kept.values():
            offsets.remove_range(0, offset)
        self._kept = {clusters: offsets for clusters, offsets in self._kept.items() if offsets}

    def only_markers_from(self, next_unacked: int) -> bool:
        """Whether there are records from this offset on, none of them a message."""
        return self._last_message < next_unacked < self.position


class SnapshotCache:
    """The snapshots of one subscription. Memory: `MAX_SNAPSHOTS` of them. Of more that one goes which leaves the
    smallest gap behind, never the first or the last: so a subscription that is far behind passes one now and then."""

    def __init__(self, most: int = MAX_SNAPSHOTS) -> None:
        self._most = most
        self._snapshots: list[Snapshot] = []

    def __len__(self) -> int:
        return len(self._snapshots)

    def add(self, snapshot: Snapshot) -> None:
        """Adds a snapshot that was read behind all others; one that does not lie behind them is ignored."""
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
        """Drops this snapshot, and all before it: they were reported."""
        self._snapshots = [each for each in self._snapshots if each.local > upto.local]
