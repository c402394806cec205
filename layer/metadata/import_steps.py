"""`Imports`: how far each tenant's import from Pulsar is, by compare-and-set in the state topic `tenants`."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.mapping.state.clusters.tenant_records import ImportRecord, ImportStep, decode_import, encode_import
from pulsar_on_kafka.mapping.state.state_keys import ImportKey
from pulsar_on_kafka.metadata.entities import Entities, EntityKeys, Versioned

IMPORT_KEYS: Final[EntityKeys[str]] = EntityKeys(ImportKey, lambda key: str(key.tenant), lambda name: (name,))
_LONGEST_PROBLEM: Final = 1000


class Imports:
    """Thread-safe. Memory: a record for each tenant that was ever imported.

    A worker begins by taking the next number of a run. From then on whoever had a lower one is refused: here before it
    goes on, and in the logs by the marker that a later one appends (decision 0018, with the run for the epoch).
    """

    def __init__(self, entities: Entities[str], clock: Clock) -> None:
        self._entities = entities
        self._clock = clock

    def record(self, tenant: str, deadline: Deadline) -> ImportRecord | None:
        found = self._entities.read(tenant, tenant, deadline)
        return None if found is None else decode_import(found.value)

    def require(self, tenant: str, deadline: Deadline) -> ImportRecord:
        """Raises Refused: there is none."""
        record = self.record(tenant, deadline)
        if record is None:
            raise errors.Refused(
                f"tenant {tenant} is not imported from Pulsar (pok migrate import run {tenant} --from URL --admin URL)"
            )
        return record

    def begin(self, tenant: str, origin: str, service_url: str, admin_url: str, deadline: Deadline) -> ImportRecord:
        """Take the next run, at the first step.

        Raises:
            Refused: the tenant was imported from another cluster before.
        """
        now_ms = self._clock.now_ms()

        def begun(current: Versioned | None) -> bytes:
            known = None if current is None else decode_import(current.value)
            if known is not None and known.origin != origin:
                raise errors.Refused(
                    f"tenant {tenant} is imported from {known.origin} ({known.admin_url}): what is here of its topics "
                    f"cannot be told from what comes from {origin}"
                )
            run = 1 if known is None else known.run + 1
            started_ms = now_ms if known is None else known.started_ms
            return encode_import(
                ImportRecord(tenant, origin, service_url, admin_url, ImportStep.METADATA, run, started_ms)
            )

        return decode_import(self._entities.update(tenant, tenant, begun, deadline).value)

    def check(self, mine: ImportRecord, deadline: Deadline) -> None:
        """Raises Refused: another worker has begun since."""
        known = self.record(mine.tenant, deadline)
        if known is None or known.run != mine.run:
            raise _taken(mine)

    def advance(self, mine: ImportRecord, step: ImportStep, deadline: Deadline) -> ImportRecord:
        """Raises Refused: another worker has begun since."""
        return self._change(mine, replace(mine, step=step, problem=""), deadline)

    def note(self, mine: ImportRecord, problem: str, deadline: Deadline) -> None:
        """Have it on record what could not be done. Raises Refused: another worker has begun since."""
        self._change(mine, replace(mine, problem=problem[:_LONGEST_PROBLEM]), deadline)

    def _change(self, mine: ImportRecord, wanted: ImportRecord, deadline: Deadline) -> ImportRecord:
        def changed(current: Versioned | None) -> bytes | None:
            known = None if current is None else decode_import(current.value)
            if known is None or known.run != mine.run:
                raise _taken(mine)
            return None if known == wanted else encode_import(wanted)

        return decode_import(self._entities.update(mine.tenant, mine.tenant, changed, deadline).value)


def _taken(mine: ImportRecord) -> errors.Refused:
    return errors.Refused(f"run {mine.run} of importing tenant {mine.tenant} is over: a later one has begun")
