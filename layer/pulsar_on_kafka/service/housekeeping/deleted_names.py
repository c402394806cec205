"""Removes records in `topics`, `subscriptions` and `producers` of topics and subscriptions that were deleted a day ago,
and registrations without consumers.

Other workers remove the rest of their data, and check for the deletion: so a topic's record is removed when no other
state topic refers to it. Incarnations are places in the log and are never reused; for versions see decision 0026.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol, TypeAlias, TypeVar

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.service.housekeeping.rounds import DAY_MS, MAX_TOMBSTONES
from pulsar_on_kafka.statelog.api import LogRecord, StateLog
from pulsar_on_kafka.statelog.compare_and_set import Versioned
from pulsar_on_kafka.statelog.versioned import E
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.ids.ledger_ids import unpack_ledger_id
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import (
    LifeState,
    RegistrationsRecord,
    SubscriptionRecord,
    TopicRecord,
)
from pulsar_on_kafka_mapping.state.state_keys import LedgerKey, ProducerClaimsKey, decode_key
from pulsar_on_kafka_mapping.state.state_topics import (
    CURSOR_CHECKPOINTS,
    CURSORS,
    LEDGERS,
    PRODUCERS,
    SCHEMAS,
    SUBSCRIPTION_PROGRESS,
    SUBSCRIPTIONS,
    TOPICS,
    TRANSACTION_BUFFER_SNAPSHOT,
    TRANSACTION_PENDING_ACK,
    StateTopic,
)

_log: Final = logging.getLogger(__name__)

_SPEAKING: Final = (
    SCHEMAS,
    CURSORS,
    CURSOR_CHECKPOINTS,
    LEDGERS,
    PRODUCERS,
    TRANSACTION_BUFFER_SNAPSHOT,
    TRANSACTION_PENDING_ACK,
    SUBSCRIPTION_PROGRESS,
)

_Name: TypeAlias = tuple[str, str]
R = TypeVar("R")


class TopicPartitions(Protocol):
    """The calls on `metadata.topics.TopicPartitions` that read a partition's records and remove dead ones."""

    def on_record(self, partition: int, deadline: Deadline) -> Mapping[str, tuple[Versioned, TopicRecord]]: ...
    def remove_dead(self, partition: int, dead: Mapping[str, Versioned], deadline: Deadline) -> int: ...


class SubscriptionPartitions(Protocol):
    """The calls on `metadata.subscriptions.registry.SubscriptionPartitions` that read a partition's records and remove
    dead ones."""

    def on_record(self, partition: int, deadline: Deadline) -> Mapping[_Name, tuple[Versioned, SubscriptionRecord]]: ...
    def remove_dead(self, partition: int, dead: Mapping[_Name, Versioned], deadline: Deadline) -> int: ...


class RegistrationPartitions(Protocol):
    """The calls on `metadata.subscriptions.consumer_registrations.ConsumerRegistrations` that read a partition's
    records and remove dead ones."""

    def on_record(
        self, partition: int, deadline: Deadline
    ) -> Mapping[_Name, tuple[Versioned, RegistrationsRecord]]: ...
    def remove_dead(self, partition: int, dead: Mapping[_Name, Versioned], deadline: Deadline) -> int: ...


class Producers(Protocol):
    """The calls on `metadata.producers.registry.ProducerRegistry` that find topics without claims and remove dead
    ones."""

    def unclaimed(self, partition: int, deadline: Deadline) -> Mapping[str, Versioned]: ...
    def remove_dead(self, partition: int, unclaimed: Mapping[str, Versioned], deadline: Deadline) -> int: ...


class _SpokenOf:
    """Fold of one partition of any state topic: which of some topics live keys are about. Memory: those keys."""

    def __init__(self, dead: Mapping[str, TopicRecord]) -> None:
        self._dead = dead
        self._by_life = {record.incarnation: name for name, record in dead.items()}
        self._keys: dict[str, set[bytes]] = {}

    def apply(self, record: LogRecord) -> None:
        key = decode_key(record.key)
        about = str(getattr(key, "topic", ""))
        if isinstance(key, LedgerKey):
            about = self._by_life.get(unpack_ledger_id(key.ledger_id).incarnation, "")
        if about not in self._dead or isinstance(key, ProducerClaimsKey):
            return
        keys = self._keys.setdefault(about, set())
        (keys.discard if record.value is None else keys.add)(record.key)

    def topics(self) -> set[str]:
        return {topic for topic, keys in self._keys.items() if keys}


class DeadNames:
    """Removes deleted names, in one thread. Memory, during a call: the records of one partition of `subscriptions` and
    `topics`, and the keys of deleted topics."""

    name = "dead names"

    def __init__(
        self,
        log: StateLog,
        clock: Clock,
        topics: TopicPartitions,
        subscriptions: SubscriptionPartitions,
        registrations: RegistrationPartitions,
        producers: Producers,
        exists: Callable[[StateTopic, Deadline], bool],
        *,
        kept_ms: int = DAY_MS,
    ) -> None:
        """`exists`: whether the state topic exists yet. `kept_ms`: far longer than any process uses an earlier reading
        of a topic or subscription."""
        self._log = log
        self._clock = clock
        self._topics = topics
        self._subscriptions = subscriptions
        self._registrations = registrations
        self._producers = producers
        self._exists = exists
        self._kept_ms = kept_ms

    def run(self, partition: int, deadline: Deadline) -> int:
        """Remove names that have been dead for long enough. At most 20,000 of each kind."""
        before_ms = self._clock.now_ms() - self._kept_ms
        here, there = partition % TOPICS.partitions, partition % SUBSCRIPTIONS.partitions
        topics = _of_partition(partition, self._topics.on_record(here, deadline), str)
        subscriptions = _of_partition(partition, self._subscriptions.on_record(there, deadline), _topic_of)
        gone = {
            name: state
            for name, (state, record) in subscriptions.items()
            if state.written_ms < before_ms and _is_gone(record, topics.get(record.topic))
        }
        done = self._subscriptions.remove_dead(there, _some(gone), deadline)
        left = {topic for topic, _ in subscriptions.keys() - gone.keys()}
        registrations = _of_partition(partition, self._registrations.on_record(there, deadline), _topic_of)
        unused = {
            name: state
            for name, (state, record) in registrations.items()
            if state.written_ms < before_ms
            and (not record.consumers or _is_past(record.topic_incarnation, topics.get(record.topic)))
        }
        done += self._registrations.remove_dead(there, _some(unused), deadline)
        left |= {topic for topic, _ in registrations.keys() - unused.keys()}
        dead = {
            name: state
            for name, (state, record) in topics.items()
            if record.state is LifeState.DELETED and state.written_ms < before_ms and name not in left
        }
        if dead:
            unclaimed = self._producers.unclaimed(partition, deadline)
            done += self._producers.remove_dead(
                partition, _some({n: unclaimed[n] for n in dead & unclaimed.keys()}), deadline
            )
            for name in self._spoken_of({name: topics[name][1] for name in dead}, deadline):
                del dead[name]
            done += self._topics.remove_dead(here, _some(dead), deadline)
        if done:
            _log.info(
                "partition=%d removed %d records of %d subscriptions and up to %d topics that are gone",
                partition, done, len(gone), len(dead),
            )  # fmt: skip
        return done

    def _spoken_of(self, dead: Mapping[str, TopicRecord], deadline: Deadline) -> Collection[str]:
        found: set[str] = set()
        for state_topic in _SPEAKING:
            if not self._exists(state_topic, deadline):
                continue
            for number in {state_topic.partition_for(name) for name in dead}:
                view = LogView(self._log, state_topic, number, lambda: _SpokenOf(dead), self._clock)
                found |= view.query(_SpokenOf.topics, deadline)
        return found


def _of_partition(partition: int, records: Mapping[E, R], topic_of: Callable[[E], str]) -> dict[E, R]:
    """The records of topics whose producers are in this partition of `producers`."""
    return {name: found for name, found in records.items() if PRODUCERS.partition_for(topic_of(name)) == partition}


def _topic_of(name: _Name) -> str:
    return name[0]


def _is_gone(record: SubscriptionRecord, topic: tuple[Versioned, TopicRecord] | None) -> bool:
    """Whether the subscription was deleted, or its topic is deleted or in another incarnation."""
    return record.state is LifeState.DELETED or _is_past(record.topic_incarnation, topic)


def _is_past(incarnation: int, topic: tuple[Versioned, TopicRecord] | None) -> bool:
    """Whether this incarnation of the topic was deleted."""
    if topic is None:
        return False
    life = topic[1]
    if life.state is LifeState.DELETED:
        return True
    return life.state is LifeState.ACTIVE and life.incarnation != incarnation


def _some(dead: Mapping[E, Versioned]) -> dict[E, Versioned]:
    return dict(list(dead.items())[:MAX_TOMBSTONES])


_JOINING_MS: Final = 300_000
"""The time within which the creator of a subscription joins its group."""


class LivingTopics(Protocol):
    def find(self, name: TopicName, deadline: Deadline) -> Topic | None: ...


class LivingSubscriptions(Protocol):
    def active(self, deadline: Deadline) -> Sequence[SubscriptionRecord]: ...
    def find(self, topic: Topic, name: str, deadline: Deadline) -> Subscription | None: ...


class MembershipRecords(Protocol):
    def remove_if_unused(self, subscription: Subscription, deadline: Deadline) -> bool: ...


class NonDurableHousekeeping:
    """Removes non-durable subscriptions whose last process was killed: closing the last consumer removes its
    subscription. Leftovers of killed ones do not count and are not shown; a new subscription of the name starts anew.
    Memory: the records of all subscriptions, during a pass."""

    name = "non_durable_subscriptions"

    def __init__(
        self, clock: Clock, topics: LivingTopics, subscriptions: LivingSubscriptions, memberships: MembershipRecords
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._subscriptions = subscriptions
        self._memberships = memberships

    def run(self, partition: int, deadline: Deadline) -> int:
        """Remove what is left over of this partition's topics; gives how many subscriptions that were."""
        old_ms = self._clock.now_ms() - _JOINING_MS
        done = 0
        for record in self._subscriptions.active(deadline):
            if not record.non_durable or record.created_ms > old_ms:
                continue
            if CURSOR_CHECKPOINTS.partition_for(record.topic) != partition:
                continue
            try:
                topic = self._topics.find(TopicName.parse(record.topic), deadline)
                found = None if topic is None else self._subscriptions.find(topic, record.subscription, deadline)
                done += found is not None and self._memberships.remove_if_unused(found, deadline)
            except LayerError as failure:
                deadline.check("non-durable subscriptions to be removed")
                _log.warning("subscription=%s/%s cannot be removed now: %s", record.topic, record.subscription, failure)
        return done
