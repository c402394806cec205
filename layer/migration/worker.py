"""Whoever carries a migration on: it compares the two clusters, and does what is left of the step that is on record.

It may be killed at any instant: the next one (`pok migrate run`, `switch`, `rollback`, `clean`) goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from layer import errors
from layer.admin import AdminClient
from layer.deadline import Deadline
from layer.lookup.model import Move
from layer.metadata.policies import REPLICATION_CLUSTERS, with_policy, without_policy
from layer.metadata.subscription import Subscription
from layer.metadata.topics import Topic
from layer.migration.both_sides import BothSides
from layer.migration.inventory import inventory, lacking, subscriptions
from layer.migration.metadata import sync_metadata
from layer.migration.model import Event
from layer.migration.sides import Compared
from layer.replication.carrying import carry_deliveries, carry_over
from layer.replication.comparing import compare_sides
from layer.replication.side_reading import SideReading
from layer.waiting import pause
from mapping.replication import replicator_subscription
from mapping.state_records.migrations import MigrationRecord, MigrationStep
from mapping.topic_name import TopicName

_log: Final = logging.getLogger(__name__)
_CALL_S: Final = 60.0
_LOOK_S: Final = 0.3
_READ_S: Final = 3_600.0

Carry = Callable[[SideReading, Subscription, SideReading, Subscription, Deadline], None]
"""`carry_over`, `carry_deliveries`."""


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """`cursors_differ`: subscriptions whose acknowledgements are not the same on both sides."""

    topic: str
    partition: int
    compared: Compared
    cursors_differ: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What both clusters have of a tenant, beside each other."""

    lacking: tuple[str, ...]
    partitions: tuple[PartitionReport, ...]

    @property
    def good(self) -> bool:
        """The target has everything of the source, and the same."""
        return not self.lacking and all(each.compared.good and not each.cursors_differ for each in self.partitions)

    def problems(self) -> list[str]:
        """One sentence each."""
        found = list(self.lacking)
        for each in self.partitions:
            if not each.compared.good:
                found.append(
                    f"{each.topic} partition {each.partition}: {each.compared.missing} messages are missing, "
                    f"{each.compared.changed} differ, the first at offset {each.compared.first}"
                )
            if each.cursors_differ:
                names = ", ".join(each.cursors_differ)
                found.append(f"{each.topic} partition {each.partition}: acknowledgements of {names} differ")
        return found


class MigrationWorker:
    """For one thread. Memory: that of `BothSides`, of all of the tenant's topics."""

    def __init__(
        self, home: AdminClient, source: AdminClient, target: AdminClient, record: MigrationRecord, patience_s: float
    ) -> None:
        """`home` has the map of tenants and the migrations. `patience_s`: how long a wait for others (replicators that
        catch up, programs that leave a cluster) may take."""
        self._home = home.node
        self.source = source
        self.target = target
        self.record = record
        self._patience_s = patience_s

    # Steps --------------------------------------------------------------------------------------------------------

    def run(self, told: Callable[[MigrationRecord], None]) -> MigrationRecord:
        """Go on until the switch may be made. `told` hears of each step.

        Raises:
            Refused: it is further already; or something has to be put right first.
            DeadlineExceeded: replication did not catch up in time.
        """
        steps: dict[MigrationStep, tuple[Callable[[], None], Event]] = {
            MigrationStep.METADATA: (self._begin_replication, Event.METADATA_SYNCED),
            MigrationStep.REPLICATING: (lambda: self._catch_up(self.source, self.target), Event.CAUGHT_UP),
            MigrationStep.PROGRESS: (self._carry_progress, Event.PROGRESS_SYNCED),
        }
        while self.record.step in steps:
            told(self.record)
            work, event = steps[self.record.step]
            self._work(work, event)
        return self.record

    def switch(self) -> MigrationRecord:
        """Send the tenant's programs to the target: nobody is on the source any more, the last messages are copied, the
        last progress is synced, both sides are equal, and only then the target counts.

        What fails before that leaves the tenant on the source, where its programs go on.

        Raises:
            Refused: programs stay on the source, or both sides are not equal; names them.
            DeadlineExceeded: replication did not catch up in time.
        """
        self._advance(Event.SWITCH)
        try:
            self._move_over(self.source, self.record.source, self.target, self.record.target)
        except Exception as failure:
            self._home.tenants.move(self.record.tenant, Move.ABANDON_SWITCH, self._call(), self.record.source)
            self._advance(Event.SWITCH_ABANDONED)
            self._note(failure)
            raise
        self._advance(Event.SWITCH_DONE)
        return self.record

    def roll_back(self) -> MigrationRecord:
        """Have the tenant on the source as before; what was sent and acknowledged on the target since goes there first.
        Messages stay on the target. Raises as `switch`."""
        self._advance(Event.ROLL_BACK)
        if self.record.step is MigrationStep.RETURNING:
            try:
                self._move_over(self.target, self.record.target, self.source, self.record.source)
            except Exception as failure:
                self._home.tenants.move(self.record.tenant, Move.ABANDON_SWITCH, self._call(), self.record.target)
                self._advance(Event.SWITCH_ABANDONED)
                self._note(failure)
                raise
            self._advance(Event.RETURNED)
        place = self._home.tenants.record(self.record.tenant, self._call())
        if place is not None and place.target:
            self._home.tenants.move(self.record.tenant, Move.ABANDON_SWITCH, self._call(), self.record.source)
        self._work(self._end_replication, Event.ROLLED_BACK)
        return self.record

    def clean(self) -> MigrationRecord:
        """Delete what the tenant has on the source: there is no way back after that."""
        self._advance(Event.CLEAN)

        def clean() -> None:
            self._end_replication()
            for name in self._namespaces(self.source):
                for record in self.source.node.topics.list(name, self._call()):
                    topic = self.source.node.topics.find(TopicName.parse(record.name), self._call())
                    if topic is not None:
                        found = self.source.node.subscriptions.list(topic, self._call())
                        self.source.node.memberships.delete_topic(topic, found, self._call())
                if name != "public/default":
                    self.source.node.namespaces.delete(name, self._call())

        self._work(clean, Event.CLEANED)
        return self.record

    # What they are made of ----------------------------------------------------------------------------------------

    def _work(self, work: Callable[[], None], event: Event) -> None:
        try:
            work()
        except errors.LayerError as failure:
            self._note(failure)
            raise
        self._advance(event)

    def _move_over(self, left: AdminClient, from_cluster: str, reached: AdminClient, to_cluster: str) -> None:
        tenants, tenant = self._home.tenants, self.record.tenant
        if tenants.record(tenant, self._call()) is None:  # only `*` has spoken of it
            tenants.move(tenant, Move.ASSIGN, self._call(), from_cluster)
        if not self._is_at(to_cluster):
            with closing(self._reading(left, reached)) as both:
                for topic, other in self._both(left, reached):  # programs wait for what comes after it only
                    both.read_on(topic, other, Deadline.after(_READ_S))
                tenants.move(tenant, Move.BEGIN_SWITCH, self._call(), to_cluster)
                self._wait_for_nobody(left)
                sync_metadata(left, reached, tenant, Deadline.after(_READ_S))
                self._replicate(left, to_cluster)
                self._catch_up(left, reached)
                for carry in (carry_over, carry_deliveries):  # nobody consumes on either side
                    self._carry(left, reached, both, carry)
                report = self._compare(left, reached, both)
            if not report.good:
                raise errors.Refused("; ".join(report.problems()))
            tenants.move(tenant, Move.FINISH_SWITCH, self._call(), to_cluster)

    def _is_at(self, cluster: str) -> bool:
        place = self._home.tenants.record(self.record.tenant, self._call())
        return place is not None and place.cluster == cluster and not place.target

    def _begin_replication(self) -> None:
        sync_metadata(self.source, self.target, self.record.tenant, Deadline.after(_READ_S))
        self._replicate(self.source, self.record.target)
        self._replicate(self.target, self.record.source)

    def _replicate(self, here: AdminClient, to_cluster: str) -> None:
        """Have the replicators of `here` copy every topic of the tenant."""

        def with_cluster(now: Any) -> Any:
            clusters = list(now.get(REPLICATION_CLUSTERS.name) or ())
            return (
                now if to_cluster in clusters else with_policy(now, REPLICATION_CLUSTERS.name, [*clusters, to_cluster])
            )

        for namespace in self._namespaces(here):
            here.node.namespaces.change_policies(namespace, with_cluster, self._call())

    def _end_replication(self) -> None:
        for here, other in ((self.source, self.record.target), (self.target, self.record.source)):

            def without(now: Any, other: str = other) -> Any:
                left = [each for each in now.get(REPLICATION_CLUSTERS.name) or () if each != other]
                if not left:
                    return without_policy(now, REPLICATION_CLUSTERS.name)
                return with_policy(now, REPLICATION_CLUSTERS.name, left)

            for namespace in self._namespaces(here):
                here.node.namespaces.change_policies(namespace, without, self._call())

    def _wait_for_nobody(self, left: AdminClient) -> None:
        """Raises Refused: programs stay, whose names are said."""
        deadline = Deadline.after(self._patience_s)
        while found := self._programs(left):
            if not deadline.passed():
                pause(_LOOK_S)
                continue
            raise errors.Refused(
                f"programs stay on the cluster that tenant {self.record.tenant} leaves: {'; '.join(found[:10])}. They "
                "follow the map of tenants only with pok+lookup:// or pok+map:// (docs/migration.md): end them, or "
                "change their address"
            )

    def _programs(self, here: AdminClient) -> list[str]:
        found = []
        for topic in self._topics(here):
            signs = here.node.producers.publishers(str(topic.name), self._call())
            names = sorted(publisher.producer_name for sign in signs for publisher in sign.publishers)
            if names:
                found.append(f"producers {', '.join(names)} of {topic.name}")
            for subscription in subscriptions(here.node, topic, self._call()):
                consumers = sorted(
                    f"{member.client_id} {member.host}"
                    for group in subscription.groups
                    for member in here.node.admin.describe_group(group, self._call()).members
                )
                if consumers:
                    found.append(f"consumers {', '.join(consumers)} of {subscription.name} on {topic.name}")
        return found

    def _catch_up(self, left: AdminClient, reached: AdminClient) -> None:
        """Wait until the replicators have nothing left to copy."""
        deadline, cluster = Deadline.after(self._patience_s), self._cluster(reached)
        for topic in list(self._topics(left)):
            while (backlog := self._backlog(left, topic, cluster)) != 0:
                if deadline.passed():
                    waits = "its replicator has not begun" if backlog is None else f"{backlog} entries are left"
                    raise errors.DeadlineExceeded(
                        f"{topic.name} is not copied to {cluster} after {self._patience_s:g} s, {waits}: does "
                        f"`pok serve` run for cluster {self._cluster(left)}?"
                    )
                pause(_LOOK_S)

    def _backlog(self, here: AdminClient, topic: Topic, cluster: str) -> int | None:
        """What is left to be copied; None while no replicator has begun."""
        name = replicator_subscription(cluster)
        if here.node.subscriptions.find(topic, name, self._call()) is None:
            return None
        return here.subscription_stats(str(topic.name), name).backlog

    def _carry_progress(self) -> None:
        with closing(SideReading(self.source.node)) as here, closing(SideReading(self.target.node)) as there:
            self._carry_each(self.source, here, self.target, there, carry_over)

    def _carry(self, left: AdminClient, reached: AdminClient, both: BothSides, carry: Carry) -> None:
        for topic, other in self._both(left, reached):
            both.read_on(topic, other, Deadline.after(_READ_S))
        self._carry_each(left, both.here, reached, both.there, carry)

    def _carry_each(
        self, left: AdminClient, here: SideReading, reached: AdminClient, there: SideReading, carry: Carry
    ) -> None:
        """Of each subscription that both sides have."""
        for topic, other in self._both(left, reached):
            for mine in subscriptions(left.node, topic, self._call()):
                theirs = reached.node.subscriptions.find(other, mine.name, self._call())
                if theirs is not None:
                    carry(here, mine, there, theirs, Deadline.after(_READ_S))

    # Looking ------------------------------------------------------------------------------------------------------

    def compare(self) -> Report:
        """Both clusters beside each other, in the direction of the migration. Reads every message of both."""
        with closing(self._reading(self.source, self.target)) as both:
            return self._compare(self.source, self.target, both)

    def _reading(self, left: AdminClient, reached: AdminClient) -> BothSides:
        return BothSides(left.node, self._cluster(left), reached.node, self._cluster(reached))

    def _compare(self, left: AdminClient, reached: AdminClient, both: BothSides) -> Report:
        deadline = Deadline.after(_READ_S)
        tenant = self.record.tenant
        missing = lacking(inventory(left, tenant, deadline), inventory(reached, tenant, deadline))
        reports = []
        for topic, other in self._both(left, reached):
            found = both.read_on(topic, other, deadline)
            differ = self._differing(both.here, topic, both.there, other)
            for partition, compared in found.items():
                names = tuple(differ.get(partition, ()))
                reports.append(PartitionReport(str(topic.name), partition, compared, names))
        return Report(tuple(missing), tuple(reports))

    def _differing(self, here: SideReading, topic: Topic, there: SideReading, other: Topic) -> dict[int, list[str]]:
        """By partition the subscriptions of which a message is acknowledged on one side alone."""
        differ: dict[int, list[str]] = {}
        for mine in subscriptions(here.node, topic, self._call()):
            theirs = there.node.subscriptions.find(other, mine.name, self._call())
            if theirs is None or theirs.served != mine.served:
                unequal = [*mine.served]
            else:
                found = compare_sides(here, mine, there, theirs, Deadline.after(_READ_S))
                unequal = [each.partition for each in found if not each.equal]
            for partition in unequal:
                differ.setdefault(partition, []).append(mine.name)
        return differ

    # Little things ------------------------------------------------------------------------------------------------

    def _cluster(self, side: AdminClient) -> str:
        return self.record.source if side is self.source else self.record.target

    def _namespaces(self, here: AdminClient) -> list[str]:
        return here.node.namespaces.list(self.record.tenant, self._call())

    def _topics(self, here: AdminClient) -> Iterator[Topic]:
        for namespace in self._namespaces(here):
            for record in here.node.topics.list(namespace, self._call()):
                name = TopicName.parse(record.name)
                topic = here.node.topics.find(name, self._call()) if name.is_persistent else None
                if topic is not None:
                    yield topic

    def _both(self, left: AdminClient, reached: AdminClient) -> Iterator[tuple[Topic, Topic]]:
        for topic in self._topics(left):
            other = reached.node.topics.find(topic.name, self._call())
            if other is not None:
                yield topic, other

    def _advance(self, event: Event) -> None:
        self.record = self._home.migrations.advance(self.record, event, self._call())

    def _note(self, failure: Exception) -> None:
        try:
            self._home.migrations.note(self.record, str(failure), self._call())
        except errors.LayerError as unnoted:
            _log.warning("tenant=%s its problem is not on record: %s", self.record.tenant, unnoted)

    @staticmethod
    def _call() -> Deadline:
        return Deadline.after(_CALL_S)
