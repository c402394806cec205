"""Occupants of a subscription stand against joining it in another way, and against its deletion.

They are the claims that hold, the consumers that are joining, and the live members of its groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.base.processes import is_dead_process, is_over, process_of, this_process
from pulsar_on_kafka.broker.metadata.subscriptions.partition_subscriptions import (
    other_seats,
    seat_group,
    seat_of,
    serves,
)
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.kafka.records import GroupDescription, GroupMember
from pulsar_on_kafka_mapping.state.metadata.metadata_records import Claim, Joining, SubscriptionRecord

CLAIM_MS: Final = 10_000
"""A claim or a joining consumer's entry holds so long by itself; after that its owner must be a group member."""

LEAVING_S: Final = 1.0
_MAX_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Claimant:
    """A consumer that joins a subscription, and claims it if that is Exclusive; `client_id` is the one that its group
    membership will have."""

    session: str
    client_id: str
    consumer_name: str


class GroupMembersAdmin(Protocol):
    """The calls of `KafkaAdmin` that return a group's members."""

    def describe_group(self, group_id: str, deadline: Deadline) -> GroupDescription: ...


class Occupants:
    """Thread-safe."""

    def __init__(self, groups: GroupMembersAdmin, clock: Clock, leaving_s: float) -> None:
        """`leaving_s`: how long those are waited for who find our record in their way and leave by themselves."""
        self._groups = groups
        self._clock = clock
        self._leaving_s = leaving_s

    def claim(self, claimant: Claimant) -> Claim:
        return Claim(
            claimant.session,
            claimant.client_id,
            self._clock.now_ms() + CLAIM_MS,
            claimant.consumer_name,
            this_process(),
        )

    def with_joining(self, record: SubscriptionRecord, partition: int | None, claimant: Claimant) -> SubscriptionRecord:
        """The record with one more joining consumer, and without the entries that hold no longer."""
        entry = Joining(self._clock.now_ms() + CLAIM_MS, -1 if partition is None else partition)
        held = {client_id: record.joining[client_id] for client_id in self.joining(record)}
        return replace(record, joining={**held, claimant.client_id: entry})

    def joining(self, record: SubscriptionRecord, partition: int | None = None) -> list[str]:
        """The client ids of the joining consumers whose entries hold: of the whole topic and, with `partition`, of that
        partition alone."""
        now_ms = self._clock.now_ms()
        return [
            client_id
            for client_id, entry in record.joining.items()
            if now_ms < entry.deadline_ms
            and (partition is None or entry.partition in (-1, partition))
            and not is_over(client_id)
        ]

    def check_free(
        self,
        topic: Topic,
        record: SubscriptionRecord,
        partition: int | None,
        kind: SubscriptionType,
        claimant: Claimant | None,
        deadline: Deadline,
    ) -> None:
        """Raises SubscriptionBusy when live consumers stand against joining with `kind`."""
        name = record.subscription
        if not serves(record, partition):
            for other in other_seats(record, partition):
                seat = seat_of(record, other)
                claim = seat.claim if seat is not None and seat.claim is not None and self._holds(seat.claim) else None
                members = self._other_members(topic, name, other, claimant, deadline)
                if claim is not None or members:
                    holders = [claim.process] if claim is not None else [process_of(each.client_id) for each in members]
                    raise errors.SubscriptionBusy(served_otherwise(name, topic, record, holders, other))
            return
        seat = seat_of(record, partition)
        if seat is None:
            return
        exclusive = kind is SubscriptionType.EXCLUSIVE or seat.type == SubscriptionType.EXCLUSIVE.value
        if seat.type == kind.value and not exclusive:
            return
        claim = seat.claim
        if claim is not None and (claimant is None or claim.session != claimant.session) and self._holds(claim):
            raise errors.SubscriptionBusy(
                f"subscription {name} of {topic.name} is held exclusively by consumer "
                f"{claim.consumer_name} ({claim.process})"
            )
        others = self._other_members(topic, name, partition, claimant, deadline)
        if others:
            raise errors.SubscriptionBusy(
                f"subscription {name} of {topic.name} has {len(others)} live consumer process(es) "
                f"as {seat.type}, so it cannot be joined as {kind.value} now"
            )

    def stay(
        self,
        topic: Topic,
        name: str,
        seats: Sequence[int | None],
        claimant: Claimant | None,
        deadline: Deadline,
    ) -> Sequence[GroupMember]:
        """The live members of these seats' groups that are still there after a second."""
        others: Sequence[GroupMember] = ()

        def left() -> bool:
            nonlocal others
            others = [m for seat in seats for m in self._other_members(topic, name, seat, claimant, deadline)]
            return not others

        if seats:
            wait_until(left, deadline.at_most(self._leaving_s))
        return others

    def _other_members(
        self, topic: Topic, subscription: str, seat: int | None, claimant: Claimant | None, deadline: Deadline
    ) -> tuple[GroupMember, ...]:
        """The members of a seat's group, without the claimant's own and those that are known to be over."""
        group = seat_group(topic.kafka_topic, subscription, seat)
        return tuple(
            member
            for member in self._groups.describe_group(group, deadline).members
            if (claimant is None or member.client_id != claimant.client_id) and not is_over(member.client_id)
        )

    def _holds(self, claim: Claim) -> bool:
        """A claim holds by itself until its deadline, unless its process is known to be dead."""
        return self._clock.now_ms() < claim.deadline_ms and not is_dead_process(claim.process)


def served_otherwise(
    name: str, topic: Topic, record: SubscriptionRecord | None, holders: Sequence[str] = (), seat: int | None = None
) -> str:
    """Why the other way of serving stands against ours. `holders` are processes that serve it so (`this_process`)."""
    which = "in the other way (as a whole, or partition by partition)"
    if record is not None:
        which = "partition by partition" if record.by_partition else "as a whole"
    where = "" if seat is None else f", with live consumers on partition {seat}"
    known = sorted({":".join(process.split(":")[:2]) for process in holders if process})
    by = f", by process {', '.join(known[:_MAX_NAMED])}" if known else ""
    return (
        f"subscription {name} of {topic.name} is served {which} now{where}{by}; consumers of the whole topic and "
        "consumers of single partitions exclude each other on one subscription. Clients of a gateway consume single "
        "partitions: a program shares a subscription with them by subscribing to the partitions by their names"
    )
