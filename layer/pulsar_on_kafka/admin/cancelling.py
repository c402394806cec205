"""Cancelled messages: the part of `AdminClient` that finds messages which wait for delivery, and takes them back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from pulsar_on_kafka.admin.context import raising_pulsar_errors
from pulsar_on_kafka.admin.cursors import check_persistent
from pulsar_on_kafka.admin.entries import EntryAdmin
from pulsar_on_kafka.admin.stored.message_filter import MessageFilter, NamedMessages, checked_filter
from pulsar_on_kafka.admin.stored.partition_entries import PartitionEntries
from pulsar_on_kafka.admin.stored.pending_scan import FoundAcks, FoundMessage, PendingMessage, PendingScan
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.ledger_acks import of_offsets
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.publishing.arguments import of_type
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.broker.publishing.transactional_sends import Transaction
from pulsar_on_kafka.client.values.message_id import native
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.names.subscription_group import cluster_of
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import SaveNow
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnAck

MESSAGES_AT_ONCE: Final = 100_000
"""Messages that a cancellation finds before it acknowledges them."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Messages of a topic that a call is about, and the subscriptions that it looks at."""

    topic: Topic
    partitions: Sequence[int]
    subscriptions: Mapping[str, Subscription]
    filter: MessageFilter
    named: Mapping[int, NamedMessages] | None
    """By partition; None without ids."""


@dataclass(slots=True)
class _Piece:
    """Messages that are cancelled together, by subscription."""

    acks: dict[str, FoundAcks] = field(default_factory=dict)
    messages: int = 0

    def add(self, message: PendingMessage) -> None:
        self.messages += 1
        for name in message.found.subscriptions:
            self.acks.setdefault(name, FoundAcks()).add(message)


@raising_pulsar_errors
class CancelAdmin(EntryAdmin):
    """A message is named by its id, its key, its properties, or as a delayed one; all that are given must hold.

    Source: ours; Pulsar has nothing like it. The operation timeout is that of each block that is read, and of each
    request, not of the whole call.
    """

    def find_messages(
        self,
        topic: str,
        *,
        subscription: str | None = None,
        message_ids: Sequence[object] = (),
        key: str | None = None,
        properties: Mapping[str, str] | None = None,
        delayed: bool = False,
    ) -> Iterator[FoundMessage]:
        """Finds messages that some subscription of a topic, or of one partition, has not acknowledged. Changes nothing.

        Reads from the oldest unacknowledged message to the log's end at the time of the call, without values, as the
        cursors were last saved. Messages of open transactions are passed over. Memory: see `PendingScan`.

        Args:
            subscription: look at this one only; otherwise at all of the topic, without those of replicators.
            message_ids: only these, up to 100,000.
            key: only messages with this partition key.
            properties: only messages with all of these properties.
            delayed: only messages whose delivery time has not come.

        Raises:
            TopicNotFound, SubscriptionNotFound: there is none.
            InvalidConfiguration: nothing is named.
            InvalidMessage: an id is of another topic. NotAllowedError: of another partition than the named one.
            Timeout: a part of the log was not read in time; the messages found before are the caller's.
        """
        selection = self._selection(topic, subscription, message_ids, key, properties, delayed=delayed)
        return self._raising(self._pending(selection))

    def cancel_messages(
        self,
        topic: str,
        *,
        subscription: str | None = None,
        message_ids: Sequence[object] = (),
        key: str | None = None,
        properties: Mapping[str, str] | None = None,
        delayed: bool = False,
        transaction: Transaction | None = None,
    ) -> dict[str, int]:
        """Acknowledges messages on a subscription, or on all of a topic, so that they are not delivered any more.
        Returns how many were cancelled, by subscription, without those that lost none.

        The messages are those of `find_messages`, with the same arguments. The owner of each cursor acknowledges them,
        or this process where there is none. They are durably cancelled when this returns. A message that a consumer
        has received, or that is in its inbox, stays with that consumer: its acknowledgement changes nothing, and its
        refusal or its loss does not bring the message back. A message in chunks counts as its chunks.

        Args:
            transaction: the messages are held, and are cancelled when it commits. When it aborts, they are delivered as
                before, those that a consumer held once more.

        Raises:
            Timeout: some messages are cancelled, and the call may be repeated. A transaction can only be aborted then,
                and after each of the following.
            TransactionConflict: a message was acknowledged meanwhile, or another transaction holds it.
            InvalidTxnStatusError, TransactionNotFound: the transaction is not open.
            InvalidConfiguration: the transaction is of another Kafka cluster. Others: as `find_messages`.
        """
        selection = self._selection(topic, subscription, message_ids, key, properties, delayed=delayed)
        if transaction is not None:
            self._check_transaction(transaction, topic)
            self._save_cursors(selection)
        done: Counter[str] = Counter()
        for piece in self._pieces(self._pending(selection)):
            for name, acks in piece.acks.items():
                on = selection.subscriptions[name]
                if transaction is None:
                    done[name] += self._acknowledged(on, acks)
                else:
                    self._hold(transaction, on, acks)
                    done[name] += acks.messages
        return {name: count for name, count in sorted(done.items()) if count}

    # Inside -------------------------------------------------------------------------------------------------------

    def _selection(
        self,
        topic: str,
        subscription: str | None,
        message_ids: Sequence[object],
        key: str | None,
        properties: Mapping[str, str] | None,
        *,
        delayed: bool,
    ) -> Selection:
        due_after_ms = self.node.clock.now_ms() if delayed else None
        requested = checked_filter(key, properties, due_after_ms, message_ids)
        deadline = self._deadline()
        found = self._topic_around(topic, deadline)
        check_persistent(found)
        name = TopicName.parse(topic)
        if name.partition >= 0:
            self._check_partition(found, name)
        partitions = [name.partition] if name.partition >= 0 else list(range(found.partitions))
        if subscription is not None:
            on = [self._subscription(str(name.base), subscription, deadline)]
        else:
            on = [each for each in self._subscriptions(found, deadline) if cluster_of(each.name) is None]
        named = self._named(name, found, message_ids) if message_ids else None
        if named is not None:
            partitions = [partition for partition in partitions if partition in named]
        return Selection(found, partitions, {each.name: each for each in on}, requested, named)

    def _named(self, name: TopicName, topic: Topic, message_ids: Sequence[object]) -> dict[int, NamedMessages]:
        """Raises InvalidOption, InvalidCursorPosition, MappingError."""
        found: dict[int, NamedMessages] = {}
        for message_id in message_ids:
            requested = native(message_id)
            if requested is None:
                raise errors.InvalidOption(f"expected message ids, got {type(message_id).__name__}")
            partition, offset = self._entry_of(name, topic, requested)
            first = requested.first_chunk()
            begin = None if first is None else topic.layout.kafka_offset(partition, *first)
            found.setdefault(partition, NamedMessages()).add(offset, requested.batch_index(), begin)
        return found

    def _entry_of(self, name: TopicName, topic: Topic, message_id: NativeMessageId) -> tuple[int, int]:
        """The partition and the offset of an entry, of a message in chunks that of its last one."""
        partition = message_id.partition() if message_id.partition() >= 0 else max(0, name.partition)
        if name.partition >= 0 and partition != name.partition:
            raise errors.InvalidCursorPosition(
                f"id {message_id} names partition {partition}, expected {name.partition}"
            )
        return partition, topic.layout.kafka_offset(partition, message_id.ledger_id(), message_id.entry_id())

    def _pending(self, selection: Selection) -> Iterator[PendingMessage]:
        topic = selection.topic
        settled: set[str] = set()
        for partition in selection.partitions:
            deadline = self._deadline()
            entries = PartitionEntries(self.node, topic, partition, deadline)
            cursors: dict[str, CursorState] = {}
            for name, subscription in selection.subscriptions.items():
                if partition not in subscription.served:
                    continue
                try:
                    if name not in settled:
                        self.node.memberships.live_cursors.settle_transactions(subscription, deadline)
                        settled.add(name)
                    starts = {partition: entries.start}
                    cursors[name] = self._whole_cursors(subscription, starts, deadline)[partition].state
                except errors.NoSuchSubscription:
                    if not subscription.non_durable:
                        raise
            if cursors:
                named = None if selection.named is None else selection.named[partition]
                yield from PendingScan(topic, partition, entries, cursors, selection.filter, named, self._deadline)

    def _pieces(self, messages: Iterator[PendingMessage]) -> Iterator[_Piece]:
        piece = _Piece()
        for message in messages:
            piece.add(message)
            if piece.messages == MESSAGES_AT_ONCE:
                yield piece
                piece = _Piece()
        if piece.messages:
            yield piece

    def _acknowledged(self, subscription: Subscription, acks: FoundAcks) -> int:
        size = subscription.topic.layout.entries_per_ledger
        ledgers = {partition: of_offsets(*acks.of(partition), size) for partition in acks.partitions()}
        try:
            return self.node.memberships.acknowledge(subscription, ledgers, self._deadline()).messages
        except errors.NoSuchSubscription:
            if not subscription.non_durable:
                raise
            return 0  # it ended with its last consumer

    def _check_transaction(self, transaction: Transaction, topic: str) -> None:
        """Raises TypeError, InvalidConfiguration."""
        of_type(Transaction, "transaction", transaction)
        transaction.check_cluster(self.node.cluster_id, f"topic {topic}")

    def _save_cursors(self, selection: Selection) -> None:
        """Have owners save what was acknowledged, so that a transaction does not conflict with it."""
        for subscription in selection.subscriptions.values():
            commands = {partition: SaveNow() for partition in selection.partitions}
            with suppress(errors.NoSuchSubscription):
                self._move(subscription, commands, self._deadline())

    def _hold(self, transaction: Transaction, subscription: Subscription, acks: FoundAcks) -> None:
        """Have a transaction hold these acknowledgements. A failure lets it be aborted only."""
        inner = transaction._inner
        for partition in acks.partitions():
            inner.begin_operation()
            try:
                transaction.register_subscription(str(subscription.topic.name), partition, subscription.name)
                ack = TxnAck(*acks.of(partition))
                holding = self.node.memberships.transaction_holding
                holding.hold(subscription, partition, inner.id, ack, self._deadline())
            except BaseException as reason:
                inner.end_operation(f"a cancellation failed: {reason}")
                raise
            inner.end_operation()

    def _raising(self, messages: Iterator[PendingMessage]) -> Iterator[FoundMessage]:
        """These messages, with the official exceptions."""
        while True:
            with pulsar_errors():
                message = next(messages, None)
            if message is None:
                return
            yield message.found
