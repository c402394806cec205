"""The owner's side of leases: the members in other processes, their permits, and their reports.

No I/O, no clock of its own. Its records go to the outbox; members act on them when they are in the log. The rules:

* Nothing is leased before the group has accepted a save of every owned partition that says so
  (`CursorState.leased_from`). So the next owner of a partition asks the members, and applies reports from that offset.
* `InFlight` keeps the holder of an entry as for local consumers: a member's consumers are endpoints.
* An acknowledgement counts, whichever consumer holds the entry. A negative acknowledgement counts only while its
  consumer holds the entry, and the owner has not recalled the entry meanwhile (`Recall`).
* A member is expelled when it left, is gone from Kafka's group, wrote nothing for 20 s, or a record to it may be lost.
  Its entries are redelivered. A live member receives the Expel, drops what it has not received, and begins a new epoch.
* After a take-over of a partition that members may hold entries of, the partition is not dispatched
  (`OwnedPartition.quiet`) until every member of the group has reported what it holds, or is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from pyroaring import BitMap64

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.broker.cursor.identity import new_session
from pulsar_on_kafka.broker.subscriptions.dispatching.dispatcher import Dispatcher
from pulsar_on_kafka.broker.subscriptions.leases.members import (
    EXPIRY_S,
    Expelled,
    LeaseMember,
    Recalled,
    SaveNotices,
    TakeOvers,
)
from pulsar_on_kafka.broker.subscriptions.leases.outbox import LeaseOutbox
from pulsar_on_kafka.broker.subscriptions.partition import held_entries
from pulsar_on_kafka.broker.subscriptions.partition.delivery_guard import Departure
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.records.chunks import HeldMessages, Known
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint, PartitionConsumer
from pulsar_on_kafka.broker.subscriptions.records.remote_endpoint import RemoteEndpoint
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import ALL_MEMBERS, CursorLife
from pulsar_on_kafka_mapping.state.cursors.lease_records import (
    Expel,
    Lease,
    LeasedEntry,
    MemberId,
    Nack,
    Recall,
    RemoteConsumer,
    Report,
    Welcome,
)

_log = logging.getLogger(__name__)


class Lessor:
    """The owner of one membership. `owned` is the owner's own dictionary, seen from here. `in_order`: a partition's
    messages go to one consumer at a time (Failover). When all members have replied to a new owner, the active consumer
    keeps what it holds; if other consumers hold entries, everything is redelivered.

    Memory: some numbers for each consumer in other processes, besides the partitions' in-flight entries.
    """

    def __init__(
        self,
        owner: bytes,
        life: CursorLife,
        client_id: str,
        owned: Mapping[int, OwnedPartition],
        dispatcher: Dispatcher,
        outbox: LeaseOutbox,
        *,
        in_order: bool = False,
    ) -> None:
        self._in_order = in_order
        self.owner = owner
        """Its name towards members. Members count its records, so it takes another name when it forgets them."""
        self._life = life
        self._client_id = client_id
        self._owned = owned
        self._dispatch = dispatcher
        self._outbox = outbox
        self._members: dict[str, LeaseMember] = {}
        self._expelled = Expelled()
        self._take_overs = TakeOvers(client_id)
        self._saves = SaveNotices(owner, owned, outbox)
        self.now_s = 0.0

    # What there is ----------------------------------------------------------------------------------------------------

    @property
    def in_use(self) -> bool:
        """Other processes have members, or may have, or wait for the notice of a save."""
        return bool(self._members) or self.is_requesting or self._saves.in_use

    @property
    def is_through(self) -> bool:
        """No more reports can come: there is no member, and no expelled member whose reports may be unread."""
        return not self.in_use and not self._expelled

    @property
    def has_members(self) -> bool:
        return bool(self._members)

    @property
    def is_requesting(self) -> bool:
        """Some partition waits for the members' replies to its TAKE_OVER."""
        return bool(self._take_overs.requested)

    @property
    def awaits_save(self) -> bool:
        """Leases cannot begin before the next save, or a member waits for it."""
        return self._saves.awaited or (bool(self._members) and not self.may_lease())

    def members(self) -> list[tuple[MemberId, list[RemoteEndpoint]]]:
        return [(member.id, list(member.consumers.values())) for member in self._members.values()]

    def may_lease(self) -> bool:
        """The saves of all partitions make their next owners ask the members."""
        return all(owned.saves.saved_leased_from is not None for owned in self._owned.values())

    # Partitions come and go -------------------------------------------------------------------------------------------

    def took_over(self, owned: OwnedPartition, nacked: Mapping[int, Nack], recalled: Recalled) -> None:
        """The partition's TAKE_OVER stands in the log, and all records before it are applied: `nacked` are the negative
        acknowledgements among them."""
        self._take_overs.begin(owned.slot, owned.version, nacked, self.now_s, recalled)
        owned.quiet = True

    def gave_up(self, number: int) -> None:
        """Forget a partition that was given up; its next owner asks the members."""
        self._take_overs.requested.pop(number, None)
        self._saves.gave_up(number)
        for member in self._members.values():
            member.recalled.pop(number, None)
        if not self._owned:
            for member in list(self._members.values()):
                self._drop(member, Departure.LOST)
            self.owner = self._saves.owner = new_session()

    def sought(self, owned: OwnedPartition, end: int) -> None:
        """Ignore acknowledgements below offset `end` of `deliveries`: they came before a seek. Members need not repeat
        them."""
        saves = owned.saves
        saves.acks_from, saves.applied_since = end, 0
        self._saves.acknowledged(owned.number)

    # Reports ----------------------------------------------------------------------------------------------------------

    def apply(self, offset: int, report: Report) -> None:
        """Apply a report at this offset of `deliveries`.

        Raises:
            StoreError: acknowledgements of a cursor are out of memory and cannot be read back; apply the report again.
        """
        if report.life != self._life:
            return
        fresh = {number: owned for number, owned in self._owned.items() if offset >= owned.saves.applied_below}
        for number, owned in fresh.items():
            acks, batches = report.acks.get(number), report.batch_acks.get(number)
            if acks or batches:
                if offset >= owned.saves.acks_from:
                    owned.acknowledge_elsewhere(list(acks or ()), batches or {})
                if report.member.client_id != self._client_id:
                    self._saves.acknowledged(number)
        if report.member.client_id != self._client_id:
            self._apply_of_member(offset, report, fresh)
        for owned in fresh.values():
            owned.saves.applied_below = offset + 1

    def _apply_of_member(self, offset: int, report: Report, fresh: Mapping[int, OwnedPartition]) -> None:
        client_id, epoch = report.member
        member = self._members.get(client_id)
        if member is not None and epoch < member.id.epoch:
            return
        if member is not None and epoch > member.id.epoch:  # it dropped the entries that it had not received
            self._drop(member, Departure.LOST)
            member = None
        if report.save:
            self._saves.require(offset)
            for owned in fresh.values():
                owned.saves.request()  # even without a new acknowledgement: the member waits for a save's notice
        self._take_overs.note_refusals(report, fresh)
        if report.sequence == 1:
            self._take_overs.begins(report, fresh)
        if member is None:
            member = self._admitted(report)
            if member is None:
                self._take_overs.holds_nothing(report)
                return
        if report.sequence <= member.sequence:
            return
        if report.sequence != member.sequence + 1:
            self._expel(member, f"reports {member.sequence + 1} to {report.sequence - 1} are missing")
            return
        self._follow(member, report, fresh)

    def _admitted(self, report: Report) -> LeaseMember | None:
        if report.leaving or not report.consumers or not self._owned:
            return None
        if report.heard.get(self.owner, 0) > 0 or report.member in self._expelled:
            self._outbox.add(ALL_MEMBERS, Expel(self.owner, report.member, "it was expelled before"))
            return None
        member = LeaseMember(report.member, self.now_s, self.now_s, report.sequence - 1)
        self._members[report.member.client_id] = member
        self._outbox.add(ALL_MEMBERS, Welcome(self.owner, report.member))
        _log.info("life=%s leases to %s epoch %d", self._life, *report.member)
        return member

    def _follow(self, member: LeaseMember, report: Report, fresh: Mapping[int, OwnedPartition]) -> None:
        member.sequence = report.sequence
        member.received_s = self.now_s
        received = report.heard.get(self.owner, 0)
        for number, nacks in report.nacks.items():
            owned = fresh.get(number)
            if owned is not None and number in report.reasons:
                owned.slot.reasons.merge(report.reasons[number])
            if self._take_overs.awaits(number, member.id.client_id):
                continue  # see `TakeOvers.note_refusals`
            if owned is not None and received >= member.recalled.get(number, 0):
                self._refuse(member, owned, nacks)
        for number, returned in report.returned.items():
            owned = fresh.get(number)
            awaits = self._take_overs.awaits(number, member.id.client_id)
            if owned is not None and not awaits and received >= member.recalled.get(number, 0):
                self._take_returned(member, owned, returned)
        self._update_consumers(member, report, fresh)
        for number in report.answers.keys() & fresh.keys():
            self._apply_reply(member, number, report)
        if report.leaving:
            self._drop(member, Departure.CLOSED)

    def _update_consumers(self, member: LeaseMember, report: Report, fresh: Mapping[int, OwnedPartition]) -> None:
        reported = {consumer.number: consumer for consumer in report.consumers}
        for number in member.consumers.keys() - reported.keys():
            self._dispatch.detach(member.consumers.pop(number))
        for number, consumer in reported.items():
            endpoint = member.consumers.get(number)
            if endpoint is None:
                endpoint = self._attach(member, consumer)
            if endpoint is None:
                continue
            endpoint.allow(consumer.limits.get(self.owner, 0))
            endpoint.max_unacked = consumer.max_unacked
            if consumer.draining and not endpoint.draining:
                endpoint.begin_draining()
                self._dispatch.stop_serving(endpoint)
                self._take_back(member, endpoint, report, fresh)

    def _take_back(
        self, member: LeaseMember, endpoint: RemoteEndpoint, report: Report, fresh: Mapping[int, OwnedPartition]
    ) -> None:
        """A draining consumer holds what the report says, and no other entry that was leased to it. Its process drops
        leases that it has not received yet. Entries that it negatively acknowledged wait for their delay."""
        for number, owned in () if self._in_order else fresh.items():
            if self._take_overs.awaits(number, member.id.client_id):
                continue
            kept, held = self._dispatch.redelivery.waiting(owned).copy(), report.answers.get(number)
            for (consumer, _), offsets in () if held is None else held.offsets.items():
                if consumer == endpoint.number:
                    kept |= offsets
            feed = endpoint.feed(owned.slot)
            owned.take_back(feed, BitMap64(owned.in_flight.held_by(feed)) - kept)

    def _attach(self, member: LeaseMember, reported: RemoteConsumer) -> RemoteEndpoint | None:
        if reported.number in member.refused:
            return None

        def lend(partition: int, consumer: int, entries: Sequence[LeasedEntry], *, needed: bool) -> None:
            self._lend(member, partition, consumer, tuple(entries), needed=needed)

        def recall(partition: int) -> None:
            self._recall(member, partition)

        endpoint = RemoteEndpoint(reported, member.id.client_id, lend, recall, self.may_lease)
        endpoint.draining = reported.draining
        try:
            self._dispatch.attach(endpoint)
        except errors.Refused as reason:
            member.refused.add(reported.number)
            _log.warning("consumer %s of %s is rejected: %s", reported.name, member.id.client_id, reason)
            return None
        member.consumers[reported.number] = endpoint
        return endpoint

    def _refuse(self, member: LeaseMember, owned: OwnedPartition, nacks: Collection[Nack]) -> None:
        for consumer, offset, delay_ms, _ in nacks:
            endpoint = member.consumers.get(consumer)
            if endpoint is None:
                continue
            holder = owned.active if self._in_order else owned.holders.get(offset)
            undecided = self._in_order and holder is None
            if undecided or (holder is not None and holder.endpoint is endpoint):
                # At once: the same report may contain that its consumer is gone.
                self._dispatch.redelivery.refused(owned, self.now_s, delay_ms / 1000, offset, endpoint)

    def _take_returned(self, member: LeaseMember, owned: OwnedPartition, returned: Mapping[int, BitMap64]) -> None:
        for number, offsets in returned.items():
            endpoint = member.consumers.get(number)
            if endpoint is not None:
                self._dispatch.ordered.return_unreceived(owned, endpoint.feed(owned.slot), offsets)

    def _apply_reply(self, member: LeaseMember, number: int, report: Report) -> None:
        held = report.answers[number]
        if not self._take_overs.is_answer(number, held.version, member.id.client_id):
            return
        owned = self._owned[number]
        if self._take_overs.requested[number].voided and held.offsets:
            self._take_overs.answered(number, member.id.client_id)
            self._recall(member, number)
            return
        for (consumer, redeliveries), offsets in held.offsets.items():
            endpoint = member.consumers.get(consumer)
            if endpoint is not None:
                messages = {o: held.messages.get(o, 1) for o in offsets}
                self.still_held(owned, endpoint, messages, redeliveries, held.chunked)
        self._take_overs.answered(number, member.id.client_id)

    def still_held(
        self,
        owned: OwnedPartition,
        endpoint: Endpoint,
        messages: Mapping[int, int],
        redeliveries: int,
        chunks: Mapping[int, tuple[Sequence[int], int]],
    ) -> None:
        """Record that this consumer holds these entries of a partition that was taken over, redelivered so often; see
        `Dispatcher.still_held`. With `in_order`, only the active consumer will keep them."""
        left = {o: number for o, number in messages.items() if not owned.is_acknowledged(o)}
        chunked = {o: Known(*chunks[o]) for o in left if o in chunks}
        if redeliveries:
            owned.redeliveries.recover(dict.fromkeys(left, redeliveries))
        if not left:
            return
        if self._in_order:
            self._take_overs.requested[owned.number].held[endpoint] = HeldMessages(left, chunked)
        else:
            self._dispatch.still_held(owned, endpoint, left, chunked)

    # Leases and recalls -----------------------------------------------------------------------------------------------

    def _lend(
        self, member: LeaseMember, partition: int, consumer: int, entries: tuple[LeasedEntry, ...], *, needed: bool
    ) -> None:
        member.number += 1
        owned = self._owned[partition]
        version, received = owned.version, owned.saves.acks_known
        most, reasons = member.consumers[consumer].max_redeliver_count, {}
        if most is not None and owned.slot.reasons:
            reasons = owned.slot.reasons.of(entry.offset for entry in entries if entry.redeliveries > most)
        lease = Lease(self.owner, version, member.id, member.number, consumer, received, entries, reasons)
        self._outbox.add(partition, lease, urgent=needed)

    def _recall(self, member: LeaseMember, partition: int) -> None:
        owned = self._owned.get(partition)
        if owned is None or self._members.get(member.id.client_id) is not member:
            return
        if member.recalled.get(partition, -1) == member.number:
            return  # no lease since the last recall, which holds for all consumers of the member
        member.number += 1
        member.recalled[partition] = member.number
        version = owned.version
        self._outbox.add(partition, Recall(self.owner, version, member.id, member.number))

    def saved(self, owned: OwnedPartition) -> None:
        """Notify members that the group has accepted a save with their acknowledgements."""
        self._saves.saved(owned)

    # Members go -------------------------------------------------------------------------------------------------------

    def misses_any(self, client_ids: Collection[str], requested_s: float) -> bool:
        """Some member would be expelled, or no longer waited for, if these were the live members (see `group_is`)."""
        gone = any(m.id.client_id not in client_ids and m.since_s < requested_s for m in self._members.values())
        return gone or self.is_requesting or bool(self._silent_at(requested_s))

    def _silent_at(self, moment_s: float) -> list[LeaseMember]:
        return [member for member in self._members.values() if moment_s - member.received_s > EXPIRY_S]

    def group_is(self, client_ids: Collection[str], requested_s: float) -> list[int]:
        """Apply the live members of Kafka's group at or after `requested_s`, on the monotonic clock. Returns the
        partitions that may be served now, and must be read from their read positions on.

        If `misses_any`, call this after applying all records that were in the log at `requested_s`. So a silent member
        has written nothing, and is not expelled because this process read late."""
        for member in list(self._members.values()):
            if member.id.client_id not in client_ids and member.since_s < requested_s:
                self._expel(member, "it is not a member of the group any more", Departure.DIED)
        for member in self._silent_at(requested_s):
            self._expel(member, f"it wrote nothing for {EXPIRY_S:.0f} s", Departure.DIED)
        for number in self._take_overs.answered_by(client_ids, requested_s):
            self._all_answered(number)
        for number in self._take_overs.older_than(requested_s - EXPIRY_S):
            _log.warning("partition=%d is served without replies of all members", number)
            self._all_answered(number)
        return self.take_complete()

    def take_complete(self) -> list[int]:
        """The partitions to which all members have replied since the last call."""
        return [number for number in self._take_overs.take_complete() if number in self._owned]

    def not_written(self) -> None:
        """Expel all members: a record may not be in the log, so it is unknown what they hold."""
        self._saves.not_written()
        for member in list(self._members.values()):
            self._expel(member, "what was written to it may be lost")

    def is_being_taken_over(self, number: int) -> bool:
        """Some members have yet to reply to the partition's TAKE_OVER."""
        return number in self._take_overs.requested

    def is_unanswered(self, number: int) -> bool:
        """Some members have yet to reply, and keep what they hold of the partition."""
        requested = self._take_overs.requested.get(number)
        return requested is not None and not requested.voided

    def holder_here(self, owned: OwnedPartition) -> PartitionConsumer | None:
        """Find this process's consumer that holds messages of a partition while other members have yet to reply
        (Failover). The reader skips these messages from now on."""
        requested = self._take_overs.requested.get(owned.number)
        for endpoint, held in ({} if requested is None or requested.voided else requested.held).items():
            if not endpoint.is_remote and not endpoint.closed:
                held_entries.still_out(owned, *held)
                return endpoint.feed(owned.slot)
        return None

    def records_lost(self) -> None:
        for member in list(self._members.values()):
            self._expel(member, "what it wrote is gone from the log")

    def _all_answered(self, number: int) -> None:
        requested = self._take_overs.end(number)
        owned = self._owned[number]
        if not self._in_order:
            nacked = {o: nack for o, nack in requested.nacked.items() if o not in owned.holders}
            self._dispatch.redelivery.redeliver_later(owned, nacked)
        owned.quiet = False
        if self._in_order:
            self._dispatch.take_up(owned, requested.held)

    def _expel(self, member: LeaseMember, why: str, how: Departure = Departure.LOST) -> None:
        _log.info("life=%s leases to %s end: %s", self._life, member.id.client_id, why)
        self._drop(member, how)
        self._expelled.add(member.id)
        self._outbox.add(ALL_MEMBERS, Expel(self.owner, member.id, why))

    def _drop(self, member: LeaseMember, how: Departure) -> None:
        self._members.pop(member.id.client_id, None)
        for endpoint in member.consumers.values():
            self._dispatch.detach(endpoint, how)
        member.consumers.clear()
