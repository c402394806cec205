"""Transactions: the part of `AdminClient` that shows and ends them, and compares a topic's log with its buffer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from pulsar_on_kafka.admin.context import AdminContext, raising_pulsar_errors
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.identity import CursorName
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition, MetRecord, look_over
from pulsar_on_kafka.broker.transactions.buffer.verify import BufferDifference, Rebuilt, compare, rebuild
from pulsar_on_kafka.broker.transactions.coordinator.rules import OPEN
from pulsar_on_kafka.broker.transactions.coordinator.state import CoordinatorState, txn_id
from pulsar_on_kafka.broker.transactions.pending_acks.log import PendingAckLog
from pulsar_on_kafka.broker.transactions.records.inspection import (
    CoordinatorStats,
    PartitionBufferStats,
    PendingAckStats,
    TransactionInBuffer,
    TransactionInfo,
    TransactionInPendingAck,
    all_in_buffer,
    all_in_pending_acks,
    buffer_stats,
    coordinator_stats,
    in_buffer,
    in_pending_acks,
    pending_ack_stats,
    slow_transactions,
    transaction_info,
)
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.state_topics import MAX_COORDINATORS
from pulsar_on_kafka_mapping.state.transactions.pending_acks import CursorIncarnation
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TopicPartition, TopicSubscription

_PIECE: Final = 50_000
_PIECE_S: Final = 300.0
_ASKING_S: Final = 30.0
_ROUNDS: Final = 4
"""A transaction that ended between a look at the log and one at the buffer differs in the first of two rounds."""


@dataclass(frozen=True, slots=True)
class VerifiedBuffer:
    """One partition whose log, from `start` to `end`, was compared with its transaction buffer.

    `records` are the transactional ones that were read, of `transactions`.
    """

    where: DataPartition
    start: int
    end: int
    transactions: int
    records: int
    differences: tuple[BufferDifference, ...]

    @property
    def harmful(self) -> tuple[BufferDifference, ...]:
        """The differences that are not explained by a transaction that is being ended."""
        return tuple(difference for difference in self.differences if not difference.finding.is_harmless)


class BufferCheck:
    """The check compares one topic's log with its transaction buffer, partition by partition. It reads the log from its
    start to its end, then what is on record; whatever differs then is looked at again, with what the log got meanwhile:
    only what stays is a difference."""

    def __init__(self, node: Node, topic: Topic, progress: Callable[[int, int], None], deadline: Deadline) -> None:
        """`progress` receives the numbers of finished and of all offsets."""
        self._node = node
        self._topic = topic
        self._progress = progress
        partitions = range(topic.partitions)
        self._starts = node.admin.start_offsets(topic.kafka_topic, partitions, deadline)
        self._ends = node.admin.end_offsets(topic.kafka_topic, partitions, deadline)
        self._total = sum(self._ends[partition] - self._starts[partition] for partition in partitions)
        self._done = 0

    def verified(self, partition: int) -> VerifiedBuffer:
        where = DataPartition(str(self._topic.name), partition, self._topic.layout.incarnation)
        start, end = self._starts[partition], self._ends[partition]
        log = rebuild(self._met(partition, start, end))
        found = self._differences(where, log, start)
        for _ in range(_ROUNDS - 1):
            if not found:
                break
            before = {difference.txn for difference in found}
            began, end = end, self._end(partition)
            rebuild(self._met(partition, began, end), log)
            found = [each for each in self._differences(where, log, start) if each.txn in before]
        records = sum(len(each.offsets) + len(each.late) for each in log.values())
        return VerifiedBuffer(where, start, end, len(log), records, tuple(found))

    def _differences(self, where: DataPartition, log: dict[TxnId, Rebuilt], start: int) -> list[BufferDifference]:
        return self._node.looking.buffers.query(
            where.topic, lambda entries: compare(where, log, start, entries), Deadline.after(_ASKING_S)
        )

    def _end(self, partition: int) -> int:
        ends = self._node.admin.end_offsets(self._topic.kafka_topic, [partition], Deadline.after(_ASKING_S))
        return ends[partition]

    def _met(self, partition: int, start: int, end: int) -> Iterator[MetRecord]:
        """The transactional records and markers in [start, end), a piece in memory at a time."""
        for first in range(start, end, _PIECE):
            last = min(end, first + _PIECE)
            batches = self._node.fetcher.read(self._topic.kafka_topic, partition, first, last, Deadline.after(_PIECE_S))
            for records in batches:
                yield from look_over([record.offset() for record in records], records).met
            self._done += last - first
            self._progress(self._done, max(self._total, self._done))


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TransactionDetails:
    """One transaction, and its records in its participants.

    Attributes:
        left_ms: the time until an open one is aborted; below 0: it is overdue (no process runs its coordinator, or
            clocks differ).
        gone: partitions and subscriptions that were deleted since.
    """

    info: TransactionInfo
    left_ms: int | None
    buffers: tuple[TransactionInBuffer, ...]
    pending_acks: tuple[TransactionInPendingAck, ...]
    gone: tuple[TopicPartition | TopicSubscription, ...]


@raising_pulsar_errors
class TransactionAdmin(AdminContext):
    """Reading changes nothing and creates no topic: the results are the state of the logs at the time of the call.

    A transaction is named by its `TxnId`, or as Pulsar prints it: `(most,least)`. Source of names: `Transactions` of
    Pulsar's Java admin client.
    """

    def list_transaction_coordinators(self) -> list[CoordinatorStats]:
        """All of the cluster, by id."""
        deadline = self._deadline()
        coordinators = range(self.node.coordinator_count.now(deadline))
        return self.node.looking.coordinators.query_each(coordinators, coordinator_stats, deadline)

    def scale_transaction_coordinators(self, count: int) -> None:
        """Raises the number of coordinators; serving processes take new ones up within half a minute. Open transactions
        keep theirs. Raises InvalidConfiguration: there are more now (there can never be fewer), or above 1,024.

        Source: `Transactions.scaleTransactionCoordinators`.
        """
        self.node.coordinator_count.grow(count, self._deadline())

    def get_coordinator_stats(self, coordinator: int) -> CoordinatorStats:
        """Raises InvalidConfiguration: there is no such coordinator."""
        return self._query(coordinator, coordinator_stats, self._deadline())

    def list_transactions(self, coordinator: int | None = None, *, finished: bool = False) -> list[TransactionInfo]:
        """Unfinished transactions, the oldest first; with `finished` also finished ones that are not forgotten (after a
        minute). Not in Pulsar. Raises the errors of `get_coordinator_stats`."""

        def listed(state: CoordinatorState) -> list[TransactionInfo]:
            return [transaction_info(each) for each in state.transactions() if finished or not each.finished]

        return self._of_coordinators(coordinator, listed)

    def get_slow_transactions(self, at_least_ms: int, coordinator: int | None = None) -> list[TransactionInfo]:
        """Transactions that are unfinished this long after they were opened, the oldest first. Raises the errors of
        `get_coordinator_stats`."""
        now_ms = self.node.clock.now_ms()
        return self._of_coordinators(coordinator, lambda state: slow_transactions(state, now_ms, at_least_ms))

    def get_transaction_metadata(self, txn: TxnId | str) -> TransactionDetails:
        """One transaction, with what is on record of it in every partition and subscription that takes part.

        Raises:
            TransactionNotFound: it never was, or it is over and forgotten.
            InvalidConfiguration: this is no id of a transaction.
        """
        listed, deadline = _txn_id(txn), self._deadline()
        info = self._query(listed.coordinator, lambda state: _known(state, listed), deadline)
        topics: dict[str, Topic | None] = {}
        for name in {*(each.topic for each in info.partitions), *(each.topic for each in info.subscriptions)}:
            topics[name] = self.node.topics.find(TopicName.parse(name), deadline)
        buffers, gone = self._in_buffers(info, topics, deadline)
        pending_acks, gone_too = self._in_pending_acks(info, topics, deadline)
        left_ms = info.timeout_at_ms - self.node.clock.now_ms() if info.status is OPEN else None
        return TransactionDetails(info, left_ms, buffers, pending_acks, (*gone, *gone_too))

    def get_transaction_buffer_stats(self, topic: str) -> list[PartitionBufferStats]:
        """The contents of the buffers of a topic's partitions. Raises TopicNotFound."""
        deadline = self._deadline()
        return self._buffer_stats(self._topic_around(topic, deadline), deadline)

    def list_transactions_in_buffer(self, topic: str) -> list[TransactionInBuffer]:
        """Every transaction that the buffers of a topic's partitions have anything on record of. Ours, not Pulsar's.
        Raises TopicNotFound."""
        deadline = self._deadline()
        opened = self._topic_around(topic, deadline)
        return self.node.looking.buffers.query(
            str(opened.name),
            lambda entries: [found for where in _places(opened) for found in all_in_buffer(entries, where)],
            deadline,
        )

    def get_pending_ack_stats(self, topic: str, subscription: str) -> list[PendingAckStats]:
        """The acknowledgements that transactions hold on a subscription, by partition. Raises TopicNotFound,
        SubscriptionNotFound."""
        deadline = self._deadline()
        full, cursors = self._cursor_names(topic, subscription, deadline)
        return self.node.looking.pending_acks.query(
            full,
            lambda log: [pending_ack_stats(log.cursor(name), name, life) for name, life in cursors],
            deadline,
        )

    def list_transactions_in_pending_ack(self, topic: str, subscription: str) -> list[TransactionInPendingAck]:
        """Every transaction that holds something of a subscription. Ours, not Pulsar's. Raises as
        `get_pending_ack_stats`."""
        deadline = self._deadline()
        full, cursors = self._cursor_names(topic, subscription, deadline)
        return self.node.looking.pending_acks.query(
            full,
            lambda log: [
                found for name, life in cursors for found in all_in_pending_acks(log.cursor(name), name, life)
            ],
            deadline,
        )

    def verify_transaction_buffer(
        self, topic: str, *, progress: Callable[[int, int], None] | None = None
    ) -> Iterator[VerifiedBuffer]:
        """Reads each partition's data, rebuilds its buffer from the markers there, and compares it with the recorded
        one.

        Takes as long as reading all of the topic does; memory: bitmaps of the transactional records of one partition.
        `progress` receives the numbers of finished and of all offsets. Not in Pulsar. Raises TopicNotFound.
        """
        with pulsar_errors():
            deadline = self._deadline()
            opened = self._topic_around(topic, deadline)
            check = BufferCheck(self.node, opened, progress or (lambda done, total: None), deadline)
            for partition in range(opened.partitions):
                yield check.verified(partition)

    def abort_transaction(self, txn: TxnId | str) -> None:
        """Aborts a transaction, as its program or its time-out would: its messages are never delivered, and its
        acknowledged messages are redelivered. An aborted one stays so.

        Raises:
            TransactionNotFound: it never existed, or it ended and was forgotten.
            InvalidTxnStatusError: it is committed, or being committed.
            Timeout: its coordinator did not reply in time; it may be aborted or not.
            InvalidConfiguration: this is no id of a transaction.
        """
        listed, deadline = _txn_id(txn), self._deadline()
        self._query(listed.coordinator, lambda state: _known(state, listed), deadline)
        self.node.transactions.end(listed, commit=False, deadline=deadline)

    def _query(self, coordinator: int, question: Callable[[CoordinatorState], T], deadline: Deadline) -> T:
        """Raises InvalidOption: there is no such coordinator."""
        last = self.node.coordinator_count.now(deadline) - 1
        if not 0 <= coordinator <= last:
            raise errors.InvalidOption(f"coordinators are 0 to {last}, got {coordinator}")
        [answer] = self.node.looking.coordinators.query_each([coordinator], question, deadline)
        return answer

    def _transactions_in(self, topic: Topic, deadline: Deadline) -> tuple[int, int]:
        """(ongoing, aborted), over all partitions; none where this user may not look."""
        try:
            found = self._buffer_stats(topic, deadline)
        except errors.NotAuthorized:
            return 0, 0
        return sum(each.ongoing for each in found), sum(each.aborted for each in found)

    def _buffer_stats(self, topic: Topic, deadline: Deadline) -> list[PartitionBufferStats]:
        return self.node.looking.buffers.query(
            str(topic.name), lambda entries: [buffer_stats(entries, where) for where in _places(topic)], deadline
        )

    def _of_coordinators(
        self, coordinator: int | None, question: Callable[[CoordinatorState], list[TransactionInfo]]
    ) -> list[TransactionInfo]:
        deadline = self._deadline()
        if coordinator is not None:
            answers = [self._query(coordinator, question, deadline)]
        else:
            coordinators = range(self.node.coordinator_count.now(deadline))
            answers = self.node.looking.coordinators.query_each(coordinators, question, deadline)
        found = [info for answer in answers for info in answer]
        return sorted(found, key=lambda info: (info.opened_at_ms, info.id))

    def _in_buffers(
        self, info: TransactionInfo, topics: Mapping[str, Topic | None], deadline: Deadline
    ) -> tuple[tuple[TransactionInBuffer, ...], list[TopicPartition]]:
        found: list[TransactionInBuffer] = []
        gone: list[TopicPartition] = []
        for each in info.partitions:
            topic = topics[each.topic]
            if topic is None:
                gone.append(each)
                continue
            where = DataPartition(each.topic, each.partition, topic.layout.incarnation)
            found.append(
                self.node.looking.buffers.query(each.topic, partial(in_buffer, where=where, txn=info.id), deadline)
            )
        return tuple(found), gone

    def _in_pending_acks(
        self, info: TransactionInfo, topics: Mapping[str, Topic | None], deadline: Deadline
    ) -> tuple[tuple[TransactionInPendingAck, ...], list[TopicSubscription]]:
        found: list[TransactionInPendingAck] = []
        gone: list[TopicSubscription] = []
        for each in info.subscriptions:
            topic = topics[each.topic]
            subscription = None
            if topic is not None:
                subscription = self.node.subscriptions.find(topic, each.subscription, deadline)
            if topic is None or subscription is None:
                gone.append(each)
                continue
            name = CursorName(*each)
            life = CursorIncarnation(topic.layout.incarnation, subscription.life(each.partition))
            question = partial(_in_log, name=name, life=life, txn=info.id)
            found.append(self.node.looking.pending_acks.query(each.topic, question, deadline))
        return tuple(found), gone

    def _cursor_names(
        self, topic: str, subscription: str, deadline: Deadline
    ) -> tuple[str, list[tuple[CursorName, CursorIncarnation]]]:
        opened = self._topic_around(topic, deadline)
        found = self._recorded_subscription(opened, subscription, deadline)
        full = str(opened.name)
        return full, [
            (
                CursorName(full, partition, found.name),
                CursorIncarnation(opened.layout.incarnation, found.life(partition)),
            )
            for partition in found.served
        ]


def _known(state: CoordinatorState, txn: TxnId) -> TransactionInfo:
    found = state.transaction(txn)
    if found is not None:
        return transaction_info(found)
    if txn.least_bits > state.highest_id:
        raise errors.TransactionNotFound(
            f"transaction {txn} was never begun: the last one of coordinator {txn.coordinator} is "
            f"{'none yet' if state.highest_id < 0 else txn_id(txn.coordinator, state.highest_id)}"
        )
    raise errors.TransactionNotFound(f"transaction {txn} is over, and forgotten by coordinator {txn.coordinator}")


def _in_log(log: PendingAckLog, name: CursorName, life: CursorIncarnation, txn: TxnId) -> TransactionInPendingAck:
    return in_pending_acks(log.cursor(name), name, life, txn)


def _places(topic: Topic) -> list[DataPartition]:
    return [
        DataPartition(str(topic.name), partition, topic.layout.incarnation) for partition in range(topic.partitions)
    ]


def _txn_id(txn: TxnId | str) -> TxnId:
    """Raises InvalidOption: no id of a transaction of any coordinator."""
    try:
        found = TxnId.parse(txn) if isinstance(txn, str) else txn
    except MappingError as error:
        raise errors.InvalidOption(str(error)) from error
    if found != txn_id(found.coordinator, found.least_bits) or found.coordinator >= MAX_COORDINATORS:
        raise errors.InvalidOption(
            f"{found} is no id of a transaction: the most significant half is that of a coordinator, n * 2^48 with n "
            f"from 0 to {MAX_COORDINATORS - 1}"
        )
    return found
