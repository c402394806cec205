"""Executes requests to the cursors that this process owns: seek, skip, acknowledge, save.

All of it runs in the member's thread. A request takes effect once, even if it is resent to a later owner: the save with
its effect contains its id (`CursorState.requests`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.subscriptions.dispatching.dispatcher import Dispatcher
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_context import SubscriptionHandle
from pulsar_on_kafka.broker.subscriptions.member.ownership import Ownership
from pulsar_on_kafka.broker.subscriptions.member.saving import STORE_TIMEOUT_S
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import (
    Acknowledge,
    AcknowledgeUpTo,
    CloseConsumers,
    CursorLife,
    CursorReply,
    DescribeConsumers,
    Request,
    SaveNow,
    Seek,
    Skip,
)

_log = logging.getLogger(__name__)


class OwnerRequests:
    """The requests to one member. `owned` is the owner's own dictionary, seen from here."""

    def __init__(
        self,
        handle: SubscriptionHandle,
        dispatcher: Dispatcher,
        ownership: Ownership,
        owned: Mapping[int, OwnedPartition],
        save: Callable[[], int],
    ) -> None:
        """`save` returns when everything is durable, or raises StoreError."""
        self._handle = handle
        self._dispatcher = dispatcher
        self._ownership = ownership
        self._owned = owned
        self._save = save

    def execute(self, requests: Sequence[tuple[int, Request]]) -> list[CursorReply | None]:
        """Execute requests to these partitions, and make them durable. Returns a reply for each. None: this process
        does not own the partition, the outcome is unknown, and its owner has to be asked.

        Raises:
            StoreError: the save failed. The requests took effect in memory, and a resent request saves them.
        """
        answers: list[CursorReply | None] = [None] * len(requests)
        taken: list[tuple[int, OwnedPartition, int]] = []
        self._dispatcher.drain()
        self._open_what_is_sought(requests)
        self._settle_transactions(requests)
        for index, (partition, request) in enumerate(requests):
            unreadable = self._ownership.unreadable.get(partition)
            if unreadable is not None:
                answers[index] = CursorReply(request.id, refused=unreadable)
            owned = self._owned.get(partition)
            if owned is None or life_of(owned.identity) != request.life:
                continue
            try:
                taken.append((index, owned, self._take_in(owned, request)))
            except errors.Refused as refusal:
                answers[index] = CursorReply(request.id, refused=str(refusal))
        if taken:
            self._save()
        for index, owned, result in taken:
            partition, request = requests[index]
            if self._owned.get(partition) is owned:  # no rebalance came in between
                answers[index] = CursorReply(request.id, result)
        return answers

    def _open_what_is_sought(self, requests: Sequence[tuple[int, Request]]) -> None:
        """Open unreadable partitions that a seek moves: it does not need the unreadable part."""
        for partition, request in requests:
            sought = partition in self._ownership.unreadable and isinstance(request.command, Seek)
            if sought and life_of(self._handle.identity(partition)) == request.life:
                self._ownership.open_forgetting(partition)

    def _settle_transactions(self, requests: Sequence[tuple[int, Request]]) -> None:
        deadline = Deadline.after(STORE_TIMEOUT_S)
        for partition, request in requests:
            owned = self._owned.get(partition)
            if owned is not None and isinstance(request.command, Seek) and request.id not in owned.cursor.requests:
                self._ownership.transactions.quiesce(owned, deadline)

    def _take_in(self, owned: OwnedPartition, request: Request) -> int:
        known = owned.cursor.requests.get(request.id)
        if known is not None:
            return known
        command, result = request.command, 0
        match command:
            case SaveNow() | CloseConsumers() | DescribeConsumers():
                return 0
            case Seek():
                self._seek(owned, command)
            case AcknowledgeUpTo():
                self._acknowledge_up_to(owned, command.upto)
            case Acknowledge():
                result = self._dispatcher.acknowledge_ledgers(owned, command.ledgers)
            case Skip():
                following, result = owned.cursor.after(command.count, command.end)
                if result:
                    self._acknowledge_up_to(owned, following - 1)
        owned.cursor.took_effect(request.id, result)
        if isinstance(command, Acknowledge):
            _log.debug("cursor=%s acknowledged %d messages by request %s", owned.identity, result, request.id.hex())
        else:
            _log.info("cursor=%s %s by request %s", owned.identity, command, request.id.hex())
        return result

    def _seek(self, owned: OwnedPartition, command: Seek) -> None:
        offset = owned.intake.bounded(command.offset)
        if offset > owned.read_position:
            self._ownership.learn_fences(owned.number)
        inside = command.begun > 0 and offset == command.offset
        begun = BatchAckSet(command.batch_size, (1 << command.begun) - 1) if inside else None
        if self._ownership.leasing is not None:
            self._ownership.leasing.hand_over.about_to_seek(owned)
        self._dispatcher.seek(owned, offset, begun)

    def _acknowledge_up_to(self, owned: OwnedPartition, upto: int) -> None:
        upto = owned.intake.bounded(upto + 1) - 1
        if upto >= owned.read_position:
            self._ownership.learn_fences(owned.number)
        self._dispatcher.acknowledge_up_to(owned, upto)


def life_of(identity: CursorIdentity) -> CursorLife:
    """The incarnation of topic and subscription that a request must name."""
    return CursorLife(identity.kafka_topic_id, identity.topic_incarnation, identity.subscription_incarnation)
