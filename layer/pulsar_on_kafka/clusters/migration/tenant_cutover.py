"""A tenant on the cluster that it leaves and on the one that it gets to: what is done of a migration with both.

Each call compares the two and does what is left, so that any of them may be made again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final, NamedTuple

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline, pause
from pulsar_on_kafka.base.worker import side_by_side
from pulsar_on_kafka.broker.metadata.policies import REPLICATION_CLUSTERS, with_policy
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.cross_cluster.subscription_reader import CursorsOf, LogRead, SideReading
from pulsar_on_kafka.broker.node.cross_cluster.subscription_transfer import bring_over, carry_over, compare_now
from pulsar_on_kafka.broker.replication_state.comparison import PartitionComparison
from pulsar_on_kafka.clusters.migration.acls import carry
from pulsar_on_kafka.clusters.migration.inventory import (
    inventory,
    lacking,
    not_persistent,
    subscriptions,
    sync_metadata,
)
from pulsar_on_kafka.clusters.migration.log_comparison import BothSides, Compared, MigrationReport, PartitionReport
from pulsar_on_kafka_mapping.names.subscription_group import replicator_subscription
from pulsar_on_kafka_mapping.names.topic_name import TopicName

_log: Final = logging.getLogger(__name__)
_CALL_S: Final = 60.0
_READ_S: Final = 3_600.0
_AHEAD_S: Final = 30.0
_LOOK_S: Final = 0.3
_LOOK_SOON_S: Final = 0.05
"""The same while programs wait."""
NEAR: Final = 100_000
"""Messages of a topic that may be left to be copied when programs have to stop: some seconds of copying."""
_CURSORS_AT_ONCE: Final = 4

Doing = Callable[[CursorsOf, CursorsOf, Deadline], list[PartitionComparison]]
"""A function of a subscription on the source, and the one of that name on the target."""


class _Pair(NamedTuple):
    """A topic on both clusters, and its subscriptions; None for one that is not on the other cluster."""

    topic: Topic
    other: Topic
    subscriptions: tuple[tuple[Subscription, Subscription | None], ...]


class _Read(NamedTuple):
    pair: _Pair
    here: LogRead
    there: LogRead


class NamedCluster(NamedTuple):
    cluster: str
    admin: AdminClient


class TenantSides:
    """Both sides of a tenant, for one thread; up to eight more send requests to the clusters in parallel.

    Memory: see `BothSides`, for all of the tenant's topics, and the cursors of four subscriptions on both sides.
    """

    def __init__(self, tenant: str, left: NamedCluster, reached: NamedCluster, patience_s: float) -> None:
        """`patience_s`: how long a wait for others (replicators that catch up, programs that leave) may take."""
        self._tenant = tenant
        self._from_cluster, self._left = left
        self._to_cluster, self._reached = reached
        self._patience_s = patience_s

    def reading(self) -> BothSides:
        """The reader of both logs; the caller closes it."""
        return BothSides(self._left.node, self._from_cluster, self._reached.node, self._to_cluster)

    # While programs go on -----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Copies the source's metadata to the target, and starts replicators from there. Raises the errors of
        `sync_metadata`."""
        sync_metadata(self._left, self._reached, self._tenant, Deadline.after(_READ_S))
        for left in carry(self._left, self._reached, self._tenant, Deadline.after(_READ_S)):
            _log.warning("tenant=%s %s", self._tenant, left)
        self.replicate()

    def replicate(self) -> None:
        """Starts replication of every topic of the tenant on the source."""
        to_cluster = self._to_cluster

        def with_cluster(now: Any) -> Any:
            clusters = list(now.get(REPLICATION_CLUSTERS.name) or ())
            return (
                now if to_cluster in clusters else with_policy(now, REPLICATION_CLUSTERS.name, [*clusters, to_cluster])
            )

        node = self._left.node
        for namespace in node.namespaces.list(self._tenant, _call()):
            node.namespaces.change_policies(namespace, with_cluster, _call())

    def catch_up(self) -> None:
        """Wait until the replicators have copied everything that was published before.

        Raises:
            DeadlineExceeded: not in time.
        """
        patience = Deadline.after(self._patience_s)
        for topic in self._topics(self._left):
            ends = self._left.node.admin.end_offsets(topic.kafka_topic, range(topic.partitions), _call())
            while (backlog := self._backlog(topic, ends)) != 0:
                self._check(patience, topic, backlog)
                pause(_LOOK_S)

    def carry_progress(self) -> None:
        """Carry the progress of each subscription that both sides have, as it is now."""
        with closing(SideReading(self._left.node)) as here, closing(SideReading(self._reached.node)) as there:
            for pair in self._pairs():
                deadline = Deadline.after(_READ_S)
                read = _Read(pair, here.log(pair.topic, deadline), there.log(pair.other, deadline))
                self._with_each([read], carry_over, deadline)

    def get_near(self, both: BothSides) -> None:
        """Do what can be done of a switch before programs have to stop: then they wait for what comes after it only.

        Raises:
            DeadlineExceeded: more than `NEAR` messages of a topic are left to be copied.
            Refused: as `begin`.
        """
        self.begin()
        patience = Deadline.after(self._patience_s)
        read: list[_Read] = []
        for pair in self._pairs():
            while True:
                found = both.read_on(pair.topic, pair.other, Deadline.after(_READ_S))
                behind = sum(compared.missing for compared in found.values())
                if behind <= NEAR or self._backlog(pair.topic) == 0:  # the switch reports the missing rest
                    break
                self._check(patience, pair.topic, behind)
                pause(_LOOK_S)
            read.append(_Read(pair, *both.logs(pair.topic, pair.other, _call())))
        try:
            self._with_each(read, carry_over, Deadline.after(_AHEAD_S))
        except errors.LayerError as failure:  # repeated when no program consumes
            _log.info("tenant=%s acknowledgements are not carried over yet: %s", self._tenant, failure)

    # While no program produces or consumes ---------------------------------------------------------------------------

    def wait_until_disconnected(self) -> None:
        """Waits until no program is connected. Raises Refused: programs stay on the source; names them."""
        patience = Deadline.after(self._patience_s)
        while found := self._programs():
            if patience.passed():
                raise errors.Refused(
                    f"programs stay on the cluster that tenant {self._tenant} leaves: {'; '.join(found[:10])}. They "
                    "follow the map of tenants only with pok+lookup:// or pok+map:// (docs/migration.md): end them, or "
                    "change their address"
                )
            pause(_LOOK_SOON_S)

    def bring_over(self, both: BothSides) -> MigrationReport:
        """The last metadata, messages, acknowledgements and deliveries; and both sides compared, as they are then.

        Raises:
            DeadlineExceeded: replication did not catch up in time.
        """
        missing = self._lacking()
        if missing:
            self.begin()
            missing = self._lacking()
        patience = Deadline.after(self._patience_s)
        pairs = self._pairs()
        self._wait_for_acknowledgements([mine for pair in pairs for mine, _ in pair.subscriptions], patience)
        found = [self._complete(pair, both, patience) for pair in pairs]
        return self._report(missing, pairs, found, both, bring_over)

    def _wait_for_acknowledgements(self, subscriptions: Sequence[Subscription], patience: Deadline) -> None:
        """Waits until no open transaction has acknowledged anything on the source: later commits would be lost. An
        orphaned transaction is aborted at its time-out, by this process if no other does.

        Raises:
            DeadlineExceeded: a transaction does not end.
        """
        node = self._left.node
        for each in subscriptions:
            while held := node.memberships.live_cursors.held_by_transactions(each, _call()):
                node.hold_up(held)
                names = ", ".join(map(str, sorted(held)[:10]))
                patience.check(f"transactions {names} to end, which acknowledged on {each.name} of {each.topic.name}")
                pause(_LOOK_SOON_S)

    def _complete(self, pair: _Pair, both: BothSides, patience: Deadline) -> dict[int, Compared]:
        """Wait until every copy is there; or, where some may have none (of transactions), until the replicator has
        nothing left. Raises DeadlineExceeded."""
        while True:
            found = both.read_on(pair.topic, pair.other, Deadline.after(_READ_S))
            if all(each.complete for each in found.values()):
                return found
            backlog = self._backlog(pair.topic)
            if backlog == 0:
                return both.read_on(pair.topic, pair.other, Deadline.after(_READ_S), settled=True)
            self._check(patience, pair.topic, backlog)
            pause(_LOOK_SOON_S)

    def compare(self, both: BothSides) -> MigrationReport:
        """Both clusters beside each other. Reads every message of both that was not read yet."""
        deadline = Deadline.after(_READ_S)
        missing = self._lacking()
        pairs = self._pairs()
        found = [both.read_on(pair.topic, pair.other, deadline, settled=True) for pair in pairs]
        return self._report(missing, pairs, found, both, compare_now)

    def _report(
        self,
        missing: Sequence[str],
        pairs: Sequence[_Pair],
        found: Sequence[dict[int, Compared]],
        both: BothSides,
        doing: Doing,
    ) -> MigrationReport:
        deadline = Deadline.after(_READ_S)
        read = [_Read(pair, *both.logs(pair.topic, pair.other, deadline)) for pair in pairs]
        reports: list[PartitionReport] = []
        for pair, compared, differ in zip(pairs, found, self._with_each(read, doing, deadline), strict=True):
            reports += _reports(pair, compared, differ)
        return MigrationReport(tuple(missing), tuple(reports), tuple(self._not_moved(deadline)))

    def _not_moved(self, deadline: Deadline) -> list[str]:
        left = not_persistent(self._left, self._tenant, deadline)
        for topic, other, _ in self._pairs():
            if topic.layout.incarnation == other.layout.incarnation:
                left.append(f"message ids of {topic.name}: both clusters have the same ones, so official clients must "
                            "not hold messages at the switch")  # fmt: skip
        return left + carry(self._left, self._reached, self._tenant, deadline, dry=True)

    def _with_each(self, read: Sequence[_Read], doing: Doing, deadline: Deadline) -> list[dict[int, list[str]]]:
        """Do this with each subscription that both sides have of the same partitions, of all these topics; gives for
        each topic by partition those of which it, or what one side lacks, leaves messages that are acknowledged on one
        side alone."""
        node, other = self._left.node, self._reached.node
        same = [
            (mine, partial(doing, CursorsOf(node, mine, here), CursorsOf(other, theirs, there), deadline))
            for pair, here, there in read
            for mine, theirs in pair.subscriptions
            if theirs is not None and theirs.served == mine.served
        ]
        found = side_by_side([call for _, call in same], _CURSORS_AT_ONCE)
        unequal = {
            (mine.topic.name, mine.name): [each.partition for each in compared if not each.equal]
            for (mine, _), compared in zip(same, found, strict=True)
        }
        differ: list[dict[int, list[str]]] = []
        for pair, _, _ in read:
            differ.append({})
            for mine, _ in pair.subscriptions:
                for partition in unequal.get((mine.topic.name, mine.name), [*mine.served]):
                    differ[-1].setdefault(partition, []).append(mine.name)
        return differ

    def _lacking(self) -> list[str]:
        deadline = Deadline.after(_READ_S)
        here, there = side_by_side(
            [partial(inventory, each, self._tenant, deadline) for each in (self._left, self._reached)]
        )
        return lacking(here, there)

    def _programs(self) -> list[str]:
        topics = self._topics(self._left)
        producers = side_by_side([partial(self._producers_of, topic) for topic in topics])
        named = side_by_side([partial(subscriptions, self._left.node, topic, _call()) for topic in topics])
        consumers = side_by_side([partial(self._consumers_of, each) for found in named for each in found])
        return [reported for reported in (*producers, *consumers) if reported]

    def _producers_of(self, topic: Topic) -> str:
        signs = self._left.node.producers.heartbeats.publishers(str(topic.name), _call())
        names = sorted(publisher.producer_name for sign in signs for publisher in sign.publishers)
        return f"producers {', '.join(names)} of {topic.name}" if names else ""

    def _consumers_of(self, subscription: Subscription) -> str:
        names = sorted(
            f"{member.client_id} {member.host}"
            for group in subscription.groups
            for member in self._left.node.admin.describe_group(group, _call()).members
        )
        return f"consumers {', '.join(names)} of {subscription.name} on {subscription.topic.name}" if names else ""

    def _backlog(self, topic: Topic, ends: Mapping[int, int] | None = None) -> int | None:
        """The number of records that are still to be copied, or those of them below `ends`; None while no replicator
        has begun."""
        name = replicator_subscription(self._to_cluster)
        if self._left.node.subscriptions.find(topic, name, _call()) is None:
            return None
        found = self._left.subscription_stats(str(topic.name), name)
        if ends is None or found.backlog == 0:
            return found.backlog
        return sum(max(0, ends.get(each.partition, 0) - each.mark_delete - 1) for each in found.partitions)

    def _check(self, patience: Deadline, topic: Topic, behind: int | None) -> None:
        if patience.passed():
            waits = "its replicator has not begun" if behind is None else f"{behind} entries are left"
            raise errors.DeadlineExceeded(
                f"{topic.name} is not copied to {self._to_cluster} after {self._patience_s:g} s, {waits}: does "
                f"`pok serve` run for cluster {self._from_cluster}?"
            )

    def _topics(self, here: AdminClient) -> list[Topic]:
        names = [
            TopicName.parse(record.name)
            for namespace in here.node.namespaces.list(self._tenant, _call())
            for record in here.node.topics.list(namespace, _call())
        ]
        found = side_by_side([partial(here.node.topics.find, name, _call()) for name in names if name.is_persistent])
        return [topic for topic in found if topic is not None]

    def _pairs(self) -> list[_Pair]:
        found = side_by_side([partial(self._pair, topic) for topic in self._topics(self._left)])
        return [pair for pair in found if pair is not None]

    def _pair(self, topic: Topic) -> _Pair | None:
        other = self._reached.node.topics.find(topic.name, _call())
        if other is None:
            return None
        theirs = {each.name: each for each in subscriptions(self._reached.node, other, _call())}
        mine = subscriptions(self._left.node, topic, _call())
        return _Pair(topic, other, tuple((each, theirs.get(each.name)) for each in mine))


def _reports(pair: _Pair, found: dict[int, Compared], differ: dict[int, list[str]]) -> list[PartitionReport]:
    name = str(pair.topic.name)
    return [PartitionReport(name, p, compared, tuple(differ.get(p, ()))) for p, compared in found.items()]


def _call() -> Deadline:
    return Deadline.after(_CALL_S)
