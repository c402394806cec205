"""The registry decides the schema of a producer's messages, and whether a consumer may read with its own.

The registry has no owner: each process decides by its last reading, and the storage's compare-and-set accepts a
decision only if nothing was registered since. Source: Pulsar `SchemaRegistryServiceImpl`, `AbstractTopic`,
`PersistentTopic`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.schema_registry.confluent_forms import ConfluentHeaders, schema_id_headers
from pulsar_on_kafka.broker.schema_registry.judging import (
    Load,
    check_readable_or_refuse,
    check_size,
    compatibility,
    refuse_unless_compatible,
    refused,
    strategy_for_readers,
    version_of,
)
from pulsar_on_kafka.broker.schema_registry.known import BoundedCache, KnownVersion, SchemaQuestion
from pulsar_on_kafka.broker.schema_registry.model import (
    CatalogEntry,
    SchemaEntry,
    SchemaHistory,
    SchemaPolicies,
    StoredSchema,
    TopicLife,
    record_of,
)
from pulsar_on_kafka.broker.schema_registry.storage import SchemaStorage
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_schema_compat import (
    BUILT_IN,
    Checkers,
    CompatibilityResult,
    CompatibilityStrategy,
    Incompatibility,
    SchemaInfo,
    SchemaType,
    UnreadableSchema,
)
from pulsar_on_kafka_schema_compat.base.schema_model import SCHEMA_UNREADABLE

_log: Final = logging.getLogger(__name__)

KNOWN_FOR_S: Final = 60.0
"""The time for which a schema that was found live counts as live without a new reading, even if another process deletes
it meanwhile."""
_QUESTIONS_BYTES: Final = 16 * 1024 * 1024
_NO_SCHEMA: Final = frozenset({SchemaType.NONE, SchemaType.BYTES})

PoliciesOf = Callable[[TopicName, Deadline], SchemaPolicies]
LifeOf = Callable[[TopicName, Deadline], TopicLife]
_T = TypeVar("_T")


@dataclass(slots=True)
class RegistryCounts:
    """Counts since the process began. They only grow; two threads at once may lose one."""

    registered: int = 0
    refused: int = 0
    lost_races: int = 0
    force_deleted: int = 0
    """Topics whose schemas could not be read any more, and were deleted for that."""


class SchemaRegistry:
    """The registry of schemas. Thread-safe. A topic's partitions share its schemas: any name of it may be given.

    Every call may raise the errors of `StateLog`, after retrying temporary ones within the deadline, and `NoSuchTopic`.
    `Corrupt` means that a *key* of the state topic cannot be read: no topic of that partition can be served until it is
    deleted. Memory: that of its storage, and 16 MiB of schemas in use.
    """

    def __init__(
        self,
        storage: SchemaStorage,
        policies: PoliciesOf,
        life_of: LifeOf,
        clock: Clock,
        *,
        user: str = "",
        checkers: Checkers = BUILT_IN,
    ) -> None:
        """`life_of` returns the topic's incarnation for a name; `user` is written into the records of this process."""
        self._checkers = checkers
        self._storage = storage
        self._policies = policies
        self._life_of = life_of
        self._clock = clock
        self._user = user
        self._known: BoundedCache[SchemaQuestion, KnownVersion] = BoundedCache(_QUESTIONS_BYTES)
        self.counts = RegistryCounts()

    def for_producer(
        self,
        topic: TopicName,
        info: SchemaInfo | None,
        deadline: Deadline,
        policies: SchemaPolicies | None = None,
    ) -> SchemaVersion | None:
        """The version that the messages of a producer with this schema carry; registers it when it is new.

        Without a schema (None, or of type NONE or BYTES) there is no version. Schemas of the topic that can never be
        read again are deleted, with an error in the log, and the topic starts anew.

        Args:
            policies: what applies, if the caller knows (`policies_when_opened`); else they are read when needed.

        Raises:
            IncompatibleSchema: the topic's policies or its schemas forbid it; or it is no schema.
            InvalidOption: it is too large.
        """
        if info is None or info.type in _NO_SCHEMA:
            self._refuse_if_enforced(topic, deadline, policies)
            return None
        life = self._life_of(topic, deadline)
        known = self._known_version(SchemaQuestion.of(life, info))
        return self._register(topic, life, info, deadline, policies) if known is None else known

    def upload(self, topic: TopicName, info: SchemaInfo, deadline: Deadline) -> SchemaVersion:
        """Register an admin's schema, also where is_allow_auto_update_schema is false. Raises: as `for_producer`."""
        return self._register(topic, self._life_of(topic, deadline), info, deadline, None, by_admin=True)

    def check_storable(self, topic: TopicName, info: SchemaInfo) -> None:
        """Raises InvalidOption: it is too large. IncompatibleSchema: it is no schema of its type."""
        check_size(str(topic.base), info)
        check_readable_or_refuse(str(topic.base), info, self._checkers)

    def _known_version(self, question: SchemaQuestion) -> SchemaVersion | None:
        known = self._known.get(question)
        if known is None:
            return None
        newest = self._storage.newest_seen(question.life)
        if newest != known.newest and newest is not None:
            return None
        if self._clock.monotonic() - known.found_at_s > KNOWN_FOR_S:
            return None
        return known.version

    def _register(
        self,
        topic: TopicName,
        life: TopicLife,
        info: SchemaInfo,
        deadline: Deadline,
        policies: SchemaPolicies | None,
        *,
        by_admin: bool = False,
    ) -> SchemaVersion:
        check_size(life.topic, info)

        def looked_at(history: SchemaHistory, load: Load) -> SchemaVersion | None:
            """The version that is the same; None when there is none, and this one may be registered after `history`."""
            found = version_of(info, history, load)
            if found is None:
                applied = policies or self._policies(topic.base, deadline)
                self._judge(life.topic, info, history, load, applied, by_admin=by_admin)
            return found

        while True:
            found_at_s = self._clock.monotonic()
            history, found = self._query(life, looked_at, deadline)
            if found is not None:
                question = SchemaQuestion.of(life, info)
                self._known.put(question, KnownVersion(found, history.newest or found, found_at_s), question.size_bytes)
                return found
            record = record_of(info, self._user, self._clock.now_ms())
            version = self._storage.put(life, history.newest, record, deadline)
            if version is None:
                self.counts.lost_races += 1
                deadline.check(f"an undisturbed registration of a schema of {life}")
            else:
                self.counts.registered += 1
                _log.info("topic=%s registered schema version=%s type=%s", life, version, info.type.name)

    def _judge(
        self,
        name: str,
        info: SchemaInfo,
        history: SchemaHistory,
        load: Load,
        policies: SchemaPolicies,
        *,
        by_admin: bool,
    ) -> None:
        """Raises IncompatibleSchema when `info`, which is not live, may not be registered."""
        try:
            check_readable_or_refuse(name, info, self._checkers)
            if not policies.auto_update and not by_admin:
                raise refused(name, info, ["it is not registered, and is_allow_auto_update_schema is false"])
            refuse_unless_compatible(name, info, history, load, policies.strategy, self._checkers)
        except errors.IncompatibleSchema:
            self.counts.refused += 1
            raise

    def _refuse_if_enforced(self, topic: TopicName, deadline: Deadline, policies: SchemaPolicies | None) -> None:
        if not (policies or self._policies(topic.base, deadline)).validation_enforced:
            return
        life = self._life_of(topic, deadline)
        _, latest = self._query(life, lambda history, _: history.latest, deadline)
        if latest is not None:
            self.counts.refused += 1
            raise errors.IncompatibleSchema(
                f"a producer without a schema is refused on topic {life}",
                (f"it has version {latest.version} of type {latest.type_name}, and schema_validation_enforced",),
            )

    def _query(
        self, life: TopicLife, question: Callable[[SchemaHistory, Load], _T], deadline: Deadline
    ) -> tuple[SchemaHistory, _T]:
        """The live schemas and the result of `question` about them, after a deletion of unreadable ones."""
        while True:
            try:
                return self._question(life, question, deadline)
            except errors.UnreadableSchemas as unreadable:
                # Only the unreadable ones: another process may have registered new ones since.
                after = SchemaVersion(unreadable.newest)
                if self._storage.force_delete(life, after, self._user, deadline) is not None:
                    self.counts.force_deleted += 1
                    _log.error(
                        "topic=%s ALL ITS SCHEMAS ARE DELETED, one can never be read again: %s", life, unreadable
                    )
                deadline.check(f"the schemas of {life} to be readable")

    def _question(
        self, life: TopicLife, question: Callable[[SchemaHistory, Load], _T], deadline: Deadline
    ) -> tuple[SchemaHistory, _T]:
        history = self._storage.history(life, deadline)
        return history, question(history, lambda entries: self._storage.load(life, history, entries, deadline))

    def for_consumer(
        self,
        topic: TopicName,
        info: SchemaInfo | None,
        deadline: Deadline,
        policies: SchemaPolicies | None = None,
        *,
        in_use: Callable[[], bool],
    ) -> None:
        """Returns when a consumer may read the topic with this schema; the first one of an idle topic registers it.

        Args:
            info: None, NONE, BYTES and AUTO_CONSUME read any schema.
            policies: see `for_producer`.
            in_use: whether the topic has producers, active consumers or data; called only when it has no schema.
        Raises:
            IncompatibleSchema: the consumer may not read.
            InvalidOption: it is too large.
        """
        if info is None or info.type in _NO_SCHEMA or info.type is SchemaType.AUTO_CONSUME:
            return
        life = self._life_of(topic, deadline)
        check_size(life.topic, info)

        is_used = False

        def judge(history: SchemaHistory, load: Load) -> bool | None:
            """False when the schema is to be registered. None: another program uses the topic, and may have registered
            its schema after this history was read."""
            nonlocal is_used
            if not history.live and not is_used:
                is_used = in_use()
                return None if is_used else False
            check_readable_or_refuse(life.topic, info, self._checkers)
            strategy = (policies or self._policies(topic.base, deadline)).strategy
            if strategy is CompatibilityStrategy.ALWAYS_COMPATIBLE:
                return True
            if not history.live:
                raise refused(life.topic, info, ["the topic is in use without a schema"])
            judged_by = strategy_for_readers(strategy)
            refuse_unless_compatible(life.topic, info, history, load, judged_by, self._checkers, of_reader=True)
            return True

        try:
            _, judged = self._query(life, judge, deadline)
            if judged is None:
                _, judged = self._query(life, judge, deadline)
        except errors.IncompatibleSchema:
            self.counts.refused += 1
            raise
        if not judged:
            self._register(topic, life, info, deadline, policies)

    def latest(self, topic: TopicName, deadline: Deadline) -> StoredSchema | None:
        """The schema that AUTO_PRODUCE_BYTES validates with, read to the end first. Raises UnreadableSchemas."""
        life = self._life_of(topic, deadline)
        return self._question(life, lambda history, load: next(load(history.live[-1:]), None), deadline)[1]

    def versions(self, topic: TopicName, deadline: Deadline) -> tuple[StoredSchema, ...]:
        """All live ones, oldest first, with their definitions: of any size together. Raises UnreadableSchemas."""
        life = self._life_of(topic, deadline)
        return self._question(life, lambda history, load: tuple(load(history.live)), deadline)[1]

    def history(self, topic: TopicName, deadline: Deadline) -> SchemaHistory:
        """All live ones, without their definitions, and the newest version. Raises UnreadableSchemas."""
        return self._storage.history(self._life_of(topic, deadline), deadline)

    def index(self, topic: TopicName, deadline: Deadline) -> tuple[SchemaEntry, ...]:
        """All live ones, oldest first, without their definitions. Raises UnreadableSchemas."""
        return self.history(topic, deadline).live

    def schema(self, topic: TopicName, version: SchemaVersion, deadline: Deadline) -> StoredSchema:
        """The schema of a message that names this version; also when it was deleted since. Each version is read once.

        Raises:
            NoSuchSchema: it never existed, or it was removed.
            UnreadableSchemas: its record can never be read again.
        """
        return self.schema_of_life(self._life_of(topic, deadline), version, deadline)

    def schema_of_life(self, life: TopicLife, version: SchemaVersion, deadline: Deadline) -> StoredSchema:
        """The same of a topic's incarnation. Raises: as `schema`."""
        found = self._storage.get(life, version, deadline)
        if found is None:
            raise errors.NoSuchSchema(f"topic {life} has no schema version {version}")
        return found

    def catalog(self, deadline: Deadline) -> Iterator[CatalogEntry]:
        """Every version of every topic whose definition can be read, also deleted ones, without definitions: lives in
        any order, the versions of each oldest first. Reads all partitions of the state topic to the end."""
        return self._storage.catalog(deadline)

    def requires_confluent_ids(
        self, topic: TopicName, deadline: Deadline, policies: SchemaPolicies | None = None
    ) -> bool:
        """Whether records of the topic name their schemas in the headers of Confluent's serializers.

        Args:
            policies: see `for_producer`.
        """
        return (policies or self._policies(topic.base, deadline)).confluent_ids

    def confluent_headers(self, topic: TopicName, version: SchemaVersion, deadline: Deadline) -> ConfluentHeaders:
        """The headers by which Confluent's deserializers find this version; none for a schema without a counterpart
        there (`confluent_forms`), and for a version that is gone or cannot be read."""
        try:
            return tuple(schema_id_headers(self.schema(topic, version, deadline).info))
        except (errors.NoSuchSchema, errors.UnreadableSchemas, UnreadableSchema) as failure:
            _log.warning("topic=%s records of schema version=%s get no id of Confluent's: %s", topic, version, failure)
            return ()

    def version_of(self, topic: TopicName, info: SchemaInfo, deadline: Deadline) -> SchemaVersion | None:
        """The live version that is this schema; None when none is. Raises: as `compatibility`."""
        life = self._life_of(topic, deadline)
        check_size(life.topic, info)
        return self._question(life, lambda history, load: version_of(info, history, load), deadline)[1]

    def compatibility(self, topic: TopicName, info: SchemaInfo, deadline: Deadline) -> CompatibilityResult:
        """The answer of the topic's strategy to a new schema; registers nothing.

        Raises:
            UnreadableSchemas: a live one can never be read again.
            InvalidOption: the schema is too large.
        """
        life = self._life_of(topic, deadline)
        check_size(life.topic, info)

        def judge(history: SchemaHistory, load: Load) -> CompatibilityResult:
            try:
                self._checkers.check_readable(info)
            except UnreadableSchema as error:
                newest = history.latest.version.number if history.latest else None
                return CompatibilityResult((Incompatibility("", SCHEMA_UNREADABLE, str(error), newest),))
            if version_of(info, history, load) is not None:
                return CompatibilityResult(())
            return compatibility(info, history, load, self._policies(topic.base, deadline).strategy, self._checkers)

        return self._question(life, judge, deadline)[1]

    def delete(self, topic: TopicName, deadline: Deadline, *, forced: bool = False) -> SchemaVersion | None:
        """End the topic's live schemas, readable or not, and give the deletion's version; None when none were live.

        Messages written before are still read with their versions. With `forced` they are not: the definitions are
        removed, those of earlier deletions too; numbers go on in either case. Other processes notice within
        `KNOWN_FOR_S`, what they read before they keep.
        """
        life = self._life_of(topic, deadline)
        deleted = self._storage.delete(life, self._user, deadline, forced=forced)
        if deleted is not None:
            _log.info("topic=%s schemas deleted, version=%s forced=%s", life, deleted, forced)
        return deleted

    def forget(self, topic: TopicName, deadline: Deadline) -> None:
        """Remove all that is left of the schemas of a topic that was deleted with its Kafka topic."""
        self._storage.forget(str(topic.base), deadline)
