"""Sends and receives leases for one subscription member.

If one process owns all partitions and has all consumers, leases cost nothing. A process without a partition announces
its consumers (`Lessee`), and every owner leases to them as to its own (`Lessor`). On Failover a process announces its
consumers unless it owns all partitions, because a partition's active consumer is chosen from those of all processes.
All of it runs in the member's thread, except `receive` and `is_patient`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from math import inf
from typing import Final, TypeVar

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.commands import settle
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.subscriptions.dispatching.dispatcher import Dispatcher
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_context import SubscriptionHandle
from pulsar_on_kafka.broker.subscriptions.leases.flushes import LeaseFlushes
from pulsar_on_kafka.broker.subscriptions.leases.group_monitor import GroupLooks, LeaseClaims
from pulsar_on_kafka.broker.subscriptions.leases.hand_over import LeaseHandOver
from pulsar_on_kafka.broker.subscriptions.leases.inbox import LeaseInbox
from pulsar_on_kafka.broker.subscriptions.leases.lease_options import LeaseTerms, ReceivedLeaseRecord
from pulsar_on_kafka.broker.subscriptions.leases.leased_records import LeasedRecords
from pulsar_on_kafka.broker.subscriptions.leases.lessee import ACKS_S, Lessee
from pulsar_on_kafka.broker.subscriptions.leases.lessor import Lessor
from pulsar_on_kafka.broker.subscriptions.leases.outbox import LeaseOutbox
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import ALL_MEMBERS
from pulsar_on_kafka_mapping.state.cursors.lease_records import (
    Lease,
    LeaseRecord,
    Recall,
    Report,
    TakeOver,
    concerns,
    decode,
    is_report,
)
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnAck

_LOOK_AT_PACE_S: Final = 1.0
_ASK_AFTER_S: Final = 0.5
"""The time without a partition before a process announces its consumers: partitions move while processes join."""
_BUSY_INTERVAL_S: Final = 0.01
_ROOM_INTERVAL_S: Final = ACKS_S / 2
"""Between two looks for room in an inbox that leased entries wait for."""
_MUCH: Final = 100
_MAX_RECEIVED_BYTES: Final = 16 * 1024 * 1024

_log = logging.getLogger(__name__)

_T = TypeVar("_T")


class Leasing:
    """One turn of the member's loop is a `step`. `owned` and `endpoints` are the member's own, seen from here.

    Memory: that of its parts, with 20,000 records or 16 MiB in the inbox.
    """

    def __init__(
        self,
        handle: SubscriptionHandle,
        terms: LeaseTerms,
        clock: Clock,
        dispatcher: Dispatcher,
        lessee: Lessee,
        seek: Callable[[int, int], None],
        owned: Mapping[int, OwnedPartition],
        endpoints: Sequence[Endpoint],
        wake: Callable[[], None],
    ) -> None:
        self._handle = handle
        self._terms = terms
        self._clock = clock
        self._dispatcher = dispatcher
        self._seek = seek
        self._owned = owned
        self._endpoints = endpoints
        self._wake = wake
        self._inbox = LeaseInbox(
            terms.traffic.read, wake, self._can_wait, max_records=terms.max_received, max_bytes=_MAX_RECEIVED_BYTES
        )
        self._in_order = in_order = handle.type is SubscriptionType.FAILOVER
        """A partition's messages go to one consumer at a time, in any process."""
        self.lessee = lessee
        self._outbox = LeaseOutbox(str(handle), terms.traffic, clock, lessee, owned, wake)
        self.lessor = lessor = Lessor(
            terms.session, terms.life, terms.client_id, owned, dispatcher, self._outbox, in_order=in_order
        )
        self.hand_over = LeaseHandOver(
            terms, clock, dispatcher, lessor, lessee, self._inbox, self._outbox, owned, endpoints, self.write_all,
            in_order=in_order,
        )  # fmt: skip
        self._flushes = LeaseFlushes(lessee)
        traffic = terms.traffic
        self._looks = GroupLooks(
            lambda: self._waking(traffic.group()), lambda start, most: self._waking(traffic.read(start, most))
        )
        self._claims = LeaseClaims(terms.traffic.saved_version, wake)
        self._records = LeasedRecords(
            str(handle), handle.kafka_topic, terms.reader, clock, lessee, handle.incarnation, dispatcher.slot_of_record
        )
        self._held_by_transactions: deque[tuple[int, TxnAck]] = deque()
        """Acknowledgements of others' partitions that transactions hold, and that the lessee has yet to apply."""
        self._had_enough_s = 0.0
        """When this process owned a partition last (Failover: all), or had not joined the group."""
        self._announces_s = inf
        """The time at which this process announces its consumers."""
        self._reads_more = False
        """Other leased records can be read at once."""
        self._reports_received = 0
        self._paced = (0, 0.0)
        """Their number when the lessee's pace was last set, and the time of that."""
        terms.traffic.listen(self.receive, self.is_patient)

    # Any thread -------------------------------------------------------------------------------------------------------

    def receive(self, records: Sequence[ReceivedLeaseRecord]) -> None:
        """Receive records about this subscription, in the order of the log."""
        self._inbox.receive(records)

    def is_patient(self) -> bool:
        """Records of other processes can wait: this process owns no partition, and every inbox is half full and has
        more than a hundred messages."""
        if self._owned or self._flushes:
            return False
        own = [each for each in self._endpoints if not each.is_remote]
        return bool(own) and all(len(each.queue) > max(each.capacity // 2, _MUCH) for each in own)

    def _can_wait(self, value: bytes) -> bool:
        """A record is not for this process: most records of members are for the owner."""
        self._reports_received += is_report(value)
        return not self._owned and not concerns(value, self._terms.client_id)

    # The member's loop ------------------------------------------------------------------------------------------------

    def begin(self) -> float:
        """Begin a step of the member, before its commands; returns the time."""
        self.lessor.now_s = self.lessee.now_s = now_s = self._clock.monotonic()
        return now_s

    def step(self, *, joined: bool) -> None:
        """Apply received records, read leased ones, and write reports. `joined`: the group has assigned this process's
        partitions."""
        now_s = self.begin()
        if self.reports_to_owners or (joined and not self._outbox.is_forbidden):
            self._drain()  # first: these entries were held before the records below recall them or lease them again
        self.apply_received()
        lessee = self.lessee
        if now_s - self._paced[1] >= _LOOK_AT_PACE_S:
            before, since_s = self._paced
            lessee.pace((self._reports_received - before) / (now_s - since_s))
            self._paced = self._reports_received, now_s
        while self._held_by_transactions:
            lessee.hold_for_transaction(*self._held_by_transactions.popleft())
        enough = self._owns_enough() or not joined
        if enough:
            self._had_enough_s = now_s
        without = now_s - self._had_enough_s >= _ASK_AFTER_S
        lessee.requesting = without and any(not each.is_remote for each in self._endpoints)
        if self._in_order:
            lessee.announces = lessee.announces and not (lessee.requesting or self._owns_enough())
        self._announces_s = inf if enough or without else self._had_enough_s + _ASK_AFTER_S
        if lessee.to_read:
            self._reads_more = self._records.read() and bool(lessee.to_read)
        else:
            self._reads_more = False
            self._records.rest()
        self._check_claims()
        if self.lessor.in_use:
            self._check_members(now_s)
        self.send()
        if self._flushes:
            self._flushes.step()

    def _owns_enough(self) -> bool:
        """This process needs no leases of other owners' partitions."""
        partitions = self._terms.partitions
        if not self._in_order or partitions is None:
            return bool(self._owned)
        partitions = max(partitions, max(self._owned, default=0) + 1)
        return len(self._owned) == partitions and (partitions == 1 or not self.lessor.has_members)

    def send(self) -> None:
        """Write the records that wait, unless an append is under way."""
        if not self._outbox.send():
            self.lessor.not_written()

    def next_due(self, now_s: float) -> float:
        """The time of the next step on the monotonic clock. Received records, replies, room in inboxes and
        acknowledgements wake the member before."""
        if self._inbox.is_urgent or self._reads_more:
            return now_s
        due_s = min(self._announces_s, self._outbox.next_due(now_s), self._records.rest_s)
        if not self._outbox.is_blocked():
            due_s = min(due_s, max(self.lessee.next_due(), now_s + _BUSY_INTERVAL_S))
        if self.lessor.in_use:
            due_s = min(due_s, self._looks.next_due(hurries=self.lessor.is_requesting))
        if self._inbox.is_behind or (self.lessee.holds_any and not self.waits_for_owners):
            due_s = min(due_s, now_s + _BUSY_INTERVAL_S)  # room for leases beside own messages is not watched
        elif self.lessee.to_read:
            due_s = min(due_s, now_s + _ROOM_INTERVAL_S)
        return due_s

    def _waking(self, reply: Future[_T]) -> Future[_T]:
        reply.add_done_callback(lambda _: self._wake())
        return reply

    def watch_inboxes(self) -> bool:
        """Let this process's consumers wake the member as soon as a report is due for the room in their inboxes. False
        if a report is due now."""
        waits = self._outbox.is_blocked()
        watched = [each for each in self._endpoints if not each.is_remote]
        for endpoint in watched:
            more = None if waits else self.lessee.until_worth_reporting(endpoint)
            endpoint.watch(-1 if more is None else len(endpoint.queue) - more)
        # A receiver that took a message before `watch` does not wake the member; this check finds it.
        return not any(endpoint.has_room_again() for endpoint in watched)

    @property
    def waits_for_owners(self) -> bool:
        """All messages come by leases: this process owns no partition."""
        return not self._owned and self.reports_to_owners

    @property
    def reports_to_owners(self) -> bool:
        """This process waits for messages of other owners' partitions, or holds some."""
        return self.lessee.requesting or self.lessee.holds_any

    @property
    def reaches_owners(self) -> bool:
        """This process may write to other owners, so its acknowledgements reach them."""
        return not self._outbox.is_forbidden

    @property
    def gathers_acknowledgements(self) -> bool:
        """The next report is due soon, and will contain acknowledgements that come until then."""
        return self.lessee.next_due() <= self.lessee.now_s + self.lessee.acks_s

    def apply_received(self) -> None:
        """Apply the received records. After a StoreError the rest waits for the next call."""
        if not self._inbox.catch_up(self._clock.monotonic()):
            _log.warning("subscription=%s records of other members are gone from the log: all leases end", self._handle)
            self.lessee.begin_anew()
            self.lessor.records_lost()
        for _ in range(self._inbox.begin()):
            offset, partition, value = self._inbox.first()
            try:
                record = decode(value, self._terms.client_id, reports=bool(self._owned))
                if record is not None:
                    self._apply(offset, partition, record)
            except CorruptRecord as reason:
                _log.warning("subscription=%s offset=%d skipped a record: %s", self._handle, offset, reason)
            except errors.StoreError as failure:
                _log.warning("subscription=%s cannot apply acknowledgements yet: %s", self._handle, failure)
                return
            self._inbox.applied()

    def _apply(self, offset: int, partition: int, record: LeaseRecord) -> None:
        if isinstance(record, Report):
            if self._owned:
                self.lessor.apply(offset, record)
        elif partition == ALL_MEMBERS:
            self.lessee.apply(None, record)
        elif isinstance(record, TakeOver):
            if record.life == self._terms.life:
                self._is_claimed(partition, record)
        elif partition in self._owned:
            if isinstance(record, Lease | Recall):
                self.lessee.pass_over(record)
        else:
            self.lessee.apply(self._handle.slot(partition), record)

    def _is_claimed(self, partition: int, record: TakeOver) -> None:
        """A process claims to own the partition. If this process owns it, it stops dispatch until the group has
        decided."""
        owned = self._owned.get(partition)
        if owned is not None:
            if record.version <= owned.version:
                return
            owned.quiet = True
        self._claims.add(partition, record)

    def _check_claims(self) -> None:
        for partition, version, records in self._claims.settled():
            owned = self._owned.get(partition)
            if owned is None:
                for record in records:
                    if record.version <= version:
                        self.lessee.apply(self._handle.slot(partition), record)
            elif version <= owned.version:  # otherwise the claim is true, and the group revokes the partition soon
                self._is_ours(partition, owned)

    def _is_ours(self, partition: int, owned: OwnedPartition) -> None:
        """The group still lists this process as the owner."""
        _log.warning("cursor=%s ignored a TAKE_OVER whose version the group does not know", owned.identity)
        if owned.quiet and partition not in self._claims and not self.lessor.is_being_taken_over(partition):
            owned.quiet = False
            self._dispatcher.choose_active()
            self._resume([partition])

    def _check_members(self, now_s: float) -> None:
        for owned in self._owned.values():
            saves = owned.saves
            if saves.leased_from is None:
                saves.applied_since = max(saves.applied_since, self._inbox.applied_from or 0)
                self.hand_over.lease_from(owned, self._inbox.applied_upto)
        self._resume(self.lessor.take_complete())  # at once: before anything beyond the skipped entries is read
        try:
            seen = self._looks.seen()
            if seen is not None and self.lessor.misses_any(*seen):
                leased = [each.saves for each in self._owned.values() if each.saves.leased_from is not None]
                applied = min((each.applied_below for each in leased), default=0)
                self._looks.apply_first(seen, max(self._inbox.applied_upto, applied))
                seen = None
            seen = seen or self._looks.counts(self._inbox.applied_upto)
        except errors.LayerError as failure:
            _log.info("subscription=%s cannot look at its group: %s", self._handle, failure)
            return
        if seen is not None:
            self._resume(self.lessor.group_is(*seen))
        self._looks.begin_if_due(now_s, hurries=self.lessor.is_requesting)

    def _resume(self, partitions: Collection[int]) -> None:
        """All members have replied what they hold of these partitions: read and dispatch the rest."""
        for number in partitions:
            self._seek(number, self._owned[number].read_position)

    # Partitions come and go -------------------------------------------------------------------------------------------

    def gave_up(self, number: int) -> None:
        if self._in_order:
            self._had_enough_s = -inf  # until a report requests messages, its consumers stay announced
        else:
            self.lessee.announces = False
        self.lessor.gave_up(number)

    # Consumers --------------------------------------------------------------------------------------------------------

    def detach(self, endpoint: Endpoint) -> None:
        self._drain()
        self.lessee.detach(endpoint)

    def _drain(self) -> None:
        self.lessee.drain([slot for slot in self._handle.slots() if slot.number not in self._owned])

    def have_saved(self) -> Future[None] | None:
        """Request the owners of other partitions to save this process's acknowledgements; None if they have. The future
        is settled when they have saved, and fails with Closed if this membership ends before."""
        self._drain()
        return self._flushes.begin()

    # Transactions -----------------------------------------------------------------------------------------------------

    def request_from_owner(
        self, partition: int, txn: TxnId, ack: TxnAck, answer: Future[None], deadline: Deadline
    ) -> None:
        """Request the partition's owner to hold an acknowledgement for a transaction. Raises as
        `TransactionAcksElsewhere.request`."""
        answered: Future[None] = Future()

        def on_reply(done: Future[None]) -> None:
            """In the requesting thread: the lessee forgets the message before the consumer gets the reply."""
            failure = done.exception()
            if failure is None:
                self._held_by_transactions.append((partition, ack))
                self._wake()
            settle(answer, failure)

        answered.add_done_callback(on_reply)
        self._terms.request_from_owner(partition, txn, ack, answered, deadline)

    # The end ----------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Write the last report, in two seconds at most, and stop."""
        self.lessee.requesting = self.lessee.announces = False
        self.write_all()
        self.stop()

    def write_all(self) -> None:
        """Write everything that waits for an append, in two seconds at most."""
        self.lessor.now_s = self._clock.monotonic()
        if not self._outbox.flush():
            self.lessor.not_written()

    def stop(self) -> None:
        self._terms.traffic.stop()
        self._terms.reader.close()
        self._flushes.close(errors.Closed(f"subscription {self._handle} was closed"))
