"""A process writes and reads progress here, with one writer for each subject, wherever that is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.mapping.state.clusters.subscription_progress import BEGINS, KNOWS, Origin
from pulsar_on_kafka.mapping.state.cursors.delivery_counts import Deliveries
from pulsar_on_kafka.mapping.state.state_topics import SUBSCRIPTION_PROGRESS
from pulsar_on_kafka.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.replicated.progress import Progress
from pulsar_on_kafka.replicated.progress_heads import Subject
from pulsar_on_kafka.replicated.progress_log import ProgressLog, ProgressWriter


class ProgressWords:
    """For one thread. Memory: `ProgressWriter`'s, for each partition of a replicated subscription and other cluster."""

    def __init__(self, here: ProgressLog) -> None:
        self._here = here
        self._writers: dict[tuple[str, Subject], ProgressWriter] = {}
        """By where they write ('' here), and what."""

    def known(self, subscription: Subscription, partition: int, cluster: str, deadline: Deadline) -> Progress:
        """What is no news from this cluster; nothing for a subscription that was made anew since. Raises as
        `ProgressLog.head`."""
        return self._own(subscription, subject_of(subscription, partition, cluster, KNOWS), deadline)

    def followed(self, subscription: Subscription, partition: int, local: str, deadline: Deadline) -> Progress:
        """What is not wanted here because it lies below other sides' beginnings. Raises as `ProgressLog.head`."""
        return self._own(subscription, subject_of(subscription, partition, local, BEGINS), deadline)

    def follow(
        self, subscription: Subscription, partition: int, local: str, progress: Progress, deadline: Deadline
    ) -> None:
        """All that is not wanted from now on. Raises as `ProgressWriter.write`."""
        self._write(
            "", self._here, subscription, subject_of(subscription, partition, local, BEGINS), progress, deadline
        )

    def leave(self, subject: Subject, life: tuple[int, int], deadline: Deadline) -> None:
        """This life of a subscription elsewhere is not heard from now on. Raises as `ProgressWriter.write`."""
        ProgressWriter(self._here, subject).write(life, {}, {}, deadline)

    def know(
        self, subscription: Subscription, partition: int, cluster: str, progress: Progress, deadline: Deadline
    ) -> None:
        """From now on this is no news from that cluster. Raises as `ProgressWriter.write`."""
        self._write(
            "", self._here, subscription, subject_of(subscription, partition, cluster, KNOWS), progress, deadline
        )

    def say(
        self,
        to: str,
        log: ProgressLog,
        subscription: Subscription,
        said: Subject,
        progress: Progress,
        deadline: Deadline,
        deliveries: Mapping[Origin, Deliveries] = MappingProxyType({}),
    ) -> None:
        """Tell the cluster `to`, whose state topic this is. What says the same as the last time is not written again.
        Raises as `ProgressWriter.write`."""
        self._write(to, log, subscription, said, progress, deadline, deliveries)

    def unsaid(self, to: str, said: Subject) -> None:
        """The cluster `to` was made to forget it."""
        self._writers.pop((to, said), None)

    def forget(self, state_partitions: Sequence[int]) -> None:
        """Somebody else sees to these now."""
        lost = frozenset(state_partitions)
        self._writers = {
            each: writer
            for each, writer in self._writers.items()
            if SUBSCRIPTION_PROGRESS.partition_for(each[1].topic) not in lost
        }

    def _own(self, subscription: Subscription, subject: Subject, deadline: Deadline) -> Progress:
        found = self._here.newest(subject, deadline)
        if found is None or found[1].life != life_of(subscription, subject.partition):
            return {}
        return self._here.all_of(subject, found[1], deadline)

    def _write(
        self,
        where: str,
        log: ProgressLog,
        subscription: Subscription,
        subject: Subject,
        progress: Progress,
        deadline: Deadline,
        deliveries: Mapping[Origin, Deliveries] = MappingProxyType({}),
    ) -> None:
        writer = self._writers.get((where, subject))
        if writer is None or writer.log is not log:
            writer = self._writers[where, subject] = ProgressWriter(log, subject)
        writer.write(life_of(subscription, subject.partition), progress, deliveries, deadline)


def subject_of(subscription: Subscription, partition: int, cluster: str, about: str) -> Subject:
    return Subject(str(subscription.topic.name), partition, subscription.name, cluster, about)


def life_of(subscription: Subscription, partition: int) -> tuple[int, int]:
    """The incarnations of topic and subscription."""
    return subscription.topic.layout.incarnation, subscription.life(partition)
