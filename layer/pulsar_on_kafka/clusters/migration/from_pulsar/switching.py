"""The switch of an imported tenant: Pulsar sends its programs to the gateway, behind their messages and
acknowledgements.

    closed          gateways let no producer and no consumer of the tenant in. Pulsar's namespaces are marked until the
                    topics are terminated; their producers leave
    messages        the mark is removed, so that the topics can be read: the last messages are copied
    consumers wait  producers are let in, and acknowledgements copied. The namespaces are marked again. Of each
                    subscription with a backlog the last acknowledgements are copied; then the backlog is cleared in
                    Pulsar, which only now sends the consumers here
    open            consumers are let in

A worker may be killed at any instant, and the next one continues. Only clearing destroys what is known: so the record
says CONSUMERS_WAIT before the first, and a later worker takes an empty backlog for a cleared one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.clusters.migration.from_pulsar.admin import (
    PulsarAdmin,
    PulsarPartition,
    PulsarTopic,
    TopicIsMigrated,
)
from pulsar_on_kafka.clusters.migration.from_pulsar.cluster_migration import ClusterMigration, MigrationTarget
from pulsar_on_kafka.clusters.migration.from_pulsar.entry_positions import Acknowledged, place_of
from pulsar_on_kafka.clusters.migration.from_pulsar.existing_copies import CopiesHere
from pulsar_on_kafka.clusters.migration.from_pulsar.worker import ImportWorker
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.clusters.tenant_records import ImportRecord, ImportSwitch

_log: Final = logging.getLogger(__name__)

_CALL_S: Final = 60.0
_EVERYTHING: Final = Acknowledged(1 << 63)


def is_drained(done: Acknowledged, there: PulsarPartition) -> bool:
    """Whether a cursor has passed the last entry, so that Pulsar sends the consumers away."""
    return there.last.entry_id < 0 or place_of(there.last) < done.end


@dataclass(frozen=True, slots=True)
class _Partition:
    """A partition in the switch. `left`: subscriptions that had a backlog at the first look. Memory: `CopiesHere`."""

    name: str
    number: int
    copies: CopiesHere
    subscriptions: list[Subscription]
    left: set[str] = field(default_factory=set)


class ImportSwitchWorker:
    """Sends a tenant's programs from Pulsar here, for one thread. Memory: `CopiesHere` of each partition."""

    def __init__(
        self,
        here: AdminClient,
        pulsar: PulsarAdmin,
        importer: ImportWorker,
        target: MigrationTarget,
        reported: Callable[[str], None],
    ) -> None:
        """`importer` has begun a run of its own."""
        self._node = here.node
        self._pulsar = pulsar
        self._migration = ClusterMigration(pulsar)
        self._importer = importer
        self._target = target
        self._report = reported

    @property
    def record(self) -> ImportRecord:
        return self._importer.record

    def run(self, deadline: Deadline) -> ImportRecord:
        """Import the tenant, and send its programs here. Does nothing if they are here. `deadline` is for the
        termination of Pulsar's topics.

        Raises:
            Refused, Corrupt, StoreError: as `ImportWorker.run`. If the tenant is closed by then, it stays so until the
                next run.
            Refused: Pulsar cannot send programs away, or a subscription here does not exist there.
            DeadlineExceeded: Pulsar has not terminated the topics in time.
        """
        if self.record.switch is ImportSwitch.OPEN:
            return self.record
        with self._importer.noting():
            self._migration.require_checks()
            if self.record.switch is ImportSwitch.NOT_BEGUN:
                self._importer.run()
                self._require_the_same_subscriptions()
                self._importer.advance_switch(ImportSwitch.CLOSED)
                self._report("closed: programs wait when Pulsar sends them here ...")
            while not self._move(deadline) >= self._names():
                self._report("programs have created topics in Pulsar meanwhile: once more ...")
            self._importer.advance_switch(ImportSwitch.OPEN)
            self._importer.finish()
            self._report("open: consumers are let in")
        return self.record

    def _require_the_same_subscriptions(self) -> None:
        """Later a subscription that Pulsar lacks had no backlog: Pulsar deletes those."""
        for topic in self._topics():
            lacking = sorted({each.name for each in self._durable(topic)} - set(topic.subscriptions))
            if lacking:
                raise errors.Refused(
                    f"subscription {lacking[0]} of {topic.name} is here, not in Pulsar: create it there, or delete it "
                    f"here (pok subscriptions delete {topic.name} -s {lacking[0]})"
                )

    def _move(self, deadline: Deadline) -> set[str]:
        """Returns the names of the topics and partitions that have moved."""
        self._unmark()
        topics = self._topics()
        for topic in topics:
            if topic.partitions:
                self._migration.create_missing_partitions(str(topic.name))
        names = [name for topic in topics for name in topic.partition_names()]
        self._terminate(names, deadline)
        for name in names:
            if self._migration.is_stuck(name):
                self._migration.unload(name)
        self._importer.bring_messages()
        partitions = [each for topic in topics for each in self._partitions(topic)]
        if self.record.switch is ImportSwitch.CLOSED:
            for partition in partitions:
                self._bring_progress(partition)
        self._importer.advance_switch(ImportSwitch.CONSUMERS_WAIT)
        self._report("producers are let in; backlogs ...")
        self._mark()
        for partition in partitions:
            self._bring_consumers(partition)
        return set(names)

    def _terminate(self, names: Sequence[str], deadline: Deadline) -> None:
        """Have Pulsar take no more messages, and the producers leave. Ends without a mark."""
        self._report(f"Pulsar terminates {counted(len(names), 'partition')} ...")
        while open_yet := [name for name in names if not self._migration.is_terminated_once_loaded(name, deadline)]:
            self._mark()
            if not wait_until(partial(self._are_terminated, open_yet), deadline):
                raise errors.DeadlineExceeded(
                    f"Pulsar has not terminated {open_yet[-1]}, which still has its producers: run this again. The "
                    "tenant is closed here until then"
                )
            self._unmark()

    def _are_terminated(self, names: list[str]) -> bool:
        """Removes the terminated ones, and those that have to be loaded first."""
        while names:
            try:
                if not self._migration.is_terminated(names[-1]):
                    return False
            except TopicIsMigrated:
                _log.info("%s is not loaded any more", names[-1])
            names.pop()
        return True

    def _mark(self) -> None:
        cluster = self._pulsar.cluster()
        for namespace in self._namespaces():
            self._migration.mark(namespace, cluster, self._target)

    def _unmark(self) -> None:
        for namespace in self._namespaces():
            self._migration.unmark(namespace)

    def _partitions(self, topic: PulsarTopic) -> Iterator[_Partition]:
        subscriptions = self._durable(topic)
        here = self._node.topics.open(topic.name, self._call())
        for number, name in enumerate(topic.partition_names()):
            yield _Partition(name, number, self._importer.copies(here, number), subscriptions)

    def _bring_progress(self, partition: _Partition) -> None:
        """A subscription that is no longer in Pulsar had no backlog."""
        there = self._there(partition)
        for each in partition.subscriptions:
            done = there.cursors.get(each.name, _EVERYTHING)
            self._importer.acknowledge(each, partition.number, partition.copies, done)
            if not is_drained(done, there):
                partition.left.add(each.name)

    def _bring_consumers(self, partition: _Partition) -> None:
        try:
            for each in partition.subscriptions:
                there = self._there(partition)
                done = there.cursors.get(each.name, _EVERYTHING)
                drained = is_drained(done, there)
                if not drained or each.name in partition.left:
                    self._importer.acknowledge(each, partition.number, partition.copies, done)
                if not drained:
                    self._clear(partition, each)
        except TopicIsMigrated:
            _log.info("%s is not loaded any more: no program can have it", partition.name)

    def _clear(self, partition: _Partition, subscription: Subscription) -> None:
        """Clear a backlog in Pulsar, and acknowledge here what was acknowledged there until then. Acknowledging takes
        long, so most was acknowledged before, and the positions are read again just before the clearing."""
        there = self._there(partition)
        done = there.cursors.get(subscription.name, _EVERYTHING)
        try:
            self._migration.clear_backlog(partition.name, subscription.name)
        except errors.ConnectFailed:
            # Its consumers have left, and Pulsar deletes it while it writes that it is cleared.
            there = self._there(partition)
            if not is_drained(there.cursors.get(subscription.name, _EVERYTHING), there):
                raise
        self._importer.acknowledge(subscription, partition.number, partition.copies, done)

    def _there(self, partition: _Partition) -> PulsarPartition:
        return self._pulsar.partition(partition.name, [each.name for each in partition.subscriptions])

    def _topics(self) -> list[PulsarTopic]:
        return [each for name in self._namespaces() for each in self._pulsar.topics(name)]

    def _names(self) -> set[str]:
        """The topics and partitions that Pulsar has now. Loads none."""
        found = set()
        for namespace in self._namespaces():
            for name, partitions in self._pulsar.topic_names(namespace).items():
                found |= set(PulsarTopic(TopicName.parse(name), partitions).partition_names())
        return found

    def _namespaces(self) -> list[str]:
        return list(self._pulsar.namespaces(self.record.tenant))

    def _durable(self, topic: PulsarTopic) -> list[Subscription]:
        return self._node.subscriptions.durable(self._node.topics.open(topic.name, self._call()), self._call())

    @staticmethod
    def _call() -> Deadline:
        return Deadline.after(_CALL_S)
