"""Changing the cursors of a subscription, whoever owns them: a member of this process, of another one, or nobody.

Whoever owns a partition is asked by a record in `deliveries`, again and again until it answers or time is over, because
the owner may change. A request has an id, which is saved with its effect, so it takes effect once. Without live members
the change is a save of our own, in the same form. After a time-out it may have taken effect or not, or may still.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import ExitStack
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline, pause
from pulsar_on_kafka.base.processes import is_over
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.ledger_acks import LedgerAcks, below, pieces
from pulsar_on_kafka.broker.cursor.saved_cursor import RecoveredCursor, Save, UnreadableCursor
from pulsar_on_kafka.broker.cursor.store import CursorStore
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.subscriptions.member.member import SubscriptionMember
from pulsar_on_kafka.broker.subscriptions.requests.channel import DeliveryChannel, DeliveryRecord, OutgoingRecord
from pulsar_on_kafka.broker.subscriptions.requests.idle_cursors import IdleCursors, IdleReading, IdleTransactions
from pulsar_on_kafka.broker.transactions.records.pending_ack_journal import PendingAckJournal
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.kafka.records import GroupMember
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import (
    ALL_MEMBERS,
    Acknowledge,
    AcknowledgeUpTo,
    CloseConsumers,
    ConsumersTold,
    CursorLife,
    CursorReply,
    Request,
    SaveNow,
    Seek,
    Skip,
    TellConsumers,
    Wish,
    encode_request,
)
from pulsar_on_kafka_mapping.state.cursors.cursor_state import REQUEST_ID_BYTES, Deliveries
from pulsar_on_kafka_mapping.state.state_keys import DeliveryKey
from pulsar_on_kafka_mapping.state.state_topics import DELIVERIES

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 2.0
_BUSY_PAUSE_S: Final = 0.1
_TELL_S: Final = 3.0
_OF_NO_ENTRY: Final = TellConsumers()


class LiveCursors:
    """Thread-safe. Memory: what is asked for, while somebody waits for it."""

    def __init__(
        self,
        channel: DeliveryChannel,
        admin: KafkaAdmin,
        store: CursorStore,
        journal: PendingAckJournal,
        idle: IdleCursors,
        members_here: Callable[[Subscription], list[SubscriptionMember]],
        joining: Callable[[Subscription, Deadline], Collection[str]],
    ) -> None:
        """`members_here`: this process's own memberships of a subscription. `joining`: see `Subscriptions.joining`."""
        self._channel = channel
        self._admin = admin
        self._store = store
        self._transactions = IdleTransactions(journal, idle, store)
        self._idle = idle
        self._members_here = members_here
        self._joining = joining

    def change(self, subscription: Subscription, wishes: Mapping[int, Wish], deadline: Deadline) -> dict[int, int]:
        """Have these wishes fulfilled, by partition; gives their results when all are durable.

        Raises:
            DeadlineExceeded: an owner did not answer, or nobody owned a partition; each wish may be fulfilled or not.
            Refused: an owner says that it cannot be.
            NotAuthorized: `deliveries` may not be read or written by this client.
            StoreError: this process owns a partition, or nobody does, and it could not be saved.
        """
        asked = _Asked(subscription, wishes)
        pause_s = _FIRST_PAUSE_S
        with ExitStack() as stack:
            while True:
                self._ask_here(subscription, asked, deadline)
                if not asked.left():
                    return asked.results()
                members = self._members(subscription, deadline)
                if members:
                    if not asked.heard_of:
                        self._listen(stack, asked, deadline)
                    if records := asked.records():  # an answer may have come just now
                        self._channel.write(records, deadline)
                    asked.wait(min(pause_s, deadline.remaining_s()))
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                else:
                    self._change_idle(subscription, asked, deadline)
                    asked.wait(min(_a_while(), deadline.remaining_s()))
                if asked.left() and deadline.passed():
                    raise errors.DeadlineExceeded(_late(subscription, asked.left(), members))

    def settle_transactions(self, subscription: Subscription, deadline: Deadline) -> bool:
        """Have cursors saved on which transactions were committed, or aborted, that are not taken in yet, by their
        owners or in the place of none; whether there were any. Raises as `change`."""
        pending = self._transactions.pending(subscription, deadline)
        wishes: dict[int, Wish] = {p: SaveNow() for p, each in pending.items() if each.decided}
        if wishes:
            self.change(subscription, wishes, deadline)
        return bool(wishes)

    def held_by_transactions(self, subscription: Subscription, deadline: Deadline) -> frozenset[TxnId]:
        """Open transactions that have acknowledged something. Raises StoreError, Corrupt."""
        pending = self._transactions.pending(subscription, deadline).values()
        return frozenset().union(*(each.open for each in pending))

    def lay_down_deliveries(
        self, subscription: Subscription, deliveries: Mapping[int, Deliveries], deadline: Deadline
    ) -> None:
        """Have cursors that nobody owns know this of deliveries, in the place of what they know.

        Raises:
            SubscriptionBusy: somebody consumes: an owner has its own counts.
            StoreError: it could not be saved; of several partitions some may be.
        """
        while True:
            reading = self._idle.read(subscription, deliveries, deadline)
            cursors = reading.cursors
            changed = {p: cursors[p] for p, wanted in deliveries.items() if cursors[p].state.deliveries != wanted}
            for partition, cursor in changed.items():
                cursor.state.deliveries = deliveries[partition]
            if not changed:
                return
            try:
                self._idle.save(reading, self._prepared(reading, changed, deadline), deadline)
            except (errors.Fenced, errors.CommitOutcomeUnknown):
                deadline.check(f"deliveries of subscription {subscription.name} to be laid down")
                pause(_a_while())
            else:
                return

    def close_consumers(
        self, subscriptions: Sequence[Subscription], deadline: Deadline, *, topic_deleted: bool = False
    ) -> None:
        """End every consumer of these subscriptions, whatever process it is in; returns when their groups are empty.
        `topic_deleted`: because their topic is; then members of this host's dead processes are not waited for.

        Raises:
            DeadlineExceeded: some stay; they may lack the right to read `deliveries`.
        """
        pause = threading.Event()
        next_request = Deadline.after(0)
        left = [(each, self._members(each, deadline)) for each in subscriptions]
        while left := [(each, members) for each, members in left if _to_close(members, topic_deleted=topic_deleted)]:
            if next_request.passed():
                wish = CloseConsumers(topic_deleted)
                requests = [_to_everybody(each, _request(each, each.incarnation, wish)) for each, _ in left]
                self._channel.write(requests, deadline)
                next_request = Deadline.after(_LONGEST_PAUSE_S)
            pause.wait(min(_BUSY_PAUSE_S, deadline.remaining_s()))
            if deadline.passed():
                raise errors.DeadlineExceeded("; ".join(_late(each, [], members) for each, members in left))
            left = [(each, self._members(each, deadline)) for each, _ in left]

    def consumers(
        self, subscription: Subscription, deadline: Deadline, wish: TellConsumers = _OF_NO_ENTRY
    ) -> dict[str, ConsumersTold | None]:
        """What every live process tells of its consumers, and of who holds the entry of the `wish`, by the client id of
        its membership; None for one that does not tell in time: it hangs, or may not read `deliveries`.

        Raises:
            NotAuthorized: `deliveries` may not be read or written by this client.
        """
        members = {
            member.client_id for member in self._members(subscription, deadline) if not is_over(member.client_id)
        }
        members.update(self._joining(subscription, deadline))  # their group may not show them yet
        if not members:
            return {}
        topic, told = str(subscription.topic.name), dict[str, ConsumersTold]()
        request = _request(subscription, subscription.incarnation, wish)
        complete = threading.Event()

        def heard(records: Sequence[DeliveryRecord]) -> None:
            for _, found in self._channel.decoded(records, subscription.name):
                if isinstance(found, ConsumersTold) and found.id == request.id:
                    told[found.member] = found
            if told.keys() >= members:
                complete.set()

        with self._channel.listening(topic, heard, deadline):
            self._channel.write([_to_everybody(subscription, request)], deadline)
            complete.wait(min(_TELL_S, deadline.remaining_s()))
        return {member: told.get(member) for member in sorted(members)}

    # Inside -------------------------------------------------------------------------------------------------------

    def _members(self, subscription: Subscription, deadline: Deadline) -> list[GroupMember]:
        return [m for group in subscription.groups for m in self._admin.describe_group(group, deadline).members]

    def _ask_here(self, subscription: Subscription, asked: _Asked, deadline: Deadline) -> None:
        for member in self._members_here(subscription):
            owned = member.answering_partitions()
            requests = [(partition, request) for partition, request in asked.left().items() if partition in owned]
            if not requests:
                continue
            future = member.execute(requests)
            try:
                answers = future.result(deadline.remaining_s())
            except FutureTimeoutError as late:
                future.cancel()
                raise errors.DeadlineExceeded(
                    f"time ran out while waiting for subscription {subscription.name} to be changed"
                ) from late
            except (errors.Fenced, errors.Closed):
                continue  # somebody else has it now
            for answer in answers:
                if answer is not None:
                    asked.answered(answer)

    def _listen(self, stack: ExitStack, asked: _Asked, deadline: Deadline) -> None:
        def heard(records: Sequence[DeliveryRecord]) -> None:
            for _, found in self._channel.decoded(records, asked.subscription):
                if isinstance(found, CursorReply):
                    asked.answered(found)

        stack.enter_context(self._channel.listening(asked.topic, heard, deadline))
        asked.heard_of = True

    def _change_idle(self, subscription: Subscription, asked: _Asked, deadline: Deadline) -> None:
        """Change cursors that nobody owns, as a take-over and a save; nothing when somebody comes in between."""
        try:
            self._save_idle(subscription, asked, deadline)
            left = asked.left()
            results = self._taken_in(subscription, left, deadline) if left else ()
        except (errors.SubscriptionBusy, errors.Fenced, errors.CommitOutcomeUnknown) as failure:
            _log.debug("subscription=%s %s", subscription.name, failure)
            return
        for answer in results:
            asked.answered(answer)

    def _save_idle(self, subscription: Subscription, asked: _Asked, deadline: Deadline) -> None:
        """What nobody has is saved, but for what transactions did since. Raises as `save`."""
        wanted = {p: each for p, each in asked.left().items() if isinstance(each.wish, SaveNow)}
        pending = self._transactions.pending(subscription, deadline) if wanted else {}
        unsettled = {p for p in wanted if p in pending and pending[p].decided}
        if unsettled:
            reading = self._idle.read(subscription, unsettled, deadline)
            for partition in unsettled & reading.cursors.keys():
                if self._transactions.settle(reading, partition, deadline):
                    reading = self._idle.read(subscription, unsettled, deadline)
        for each in wanted.values():
            asked.answered(CursorReply(each.id))

    def _taken_in(
        self, subscription: Subscription, left: Mapping[int, Request], deadline: Deadline
    ) -> Sequence[CursorReply]:
        """A cursor that cannot be read is moved all the same by a seek, which needs nothing of it. Raises as `save`."""
        forgotten: set[int] = set()
        while True:
            try:
                reading = self._idle.read(subscription, left, deadline, forgotten)
                for partition in [
                    p for p, each in left.items() if isinstance(each.wish, Seek) and p in reading.cursors
                ]:
                    if self._transactions.settle(reading, partition, deadline):
                        reading = self._idle.read(subscription, left, deadline, forgotten)
                results = [
                    CursorReply(left[partition].id, _take_in(cursor.state, left[partition]))
                    for partition, cursor in reading.cursors.items()
                ]
                saves = self._prepared(reading, reading.cursors, deadline)
            except UnreadableCursor as reason:
                partition = reason.partition
                if partition in forgotten or not isinstance(left[partition].wish, Seek):
                    raise
                _log.warning("what it acknowledged above mark-delete is forgotten by a seek: %s", reason)
                forgotten.add(partition)
            else:
                self._idle.save(reading, saves, deadline)
                return results

    def _prepared(
        self, reading: IdleReading, changed: Mapping[int, RecoveredCursor], deadline: Deadline
    ) -> dict[int, Save]:
        """Saves of these cursors by their next version, which wait for their commits."""
        return {
            partition: self._store.take_over(reading.identity(partition), cursor, deadline)
            for partition, cursor in changed.items()
        }


def _a_while() -> float:
    """Seconds until the next attempt: two who try at the same time are not to meet again."""
    return random.uniform(_BUSY_PAUSE_S / 5, 2 * _BUSY_PAUSE_S)


class _Asked:
    """Requests, and which of them were answered. Thread-safe."""

    def __init__(self, subscription: Subscription, wishes: Mapping[int, Wish]) -> None:
        self.topic = str(subscription.topic.name)
        self.subscription = subscription.name
        self.heard_of = False
        """Answers are listened for."""
        self._requests = {
            partition: _request(subscription, subscription.life(partition), wish) for partition, wish in wishes.items()
        }
        self._answers: dict[bytes, CursorReply] = {}
        self._changed = threading.Condition()

    def answered(self, answer: CursorReply) -> None:
        """Answers to others' requests are passed over."""
        with self._changed:
            if any(request.id == answer.id for request in self._requests.values()):
                self._answers.setdefault(answer.id, answer)
                self._changed.notify_all()

    def left(self) -> dict[int, Request]:
        """By partition: what is not answered. Raises Refused."""
        with self._changed:
            for answer in self._answers.values():
                if answer.refused:
                    raise errors.Refused(answer.refused)
            return {p: request for p, request in self._requests.items() if request.id not in self._answers}

    def records(self) -> list[OutgoingRecord]:
        return [
            (DeliveryKey(self.topic, partition, self.subscription), encode_request(request))
            for partition, request in self.left().items()
        ]

    def wait(self, seconds: float) -> None:
        """Until all are answered, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._answers) == len(self._requests), seconds)

    def results(self) -> dict[int, int]:
        with self._changed:
            return {p: self._answers[request.id].result for p, request in self._requests.items()}


def _take_in(state: CursorState, request: Request) -> int:
    """What the owner would do, to a cursor without one."""
    known = state.requests.get(request.id)
    if known is not None:
        return known
    wish, result = request.wish, 0
    match wish:
        case SaveNow() | CloseConsumers() | TellConsumers():
            return 0
        case Seek():
            state.reset(wish.offset)
            state.leased_from = None  # no member lives; what was acknowledged before the seek is not to count behind it
            if wish.begun > 0:
                state.acknowledge_batches({wish.offset: BatchAckSet(wish.batch_size, (1 << wish.begun) - 1)})
        case AcknowledgeUpTo():
            state.acknowledge_cumulative(wish.upto)
        case Acknowledge():
            result, _ = state.acknowledge_ledgers(wish.ledgers)
        case Skip():
            following, result = state.after(wish.count, wish.end)
            if result:
                state.acknowledge_cumulative(following - 1)
    state.took_effect(request.id, result)
    return result


def _request(subscription: Subscription, incarnation: int, wish: Wish) -> Request:
    life = CursorLife(subscription.topic.kafka_topic_id, subscription.topic.layout.incarnation, incarnation)
    return Request(secrets.token_bytes(REQUEST_ID_BYTES), life, wish)


def _to_everybody(subscription: Subscription, request: Request) -> tuple[DeliveryKey, bytes]:
    return DeliveryKey(str(subscription.topic.name), ALL_MEMBERS, subscription.name), encode_request(request)


def _to_close(members: Sequence[GroupMember], *, topic_deleted: bool) -> bool:
    return any(not (topic_deleted and is_over(member.client_id)) for member in members)


def _late(subscription: Subscription, partitions: Iterable[int], members: Sequence[GroupMember]) -> str:
    which = f"partitions {sorted(partitions)} of " if partitions else ""
    who = ", ".join(f"{member.client_id} {member.host}" for member in members) or "nobody"
    return (
        f"time ran out while waiting for {which}subscription {subscription.name} of {subscription.place} to be changed "
        f"by its live members ({who}); they must be able to read and write the state topic {DELIVERIES.name}"
    )


MAX_BYTES_PER_REQUEST: Final = 256 * 1024
"""Of bitmaps and ack sets, before base64; a record holds 1 MB."""


def acknowledge_ledgers(
    cursors: LiveCursors,
    admin: KafkaAdmin,
    subscription: Subscription,
    acks: Mapping[int, LedgerAcks],
    deadline: Deadline,
) -> int:
    """Acknowledge what was read without being a consumer (by Spark), entries and messages of batch entries, by
    partition; gives how many requests that took.

    What is acknowledged already stays so; what lies beyond a log's end is passed over. Large bitmaps take several
    requests, one after the other. Memory: one more copy of what is acknowledged.

    Raises:
        DeadlineExceeded, StoreError: as `LiveCursors.change`; some of it may be acknowledged.
    """
    topic = subscription.topic
    size = topic.layout.entries_per_ledger
    wanted = {partition: ledgers for partition, ledgers in acks.items() if ledgers and partition in subscription.served}
    if not wanted:
        return 0
    ends = admin.end_offsets(topic.kafka_topic, sorted(wanted), deadline)
    left = {
        partition: pieces(below(ledgers, ends[partition], size), MAX_BYTES_PER_REQUEST)
        for partition, ledgers in wanted.items()
    }
    requests = 0
    while wishes := {partition: Acknowledge(piece) for partition, rest in left.items() if (piece := next(rest, None))}:
        cursors.change(subscription, wishes, deadline)
        requests += len(wishes)
    return requests
