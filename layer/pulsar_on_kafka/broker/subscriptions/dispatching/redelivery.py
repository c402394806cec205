"""Redelivers entries: after negative acknowledgements, ack timeouts, ended transactions, and on request.

All of it runs in the member's thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from pyroaring import BitMap64

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.broker.subscriptions.dispatching.batch_nacks import BatchNacks, HeldHere
from pulsar_on_kafka.broker.subscriptions.dispatching.negative_acks import NegativeAcks
from pulsar_on_kafka.broker.subscriptions.dispatching.ordered_redelivery import OrderedRedelivery
from pulsar_on_kafka.broker.subscriptions.dispatching.redelivery_reads import DelayedPrefetch, RedeliveryReads
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_context import SubscriptionHandle
from pulsar_on_kafka.broker.subscriptions.partition.delayed import DelayedMessages
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.records.ack_timeouts import AckTimeouts
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint, PartitionAcks
from pulsar_on_kafka.kafka.groups.group_membership import GroupMembership
from pulsar_on_kafka.kafka.reading.fetcher import Fetcher
from pulsar_on_kafka_mapping.state.cursors.lease_records import Nack

_CHUNKS_INTERVAL_S: Final = 1.0


class LeasedEntries(Protocol):
    """Entries of other processes' partitions that this process's consumers hold."""

    def held(self, partition: int) -> HeldHere | None: ...

    def slot_of(self, partition: int, offset: int) -> int | None:
        """The hash slot of such an entry, with ordered redelivery. Any thread."""

    def passed_over(self, partition: int, offsets: Sequence[int], endpoint: Endpoint) -> None:
        """`receive` passed over these entries, which wait for a refused one of their key."""

    def late(self, partition: int, offsets: BitMap64, endpoint: Endpoint) -> None:
        """The consumer received these entries and did not acknowledge them in time."""


class Redelivery:
    """Redelivery for the partitions in `owned`. On Shared and Key_Shared single entries are redelivered. On Exclusive
    and Failover a partition is rewound: everything unacknowledged of it is redelivered in order.

    `leased`: None where messages go to this process's consumers only.

    Memory: NegativeAcks, BatchNacks, and the endpoints' AckTimeouts.
    """

    def __init__(
        self,
        handle: SubscriptionHandle,
        fetcher: Fetcher,
        clock: Clock,
        consumer: GroupMembership,
        owned: Mapping[int, OwnedPartition],
        endpoints: Sequence[Endpoint],
        nacks: NegativeAcks,
        reads: RedeliveryReads,
        leased: LeasedEntries | None,
        ordered: OrderedRedelivery,
    ) -> None:
        self._ordered = ordered
        self._shared = handle.type.is_shared
        self._clock = clock
        self._consumer = consumer
        self._owned = owned
        self._endpoints = endpoints
        self._nacks = nacks
        self._reads = reads
        self._leased = leased
        self._timed: dict[Endpoint, AckTimeouts] = {}
        """The consumers with an ack timeout."""
        self._prefetch = DelayedPrefetch(handle.kafka_topic, fetcher, clock)
        self._batches = BatchNacks(handle.kafka_topic, fetcher, clock, self._held, self._redeliver_late)

    # Consumers ----------------------------------------------------------------------------------------------------

    def attach(self, endpoint: Endpoint) -> None:
        if endpoint.ack_timeouts is not None:
            self._timed[endpoint] = endpoint.ack_timeouts
        self._ordered.attach()

    def detach(self, endpoint: Endpoint) -> None:
        self._timed.pop(endpoint, None)

    # Negative acknowledgements ------------------------------------------------------------------------------------

    def drain_batches(self, slots: Iterable[PartitionAcks]) -> None:
        """Apply negative acknowledgements of messages in batch entries, also of other processes' partitions."""
        if not self._shared:
            return
        for partition, offset in self._batches.drain(slots):
            if partition in self._owned:
                self._owned[partition].survived((offset,))

    def drain(self, owned: OwnedPartition) -> None:
        """Apply the negative acknowledgements of a partition."""
        slot = owned.slot
        timed: dict[AckTimeouts, list[int]] = {}
        refusals: dict[Endpoint, list[int]] = {}
        for _ in range(len(slot.nacks)):
            now_s, delay_s, offset, endpoint = slot.nacks.popleft()
            if endpoint.closed and endpoint not in self._endpoints:
                continue  # detaching the consumer redelivered its entries; a consumer that is closing still counts
            holder = owned.holders.get(offset)
            if not self._shared or (holder is not None and holder.endpoint is endpoint):
                # A consumer that lost an entry, as by a seek, cannot delay it for the present holder.
                self.refused(owned, now_s, delay_s, offset, endpoint)
                refusals.setdefault(endpoint, []).append(offset)
            elif endpoint.refused_here is not None:
                endpoint.refused_here.applied(slot.number, (offset,))
            if endpoint.ack_timeouts is not None:
                timed.setdefault(endpoint.ack_timeouts, []).append(offset)
        if refusals and self._ordered.in_use:
            self._ordered.take_back(owned, refusals)
        for timeouts, offsets in timed.items():
            timeouts.forget(slot.number, BitMap64(offsets))

    def refused(self, owned: OwnedPartition, now_s: float, delay_s: float, offset: int, endpoint: Endpoint) -> None:
        """The consumer negatively acknowledged an entry at `now_s` (monotonic). It is redelivered after the delay."""
        self._nacks.add(now_s, delay_s, owned.number, offset, endpoint)
        self._ordered.refuse(owned, (offset,))
        self._ordered.pause(owned, offset)
        owned.in_flight.set_apart((offset,))
        owned.survived((offset,))

    def redeliver_later(self, owned: OwnedPartition, refusals: Mapping[int, Nack]) -> None:
        """Apply negative acknowledgements that consumers sent to a former owner, of entries without a holder.

        The former owner's save may contain some of them: the log can hold a report both before and after that save.
        """
        now_s = self._clock.monotonic()
        waiting = self._nacks.offsets(owned.number).copy()
        for offset, nack in refusals.items():
            if offset not in waiting and owned.redeliveries.count(offset) <= nack.redeliveries:
                owned.postpone(offset, nack.redeliveries)
                owned.refused.unplaced.add(offset)
                self._nacks.add(now_s, nack.delay_ms / 1000, owned.number, offset, None)

    def refused_in_batch(self, partition: int, offset: int, endpoint: Endpoint) -> int:
        """See `BatchNacks.refused`."""
        return self._batches.refused(partition, offset, endpoint)

    def waiting(self, owned: OwnedPartition) -> BitMap64:
        """The entries that were negatively acknowledged, and wait for their delay."""
        return self._nacks.offsets(owned.number)

    # What is due --------------------------------------------------------------------------------------------------

    def next_due(self) -> float | None:
        """The time on the monotonic clock of the next redelivery or delayed message, of the next reading ahead, or of
        the next look at incomplete chunks."""
        now_s = self._clock.monotonic()
        if self._prefetch.under_way:
            return now_s
        times = [timeouts.next_due(now_s, receives=bool(e.queue)) for e, timeouts in self._timed.items()]
        times += [self._nacks.next_due(), self._batches.next_due()]
        for owned in self._owned.values():
            delayed = owned.intake.delayed
            if delayed:
                times += [self._next_delayed(delayed), self._prefetch.next_due(owned)]
            if owned.chunks.pending:
                times.append(now_s + _CHUNKS_INTERVAL_S)
        return min((time for time in times if time is not None), default=None)

    def _next_delayed(self, delayed: DelayedMessages) -> float | None:
        now_s, due_ms = self._clock.monotonic(), delayed.next_due_ms()
        if delayed.has_due:
            return now_s
        return None if due_ms is None else now_s + (due_ms - self._clock.now_ms()) / 1000

    def redeliver_due(self) -> None:
        """Redeliver the entries whose negative acknowledgement or ack timeout is due, and take back what `receive`
        passed over."""
        for number, endpoint, passed_over in self._ordered.take_passed_over(self.rewind):
            if self._leased is not None:
                self._leased.passed_over(number, passed_over, endpoint)
        for owned in self._owned.values():
            delayed = owned.intake.delayed
            if delayed:
                delayed.advance(self._clock.now_ms())
                self._prefetch.step(owned)
            if owned.chunks.pending:
                self._expire_chunks(owned)
        now = self._clock.monotonic()
        for partition, holder, offsets in self._nacks.due(now):
            self._redeliver(partition, offsets, holder)
        for endpoint, timeouts in self._timed.items():
            for partition, offsets in timeouts.expired(now).items():
                single = self._shared and not endpoint.ordered_redelivery
                whole = self._batches.late(partition, offsets, endpoint) if single else offsets
                if whole:
                    self._redeliver_late(partition, whole, endpoint)
        self._batches.step()

    @property
    def has_batches(self) -> bool:
        """Single messages of batch entries were negatively acknowledged: `sweep` may forget some."""
        return bool(self._batches)

    def sweep(self) -> None:
        """Forget negative acknowledgements of entries whose consumers no longer hold them. Call it regularly."""
        self._batches.sweep()

    def _expire_chunks(self, owned: OwnedPartition) -> None:
        # A former owner may have delayed a chunk of a message; its other chunks wait for that chunk.
        if owned.guard is None or not (owned.redeliveries.waiting or self._nacks.any_without_holder(owned.number)):
            owned.intake.expire_chunks()

    def _held(self, partition: int) -> HeldHere | None:
        owned = self._owned.get(partition)
        if owned is None:
            return None if self._leased is None else self._leased.held(partition)
        return HeldHere(owned.slot, owned.in_flight, owned.held.acked_of, owned.redeliveries.counts)

    def _redeliver(self, partition: int, offsets: BitMap64, endpoint: Endpoint | None) -> None:
        owned = self._owned.get(partition)
        if owned is None:
            return
        if self._shared:
            owned.redeliver(offsets, endpoint)
        elif owned.active is None or owned.went_out(offsets.min()):  # even if it is acknowledged, as in Pulsar
            self.rewind(owned)

    def _redeliver_late(self, partition: int, offsets: BitMap64, endpoint: Endpoint) -> None:
        owned = self._owned.get(partition)
        if owned is None:
            if self._leased is not None:
                self._leased.late(partition, offsets, endpoint)
        elif self._shared:
            held = [o for o in offsets if (feed := owned.holders.get(o)) is not None and feed.endpoint is endpoint]
            self._ordered.refuse(owned, held)
            if held and self._ordered.in_use:
                self._ordered.take_back(owned, {endpoint: held})
            owned.redeliver(offsets, endpoint)
        elif owned.active in (None, endpoint.feed(owned.slot)) and not all(
            owned.is_acknowledged(offset) or offset in owned.held for offset in offsets
        ):
            self._ordered.refuse(owned, (offset for offset in offsets if offset not in owned.held))
            self.rewind(owned)

    # On request ---------------------------------------------------------------------------------------------------

    def deliver_again(self, owned: OwnedPartition, offsets: BitMap64) -> None:
        """Redeliver unacknowledged entries that transactions no longer hold."""
        if not offsets:
            return
        if self._shared:
            self._ordered.refuse(owned, owned.redeliver_released(offsets))
        elif owned.active is None or owned.went_out(offsets.min()):
            self.rewind(owned)

    def redeliver_all(self, endpoint: Endpoint) -> None:
        """Redeliver everything that the consumer holds of this process's partitions, without any delay."""
        self._batches.forget_consumer(endpoint)
        for owned in self._owned.values():
            consumer = endpoint.feed(owned.slot)
            if self._shared:
                endpoint.discard(owned.slot)
                self._nacks.forget_consumer(endpoint, owned.number)
                held = owned.in_flight.held_by(consumer)
                self._ordered.refuse_first(owned, held)
                owned.redeliver(held, endpoint)
            elif owned.active in (None, consumer):
                self.rewind(owned)

    def rewind(self, owned: OwnedPartition) -> None:
        """Redeliver everything unacknowledged of a partition, in order."""
        self.forget_deliveries(owned)
        self._consumer.seek(owned.number, owned.rewind())

    def forget_deliveries(self, owned: OwnedPartition) -> None:
        """Take the partition's messages back from all consumers; they are redelivered, here or by another owner."""
        owned.slot.forgotten += 1
        self.forget_delays(owned)
        self._reads.forget(owned)
        for endpoint in self._endpoints:
            endpoint.take_back(owned.slot)

    def forget_delays(self, owned: OwnedPartition) -> None:
        """Forget the partition's negative acknowledgements and prefetched delayed messages."""
        self._nacks.forget_partition(owned.number)
        self._prefetch.forget(owned)
