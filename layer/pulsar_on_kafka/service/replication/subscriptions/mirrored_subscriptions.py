"""Subscriptions that were created here for other clusters, and those that were left.

A report of another cluster about a subscription creates it here, once. After its deletion here, or the end of its
replication, reports about the same incarnation there are ignored. Only a consumer or an administrator, or a new
incarnation there, recreates it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription, whole_life
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.replication_state.progress_heads import HeadAt, Subject
from pulsar_on_kafka.service.replication.subscriptions.progress_records import Part, ProgressWords
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import KNOWS, LEFT, SAYS

_log: Final = logging.getLogger(__name__)

Names = tuple[str, str]
"""The names of a topic and a subscription."""
_Life = tuple[int, int]
"""The incarnations of a topic and of a subscription; of two lives the later one is the higher."""


class _OnRecord(NamedTuple):
    """The recorded progress of one subscription here: the reporting clusters, the accepted ones, and the left ones."""

    speaking: dict[Subject, HeadAt]
    known: set[tuple[str, int]]
    """Clusters and partitions."""
    left: dict[str, tuple[Subject, HeadAt]]


class MadeForOthers:
    """Mirrors subscriptions, in one thread. Memory: 200 bytes for each partition with ignored reports of other
    clusters."""

    def __init__(self, node: Node, words: ProgressWords) -> None:
        self._node = node
        self._words = words
        self._lives: dict[Subject, tuple[HeadAt, _Life]] = {}

    def round(
        self,
        local: str,
        subjects: Mapping[Subject, HeadAt],
        replicated: Mapping[Names, Subscription],
        deadline: Deadline,
    ) -> None:
        """Make what other clusters speak of, and note what was left. `replicated`: those that are, as looked up after
        `subjects`.

        Raises:
            LayerError: not everything could be seen to.
        """
        self._lives = {subject: found for subject, found in self._lives.items() if subject in subjects}
        for names, found in sorted(_by_names(local, subjects).items()):
            here = replicated.get(names)
            if here is None:
                self._not_here(names, found, deadline)
                continue
            for subject, _ in found.left.values():
                self._node.progress.forget(subject, deadline)
            self._met(here, found, deadline)

    def _met(self, here: Subscription, received: _OnRecord, deadline: Deadline) -> None:
        """Records that the reports were accepted: a later look that finds such a record without the subscription knows
        that it was left."""
        for subject in received.speaking:
            if (subject.cluster, subject.partition) not in received.known and subject.partition in here.served:
                self._words.know(Part(here, subject.partition), subject.cluster, {}, deadline)

    def _not_here(self, names: Names, found: _OnRecord, deadline: Deadline) -> None:
        speaking: dict[str, _Life] = {}
        for subject, at in found.speaking.items():
            speaking[subject.cluster] = max(self._life(subject, at, deadline), speaking.get(subject.cluster, (0, 0)))
        for cluster, (subject, _) in found.left.items():
            if cluster not in speaking:
                self._node.progress.forget(subject, deadline)
        topic = self._node.topics.find(TopicName.parse(names[0]), deadline) if speaking else None
        if topic is None:
            return
        if found.known:
            for cluster, life in speaking.items():
                self._words.leave(Subject(names[0], 0, names[1], cluster, LEFT), life, deadline)
            _log.info("subscription=%s/%s was left: reports of %s do not recreate it", *names, ", ".join(speaking))
            return
        left = {cluster: self._life(*at, deadline) for cluster, at in found.left.items()}
        if any(life > left.get(cluster, (-1, -1)) for cluster, life in speaking.items()):
            self._make(topic, names[1], found, deadline)

    def _make(self, topic: Topic, name: str, received: _OnRecord, deadline: Deadline) -> None:
        """At the log's start; the other clusters' acknowledgements are applied.
        Source: Pulsar's ReplicatedSubscriptionsController, receiveSubscriptionUpdated."""
        found = self._node.subscriptions.find(topic, name, deadline)
        if found is None:
            found = self._node.subscriptions.find_or_create(topic, name, deadline, follows=True)
            _log.info("subscription=%s/%s made, because other clusters have it", topic.name, name)
        self._node.subscriptions.remember(found, {}, True, deadline)
        self._met(found, received, deadline)

    def _life(self, subject: Subject, at: HeadAt, deadline: Deadline) -> _Life:
        known = self._lives.get(subject)
        if known is None or known[0] != at:
            topic, subscription = self._node.progress.head(subject, at, deadline).life
            known = self._lives[subject] = at, (topic, whole_life(subscription))
        return known[1]


def _by_names(local: str, subjects: Mapping[Subject, HeadAt]) -> dict[Names, _OnRecord]:
    found: dict[Names, _OnRecord] = {}
    for subject, at in subjects.items():
        if subject.cluster == local or subject.about not in (SAYS, KNOWS, LEFT):
            continue
        one = found.setdefault((subject.topic, subject.subscription), _OnRecord({}, set(), {}))
        if subject.about == KNOWS:
            one.known.add((subject.cluster, subject.partition))
        elif subject.about == LEFT:
            one.left[subject.cluster] = subject, at
        else:
            one.speaking[subject] = at
    return found
