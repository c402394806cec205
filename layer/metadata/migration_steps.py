"""`Migrations`: how far each tenant's migration is, by compare-and-set in the state topic `tenants`."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.mapping.state.clusters.tenant_records import MigrationRecord, decode_migration, encode_migration
from pulsar_on_kafka.mapping.state.state_keys import MigrationKey
from pulsar_on_kafka.metadata.entities import Entities, EntityKeys, Versioned
from pulsar_on_kafka.metadata.migration_model import Event, after, begun

MIGRATION_KEYS: Final[EntityKeys[str]] = EntityKeys(MigrationKey, lambda key: str(key.tenant), lambda name: (name,))
_LONGEST_PROBLEM: Final = 1000


class Migrations:
    """Thread-safe. Memory: a record for each tenant that was ever migrated."""

    def __init__(self, entities: Entities[str], clock: Clock) -> None:
        self._entities = entities
        self._clock = clock

    def record(self, tenant: str, deadline: Deadline) -> MigrationRecord | None:
        """The last one, also when it is over."""
        found = self._entities.read(tenant, tenant, deadline)
        return None if found is None else decode_migration(found.value)

    def require(self, tenant: str, deadline: Deadline) -> MigrationRecord:
        """Raises Refused: there is none."""
        record = self.record(tenant, deadline)
        if record is None:
            raise errors.Refused(f"tenant {tenant} is not migrated (pok migrate run {tenant} --to CLUSTER)")
        return record

    def begin(self, tenant: str, source: str, target: str, deadline: Deadline) -> MigrationRecord:
        """Begin a migration, by the rules of `model.begun`. Raises Refused."""
        now_ms = self._clock.now_ms()

        def changed(current: Versioned | None) -> bytes | None:
            known = None if current is None else decode_migration(current.value)
            wanted = begun(known, tenant, source, target, now_ms)
            return None if wanted == known else encode_migration(wanted)

        return decode_migration(self._entities.update(tenant, tenant, changed, deadline).value)

    def advance(self, done: MigrationRecord, event: Event, deadline: Deadline) -> MigrationRecord:
        """Have it on record that `event` has happened in the step that `done` says.

        Raises:
            Refused: not legal now; also when another worker went on meanwhile.
        """
        wanted = after(done, event)

        def changed(current: Versioned | None) -> bytes | None:
            known = None if current is None else decode_migration(current.value)
            if known is not None and known.started_ms == done.started_ms and known.step is wanted.step:
                return None if known == wanted else encode_migration(wanted)
            if known is None or (known.started_ms, known.step) != (done.started_ms, done.step):
                found = "gone" if known is None else known.step.value
                raise errors.Refused(f"the migration of tenant {done.tenant} is {found}: another worker has gone on")
            return encode_migration(wanted)

        return decode_migration(self._entities.update(done.tenant, done.tenant, changed, deadline).value)

    def note(self, record: MigrationRecord, problem: str, deadline: Deadline) -> None:
        """Have it on record what could not be done; nothing when the migration has gone on."""

        def changed(current: Versioned | None) -> bytes | None:
            known = None if current is None else decode_migration(current.value)
            if known is None or (known.started_ms, known.step) != (record.started_ms, record.step):
                return None
            wanted = replace(known, problem=problem[:_LONGEST_PROBLEM])
            return None if wanted == known else encode_migration(wanted)

        if self.record(record.tenant, deadline) is not None:
            self._entities.update(record.tenant, record.tenant, changed, deadline)
