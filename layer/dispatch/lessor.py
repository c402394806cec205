"""The owner's side of leases: which members of other processes there are, what they may get, what they say.

No I/O, no clock of its own. Its records go to `say`, and are in the log when others act on them. Design.md 7:

* Nothing is leased before a save of every owned partition is accepted that says so (`CursorState.leased_from`). So
  whoever owns a partition after us knows that it has to ask, and replays acknowledgements from where our save stood.
* Who holds an entry is kept as for local consumers (`InFlight`): a member's consumers are endpoints.
* An acknowledgement counts whoever holds the entry. A refusal counts only while its consumer holds the entry, and was
  not told to forget it meanwhile (`Recall`).
* A member that left, is gone from Kafka's group, was not heard of for 20 s, or could not be written to is expelled:
  what it held is handed to others. If it lives it hears that, drops what was not received, and begins anew.
* After a take-over of a partition that others may hold messages of, nothing of it goes out (`OwnedPartition.quiet`)
  until every member of the group has said what it holds, or is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from layer import errors
from layer.dispatch.endpoint import Endpoint
from layer.dispatch.partition import OwnedPartition
from layer.dispatch.remote_endpoint import RemoteEndpoint
from mapping.state_records.cursor_requests import EVERYBODY, CursorLife
from mapping.state_records.leases import (
    Expel,
    Lease,
    LeasedEntry,
    LeaseRecord,
    MemberId,
    Nack,
    Recall,
    RemoteConsumer,
    Report,
    Saved,
    Welcome,
)

EXPIRY_S: Final = 20.0
"""How long a member may be silent; it says something every 3 s."""

_MOST_EXPELLED: Final = 10_000

_log = logging.getLogger(__name__)

Say = Callable[[int, LeaseRecord], None]
"""(partition, or EVERYBODY; record)."""


class Consumers(Protocol):
    """The dispatcher, as far as a member's coming and going concerns it."""

    def attach(self, endpoint: Endpoint) -> None:
        """Raises SubscriptionBusy, HashRangeConflict."""

    def detach(self, endpoint: Endpoint, *, died: bool = False) -> None: ...

    def still_held(self, owned: OwnedPartition, endpoint: Endpoint, offsets: Mapping[int, int]) -> None:
        """Of a partition that was taken over: these are the consumer's, each with its number of messages."""

    def redeliver_later(self, owned: OwnedPartition, refusals: Mapping[int, Nack]) -> None:
        """These were refused under a former owner, and nobody holds them."""


@dataclass(slots=True)
class _Member:
    id: MemberId
    since_s: float
    heard_s: float
    sequence: int = 0
    number: int = 0
    recalled: dict[int, int] = field(default_factory=dict)
    """By partition: the number of the last Recall."""
    consumers: dict[int, RemoteEndpoint] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Asked:
    """A partition that was taken over, until everybody has answered."""

    version: int
    since_s: float
    answered: set[str] = field(default_factory=set)
    nacked: dict[int, Nack] = field(default_factory=dict)
    """Refused, and perhaps not known to be by a save; by offset."""


class Lessor:
    """One for each membership. `owned` is the owner's own dictionary, seen from here.

    Memory: some numbers for each consumer elsewhere, beside what the partitions keep of what is in flight.
    """

    def __init__(
        self,
        owner: bytes,
        life: CursorLife,
        client_id: str,
        owned: Mapping[int, OwnedPartition],
        consumers: Consumers,
        say: Say,
    ) -> None:
        self._owner = owner
        self._life = life
        self._client_id = client_id
        self._owned = owned
        self._dispatch = consumers
        self._say = say
        self._members: dict[str, _Member] = {}
        self._expelled: dict[str, int] = {}
        """Epochs that are over, of the members that were expelled last."""
        self._asked: dict[int, _Asked] = {}
        self._announced: dict[int, int] = {}
        self._complete: list[int] = []
        self._save_wanted: int | None = None
        """Offset of the last report that waits for a save."""
        self.now_s = 0.0

    # What there is ------------------------------------------------------------------------------------------------

    @property
    def in_use(self) -> bool:
        """There are members elsewhere, or may be."""
        return bool(self._members or self._asked)

    @property
    def is_asking(self) -> bool:
        """Some partition waits for what members hold of it."""
        return bool(self._asked)

    @property
    def awaits_save(self) -> bool:
        """Nothing can be leased before the next save, or a member waits for it."""
        return self._save_wanted is not None or (bool(self._members) and not self.may_lease())

    def members(self) -> list[tuple[MemberId, list[RemoteEndpoint]]]:
        return [(member.id, list(member.consumers.values())) for member in self._members.values()]

    def may_lease(self) -> bool:
        """Whoever owns a partition after us knows of it."""
        return all(owned.saves.saved.leased_from is not None for owned in self._owned.values())

    # Partitions come and go ---------------------------------------------------------------------------------------

    def took_over(self, number: int, version: int, nacked: Mapping[int, Nack]) -> None:
        """TAKE_OVER of this version stands in the log, and what stood before was folded: `nacked` was refused in it."""
        self._asked[number] = _Asked(version, self.now_s, {self._client_id}, dict(nacked))
        self._owned[number].quiet = True

    def gave_up(self, number: int) -> None:
        """The partition is not ours any more; its next owner asks."""
        self._asked.pop(number, None)
        self._announced.pop(number, None)
        for member in self._members.values():
            member.recalled.pop(number, None)
        if not self._owned:
            for member in list(self._members.values()):
                self._drop(member, died=False)

    # What members say ---------------------------------------------------------------------------------------------

    def hear(self, offset: int, report: Report) -> None:
        """A report at this offset of `deliveries`.

        Raises:
            StoreError: what a cursor knows of its acknowledgements is out of memory and cannot be read back; it is to
                be heard again.
        """
        if report.life != self._life:
            return
        fresh = {number: owned for number, owned in self._owned.items() if offset >= owned.folded}
        for number, owned in fresh.items():
            acks, batches = report.acks.get(number), report.batch_acks.get(number)
            if acks or batches:
                owned.acknowledge_elsewhere(list(acks or ()), batches or {})
        if report.member.client_id != self._client_id:
            self._hear_member(offset, report, fresh)
        for owned in fresh.values():
            owned.folded = offset + 1

    def _hear_member(self, offset: int, report: Report, fresh: Mapping[int, OwnedPartition]) -> None:
        client_id, epoch = report.member
        member = self._members.get(client_id)
        if member is not None and epoch < member.id.epoch:
            return
        if member is not None and epoch > member.id.epoch:  # it gave up everything
            self._drop(member, died=False)
            member = None
        if report.save:
            self._save_wanted = offset
            for owned in fresh.values():
                owned.cursor.revision += 1  # also when nothing of it is new: it waits for a save that says so
        for number, asked in self._asked.items():
            if number in fresh:
                self._note_refusals(asked, report, number)
        if member is None:
            member = self._admitted(report)
            if member is None:
                self._answered_nothing(report)
                return
        if report.sequence <= member.sequence:
            return
        if report.sequence != member.sequence + 1:
            self._expel(member, f"reports {member.sequence + 1} to {report.sequence - 1} were not heard")
            return
        self._follow(member, report, fresh)

    def _note_refusals(self, asked: _Asked, report: Report, number: int) -> None:
        """What was refused before its holder answered is in nobody's hands: the former owner may have heard it."""
        if report.member.client_id not in asked.answered:
            asked.nacked.update((nack.offset, nack) for nack in report.nacks.get(number, ()))

    def _admitted(self, report: Report) -> _Member | None:
        if report.leaving or not report.consumers or not self._owned:
            return None
        client_id, epoch = report.member
        if report.heard.get(self._owner, 0) > 0 or epoch <= self._expelled.get(client_id, 0):
            self._say(EVERYBODY, Expel(self._owner, report.member, "it was taken for dead"))
            return None
        member = _Member(report.member, self.now_s, self.now_s, report.sequence - 1)
        self._members[report.member.client_id] = member
        self._say(EVERYBODY, Welcome(self._owner, report.member))
        _log.info("life=%s leases to %s epoch %d", self._life, *report.member)
        return member

    def _answered_nothing(self, report: Report) -> None:
        for number, held in report.answers.items():
            asked = self._asked.get(number)
            if asked is not None and asked.version == held.version:
                asked.answered.add(report.member.client_id)

    def _follow(self, member: _Member, report: Report, fresh: Mapping[int, OwnedPartition]) -> None:
        member.sequence = report.sequence
        member.heard_s = self.now_s
        heard = report.heard.get(self._owner, 0)
        for number, nacks in report.nacks.items():
            owned = fresh.get(number)
            asked = self._asked.get(number)
            if asked is not None and member.id.client_id not in asked.answered:
                continue  # see `_note_refusals`
            if owned is not None and heard >= member.recalled.get(number, 0):
                self._refuse(member, owned, nacks)
        self._update_consumers(member, report)
        for number in report.answers.keys() & fresh.keys():
            self._answer(member, number, report)
        if report.leaving:
            self._drop(member, died=False)

    def _update_consumers(self, member: _Member, report: Report) -> None:
        said = {consumer.number: consumer for consumer in report.consumers}
        for number in member.consumers.keys() - said.keys():
            self._dispatch.detach(member.consumers.pop(number))
        for number, consumer in said.items():
            endpoint = member.consumers.get(number)
            if endpoint is None:
                endpoint = self._attach(member, consumer)
            if endpoint is not None:
                endpoint.allow(consumer.limits.get(self._owner, 0))

    def _attach(self, member: _Member, said: RemoteConsumer) -> RemoteEndpoint | None:
        if said.number in member.refused:
            return None

        def lend(partition: int, consumer: int, entries: Sequence[LeasedEntry]) -> None:
            self._lend(member, partition, consumer, tuple(entries))

        def recall(partition: int) -> None:
            self._recall(member, partition)

        endpoint = RemoteEndpoint(said, member.id.client_id, lend, recall, self.may_lease)
        try:
            self._dispatch.attach(endpoint)
        except errors.Refused as reason:
            member.refused.add(said.number)
            _log.warning("consumer %s of %s gets nothing: %s", said.name, member.id.client_id, reason)
            return None
        member.consumers[said.number] = endpoint
        return endpoint

    def _refuse(self, member: _Member, owned: OwnedPartition, nacks: Collection[Nack]) -> None:
        for consumer, offset, delay_ms, _ in nacks:
            endpoint = member.consumers.get(consumer)
            feed = owned.in_flight.holders.get(offset)
            if endpoint is not None and feed is not None and feed.endpoint is endpoint:
                owned.slot.nacks.append((self.now_s, delay_ms / 1000, offset, endpoint))

    def _answer(self, member: _Member, number: int, report: Report) -> None:
        asked, held = self._asked.get(number), report.answers[number]
        if asked is None or asked.version != held.version or member.id.client_id in asked.answered:
            return
        owned = self._owned[number]
        for (consumer, redeliveries), offsets in held.offsets.items():
            endpoint = member.consumers.get(consumer)
            left = {o: held.messages.get(o, 1) for o in offsets if not owned.cursor.is_acknowledged(o)}
            if endpoint is None or not left:
                continue
            if redeliveries:
                owned.redeliveries.update(dict.fromkeys(left, redeliveries))
            self._dispatch.still_held(owned, endpoint, left)
        asked.answered.add(member.id.client_id)

    # What goes to members -----------------------------------------------------------------------------------------

    def _lend(self, member: _Member, partition: int, consumer: int, entries: tuple[LeasedEntry, ...]) -> None:
        member.number += 1
        version = self._owned[partition].saves.saved.lineage.version
        self._say(partition, Lease(self._owner, version, member.id, member.number, consumer, entries))

    def _recall(self, member: _Member, partition: int) -> None:
        owned = self._owned.get(partition)
        if owned is None or self._members.get(member.id.client_id) is not member:
            return
        if member.recalled.get(partition, -1) == member.number:
            return  # nothing was leased since: its other consumers were told already
        member.number += 1
        member.recalled[partition] = member.number
        version = owned.saves.saved.lineage.version
        self._say(partition, Recall(self._owner, version, member.id, member.number))

    def saved(self, owned: OwnedPartition) -> None:
        """The group has accepted a save: tell members what they acknowledged durably."""
        number, upto = owned.slot.number, owned.saves.saved.leased_from
        if self._save_wanted is not None and all(self._holds(each) for each in self._owned.values()):
            self._save_wanted = None
        if upto is None or not self._members or self._announced.get(number) == upto:
            return
        self._announced[number] = upto
        self._say(number, Saved(self._owner, owned.saves.saved.lineage.version, upto))

    def _holds(self, owned: OwnedPartition) -> bool:
        """The last accepted save has what was waited for."""
        upto = owned.saves.saved.leased_from
        return upto is None or self._save_wanted is None or upto > self._save_wanted

    # Members go ---------------------------------------------------------------------------------------------------

    def group_is(self, client_ids: Collection[str], asked_s: float) -> list[int]:
        """These were the live members of Kafka's group at or after `asked_s`, on the monotonic clock. Gives the
        partitions that may be served now, and must be read from their read positions on."""
        for member in list(self._members.values()):
            if member.id.client_id not in client_ids and member.since_s < asked_s:
                self._expel(member, "it is not a member of the group any more", died=True)
        for number, asked in list(self._asked.items()):
            if asked.since_s <= asked_s and asked.answered.issuperset(client_ids):
                self._all_answered(number, asked)
        return self.take_complete()

    def take_complete(self) -> list[int]:
        """The partitions of which everybody has said since the last call what they hold."""
        complete, self._complete = self._complete, []
        return [number for number in complete if number in self._owned]

    def expire(self) -> None:
        """Call it now and then: give up those who were not heard of for too long."""
        for member in list(self._members.values()):
            if self.now_s - member.heard_s > EXPIRY_S:
                self._expel(member, f"it was not heard of for {EXPIRY_S:.0f} s", died=True)
        for number, asked in list(self._asked.items()):
            if self.now_s - asked.since_s > EXPIRY_S:
                _log.warning("partition=%d goes on without answers of all members", number)
                self._all_answered(number, asked)

    def not_written(self) -> None:
        """Something that was said may not be in the log: nobody knows what members hold."""
        for member in list(self._members.values()):
            self._expel(member, "what was written to it may be lost")

    def _all_answered(self, number: int, asked: _Asked) -> None:
        del self._asked[number]
        owned = self._owned[number]
        self._dispatch.redeliver_later(
            owned, {o: nack for o, nack in asked.nacked.items() if o not in owned.in_flight.holders}
        )
        owned.quiet = False
        self._complete.append(number)

    def _expel(self, member: _Member, why: str, *, died: bool = False) -> None:
        _log.info("life=%s leases to %s end: %s", self._life, member.id.client_id, why)
        self._drop(member, died=died)
        self._expelled[member.id.client_id] = member.id.epoch
        if len(self._expelled) > _MOST_EXPELLED:
            del self._expelled[next(iter(self._expelled))]
        self._say(EVERYBODY, Expel(self._owner, member.id, why))

    def _drop(self, member: _Member, *, died: bool) -> None:
        self._members.pop(member.id.client_id, None)
        for endpoint in member.consumers.values():
            self._dispatch.detach(endpoint, died=died)
        member.consumers.clear()
