"""A process writes and reads progress here, with one writer for each subject, wherever that is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add
from types import MappingProxyType
from typing import Final, NamedTuple

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.replication_state.progress import Progress
from pulsar_on_kafka.broker.replication_state.progress_heads import Subject
from pulsar_on_kafka.broker.replication_state.progress_log import ProgressLog, ProgressWriter
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import BEGINS, KNOWS, Origin
from pulsar_on_kafka_mapping.state.cursors.cursor_state import Deliveries
from pulsar_on_kafka_mapping.state.state_topics import SUBSCRIPTION_PROGRESS

STALE_S: Final = 5.0
"""The longest pause between the look and the request; after a longer one nothing is done: there may have been a
seek."""


class SyncRound(NamedTuple):
    """`subscriptions`: partitions of subscriptions that were looked at; `behind`: records that were not read yet."""

    subscriptions: int
    reported: int
    taken_over: int
    behind: int

    def plus(self, other: SyncRound) -> SyncRound:
        return SyncRound(*map(add, self, other))


NOTHING_DONE: Final = SyncRound(0, 0, 0, 0)


class Part(NamedTuple):
    """One partition of a replicated subscription."""

    subscription: Subscription
    partition: int

    def __str__(self) -> str:
        return f"{self.subscription.topic.name}/{self.subscription.name}[{self.partition}]"

    @property
    def life(self) -> tuple[int, int]:
        return self.subscription.topic.layout.incarnation, self.subscription.life(self.partition)

    def subject(self, cluster: str, about: str) -> Subject:
        return Subject(str(self.subscription.topic.name), self.partition, self.subscription.name, cluster, about)


class ProgressWords:
    """Progress records, for one thread. Memory: `ProgressWriter`'s, for each partition of a replicated subscription and
    other cluster."""

    def __init__(self, here: ProgressLog) -> None:
        self._here = here
        self._writers: dict[tuple[str, Subject], ProgressWriter] = {}
        """Writers by target ('' for this cluster) and subject."""

    def known(self, part: Part, cluster: str, deadline: Deadline) -> Progress:
        """The known progress of this cluster; empty for a subscription that was recreated since. Raises the errors of
        `ProgressLog.head`."""
        return self._own(part, KNOWS, cluster, deadline)

    def know(self, part: Part, cluster: str, progress: Progress, deadline: Deadline) -> None:
        """Records the progress of that cluster as known. Raises the errors of `ProgressWriter.write`."""
        self.report("", self._here, part, part.subject(cluster, KNOWS), progress, deadline)

    def followed(self, part: Part, local: str, deadline: Deadline) -> Progress:
        """Progress to ignore here because it lies below other sides' beginnings. Raises the errors of
        `ProgressLog.head`."""
        return self._own(part, BEGINS, local, deadline)

    def follow(self, part: Part, local: str, progress: Progress, deadline: Deadline) -> None:
        """Replaces the progress to ignore. Raises the errors of `ProgressWriter.write`."""
        self.report("", self._here, part, part.subject(local, BEGINS), progress, deadline)

    def leave(self, subject: Subject, life: tuple[int, int], deadline: Deadline) -> None:
        """Records this incarnation of a subscription elsewhere as left: its reports are ignored. Raises the errors of
        `ProgressWriter.write`."""
        ProgressWriter(self._here, subject).write(life, {}, {}, deadline)

    def report(
        self,
        to: str,
        log: ProgressLog,
        part: Part,
        reported: Subject,
        progress: Progress,
        deadline: Deadline,
        deliveries: Mapping[Origin, Deliveries] = MappingProxyType({}),
    ) -> None:
        """Reports to the cluster `to` ('': this one), whose state topic this is. An unchanged report is not written
        again. Raises the errors of `ProgressWriter.write`."""
        writer = self._writers.get((to, reported))
        if writer is None or writer.log is not log:
            writer = self._writers[to, reported] = ProgressWriter(log, reported)
        writer.write(part.life, progress, deliveries, deadline)

    def unsaid(self, to: str, reported: Subject) -> None:
        """The cluster `to` was made to forget it."""
        self._writers.pop((to, reported), None)

    def forget(self, state_partitions: Sequence[int]) -> None:
        """Forgets the writers of partitions that another process serves now."""
        lost = frozenset(state_partitions)
        self._writers = {
            each: writer
            for each, writer in self._writers.items()
            if SUBSCRIPTION_PROGRESS.partition_for(each[1].topic) not in lost
        }

    def _own(self, part: Part, about: str, cluster: str, deadline: Deadline) -> Progress:
        subject = part.subject(cluster, about)
        found = self._here.newest(subject, deadline)
        if found is None or found[1].life != part.life:
            return {}
        return self._here.all_of(subject, found[1], deadline)
