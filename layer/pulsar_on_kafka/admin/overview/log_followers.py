"""The logs that an overview is made of, read on from pass to pass: all partitions of them together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Corrupt, LayerError, NotAuthorized, OffsetOutOfRange
from pulsar_on_kafka.broker.cursor.checkpoints import CheckpointFold
from pulsar_on_kafka.broker.metadata.namespaces import NAMESPACE_KEYS
from pulsar_on_kafka.broker.metadata.subscriptions.registry import SUBSCRIPTION_KEYS
from pulsar_on_kafka.broker.metadata.topics import TOPIC_KEYS
from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.broker.transactions.pending_acks.log import PendingAckLog
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.kafka.groups.offsets_topic import (
    OFFSETS_TOPIC,
    CommitPlace,
    GroupCommit,
    MembersOf,
    decode_commit,
    decode_group_key,
    decode_members,
)
from pulsar_on_kafka.kafka.reading.events import KafkaPartition
from pulsar_on_kafka.kafka.reading.range_reader import OffsetRange, RangeReader
from pulsar_on_kafka.kafka.records import GroupMember, KafkaRecord
from pulsar_on_kafka.statelog.api import LogRecord, log_record
from pulsar_on_kafka.statelog.versioned import VersionedEntities
from pulsar_on_kafka.statelog.view import LogFold
from pulsar_on_kafka_mapping.routing.key_hashes import group_partition
from pulsar_on_kafka_mapping.state.state_topics import (
    CURSOR_CHECKPOINTS,
    NAMESPACES,
    SUBSCRIPTIONS,
    TOPICS,
    TRANSACTION_BUFFER_SNAPSHOT,
    TRANSACTION_PENDING_ACK,
    StateTopic,
)

F = TypeVar("F", bound=LogFold)
Ends: TypeAlias = Mapping[tuple[str, int], int]


class FollowedGroups:
    """Commits of the consumer groups of subscriptions, and their members, as a fold over `__consumer_offsets`.

    Groups of other names are ignored. Memory: the newest commit of each cursor, of 4,095 characters at most, and the
    names of live members.
    """

    def __init__(self) -> None:
        self.commits: dict[CommitPlace, GroupCommit] = {}
        self.members: dict[str, tuple[GroupMember, ...]] = {}

    def apply(self, record: LogRecord) -> None:
        """Raises ValueError for bytes that cannot be read; then nothing has changed."""
        match decode_group_key(record.key):
            case CommitPlace(group, kafka_topic, _) as place if group.startswith(f"{kafka_topic}/"):
                commit = None if record.value is None else decode_commit(record.value)
                if commit is None:
                    self.commits.pop(place, None)
                else:
                    self.commits[place] = commit
            case MembersOf(group) if "/" in group:
                members = None if record.value is None else decode_members(record.value)
                if members:
                    self.members[group] = members
                else:
                    self.members.pop(group, None)
            case _:
                pass


class _Log:
    """One partition: the end of the reading, and its data."""

    __slots__ = ("fold", "position", "unreadable")

    def __init__(self, fold: LogFold) -> None:
        self.fold = fold
        self.position: int | None = None
        self.unreadable: dict[bytes, str] = {}
        """The error of each unreadable record, by key."""

    def apply(self, record: LogRecord) -> None:
        self.unreadable.pop(record.key, None)
        try:
            self.fold.apply(record)
        except (Corrupt, ValueError) as failure:
            if record.value is not None and len(self.unreadable) < _MAX_UNREADABLE:
                self.unreadable[record.key] = f"offset {record.offset}: {failure}"
        self.position = record.offset + 1


_MAX_UNREADABLE: Final = 1000


class FollowedLogs:
    """The followed logs, for one thread; results hold only at the end of a pass. Unreadable records are skipped, and
    reported.

    Memory: some kilobytes for each topic, subscription and cursor (its newest commit and checkpoint, 4,095 characters
    at most each), see `BufferEntries` and `PendingAckLog`, and one reply of a broker.
    """

    def __init__(self, names: Callable[[StateTopic], str]) -> None:
        """`names`: the Kafka topic of a state topic."""
        self._names = names
        self.logs: dict[KafkaPartition, _Log] = {}
        self.topics = self._each(TOPICS, lambda: VersionedEntities(TOPIC_KEYS))
        self.subscriptions = self._each(SUBSCRIPTIONS, lambda: VersionedEntities(SUBSCRIPTION_KEYS))
        self.namespaces = self._each(NAMESPACES, lambda: VersionedEntities(NAMESPACE_KEYS))
        self.checkpoints = self._each(CURSOR_CHECKPOINTS, CheckpointFold)
        self.buffers = self._each(TRANSACTION_BUFFER_SNAPSHOT, BufferEntries)
        self.pending_acks = self._each(TRANSACTION_PENDING_ACK, PendingAckLog)
        self.groups = FollowedGroups()
        self.reads_commits = True
        """False: this user may not."""
        self.failures: dict[str, str] = {}
        """Failures of readings in the last pass, by Kafka topic."""
        self._there: set[str] = set()
        self._unread: set[KafkaPartition] = set()
        """Partitions that were not read to their ends in the last pass."""
        self._groups_partitions = 0

    def _each(self, topic: StateTopic, fold: Callable[[], F]) -> list[F]:
        folds = [fold() for _ in range(topic.partitions)]
        name = self._names(topic)
        self.logs |= {KafkaPartition(name, number): _Log(each) for number, each in enumerate(folds)}
        return folds

    def look(self, admin: KafkaAdmin, deadline: Deadline) -> None:
        """Looks up which of these topics exist, without creating missing ones."""
        found = admin.describe_topics([*{where.topic for where in self.logs} | {OFFSETS_TOPIC}], deadline)
        allowed = admin.access.allowed_on_topics([OFFSETS_TOPIC], deadline).get(OFFSETS_TOPIC)
        self.reads_commits = allowed is None or "Read" in allowed
        self._there = found.keys() - {OFFSETS_TOPIC}
        offsets = found.get(OFFSETS_TOPIC)
        if offsets is not None and self.reads_commits:
            self._there.add(OFFSETS_TOPIC)
            self._groups_partitions = offsets.partitions
            for number in range(offsets.partitions):
                self.logs.setdefault(KafkaPartition(OFFSETS_TOPIC, number), _Log(self.groups))

    @property
    def complete(self) -> bool:
        """Whether all of these topics existed at the last look-up."""
        requested = {where.topic for where in self.logs}
        return self._there >= (requested | {OFFSETS_TOPIC} if self.reads_commits else requested)

    def required_ends(self) -> list[tuple[str, int]]:
        """Partitions whose ends `read_on` needs."""
        return [(where.topic, where.partition) for where in self.logs if where.topic in self._there]

    def not_begun(self) -> list[tuple[str, int]]:
        """Partitions whose beginnings it needs."""
        return [where for where in self.required_ends() if self.logs[KafkaPartition(*where)].position is None]

    def is_current(self, group: str, topic: str) -> bool:
        """Whether the last pass read everything that a cursor of this group and this topic was saved in."""
        if not self._unread:
            return True
        where = KafkaPartition(self._names(CURSOR_CHECKPOINTS), CURSOR_CHECKPOINTS.partition_for(topic))
        if self.reads_commits and self._groups_partitions:
            where = KafkaPartition(OFFSETS_TOPIC, group_partition(group, self._groups_partitions))
        return where not in self._unread

    def read_on(self, reader: RangeReader, ends: Ends, starts: Ends, deadline: Deadline) -> None:
        """Read to these ends. Raises OffsetOutOfRange: a log begins behind where it was read to; start over."""
        logs = [self.logs[KafkaPartition(*where)] for where in self.required_ends()]
        ranges = []
        for where, log in zip(self.required_ends(), logs, strict=True):
            if log.position is None:
                log.position = starts.get(where)
            begin = log.position if log.position is not None else 0
            ranges.append(OffsetRange(*where, begin, ends.get(where, 0) if log.position is not None else 0))

        def take(number: int, records: list[KafkaRecord]) -> None:
            for record in records:
                logs[number].apply(log_record(record))

        failed = reader.read(ranges, take, deadline)
        self.failures = {where[0]: "its end is not known now" for where in self.required_ends() if where not in ends}
        self._unread = {KafkaPartition(*where) for where in self.required_ends() if where not in ends}
        self._unread |= {KafkaPartition(*ranges[number][:2]) for number in failed}
        for number, failure in failed.items():
            self._judge(ranges[number].kafka_topic, failure)
        for number, log in enumerate(logs):
            if number not in failed and log.position is not None:
                log.position = max(log.position, ranges[number].end)

    def _judge(self, kafka_topic: str, failure: LayerError) -> None:
        if isinstance(failure, OffsetOutOfRange):
            raise failure
        if kafka_topic == OFFSETS_TOPIC and isinstance(failure, NotAuthorized):
            self.reads_commits = False
        else:
            self.failures[kafka_topic] = str(failure)

    def unreadable(self) -> Iterator[str]:
        """The skipped records."""
        for where, log in self.logs.items():
            yield from (f"{where} {reason}" for reason in log.unreadable.values())


def states_of(folds: Iterable[VersionedEntities[Any]]) -> dict[Any, Any]:
    """The entities of all partitions, with their states."""
    return {entity: state for fold in folds for entity, state in fold.states().items()}
