"""Tells other clusters what subscriptions have done with here, and takes over here what they say.

Of each partition of a replicated subscription, in rounds. *Take over*: what others newly say becomes acknowledgements
of the cursor here, by its owner or, where nobody consumes, by a save of our own; so a log that is consumed elsewhere is
not kept for ever. *Tell*: what the cursor has saved goes to the state topic of each cluster that messages go to.
Neither waits for messages to be copied, and what is put off or not acknowledged holds nothing else back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from layer import errors
from layer.deadline import Deadline
from layer.deliveries.acks_by_readers import acknowledge_ledgers
from layer.kafka.records import CommittedOffset
from layer.metadata.policies import REPLICATION_CLUSTERS
from layer.metadata.subscription import Subscription
from layer.node import Node
from layer.replication.acks import Acks
from layer.replication.deliveries_sync import DeliveriesSync
from layer.replication.origin_reading import OriginReading
from layer.replication.progress import Progress, Side, said, take_over, tell, without_acknowledged, without_message
from layer.replication.progress_heads import HeadAt, Subject
from layer.replication.progress_log import ProgressLog
from layer.replication.progress_words import ProgressWords, subject_of
from layer.replication.snapshot_sync import SnapshotSync
from layer.replication.sync_round import NOTHING_DONE, STALE_S, SyncRound
from mapping.state_records.metadata import ReplicatedBy
from mapping.state_records.subscription_progress import DELIVERED, KNOWS, SAYS, SNAPSHOTS, Origin
from mapping.state_topics import SUBSCRIPTION_PROGRESS
from mapping.topic_name import TopicName

_log: Final = logging.getLogger(__name__)

_TOLD_BY_ACKS: Final = frozenset({SAYS, DELIVERED})
_TOLD_BY_SNAPSHOTS: Final = frozenset({SNAPSHOTS})
_READ_S: Final = 10.0
_LOOK_ELSEWHERE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a partition looked like when nothing more was to be done."""

    commit: CommittedOffset | None
    index_end: int
    heads: tuple[tuple[Subject, HeadAt], ...]
    peers: tuple[str, ...]


class SubscriptionSync:
    """For one thread. Memory: `OriginIndex` of the topics concerned, one partition's acknowledgements at a time, and
    about 1 kB for each partition of a replicated subscription and other cluster."""

    def __init__(
        self,
        node: Node,
        origins: OriginReading,
        words: ProgressWords,
        peers: Callable[[str], ProgressLog | None],
        snapshots: SnapshotSync,
    ) -> None:
        """`peers`: another cluster's state topic by its name; None while it cannot be reached."""
        self._node = node
        self._origins = origins
        self._words = words
        self._peers = peers
        self._snapshots = snapshots
        self._deliveries = DeliveriesSync(node, words)
        self._seen: dict[tuple[str, int, str], _Seen] = {}
        self._look_elsewhere = Deadline.after(0)

    def round(self, state_partitions: Sequence[int], deadline: Deadline) -> SyncRound:
        """See to what lies in these partitions of `subscription_progress`.

        Raises:
            LayerError: nothing can be done now. What fails for one subscription is logged and keeps no other one.
        """
        node = self._node
        local = node.clusters.registry(deadline).local
        if not local or not state_partitions:
            return NOTHING_DONE
        owned = frozenset(state_partitions)
        subjects = self._subjects(self._node.progress, owned, deadline)
        heads = {s: at for s, at in subjects.items() if s.about in _TOLD_BY_ACKS and s.cluster != local}
        exchanged = {s: at for s, at in subjects.items() if s.about == SNAPSHOTS and s.cluster != local}
        self._create_missing(heads, exchanged, deadline)
        done = NOTHING_DONE
        topics: dict[str, object] = {}
        kept: dict[tuple[str, str], frozenset[str]] = {}
        by_snapshots: list[Subscription] = []
        said, asked = _names(heads), _names(exchanged)
        for topic_name, name in node.subscriptions.replicated(deadline):
            if SUBSCRIPTION_PROGRESS.partition_for(topic_name) not in owned:
                continue
            topic = node.topics.find(TopicName.parse(topic_name), deadline)
            found = node.subscriptions.find(topic, name, deadline) if topic is not None else None
            if topic is None or found is None or not topic.name.is_persistent:
                continue
            names, snapshots = (topic_name, name), found.replicated_by is ReplicatedBy.SNAPSHOTS
            kept[names] = _TOLD_BY_SNAPSHOTS if snapshots else _TOLD_BY_ACKS
            if snapshots or names in asked:
                by_snapshots.append(found)
            if snapshots and names not in said:
                continue
            topics[topic.kafka_topic_id] = topic
            try:
                done = done.plus(self._of_subscription(local, found, heads, deadline))
            except errors.Closed:
                raise
            except errors.LayerError as failure:
                deadline.check(f"progress of {name} of {topic_name}")
                _log.warning("subscription=%s/%s its progress is not synced now: %s", topic_name, name, failure)
        self._origins.forget(topics)
        done = done.plus(self._snapshots.round(local, by_snapshots, exchanged, deadline))
        self._forget_gone(local, owned, [s for s in subjects if s.about == KNOWS], kept, deadline)
        return done

    def forget(self, state_partitions: Sequence[int]) -> None:
        """Somebody else sees to these now."""
        lost = frozenset(state_partitions)
        self._words.forget(state_partitions)
        self._seen = {
            place: seen
            for place, seen in self._seen.items()
            if SUBSCRIPTION_PROGRESS.partition_for(place[0]) not in lost
        }

    # Inside -------------------------------------------------------------------------------------------------------

    @staticmethod
    def _subjects(log: ProgressLog, owned: frozenset[int], deadline: Deadline) -> dict[Subject, HeadAt]:
        found: dict[Subject, HeadAt] = {}
        for partition in sorted(owned):
            found.update(log.ask_partition(partition, lambda heads: dict(heads.subjects()), deadline))
        return found

    def _forget_gone(
        self,
        local: str,
        owned: frozenset[int],
        known: Sequence[Subject],
        kept: Mapping[tuple[str, str], frozenset[str]],
        deadline: Deadline,
    ) -> None:
        """Of subscriptions that are not there any more, or not replicated: what was known here at once, what was said
        elsewhere once a minute. `kept`: what others are told of those that are there."""
        for subject in known:
            if (subject.topic, subject.subscription) not in kept:
                self._node.progress.forget(subject, deadline)
        if not self._look_elsewhere.passed():
            return
        self._look_elsewhere = Deadline.after(_LOOK_ELSEWHERE_S)
        for cluster in self._node.clusters.registry(deadline).clusters:
            log = self._peers(cluster)
            for subject in () if log is None else self._subjects(log, owned, deadline):
                mine = subject.cluster == local and subject.about in _TOLD_BY_ACKS | _TOLD_BY_SNAPSHOTS
                still = kept.get((subject.topic, subject.subscription), frozenset())
                if log is not None and mine and subject.about not in still:
                    log.forget(subject, deadline)
                    self._words.unsaid(cluster, subject)
                    name = f"{subject.topic}/{subject.subscription}"
                    _log.info("subscription=%s cluster %s hears no more of it in this way", name, cluster)

    def _create_missing(self, heads: Iterable[Subject], exchanged: Iterable[Subject], deadline: Deadline) -> None:
        """A subscription that others speak of is made here, at the log's start, and is replicated in their way; what
        they have done with is taken over. Source: Pulsar's ReplicatedSubscriptionsController,
        receiveSubscriptionUpdated."""
        said = _names(heads)
        for topic_name, name in sorted(said | _names(exchanged)):
            topic = self._node.topics.find(TopicName.parse(topic_name), deadline)
            if topic is None:
                continue
            found = self._node.subscriptions.find(topic, name, deadline)
            if found is None:
                starts = self._node.admin.start_offsets(topic.kafka_topic, range(topic.partitions), deadline)
                try:
                    found = self._node.subscriptions.create(topic, name, starts, deadline)
                except errors.AlreadyExists:
                    continue
                _log.info("subscription=%s/%s made, because other clusters have it", topic_name, name)
            if not found.replicated:
                way = ReplicatedBy.ACKNOWLEDGEMENTS if (topic_name, name) in said else ReplicatedBy.SNAPSHOTS
                self._node.subscriptions.remember(found, {}, True, deadline, replicated_by=way)

    def _of_subscription(
        self, local: str, subscription: Subscription, heads: Mapping[Subject, HeadAt], deadline: Deadline
    ) -> SyncRound:
        topic = subscription.topic
        admin = self._node.admin
        policy = self._node.applied_to([topic.name], REPLICATION_CLUSTERS, deadline)[topic.name]
        by_acknowledgements = subscription.replicated_by is ReplicatedBy.ACKNOWLEDGEMENTS
        peers = tuple(sorted({*policy} - {local})) if by_acknowledgements else ()
        commits = admin.committed(subscription.whole_group, topic.kafka_topic, list(subscription.served), deadline)
        ends = admin.end_offsets(topic.kafka_topic, list(subscription.served), deadline)
        indexes = self._origins.read_on(topic, ends, Deadline.after(min(_READ_S, deadline.remaining_s())))
        told = taken = behind = 0
        for partition, index in indexes.items():
            behind += ends[partition] - index.end
            place = (str(topic.name), partition, subscription.name)
            others = sorted((s, at) for s, at in heads.items() if s[:3] == place)
            seen = _Seen(commits.get(partition), index.end, tuple(others), peers)
            if self._seen.get(place) == seen and not subscription.by_partition:
                continue
            looked = Deadline.after(STALE_S)
            one = replace(subscription, partition=None, partitions=(partition,))
            cursor = self._node.memberships.cursors.read(one, deadline)[partition].state
            side = Side(Origin(local, topic.layout.incarnation), cursor, index, ends[partition])
            says = [each for each in others if each[0].about == SAYS]
            taken += self._take_over(one, partition, side, says, looked, deadline)
            counted = [each for each in others if each[0].about == DELIVERED]
            laid_down = self._deliveries.take_over(one, partition, side, counted, deadline)
            newly, all_told = self._tell(one, partition, side, peers, deadline)
            told += newly
            if all_told and laid_down:
                self._seen[place] = seen
        return SyncRound(len(indexes), told, taken, behind)

    def _take_over(
        self,
        subscription: Subscription,
        partition: int,
        side: Side,
        says: Sequence[tuple[Subject, HeadAt]],
        looked: Deadline,
        deadline: Deadline,
    ) -> int:
        """How many entries, and batch entries in part, were acknowledged."""
        node, topic = self._node, subscription.topic
        news: dict[str, Progress] = {}
        left = Acks(topic.layout.entries_per_ledger)
        for subject, at in says:
            cluster = subject.cluster
            progress = node.progress.all_of(subject, node.progress.head(subject, at, deadline), deadline)
            known = self._words.known(subscription, partition, cluster, deadline)
            found = take_over(side, progress, known)
            if found:
                news[cluster] = known
                left.join(without_acknowledged(found, side.cursor))
        left.join(without_message(side))
        if left:
            if looked.passed():
                raise errors.DeadlineExceeded(f"it took too long to look at {subscription.name} of {topic.name}")
            change = node.memberships.live_cursors
            acknowledge_ledgers(change, node.admin, subscription, {partition: left.blocks()}, deadline)
        for cluster, known in news.items():
            self._words.know(subscription, partition, cluster, known, deadline)
        return len(left) + len(left.batches)

    def _tell(
        self, subscription: Subscription, partition: int, side: Side, peers: Sequence[str], deadline: Deadline
    ) -> tuple[int, bool]:
        """How many clusters were told something, and whether all could be reached."""
        progress = said(side)
        done, everybody = 0, True
        for cluster in peers:
            log = self._peers(cluster)
            if log is None:
                everybody = False
                continue
            known = self._words.known(subscription, partition, cluster, deadline)
            if tell(known, progress):
                self._words.know(subscription, partition, cluster, known, deadline)
            try:
                mine = subject_of(subscription, partition, side.origin.cluster, SAYS)
                self._words.say(cluster, log, subscription, mine, progress, deadline)
                self._deliveries.tell(cluster, log, subscription, partition, side, deadline)
                done += 1
            except errors.LayerError as failure:
                everybody = False
                _log.warning(
                    "subscription=%s/%s cannot tell cluster %s its progress: %s",
                    subscription.topic.name, subscription.name, cluster, failure,
                )  # fmt: skip
        return done, everybody


def _names(subjects: Iterable[Subject]) -> set[tuple[str, str]]:
    return {(subject.topic, subject.subscription) for subject in subjects}
