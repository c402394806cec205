"""The needs of a topic's log follow from its subscriptions, transactions and producers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.saved_cursor import RecoveredCursor
from pulsar_on_kafka.broker.managed_ledger.trimming import Needs
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.services import Services
from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.broker.transactions.buffer.model import BufferSnapshot, DataPartition

ReadCursors: TypeAlias = Callable[[Subscription, Deadline], Mapping[int, RecoveredCursor]]
"""The cursors as last saved. Later acknowledgements only keep the log a little longer."""


def needs_of(
    services: Services, read_cursors: ReadCursors, topic: Topic, partitions: Sequence[int], deadline: Deadline
) -> dict[int, Needs]:
    """The needs of a topic that was just found to be alive. `compacted` is the result of the same look-up."""
    cursors: dict[int, list[int]] = {partition: [] for partition in partitions}
    for subscription in services.subscriptions.durable(topic, deadline):
        for partition, cursor in read_cursors(subscription, deadline).items():
            if partition in cursors:
                cursors[partition].append(cursor.state.next_unacked)
    snapshots = services.looking.buffers.query(
        str(topic.name.base), partial(_snapshots, topic=topic, partitions=partitions), deadline
    )
    sequences = services.sequences.needed(
        topic, partitions, deadline, lambda: services.producers.connected(topic, deadline)
    )
    return {
        partition: Needs(
            cursors[partition],
            tuple(snapshots[partition].open_bounds.values()),
            tuple(snapshots[partition].unsealed.values()),
            sequences.get(partition, ()),
            topic.compacted_to.get(partition, 0) > 0,
        )
        for partition in partitions
    }


def _snapshots(entries: BufferEntries, topic: Topic, partitions: Sequence[int]) -> dict[int, BufferSnapshot]:
    life = topic.layout.incarnation
    return {p: entries.snapshot(DataPartition(str(topic.name.base), p, life)) for p in partitions}
