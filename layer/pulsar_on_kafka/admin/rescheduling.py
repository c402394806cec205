"""Rescheduled messages: the part of `AdminClient` that gives delayed messages another delivery time.

A stored message never changes. So a copy with the new time is sent, and the original is cancelled, in one transaction.
The copy reaches every subscription. On those that did not wait for the original, the same transaction acknowledges it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from pulsar_on_kafka.admin.cancelling import CancelAdmin, Selection
from pulsar_on_kafka.admin.context import raising_pulsar_errors
from pulsar_on_kafka.admin.messages import MessageAdmin, reader_of
from pulsar_on_kafka.admin.redriving import REPEATABLE, give_up
from pulsar_on_kafka.admin.stored.pending_scan import FoundAcks, PendingMessage
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.publishing.arguments import of_type
from pulsar_on_kafka.broker.publishing.in_flight import SendResult
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.broker.publishing.transactional_sends import Transaction
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.consumer.dead_letters import LetterProducers
from pulsar_on_kafka.client.reader.reader import Reader
from pulsar_on_kafka.client.values.message import BatchedMessage, Message
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.names.subscription_group import cluster_of
from pulsar_on_kafka_mapping.names.topic_name import TopicName

_log: Final = logging.getLogger(__name__)

MESSAGES_PER_TRANSACTION: Final = 100
_BYTES_PER_TRANSACTION: Final = 8 * 1024 * 1024
_TRANSACTION_MS: Final = 60_000
_ATTEMPTS: Final = 5
_JUMP: Final = 5_000
"""Offsets that are read through; beyond that a new reader begins at the message."""


@dataclass(frozen=True, slots=True)
class _Original:
    """A message to be rescheduled, as it was found and as it was read."""

    pending: PendingMessage
    message: Message


@raising_pulsar_errors
class RescheduleAdmin(CancelAdmin, MessageAdmin):
    """Source: ours; Pulsar has nothing like it."""

    def reschedule_messages(
        self,
        topic: str,
        *,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
        subscription: str | None = None,
        message_ids: Sequence[object] = (),
        key: str | None = None,
        properties: Mapping[str, str] | None = None,
        delayed: bool = False,
        transaction: Transaction | None = None,
    ) -> int:
        """Gives messages whose delivery time has not come another one, on a subscription or on all of a topic. Returns
        their number. Other messages stay as they are.

        Each message gets a new id: a copy with the same content, key, properties, schema, event time and encryption is
        sent to its partition, and the original is cancelled, in one transaction. Subscriptions that have acknowledged
        the original, or are not meant, do not get the copy. Those that are created meanwhile may get it, and readers
        see both. The copy is not replicated: other clusters keep the original. If a message becomes due meanwhile, a
        consumer may hold it, and the copy is delivered as well.

        Args:
            deliver_at: the new time, Unix time in ms; a past one delivers at once.
            deliver_after: instead of it, the time from now.
            transaction: the new times count when it commits; otherwise each 100 messages have a transaction of their
                own. Others: as of `find_messages`.

        Raises:
            NotAllowedError: a message is in chunks. Those before it may be rescheduled.
            TransactionConflict: a message was acknowledged meanwhile, repeatedly or in the given transaction.
            Timeout: a part was not done in time, as a message behind an open transaction, which cannot be read. The
                call may be repeated; a given transaction can only be aborted, as after all other errors.
            Others: as `cancel_messages`, and of `Client.create_producer` and `Producer.send`.
        """
        at_ms = self._time(deliver_at, deliver_after)
        found = self._selection(topic, subscription, message_ids, key, properties, delayed=delayed)
        selection = replace(found, filter=replace(found.filter, due_after_ms=self.node.clock.now_ms()))
        if transaction is not None:
            self._check_transaction(transaction, topic)
        self._save_cursors(selection)
        done = 0
        with self._session(transactions=transaction is None) as session:
            producers = LetterProducers(session, "of rescheduled messages")
            try:
                for originals in _together(self._pending(selection), _Originals(session, selection.topic)):
                    if transaction is None:
                        done += self._moved(originals, selection, at_ms, session, producers)
                    else:
                        self._move_in(transaction, originals, selection, at_ms, producers)
                        done += len(originals)
            finally:
                producers.close()
        return done

    def _time(self, deliver_at: int | None, deliver_after: timedelta | None) -> int:
        """Raises InvalidOption, TypeError."""
        if (deliver_at is None) == (deliver_after is None):
            raise errors.InvalidOption("reschedule_messages takes either deliver_at or deliver_after")
        if deliver_after is not None:
            of_type(timedelta, "deliver_after", deliver_after)
            return max(0, self.node.clock.now_ms() + deliver_after // timedelta(milliseconds=1))
        of_type(int, "deliver_at", deliver_at)
        if deliver_at is None or deliver_at < 0:
            raise errors.InvalidOption(f"deliver_at is {deliver_at}, expected Unix time in ms, 0 or more")
        return deliver_at

    def _moved(
        self,
        originals: Sequence[_Original],
        selection: Selection,
        at_ms: int,
        session: Session,
        producers: LetterProducers,
    ) -> int:
        """Moves messages in a transaction of their own; a failed one is repeated for those that are still pending."""
        for attempt in range(_ATTEMPTS):
            if not originals:
                break
            txn = session.new_transaction(_TRANSACTION_MS)
            try:
                self._move_in(txn, originals, selection, at_ms, producers)
                txn.commit()
            except REPEATABLE as failure:
                _log.info("transaction=%s reschedules nothing: %s", txn, failure)
                give_up(txn)
                if attempt + 1 == _ATTEMPTS:
                    raise
                originals = self._still_pending(originals, selection)
            except BaseException:
                give_up(txn)
                raise
            else:
                return len(originals)
        return 0

    def _still_pending(self, originals: Sequence[_Original], selection: Selection) -> list[_Original]:
        ids = [each.pending.found.message_id for each in originals]
        name = TopicName.parse(str(selection.topic.name))
        named = self._named(name, selection.topic, ids)
        again = replace(selection, named=named, partitions=[originals[0].pending.partition])
        self._save_cursors(again)
        left = {(each.offsets[0], each.index): each for each in self._pending(again)}
        places = [(each.pending.offsets[0], each.pending.index) for each in originals]
        return [
            _Original(left[place], each.message) for place, each in zip(places, originals, strict=True) if place in left
        ]

    def _move_in(
        self,
        txn: Transaction,
        originals: Sequence[_Original],
        selection: Selection,
        at_ms: int,
        producers: LetterProducers,
    ) -> None:
        """Raises: see `reschedule_messages`; the transaction can only be aborted then."""
        with pulsar_errors():
            olds: dict[str, FoundAcks] = {}
            for each in originals:
                for name in each.pending.found.subscriptions:
                    olds.setdefault(name, FoundAcks()).add(each.pending)
            for name, acks in olds.items():  # first, so that no copy is sent of a message that was acknowledged
                self._hold(txn, selection.subscriptions[name], acks)
            topic = selection.topic
            copies = _sent(txn, originals, topic, at_ms, producers)
            for subscription in self._all_subscriptions(topic):
                acks = FoundAcks()
                for each, copy in zip(originals, copies, strict=True):
                    partition, offset = each.pending.partition, self._offset_of_copy(topic, each.pending, copy)
                    waits = subscription.name in each.pending.found.subscriptions
                    if not waits and partition in subscription.served:
                        acks.add(PendingMessage(each.pending.found, partition, [offset], -1, 0))
                self._hold(txn, subscription, acks)

    def _all_subscriptions(self, topic: Topic) -> list[Subscription]:
        return [each for each in self._subscriptions(topic, self._deadline()) if cluster_of(each.name) is None]

    def _offset_of_copy(self, topic: Topic, pending: PendingMessage, copy: NativeMessageId) -> int:
        if copy.first_chunk() is not None:
            raise errors.Refused(f"the copy of message {pending.found.message_id} was sent in chunks")
        return topic.layout.kafka_offset(pending.partition, copy.ledger_id(), copy.entry_id())


class _Originals:
    """Reads messages at ascending offsets, partition by partition. Memory: a reader's."""

    def __init__(self, session: Session, topic: Topic) -> None:
        self._session = session
        self._topic = topic
        self._partition = -1
        self._reader: Reader | None = None
        self._next = 0

    def read(self, pending: PendingMessage) -> Message | None:
        """None: nothing is stored there any more. Raises as `Reader.read_next`."""
        offset = pending.offsets[0]
        reader = self._reader
        if reader is None or self._partition != pending.partition or offset - self._next > _JUMP:
            reader = self._opened(pending.partition, offset)
        while True:
            message = reader.read_next(round(self._session.operation_timeout_s * 1000))
            self._next = message.offset + 1
            index = message.batch_index if isinstance(message, BatchedMessage) else -1
            if (message.offset, index) == (offset, pending.index):
                return message
            if message.offset > offset:
                self._partition = -1
                return None

    def _opened(self, partition: int, offset: int) -> Reader:
        if self._reader is not None:
            self._reader.close()
        topic = self._topic
        self._partition = partition
        self._reader = reader_of(self._session, _place(topic, partition), NativeMessageId.earliest, {partition: offset})
        return self._reader


def _place(topic: Topic, partition: int) -> str:
    """The partition's own name; the topic's without partitions."""
    return topic.partition_names[partition] if topic.partitioned else str(topic.name)


def _together(found: Iterator[PendingMessage], originals: _Originals) -> Iterator[list[_Original]]:
    """Messages of one partition that go in one transaction. Raises Refused: one is in chunks."""
    group: list[_Original] = []
    size = 0
    for pending in found:
        if len(pending.offsets) > 1:
            raise errors.Refused(
                f"message {pending.found.message_id} is in {counted(len(pending.offsets), 'chunk')}: it can be "
                "cancelled, not rescheduled"
            )
        message = originals.read(pending)
        if message is None:
            continue
        full = len(group) == MESSAGES_PER_TRANSACTION or size >= _BYTES_PER_TRANSACTION
        if group and (full or group[0].pending.partition != pending.partition):
            yield group
            group, size = [], 0
        group.append(_Original(pending, message))
        size += len(message.payload() or b"")
    if group:
        yield group


def _sent(
    txn: Transaction, originals: Sequence[_Original], topic: Topic, at_ms: int, producers: LetterProducers
) -> list[NativeMessageId]:
    """Sends copies with another delivery time to their partitions; returns their ids."""
    answers: list[SendResult] = []
    for each in originals:
        message = each.message
        place = _place(topic, each.pending.partition)
        answers.append(SendResult())
        producers.send_copy(
            message, place, message.properties(), answers[-1], deliver_at=at_ms, disable_replication=True, txn=txn
        )
    return [answer.answer() for answer in answers]
