"""Acknowledgements of messages whose cluster was left: they are made on the copies, where those lie now.

A message is the same one in both logs only by where it was first published (decision 0017), so nothing else is ever
acknowledged: what has no copy, or whose copy is not found, comes again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pyroaring import BitMap

from layer.client.message import BatchedMessage, ChunkedMessage, Message
from layer.client.message_id import StoredMessageId, native
from layer.deadline import Deadline
from layer.deliveries.acks_by_readers import acknowledge_ledgers
from layer.errors import LayerError
from layer.kafka.records import headers_of
from layer.lookup.copies import Copies
from layer.metadata.topics import Topic
from layer.node import Node
from mapping.ledger import LedgerLayout
from mapping.original_position import copy_headers, decode_original
from mapping.state_records.cursor_state import Holes
from mapping.topic_name import TopicName

_log: Final = logging.getLogger(__name__)

MOST: Final = 100_000
"""Acknowledgements that wait for the next cluster; what is beyond comes again."""


class Late(NamedTuple):
    """A record that was first published on `cluster`, in the topic's life `incarnation`, at `offset`; of a batch entry
    the message `batch_index` of `batch_size` (0: the whole record)."""

    topic: str
    partition: int
    cluster: str
    incarnation: int
    offset: int
    batch_index: int = 0
    batch_size: int = 0


class LateAcks:
    """Of one subscription. Thread-safe. Memory: about 200 bytes for each, `MOST` at most."""

    def __init__(self, subscription: str) -> None:
        self._subscription = subscription
        self._waiting: dict[Late, None] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, message: object, layout: LedgerLayout, cluster: str) -> bool:
        """Keep what a message, or id, of a topic of `cluster` with this layout stands for; False: it cannot be told."""
        found = list(_meant(message, layout, cluster))
        with self._lock:
            if not found or len(self._waiting) + len(found) > MOST:
                return False
            self._waiting.update(dict.fromkeys(found))
        return True

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
                self._waiting = {**taken, **self._waiting}
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
        acks: dict[int, dict[int, Holes]] = {}
        done = 0
        for partition in partitions:
            ledgers: dict[int, tuple[BitMap, dict[int, tuple[int, int]]]] = {}
            for each in late[partition]:
                offset = _place(node, topic, cluster, each, lows[partition], ends[partition], deadline)
                if offset is None:
                    continue
                index, entry = divmod(offset, topic.layout.entries_per_ledger)
                entries, batches = ledgers.setdefault(index, (BitMap(), {}))
                if each.batch_size:
                    known = batches.get(entry, (0, 0))[1]
                    batches[entry] = (each.batch_size, known | 1 << each.batch_index)
                else:
                    entries.add(entry)
                done += 1
            acks[partition] = {index: Holes(*found) for index, found in ledgers.items()}
        acknowledge_ledgers(node.memberships.live_cursors, node.admin, subscription, acks, deadline)
        _log.info(
            "subscription=%s/%s %d acknowledgements of messages of a cluster that was left were made on %s",
            topic.name, self._subscription, done, cluster,
        )  # fmt: skip
        return done


def _place(node: Node, topic: Topic, cluster: str, late: Late, low: int, end: int, deadline: Deadline) -> int | None:
    """Where the record lies here."""
    if late.cluster == cluster:
        mine = late.incarnation == topic.layout.incarnation and low <= late.offset < end
        return late.offset if mine else None
    copies = Copies(node.fetcher, topic.kafka_topic, late.partition, late.cluster)
    return copies.of((late.incarnation, late.offset), low, end, deadline)


def _by_topic(waiting: Iterable[Late]) -> dict[str, dict[int, list[Late]]]:
    found: dict[str, dict[int, list[Late]]] = {}
    for each in waiting:
        found.setdefault(each.topic, {}).setdefault(each.partition, []).append(each)
    return found


def _meant(message: object, layout: LedgerLayout, cluster: str) -> Iterable[Late]:
    if isinstance(message, Message):
        topic, partition = str(TopicName.parse(message.topic_name()).base), message.feed.slot.number
        if isinstance(message, ChunkedMessage):
            if copy_headers(headers_of(message.record)) is not None:
                return []  # only the last chunk tells, and it must not be acknowledged alone
            return [Late(topic, partition, cluster, layout.incarnation, each) for each in message.record.offsets]
        late = _copied(headers_of(message.record), topic, partition)
        if late is None:
            late = Late(topic, partition, cluster, layout.incarnation, message.offset)
        if isinstance(message, BatchedMessage):
            late = late._replace(batch_index=message.batch_index, batch_size=message.entry.size)
        return [late]
    found = native(message)
    if not isinstance(found, StoredMessageId) or found.first_chunk() is not None:
        return []  # of a message in chunks the id alone does not tell where the others are
    partition = max(0, found.partition())
    offset = layout.kafka_offset(partition, found.ledger_id(), found.entry_id())
    topic = str(TopicName.parse(found.topic_of_message()).base)
    return [
        Late(topic, partition, cluster, layout.incarnation, offset, max(0, found.batch_index()), found.batch_size())
    ]


def _copied(headers: Iterable[tuple[str, bytes | None]] | None, topic: str, partition: int) -> Late | None:
    """What a record is the copy of; None: it was first published where it lies."""
    said = copy_headers(headers)
    if said is None:
        return None
    original = decode_original(said.position)
    return Late(topic, partition, said.cluster.decode("utf-8"), original.incarnation, original.kafka_offset)
