"""A snapshot, taken on the driver, of the messages that a subscription's next consumer would get of a topic.

It reads in this order: the end of each partition; then the recorded transactions, so that every record below that end
is known; then acknowledgements that transactions hold on the subscription; then its cursors. So a message that a
transaction both acknowledges here and sends there is never seen in both places; for this the first two are read for all
topics of a read before the others of any.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pyroaring import BitMap64

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorName
from pulsar_on_kafka.broker.metadata.producers.fences import Fences
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.node.readers import data_partition, transactional_records
from pulsar_on_kafka.broker.transactions.buffer.model import BufferSnapshot
from pulsar_on_kafka.broker.transactions.pending_acks.holdings import Holdings
from pulsar_on_kafka.broker.transactions.pending_acks.log import held_by_open
from pulsar_on_kafka.broker.transactions.records.pending_ack_journal import PendingAckReading
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.epoch_fences import Fence
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_BUFFER_SNAPSHOT, TRANSACTION_PENDING_ACK
from pulsar_on_kafka_mapping.state.transactions.pending_acks import CursorIncarnation
from pulsar_on_kafka_spark.base.errors import DataLoss, NotReadable
from pulsar_on_kafka_spark.options.read_options import ReadOptions
from pulsar_on_kafka_spark.planning.chunked_messages import WholeChunkedMessage
from pulsar_on_kafka_spark.planning.excluded_offsets import ExcludedOffsets
from pulsar_on_kafka_spark.planning.offset_ranges import Range
from pulsar_on_kafka_spark.planning.read_bounds import requested_ranges

SNAPSHOT_S: Final = 300.0
"""The time-out for one topic."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PartitionView:
    """The records of `whole` of one partition that a reader gets: those that are not excluded, except records of the
    transactions in `unsealed` (which only headers identify). `lost`: the number of messages that Kafka has deleted
    before the reader got them. `chunked`: messages in chunks by their last chunk's offset; all their chunks are
    excluded."""

    whole: Range
    excluded: ExcludedOffsets
    unsealed: frozenset[TxnId] = frozenset()
    lost: int = 0
    chunked: Mapping[int, WholeChunkedMessage] = field(default_factory=dict)
    unsealed_from: int | None = None
    """The lower bound of records of `unsealed`; None: not examined."""
    never: BitMap64 = field(default_factory=BitMap64)
    """Offsets of `whole` that are known to hold no message: of aborted transactions, and void records."""


@dataclass(frozen=True, slots=True)
class TopicView:
    """A view shows one topic at one moment. `delayed_until_ms`: messages that are to be delivered later than this Unix
    time are not given; None: all are, as Exclusive and Failover subscriptions have it."""

    topic: Topic
    subscription: Subscription | None
    partitions: Mapping[int, PartitionView] = field(default_factory=dict)
    delayed_until_ms: int | None = None
    plain: bool = False
    """Every record is one plain message: see `ProducerClaims.plain`."""
    may_have_chunks: bool = False
    """Some records may be chunks of messages: see `ProducerClaims.unchunked`."""
    marked: bool = True
    """Some records may be markers of transactions: see `ProducerClaims.unmarked`."""
    raw: bool = False
    """Some records may be as a client of Pulsar's batched or compressed them: see `ProducerClaims.raw`."""
    begun: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """The partitions that begin inside of a batch entry: its offset, and the first message's index."""
    ended: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """The same of its end, and the last message's index."""


def find_topic(node: Node, name: TopicName, deadline: Deadline) -> Topic:
    """Raises NotReadable when it does not exist, or keeps nothing."""
    topic = node.topics.find(name, deadline)
    if topic is None:
        raise NotReadable(f"topic {name} does not exist")
    if not name.is_persistent:
        raise NotReadable(f"topic {name} is not persistent: it keeps nothing to be read")
    return topic


def find_subscription(node: Node, topic: Topic, name: str, deadline: Deadline) -> Subscription:
    """Raises NotReadable when it does not exist; the message names those that do."""
    found = node.subscriptions.find(topic, name, deadline)
    if found is None:
        names = ", ".join(one.name for one in node.subscriptions.list(topic, deadline)[:20])
        raise NotReadable(f"topic {topic.name} has no subscription {name!r}; it has {names or 'none'}")
    return found


def find_both(
    node: Node, name: str | TopicName, subscription: str | None, deadline: Deadline
) -> tuple[Topic, Subscription | None]:
    """Raises as `find_topic` and `find_subscription`."""
    topic = find_topic(node, TopicName.parse(name) if isinstance(name, str) else name, deadline)
    return topic, None if subscription is None else find_subscription(node, topic, subscription, deadline)


class RequestedView(NamedTuple):
    """A read looks at this of a topic."""

    topic: Topic
    subscription: Subscription | None
    partitions: Sequence[int]


class _Logs(NamedTuple):
    """The beginnings and ends of a topic's logs, and the transactions that were recorded after they were read."""

    lows: Mapping[int, int]
    ends: Mapping[int, int]
    buffers: Mapping[int, BufferSnapshot]


def view_named(node: Node, names: Sequence[TopicName], options: ReadOptions) -> list[TopicView]:
    """`view_topics` of the parts of these topics that the options select. Raises its errors and those of `find_topic`
    and `find_subscription`."""
    found = []
    for name in names:
        topic, subscription = find_both(node, name, options.subscription, Deadline.after(SNAPSHOT_S))
        partitions = [name.partition] if name.partition >= 0 else list(range(topic.partitions))
        found.append(RequestedView(topic, subscription, partitions))
    return view_topics(node, found, options)


def view_topics(node: Node, topics: Sequence[RequestedView], options: ReadOptions) -> list[TopicView]:
    """The snapshot of these topics, within the bounds of the options.

    Raises:
        InvalidReadOption: see `read_bounds.wanted`.
        DataLoss: a message that would be returned was deleted by Kafka, and the options require a failure then.
        NotReadable: a cursor lies behind its partition's end.
        LayerError: a state could not be read in time.
    """
    logs = [_logs(node, each, Deadline.after(SNAPSHOT_S)) for each in topics]
    return [_view_topic(node, *pair, options, Deadline.after(SNAPSHOT_S)) for pair in zip(topics, logs, strict=True)]


def _logs(node: Node, of: RequestedView, deadline: Deadline) -> _Logs:
    ends = node.admin.end_offsets(of.topic.kafka_topic, of.partitions, deadline)
    lows = node.admin.start_offsets(of.topic.kafka_topic, of.partitions, deadline)
    return _Logs(lows, ends, _buffers(node, of.topic, of.partitions, deadline))


def _view_topic(node: Node, of: RequestedView, logs: _Logs, options: ReadOptions, deadline: Deadline) -> TopicView:
    topic, subscription, partitions = of
    lows, ends, buffers = logs
    if subscription is not None:
        partitions = [p for p in partitions if p in subscription.served]
    cursors = {} if subscription is None else _cursors(node, subscription, partitions, deadline)
    requested = requested_ranges(node, topic, partitions, ends, options, deadline)
    fences = node.producers.fences_of(topic, partitions, deadline)
    views = {
        p: _view(
            node,
            topic,
            p,
            Range(lows[p], ends[p]),
            requested[p].within(Range(lows[p] if subscription is None else 0, ends[p])),
            buffers.get(p),
            cursors.get(p),
            fences[p],
            deadline,
        )
        for p in partitions
    }
    _report_loss(topic, subscription, views, fail=options.fail_on_data_loss)
    delays = subscription is not None and any(
        subscription.partition_types.get(p, subscription.type).is_shared for p in partitions
    )
    reported = producer_statements(node, topic, deadline)
    may_have_chunks = reported.may_have_chunks
    if options.chunked is not None:
        may_have_chunks = options.chunked
    return TopicView(
        topic,
        subscription,
        views,
        node.clock.now_ms() if delays else None,
        reported.plain,
        may_have_chunks and not options.plain,
        reported.marked,
        reported.raw if options.pulsar_entries is None else options.pulsar_entries,
        {
            p: (one.begin.offset, one.begin.index)
            for p, one in requested.items()
            if one.begin is not None and one.begin.index is not None
        },
        {
            p: (one.end.offset - 1, one.end.index)
            for p, one in requested.items()
            if one.end is not None and one.end.index is not None
        },
    )


def _view(
    node: Node,
    topic: Topic,
    partition: int,
    log: Range,
    requested: Range,
    buffer: BufferSnapshot | None,
    cursor: _Cursor | None,
    fences: Sequence[Fence],
    deadline: Deadline,
) -> PartitionView:
    excluded = ExcludedOffsets()
    never = BitMap64() if buffer is None else buffer.excluded
    excluded.add_all(never)
    if cursor is None:
        first = requested.start
    else:
        first = max(requested.start, cursor.state.next_unacked)
        _exclude_acknowledged(excluded, cursor, first, min(requested.end, log.end))
    lost = excluded.count_left(Range(first, min(log.start, requested.end)))
    start, end = max(first, log.start), min(requested.end, log.end)
    if buffer is not None and buffer.bound is not None and start < end:
        bound = max(start, buffer.bound)
        end = min(end, buffer.readable_end(end, transactional_records(node, topic, partition, bound, end, deadline)))
    whole = Range(start, max(start, end))
    void = _void(node, topic, partition, fences, whole, deadline)
    excluded.add_all(void)
    excluded.clip(whole)
    bounds = {} if buffer is None else {t: bound for t, bound in buffer.unsealed.items() if bound < whole.end}
    return PartitionView(
        whole,
        excluded,
        frozenset(bounds),
        lost,
        unsealed_from=min(bounds.values(), default=None),
        never=(never | void) & whole.offsets(),
    )


def _report_loss(
    topic: Topic, subscription: Subscription | None, views: Mapping[int, PartitionView], *, fail: bool
) -> None:
    """Detects messages that Kafka deleted: unlike offsets that never existed, or are no messages, they are neither
    acknowledged nor aborted."""
    lost = {p: view.lost for p, view in views.items() if view.lost}
    if not lost:
        return
    who = "the bounds of the read" if subscription is None else f"subscription {subscription.name}"
    reported = (
        f"{topic.name}: Kafka deleted offsets that {who} had not passed, at most {sum(lost.values())} messages of "
        f"partitions {sorted(lost)}"
    )
    if fail:
        raise DataLoss(f"{reported}; failOnDataLoss=false reads what is left")
    _log.warning("%s", reported)


def _buffers(node: Node, topic: Topic, partitions: Sequence[int], deadline: Deadline) -> dict[int, BufferSnapshot]:
    """The recorded transactions. Empty where no transaction ever wrote to this cluster."""
    if not node.has_state_topic(TRANSACTION_BUFFER_SNAPSHOT, deadline):
        return {}
    return node.transaction_views.buffers.query(
        str(topic.name),
        lambda entries: {p: entries.snapshot(data_partition(topic, p)) for p in partitions},
        deadline,
    )


class ProducerStatements(NamedTuple):
    """Producers' statements on a topic: whether every message is one plain record, and whether some records may be
    chunks, markers, or batched or compressed by a Pulsar client."""

    plain: bool
    may_have_chunks: bool
    marked: bool
    raw: bool


def producer_statements(node: Node, topic: Topic, deadline: Deadline) -> ProducerStatements:
    """Read after the ends: a producer records such records before it writes them."""
    claims = node.producers.claims_of(str(topic.name.base), deadline)
    of_this_life = claims.topic_incarnation == topic.layout.incarnation
    return ProducerStatements(
        of_this_life and claims.plain and not topic.bound,
        of_this_life and not claims.unchunked,
        not (of_this_life and claims.unmarked),
        of_this_life and claims.raw,
    )


def _void(
    node: Node, topic: Topic, partition: int, known: Sequence[Fence], whole: Range, deadline: Deadline
) -> BitMap64:
    """Records behind the beginning of a higher epoch of their origin (see `Fences`).

    Costs a reading of what lies behind the first of these; nothing where no exclusive producer ever wrote, and no
    replicator took over from a dead one.
    """
    found = BitMap64()
    start = max(whole.start, min((offset for offset, *_ in known), default=whole.end))
    if start >= whole.end:
        return found
    fences = Fences(known)
    for batch in node.fetcher.read(topic.kafka_topic, partition, start, whole.end, deadline):
        offsets = [record.offset() or 0 for record in batch]
        found.update(offsets[i] for i in fences.void_in(offsets, batch))
    return found


@dataclass(frozen=True, slots=True)
class _Cursor:
    state: CursorState
    held: Holdings


def _cursors(
    node: Node, subscription: Subscription, partitions: Sequence[int], deadline: Deadline
) -> dict[int, _Cursor]:
    """Read the cursors as the next owner would find them: as last saved, with what transactions acknowledged since.
    What a live owner has not saved yet (`ack_persist_interval`) is not acknowledged."""
    readings = _pending_acks(node, subscription, partitions, deadline)
    found = {}
    for partition, cursor in node.memberships.cursors.read_whole(subscription, deadline, partitions).items():
        reading, held = readings.get(partition), Holdings()
        if reading is not None:
            life = CursorIncarnation(subscription.topic.layout.incarnation, subscription.life(partition))
            held = held_by_open(reading.acks, reading.low_waters, life, cursor.state)
        found[partition] = _Cursor(cursor.state, held)
    _check_ends(node, subscription, found, deadline)
    return found


def _pending_acks(
    node: Node, subscription: Subscription, partitions: Sequence[int], deadline: Deadline
) -> dict[int, PendingAckReading]:
    """Read before the cursors: what an owner folds in and cleans away in between is in the cursor then."""
    if not node.has_state_topic(TRANSACTION_PENDING_ACK, deadline):
        return {}
    names = {CursorName(str(subscription.topic.name), p, subscription.name): p for p in partitions}
    readings = node.pending_acks.exchange(dict.fromkeys(names, ()), deadline)
    return {names[name]: reading for name, reading in readings.items()}


def _check_ends(node: Node, subscription: Subscription, cursors: Mapping[int, _Cursor], deadline: Deadline) -> None:
    """Raises NotReadable for a cursor behind its partition's end: the log lost its end, or is another one."""
    topic = subscription.topic
    ends = node.admin.end_offsets(topic.kafka_topic, list(cursors), deadline)
    for partition, cursor in cursors.items():
        if cursor.state.next_unacked > ends[partition]:
            raise NotReadable(
                f"{topic.name}-{partition} ends at {ends[partition]}, and subscription {subscription.name} has "
                f"acknowledged up to {cursor.state.mark_delete}: the log lost its end; see pok subscriptions show"
            )


def _exclude_acknowledged(excluded: ExcludedOffsets, cursor: _Cursor, start: int, end: int) -> None:
    state, held = cursor.state, cursor.held
    size = state.deleted.entries_per_ledger
    for index, members in state.deleted.ledgers():
        if (index + 1) * size > start and index * size < end:
            excluded.add(index * size, members)
    excluded.batches.update(state.batches.items())
    if held and start < end:
        excluded.add_all(held.whole_in(start, end))
        for offset in held.in_batches():
            acks = held.batch(offset)
            if acks is not None:
                excluded.batches[offset] = acks.and_also(excluded.batches.get(offset))
