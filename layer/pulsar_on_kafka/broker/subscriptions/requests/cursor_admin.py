"""Changes the cursors of a subscription. The owner is a member of this process, or of another one, or there is none.

A request to another owner is a record in `deliveries`. It is resent until the reply or the deadline, because the owner
may change. The request's id is saved with its effect, so it takes effect once. Without live members this process saves
the change itself, in the same form. After a time-out a request may or may not have taken effect, or may still do.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import ExitStack
from typing import Final, NamedTuple

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
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.kafka.records import GroupMember
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import (
    ALL_MEMBERS,
    Acknowledge,
    AcknowledgeUpTo,
    CloseConsumers,
    ConsumersReport,
    CursorCommand,
    CursorLife,
    CursorReply,
    DescribeConsumers,
    Request,
    SaveNow,
    Seek,
    Skip,
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
_OF_NO_ENTRY: Final = DescribeConsumers()


class LiveCursors:
    """Thread-safe. Memory: requests under way."""

    def __init__(
        self,
        channel: DeliveryChannel,
        admin: KafkaAdmin,
        store: CursorStore,
        transactions: IdleTransactions,
        idle: IdleCursors,
        members_here: Callable[[Subscription], list[SubscriptionMember]],
        joining: Callable[[Subscription, Deadline], Collection[str]],
    ) -> None:
        """`members_here`: this process's own memberships of a subscription. `joining`: see `Subscriptions.joining`."""
        self._channel = channel
        self._admin = admin
        self._store = store
        self._transactions = transactions
        self._idle = idle
        self._members_here = members_here
        self._joining = joining

    def change(
        self, subscription: Subscription, commands: Mapping[int, CursorCommand], deadline: Deadline
    ) -> dict[int, int]:
        """Execute these commands, by partition; returns their results when all are durable.

        Raises:
            DeadlineExceeded: no owner replied, or a partition had no owner; each command may have taken effect or not.
            Refused: an owner rejected a command.
            NotAuthorized: this client may not read or write `deliveries`.
            StoreError: a partition of this process, or one without an owner, could not be saved.
        """
        requested = _Asked(subscription, commands)
        pause_s = _FIRST_PAUSE_S
        with ExitStack() as stack:
            while True:
                self._request_here(subscription, requested, deadline)
                if not requested.left():
                    return requested.results()
                members = self._members(subscription, deadline)
                if members:
                    if not requested.received_from:
                        self._listen(stack, requested, deadline)
                    if records := requested.records():  # a reply may have arrived meanwhile
                        self._channel.write(records, deadline)
                    requested.wait(min(pause_s, deadline.remaining_s()))
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                else:
                    self._change_idle(subscription, requested, deadline)
                    requested.wait(min(_a_while(), deadline.remaining_s()))
                if requested.left() and deadline.passed():
                    raise errors.DeadlineExceeded(_late(subscription, requested.left(), members))

    def settle_transactions(self, subscription: Subscription, deadline: Deadline) -> bool:
        """Save cursors with the outcomes of transactions that are not applied yet, by their owners or without one; True
        if there were any. Raises as `change`."""
        pending = self._transactions.pending(subscription, deadline)
        commands: dict[int, CursorCommand] = {p: SaveNow() for p, each in pending.items() if each.decided}
        if commands:
            self.change(subscription, commands, deadline)
        return bool(commands)

    def held_by_transactions(self, subscription: Subscription, deadline: Deadline) -> frozenset[TxnId]:
        """Open transactions with acknowledgements. Raises StoreError, Corrupt."""
        pending = self._transactions.pending(subscription, deadline).values()
        return frozenset().union(*(each.open for each in pending))

    def lay_down_deliveries(
        self, subscription: Subscription, deliveries: Mapping[int, Deliveries], deadline: Deadline
    ) -> None:
        """Replace the delivery counts in cursors without an owner.

        Raises:
            SubscriptionBusy: a consumer is connected: its owner has its own counts.
            StoreError: the counts could not be saved, or only those of some partitions.
        """
        while True:
            reading = self._idle.read(subscription, deliveries, deadline)
            cursors = reading.cursors
            changed = {p: cursors[p] for p, requested in deliveries.items() if cursors[p].state.deliveries != requested}
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
        """Close every consumer of these subscriptions, in any process; returns when their groups are empty.
        `topic_deleted`: the reason; members of this host's dead processes do not count then.

        Raises:
            DeadlineExceeded: some members stay; they may lack the right to read `deliveries`.
        """
        pause = threading.Event()
        next_request = Deadline.after(0)
        left = [(each, self._members(each, deadline)) for each in subscriptions]
        while left := [(each, members) for each, members in left if _to_close(members, topic_deleted=topic_deleted)]:
            if next_request.passed():
                command = CloseConsumers(topic_deleted)
                requests = [_to_all_members(each, _request(each, each.incarnation, command)) for each, _ in left]
                self._channel.write(requests, deadline)
                next_request = Deadline.after(_LONGEST_PAUSE_S)
            pause.wait(min(_BUSY_PAUSE_S, deadline.remaining_s()))
            if deadline.passed():
                raise errors.DeadlineExceeded("; ".join(_late(each, [], members) for each, members in left))
            left = [(each, self._members(each, deadline)) for each, _ in left]

    def consumers(
        self, subscription: Subscription, deadline: Deadline, command: DescribeConsumers = _OF_NO_ENTRY
    ) -> dict[str, ConsumersReport | None]:
        """Every live process's consumers, and the holder of the entry in `command`, by the client id of the membership.
        None for a process that does not reply in time: it hangs, or may not read `deliveries`.

        Raises:
            NotAuthorized: this client may not read or write `deliveries`.
        """
        members = {
            member.client_id for member in self._members(subscription, deadline) if not is_over(member.client_id)
        }
        members.update(self._joining(subscription, deadline))  # their group may not show them yet
        if not members:
            return {}
        topic, reported = str(subscription.topic.name), dict[str, ConsumersReport]()
        request = _request(subscription, subscription.incarnation, command)
        complete = threading.Event()

        def on_records(records: Sequence[DeliveryRecord]) -> None:
            for _, found in self._channel.decoded(records, subscription.name):
                if isinstance(found, ConsumersReport) and found.id == request.id:
                    reported[found.member] = found
            if reported.keys() >= members:
                complete.set()

        with self._channel.listening(topic, on_records, deadline):
            self._channel.write([_to_all_members(subscription, request)], deadline)
            complete.wait(min(_TELL_S, deadline.remaining_s()))
        return {member: reported.get(member) for member in sorted(members)}

    # Inside -------------------------------------------------------------------------------------------------------

    def _members(self, subscription: Subscription, deadline: Deadline) -> list[GroupMember]:
        return [m for group in subscription.groups for m in self._admin.describe_group(group, deadline).members]

    def _request_here(self, subscription: Subscription, requested: _Asked, deadline: Deadline) -> None:
        for member in self._members_here(subscription):
            owned = member.answering_partitions()
            requests = [(partition, request) for partition, request in requested.left().items() if partition in owned]
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
                continue  # another process owns the partition now
            for answer in answers:
                if answer is not None:
                    requested.answered(answer)

    def _listen(self, stack: ExitStack, requested: _Asked, deadline: Deadline) -> None:
        def on_records(records: Sequence[DeliveryRecord]) -> None:
            for _, found in self._channel.decoded(records, requested.subscription):
                if isinstance(found, CursorReply):
                    requested.answered(found)

        stack.enter_context(self._channel.listening(requested.topic, on_records, deadline))
        requested.received_from = True

    def _change_idle(self, subscription: Subscription, requested: _Asked, deadline: Deadline) -> None:
        """Change cursors without an owner by a take-over and a save; nothing if an owner appears meanwhile."""
        try:
            self._save_idle(subscription, requested, deadline)
            left = requested.left()
            results = self._taken_in(subscription, left, deadline) if left else ()
        except (errors.SubscriptionBusy, errors.Fenced, errors.CommitOutcomeUnknown) as failure:
            _log.debug("subscription=%s %s", subscription.name, failure)
            return
        for answer in results:
            requested.answered(answer)

    def _save_idle(self, subscription: Subscription, requested: _Asked, deadline: Deadline) -> None:
        """Save cursors without an owner: only outcomes of transactions can be unsaved. Raises as `save`."""
        required = {p: each for p, each in requested.left().items() if isinstance(each.command, SaveNow)}
        pending = self._transactions.pending(subscription, deadline) if required else {}
        unsettled = {p for p in required if p in pending and pending[p].decided}
        if unsettled:
            reading = self._idle.read(subscription, unsettled, deadline)
            for partition in unsettled & reading.cursors.keys():
                if self._transactions.settle(reading, partition, deadline):
                    reading = self._idle.read(subscription, unsettled, deadline)
        for each in required.values():
            requested.answered(CursorReply(each.id))

    def _taken_in(
        self, subscription: Subscription, left: Mapping[int, Request], deadline: Deadline
    ) -> Sequence[CursorReply]:
        """Apply requests to cursors without an owner. A seek also moves an unreadable cursor. Raises as `save`."""
        forgotten: set[int] = set()
        while True:
            try:
                reading = self._idle.read(subscription, left, deadline, forgotten)
                for partition in [
                    p for p, each in left.items() if isinstance(each.command, Seek) and p in reading.cursors
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
                if partition in forgotten or not isinstance(left[partition].command, Seek):
                    raise
                _log.warning("a seek drops the acknowledgements above mark-delete: %s", reason)
                forgotten.add(partition)
            else:
                self._idle.save(reading, saves, deadline)
                return results

    def _prepared(
        self, reading: IdleReading, changed: Mapping[int, RecoveredCursor], deadline: Deadline
    ) -> dict[int, Save]:
        """Prepare saves of these cursors with their next version."""
        return {
            partition: self._store.take_over(reading.identity(partition), cursor, deadline)
            for partition, cursor in changed.items()
        }


def _a_while() -> float:
    """A random time in seconds until the next attempt, so that two processes do not collide again."""
    return random.uniform(_BUSY_PAUSE_S / 5, 2 * _BUSY_PAUSE_S)


class _Asked:
    """Requests and their replies. Thread-safe."""

    def __init__(self, subscription: Subscription, commands: Mapping[int, CursorCommand]) -> None:
        self.topic = str(subscription.topic.name)
        self.subscription = subscription.name
        self.received_from = False
        """A listener receives replies."""
        self._requests = {
            partition: _request(subscription, subscription.life(partition), command)
            for partition, command in commands.items()
        }
        self._answers: dict[bytes, CursorReply] = {}
        self._changed = threading.Condition()

    def answered(self, answer: CursorReply) -> None:
        """Store a reply; replies to other requests are ignored."""
        with self._changed:
            if any(request.id == answer.id for request in self._requests.values()):
                self._answers.setdefault(answer.id, answer)
                self._changed.notify_all()

    def left(self) -> dict[int, Request]:
        """The requests without a reply, by partition. Raises Refused."""
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
        """Wait for all replies, or so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._answers) == len(self._requests), seconds)

    def results(self) -> dict[int, int]:
        with self._changed:
            return {p: self._answers[request.id].result for p, request in self._requests.items()}


def _take_in(state: CursorState, request: Request) -> int:
    """Apply a request to a cursor without an owner, as an owner does."""
    known = state.requests.get(request.id)
    if known is not None:
        return known
    command, result = request.command, 0
    match command:
        case SaveNow() | CloseConsumers() | DescribeConsumers():
            return 0
        case Seek():
            state.reset(command.offset)
            state.leased_from = None  # no member lives; acknowledgements before the seek do not count after it
            if command.begun > 0:
                state.acknowledge_batches({command.offset: BatchAckSet(command.batch_size, (1 << command.begun) - 1)})
        case AcknowledgeUpTo():
            state.acknowledge_cumulative(command.upto)
        case Acknowledge():
            result = state.acknowledge_ledgers(command.ledgers).messages
        case Skip():
            following, result = state.after(command.count, command.end)
            if result:
                state.acknowledge_cumulative(following - 1)
    state.took_effect(request.id, result)
    return result


def _request(subscription: Subscription, incarnation: int, command: CursorCommand) -> Request:
    life = CursorLife(subscription.topic.kafka_topic_id, subscription.topic.layout.incarnation, incarnation)
    return Request(secrets.token_bytes(REQUEST_ID_BYTES), life, command)


def _to_all_members(subscription: Subscription, request: Request) -> tuple[DeliveryKey, bytes]:
    return DeliveryKey(str(subscription.topic.name), ALL_MEMBERS, subscription.name), encode_request(request)


def _to_close(members: Sequence[GroupMember], *, topic_deleted: bool) -> bool:
    return any(not (topic_deleted and is_over(member.client_id)) for member in members)


def _late(subscription: Subscription, partitions: Iterable[int], members: Sequence[GroupMember]) -> str:
    which = f"partitions {sorted(partitions)} of " if partitions else ""
    who = ", ".join(f"{member.client_id} {member.host}" for member in members) or "none"
    return (
        f"time ran out while waiting for {which}subscription {subscription.name} of {subscription.place} to be changed "
        f"by its live members ({who}); they must be able to read and write the state topic {DELIVERIES.name}"
    )


MAX_BYTES_PER_REQUEST: Final = 256 * 1024
"""The size of bitmaps and ack sets before base64; a record holds 1 MB."""


class AcknowledgedLedgers(NamedTuple):
    """The number of requests that acknowledged ledgers, and of messages that were not acknowledged before; an entry as
    a whole counts as one."""

    requests: int
    messages: int


def acknowledge_ledgers(
    cursors: LiveCursors,
    admin: KafkaAdmin,
    subscription: Subscription,
    acks: Mapping[int, LedgerAcks],
    deadline: Deadline,
) -> AcknowledgedLedgers:
    """Acknowledge entries and messages of batch entries that a program read without a consumer (Spark), or that are
    cancelled, by partition.

    Entries beyond a log's end are ignored. Large bitmaps take several requests, one after the other. Memory: one more
    copy of the acknowledgements.

    Raises:
        DeadlineExceeded, StoreError: as `LiveCursors.change`; some entries may be acknowledged.
    """
    topic = subscription.topic
    size = topic.layout.entries_per_ledger
    requested = {
        partition: ledgers for partition, ledgers in acks.items() if ledgers and partition in subscription.served
    }
    if not requested:
        return AcknowledgedLedgers(0, 0)
    ends = admin.end_offsets(topic.kafka_topic, sorted(requested), deadline)
    left = {
        partition: pieces(below(ledgers, ends[partition], size), MAX_BYTES_PER_REQUEST)
        for partition, ledgers in requested.items()
    }
    requests = messages = 0
    while commands := {
        partition: Acknowledge(piece) for partition, rest in left.items() if (piece := next(rest, None))
    }:
        messages += sum(cursors.change(subscription, commands, deadline).values())
        requests += len(commands)
    return AcknowledgedLedgers(requests, messages)
