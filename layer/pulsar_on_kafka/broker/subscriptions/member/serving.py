"""The loop that serves one subscription: it reads, dispatches, applies acknowledgements and saves.

All of it runs in the member's thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from itertools import accumulate, islice
from math import inf
from typing import Final, NamedTuple

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.commands import CommandQueue
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.saved_cursor import UnreadableCursor
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.subscriptions.dispatching.dispatcher import Dispatcher
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_context import SubscriptionHandle
from pulsar_on_kafka.broker.subscriptions.leases.leasing import Leasing
from pulsar_on_kafka.broker.subscriptions.leases.lessee import Lessee
from pulsar_on_kafka.broker.subscriptions.member.fetching import PartitionReader
from pulsar_on_kafka.broker.subscriptions.member.ownership import MemberServices, Ownership
from pulsar_on_kafka.broker.subscriptions.member.requests import OwnerRequests, life_of
from pulsar_on_kafka.broker.subscriptions.member.saving import STORE_TIMEOUT_S
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import PartitionStats
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint
from pulsar_on_kafka.broker.subscriptions.records.remote_endpoint import RemoteEndpoint
from pulsar_on_kafka.kafka.groups.membership import GroupCallbacks, GroupConsumer
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import (
    ConsumersReport,
    CursorTransactionRequest,
    DescribeConsumers,
    ReportedActive,
    ReportedConsumer,
    ReportedHolder,
    ReportedWaiting,
)
from pulsar_on_kafka_mapping.state.metadata.producer_records import MAX_PROPERTIES_BYTES, properties_bytes
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnAck

_log = logging.getLogger(__name__)

WINDOW_S: Final = 5.0
"""The minimum time that a rate covers, once a consumer is known for so long; the maximum is twice that."""


class _Window(NamedTuple):
    begun_s: float
    delivered: int


class DeliveryRates:
    """Recent rates of messages to each consumer. Memory: two numbers and two times for each open consumer."""

    def __init__(self) -> None:
        self._windows: dict[Endpoint, tuple[_Window, _Window]] = {}
        """The previous and the present window."""

    def note(self, endpoints: Sequence[Endpoint], now_s: float) -> None:
        noted: dict[Endpoint, tuple[_Window, _Window]] = {}
        for endpoint in endpoints:
            now = _Window(now_s, endpoint.delivered)
            before, current = self._windows.get(endpoint, (now, now))
            noted[endpoint] = (current, now) if now_s - current.begun_s >= WINDOW_S else (before, current)
        self._windows = noted

    def of(self, endpoint: Endpoint, now_s: float) -> float:
        """Messages a second; 0 for a new consumer."""
        if endpoint not in self._windows:
            return 0.0
        since = self._windows[endpoint][0]
        took_s = now_s - since.begun_s
        return round((endpoint.delivered - since.delivered) / took_s, 1) if took_s > 0 else 0.0


PATIENCE_S: Final = 0.05


class NonPersistentDispatch:
    """Acknowledges non-persistent messages when they are delivered, and drops them if no inbox has room. Memory: one
    time.

    No message is redelivered: the cursor follows delivery. Source: Pulsar's NonPersistentDispatcher, which drops
    messages without permits. Differs from Pulsar: messages wait 50 ms for a full inbox, because Kafka delivers in
    batches and a burst does not mean a slow consumer.
    """

    def __init__(self) -> None:
        self._full_since_s: float | None = None

    def after_dispatch(self, partitions: Iterable[OwnedPartition], *, handed: bool, stuck: bool, now_s: float) -> None:
        """`handed`: messages were just delivered; `stuck`: messages are left without room in any inbox."""
        if handed or not stuck:
            self._full_since_s = None
        elif self._full_since_s is None:
            self._full_since_s = now_s
        drop = self._full_since_s is not None and now_s - self._full_since_s > PATIENCE_S
        for owned in partitions:
            owned.pass_by(drop=drop)


_POLL_S: Final = 0.01
_AWAITING_SAVE_POLL_S: Final = 0.002
_IDLE_POLL_S: Final = 0.05
_IDLE_AFTER_S: Final = 5.0
_MORE_COMMANDS_S: Final = 0.1
_COMMANDS_POLL_S: Final = 0.002
"""The poll limit for a while after a command: commands do not end a poll, and consumers often join or leave
together."""
_POLL_WITH_PLENTY_S: Final = 0.02
_STARVED_WAIT_S: Final = 0.02
_PAUSE_AFTER_S: Final = 1.0
_FINISH_S: Final = 2.0
_MAX_REPORTED: Final = 1000


class MemberServing:
    """Serves one membership, and joins the group when created. `owned` and `endpoints` are filled here and read by the
    member."""

    def __init__(
        self,
        handle: SubscriptionHandle,
        services: MemberServices,
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
        self._persist_every_s = services.ack_persist_interval_s
        self._last_save_s = 0.0
        self._last_activity_s = 0.0
        self._last_handed_s = -inf
        self._last_poll_s = 0.0
        self._last_command_s = 0.0
        self._starved_since_s: float | None = None
        self._passing_by = NonPersistentDispatch() if handle.transient else None
        self.stopping = False
        self._not_ours: errors.LayerError | None = None
        """The reason why an assignment failed; it can occur in a command that polls, instead of the loop."""
        callbacks = GroupCallbacks(self._on_assigned, self._on_revoked, self._on_lost, self._on_committed, self._begins)
        self._consumer = consumer = GroupConsumer(
            services.config, handle.kafka_topic, callbacks, handle.partition, handle.local_peers
        )
        terms = services.terms
        lessee: Lessee | None = None
        if terms is not None:
            in_order = handle.type is SubscriptionType.FAILOVER
            lessee = Lessee(terms.life, terms.client_id, endpoints, in_order=in_order)
        self.dispatcher = Dispatcher(handle, services.fetcher, clock, consumer, owned, endpoints, lessee)
        self._reader = PartitionReader(handle, clock, consumer, owned, self.dispatcher.looking, self._has_room)
        self.leasing: Leasing | None = None
        """None where messages go to this process's consumers only."""
        if terms is not None and lessee is not None:
            self.leasing = Leasing(
                handle, terms, clock, self.dispatcher, lessee, consumer.seek, owned, endpoints, commands.wake
            )
        self.ownership = Ownership(handle, services, consumer, self.dispatcher, self.leasing, owned, commands.wake)
        self.transactions = self.ownership.transactions
        self.requests = OwnerRequests(handle, self.dispatcher, self.ownership, owned, self._save_and_report)
        self._over: errors.LayerError | None = None
        self._rates = DeliveryRates()

    # The loop -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        while not self.stopping:
            try:
                self._step()
            except UnreadableCursor as reason:
                self.ownership.stop_unreadable(reason)
            if self._over is not None:
                raise self._over
        self._shut_down()

    def _step(self) -> None:
        if self._commands.execute():
            self._last_command_s = self._clock.monotonic()
        if self._not_ours is not None:
            raise self._not_ours
        leasing = self.leasing
        if leasing is not None:
            leasing.step(joined=self._assigned.is_set())
        self._drain()
        self.transactions.step()
        self.dispatcher.redelivery.redeliver_due()
        handed = self.dispatcher.dispatch()
        if leasing is not None:
            leasing.send()
        now = self._clock.monotonic()
        if self._passing_by is not None:
            stuck = not handed and self.dispatcher.has_undelivered()
            self._passing_by.after_dispatch(self._owned.values(), handed=handed, stuck=stuck, now_s=now)
        self._save_when_due(now)
        awaits_save = self.dispatcher.counting.requires_save() or (leasing is not None and leasing.lessor.awaits_save)
        if awaits_save:
            self.ownership.saver.save_urgently()
        undelivered = self.dispatcher.has_undelivered()
        if handed:
            self._last_handed_s = now
        elif undelivered:
            self._wait_for_room(now)
            return
        self._starved_since_s = None
        self._reader.resume_drained()
        busy = handed or now - self._last_activity_s < _IDLE_AFTER_S
        if undelivered and self._reader.has_plenty() and not self.dispatcher.other_partition_flows():
            if now - self._last_poll_s >= _POLL_WITH_PLENTY_S:  # for the group's sake
                self._last_poll_s = now
                self._reader.read(0.0, limit=1)
            return
        timeout = 0.0 if undelivered else self._poll_timeout(now, busy, awaits_save=awaits_save)
        timeout = self._wait_beside_polling(timeout)
        if self._reader.read(timeout):
            self._last_activity_s = now

    def _save_when_due(self, now: float) -> None:
        if now - self._last_save_s < self._persist_every_s:
            return
        self._last_save_s = now
        self.dispatcher.counting.end_where_over()
        self.dispatcher.redelivery.sweep()
        self.dispatcher.counting.report_suspects()
        self._reader.put_late_on_record()
        self.ownership.saver.sweep()
        self.ownership.saver.save_in_background()
        self.ownership.open_late()
        self._rates.note(self._endpoints, now)

    def _drain(self) -> None:
        try:
            self.dispatcher.drain()
        except errors.StoreError as failure:  # they wait, and are tried again
            _log.warning("subscription=%s cannot apply acknowledgements yet: %s", self._handle, failure)

    def _poll_timeout(self, now: float, busy: bool, *, awaits_save: bool) -> float:
        suspects = self.dispatcher.counting.poll_limit(now - self._last_handed_s)
        if awaits_save:
            return min(_AWAITING_SAVE_POLL_S, suspects)
        timeout = min(_POLL_S if busy else _IDLE_POLL_S, suspects, self.transactions.poll_limit(now))
        if now - self._last_command_s < _MORE_COMMANDS_S:
            timeout = min(timeout, _COMMANDS_POLL_S)
        if self.leasing is not None:
            timeout = min(timeout, self.leasing.poll_limit())
        # With suspects, due entries can lack room for long without counting as a wait for room.
        next_due = self.dispatcher.redelivery.next_due() if suspects == inf else None
        return timeout if next_due is None else min(timeout, max(0.0, next_due - now))

    def _wait_for_room(self, now: float) -> None:
        """Wait for room in an inbox, and pause fetching if that takes long. Partitions whose consumers have room are
        still read (Failover)."""
        if self._starved_since_s is None:
            self._starved_since_s = now
        self._commands.prepare_to_wait()
        for endpoint in self._endpoints:
            endpoint.watch()
        # A receiver that drained its inbox before `watch` does not wake the member; this check finds it.
        if self.dispatcher.replay_failed or not self.dispatcher.takes_any():
            self._commands.wait(_STARVED_WAIT_S)
        self._commands.end_wait()
        for endpoint in self._endpoints:
            endpoint.unwatch()
        waits_long = now - self._starved_since_s > _PAUSE_AFTER_S
        if self.dispatcher.other_partition_flows():
            self._reader.resume_drained()
            if waits_long:
                self._reader.pause_undelivered()
            self._reader.read(0.0)
        elif waits_long:
            self._reader.pause_all()
            self._reader.read(0.0)
        elif self.ownership.saver.under_way:
            self._reader.read(0.0, limit=1)  # the reply to a commit comes by polling, too

    def _wait_beside_polling(self, timeout_s: float) -> float:
        """Wait where Kafka sends no records to this membership. Returns the time-out of the next poll."""
        if self.leasing is not None and self.leasing.waits_for_owners:
            self._wait_for_owners(self.leasing, timeout_s)
        elif self._reader.awaits_consumer and not self.ownership.saver.under_way:
            self._wait_for_consumer(timeout_s)
        else:
            return timeout_s
        return 0.0

    def _has_room(self) -> bool:
        return any(endpoint.permits() > 0 for endpoint in self._endpoints)

    def _wait_for_consumer(self, timeout_s: float) -> None:
        """Wait for a consumer with room, or for a command: nothing is fetched."""
        self._commands.prepare_to_wait()
        for endpoint in self._endpoints:
            endpoint.watch()
        if not self._has_room():
            self._commands.wait(timeout_s)
        self._commands.end_wait()
        for endpoint in self._endpoints:
            endpoint.unwatch()

    def _wait_for_owners(self, leasing: Leasing, timeout_s: float) -> None:
        """Wait for records of owners, or until a report is due: Kafka sends no records to this membership."""
        self._commands.prepare_to_wait()
        if not leasing.has_urgent and leasing.watch_inboxes():
            self._commands.wait(timeout_s)
        self._commands.end_wait()
        leasing.unwatch_inboxes()

    def _shut_down(self) -> None:
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
        self._consumer.close()

    def abandon(self) -> None:
        """Leave the group without a save, after a failure."""
        self.transactions.close(list(self._owned))
        self._owned.clear()
        if self.leasing is not None:
            self.leasing.stop()
        try:
            self._consumer.close()
        except Exception:  # the group removes a silent member by itself
            _log.exception("subscription=%s could not leave its group", self._handle)

    # Kafka's group ------------------------------------------------------------------------------------------------

    def _on_assigned(self, partitions: list[int]) -> Mapping[int, int]:
        self._handle.meter.assigned += 1
        try:
            starts = self.ownership.assigned(partitions)
        except errors.LayerError as failure:
            self._not_ours = failure
            raise
        self._assigned.set()
        return starts

    def _begins(self, partition: int) -> bool:
        return self._reader.begins(partition)

    def _on_revoked(self, partitions: list[int]) -> None:
        self._handle.meter.revoked += 1
        self.ownership.revoked(partitions)
        self._reader.forget(partitions)

    def _on_lost(self, partitions: list[int]) -> None:
        self._handle.meter.lost += 1
        self.ownership.lost(partitions)
        self._reader.forget(partitions)

    def _on_committed(self, failure: errors.LayerError | None) -> None:
        self.ownership.saver.committed(failure)

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
                except errors.Fenced:  # a rebalance: polling returns the new assignment
                    if patience.passed():
                        raise
            self._reader.read(_POLL_S)
            self.dispatcher.drain()
        self.ownership.give_up_unowned_acknowledgements()
        return self.ownership.losses

    def end_with(self, failure: errors.LayerError) -> None:
        """Leave the group after this step, and let every consumer's `receive` raise `failure`."""
        self._over = failure

    def report_consumers(self, request_id: bytes, member: str, command: DescribeConsumers) -> ConsumersReport:
        """A description for operators, at most 1,000 of each: this process's consumers, consumers that messages of its
        partitions wait for, active consumers, and the holder of the requested entry."""
        return ConsumersReport(
            request_id, member, self._consumers(), self._waited_for(), self._holder(command), self._active_consumers()
        )

    def _active_consumers(self) -> tuple[ReportedActive, ...]:
        found = ((number, owned.active.endpoint) for number, owned in self._owned.items() if owned.active is not None)
        return tuple(ReportedActive(number, _node_of(one), one.name) for number, one in islice(found, _MAX_REPORTED))

    def _waited_for(self) -> tuple[ReportedWaiting, ...]:
        """Consumers of any process that messages wait for."""
        found: dict[tuple[str, str], tuple[int, float]] = {}
        for owned in self._owned.values():
            for each in self.dispatcher.waiting(owned):
                messages, for_s = found.get((each.member, each.consumer), (0, 0.0))
                found[each.member, each.consumer] = (messages + each.messages, max(for_s, each.for_s))
        reported = (ReportedWaiting(*who, messages, for_s) for who, (messages, for_s) in found.items())
        return tuple(islice(reported, _MAX_REPORTED))

    def _holder(self, command: DescribeConsumers) -> ReportedHolder | None:
        """The holder of the requested entry (Shared, Key_Shared). None: another process owns the partition, or no
        consumer holds the entry."""
        owned = self._owned.get(command.partition)
        consumer = None if owned is None else owned.holders.get(command.offset)
        if consumer is None:
            return None
        return ReportedHolder(_node_of(consumer.endpoint), consumer.endpoint.name)

    def _consumers(self) -> tuple[ReportedConsumer, ...]:
        own = [endpoint for endpoint in self._endpoints if not endpoint.is_remote][:_MAX_REPORTED]
        told_bytes = list(accumulate(properties_bytes(endpoint.metadata) for endpoint in own))
        now_s = self._clock.monotonic()
        return tuple(
            ReportedConsumer(
                endpoint.name,
                endpoint.priority,
                endpoint.permits(),
                endpoint.unacked,
                endpoint.delivered,
                self._rates.of(endpoint, now_s),
                -1.0 if self.leasing is None else self.leasing.lessee.lease_age_s(endpoint),
                endpoint.traffic(),
                dict(endpoint.metadata) if upto <= MAX_PROPERTIES_BYTES else None,
            )
            for endpoint, upto in zip(own, told_bytes, strict=True)
        )

    def stats(self) -> list[PartitionStats]:
        self._drain()
        ends = self._reader.log_ends()
        return [
            owned.stats(ends[number], self.dispatcher.waiting(owned)) for number, owned in sorted(self._owned.items())
        ] + [
            PartitionStats(number, -1, 0, 0, 0, 0, 0, 0, reason)
            for number, reason in sorted(self.ownership.unreadable.items())
        ]


def _node_of(endpoint: Endpoint) -> str:
    """The process of a consumer; '' for this one."""
    return endpoint.node if isinstance(endpoint, RemoteEndpoint) else ""
