"""A stream knows its topics as they are now: snapshots, signs that something moved, whether they are the same ones."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from time import monotonic
from typing import Any, Final, NamedTuple

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import SaveNow
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_BUFFER_SNAPSHOT, TRANSACTION_PENDING_ACK, StateTopic
from pulsar_on_kafka_spark.base.errors import DataLoss, NotReadable
from pulsar_on_kafka_spark.options.read_options import ReadOptions
from pulsar_on_kafka_spark.planning.batch_plan import ByTopic
from pulsar_on_kafka_spark.planning.planned_views import view_of
from pulsar_on_kafka_spark.planning.visibility import (
    SNAPSHOT_S,
    TopicView,
    find_both,
    producer_statements,
    view_named,
)
from pulsar_on_kafka_spark.streaming.stream_offset import StreamOffset, TopicPlace

_log = logging.getLogger(__name__)

SNAPSHOT_REFRESH_INTERVAL_S: Final = 5.0
"""While neither a log's end nor a cursor moves."""
_SAVE_S: Final = 20.0


class _Kept(NamedTuple):
    """Snapshots are kept with the `signs` from before they were taken."""

    signs: object
    views: dict[str, TopicView]
    until_s: float


class StreamTopics:
    """Snapshots of the topics, for one thread. Memory: the last snapshot."""

    def __init__(self, node: Node, options: ReadOptions) -> None:
        self._node = node
        self._options = options
        self._kept: _Kept | None = None

    def look(self, begun: StreamOffset | None, signs: object | None = None) -> dict[str, TopicView]:
        """A snapshot of every topic, after a check that the topic is the one at the stream's beginning, without losses
        since.

        The last one is reused while `signs` is the same as before it was taken, for `SNAPSHOT_REFRESH_INTERVAL_S` at
        most.

        Args:
            signs: the present `signs`; None: they are read.
        """
        signs = self.signs() if signs is None else signs
        kept = self._kept
        if kept is None or kept.signs != signs or monotonic() > kept.until_s:
            until_s = monotonic() + SNAPSHOT_REFRESH_INTERVAL_S
            self._kept = None  # two of them at a time would be too many
            self._kept = kept = _Kept(signs, self._views(), until_s)
        for full, view in kept.views.items():
            if begun is not None and full in begun.topics:
                self._check_place(view, begun.topics[full])
        return kept.views

    def _views(self) -> dict[str, TopicView]:
        names = [TopicName.parse(name) for name in self._options.topics]
        return {str(view.topic.name.base): view for view in view_named(self._node, names, self._options)}

    def _check_place(self, view: TopicView, place: TopicPlace) -> None:
        check_life(view.topic, view.subscription, place.life)
        for partition, upto in place.ends.items():
            found = view.partitions.get(partition)
            if found is None:
                continue
            if view.subscription is None and found.whole.start > upto and self._options.fail_on_data_loss:
                raise DataLoss(
                    f"{view.topic.name}, partition {partition}: the stream stands at offset {upto}, and Kafka has "
                    f"nothing below {found.whole.start} any more; failOnDataLoss=false continues there"
                )
            if found.whole.end < upto and self._log_end(view, partition) < upto:
                raise DataLoss(
                    f"{view.topic.name}, partition {partition}: the stream stands at offset {upto}, and Kafka's log "
                    "ends before: it has lost its end"
                )

    def _log_end(self, view: TopicView, partition: int) -> int:
        deadline = Deadline.after(SNAPSHOT_S)
        return self._node.admin.end_offsets(view.topic.kafka_topic, [partition], deadline)[partition]

    def have_saved(self) -> None:
        """Live consumers save what they acknowledged, so that it is seen."""
        for name in self._options.topics:
            deadline = Deadline.after(SNAPSHOT_S)
            _, subscription = find_both(self._node, name, self._options.subscription, deadline)
            if subscription is None:
                return
            live = any(self._node.admin.describe_group(group, deadline).members for group in subscription.groups)
            if live:
                self._save(subscription)

    def _save(self, subscription: Subscription) -> None:
        try:
            self._node.memberships.live_cursors.change(
                subscription, dict.fromkeys(subscription.served, SaveNow()), Deadline.after(_SAVE_S)
            )
        except errors.LayerError as failure:
            _log.warning("subscription=%s its live consumers did not save: %s", subscription.name, failure)

    def signs(self) -> object:
        """The logs' beginnings and ends, the cursors' commits, and the number of recorded transactions: a snapshot does
        not change while these stay the same."""
        found: list[Any] = []
        for name in self._options.topics:
            deadline = Deadline.after(SNAPSHOT_S)
            topic, subscription = find_both(self._node, name, self._options.subscription, deadline)
            partitions = list(range(topic.partitions))
            found.append(topic.kafka_topic_id)
            found.append(self._node.admin.start_offsets(topic.kafka_topic, partitions, deadline))
            found.append(self._node.admin.end_offsets(topic.kafka_topic, partitions, deadline))
            found.append(self._records_of(TRANSACTION_BUFFER_SNAPSHOT, topic, deadline))
            if subscription is not None:
                commits = [
                    self._node.admin.committed(g, topic.kafka_topic, partitions, deadline) for g in subscription.groups
                ]
                found.append((subscription.incarnation, commits))
                found.append(self._records_of(TRANSACTION_PENDING_ACK, topic, deadline))
        return found

    def _records_of(self, state: StateTopic, topic: Topic, deadline: Deadline) -> int:
        """The end of the state topic's partition with the records of a topic; 0 where the state topic does not
        exist."""
        if not self._node.has_state_topic(state, deadline):
            return 0
        return self._node.log.end_offset(state, state.partition_for(str(topic.name)), deadline)


def life_of(view: TopicView) -> tuple[str, int, int]:
    return _life(view.topic, view.subscription)


def _life(topic: Topic, subscription: Subscription | None) -> tuple[str, int, int]:
    return topic.kafka_topic_id, topic.layout.incarnation, 0 if subscription is None else subscription.incarnation


def check_life(topic: Topic, subscription: Subscription | None, then: tuple[str, int, int]) -> None:
    """Raises NotReadable: a stream stands in a former incarnation, whose `life_of` was `then`."""
    now = _life(topic, subscription)
    if now[:2] != then[:2]:
        raise NotReadable(
            f"topic {topic.name} was deleted and made again since this stream's checkpoint was begun (Kafka's "
            f"id is {now[0]}, was {then[0]}): start with another checkpoint"
        )
    if now[2] != then[2]:
        name = None if subscription is None else subscription.name
        raise NotReadable(
            f"subscription {name} of {topic.name} was deleted and made again since this stream's checkpoint "
            "was begun: start with another checkpoint"
        )


def check_lives(node: Node, options: ReadOptions, at: StreamOffset) -> None:
    """Raises NotReadable: a topic, or its subscription, is gone or was made anew since the stream stood there."""
    for name, place in at.topics.items():
        check_life(*find_both(node, name, options.subscription, Deadline.after(SNAPSHOT_S)), place.life)


def views_of_plan(
    node: Node,
    options: ReadOptions,
    delivered: ByTopic,
    ended: StreamOffset,
    forms: Mapping[str, tuple[bool, bool]],
) -> list[TopicView]:
    """Snapshots that show what a batch delivers.

    Args:
        ended: the batch's end.
        forms: `TopicPlanner.forms`, empty for a batch that was planned before the stream was started.
    Raises:
        NotReadable: see `check_life`.
    """
    views = []
    for name, partitions in delivered.items():
        topic, subscription = find_both(node, name, options.subscription, Deadline.after(SNAPSHOT_S))
        check_life(topic, subscription, ended.topics[name].life)
        shown = {p: view_of(entries) for p, entries in partitions.items()}
        plain, raw = forms.get(name) or (False, _may_be_raw(node, topic, options))
        views.append(TopicView(topic, subscription, shown, plain=plain, raw=raw))
    return views


def _may_be_raw(node: Node, topic: Topic, options: ReadOptions) -> bool:
    reported = options.pulsar_entries
    return producer_statements(node, topic, Deadline.after(SNAPSHOT_S)).raw if reported is None else reported
