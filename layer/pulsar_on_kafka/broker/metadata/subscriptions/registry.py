"""Subscriptions: creation with a resolved start position, the type, and the claim of an Exclusive one."""

from __future__ import annotations

import builtins
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.processes import is_over, process_of
from pulsar_on_kafka.broker.metadata.entities import Entities, EntityKeys, Versioned, readable
from pulsar_on_kafka.broker.metadata.subscriptions.ordered_redelivery import with_ordered
from pulsar_on_kafka.broker.metadata.subscriptions.partition_subscriptions import (
    claimed,
    missing,
    other_seats,
    removed,
    seat_group,
    seat_of,
    served_partitions,
    serves,
    spread,
    taken,
)
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription, SubscriptionType
from pulsar_on_kafka.broker.metadata.subscriptions.subscription_holders import (
    CLAIM_MS,
    LEAVING_S,
    Claimant,
    GroupMembersAdmin,
    Occupants,
    served_otherwise,
)
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka_mapping.ids.ledger_ids import incarnation_of
from pulsar_on_kafka_mapping.names.subscription_group import check_subscription_name
from pulsar_on_kafka_mapping.state.metadata.metadata_records import (
    LifeState,
    SubscriptionRecord,
    decode_subscription,
    encode_subscription,
)
from pulsar_on_kafka_mapping.state.state_keys import SubscriptionKey
from pulsar_on_kafka_mapping.state.state_topics import SUBSCRIPTIONS

_log = logging.getLogger(__name__)

_MARK: Final = b'"replicated":true'
"""A part of the value of every record of a replicated subscription; records without it need not be decoded."""

SUBSCRIPTION_KEYS: Final[EntityKeys[tuple[str, str]]] = EntityKeys(SubscriptionKey)


class GroupsAndLogs(GroupMembersAdmin, Protocol):
    """The calls of `KafkaAdmin` that a registry of subscriptions uses."""

    def delete_group(self, group_id: str, deadline: Deadline) -> bool: ...
    def start_offsets(self, topic: str, partitions: Sequence[int], deadline: Deadline) -> dict[int, int]: ...
    def end_offsets(self, topic: str, partitions: Sequence[int], deadline: Deadline) -> dict[int, int]: ...


FirstLeft: TypeAlias = Callable[[Topic, Mapping[int, int], Deadline], Mapping[int, int]]
"""See `FirstLedgersLeft.starts`."""


def _all_left(_topic: Topic, _starts: Mapping[int, int], _deadline: Deadline) -> Mapping[int, int]:
    return {}


class Subscriptions:
    """Thread-safe."""

    def __init__(
        self,
        entities: Entities[tuple[str, str]],
        admin: GroupsAndLogs,
        clock: Clock,
        *,
        leaving_s: float = LEAVING_S,
        first_left: FirstLeft = _all_left,
    ) -> None:
        """`leaving_s`: see `Occupants`. `first_left` returns which first offsets lie in ledgers that are being
        deleted."""
        self._entities = entities
        self._first_left = first_left
        self._admin = admin
        self._clock = clock
        self._occupants = Occupants(admin, clock, leaving_s)

    def find(self, topic: Topic, name: str, deadline: Deadline, partition: int | None = None) -> Subscription | None:
        """The subscription as a whole, or the part of it on one partition."""
        current = self._current(topic, name, deadline)
        if current is None:
            return None
        record = decode_subscription(current.value)
        return opened_subscription(topic, current, record, partition) if is_alive(record, topic) else None

    def list(self, topic: Topic, deadline: Deadline) -> list[Subscription]:
        """The subscriptions of a topic, by name."""
        found = []
        for current in self._entities.at(str(topic.name), deadline).values():
            record = decode_subscription(current.value)
            if is_alive(record, topic):
                found.append(opened_subscription(topic, current, record))
        return sorted(found, key=lambda subscription: subscription.name)

    def replicated(self, deadline: Deadline) -> Sequence[tuple[str, str]]:
        """(topic, name) of every subscription whose state is replicated; whether the topic lives is not looked at."""
        marked = (each for each in self._entities.all(deadline) if _MARK in each.value)
        records = readable(marked, decode_subscription)
        return sorted(
            (record.topic, record.subscription)
            for record in records
            if record.replicated and record.state is LifeState.ACTIVE
        )

    def durable(self, topic: Topic, deadline: Deadline) -> builtins.list[Subscription]:
        """The subscriptions of a topic that retain messages, by name."""
        return [each for each in self.list(topic, deadline) if not each.non_durable]

    def active(self, deadline: Deadline) -> Sequence[SubscriptionRecord]:
        """The records of all subscriptions of the cluster that were not deleted; those of topics that are gone, too."""
        found = readable(self._entities.all(deadline), decode_subscription)
        return [record for record in found if record.state is LifeState.ACTIVE]

    def on_record(
        self, partition: int, deadline: Deadline
    ) -> dict[tuple[str, str], tuple[Versioned, SubscriptionRecord]]:
        """Every subscription that one partition of `subscriptions` speaks of, by topic and name."""
        return self._entities.in_partition(partition, decode_subscription, deadline)

    def remove_dead(self, partition: int, dead: Mapping[tuple[str, str], Versioned], deadline: Deadline) -> int:
        """Take what is on record of subscriptions that are gone out of the log, by topic and name; of those that were
        made anew nothing goes."""
        return self._entities.remove_dead(partition, dead, deadline)

    def open(
        self,
        topic: Topic,
        name: str,
        kind: SubscriptionType,
        *,
        from_earliest: bool,
        claimant: Claimant | None,
        deadline: Deadline,
        partition: int | None = None,
        non_durable: bool = False,
        properties: Mapping[str, str] | None = None,
        replicated: bool = False,
        ordered: bool | None = None,
    ) -> Subscription:
        """The subscription, created if it does not exist, ready to be joined with this type.

        Creation resolves the initial position to one offset per partition before this returns. An Exclusive
        subscription is claimed. With `partition` it is opened on that partition alone, which has the subscription from
        then on, with a type and a claim of its own. `properties`, `replicated`, `ordered`: see `remember`.

        The `claimant` is recorded as joining: the subscription cannot be deleted without force before its group has had
        the time to show the consumer. None where no consumer joins.

        Raises:
            Refused: it is durable and `non_durable` is requested, or the other way round.
            SubscriptionBusy: it is claimed by another session, has live consumers of another type, or is served in the
                other way: as a whole, or partition by partition.
        """
        check_subscription_name(name)
        starts: dict[int, int] = {}
        replaced: dict[str, SubscriptionRecord] = {}
        only_joins: builtins.list[Versioned] = []

        def joined(record: SubscriptionRecord) -> SubscriptionRecord:
            return record if claimant is None else self._occupants.with_joining(record, partition, claimant)

        def opened(current: Versioned | None) -> bytes | None:
            replaced.clear()
            record = _record_for(topic, current)
            exclusive = claimant if kind is SubscriptionType.EXCLUSIVE else None
            claim = self._occupants.claim(exclusive) if exclusive is not None else None
            requested = range(topic.partitions) if partition is None else (partition,)
            if record is None or not is_alive(record, topic):
                self._resolve(topic, requested, starts, from_earliest, deadline)
                served = None if partition is None else (partition,)
                blank = replace(self._new(topic, name, kind, starts), partitions=served, non_durable=non_durable)
                blank = described(blank, properties, replicated=replicated, ordered=ordered)
                return encode_subscription(joined(taken(blank, partition, kind.value, claim)))
            assert current is not None  # noqa: S101 - there is a record
            if record.non_durable is not non_durable:  # Source: Pulsar's PersistentTopic.internalSubscribe
                kind_there = "non-durable" if record.non_durable else "durable"
                raise errors.Refused(f"{topic.name} has a {kind_there} subscription with the same name, {name}")
            self._occupants.check_free(topic, record, partition, kind, claimant, deadline)
            self._resolve(topic, missing(record, partition, requested), starts, from_earliest, deadline)
            changed = spread(taken(record, partition, kind.value, claim), partition, starts)
            changed = replace(changed, incarnation=_incarnation(topic, current, record))
            changed = described(changed, properties, replicated=replicated, ordered=ordered)
            only_joins[:] = [current] if changed == record else []
            changed = joined(changed)
            if changed == record:
                return None
            replaced[name] = record
            return encode_subscription(changed)

        try:
            current = self._entities.update((str(topic.name), name), opened, deadline)
        except errors.NotAuthorized as forbidden:
            if not only_joins:
                raise
            _log.info("subscription=%s of %s a consumer joins unannounced: %s", name, topic.name, forbidden)
            current = only_joins[0]
            replaced.clear()
        current = self._behind_what_goes(topic, name, current, starts, deadline)
        record = decode_subscription(current.value)
        if record.incarnation >= 0:  # a process may have it open
            exclusive = bool(replaced) and kind is SubscriptionType.EXCLUSIVE
            seats = other_seats(record, partition) + ([partition] if exclusive else [])
            try:
                self._look_again(topic, current, replaced.get(name), seats, claimant, deadline)
            except errors.SubscriptionBusy:
                if claimant is not None:
                    found = opened_subscription(topic, current, record, partition)
                    self.release(found, claimant.client_id, deadline)
                raise
        return opened_subscription(topic, current, record, partition)

    def _new(self, topic: Topic, name: str, kind: SubscriptionType, starts: Mapping[int, int]) -> SubscriptionRecord:
        return SubscriptionRecord(
            str(topic.name), name, LifeState.ACTIVE, kind.value, {str(p): offset for p, offset in starts.items()},
            topic_incarnation=topic.layout.incarnation, created_ms=self._clock.now_ms(),
        )  # fmt: skip

    def create(
        self,
        topic: Topic,
        name: str,
        offsets: Mapping[int, int],
        deadline: Deadline,
        *,
        follows: bool = False,
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> Subscription:
        """Make a subscription without consumers. `follows`: see `SubscriptionRecord`.

        Raises:
            AlreadyExists: it is there.
        """
        check_subscription_name(name)

        def created(current: Versioned | None) -> bytes | None:
            record = _record_for(topic, current)
            if record is not None and is_alive(record, topic):
                raise errors.AlreadyExists(f"subscription {name} of {topic.name} exists already")
            blank = self._new(topic, name, SubscriptionType.EXCLUSIVE, offsets)
            return encode_subscription(replace(blank, follows=follows, properties=dict(properties)))

        current = self._entities.update((str(topic.name), name), created, deadline)
        current = self._behind_what_goes(topic, name, current, offsets, deadline)
        return opened_subscription(topic, current, decode_subscription(current.value))

    def find_or_create(self, topic: Topic, name: str, deadline: Deadline, *, follows: bool = False) -> Subscription:
        """The subscription as it is, or made at the log's start: several may do so at once."""
        found = self.find(topic, name, deadline)
        while found is None:
            starts = self._admin.start_offsets(topic.kafka_topic, range(topic.partitions), deadline)
            try:
                return self.create(topic, name, starts, deadline, follows=follows)
            except errors.AlreadyExists:
                found = self.find(topic, name, deadline)
        return found

    def grow(self, topic: Topic, partitions: Sequence[int], deadline: Deadline) -> None:
        """Creates the subscriptions of partition 0 on new partitions too, from their start on: messages sent before a
        consumer connects are retained. Source: Pulsar's PersistentTopicsBase.createSubscriptions."""

        def grown(record: SubscriptionRecord) -> SubscriptionRecord | None:
            new = missing(record, None, partitions)
            if not new or 0 not in (record.partitions or ()):
                return None
            return spread(record, new[0], self._admin.start_offsets(topic.kafka_topic, new, deadline))

        for subscription in self.durable(topic, deadline):
            self._amend(subscription, grown, deadline)

    def remember(
        self,
        subscription: Subscription,
        properties: Mapping[str, str],
        replicated: bool,
        deadline: Deadline,
        ordered: bool | None = None,
    ) -> None:
        """Stores a consumer's description of its subscription; the last description counts. `ordered`: the consumer's
        `ordered_redelivery`, which the first description decides. Raises InvalidOption: it was decided otherwise."""

        def remembered(record: SubscriptionRecord) -> SubscriptionRecord | None:
            if not is_alive(record, subscription.topic):
                return None
            return described(record, properties, replicated=replicated, ordered=ordered)

        self._amend(subscription, remembered, deadline)

    def set_properties(self, subscription: Subscription, properties: Mapping[str, str], deadline: Deadline) -> None:
        """Replaces the properties. A deleted subscription is ignored."""

        def described_anew(record: SubscriptionRecord) -> SubscriptionRecord | None:
            return replace(record, properties=dict(properties)) if is_alive(record, subscription.topic) else None

        self._amend(subscription, described_anew, deadline)

    def stop_replicating(self, subscription: Subscription, deadline: Deadline) -> None:
        """Stops replication until a consumer or an administrator enables it again. A deleted subscription is
        ignored."""

        def stopped(record: SubscriptionRecord) -> SubscriptionRecord | None:
            return replace(record, replicated=False) if is_alive(record, subscription.topic) else None

        self._amend(subscription, stopped, deadline)

    def release(self, subscription: Subscription, client_id: str, deadline: Deadline) -> None:
        """Give back a consumer's claim and its entry as joining: the next consumer and a deletion wait for nothing."""
        if subscription.type is not SubscriptionType.EXCLUSIVE and not self._may_be_joining(subscription, client_id):
            return

        def released(record: SubscriptionRecord) -> SubscriptionRecord | None:
            seat = seat_of(record, subscription.partition)
            if seat is not None and seat.claim is not None and seat.claim.client_id == client_id:
                record = claimed(record, subscription.partition, None)
            return replace(record, joining={each: at for each, at in record.joining.items() if each != client_id})

        self._amend(subscription, released, deadline)

    def _may_be_joining(self, subscription: Subscription, client_id: str) -> bool:
        key = (str(subscription.topic.name), subscription.name)
        current = self._entities.of(key).cached(key)
        if current is None:
            return True  # nothing is known just now
        entry = decode_subscription(current.value).joining.get(client_id)
        return entry is not None and self._clock.now_ms() < entry.deadline_ms

    def joining(self, subscription: Subscription, deadline: Deadline) -> Collection[str]:
        """The client ids of consumers that have opened the subscription, or the partition of it, just now. Its group
        may not show them yet."""
        current = self._current(subscription.topic, subscription.name, deadline)
        record = None if current is None else decode_subscription(current.value)
        if record is None or not is_alive(record, subscription.topic):
            return []
        return self._occupants.joining(record, subscription.partition)

    def has_consumers(self, subscription: Subscription, deadline: Deadline) -> bool:
        """Whether the subscription has consumers in any process. Raises NotAuthorized: the caller may not see its
        groups."""
        return bool(self.joining(subscription, deadline)) or any(
            not is_over(member.client_id)
            for group in subscription.groups
            for member in self._admin.describe_group(group, deadline).members
        )

    def delete(self, subscription: Subscription, deadline: Deadline, *, force: bool = False) -> None:
        """Record that it is gone, then delete its groups with the committed offsets. Of a subscription that was opened
        on one partition only that part goes, and with the last part the rest. With `force` consumers that are joining
        do not count; they find that it is gone.

        Raises:
            SubscriptionBusy: it has live consumers.
        """
        partition = subscription.partition
        before: SubscriptionRecord | None = None

        def deleted(record: SubscriptionRecord) -> SubscriptionRecord | None:
            nonlocal before
            before = record
            if record.topic_incarnation > subscription.topic.layout.incarnation:
                raise errors.NoSuchSubscription(f"topic {subscription.topic.name} was deleted with {subscription.name}")
            if record.state is LifeState.DELETED:
                return None
            if not force and (joining := self._occupants.joining(record, partition)):
                raise errors.SubscriptionBusy(
                    f"subscription {subscription.name} of {subscription.place} has live consumers that have just "
                    f"joined: {', '.join(sorted(joining))}"
                )
            if self._have_members(subscription, record, deadline):  # after the entries: one that is over has a member
                raise errors.SubscriptionBusy(
                    f"subscription {subscription.name} of {subscription.place} has live consumers"
                )
            if partition is not None:
                record = removed(record, partition, range(subscription.topic.partitions))
            if partition is None or not record.partitions:
                record = replace(record, state=LifeState.DELETED, claim=None, seats={}, joining={})
            return record

        written = self._amend(subscription, deleted, deadline)
        if written is None or before is None:
            return  # another process deleted it long ago
        if self._have_members(subscription, before, deadline):
            self._take_back(str(subscription.topic.name), written, before, deadline)
            raise errors.SubscriptionBusy(
                f"subscription {subscription.name} of {subscription.place} got a live consumer at the same moment"
            )
        if decode_subscription(written.value).state is not LifeState.DELETED:
            return  # the partition's group stays: what it has is of another life, and what comes is not to be deleted
        for seat in (None, *served_partitions(before)):
            self._admin.delete_group(seat_group(subscription.topic.kafka_topic, subscription.name, seat), deadline)

    def _have_members(self, subscription: Subscription, record: SubscriptionRecord, deadline: Deadline) -> bool:
        """Whether groups of the whole subscription have members or, for one partition, its own group or the whole's
        has."""
        mine = [subscription.partition] if subscription.partition is not None else served_partitions(record)
        groups = (seat_group(subscription.topic.kafka_topic, subscription.name, seat) for seat in (None, *mine))
        return any(self._admin.describe_group(group, deadline).members for group in groups)

    def verify(self, subscription: Subscription, session: str, deadline: Deadline) -> Subscription:
        """Checks, after an assignment and before serving, that this session may still serve the subscription; returns
        its present state.

        An expired Exclusive claim is renewed: while this process was not in the group another may have found it free,
        and only the log decides which came first.

        Group memberships alone decide whether another process serves it in the other way: each process joins its group
        before it checks the other group, so at least one of two sees the other. The record decides which of them
        leaves.

        Raises:
            SubscriptionBusy: it was claimed by another session, reopened with another type, or is served in the other
                way.
            NoSuchSubscription: it was deleted.
        """
        partition = subscription.partition
        current = self._current(subscription.topic, subscription.name, deadline)
        record = decode_subscription(current.value) if current is not None else None
        if current is None or record is None or not is_alive(record, subscription.topic):
            raise errors.NoSuchSubscription(f"subscription {subscription.name} of {subscription.topic.name} is gone")
        now = opened_subscription(subscription.topic, current, record, partition)
        if any(now.life(p) != subscription.life(p) for p in subscription.served):
            raise errors.NoSuchSubscription(f"subscription {subscription.name} of {subscription.place} was made anew")
        seat = seat_of(record, partition)
        if seat is None or not serves(record, partition):
            raise errors.SubscriptionBusy(served_otherwise(subscription.name, subscription.topic, record))
        if seat.type != subscription.type.value:
            raise errors.SubscriptionBusy(f"subscription {subscription.name} was reopened as {seat.type}")
        if subscription.type is SubscriptionType.EXCLUSIVE and (seat.claim is None or seat.claim.session != session):
            raise errors.SubscriptionBusy(f"subscription {subscription.name} was claimed by another consumer")
        if seat.claim is not None and self._clock.now_ms() >= seat.claim.deadline_ms:
            self._renew(subscription, session, deadline)
        seats = other_seats(record, partition)
        if others := self._occupants.stay(subscription.topic, subscription.name, seats, None, deadline):
            holders = [process_of(member.client_id) for member in others]
            raise errors.SubscriptionBusy(served_otherwise(subscription.name, subscription.topic, None, holders))
        return now

    def _behind_what_goes(
        self, topic: Topic, name: str, current: Versioned, starts: Mapping[int, int], deadline: Deadline
    ) -> Versioned:
        """The subscription with new first offsets, just resolved, behind all ledgers that are being deleted. Its cursor
        is not open yet."""
        raised = self._first_left(topic, starts, deadline) if starts else {}
        if not raised:
            return current
        incarnation = _incarnation(topic, current, decode_subscription(current.value))

        def begun_later(found: Versioned) -> bytes | None:
            record = decode_subscription(found.value)
            if not is_alive(record, topic) or _incarnation(topic, found, record) != incarnation:
                return None
            later = {
                partition: max(offset, raised.get(int(partition), 0))
                for partition, offset in record.start_offsets.items()
            }
            return (
                None
                if later == record.start_offsets
                else encode_subscription(replace(record, start_offsets=later, incarnation=incarnation))
            )

        _log.info("subscription=%s of %s begins behind what is being deleted: %s", name, topic.name, raised)
        found = self._entities.amend((str(topic.name), name), begun_later, deadline)
        return current if found is None else found

    def _amend(
        self,
        subscription: Subscription,
        change: Callable[[SubscriptionRecord], SubscriptionRecord | None],
        deadline: Deadline,
    ) -> Versioned | None:
        """Write what `change` makes of a record, if that is another one; with its incarnation."""

        def amended(current: Versioned) -> bytes | None:
            record = decode_subscription(current.value)
            changed = change(record)
            if changed is None or changed == record:
                return None
            return encode_subscription(replace(changed, incarnation=subscription.incarnation))

        return self._entities.amend((str(subscription.topic.name), subscription.name), amended, deadline)

    def _current(self, topic: Topic, name: str, deadline: Deadline) -> Versioned | None:
        return self._entities.read((str(topic.name), name), deadline)

    def touch(self, deadline: Deadline) -> None:
        """Append what changes nothing, for the time in a broker's answer."""
        self._entities.touch((str(SUBSCRIPTIONS.topic_name), "clock"), deadline)

    def _renew(self, subscription: Subscription, session: str, deadline: Deadline) -> None:
        def renewed(current: Versioned | None) -> bytes | None:
            record = decode_subscription(current.value) if current is not None else None
            seat = seat_of(record, subscription.partition) if record is not None else None
            claim = seat.claim if seat is not None else None
            if record is None or claim is None or claim.session != session:
                raise errors.SubscriptionBusy(f"subscription {subscription.name} was claimed by another consumer")
            claim = replace(claim, deadline_ms=self._clock.now_ms() + CLAIM_MS)
            held = claimed(record, subscription.partition, claim)
            return encode_subscription(replace(held, incarnation=subscription.incarnation))

        topic = str(subscription.topic.name)
        self._entities.update((topic, subscription.name), renewed, deadline)

    def _look_again(
        self,
        topic: Topic,
        current: Versioned,
        replaced: SubscriptionRecord | None,
        seats: Sequence[int | None],
        claimant: Claimant | None,
        deadline: Deadline,
    ) -> None:
        """A consumer may have joined, and found all in order, after we looked at the groups and before our record was.

        One that joined later finds the record and leaves by itself, which is waited for.

        Raises:
            SubscriptionBusy: one stays; what we wrote is taken back.
        """
        name = decode_subscription(current.value).subscription
        others = self._occupants.stay(topic, name, seats, claimant, deadline)
        if not others:
            return
        self._take_back(str(topic.name), current, replaced, deadline)
        raise errors.SubscriptionBusy(
            f"subscription {name} of {topic.name} was joined by {len(others)} live consumer process(es) at the same"
            " moment, so it cannot be joined like this now"
        )

    def _take_back(
        self, topic: str, written: Versioned, replaced: SubscriptionRecord | None, deadline: Deadline
    ) -> None:
        """Restores the former record, unless another process has changed the written one."""

        def as_before(found: Versioned) -> bytes | None:
            if replaced is None or found.version != written.version:
                return None
            return encode_subscription(replace(replaced, incarnation=decode_subscription(found.value).incarnation))

        self._entities.amend((topic, decode_subscription(written.value).subscription), as_before, deadline)

    def _resolve(
        self,
        topic: Topic,
        partitions: Sequence[int],
        starts: dict[int, int],
        from_earliest: bool,
        deadline: Deadline,
    ) -> None:
        unknown = [partition for partition in partitions if partition not in starts]
        if unknown:
            request = self._admin.start_offsets if from_earliest else self._admin.end_offsets
            starts.update(request(topic.kafka_topic, unknown, deadline))


def opened_subscription(
    topic: Topic, current: Versioned, record: SubscriptionRecord, partition: int | None = None
) -> Subscription:
    """A subscription, or what of it is on one partition, as it is on record."""
    seat = seat_of(record, partition)
    seats = {int(name): found for name, found in record.seats.items()}
    return Subscription(
        topic,
        record.subscription,
        SubscriptionType(seat.type if seat is not None else record.type),
        seat_group(topic.kafka_topic, record.subscription, partition),
        _incarnation(topic, current, record),
        {int(p): offset for p, offset in record.start_offsets.items()},
        record.properties,
        record.replicated,
        partition,
        record.by_partition,
        None if record.partitions is None else tuple(record.partitions),
        {p: found.rebirths for p, found in seats.items()},
        {p: seat_group(topic.kafka_topic, record.subscription, p) for p in seats},
        {p: SubscriptionType(found.type) for p, found in seats.items()},
        record.follows,
        record.non_durable,
    )


def is_alive(record: SubscriptionRecord, topic: Topic) -> bool:
    """Whether the record is of an existing subscription, of this incarnation of the topic."""
    return record.state is LifeState.ACTIVE and record.topic_incarnation == topic.layout.incarnation


def _record_for(topic: Topic, current: Versioned | None) -> SubscriptionRecord | None:
    """The record of a subscription that is opened or made on this incarnation of its topic.

    Raises:
        NoSuchTopic: the record is of a later incarnation, so this one was deleted after it was opened.
    """
    record = None if current is None else decode_subscription(current.value)
    if record is not None and record.topic_incarnation > topic.layout.incarnation:
        raise errors.NoSuchTopic(f"topic {topic.name} was deleted")
    return record


def _incarnation(topic: Topic, current: Versioned, record: SubscriptionRecord) -> int:
    """The offset of the first record of this incarnation in the log; later versions carry it along."""
    if record.incarnation >= 0:
        return record.incarnation
    return incarnation_of(current.offset, SUBSCRIPTIONS.partition_for(str(topic.name)), SUBSCRIPTIONS.partitions)


def described(
    record: SubscriptionRecord, properties: Mapping[str, str] | None, *, replicated: bool, ordered: bool | None
) -> SubscriptionRecord:
    """The record with a consumer's options of its subscription. Raises InvalidOption (`with_ordered`)."""
    return replace(
        record,
        properties=with_ordered(record.properties, properties or record.properties, ordered, record.subscription),
        replicated=replicated or record.replicated,
    )
