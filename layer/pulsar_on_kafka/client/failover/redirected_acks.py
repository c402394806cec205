"""Late acknowledgements, those of messages whose cluster was left, are applied to the copies on the present cluster.

The place of first publication identifies a message in both logs (decision 0017), so nothing else is ever acknowledged:
a message without a copy, or whose copy is not found, is redelivered. A cumulative acknowledgement covers the records
that were first published on the cluster where the message was read, or, when it is a copy, on its origin: only these
have the same order in both logs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from pyroaring import BitMap64

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.broker.cursor.ledger_acks import LedgerAcks, of_offsets
from pulsar_on_kafka.broker.lookup.replica_index import Copies, Reads
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.subscriptions.records.chunks import chunk_info
from pulsar_on_kafka.broker.subscriptions.requests.cursor_admin import acknowledge_ledgers
from pulsar_on_kafka.client.values.message import BatchedMessage, ChunkedMessage, Message
from pulsar_on_kafka.client.values.message_id import native
from pulsar_on_kafka.kafka.records import KafkaRecord, headers_of
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.ids.native_message_id import StoredMessageId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.message_record import ChunkInfo, goes_to
from pulsar_on_kafka_mapping.records.original_position import copy_headers, original_of

_log: Final = logging.getLogger(__name__)

_CHUNKS_WITHIN: Final = 100_000
"""Records that are looked through for the other chunks of a message, before its last one."""
_AT_ONCE: Final = 1_000


class Extent(Enum):
    """An acknowledgement names a record of a log, the chunks of a message, or everything up to a record."""

    RECORD = "record"
    CHUNKS = "chunks"
    """The message whose last chunk the record is."""
    UPTO = "upto"
    """Everything up to the record."""


class Late(NamedTuple):
    """A record that was first published on `cluster`, in the topic's life `incarnation`, at `offset`; of a batch entry
    the message `batch_index` of `batch_size` (0: the whole record). `read_on`: the cluster that was left with it."""

    topic: str
    partition: int
    cluster: str
    incarnation: int
    offset: int
    batch_index: int = 0
    batch_size: int = 0
    extent: Extent = Extent.RECORD
    read_on: str = ""


class Log(NamedTuple):
    """A log has the records of a partition in [low, end) on the cluster that has the tenant; all of them are of this
    `incarnation` of the topic. Nothing below `next_unacked` is unacknowledged."""

    reads: Reads
    kafka_topic: str
    cluster: str
    incarnation: int
    low: int
    end: int
    next_unacked: int


class Named(NamedTuple):
    """Offsets, and (number of messages, bits) of batch entries by offset."""

    offsets: BitMap64
    batches: dict[int, tuple[int, int]]


def named(several: Iterable[Late], log: Log, deadline: Deadline) -> Named:
    """The messages of this log that the acknowledgements name. Memory: one batch of records while it reads, and the
    offsets.

    Raises:
        StoreError: the log cannot be read now.
    """
    late = list(several)
    places = _places([each for each in late if each.extent is not Extent.UPTO], log, deadline)
    offsets, batches = BitMap64(), dict[int, tuple[int, int]]()
    for each in late:
        found = _upto(each, log, deadline) if each.extent is Extent.UPTO else _at(each, places.get(each), log, deadline)
        offsets |= found.offsets
        for offset, (size, bits) in found.batches.items():
            batches[offset] = (size, bits | batches.get(offset, (0, 0))[1])
    return Named(offsets, batches)


def _at(late: Late, offset: int | None, log: Log, deadline: Deadline) -> Named:
    if offset is None:
        return Named(BitMap64(), {})
    if late.batch_size:
        return Named(BitMap64(), {offset: (late.batch_size, 1 << late.batch_index)})
    return Named(BitMap64(_chunks(late, log, offset, deadline) if late.extent is Extent.CHUNKS else [offset]), {})


def _places(late: Iterable[Late], log: Log, deadline: Deadline) -> dict[Late, int]:
    found: dict[Late, int] = {}
    elsewhere: dict[str, list[Late]] = {}
    for each in late:
        if each.cluster != log.cluster:
            elsewhere.setdefault(each.cluster, []).append(each)
        elif each.incarnation == log.incarnation and log.low <= each.offset < log.end:
            found[each] = each.offset
    for cluster, group in elsewhere.items():
        copies = Copies(log.reads, log.kafka_topic, group[0].partition, cluster)
        lives = {each: (each.incarnation, each.offset) for each in group}
        places = copies.of_each(lives.values(), log.low, log.end, deadline)
        found.update((each, places[life]) for each, life in lives.items() if life in places)
    return found


def _chunks(late: Late, log: Log, last: int, deadline: Deadline) -> list[int]:
    """The chunks of the message that ends at `last`, by their uuid: looked for backwards, and of those that are not
    there any more none."""
    infos = [_chunk(record) for batch in _read(late, log, last, last + 1, deadline) for record in batch]
    if not infos or infos[0] is None:
        return [last]
    requested = infos[0]
    found, ids, end = [last], {requested.chunk_id}, last
    while len(ids) < requested.chunks and end > max(log.low, last - _CHUNKS_WITHIN):
        start = max(log.low, end - _AT_ONCE)
        for batch in _read(late, log, start, end, deadline):
            for record in batch:
                info = _chunk(record)
                if info is not None and info.uuid == requested.uuid:
                    found.append(record.offset())
                    ids.add(info.chunk_id)
        end = start
    return found


def _read(late: Late, log: Log, start: int, end: int, deadline: Deadline) -> Iterator[list[KafkaRecord]]:
    return log.reads.read(log.kafka_topic, late.partition, start, end, deadline)


def _upto(late: Late, log: Log, deadline: Deadline) -> Named:
    here = late.cluster == log.cluster
    if here and late.incarnation != log.incarnation:
        return Named(BitMap64(), {})
    start = max(log.low, log.next_unacked)
    if here:
        end = min(log.end, late.offset + 1)
    else:
        copies = Copies(log.reads, log.kafka_topic, late.partition, late.cluster)
        end = copies.behind((late.incarnation, late.offset), start, log.end, deadline) if start < log.end else start
    offsets, batches = BitMap64(), dict[int, tuple[int, int]]()
    chunks: dict[str, list[int]] = {}
    for batch in _read(late, log, start, end, deadline) if start < end else ():
        for record in batch:
            original = _original(late, log, record)
            if original is None or original > late.offset:
                continue
            offset = record.offset()
            info = _chunk(record)
            if info is not None:  # a message that ends behind it is not acknowledged
                chunks.setdefault(info.uuid, []).append(offset)
                if info.chunk_id == info.chunks - 1:
                    offsets.update(chunks.pop(info.uuid))
            elif late.batch_size and original == late.offset:
                batches[offset] = (late.batch_size, (1 << late.batch_index + 1) - 1)
            else:
                offsets.add(offset)
    return Named(offsets, batches)


def _original(late: Late, log: Log, record: Any) -> int | None:
    """The record's offset in the log that `late.offset` is of; None of one that is not in it."""
    headers = headers_of(record) or ()
    copy = copy_headers(headers)
    if late.cluster == log.cluster:
        if late.read_on == log.cluster:  # the tenant came back: it is the same log
            return int(record.offset())
        return int(record.offset()) if copy is None and goes_to(headers, late.read_on) else None
    found = None if copy is None else original_of(copy)
    if found is None or found[0] != late.cluster:
        return None
    return found[1].kafka_offset if found[1].incarnation == late.incarnation else None


def _chunk(record: Any) -> ChunkInfo | None:
    try:
        return chunk_info(record)
    except CorruptRecord:
        return None


MAX_WAITING: Final = 100_000
"""The limit of acknowledgements that wait for the next cluster; messages beyond it are redelivered."""


class LateAcks:
    """The late acknowledgements of one subscription wait here for its next cluster. Thread-safe. Memory: about 200
    bytes for each, `MAX_WAITING` at most."""

    def __init__(self, subscription: str) -> None:
        self._subscription = subscription
        self._waiting: dict[Late, None] = {}
        """The waiting acknowledgements; of cumulative ones only the furthest."""
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, message: object, layout: LedgerLayout, cluster: str, *, cumulative: bool = False) -> bool:
        """Keeps the acknowledgement of a message, or id, of a topic of `cluster` with this layout; `cumulative`: and of
        everything before it. False: the message cannot be identified."""
        return self.add_each(_meant(message, layout, cluster, cumulative=cumulative))

    def add_each(self, found: Sequence[Late]) -> bool:
        """Keeps these; False: there are none, or too many."""
        with self._lock:
            if not found or len(self._waiting) + len(found) > MAX_WAITING:
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
        found = meant_by(late, message.record, cumulative=cumulative)
        if isinstance(message, BatchedMessage):
            found[-1] = found[-1]._replace(batch_index=message.batch_index, batch_size=message.entry.size)
        if isinstance(message, ChunkedMessage):  # its offset, and its headers, are its last chunk's
            found[-1] = found[-1]._replace(extent=Extent.CHUNKS)
    else:
        found = _of_id(message, layout, cluster)
    return [each._replace(extent=Extent.UPTO, read_on=cluster) for each in found] if cumulative else found


def meant_by(late: Late, record: Any, *, cumulative: bool) -> list[Late]:
    """The acknowledgement of a record: of its original, if it is a copy. A cumulative one is of both logs."""
    copied = _copied(headers_of(record), late.topic, late.partition)
    return [late] if copied is None else [late, copied] if cumulative else [copied]


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
    """The position in its log: behind every message of a batch entry lies the whole entry."""
    return late.offset, not late.batch_size, late.batch_index


def _copied(headers: Iterable[tuple[str, bytes | None]] | None, topic: str, partition: int) -> Late | None:
    """The original of a copy; None for a record that was first published where it lies."""
    reported = copy_headers(headers)
    found = None if reported is None else original_of(reported)
    if found is None:
        return None
    cluster, original = found
    return Late(topic, partition, cluster, original.incarnation, original.kafka_offset)
