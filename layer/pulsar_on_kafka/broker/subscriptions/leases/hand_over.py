"""A hand-over of a partition: the next owner fences former owners, applies reports, and asks members what they hold.

All of it runs in the member's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.subscriptions.dispatching.dispatcher import Dispatcher
from pulsar_on_kafka.broker.subscriptions.leases.inbox import LeaseInbox
from pulsar_on_kafka.broker.subscriptions.leases.lease_options import LeaseTerms
from pulsar_on_kafka.broker.subscriptions.leases.leased_partition import LeasedPartition
from pulsar_on_kafka.broker.subscriptions.leases.lessee import Lessee
from pulsar_on_kafka.broker.subscriptions.leases.lessor import Lessor
from pulsar_on_kafka.broker.subscriptions.leases.members import Recalled, has_received
from pulsar_on_kafka.broker.subscriptions.leases.outbox import LeaseOutbox
from pulsar_on_kafka.broker.subscriptions.partition import held_entries
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint
from pulsar_on_kafka_mapping.state.cursors.lease_records import Lease, Nack, Recall, Report, TakeOver

_END_TIMEOUT_S: Final = 2.0


class LeaseHandOver:
    """Takes partitions over and gives them up. `owned` and `endpoints` are the member's own, seen from here.
    `in_order`: a partition's messages go to one consumer at a time (Failover).

    Memory: recalls and lost leases of each partition between its take-over and its opening.
    """

    def __init__(
        self,
        terms: LeaseTerms,
        clock: Clock,
        dispatcher: Dispatcher,
        lessor: Lessor,
        lessee: Lessee,
        inbox: LeaseInbox,
        outbox: LeaseOutbox,
        owned: Mapping[int, OwnedPartition],
        endpoints: Sequence[Endpoint],
        write_all: Callable[[], None],
        *,
        in_order: bool,
    ) -> None:
        """`write_all` returns when the outbox is written, after two seconds at most."""
        self._terms = terms
        self._clock = clock
        self._dispatcher = dispatcher
        self._lessor = lessor
        self._lessee = lessee
        self._inbox = inbox
        self._outbox = outbox
        self._owned = owned
        self._endpoints = endpoints
        self._write_all = write_all
        self._in_order = in_order
        self._recalled: dict[int, Recalled] = {}
        """Recalls by former owners, by partition."""
        self._unheard: dict[int, BitMap64] = {}
        """Entries that former owners leased to this process in records that it did not receive, by partition."""

    def lease_from(self, owned: OwnedPartition, offset: int) -> None:
        """Record that all reports below this offset of `deliveries` are applied or do not concern the partition. Its
        next save says that other members may hold messages of it."""
        saves = owned.saves
        saves.applied_below = max(saves.applied_below, offset)
        saves.lease_from(saves.applied_below)

    # Take-over --------------------------------------------------------------------------------------------------------

    def take_over(self, owned: OwnedPartition, deadline: Deadline) -> dict[int, Nack] | None:
        """Fence the former owners of a partition that the group has accepted as this process's, and apply the members'
        reports. Returns the negative acknowledgements in them by offset, or None where no member can hold an entry.
        Raises StoreError."""
        saves = owned.saves
        leased_from = saves.leased_from
        if leased_from is None:
            return None
        version = owned.version
        record = TakeOver(self._terms.life, self._lessor.owner, version)
        number = owned.number
        at, reported = self._terms.traffic.take_over(number, record, leased_from, deadline)
        nacked: dict[int, Nack] = {}
        recalled = {(each.to, each.owner): each.number for each in reported if isinstance(each, Recall)}
        for report in [each for each in reported if isinstance(each, Report)]:
            if report.life != self._terms.life:
                continue
            owned.acknowledge_elsewhere(list(report.acks.get(number, ())), report.batch_acks.get(number, {}))
            owned.slot.reasons.merge(report.reasons.get(number, {}))
            if has_received(report.member, report.heard, recalled):
                nacked.update((nack.offset, nack) for nack in report.nacks.get(number, ()))
        self._recalled[number] = recalled
        self._unheard[number] = self._lessee.unheard([each for each in reported if isinstance(each, Lease)])
        self._lessee.taken_in(number, leased_from)
        saves.applied_since, saves.applied_below = leased_from, at + 1
        return {offset: nack for offset, nack in nacked.items() if not owned.is_acknowledged(offset)}

    def opened(self, owned: OwnedPartition, nacked: Mapping[int, Nack] | None) -> None:
        """Serve the partition from now on, except the entries that members hold: `nacked` as `take_over` returned
        it."""
        number = owned.number
        recalled = self._recalled.pop(number, {})
        self._lessor.now_s = self._clock.monotonic()
        acks, ours = self._lessee.take_unsaved(number)
        if acks:
            owned.acknowledge_elsewhere(list(acks.whole), acks.batches)
        if nacked is None:
            owned.saves.applied_since = self._inbox.applied_upto
        else:
            if has_received(self._lessee.id, self._lessee.last_received(), recalled):
                nacked = {**nacked, **ours}
            unread = self._unheard.pop(number, BitMap64()) | self._lessee.unread(number)
            if owned.guard is not None:
                owned.guard.never_received(unread)
        leased = self._lessee.owned_now(number, requests=nacked is not None)
        if nacked is not None:
            self._lessor.took_over(owned, nacked, recalled)
        if leased is None:
            return
        self._terms.reader.leave(number)
        held = leased.held()
        messages, chunks = dict(leased.in_flight.unacked_in), leased.chunks
        leased.in_flight.let_go_of_all()
        for (endpoint, redeliveries), offsets in held.items():
            left = {o: messages.get(o, 1) for o in offsets}
            self._lessor.still_held(owned, endpoint, left, redeliveries, chunks)

    # Seek -------------------------------------------------------------------------------------------------------------

    def about_to_seek(self, owned: OwnedPartition) -> None:
        """Ignore acknowledgements in the reports that members have written by now, applied or not, after the seek.

        Raises:
            StoreError: Kafka did not report where the reports end.
        """
        if owned.saves.leased_from is None:
            if self._inbox.applied_from is None:
                return  # no member has written a report
            self.lease_from(owned, self._inbox.applied_upto)
        self._lessor.sought(owned, self._terms.traffic.end(Deadline.after(_END_TIMEOUT_S)))

    # Giving up --------------------------------------------------------------------------------------------------------

    def keep_what_is_out(self, leaving: Collection[int]) -> None:
        """Let this process's consumers keep the messages that they received of partitions that are about to be given
        up by one more save. The next owner asks, and this process replies as a member. Where it may not write to other
        members, everything is redelivered by the next owner.

        Leases that wait are written now: after the next owner's TAKE_OVER they would be void, and count as deliveries
        that no consumer received.
        """
        if self._in_order:
            self._keep_in_order(leaving)
            return
        holding: list[OwnedPartition] = []
        for owned in (self._owned[number] for number in leaving):
            self._dispatcher.withdraw(owned)
            if any(not consumer.endpoint.is_remote for consumer in owned.holders.values()):
                holding.append(owned)
        if self._outbox or self._outbox.is_writing:
            self._write_all()
        if holding and self._is_known():
            for owned in holding:
                owned.stays_out = True
                self._lease_from_next_owner(owned)

    def _keep_in_order(self, leaving: Collection[int]) -> None:
        """The next owner also asks where no message is out: it must know every consumer before it chooses."""
        stays = any(not each.is_remote for each in self._endpoints)
        if not leaving or not stays or not self._is_known():
            return
        for owned in (self._owned[number] for number in leaving):
            self._dispatcher.withdraw_in_order(owned, unanswered=self._lessor.is_unanswered(owned.number))
            if owned.stays_out:
                self._lease_from_next_owner(owned)

    def _lease_from_next_owner(self, owned: OwnedPartition) -> None:
        if owned.saves.leased_from is None:
            self.lease_from(owned, max(self._inbox.applied_upto, self._lessee.reported_at))

    def _is_known(self) -> bool:
        """A process that takes a partition over from now on waits for this process's reply."""
        self._lessee.announces = True
        if not self._lessee.is_known:
            self._write_all()
        return self._lessee.is_known

    def retire(self) -> None:
        """Decide whether the next owners of all partitions have to ask members, before the last save."""
        if self._lessor.is_through:
            for owned in self._owned.values():
                # After a seek, the next owner may not have received older reports, whose acknowledgements do not count.
                saves = owned.saves
                if saves.leased_from is not None and not owned.stays_out and not saves.acks_from:
                    saves.lease_from(None)

    def giving_up(self, owned: OwnedPartition) -> None:
        """Hold the partition's delivered messages as a member before the partition is forgotten: the application may
        still acknowledge them."""
        leased = self._lessee.owned_before(owned.slot, owned.version)
        # The next owner asks only if the last save says so.
        owned.stays_out = owned.stays_out and owned.saves.saved_leased_from is not None
        if self._in_order:
            self._give_up_in_order(owned, leased)
        elif owned.stays_out:
            for consumer, entries in held_entries.received(owned).items():
                leased.hold(entries, consumer)
                if owned.keys is not None and consumer.endpoint.ordered_redelivery:
                    slots = {entry.offset: owned.keys.slot_of(entry.offset) for entry in entries}
                    leased.keys.slots.update({o: slot for o, slot in slots.items() if slot is not None})

    def _give_up_in_order(self, owned: OwnedPartition, leased: LeasedPartition) -> None:
        if owned.stays_out:
            keeper = self._lessor.holder_here(owned) if owned.active is None else owned.active
            if keeper is not None and not keeper.endpoint.is_remote:
                leased.hold(held_entries.received_in_order(owned), keeper)
                return
        chunks = owned.chunks
        known = {last: list(each.offsets) for last, each in chunks.known.items()}
        handed = BitMap64()
        if owned.read_position > owned.next_unacked:
            handed.add_range(owned.next_unacked, owned.read_position)
        if chunks:
            handed -= BitMap64(chunks.ending_behind(owned.read_position - 1))
            for offsets in known.values():
                handed -= BitMap64(offsets)
        leased.held_before.add(handed, known)
