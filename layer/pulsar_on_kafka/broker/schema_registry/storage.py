"""Schema storage writes one record a version to the compacted `schemas` state topic, and keeps every winner for good.

A version is a proposal by compare-and-set (layer/pulsar_on_kafka/statelog/README.md): version n is the winner of the
entity's version n + 1, so versions are dense from 0 despite races, and compaction deletes nothing else: each key is
written once, and only losers are tombstoned. A deletion is a version as well. It ends the life of earlier versions;
their records stay, because messages name them, unless it is forced. Views hold a summary of each record; definitions
are read on demand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from enum import Enum
from typing import Final, Protocol

import orjson

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.entities import Entities, EntityKeys, Versioned
from pulsar_on_kafka.broker.schema_registry.known import BoundedCache
from pulsar_on_kafka.broker.schema_registry.model import (
    NOTHING_REGISTERED,
    CatalogEntry,
    SchemaEntry,
    SchemaHistory,
    StoredSchema,
    TopicLife,
    info_of,
)
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka.statelog.compare_and_set import Won
from pulsar_on_kafka.statelog.versioned import Keeping
from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError, NewerFormat
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.state.metadata.schema_records import SchemaRecord, decode_schema, deletion, encode_schema
from pulsar_on_kafka_mapping.state.state_keys import SchemaKey
from pulsar_on_kafka_mapping.state.state_topics import SCHEMAS
from pulsar_on_kafka_schema_compat import SchemaType

_REASON_CHARS: Final = 300
_TYPE_CHARS: Final = 60


class SchemaRecordKind(str, Enum):
    """Kinds of records."""

    SCHEMA = "schema"
    DELETION = "deletion"
    REMOVAL = "removal"
    """A deletion that takes what was deleted before, too."""
    UNREADABLE = "unreadable"
    NEWER = "newer"
    """A later version of this project can read it."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of one record. `sha256` is that of a readable definition, `timestamp_ms` (Unix) the time of its
    registration, `reason` the error of an unreadable record."""

    kind: SchemaRecordKind
    type_name: str = ""
    sha256: str = ""
    record_bytes: int = 0
    timestamp_ms: int = 0
    reason: str = ""
    definition_bytes: int = 0


def summarized(value: bytes) -> bytes:
    """The summary of a record, at most some 700 bytes. Raises nothing."""
    # A copy: what orjson gives holds on to a buffer of kilobytes.
    return bytes(memoryview(orjson.dumps(astuple(_summary(value)))))


def summary_of(text: bytes) -> Summary:
    """The inverse."""
    kind, *others = orjson.loads(text)
    return Summary(SchemaRecordKind(kind), *others)


def _summary(value: bytes) -> Summary:
    try:
        record = decode_schema(value)
    except NewerFormat as error:
        return Summary(SchemaRecordKind.NEWER, record_bytes=len(value), reason=str(error)[:_REASON_CHARS])
    except CorruptRecord as error:
        return Summary(SchemaRecordKind.UNREADABLE, record_bytes=len(value), reason=str(error)[:_REASON_CHARS])
    kind = SchemaRecordKind.SCHEMA
    if record.deleted:
        kind = SchemaRecordKind.REMOVAL if record.removes else SchemaRecordKind.DELETION
    return Summary(
        kind, record.type[:_TYPE_CHARS], record.sha256, len(value), record.timestamp_ms,
        definition_bytes=len(record.schema),
    )  # fmt: skip


DEFINITIONS_BYTES: Final = 64 * 1024 * 1024
PORTION_BYTES: Final = 8 * 1024 * 1024

SCHEMA_KEYS: Final[EntityKeys[TopicLife]] = EntityKeys(
    SchemaKey, TopicLife, lambda life: (life.topic, life.kafka_topic_id)
)


class SchemaStorage(Protocol):
    """Thread-safe. Every call may raise what `StateLog` raises."""

    def history(self, life: TopicLife, deadline: Deadline) -> SchemaHistory:
        """The topic's versions, read to the end first.

        Raises:
            UnreadableSchemas: a live one can never be read again.
            Corrupt: a later version of this project wrote one that this version does not know.
        """
        ...

    def load(
        self, life: TopicLife, history: SchemaHistory, entries: Sequence[SchemaEntry], deadline: Deadline
    ) -> Iterator[StoredSchema]:
        """These of the topic's live versions with their definitions, one after the other in this order.

        Raises:
            UnreadableSchemas: one is not there any more.
        """
        ...

    def get(self, life: TopicLife, version: SchemaVersion, deadline: Deadline) -> StoredSchema | None:
        """This version, also when it was deleted since; None for a deletion itself, and for a missing or removed
        version. Each version is read once, as long as there is room for it.

        Raises:
            UnreadableSchemas: its record can never be read again.
        """
        ...

    def catalog(self, deadline: Deadline) -> Iterator[CatalogEntry]:
        """Every version of every topic whose definition can be read, also deleted ones: lives in any order, the
        versions of each oldest first."""
        ...

    def put(
        self, life: TopicLife, expected: SchemaVersion | None, record: SchemaRecord, deadline: Deadline
    ) -> SchemaVersion | None:
        """Write the version after `expected` (None: the first). None unless it certainly was: read again.

        Raises:
            InvalidOption: the record is too large.
        """
        ...

    def delete(self, life: TopicLife, user: str, deadline: Deadline, *, forced: bool = False) -> SchemaVersion | None:
        """Writes a deletion after all versions, readable or not, and returns its version; None without any.

        With `forced` all earlier versions, deleted or not, are void, and their records are removed.
        """
        ...

    def force_delete(
        self, life: TopicLife, after: SchemaVersion, user: str, deadline: Deadline
    ) -> SchemaVersion | None:
        """A deletion, only if `after` is still the newest version. None unless it certainly was: read again."""
        ...

    def forget(self, topic: str, deadline: Deadline) -> None:
        """Remove every record of a topic that is gone, of all its lives."""
        ...

    def newest_seen(self, life: TopicLife) -> SchemaVersion | None:
        """The last version, deletions included, as far as known without a request; None without any."""
        ...


class StateLogSchemaStorage:
    """Schemas on a state log: Kafka's, or the one in memory.

    Memory: less than 1.5 kB a version of the topics in those of the state topic's 8 partitions that are in use, and
    definitions up to `DEFINITIONS_BYTES`; evicted ones are read again on demand. A call that goes through a topic's
    definitions holds at most `PORTION_BYTES` of them beyond that (or one, if it is larger).
    """

    def __init__(self, log: StateLog, clock: Clock) -> None:
        self._log = log
        self._entities = Entities(log, SCHEMAS, SCHEMA_KEYS, clock, Keeping(winners=True, value=summarized))
        self._clock = clock
        self._definitions: BoundedCache[tuple[TopicLife, SchemaVersion], StoredSchema] = BoundedCache(DEFINITIONS_BYTES)

    def history(self, life: TopicLife, deadline: Deadline) -> SchemaHistory:
        winners = self._entities.of(life).winners(life, deadline)
        if not winners:
            return NOTHING_REGISTERED
        newest = winners[-1].version
        by_version = {winner.version: winner for winner in winners}
        live: list[SchemaEntry] = []
        for version in range(newest, 0, -1):
            winner = by_version.get(version)
            if winner is None:
                gone = f"schema version {version - 1} of {life} is no longer in {self._log.kafka_name(SCHEMAS)}"
                raise errors.UnreadableSchemas(gone, newest - 1)
            entry = self._entry(life, winner, newest)
            if entry is None:
                break
            live.append(entry)
        return SchemaHistory(SchemaVersion(newest - 1), tuple(reversed(live)))

    def load(
        self, life: TopicLife, history: SchemaHistory, entries: Sequence[SchemaEntry], deadline: Deadline
    ) -> Iterator[StoredSchema]:
        newest = history.newest.number if history.newest else 0
        for portion in _portions(entries):
            yield from self._load_together(life, newest, portion, deadline)

    def _load_together(
        self, life: TopicLife, newest: int, entries: Sequence[SchemaEntry], deadline: Deadline
    ) -> list[StoredSchema]:
        known = {entry: self._definitions.get((life, entry.version)) for entry in entries}
        missing = [entry for entry, stored in known.items() if stored is None]
        found = self._read(life, missing, deadline) if missing else {}
        again = [entry for entry in missing if entry not in found]
        if again:  # before callers treat them as permanently lost
            found |= self._read(life, again, deadline)
        loaded = []
        for entry in entries:
            stored = known[entry] or found.get(entry)
            if stored is None:
                gone = f"schema version {entry.version} of {life} is no longer at offset {entry.kafka_offset}"
                raise errors.UnreadableSchemas(f"{gone} of {self._log.kafka_name(SCHEMAS)}-{_partition(life)}", newest)
            loaded.append(stored)
        return loaded

    def _read(
        self, life: TopicLife, entries: Sequence[SchemaEntry], deadline: Deadline
    ) -> dict[SchemaEntry, StoredSchema]:
        offsets = [entry.kafka_offset for entry in entries]
        records = self._log.read_at(SCHEMAS, _partition(life), offsets, deadline)
        found = {}
        for entry in entries:
            record = records.get(entry.kafka_offset)
            if record is None or record.value is None or summary_of(summarized(record.value)).sha256 != entry.sha256:
                continue
            stored = _stored(entry, decode_schema(record.value))
            self._definitions.put((life, entry.version), stored, entry.record_bytes)
            found[entry] = stored
        return found

    def get(self, life: TopicLife, version: SchemaVersion, deadline: Deadline) -> StoredSchema | None:
        known = self._definitions.get((life, version))
        if known is not None:
            return known
        for winner in reversed(self._entities.of(life).winners(life, deadline)):
            if winner.version == version.number + 1:
                entry = self._entry(life, winner, winner.version)
                return None if entry is None else self._load_together(life, version.number, [entry], deadline)[0]
            if summary_of(winner.value).kind is SchemaRecordKind.REMOVAL:
                return None  # below it may stand what arrived late, and never was a version
        return None

    def catalog(self, deadline: Deadline) -> Iterator[CatalogEntry]:
        for life, winners in self._entities.histories(deadline):
            found: list[CatalogEntry] = []
            is_live = True
            for winner in reversed(winners):
                summary = summary_of(winner.value)
                if summary.kind is SchemaRecordKind.REMOVAL:
                    break
                if summary.kind is SchemaRecordKind.DELETION:
                    is_live = False
                elif summary.kind is SchemaRecordKind.SCHEMA and summary.type_name in SchemaType.__members__:
                    found.append(CatalogEntry(life, _entry_of(winner, summary), is_live))
            yield from reversed(found)

    def put(
        self, life: TopicLife, expected: SchemaVersion | None, record: SchemaRecord, deadline: Deadline
    ) -> SchemaVersion | None:
        try:
            value = encode_schema(record)
        except MappingError as error:
            raise errors.InvalidOption(f"topic {life}: {error}") from error
        after = 0 if expected is None else expected.number + 1
        try:
            outcome = self._entities.of(life).propose(life, after, value, deadline)
        except errors.RecordTooLarge as error:
            kept_in = self._log.kafka_name(SCHEMAS)
            raise errors.RecordTooLarge(
                f"the schema of {life} takes {len(value)} bytes, more than {kept_in} takes, which an "
                f"earlier version made: pok doctor shows how to raise its max.message.bytes ({error})"
            ) from error
        return SchemaVersion(outcome.version - 1) if isinstance(outcome, Won) else None

    def delete(self, life: TopicLife, user: str, deadline: Deadline, *, forced: bool = False) -> SchemaVersion | None:
        deleted = self._mark_deleted(life, user, deadline, forced=forced)
        if forced:
            self._entities.of(life).remove(life, deadline, below=self._removed_to(life, deadline))
            self._definitions.clear()
        return deleted

    def _removed_to(self, life: TopicLife, deadline: Deadline) -> int:
        """The newest removal, as versions are counted in the log; 0 for none. What was registered after it stays."""
        winners = self._entities.of(life).winners(life, deadline)
        return max(
            (one.version for one in winners if summary_of(one.value).kind is SchemaRecordKind.REMOVAL), default=0
        )

    def _mark_deleted(self, life: TopicLife, user: str, deadline: Deadline, *, forced: bool) -> SchemaVersion | None:
        done = (SchemaRecordKind.REMOVAL,) if forced else (SchemaRecordKind.DELETION, SchemaRecordKind.REMOVAL)
        while True:
            newest = self._entities.read(life, deadline)
            if newest is None or summary_of(newest.value).kind in done:
                return None
            after = SchemaVersion(newest.version - 1)
            record = deletion(user, self._clock.now_ms(), forced=forced, removes=forced)
            deleted = self.put(life, after, record, deadline)
            if deleted is not None:
                return deleted
            deadline.check(f"an undisturbed deletion of the schemas of {life}")

    def force_delete(
        self, life: TopicLife, after: SchemaVersion, user: str, deadline: Deadline
    ) -> SchemaVersion | None:
        return self.put(life, after, deletion(user, self._clock.now_ms(), forced=True), deadline)

    def forget(self, topic: str, deadline: Deadline) -> None:
        for life in self._entities.beside(topic, deadline):
            if life.topic == topic:
                self._entities.of(life).remove(life, deadline)

    def newest_seen(self, life: TopicLife) -> SchemaVersion | None:
        newest = self._entities.of(life).cached(life)
        return None if newest is None else SchemaVersion(newest.version - 1)

    def _entry(self, life: TopicLife, winner: Versioned, newest: int) -> SchemaEntry | None:
        """None for a deletion. Raises UnreadableSchemas and Corrupt, as `SchemaStorage.history`."""
        summary = summary_of(winner.value)
        match summary.kind:
            case SchemaRecordKind.DELETION | SchemaRecordKind.REMOVAL:
                return None
            case SchemaRecordKind.NEWER:
                raise errors.Corrupt(f"{self._place(life, winner)}: {summary.reason}")
            case SchemaRecordKind.UNREADABLE:
                raise errors.UnreadableSchemas(f"{self._place(life, winner)}: {summary.reason}", newest - 1)
            case SchemaRecordKind.SCHEMA if summary.type_name not in SchemaType.__members__:
                # Perhaps of a later version: nothing that may be deleted for that.
                raise errors.Corrupt(f"{self._place(life, winner)}: type {summary.type_name!r} is not known")
            case SchemaRecordKind.SCHEMA:
                return _entry_of(winner, summary)

    def _place(self, life: TopicLife, winner: Versioned) -> str:
        place = f"{self._log.kafka_name(SCHEMAS)}-{_partition(life)} offset {winner.offset}"
        return f"schema version {winner.version - 1} of {life} ({place})"


def _entry_of(winner: Versioned, summary: Summary) -> SchemaEntry:
    return SchemaEntry(
        SchemaVersion(winner.version - 1),
        winner.offset,
        summary.type_name,
        summary.sha256,
        summary.record_bytes,
        summary.definition_bytes,
        summary.timestamp_ms,
    )


def _portions(entries: Sequence[SchemaEntry]) -> Iterator[list[SchemaEntry]]:
    """One after the other, as many together as fit into `PORTION_BYTES`."""
    portion: list[SchemaEntry] = []
    size = 0
    for entry in entries:
        if portion and size + entry.record_bytes > PORTION_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(entry)
        size += entry.record_bytes
    if portion:
        yield portion


def _stored(entry: SchemaEntry, record: SchemaRecord) -> StoredSchema:
    return StoredSchema(
        entry.version, entry.kafka_offset, info_of(record), entry.sha256, record.user, record.timestamp_ms
    )


def _partition(life: TopicLife) -> int:
    return SCHEMAS.partition_for(life.topic)
