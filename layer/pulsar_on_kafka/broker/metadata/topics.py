"""Topics: their records in the state topic `topics`, and the Kafka topics behind them.

Creation writes its intent first (CREATING), then creates the Kafka topic, then writes ACTIVE. The process that opens an
unfinished topic finishes it. Deletion goes the other way round, and ends in a DELETED version that keeps the name's
history. An incarnation's number is the offset of its CREATING record in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.broker.metadata.creation import automatic_partitions, check_topic_count
from pulsar_on_kafka.broker.metadata.deletion_marks import DeletionMarks
from pulsar_on_kafka.broker.metadata.entities import Entities, EntityKeys, Versioned
from pulsar_on_kafka.broker.metadata.namespaces import Namespaces
from pulsar_on_kafka.broker.metadata.policies import MAX_PARTITIONS
from pulsar_on_kafka.broker.metadata.removals import Removals
from pulsar_on_kafka.broker.metadata.topic_records import TopicRecords, is_life
from pulsar_on_kafka.kafka.admin import LEARNS_WITHIN_S, KafkaAdmin
from pulsar_on_kafka.kafka.records import TopicDescription
from pulsar_on_kafka.kafka.settings import MAX_MESSAGE_BYTES, RECORD_OVERHEAD_BYTES
from pulsar_on_kafka_mapping.ids.ledger_ids import (
    DEFAULT_ENTRIES_PER_LEDGER,
    MAX_ENTRIES_PER_LEDGER,
    LedgerLayout,
    incarnation_of,
)
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.instances import Instance, holds_state
from pulsar_on_kafka_mapping.state.metadata.metadata_records import (
    BacklogExceeded,
    LifeState,
    TopicRecord,
    decode_topic,
    encode_topic,
)
from pulsar_on_kafka_mapping.state.state_keys import TopicKey
from pulsar_on_kafka_mapping.state.state_topics import TOPICS

_log = logging.getLogger(__name__)

TOPIC_KEYS: Final[EntityKeys[str]] = EntityKeys(TopicKey)

DATA_TOPIC_CONFIGS: Final[Mapping[str, str]] = {
    # Storage is given back by this project, never behind its back.
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "max.message.bytes": str(MAX_MESSAGE_BYTES + RECORD_OVERHEAD_BYTES),
}


NON_PERSISTENT_CONFIGS: Final[Mapping[str, str]] = {
    # For those who are connected; a minute is for consumers that change hands. Kafka looks every few minutes.
    **DATA_TOPIC_CONFIGS,
    "retention.ms": "60000",
    "segment.ms": "60000",
}


@dataclass(frozen=True, slots=True)
class Topic:
    """An opened topic. `partitions` is Kafka's number: 1 for a non-partitioned one."""

    name: TopicName
    kafka_topic: str
    kafka_topic_id: str
    partitions: int
    partitioned: bool
    layout: LedgerLayout
    bound: bool = False
    policies: Mapping[str, Any] = field(default_factory=dict)
    """The topic's own policies when it was opened."""
    partition_names: tuple[str, ...] = ()
    compacted_to: Mapping[int, int] = field(default_factory=dict)
    """Up to where, exclusive, a compacted read leaves out all but the newest message of each key."""
    namespace_policies: Mapping[str, Any] | None = None
    """The policies of its namespace and the cluster then (empty without the right to read them); None where they were
    not read."""
    backlog_exceeded: BacklogExceeded | None = None
    """Whether its backlog exceeded a quota when it was opened."""
    terminated: Mapping[int, int] = field(default_factory=dict)
    """The end of each partition of a terminated topic: the offset behind its last message. Empty otherwise."""
    created_ms: int = 0
    """The Unix time at which it was made; 0: not on record."""

    def partition_field(self, partition: int) -> int:
        """The partition that a message id shows."""
        return partition if self.partitioned else -1


def opened_topic(record: TopicRecord, partitions: int) -> Topic:
    """A topic as it is on record, of which Kafka has so many partitions."""
    name, partitioned = TopicName.parse(record.name), record.partitions > 0
    return Topic(
        name,
        record.kafka_topic,
        record.kafka_topic_id,
        partitions if partitioned else 1,
        partitioned,
        LedgerLayout(record.incarnation, record.entries_per_ledger),
        record.bound,
        record.policies,
        tuple(str(name.with_partition(p)) for p in range(partitions)) if partitioned else (str(name),),
        {int(partition): end for partition, end in record.compacted_to.items()},
        backlog_exceeded=record.backlog_exceeded,
        terminated={int(partition): end for partition, end in record.terminated.items()},
        created_ms=record.created_ms,
    )


def check_not_terminated(topic: Topic) -> None:
    """Raises TopicIsTerminated."""
    if topic.terminated:
        raise errors.TopicIsTerminated(f"topic {topic.name} was terminated: it takes no further message")


def check_backlog(topic: Topic, now_ms: int) -> None:
    """Raises BacklogQuotaHolds or BacklogQuotaRefuses where no further producer may be made now."""
    exceeded = topic.backlog_exceeded
    if exceeded is not None and exceeded.until_ms > now_ms:
        kind = errors.BacklogQuotaHolds if exceeded.holds else errors.BacklogQuotaRefuses
        raise kind(f"topic {topic.name} takes no further producer: {exceeded}")


@dataclass(frozen=True, slots=True)
class LastLife:
    """The last life that a topic's name had; `topic` is None when it is over, or `deleting`: being deleted. `former`:
    the incarnation of the life before it, 0 for none."""

    incarnation: int
    topic: Topic | None
    deleting: TopicRecord | None = None
    former: int = 0


class Topics:
    """Opens, creates, grows and deletes topics. Thread-safe."""

    def __init__(
        self,
        entities: Entities[str],
        namespaces: Namespaces,
        admin: KafkaAdmin,
        clock: Clock,
        instance: Instance,
        end_producers: Callable[[TopicRecord, Deadline], Collection[str]] = lambda record, deadline: (),
        until: Callable[[Callable[[], bool], Deadline], bool] = wait_until,
    ) -> None:
        """`clock` returns the brokers' time. `end_producers` ends the producers of a deleted incarnation, and returns
        an id for each process whose records may still arrive. `until`: repeats a check whether a broker knows a topic;
        simulations count and do not wait."""
        self._end_producers = end_producers
        self._until = until
        self._entities = entities
        self.records: Final = TopicRecords(entities)
        self._instance = instance
        self._namespaces = namespaces
        self._admin = admin
        self._clock = clock
        self.removals = Removals(admin, clock, self.records.amend, self._look)
        self.deletions = DeletionMarks(clock, self.records.amend, self.records.read, until)

    def find(self, name: TopicName, deadline: Deadline) -> Topic | None:
        """The topic if it exists. A Kafka topic of that name without a record of this product is none yet (see
        `open`)."""
        found = self._read(name, deadline)
        if found is None or found[1].state is not LifeState.ACTIVE:
            return None
        topic = self._checked(found[1], deadline)
        return None if topic is None else _of_partition(topic, name)

    def last_life(self, name: TopicName, deadline: Deadline) -> LastLife | None:
        """The live incarnation of a topic of this name, or the last one; None for one that never existed."""
        found = self._read(name, deadline)
        if found is None:
            return None
        record = found[1]
        return LastLife(
            record.incarnation,
            self._checked(record, deadline) if record.state is LifeState.ACTIVE else None,
            record if record.state is LifeState.DELETING else None,
            record.former,
        )

    def partitions_now(self, topic: Topic, deadline: Deadline) -> int:
        """The present number of partitions of an opened topic.

        Raises:
            NoSuchTopic: it was deleted, or deleted and recreated.
        """
        described = self._admin.describe_topic(topic.kafka_topic, deadline)
        if described is None or described.topic_id != topic.kafka_topic_id:
            raise errors.NoSuchTopic(f"topic {topic.name} was deleted")
        return described.partitions if topic.partitioned else 1

    def kafka_topic_id(self, name: TopicName, deadline: Deadline) -> str:
        """The id of the Kafka topic that holds the messages of an open topic; sends no request where it is known.

        Raises:
            NoSuchTopic: the topic does not exist.
        """
        current = self._entities.of(str(name.base)).cached(str(name.base))
        record = decode_topic(current.value) if current is not None else None
        if record is None or record.state is not LifeState.ACTIVE:
            found = self._read(name, deadline)
            if found is None or found[1].state is not LifeState.ACTIVE:
                raise errors.NoSuchTopic(f"topic {name.base} does not exist")
            record = found[1]
        return record.kafka_topic_id

    def open(self, name: TopicName, deadline: Deadline) -> Topic:
        """The topic, made as the policies of its namespace say if it does not exist: by default as a non-partitioned
        one.

        A Kafka topic that is there already under the mapped name is bound: it keeps its own configuration.

        Raises:
            NoSuchNamespace: tenant or namespace do not exist.
            NoSuchTopic: the name has a partition's suffix, and there is no such partition. Or there is no such topic,
                and the namespace does not allow its creation.
            Refused: as `create`.
        """
        policies = self._namespaces.policies_for_topics(name.namespace_name, deadline)
        found = self.find(name, deadline)
        if found is not None:
            return replace(found, namespace_policies=policies)
        _check_no_partition(name)
        partitions = automatic_partitions(name, policies)
        check_topic_count(name, partitions, policies, self.records, deadline)
        created = self._create(name, partitions, DEFAULT_ENTRIES_PER_LEDGER, deadline)
        return replace(created, namespace_policies=policies)

    def check_openable(self, name: TopicName, deadline: Deadline) -> int:
        """The partitions of a topic that `open` would create, 0 for a non-partitioned one or one that exists; creates
        nothing. Raises NoSuchNamespace and NoSuchTopic as `open`."""
        if self.find(name, deadline) is not None:
            return 0
        policies = self._namespaces.policies_for_topics(name.namespace_name, deadline)
        _check_no_partition(name)
        return automatic_partitions(name, policies)

    def create(
        self,
        name: TopicName,
        partitions: int,
        deadline: Deadline,
        *,
        entries_per_ledger: int = DEFAULT_ENTRIES_PER_LEDGER,
        properties: Mapping[str, str] | None = None,
    ) -> Topic:
        """Make a topic with these properties; 0 partitions is a non-partitioned one.

        Raises:
            AlreadyExists: the topic exists.
            InvalidOption: partitions are not 0 to 8,192.
            Refused: the namespace would have more topics than it may.
        """
        if not 0 <= partitions <= MAX_PARTITIONS:
            raise errors.InvalidOption(f"a topic has 1 to {MAX_PARTITIONS} partitions, got {partitions}")
        if name.partition >= 0:
            raise errors.InvalidOption(f"{name} names a partition; create {name.base} with more partitions instead")
        policies = self._namespaces.policies_for_topics(name.namespace_name, deadline)
        if self.find(name, deadline) is not None:
            raise errors.AlreadyExists(f"topic {name} exists already")
        check_topic_count(name, partitions, policies, self.records, deadline)
        return self._create(name, partitions, entries_per_ledger, deadline, properties)

    def find_or_create(
        self,
        name: TopicName,
        partitions: int,
        deadline: Deadline,
        *,
        entries_per_ledger: int = DEFAULT_ENTRIES_PER_LEDGER,
    ) -> Topic:
        """The topic as it is, or made as `create` does: several may do so at once. Raises as `create` where there is
        none in the end."""
        found = self.find(name, deadline)
        if found is not None:
            return found
        try:
            return self.create(name, partitions, deadline, entries_per_ledger=entries_per_ledger)
        except errors.AlreadyExists:
            found = self.find(name, deadline)
            if found is None:
                raise
            return found

    def find_or_create_like(
        self,
        name: TopicName,
        partitions: int,
        deadline: Deadline,
        *,
        entries_per_ledger: int = DEFAULT_ENTRIES_PER_LEDGER,
        sides: tuple[str, str],
        or_more: bool = False,
    ) -> Topic:
        """The topic with as many partitions (0: not partitioned) as one elsewhere: existing, created, or grown.

        Raises:
            Refused: one alone is partitioned, or this one has more, unless it may (`or_more`). `sides` describe the
                places of the two, and the remedy.
        """
        found = self.find_or_create(name, partitions, deadline, entries_per_ledger=entries_per_ledger)
        has = found.partitions if found.partitioned else 0
        if bool(has) != bool(partitions) or (has > partitions and not or_more):
            raise errors.Refused(
                f"topic {name} has {has} partitions {sides[0]}, {partitions} (0: not partitioned) {sides[1]}"
            )
        return self.grow_to(name, partitions, deadline) if has < partitions else found

    def bind(self, name: TopicName, existing: str, deadline: Deadline) -> Topic:
        """Give an existing Kafka topic a Pulsar name: it is read with Pulsar's semantics, its configuration stays.

        Raises:
            NoSuchTopic: there is no Kafka topic `existing`.
            AlreadyExists: the Pulsar name is taken.
        """
        self._namespaces.require(name.namespace_name, deadline)
        if self.find(name, deadline) is not None:
            raise errors.AlreadyExists(f"topic {name} exists already")
        self._without_former_life(name, deadline)
        self._check_not_taken(existing, deadline)
        described = self._settled_description(existing, deadline, lambda reported: reported is not None)
        if described is None:
            raise errors.NoSuchTopic(f"there is no Kafka topic {existing} to bind {name} to")
        partitions = 0 if described.partitions == 1 else described.partitions
        record = TopicRecord(
            str(name), LifeState.CREATING, existing, partitions, DEFAULT_ENTRIES_PER_LEDGER, bound=True,
            created_ms=self._clock.now_ms(),
        )  # fmt: skip
        return self._finish(name, self._begin(name, record, deadline), deadline)

    def _check_not_taken(self, existing: str, deadline: Deadline) -> None:
        """Two names for one Kafka topic would share its groups, and each other's cursors."""
        if holds_state(existing):
            raise errors.InvalidOption(f"{existing} holds this project's own state and cannot be bound")
        for found in self._entities.all(deadline):
            record = decode_topic(found.value)
            if record.kafka_topic == existing and record.state is not LifeState.DELETED:
                raise errors.AlreadyExists(f"Kafka topic {existing} is topic {record.name} already")

    def grow(self, name: TopicName, partitions: int, deadline: Deadline) -> Topic:
        """Raise the number of partitions; the new ones start empty.

        Raises:
            NoSuchTopic: there is none.
            InvalidOption: the topic is not partitioned, or `partitions` is not above the present number.
            TopicIsTerminated: no message could be sent to new partitions.
        """
        topic = self.find(name.base, deadline)
        if topic is None:
            raise errors.NoSuchTopic(f"topic {name.base} does not exist")
        if not topic.partitioned:
            raise errors.InvalidOption(f"topic {name.base} is not partitioned")
        check_not_terminated(topic)
        if not topic.partitions < partitions <= MAX_PARTITIONS:
            raise errors.InvalidOption(
                f"topic {name.base} has {topic.partitions} partitions, can grow to {MAX_PARTITIONS}, got {partitions}"
            )
        policies = self._namespaces.policies_for_topics(name.namespace_name, deadline)
        check_topic_count(name, partitions - topic.partitions, policies, self.records, deadline)
        self._admin.grow_topic(topic.kafka_topic, partitions, deadline)

        def grown(record: TopicRecord) -> TopicRecord:
            return replace(record, partitions=max(record.partitions, partitions))

        if self.records.amend(name, grown, deadline) is None:
            raise errors.NoSuchTopic(f"topic {name.base} does not exist")
        return self.open(name.base, deadline)

    def grow_to(self, name: TopicName, partitions: int, deadline: Deadline) -> Topic:
        """`grow`, unless it has as many: several may do so at once. Raises as `grow` where it has fewer in the end."""
        try:
            return self.grow(name, partitions, deadline)
        except errors.LayerError:
            found = self.find(name.base, deadline)
            if found is None or not found.partitioned or found.partitions < partitions:
                raise
            return found

    def compact(self, name: TopicName, deadline: Deadline) -> None:
        """Lets compacted reads fold all messages that are now in the topic, or in one partition of it. No message is
        removed.

        Raises:
            NoSuchTopic: it does not exist.
        """
        topic = self.find(name, deadline)
        if topic is None:
            raise errors.NoSuchTopic(f"topic {name.base} does not exist")
        partitions = range(topic.partitions) if name.partition < 0 else (name.partition,)
        ends = self._admin.end_offsets(topic.kafka_topic, partitions, deadline)

        def compacted(record: TopicRecord) -> TopicRecord:
            raised = {str(p): max(end, record.compacted_to.get(str(p), 0)) for p, end in ends.items()}
            return replace(record, compacted_to={**record.compacted_to, **raised})

        self.records.change(topic, compacted, deadline)

    def policies(self, name: TopicName, deadline: Deadline) -> Mapping[str, Any]:
        """Policies that are set for the topic itself. Raises NoSuchTopic, or InvalidOption for a partition."""
        return self._with_policies(name, deadline).policies

    def _with_policies(self, name: TopicName, deadline: Deadline) -> Topic:
        if name.partition >= 0:
            raise errors.InvalidOption(f"{name} names a partition; policies are those of the whole topic {name.base}")
        topic = self.find(name, deadline)
        if topic is None:
            raise errors.NoSuchTopic(f"topic {name} does not exist")
        return topic

    def change_policies(
        self, name: TopicName, change: Callable[[Mapping[str, Any]], Mapping[str, Any]], deadline: Deadline
    ) -> None:
        """Set the topic's own policies to what `change` makes of them; the same object for no change.

        Raises:
            NoSuchTopic: there is none.
            InvalidOption: the name is a partition's.
        """
        topic = self._with_policies(name, deadline)
        self.records.change(topic, lambda record: replace(record, policies=change(record.policies)), deadline)

    def begin_deletion(self, name: TopicName, deadline: Deadline) -> TopicRecord:
        """Records that the topic is being deleted: from then on no topic has that name, and it can be created again.
        Returns that record; `finish_deletion` does the rest. A second call does no harm. Programs that use the topic do
        not count (`DeletionMarks.begin`).

        Raises:
            NoSuchTopic: it does not exist.
            InvalidOption: the name is a partition's.
        """
        if name.partition >= 0:
            raise errors.InvalidOption(f"{name} names a partition; only the whole topic {name.base} can be deleted")
        found = self._read(name, deadline)
        if found is None or found[1].state is LifeState.DELETED:
            raise errors.NoSuchTopic(f"topic {name.base} does not exist")
        self.records.set_state(found[1], LifeState.DELETING, deadline)
        return replace(found[1], state=LifeState.DELETING)

    def list(self, namespace: str, deadline: Deadline) -> list[TopicRecord]:
        """The topics of a namespace, by name."""
        self._namespaces.require(namespace, deadline)
        found = self.records.active(deadline)
        return sorted(
            (record for record in found if TopicName.parse(record.name).namespace_name == namespace),
            key=lambda record: record.name,
        )

    def _read(self, name: TopicName, deadline: Deadline) -> tuple[Versioned, TopicRecord] | None:
        key = str(name.base)
        current = self._entities.read(key, deadline)
        if current is None:
            return None
        record = decode_topic(current.value)
        if record.state is LifeState.CREATING:  # its creator died halfway
            self._finish(name.base, current, deadline)
            return self._read(name, deadline)
        return current, record

    def finish_deletion(self, record: TopicRecord, deadline: Deadline) -> None:
        """Ends the producers of a DELETING incarnation, deletes its Kafka topic with the rest of its data (a bound one
        stays), and records DELETED. Concurrent calls do no harm.

        Raises:
            DeadlineExceeded: the check of the Kafka topic's owner is too old. And other LayerErrors.
        """
        senders = self._end_producers(record, deadline)
        if record.bound:
            self.records.set_state(record, LifeState.DELETED, deadline)
            return
        with suppress(errors.NoSuchTopic):  # another process has finished it
            self.removals.delete_topic(record, senders, deadline)

    def _without_former_life(self, name: TopicName, deadline: Deadline) -> tuple[Versioned, TopicRecord] | None:
        """The record. Kafka has no two topics of one name: the data of a deleted incarnation are deleted at once,
        before this."""
        found = self._read(name, deadline)
        if found is not None and found[1].state is LifeState.DELETING:
            self.finish_deletion(found[1], deadline)
            found = self._read(name, deadline)
        return found

    def _create(
        self,
        name: TopicName,
        partitions: int,
        entries_per_ledger: int,
        deadline: Deadline,
        properties: Mapping[str, str] | None = None,
    ) -> Topic:
        if not 1 <= entries_per_ledger <= MAX_ENTRIES_PER_LEDGER:
            raise errors.InvalidOption(
                f"entries_per_ledger must be 1 to {MAX_ENTRIES_PER_LEDGER}, got {entries_per_ledger}"
            )
        intent = None
        while intent is None:
            deadline.check(f"topic {name} to be created")
            intent = self._begin_creation(name, partitions, entries_per_ledger, properties or {}, deadline)
        return self._finish(name, intent, deadline)

    def _begin_creation(
        self,
        name: TopicName,
        partitions: int,
        entries_per_ledger: int,
        properties: Mapping[str, str],
        deadline: Deadline,
    ) -> Versioned | None:
        """The record then; None where an incarnation of the topic began and ended meanwhile: the Kafka topic that was
        found may have been its."""
        found = self._without_former_life(name, deadline)
        kafka_name = self._instance.kafka_topic(name)
        if found is not None and found[1].state is LifeState.DELETED:
            version, former = found[0].version, found[1]
            kafka_name = self.removals.name_of_next(
                kafka_name, former, version, lambda: self._entities.read(str(name), deadline), self._until, deadline
            )
        gone = "" if found is None or found[1].bound else found[1].kafka_topic_id
        described = self._settled_description(
            kafka_name, deadline, lambda reported: reported is None or reported.topic_id != gone
        )
        if described is not None:
            if described.partitions > 1 or partitions == 0:
                partitions = 0 if described.partitions == 1 else described.partitions
            elif partitions > described.partitions:
                raise errors.AlreadyExists(
                    f"Kafka topic {kafka_name} is there with {described.partitions} partitions, not {partitions}"
                )
        record = TopicRecord(
            str(name), LifeState.CREATING, kafka_name, partitions, entries_per_ledger, bound=described is not None,
            created_ms=self._clock.now_ms(), properties=properties,
        )  # fmt: skip
        intent = self._begin(name, record, deadline, unless_after=0 if found is None else found[0].version)
        begun = decode_topic(intent.value)
        if begun.bound and begun.created_ms == record.created_ms and self._instance.name:
            _log.warning(
                "topic=%s Kafka topic %s was there before instance %s knew of it; if another instance uses it, too, "
                "both share its groups and know nothing of each other's cursors (docs/acls.md)",
                name, kafka_name, self._instance.name,
            )  # fmt: skip
        return None if begun.state is LifeState.DELETED else intent

    def _begin(
        self, name: TopicName, record: TopicRecord, deadline: Deadline, *, unless_after: int | None = None
    ) -> Versioned:
        """Writes the intent; an earlier intent or topic of another process has precedence. Nothing is written where
        another version than `unless_after` is the newest."""

        def intent(current: Versioned | None) -> bytes | None:
            before = None if current is None else decode_topic(current.value)
            if before is not None and before.state is not LifeState.DELETED:
                return None
            if unless_after is not None and current is not None and current.version != unless_after:
                return None
            if before is None:
                return encode_topic(record)
            gone = "" if before.bound else before.kafka_topic_id
            return encode_topic(
                replace(record, former=before.incarnation, kafka_topic_id=gone, unanswered=before.unanswered)
            )

        return self._entities.update(str(name), intent, deadline)

    def _finish(self, name: TopicName, intent: Versioned, deadline: Deadline) -> Topic:
        record = decode_topic(intent.value)
        if record.state is LifeState.CREATING:
            described = self._made(name, intent, deadline)
            incarnation = incarnation_of(intent.offset, TOPICS.partition_for(str(name)), TOPICS.partitions)
            active = replace(record, state=LifeState.ACTIVE, incarnation=incarnation, kafka_topic_id=described.topic_id)

            def finished(current: Versioned) -> bytes | None:
                return encode_topic(active) if current.version == intent.version else None

            found = self._entities.amend(str(name), finished, deadline)
            record = replace(record, state=LifeState.DELETED) if found is None else decode_topic(found.value)
        topic = self._checked(record, deadline) if record.state is LifeState.ACTIVE else None
        if topic is None:
            raise errors.TopicIncarnationChanged(f"topic {name} was deleted while it was being created")
        return topic

    def _made(self, name: TopicName, intent: Versioned, deadline: Deadline) -> TopicDescription:
        """The Kafka topic of a CREATING incarnation. The one that Kafka reported may have been a former incarnation's,
        just before its deletion: while this incarnation lasts, it is created again. The loss of a bound one ends this
        incarnation."""
        record, state = decode_topic(intent.value), LifeState.CREATING
        configs = DATA_TOPIC_CONFIGS if name.is_persistent else NON_PERSISTENT_CONFIGS
        while state in (LifeState.CREATING, LifeState.ACTIVE):
            deadline.check(f"Kafka topic {record.kafka_topic} to appear")
            if not record.bound and state is LifeState.CREATING:
                self._admin.create_topic(record.kafka_topic, max(1, record.partitions), configs, deadline)
            described = self._settled_description(
                record.kafka_topic, deadline, lambda reported: _is_of(reported, record)
            )
            if described is not None and _is_of(described, record):
                return described
            now = self._entities.read(str(name), deadline)
            state = LifeState.DELETED if now is None else decode_topic(now.value).state
            if record.bound and state is LifeState.CREATING:
                deadline.check(f"Kafka topic {record.kafka_topic} to appear")
                self.records.set_state(record, LifeState.DELETED, deadline)
        raise errors.TopicIncarnationChanged(f"topic {name} was deleted while it was being created")

    def _checked(self, record: TopicRecord, deadline: Deadline) -> Topic | None:
        """The topic as recorded, once Kafka agrees that it is still the same one.

        A Kafka topic that was deleted and made anew behind our back is a new incarnation: the old life is recorded as
        DELETED. None when the Kafka topic is gone.
        """
        described = self._look(record, deadline)
        if described is None:
            deadline.check(f"brokers to agree that Kafka topic {record.kafka_topic} is gone")
            self.records.set_state(record, LifeState.DELETED, deadline)
            return None
        return opened_topic(record, described.partitions)

    def _look(self, record: TopicRecord, deadline: Deadline) -> TopicDescription | None:
        """The present Kafka topic of a created incarnation; None where it was deleted. Partitions are added before that
        is recorded, so a broker that knows fewer has not received them yet."""

        def settled(reported: TopicDescription | None) -> bool:
            if (
                reported is not None
                and reported.topic_id == record.kafka_topic_id
                and reported.partitions >= record.partitions
            ):
                return True
            now = self._entities.read(record.name, deadline)
            return now is None or not is_life(decode_topic(now.value), record, record.state)

        described = self._settled_description(record.kafka_topic, deadline, settled)
        if described is None or described.topic_id != record.kafka_topic_id:
            return None
        if described.partitions < record.partitions:
            _log.warning("topic=%s has %d partitions, Kafka reports %s", record.name, record.partitions, described)
        return described

    def _settled_description(
        self, kafka_topic: str, deadline: Deadline, settled: Callable[[TopicDescription | None], bool]
    ) -> TopicDescription | None:
        """Kafka's description of a topic. A broker may receive creations, additions and deletions late: until the
        description is `settled` the request is repeated, for `LEARNS_WITHIN_S` at most."""
        described: TopicDescription | None = None

        def is_settled() -> bool:
            nonlocal described
            described = self._admin.describe_topic(kafka_topic, deadline)
            return settled(described)

        self._until(is_settled, deadline.at_most(LEARNS_WITHIN_S))
        return described


def _is_of(reported: TopicDescription | None, creating: TopicRecord) -> bool:
    """Whether it may be the Kafka topic of a CREATING incarnation, whose record names the one of the incarnation
    before."""
    return reported is not None and reported.topic_id != creating.kafka_topic_id


def _check_no_partition(name: TopicName) -> None:
    if name.partition >= 0:
        raise errors.NoSuchTopic(f"topic {name.base} does not exist, so it has no partition {name.partition}")


def _of_partition(topic: Topic, name: TopicName) -> Topic:
    if name.partition >= 0 and (not topic.partitioned or name.partition >= topic.partitions):
        raise errors.NoSuchTopic(
            f"topic {topic.name} has {topic.partitions if topic.partitioned else 'no'} partitions, "
            f"so there is no partition {name.partition}"
        )
    return topic
