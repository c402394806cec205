"""Reports the progress of subscriptions here to other clusters, and applies their reports here.

Each round has two steps for each partition of a replicated subscription. *Apply*: new reports become acknowledgements
of the cursor here, by its owner or, without consumers, by a save of this process; so a log that is consumed elsewhere
is not retained for ever. *Report*: the saved state of the cursor goes to the state topic of each target cluster.
Neither waits for messages to be copied, and delayed or unacknowledged messages do not block others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.policies import REPLICATION_CLUSTERS
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.node.cross_cluster.origin_reader import OriginReading
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.replication_state.acks import ReplicatedAcks
from pulsar_on_kafka.broker.replication_state.delivery_count_transfer import (
    merge_deliveries,
    reported_deliveries,
    with_news,
)
from pulsar_on_kafka.broker.replication_state.progress import (
    Progress,
    SubscriptionSide,
    add_report,
    begun,
    begun_everywhere,
    reported_progress,
    take_over,
    without_acknowledged,
    without_message,
)
from pulsar_on_kafka.broker.replication_state.progress_heads import HeadAt, Subject
from pulsar_on_kafka.broker.replication_state.progress_log import ProgressLog
from pulsar_on_kafka.broker.subscriptions.requests.cursor_admin import acknowledge_ledgers
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.service.replication.subscriptions.mirrored_subscriptions import MadeForOthers
from pulsar_on_kafka.service.replication.subscriptions.progress_records import (
    NOTHING_DONE,
    STALE_S,
    Part,
    ProgressWords,
    SyncRound,
)
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import (
    BEGINS,
    DELIVERED,
    KNOWS,
    SAYS,
    SNAPSHOTS,
    Origin,
)
from pulsar_on_kafka_mapping.state.state_topics import SUBSCRIPTION_PROGRESS

_log: Final = logging.getLogger(__name__)


class DeliveriesSync:
    """Syncs delivery state, in one thread. Memory: the reported state of one partition
    (`delivery_count_transfer.MAX_MESSAGES`)."""

    def __init__(self, node: Node, words: ProgressWords) -> None:
        self._node = node
        self._words = words

    def take_over(
        self, part: Part, side: SubscriptionSide, heads: Sequence[tuple[Subject, HeadAt]], deadline: Deadline
    ) -> bool:
        """Stores the reports of others for the next consumer here. False: a consumer is connected and counts deliveries
        itself; so the reports wait for its end.

        Raises:
            LayerError: the reports cannot be read or stored now.
        """
        found = [self._node.progress.head(subject, at, deadline).deliveries for subject, at in heads]
        if not any(found):
            return True
        memberships, (subscription, partition) = self._node.memberships, part
        now = replace(side, cursor=memberships.cursors.read(subscription, deadline)[partition].state)
        all_of_them = now.cursor.deliveries
        for each in found:
            news = merge_deliveries(now, each)
            if news is not None:
                all_of_them = with_news(all_of_them, news)
        if all_of_them is None or all_of_them == now.cursor.deliveries:
            return True
        try:
            memberships.live_cursors.lay_down_deliveries(subscription, {partition: all_of_them}, deadline)
        except errors.SubscriptionBusy:
            _log.debug("subscription=%s is consumed, others' deliveries wait", part)
            return False
        return True

    def report(self, cluster: str, log: ProgressLog, part: Part, side: SubscriptionSide, deadline: Deadline) -> None:
        """Reports the delivery state to a cluster; writes nothing where none exists and none was ever reported.

        Raises:
            LayerError: that cluster cannot be reached now.
        """
        mine = part.subject(side.origin.cluster, DELIVERED)
        found = reported_deliveries(side)
        if found or log.heads.query(mine.topic, lambda heads: heads.newest(mine), deadline) is not None:
            self._words.report(cluster, log, part, mine, {}, deadline, found)


_REPORTED: Final = frozenset({SAYS, DELIVERED, BEGINS})
_READ_S: Final = 10.0
_LOOK_ELSEWHERE_S: Final = 60.0


class _Word(NamedTuple):
    """Another side's word: what its cursor has passed, and what of that lies below its beginning."""

    report: Progress
    begins: Progress


@dataclass(frozen=True, slots=True)
class _Seen:
    """The state of a partition in which nothing more was to be done."""

    incarnation: int
    """The subscription's: one that is made again may have the commit and the heads of the one before."""
    commit: CommittedOffset | None
    index_end: int
    heads: tuple[tuple[Subject, HeadAt], ...]
    peers: tuple[str, ...]


class SubscriptionSync:
    """Syncs subscriptions, in one thread. Memory: `OriginIndex` of the topics concerned, one partition's
    acknowledgements at a time, and about 1 kB for each partition of a replicated subscription and other cluster."""

    def __init__(
        self,
        node: Node,
        origins: OriginReading,
        words: ProgressWords,
        peers: Callable[[str], ProgressLog | None],
    ) -> None:
        """`peers`: another cluster's state topic by its name; None while it cannot be reached."""
        self._node = node
        self._origins = origins
        self._words = words
        self._peers = peers
        self._deliveries = DeliveriesSync(node, words)
        self._made = MadeForOthers(node, words)
        self._seen: dict[tuple[str, int, str], _Seen] = {}
        self._look_elsewhere = Deadline.after(0)

    def round(self, state_partitions: Sequence[int], deadline: Deadline) -> SyncRound:
        """Sync the replicated subscriptions of these partitions of `subscription_progress`.

        Raises:
            LayerError: nothing can be done now. What fails for one subscription is logged and keeps no other one.
        """
        node = self._node
        local = node.clusters.registry(deadline).local
        if not local or not state_partitions:
            return NOTHING_DONE
        owned = frozenset(state_partitions)
        subjects = self._subjects(self._node.progress, owned, deadline)
        heads = {s: at for s, at in subjects.items() if s.about in _REPORTED and s.cluster != local}
        replicated = self._replicated(owned, deadline)
        self._made.round(local, subjects, replicated, deadline)
        done = NOTHING_DONE
        topics: dict[str, object] = {}
        for names, found in replicated.items():
            topics[found.topic.kafka_topic_id] = found.topic
            try:
                done = done.plus(self._of_subscription(local, found, heads, deadline))
            except errors.Closed:
                raise
            except errors.LayerError as failure:
                deadline.check(f"progress of {names[1]} of {names[0]}")
                _log.warning("subscription=%s/%s its progress is not synced now: %s", *names, failure)
        self._origins.forget(topics)
        own = [s for s in subjects if s.about == KNOWS or (s.about == BEGINS and s.cluster == local)]
        self._forget_gone(local, owned, own, replicated.keys(), deadline)
        return done

    def forget(self, state_partitions: Sequence[int]) -> None:
        """Forgets partitions that another process serves now."""
        lost = frozenset(state_partitions)
        self._words.forget(state_partitions)
        self._seen = {
            place: seen
            for place, seen in self._seen.items()
            if SUBSCRIPTION_PROGRESS.partition_for(place[0]) not in lost
        }

    @staticmethod
    def _subjects(log: ProgressLog, owned: frozenset[int], deadline: Deadline) -> dict[Subject, HeadAt]:
        found: dict[Subject, HeadAt] = {}
        for partition in sorted(owned):
            found.update(log.heads.query_partition(partition, lambda heads: dict(heads.subjects()), deadline))
        return found

    def _replicated(self, owned: frozenset[int], deadline: Deadline) -> dict[tuple[str, str], Subscription]:
        """The live replicated subscriptions, by the names of topic and subscription."""
        node, kept = self._node, {}
        for topic_name, name in node.subscriptions.replicated(deadline):
            if SUBSCRIPTION_PROGRESS.partition_for(topic_name) not in owned:
                continue
            topic = node.topics.find(TopicName.parse(topic_name), deadline)
            found = node.subscriptions.find(topic, name, deadline) if topic is not None else None
            if found is not None and found.topic.name.is_persistent:
                kept[topic_name, name] = found
        return kept

    def _forget_gone(
        self,
        local: str,
        owned: frozenset[int],
        known: Sequence[Subject],
        kept: Set[tuple[str, str]],
        deadline: Deadline,
    ) -> None:
        """Removes the heads of subscriptions that were deleted, or are no longer replicated (not `kept`): those here,
        and once a minute those in other clusters."""
        for subject in known:
            if (subject.topic, subject.subscription) not in kept:
                self._node.progress.forget(subject, deadline)
                self._look_elsewhere = Deadline.after(0)
        if not self._look_elsewhere.passed():
            return
        self._look_elsewhere = Deadline.after(_LOOK_ELSEWHERE_S)
        for cluster in self._node.clusters.registry(deadline).clusters:
            log = self._peers(cluster)
            reported = {} if log is None else self._subjects(log, owned, deadline)
            for subject in sorted(
                reported, key=lambda each: each.about == BEGINS
            ):  # a part of the report: removed after it
                mine = subject.cluster == local and subject.about in _REPORTED | {SNAPSHOTS}
                names = subject.topic, subject.subscription
                if log is not None and mine and (names not in kept or subject.about == SNAPSHOTS):
                    log.forget(subject, deadline)
                    self._words.unsaid(cluster, subject)
                    name = f"{subject.topic}/{subject.subscription}"
                    _log.info("subscription=%s cluster %s gets no more reports of it in this way", name, cluster)

    def _of_subscription(
        self, local: str, subscription: Subscription, heads: Mapping[Subject, HeadAt], deadline: Deadline
    ) -> SyncRound:
        topic = subscription.topic
        admin = self._node.admin
        policy = self._node.applied_to([topic.name], REPLICATION_CLUSTERS, deadline)[topic.name]
        peers = tuple(sorted({*policy} - {local}))
        if peers:  # commits made without a consumer are in no save
            self._node.memberships.live_cursors.settle_transactions(subscription, deadline)
        commits = admin.committed(subscription.whole_group, topic.kafka_topic, list(subscription.served), deadline)
        ends = admin.end_offsets(topic.kafka_topic, list(subscription.served), deadline)
        indexes = self._origins.read_on(topic, ends, deadline.at_most(_READ_S))
        reported = taken = behind = 0
        for partition, index in indexes.items():
            behind += ends[partition] - index.end
            place = (str(topic.name), partition, subscription.name)
            others = sorted((s, at) for s, at in heads.items() if s[:3] == place)
            seen = _Seen(subscription.life(partition), commits.get(partition), index.end, tuple(others), peers)
            if self._seen.get(place) == seen and not subscription.by_partition:
                continue
            looked = Deadline.after(STALE_S)
            one = replace(subscription, partition=None, partitions=(partition,))
            cursor = self._node.memberships.cursors.read(one, deadline)[partition].state
            side = SubscriptionSide(Origin(local, topic.layout.incarnation), cursor, index, ends[partition])
            received = self._received(dict(others), deadline)
            part = Part(one, partition)
            begins = self._begins(part, side, received, deadline)
            taken += self._take_over(part, side, received, begins, looked, deadline)
            counted = [each for each in others if each[0].about == DELIVERED]
            laid_down = self._deliveries.take_over(part, side, counted, deadline)
            newly, all_told = self._report(part, side, begins, peers, deadline)
            reported += newly
            if all_told and laid_down:
                self._seen[place] = seen
        return SyncRound(len(indexes), reported, taken, behind)

    def _received(self, others: Mapping[Subject, HeadAt], deadline: Deadline) -> dict[str, _Word]:
        """The report of each other cluster about one partition; none from a cluster that is about to report another
        incarnation."""
        log, found = self._node.progress, {}
        for subject, at in others.items():
            if subject.about != SAYS:
                continue
            beginning = subject._replace(about=BEGINS)
            begins_at = others.get(beginning)
            head = log.head(subject, at, deadline)
            begins = None if begins_at is None else log.head(beginning, begins_at, deadline)
            if begins is None or begins.life == head.life:
                begun = {} if begins is None else log.all_of(beginning, begins, deadline)
                found[subject.cluster] = _Word(log.all_of(subject, head, deadline), begun)
        return found

    def _begins(
        self, part: Part, side: SubscriptionSide, received: Mapping[str, _Word], deadline: Deadline
    ) -> Progress:
        """Offsets that the cursor has passed, or is about to, without an acknowledgement: below the subscription's
        beginning, and below the beginnings of the clusters for which it was created."""
        found = begun(side, part.subscription.start_offset(part.partition))
        if part.subscription.follows:
            local = side.origin.cluster
            followed = self._words.followed(part, local, deadline)
            if add_report(followed, begun_everywhere([word.begins for word in received.values()])):
                self._words.follow(part, local, followed, deadline)
            add_report(found, followed)
        return found

    def _take_over(
        self,
        part: Part,
        side: SubscriptionSide,
        received: Mapping[str, _Word],
        begins: Progress,
        looked: Deadline,
        deadline: Deadline,
    ) -> int:
        """The number of entries, and of batch entries in part, that were acknowledged."""
        node, (subscription, partition) = self._node, part
        topic = subscription.topic
        news: dict[str, Progress] = {}
        left = ReplicatedAcks(topic.layout.entries_per_ledger)
        follows = begins if subscription.follows else {}
        for cluster, word in received.items():
            known = self._words.known(part, cluster, deadline)
            found = take_over(side, word.report, known, word.begins, follows)
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
            self._words.know(part, cluster, known, deadline)
        return len(left) + len(left.batches)

    def _report(
        self, part: Part, side: SubscriptionSide, begins: Progress, peers: Sequence[str], deadline: Deadline
    ) -> tuple[int, bool]:
        """The number of clusters that got a report, and whether all could be reached."""
        progress = reported_progress(side)
        done, all_reached = 0, True
        for cluster in peers:
            log = self._peers(cluster)
            if log is None:
                all_reached = False
                continue
            known = self._words.known(part, cluster, deadline)
            if add_report(known, progress):
                self._words.know(part, cluster, known, deadline)
            try:
                mine = part.subject(side.origin.cluster, SAYS)
                beginning = mine._replace(about=BEGINS)
                self._words.report(cluster, log, part, beginning, begins, deadline)
                self._words.report(cluster, log, part, mine, progress, deadline)
                self._deliveries.report(cluster, log, part, side, deadline)
                done += 1
            except errors.LayerError as failure:
                all_reached = False
                _log.warning("subscription=%s cannot report its progress to cluster %s: %s", part, cluster, failure)
        return done, all_reached
