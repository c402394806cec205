"""Subscriptions: creation with a resolved start position, the type, and the claim of an Exclusive one."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from layer import errors
from layer.clock import Clock
from layer.deadline import Deadline
from layer.dispatch.strategy import SubscriptionType
from layer.kafka.admin import KafkaAdmin
from layer.kafka.records import GroupMember
from layer.metadata.entities import Entities, EntityKeys, Versioned
from layer.metadata.topics import Topic
from mapping.ledger import incarnation_of
from mapping.state_keys import SubscriptionKey
from mapping.state_records.metadata import Claim, LifeState, SubscriptionRecord, decode_subscription, encode
from mapping.state_topics import SUBSCRIPTIONS
from mapping.subscription_group import check_subscription_name, group_id

_log = logging.getLogger(__name__)

SUBSCRIPTION_KEYS: Final[EntityKeys[tuple[str, str]]] = EntityKeys(
    SubscriptionKey, lambda key: (str(key.topic), str(key.subscription)), lambda names: names
)

CLAIM_MS: Final = 10_000
"""How long a claim holds by itself; after that its owner must be a member of the group."""


_LEAVING_S: Final = 1.0
_LOOK_AGAIN_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Subscription:
    """An opened subscription. `start_offsets` has the partitions that existed when it was created."""

    topic: Topic
    name: str
    type: SubscriptionType
    group: str
    incarnation: int
    start_offsets: Mapping[int, int]

    def start_offset(self, partition: int) -> int:
        """Where its cursor starts; a partition added later starts at 0."""
        return self.start_offsets.get(partition, 0)


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who wants an Exclusive subscription; `client_id` is the one its group membership will have."""

    session: str
    client_id: str
    consumer_name: str


class Subscriptions:
    """Thread-safe."""

    def __init__(self, entities: Entities[tuple[str, str]], admin: KafkaAdmin, clock: Clock) -> None:
        self._entities = entities
        self._admin = admin
        self._clock = clock

    def find(self, topic: Topic, name: str, deadline: Deadline) -> Subscription | None:
        current = self._current(topic, name, deadline)
        if current is None:
            return None
        record = decode_subscription(current.value)
        return self._opened(topic, current, record) if _alive(record, topic) else None

    def list(self, topic: Topic, deadline: Deadline) -> list[Subscription]:
        """The subscriptions of a topic, by name."""
        found = []
        for current in self._entities.of_partition(str(topic.name), deadline):
            record = decode_subscription(current.value)
            if record.topic == str(topic.name) and _alive(record, topic):
                found.append(self._opened(topic, current, record))
        return sorted(found, key=lambda subscription: subscription.name)

    def open(
        self,
        topic: Topic,
        name: str,
        kind: SubscriptionType,
        *,
        from_earliest: bool,
        claimant: Claimant | None,
        deadline: Deadline,
    ) -> Subscription:
        """The subscription, created if it is not there, ready to be joined with this type.

        Creation resolves the initial position to one offset per partition before this returns. An Exclusive
        subscription is claimed.

        Raises:
            SubscriptionBusy: it is claimed by somebody else, or has live consumers of another type.
        """
        check_subscription_name(name)
        start: dict[int, int] | None = None
        replaced: dict[str, SubscriptionRecord] = {}

        def opened(current: Versioned | None) -> bytes | None:
            nonlocal start
            replaced.clear()
            record = decode_subscription(current.value) if current is not None else None
            claim = self._claim(claimant) if claimant is not None else None
            if record is None or not _alive(record, topic):
                if start is None:
                    start = self._initial_offsets(topic, from_earliest, deadline)
                return encode(
                    SubscriptionRecord(
                        str(topic.name), name, LifeState.ACTIVE, kind.value,
                        {str(p): offset for p, offset in start.items()},
                        topic_incarnation=topic.layout.incarnation, claim=claim, created_ms=self._clock.now_ms(),
                    )
                )  # fmt: skip
            assert current is not None  # noqa: S101 - there is a record
            self._check_free(topic, record, kind, claimant, deadline)
            changed = replace(record, type=kind.value, claim=claim, incarnation=_incarnation(topic, current, record))
            if changed == record:
                return None
            replaced[name] = record
            return encode(changed)

        current = self._entities.update(str(topic.name), (str(topic.name), name), opened, deadline)
        if replaced and claimant is not None:
            self._look_again(topic, current, replaced[name], claimant, deadline)
        return self._opened(topic, current, decode_subscription(current.value))

    def create(self, topic: Topic, name: str, offsets: Mapping[int, int], deadline: Deadline) -> Subscription:
        """Make a subscription without consumers.

        Raises:
            AlreadyExists: it is there.
        """
        check_subscription_name(name)

        def created(current: Versioned | None) -> bytes | None:
            if current is not None and _alive(decode_subscription(current.value), topic):
                raise errors.AlreadyExists(f"subscription {name} of {topic.name} exists already")
            return encode(
                SubscriptionRecord(
                    str(topic.name), name, LifeState.ACTIVE, SubscriptionType.EXCLUSIVE.value,
                    {str(p): offset for p, offset in offsets.items()},
                    topic_incarnation=topic.layout.incarnation, created_ms=self._clock.now_ms(),
                )
            )  # fmt: skip

        current = self._entities.update(str(topic.name), (str(topic.name), name), created, deadline)
        return self._opened(topic, current, decode_subscription(current.value))

    def release(self, subscription: Subscription, session: str, deadline: Deadline) -> None:
        """Give a claim back, so that the next consumer need not wait for anything."""

        def released(current: Versioned | None) -> bytes | None:
            record = decode_subscription(current.value) if current is not None else None
            if record is None or record.claim is None or record.claim.session != session:
                return None
            return encode(replace(record, claim=None, incarnation=subscription.incarnation))

        topic = str(subscription.topic.name)
        self._entities.update(topic, (topic, subscription.name), released, deadline)

    def delete(self, subscription: Subscription, deadline: Deadline) -> None:
        """Record that it is gone, then delete its group with the committed offsets.

        Raises:
            SubscriptionBusy: it has live consumers.
        """
        if self._admin.describe_group(subscription.group, deadline).members:
            raise errors.SubscriptionBusy(f"subscription {subscription.name} has live consumers")

        def deleted(current: Versioned | None) -> bytes | None:
            if current is None:
                return None
            record = decode_subscription(current.value)
            if record.state is LifeState.DELETED:
                return None
            return encode(replace(record, state=LifeState.DELETED, claim=None, incarnation=subscription.incarnation))

        topic = str(subscription.topic.name)
        self._entities.update(topic, (topic, subscription.name), deleted, deadline)
        self._admin.delete_group(subscription.group, deadline)

    def verify(self, subscription: Subscription, session: str, deadline: Deadline) -> None:
        """Check, after an assignment and before serving, that this is still ours to serve.

        An Exclusive claim whose own time is over is renewed: while we were not in the group somebody may have found it
        free, and only the log tells who came first.

        Raises:
            SubscriptionBusy: it was claimed by another session, or reopened with another type.
            NoSuchSubscription: it was deleted.
        """
        current = self._current(subscription.topic, subscription.name, deadline)
        record = decode_subscription(current.value) if current is not None else None
        if record is None or not _alive(record, subscription.topic):
            raise errors.NoSuchSubscription(f"subscription {subscription.name} of {subscription.topic.name} is gone")
        if record.type != subscription.type.value:
            raise errors.SubscriptionBusy(f"subscription {subscription.name} was reopened as {record.type}")
        if subscription.type is SubscriptionType.EXCLUSIVE and (
            record.claim is None or record.claim.session != session
        ):
            raise errors.SubscriptionBusy(f"subscription {subscription.name} was claimed by another consumer")
        if record.claim is not None and self._clock.now_ms() >= record.claim.deadline_ms:
            self._renew(subscription, session, deadline)

    # Inside -------------------------------------------------------------------------------------------------------

    def _current(self, topic: Topic, name: str, deadline: Deadline) -> Versioned | None:
        return self._entities.read(str(topic.name), (str(topic.name), name), deadline)

    def _renew(self, subscription: Subscription, session: str, deadline: Deadline) -> None:
        def renewed(current: Versioned | None) -> bytes | None:
            record = decode_subscription(current.value) if current is not None else None
            claim = record.claim if record is not None else None
            if record is None or claim is None or claim.session != session:
                raise errors.SubscriptionBusy(f"subscription {subscription.name} was claimed by another consumer")
            claim = replace(claim, deadline_ms=self._clock.now_ms() + CLAIM_MS)
            return encode(replace(record, claim=claim, incarnation=subscription.incarnation))

        topic = str(subscription.topic.name)
        self._entities.update(topic, (topic, subscription.name), renewed, deadline)

    def _look_again(
        self, topic: Topic, current: Versioned, replaced: SubscriptionRecord, claimant: Claimant, deadline: Deadline
    ) -> None:
        """A consumer may have joined, and found all in order, after we looked at the group and before our claim stood.

        One that joined later finds the claim and leaves by itself, which is waited for.

        Raises:
            SubscriptionBusy: one stays; the claim is taken back.
        """
        patience = Deadline.after(min(_LEAVING_S, deadline.remaining_s()))
        pause = threading.Event()
        while others := self._other_members(topic, replaced.subscription, claimant, deadline):
            if patience.passed():
                break
            pause.wait(_LOOK_AGAIN_S)
        else:
            return

        def taken_back(found: Versioned | None) -> bytes | None:
            if found is None or found.version != current.version:
                return None
            record = decode_subscription(found.value)
            return encode(replace(record, type=replaced.type, claim=replaced.claim))

        self._entities.update(str(topic.name), (str(topic.name), replaced.subscription), taken_back, deadline)
        raise errors.SubscriptionBusy(
            f"subscription {replaced.subscription} of {topic.name} was joined by {len(others)} live consumer"
            " process(es) at the same moment, so it cannot be joined as Exclusive now"
        )

    def _claim(self, claimant: Claimant) -> Claim:
        return Claim(
            claimant.session,
            claimant.client_id,
            self._clock.now_ms() + CLAIM_MS,
            claimant.consumer_name,
            this_process(),
        )

    def _initial_offsets(self, topic: Topic, from_earliest: bool, deadline: Deadline) -> dict[int, int]:
        partitions = range(topic.partitions)
        if from_earliest:
            return self._admin.start_offsets(topic.kafka_topic, partitions, deadline)
        return self._admin.end_offsets(topic.kafka_topic, partitions, deadline)

    def _check_free(
        self,
        topic: Topic,
        record: SubscriptionRecord,
        kind: SubscriptionType,
        claimant: Claimant | None,
        deadline: Deadline,
    ) -> None:
        """Raises SubscriptionBusy when live consumers stand against joining with `kind`."""
        exclusive = kind is SubscriptionType.EXCLUSIVE or record.type == SubscriptionType.EXCLUSIVE.value
        if record.type == kind.value and not exclusive:
            return
        claim = record.claim
        if claim is not None and (claimant is None or claim.session != claimant.session) and self._holds(claim):
            raise errors.SubscriptionBusy(
                f"subscription {record.subscription} of {topic.name} is held exclusively by consumer "
                f"{claim.consumer_name} ({claim.process})"
            )
        others = self._other_members(topic, record.subscription, claimant, deadline)
        if others:
            raise errors.SubscriptionBusy(
                f"subscription {record.subscription} of {topic.name} has {len(others)} live consumer process(es) "
                f"as {record.type}, so it cannot be joined as {kind.value} now"
            )

    def _other_members(
        self, topic: Topic, subscription: str, claimant: Claimant | None, deadline: Deadline
    ) -> tuple[GroupMember, ...]:
        """The group's members, without the claimant's own and those whose process is known to be dead."""
        return tuple(
            member
            for member in self._admin.describe_group(group_id(topic.kafka_topic, subscription), deadline).members
            if (claimant is None or member.client_id != claimant.client_id) and not _is_dead_client(member.client_id)
        )

    def _holds(self, claim: Claim) -> bool:
        """A claim holds by itself until its deadline, unless its process is known to be dead."""
        return self._clock.now_ms() < claim.deadline_ms and not is_dead_process(claim.process)

    def _opened(self, topic: Topic, current: Versioned, record: SubscriptionRecord) -> Subscription:
        return Subscription(
            topic,
            record.subscription,
            SubscriptionType(record.type),
            group_id(topic.kafka_topic, record.subscription),
            _incarnation(topic, current, record),
            {int(partition): offset for partition, offset in record.start_offsets.items()},
        )


def _alive(record: SubscriptionRecord, topic: Topic) -> bool:
    return record.state is LifeState.ACTIVE and record.topic_incarnation == topic.layout.incarnation


def _incarnation(topic: Topic, current: Versioned, record: SubscriptionRecord) -> int:
    """Where the first record of this life lies in the log; later versions carry it along."""
    if record.incarnation >= 0:
        return record.incarnation
    return incarnation_of(current.offset, SUBSCRIPTIONS.partition_for(str(topic.name)), SUBSCRIPTIONS.partitions)


def this_process() -> str:
    """Host, process id and start time: enough to know later, on the same host, that it is dead."""
    return f"{socket.gethostname()}:{os.getpid()}:{_started(os.getpid())}"


def is_dead_process(process: str) -> bool:
    """True only when it ran on this host and is certainly gone."""
    host, _, rest = process.rpartition(":")
    host, _, pid = host.rpartition(":")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    return _started(int(pid)) != rest


def _is_dead_client(client_id: str) -> bool:
    """A member's client id ends in its process (see `member_client_id`)."""
    _, separator, process = client_id.partition("@")
    return bool(separator) and is_dead_process(process)


def member_client_id(base: str, session: str) -> str:
    """Client id of a group member: unique for its session, and tells its process."""
    return f"{base}-{session[:12]}@{this_process()}"


def _started(pid: int) -> str:
    """Start time of a process in clock ticks since boot; '' when there is no such process (or no /proc)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
