"""Late acknowledgements, those of messages whose cluster was left, are made on the copies, where those lie now.

A message is the same one in both logs only by where it was first published (decision 0017), so nothing else is ever
acknowledged: what has no copy, or whose copy is not found, comes again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.client.following.late_places import Extent, Late, Log, named
from pulsar_on_kafka.client.values.message import BatchedMessage, ChunkedMessage, Message
from pulsar_on_kafka.client.values.message_id import native
from pulsar_on_kafka.cursor.ledger_acks import LedgerAcks, of_offsets
from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka.mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka.mapping.ids.native_message_id import StoredMessageId
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.mapping.records.original_position import copy_headers, original_of
from pulsar_on_kafka.node.node import Node
from pulsar_on_kafka.subscriptions.requests.acks_by_readers import acknowledge_ledgers

_log: Final = logging.getLogger(__name__)

MOST: Final = 100_000
"""Acknowledgements that wait for the next cluster; what is beyond comes again."""


class LateAcks:
    """The late acknowledgements of one subscription wait here for its next cluster. Thread-safe. Memory: about 200
    bytes for each, `MOST` at most."""

    def __init__(self, subscription: str) -> None:
        self._subscription = subscription
        self._waiting: dict[Late, None] = {}
        """Of those that name everything up to a record the furthest one alone."""
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, message: object, layout: LedgerLayout, cluster: str, *, cumulative: bool = False) -> bool:
        """Keep what a message, or id, of a topic of `cluster` with this layout stands for, `cumulative`: and everything
        before it. False: it cannot be told."""
        found = _meant(message, layout, cluster, cumulative=cumulative)
        with self._lock:
            if not found or len(self._waiting) + len(found) > MOST:
                return False
            for each in found:
                self._keep(each)
        return True

    def _keep(self, late: Late) -> None:
        if late.extent is Extent.UPTO:
            log = _log_of(late)
            for other in [each for each in self._waiting if each.extent is Extent.UPTO and _log_of(each) == log]:
                if _reach(other) >= _reach(late):
                    return
                del self._waiting[other]
        self._waiting[late] = None

    def settle(self, node: Node, cluster: str, deadline: Deadline) -> int:
        """Acknowledge on `cluster` what waits; gives how many records that are. What is not there is forgotten.

        Raises:
            LayerError: not possible now; it waits on.
        """
        with self._lock:
            taken, self._waiting = self._waiting, {}
        try:
            return sum(
                self._of_topic(node, cluster, TopicName.parse(topic), group, deadline)
                for topic, group in _by_topic(taken).items()
            )
        except LayerError:
            with self._lock:
                for each in taken:
                    self._keep(each)
            raise

    def _of_topic(
        self, node: Node, cluster: str, name: TopicName, late: Mapping[int, list[Late]], deadline: Deadline
    ) -> int:
        topic = node.topics.find(name, deadline)
        subscription = None if topic is None else node.subscriptions.find(topic, self._subscription, deadline)
        if topic is None or subscription is None:
            return 0
        partitions = [partition for partition in late if partition < topic.partitions]
        lows = node.admin.start_offsets(topic.kafka_topic, partitions, deadline)
        ends = node.admin.end_offsets(topic.kafka_topic, partitions, deadline)
        cursors = node.memberships.cursors.read(subscription, deadline)
        acks: dict[int, LedgerAcks] = {}
        done = 0
        for partition in partitions:
            if partition not in cursors:
                continue
            log = Log(
                node.fetcher,
                topic.kafka_topic,
                cluster,
                topic.layout.incarnation,
                lows[partition],
                ends[partition],
                cursors[partition].state.next_unacked,
            )
            found = named(late[partition], log, deadline)
            acks[partition] = of_offsets(found.offsets, found.batches, topic.layout.entries_per_ledger)
            done += len(found.offsets) + len(found.batches)
        acknowledge_ledgers(node.memberships.live_cursors, node.admin, subscription, acks, deadline)
        _log.info(
            "subscription=%s/%s %d records of a cluster that was left were acknowledged late, on %s",
            topic.name, self._subscription, done, cluster,
        )  # fmt: skip
        return done


def _by_topic(waiting: Iterable[Late]) -> dict[str, dict[int, list[Late]]]:
    found: dict[str, dict[int, list[Late]]] = {}
    for each in waiting:
        found.setdefault(each.topic, {}).setdefault(each.partition, []).append(each)
    return found


def _meant(message: object, layout: LedgerLayout, cluster: str, *, cumulative: bool) -> list[Late]:
    """A message; `cumulative`: everything up to it that was first published where it was read, and on its origin when
    it is a copy."""
    if isinstance(message, Message):
        topic, partition = str(TopicName.parse(message.topic_name()).base), message.feed.slot.number
        late = Late(topic, partition, cluster, layout.incarnation, message.offset)
        copied = _copied(headers_of(message.record), topic, partition)
        found = [late] if copied is None else [late, copied] if cumulative else [copied]
        if isinstance(message, BatchedMessage):
            found[-1] = found[-1]._replace(batch_index=message.batch_index, batch_size=message.entry.size)
        if isinstance(message, ChunkedMessage):  # its offset, and its headers, are its last chunk's
            found[-1] = found[-1]._replace(extent=Extent.CHUNKS)
    else:
        found = _of_id(message, layout, cluster)
    return [each._replace(extent=Extent.UPTO, read_on=cluster) for each in found] if cumulative else found


def _of_id(message: object, layout: LedgerLayout, cluster: str) -> list[Late]:
    found = native(message)
    if not isinstance(found, StoredMessageId):
        return []
    partition = max(0, found.partition())
    offset = layout.kafka_offset(partition, found.ledger_id(), found.entry_id())
    topic = str(TopicName.parse(found.topic_of_message()).base)
    late = Late(topic, partition, cluster, layout.incarnation, offset, max(0, found.batch_index()), found.batch_size())
    return [late if found.first_chunk() is None else late._replace(extent=Extent.CHUNKS)]


def _log_of(late: Late) -> tuple[str, int, str, int, str]:
    return late.topic, late.partition, late.cluster, late.incarnation, late.read_on


def _reach(late: Late) -> tuple[int, bool, int]:
    """How far in its log: behind every message of a batch entry lies the whole of it."""
    return late.offset, not late.batch_size, late.batch_index


def _copied(headers: Iterable[tuple[str, bytes | None]] | None, topic: str, partition: int) -> Late | None:
    """What a record is the copy of; None: it was first published where it lies."""
    said = copy_headers(headers)
    found = None if said is None else original_of(said)
    if found is None:
        return None
    cluster, original = found
    return Late(topic, partition, cluster, original.incarnation, original.kafka_offset)
