"""The worker of a migration: it compares the two clusters, and does the rest of the recorded step.

It may be killed at any instant: the next one (`pok migrate run`, `switch`, `rollback`, `clean`) continues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.migration_progress import Event
from pulsar_on_kafka.broker.metadata.policies import REPLICATION_CLUSTERS, with_policy, without_policies
from pulsar_on_kafka.broker.metadata.tenants import TenantMove
from pulsar_on_kafka.clusters.migration.log_comparison import MigrationReport
from pulsar_on_kafka.clusters.migration.tenant_cutover import NamedCluster, TenantSides
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.clusters.tenant_records import MigrationRecord, MigrationStep

_log: Final = logging.getLogger(__name__)
_CALL_S: Final = 60.0


class MigrationWorker:
    """The migration worker, for one thread. Memory: see `TenantSides`."""

    def __init__(
        self,
        home: AdminClient,
        source: AdminClient,
        target: AdminClient,
        record: MigrationRecord,
        patience_s: float,
        news: Callable[[str], None] = _log.info,
    ) -> None:
        """`home` has the map of tenants and the migrations. `patience_s`: the time-out of a wait for others
        (replicators that catch up, programs that leave a cluster). `news`: receives how long programs wait at a
        switch."""
        self._home = home.node
        self._news = news
        self.source = source
        self.target = target
        self.record = record
        self._patience_s = patience_s

    def run(self, reported: Callable[[MigrationRecord], None]) -> MigrationRecord:
        """Continues until the switch may be made. `reported` receives each step.

        Raises:
            Refused: the migration has advanced further already; or a problem must be corrected first.
            DeadlineExceeded: replication did not catch up in time.
        """
        steps: dict[MigrationStep, tuple[Callable[[], None], Event]] = {
            MigrationStep.METADATA: (self._begin_replication, Event.METADATA_SYNCED),
            MigrationStep.REPLICATING: (self._there().catch_up, Event.CAUGHT_UP),
            MigrationStep.PROGRESS: (self._there().carry_progress, Event.PROGRESS_SYNCED),
        }
        while self.record.step in steps:
            reported(self.record)
            work, event = steps[self.record.step]
            self._work(work, event)
        return self.record

    def switch(self) -> MigrationRecord:
        """Sends the tenant's programs to the target. First all programs leave the source, the last messages are copied,
        the last progress is synced, and both sides are equal; only then the target counts.

        A failure before that leaves the tenant on the source, where its programs continue.

        Raises:
            Refused: programs stay on the source, or both sides are not equal; names them.
            DeadlineExceeded: replication did not catch up in time.
        """
        self._advance(Event.SWITCH)
        self._move_or_stay(self._there(), self.record.source, self.record.target)
        self._advance(Event.SWITCH_DONE)
        return self.record

    def roll_back(self) -> MigrationRecord:
        """Returns the tenant to the source; messages sent and acknowledged on the target since are transferred first.
        Messages stay on the target. Raises the errors of `switch`."""
        self._advance(Event.ROLL_BACK)
        if self.record.step is MigrationStep.RETURNING:
            self._move_or_stay(self._back(), self.record.target, self.record.source)
            self._advance(Event.RETURNED)
        place = self._home.tenants.record(self.record.tenant, self._call())
        if place is not None and place.target:
            self._home.tenants.move(self.record.tenant, TenantMove.ABANDON_SWITCH, self._call(), self.record.source)
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

    def _work(self, work: Callable[[], None], event: Event) -> None:
        try:
            work()
        except errors.LayerError as failure:
            self._note(failure)
            raise
        self._advance(event)

    def _there(self) -> TenantSides:
        source, target = NamedCluster(self.record.source, self.source), NamedCluster(self.record.target, self.target)
        return TenantSides(self.record.tenant, source, target, self._patience_s)

    def _back(self) -> TenantSides:
        source, target = NamedCluster(self.record.source, self.source), NamedCluster(self.record.target, self.target)
        return TenantSides(self.record.tenant, target, source, self._patience_s)

    def _move_or_stay(self, sides: TenantSides, from_cluster: str, to_cluster: str) -> None:
        try:
            self._move_over(sides, from_cluster, to_cluster)
        except Exception as failure:  # after any failure the tenant continues where it was
            self._home.tenants.move(self.record.tenant, TenantMove.ABANDON_SWITCH, self._call(), from_cluster)
            self._advance(Event.SWITCH_ABANDONED)
            self._note(failure)
            raise

    def _move_over(self, sides: TenantSides, from_cluster: str, to_cluster: str) -> None:
        tenants, tenant = self._home.tenants, self.record.tenant
        if tenants.record(tenant, self._call()) is None:  # only `*` has spoken of it
            tenants.move(tenant, TenantMove.ASSIGN, self._call(), from_cluster)
        if not self._is_at(to_cluster):
            with closing(sides.reading()) as both:
                sides.get_near(both)
                tenants.move(tenant, TenantMove.BEGIN_SWITCH, self._call(), to_cluster)
                began_s = self._home.clock.monotonic()
                self._news(f"programs of {tenant} stop on {from_cluster} ...")

                def announce(what: str) -> None:
                    self._news(f"{what} after {self._home.clock.monotonic() - began_s:.2f} s")

                sides.wait_until_disconnected()
                announce(f"no program is on {from_cluster}")
                report = sides.bring_over(both)
                announce(f"everything is on {to_cluster}, and compared,")
                if not report.good:
                    raise errors.Refused("; ".join(report.problems()))
                tenants.move(tenant, TenantMove.FINISH_SWITCH, self._call(), to_cluster)
                announce(f"programs go on, on {to_cluster},")

    def _is_at(self, cluster: str) -> bool:
        place = self._home.tenants.record(self.record.tenant, self._call())
        return place is not None and place.cluster == cluster and not place.target

    def _begin_replication(self) -> None:
        self._there().begin()
        self._back().replicate()

    def _end_replication(self) -> None:
        for here, other in ((self.source, self.record.target), (self.target, self.record.source)):

            def without(now: Any, other: str = other) -> Any:
                left = [each for each in now.get(REPLICATION_CLUSTERS.name) or () if each != other]
                if not left:
                    return without_policies(now, REPLICATION_CLUSTERS.name)
                return with_policy(now, REPLICATION_CLUSTERS.name, left)

            for namespace in self._namespaces(here):
                here.node.namespaces.change_policies(namespace, without, self._call())

    def compare(self) -> MigrationReport:
        """Both clusters beside each other, in the direction of the migration. Reads every message of both."""
        sides = self._there()
        with closing(sides.reading()) as both:
            return sides.compare(both)

    def _namespaces(self, here: AdminClient) -> list[str]:
        return here.node.namespaces.list(self.record.tenant, self._call())

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
