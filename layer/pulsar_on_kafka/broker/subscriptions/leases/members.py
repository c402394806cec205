"""An owner's records of members: live and expelled ones, saves they wait for, and replies they owe to a TAKE_OVER."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from pulsar_on_kafka.broker.subscriptions.leases.outbox import LeaseOutbox
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.records.chunks import HeldMessages
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint, PartitionAcks
from pulsar_on_kafka.broker.subscriptions.records.remote_endpoint import RemoteEndpoint
from pulsar_on_kafka_mapping.state.cursors.lease_records import MemberId, Nack, Report, Saved

EXPIRY_S: Final = 20.0
"""The longest time without a report of a member, which writes one every 3 s."""

_MAX_EXPELLED: Final = 10_000


@dataclass(slots=True)
class LeaseMember:
    """One epoch of a member. Memory: some numbers for each of its consumers, and for each partition."""

    id: MemberId
    since_s: float
    received_s: float
    sequence: int = 0
    """The sequence number of its last report."""
    number: int = 0
    """The number of the last lease or recall to it."""
    recalled: dict[int, int] = field(default_factory=dict)
    """By partition: the number of the last Recall."""
    consumers: dict[int, RemoteEndpoint] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    """Consumers that the subscription rejects."""


class Expelled:
    """The ended epochs of the 10,000 members that were expelled last."""

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}

    def add(self, member: MemberId) -> None:
        self._epochs[member.client_id] = member.epoch
        if len(self._epochs) > _MAX_EXPELLED:
            del self._epochs[next(iter(self._epochs))]

    def __bool__(self) -> bool:
        return bool(self._epochs)

    def __contains__(self, member: MemberId) -> bool:
        """This epoch has ended, or a later one."""
        return member.epoch <= self._epochs.get(member.client_id, 0)


class SaveNotices:
    """Notices of an owner's saves to the processes whose reports acknowledged entries, members or not.

    `owned` is the owner's own dictionary, seen from here. Memory: two numbers for each partition.
    """

    def __init__(self, owner: bytes, owned: Mapping[int, OwnedPartition], outbox: LeaseOutbox) -> None:
        self.owner = owner
        self._owned = owned
        self._outbox = outbox
        self._announced: dict[int, int] = {}
        self._untold: set[int] = set()
        """Partitions of which reports acknowledged entries, or requested a save, since the last notice."""
        self._required: int | None = None
        """Offset of the last report that waits for a save."""

    @property
    def awaited(self) -> bool:
        return self._required is not None

    @property
    def in_use(self) -> bool:
        """The next save of some partition is to be announced."""
        return bool(self._untold)

    def acknowledged(self, number: int) -> None:
        self._untold.add(number)

    def require(self, offset: int) -> None:
        """The report at this offset waits until a save of every partition holds it."""
        self._required = offset
        self._untold.update(self._owned)

    def gave_up(self, number: int) -> None:
        self._announced.pop(number, None)
        self._untold.discard(number)
        if not self._owned:
            self._required = None

    def not_written(self) -> None:
        """Forget the last notices, which may not be in the log."""
        self._untold.update(self._announced)
        self._announced.clear()

    def saved(self, owned: OwnedPartition) -> None:
        """The group has accepted a save: tell members what they acknowledged durably."""
        number, saves = owned.number, owned.saves
        upto = saves.saved_leased_from
        if upto is None:
            return  # the next one says from where on reports are not in it
        if self._required is not None and all(self._holds(each, self._required) for each in self._owned.values()):
            self._required = None
        if number not in self._untold or self._announced.get(number) == upto:
            return
        self._announced[number] = upto
        if upto >= saves.acks_known:
            self._untold.discard(number)
        self._outbox.add(number, Saved(self.owner, owned.version, upto, saves.applied_since))

    def _holds(self, owned: OwnedPartition, offset: int) -> bool:
        upto = owned.saves.saved_leased_from
        return upto is not None and upto > offset


Recalled = Mapping[tuple[MemberId, bytes], int]
"""The last recall's number, by member and owner."""


@dataclass(slots=True)
class RequestedPartition:
    """A partition that waits for replies. `version` is that of its TAKE_OVER, `since_s` the time of the TAKE_OVER."""

    version: int
    since_s: float
    acks: PartitionAcks
    forgotten: int
    """`acks.forgotten` at the TAKE_OVER."""
    answered: set[str] = field(default_factory=set)
    """Client ids of the members that replied."""
    waits_for: frozenset[str] | None = None
    """Members that were in the group at each look since; None before the first. Later members hold nothing."""
    recalled: Recalled = field(default_factory=dict)
    """Recalls by former owners: negative acknowledgements by members that had not received these do not count."""
    nacked: dict[int, Nack] = field(default_factory=dict)
    """Negative acknowledgements that the last save may lack, by offset."""
    held: dict[Endpoint, HeldMessages] = field(default_factory=dict)
    """Entries of each consumer on Failover, where only the active consumer will keep them."""

    @property
    def voided(self) -> bool:
        """The owner redelivers everything of the partition, as after a seek: entries that members report do not
        count."""
        return self.acks.forgotten != self.forgotten


class TakeOvers:
    """Partitions that were taken over, until every member of the group has replied what it holds of them, or is gone.

    Memory: for each such partition the members that replied, negative acknowledgements since the last save, and, on
    Failover, the entries that consumers hold."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._complete: list[int] = []
        self.requested: dict[int, RequestedPartition] = {}

    def begin(
        self, acks: PartitionAcks, version: int, nacked: Mapping[int, Nack], now_s: float, recalled: Recalled
    ) -> None:
        """Wait for every member but this process, which knows what it holds."""
        self.requested[acks.number] = RequestedPartition(
            version, now_s, acks, acks.forgotten, {self._client_id}, recalled=recalled, nacked=dict(nacked)
        )

    def note_refusals(self, report: Report, partitions: Collection[int]) -> None:
        """Keep negative acknowledgements of members that have yet to reply: the former owner may have applied them, and
        then no consumer holds the entries."""
        client_id = report.member.client_id
        for number, requested in self.requested.items():
            waits = number in partitions and client_id not in requested.answered and not requested.voided
            if waits and has_received(report.member, report.heard, requested.recalled):
                requested.nacked.update((nack.offset, nack) for nack in report.nacks.get(number, ()))

    def awaits(self, number: int, client_id: str) -> bool:
        requested = self.requested.get(number)
        return requested is not None and client_id not in requested.answered

    def is_answer(self, number: int, version: int, client_id: str) -> bool:
        """The partition waits for this member's reply to the TAKE_OVER of this version."""
        return self.awaits(number, client_id) and self.requested[number].version == version

    def answered(self, number: int, client_id: str) -> None:
        self.requested[number].answered.add(client_id)

    def begins(self, report: Report, partitions: Collection[int]) -> None:
        """Apply a member's first report: it holds nothing of these partitions, except what it replies. A former owner
        that keeps entries was a member before its last save."""
        for number, requested in self.requested.items():
            if number in partitions and number not in report.answers:
                requested.answered.add(report.member.client_id)

    def holds_nothing(self, report: Report) -> None:
        """Apply replies of a process that is no member here: the entries in them are redelivered."""
        for number, held in report.answers.items():
            if self.is_answer(number, held.version, report.member.client_id):
                self.answered(number, report.member.client_id)

    def answered_by(self, client_ids: Collection[str], requested_s: float) -> list[int]:
        """The partitions without missing replies, if these were the group's members at `requested_s` or later."""
        for requested in self.requested.values():
            if requested.since_s <= requested_s:
                before = requested.waits_for
                requested.waits_for = frozenset(client_ids) if before is None else before.intersection(client_ids)
        return [
            number
            for number, requested in self.requested.items()
            if requested.waits_for is not None and requested.waits_for <= requested.answered
        ]

    def older_than(self, since_s: float) -> list[int]:
        return [number for number, requested in self.requested.items() if requested.since_s < since_s]

    def end(self, number: int) -> RequestedPartition:
        requested = self.requested.pop(number)
        if requested.voided:
            requested.nacked.clear()
            requested.held.clear()
        self._complete.append(number)
        return requested

    def take_complete(self) -> list[int]:
        complete, self._complete = self._complete, []
        return complete


def has_received(member: MemberId, received: Mapping[bytes, int], recalled: Recalled) -> bool:
    """The member had received all recalls to it when it had `received` these records of owners."""
    return all(received.get(owner, 0) >= last for (to, owner), last in recalled.items() if to == member)
