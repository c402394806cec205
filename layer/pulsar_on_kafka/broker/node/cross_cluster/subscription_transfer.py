"""Has a subscription in another cluster go on where one here is, at once: for tenants that move."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from functools import partial

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.worker import side_by_side
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.node.cross_cluster.subscription_reader import CursorsOf, SideReading
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.replication_state.acks import ReplicatedAcks
from pulsar_on_kafka.broker.replication_state.comparison import PartitionComparison, compare
from pulsar_on_kafka.broker.replication_state.delivery_count_transfer import carried, joined
from pulsar_on_kafka.broker.replication_state.progress import (
    SubscriptionSide,
    reported_progress,
    take_over,
    without_acknowledged,
    without_message,
)
from pulsar_on_kafka.broker.subscriptions.requests.cursor_admin import acknowledge_ledgers
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.cursors.cursor_state import Deliveries


def compare_subscription(
    here: Node, there: Node, topic: TopicName, name: str, deadline: Deadline
) -> list[PartitionComparison]:
    """Both sides, partition by partition, as their owners save them now. Reads both logs from their starts.

    Raises:
        NoSuchTopic, NoSuchSubscription: one side does not have it.
        Refused: one of the clusters has no name, or the numbers of partitions differ.
        DeadlineExceeded, StoreError: one side cannot be read in time.
    Memory: an `OriginIndex` of each partition on both sides.
    """
    with closing(SideReading(here)) as mine, closing(SideReading(there)) as theirs:
        found = [_subscription(side.node, topic, name, deadline) for side in (mine, theirs)]
        return compare_sides(mine, found[0], theirs, found[1], deadline)


def compare_sides(
    here: SideReading, mine: Subscription, there: SideReading, theirs: Subscription, deadline: Deadline
) -> list[PartitionComparison]:
    """Compare sides that were looked up, and perhaps read, before. Raises as `compare_subscription`."""
    ours, others = here.sides(mine, deadline), there.sides(theirs, deadline)
    if ours.keys() != others.keys():
        raise errors.Refused(f"{mine.topic.name} has partitions {[*ours]} here and {[*others]} there: nothing compares")
    return compare_partitions(ours, others)


def compare_partitions(
    ours: Mapping[int, SubscriptionSide], others: Mapping[int, SubscriptionSide]
) -> list[PartitionComparison]:
    """Comparisons of the common partitions, in order. Raises StoreError, see `compare`."""
    return [compare(partition, ours[partition], others[partition]) for partition in sorted(ours)]


def _subscription(node: Node, topic: TopicName, name: str, deadline: Deadline) -> Subscription:
    cluster = node.clusters.registry(deadline).local or node.settings.bootstrap
    opened = node.topics.find(topic, deadline)
    if opened is None:
        raise errors.NoSuchTopic(f"topic {topic} does not exist in cluster {cluster}")
    found = node.subscriptions.find(opened, name, deadline)
    if found is None:
        raise errors.NoSuchSubscription(f"topic {topic} has no subscription {name} in cluster {cluster}")
    return found


def carry_over(mine: CursorsOf, theirs: CursorsOf, deadline: Deadline) -> list[PartitionComparison]:
    """Acknowledge with `theirs` every message, and message of a batch entry, that `mine` has acknowledged, and that was
    copied, whichever way. What is acknowledged there stays so; a second call does nothing new. Compares nothing.

    Raises:
        DeadlineExceeded, StoreError: one side cannot be read or changed in time; some of it may be done.
    Memory: both sides' cursors, and the acknowledgements of all partitions once more.
    """
    ours, others = _sides(mine, theirs, deadline)
    _acknowledge(ours, others, theirs.node, theirs.subscription, deadline)
    return []


def compare_now(mine: CursorsOf, theirs: CursorsOf, deadline: Deadline) -> list[PartitionComparison]:
    """Both sides as their owners save them now; changes nothing. Raises DeadlineExceeded, StoreError."""
    return compare_partitions(*_sides(mine, theirs, deadline))


def bring_over(mine: CursorsOf, theirs: CursorsOf, deadline: Deadline) -> list[PartitionComparison]:
    """Calls `carry_over`, then transfers the delivery state of `mine` to `theirs`: delivery counts, delayed messages
    with their times, and the messages that a dead process held. For a message with state on both sides, the higher
    count and the later time stay. Returns the comparison of both sides as saved afterwards; a second call changes
    nothing.

    No consumer may be connected on either side, and `mine` may not change meanwhile: each cursor is read once, and
    those of `theirs` again after a change.

    Raises:
        SubscriptionBusy: the target has a consumer.
        DeadlineExceeded, StoreError: see `carry_over`.
    Memory: see `carry_over`.
    """
    ours, others = _sides(mine, theirs, deadline)
    there, subscription = theirs.node, theirs.subscription
    if _acknowledge(ours, others, there, subscription, deadline):
        others = theirs.sides(deadline)
    if deliveries := _deliveries(ours, others):
        there.memberships.live_cursors.lay_down_deliveries(subscription, deliveries, deadline)
        others = theirs.sides(deadline)
    return compare_partitions(ours, others)


def _sides(
    mine: CursorsOf, theirs: CursorsOf, deadline: Deadline
) -> tuple[dict[int, SubscriptionSide], dict[int, SubscriptionSide]]:
    ours, others = side_by_side([partial(each.sides, deadline) for each in (mine, theirs)])
    return ours, others


def _acknowledge(
    ours: Mapping[int, SubscriptionSide],
    others: Mapping[int, SubscriptionSide],
    there: Node,
    theirs: Subscription,
    deadline: Deadline,
) -> bool:
    acks = {p: _missing(ours[p], side).blocks() for p, side in others.items() if p in ours}
    done = acknowledge_ledgers(there.memberships.live_cursors, there.admin, theirs, acks, deadline)
    return done.requests > 0


def _deliveries(ours: Mapping[int, SubscriptionSide], others: Mapping[int, SubscriptionSide]) -> dict[int, Deliveries]:
    """Delivery state that the target cursors lack. Raises StoreError."""
    found: dict[int, Deliveries] = {}
    if all(side.cursor.deliveries is None for side in ours.values()):
        return found
    for partition, side in others.items():
        known = side.cursor.deliveries
        both = joined(known, carried(ours[partition], side)) if partition in ours else known
        if both is not None and both != known:
            found[partition] = both
    return found


def _missing(ours: SubscriptionSide, side: SubscriptionSide) -> ReplicatedAcks:
    """The messages of `ours` that `side` has not acknowledged, and those that are no message there."""
    left = without_acknowledged(take_over(side, reported_progress(ours), {}), side.cursor)
    left.join(without_message(side))
    return left
