"""The steps that serve one subscription: they take records, dispatch, apply acknowledgements and save.

One caller at a time makes the steps. The caller owns the membership's events, and waits between two steps.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.commands import CommandQueue
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.saved_cursor import UnreadableCursor
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.subscriptions.dispatching.dispatcher import Dispatcher
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_context import SubscriptionHandle
from pulsar_on_kafka.broker.subscriptions.leases.leasing import Leasing
from pulsar_on_kafka.broker.subscriptions.leases.lessee import Lessee
from pulsar_on_kafka.broker.subscriptions.member.consumer_drains import ConsumerDrains
from pulsar_on_kafka.broker.subscriptions.member.consumer_reports import ConsumerReports
from pulsar_on_kafka.broker.subscriptions.member.fetching import PartitionReader
from pulsar_on_kafka.broker.subscriptions.member.next_step import NextStep, StepProgress, StepTimer
from pulsar_on_kafka.broker.subscriptions.member.non_persistent import NonPersistentDispatch
from pulsar_on_kafka.broker.subscriptions.member.ownership import MemberServices, Ownership
from pulsar_on_kafka.broker.subscriptions.member.requests import OwnerRequests, life_of
from pulsar_on_kafka.broker.subscriptions.member.saving import STORE_TIMEOUT_S
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import PartitionStats
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint
from pulsar_on_kafka.kafka.groups.group_membership import GroupMembership
from pulsar_on_kafka.kafka.groups.membership import GroupCallbacks
from pulsar_on_kafka.kafka.reading.events import Event
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import CursorTransactionRequest
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnAck

_log = logging.getLogger(__name__)

_FINISH_S: Final = 2.0
_SERVE_S: Final = 0.01


class MemberServing:
    """Serves one membership, which `open_membership` opens. `owned` and `endpoints` are filled here and read by the
    member."""

    def __init__(
        self,
        handle: SubscriptionHandle,
        services: MemberServices,
        open_membership: Callable[[GroupCallbacks], GroupMembership],
        commands: CommandQueue,
        owned: dict[int, OwnedPartition],
        endpoints: list[Endpoint],
        assigned: threading.Event,
    ) -> None:
        self._handle = handle
        self._clock = clock = services.clock
        self._commands = commands
        self._owned = owned
        self._endpoints = endpoints
        self._assigned = assigned
        self._passing_by = NonPersistentDispatch() if handle.transient else None
        self.stopping = False
        """The steps are over: `shut_down` is next."""
        self._failure: errors.LayerError | None = None
        """The reason why an assignment failed, or why every consumer is to fail."""
        self._membership = membership = open_membership(
            GroupCallbacks(self._on_assigned, self._on_revoked, self._on_lost, self._on_committed, self._begins)
        )
        terms = services.terms
        lessee: Lessee | None = None
        if terms is not None:
            in_order = handle.type is SubscriptionType.FAILOVER
            lessee = Lessee(terms.life, terms.client_id, endpoints, in_order=in_order)
        self.dispatcher = Dispatcher(handle, services.fetcher, clock, membership, owned, endpoints, lessee)
        self._reader = PartitionReader(handle, clock, membership, owned, self.dispatcher.looking, self._has_room)
        self.leasing: Leasing | None = None
        """None where messages go to this process's consumers only."""
        if terms is not None and lessee is not None:
            self.leasing = Leasing(
                handle, terms, clock, self.dispatcher, lessee, membership.seek, owned, endpoints, commands.wake
            )
        self.ownership = Ownership(handle, services, membership, self.dispatcher, self.leasing, owned, commands.wake)
        self.transactions = self.ownership.transactions
        self.requests = OwnerRequests(handle, self.dispatcher, self.ownership, owned, self._save_and_report)
        self.reports = ConsumerReports(clock, self.dispatcher, lessee, owned, endpoints)
        self.drains = ConsumerDrains(
            clock, self.dispatcher, lessee, owned, endpoints, membership.yield_partitions,
            in_order=not handle.type.is_shared,
        )  # fmt: skip
        self._timer = StepTimer(
            handle, self.dispatcher, self._reader, self.ownership, self.leasing, owned, endpoints, commands.wake,
            services.ack_persist_interval_s,
        )  # fmt: skip

    # Steps --------------------------------------------------------------------------------------------------------

    @property
    def max_records(self) -> int:
        """The number of records for the next step: at most 1,000, of about 4 MiB together."""
        return self._reader.affordable

    def step(self, events: Sequence[Event]) -> NextStep:
        """Take these events of the membership, and do what is due; returns what comes next.

        Raises:
            LayerError: the membership is over, and `abandon` is next.
        """
        try:
            return self._step(events)
        except UnreadableCursor as reason:
            self.stop_unreadable(reason)
            return NextStep(self._clock.monotonic(), reads=True)

    def stop_unreadable(self, reason: UnreadableCursor) -> None:
        """Stop one partition; the others are served."""
        self.ownership.stop_unreadable(reason)

    def _step(self, events: Sequence[Event]) -> NextStep:
        self._timer.begin()
        leasing = self.leasing
        if leasing is not None:
            leasing.begin()
        self._reader.step(events)  # first: a seek drops them
        commanded = self._commands.execute()
        if self._failure is not None:
            raise self._failure
        if leasing is not None:
            leasing.step(joined=self._assigned.is_set())
        acked = self._drain()
        self.transactions.step()
        self.dispatcher.redelivery.redeliver_due()
        handed = self.dispatcher.dispatch()
        if self.dispatcher.limits.active:
            self._reader.pause_held_back()
        if leasing is not None:
            leasing.send()
        now = self._clock.monotonic()
        if self._passing_by is not None:
            stuck = not handed and self.dispatcher.has_undelivered()
            self._passing_by.after_dispatch(self._owned.values(), handed=handed, stuck=stuck, now_s=now)
        if self._timer.saves_at(now):
            self._save_interval_over(now)
        awaits_save = self.dispatcher.counting.requires_save() or (leasing is not None and leasing.lessor.awaits_save)
        if awaits_save:
            self.ownership.saver.save_urgently()
        active = bool(events) or commanded
        following = self._timer.next(StepProgress(now, active, handed, acked, awaits_save))
        if self._passing_by is not None and self._passing_by.due_s < following.due_s:
            return following._replace(due_s=self._passing_by.due_s)
        return following

    def _save_interval_over(self, now: float) -> None:
        self.dispatcher.counting.end_where_over()
        self.dispatcher.redelivery.sweep()
        self.dispatcher.counting.report_suspects()
        self._reader.put_late_on_record()
        self.ownership.saver.sweep()
        self.ownership.saver.save_in_background()
        self.ownership.open_late()
        self.reports.note_rates(now)

    def _drain(self) -> bool:
        try:
            return self.dispatcher.drain()
        except errors.StoreError as failure:  # they wait, and are tried again
            _log.warning("subscription=%s cannot apply acknowledgements yet: %s", self._handle, failure)
            return True

    def _has_room(self) -> bool:
        return any(endpoint.permits() > 0 for endpoint in self._endpoints)

    def shut_down(self) -> None:
        """Save and leave the group, after the last step."""
        for endpoint in [endpoint for endpoint in self._endpoints if not endpoint.is_remote]:
            self.detach(endpoint)
        self.dispatcher.counting.retire(self._owned, orderly=True)
        if self.leasing is not None:
            self.leasing.hand_over.retire()
        try:
            self.save()
        except (errors.StoreError, UnreadableCursor) as failure:
            _log.warning("subscription=%s could not save while closing: %s", self._handle, failure)
        try:
            self.transactions.finish(Deadline.after(_FINISH_S))
        except errors.LayerError as failure:
            _log.info("subscription=%s leaves outcomes of transactions to its next owner: %s", self._handle, failure)
        if self.leasing is not None:
            self.leasing.finish()
        self._membership.close()

    def abandon(self) -> None:
        """Leave the group without a save, after a failure."""
        self.transactions.close(list(self._owned))
        self._owned.clear()
        if self.leasing is not None:
            self.leasing.stop()
        try:
            self._membership.close()
        except Exception:  # the group removes a silent member by itself
            _log.exception("subscription=%s could not leave its group", self._handle)

    # Kafka's group ------------------------------------------------------------------------------------------------

    def _on_assigned(self, partitions: list[int]) -> Mapping[int, int]:
        self._handle.meter.assigned += 1
        try:
            starts = self.ownership.assigned(partitions)
        except errors.LayerError as failure:
            self._failure = failure
            raise
        finally:
            self._commands.wake()
        self._assigned.set()
        return starts

    def _begins(self, partition: int) -> bool:
        return self._reader.begins(partition)

    def _on_revoked(self, partitions: list[int]) -> None:
        self._handle.meter.revoked += 1
        self.ownership.revoked(partitions)
        self._reader.forget(partitions)
        self._commands.wake()

    def _on_lost(self, partitions: list[int]) -> None:
        self._handle.meter.lost += 1
        self.ownership.lost(partitions)
        self._reader.forget(partitions)
        self._commands.wake()

    def _on_committed(self, failure: errors.LayerError | None) -> None:
        self.ownership.saver.committed(failure)
        self._commands.wake()

    # Commands -----------------------------------------------------------------------------------------------------

    def detach(self, endpoint: Endpoint) -> None:
        self._drain()
        if endpoint in self._endpoints:
            self._handle.meter.delivered += endpoint.delivered
            self._handle.meter.undecryptable += endpoint.decryptor.failures
        if self.leasing is not None:
            self.leasing.detach(endpoint)
        self.dispatcher.detach(endpoint)

    def stop(self, *, orderly: bool) -> None:
        """End the loop after this step; not `orderly` when the program ends with consumers open."""
        self.stopping = True
        if not orderly:
            self._drain()
            self.dispatcher.counting.retire(self._owned, orderly=False)

    def redeliver_all(self, endpoint: Endpoint) -> None:
        """Redeliver everything that this consumer has not acknowledged."""
        self.dispatcher.redelivery.redeliver_all(endpoint)
        if self.leasing is not None:
            self.leasing.lessee.redeliver_all(endpoint)

    def acknowledge_in(self, txn: TxnId, partition: int, ack: TxnAck, answer: Future[None], deadline: Deadline) -> None:
        """Hold an acknowledgement for a transaction, by a request to the partition's owner if another process owns
        it."""
        if partition in self._owned or self.leasing is None:
            self.transactions.request(partition, txn, ack, answer)
        else:
            self.leasing.request_from_owner(partition, txn, ack, answer, deadline)

    def acknowledge_for_others(self, partition: int, request: CursorTransactionRequest, answer: Future[None]) -> None:
        """Hold an acknowledgement by a consumer in another process. Raises Fenced if this process does not own that
        incarnation of the partition."""
        owned = self._owned.get(partition)
        if owned is None or life_of(owned.identity) != request.life:
            raise errors.Fenced(f"subscription {self._handle}: partition {partition} is another process's now")
        self.transactions.request(partition, request.txn, request.ack, answer, again=request.again)

    def apply_received(self) -> None:
        """Apply the owners' records received so far, which may recall messages from inboxes."""
        if self.leasing is not None:
            self.leasing.apply_received()

    def _save_and_report(self) -> int:
        """Save, and write recalls before the reply to a request: members receive them in this order."""
        losses = self.save()
        if self.leasing is not None:
            self.leasing.write_all()
        return losses

    def request_saves(self) -> Future[None] | None:
        """Request owners of other partitions to save this process's acknowledgements; None without any."""
        return None if self.leasing is None else self.leasing.have_saved()

    def save(self) -> int:
        """Make all acknowledgements up to now durable; returns how often acknowledgements were lost. Raises
        StoreError."""
        patience = Deadline.after(STORE_TIMEOUT_S)
        self.dispatcher.drain()
        while True:
            if not self.ownership.saver.under_way:
                try:
                    self.ownership.saver.settle()
                    self.ownership.saver.save(sorted(self._owned))
                    break
                except errors.Fenced:  # a rebalance: the group has a new assignment
                    if patience.passed():
                        raise
            self._membership.serve_group(_SERVE_S)
            self.dispatcher.drain()
        self.ownership.give_up_unowned_acknowledgements()
        return self.ownership.losses

    def end_with(self, failure: errors.LayerError) -> None:
        """Leave the group after this step, and let every consumer's `receive` raise `failure`."""
        self._failure = failure

    def stats(self) -> list[PartitionStats]:
        self._drain()
        ends = self._reader.log_ends()
        return [self.dispatcher.stats(owned, ends[number]) for number, owned in sorted(self._owned.items())] + [
            PartitionStats(number, -1, 0, 0, 0, 0, 0, 0, reason)
            for number, reason in sorted(self.ownership.unreadable.items())
        ]
