"""The lists of ledgers of one partition of `ledgers`, as a fold over it. Pure.

The owner of the partition, readers in other processes and tools all use this fold, so they agree:

* A record counts if it is valid by the fence (`statelog/take_over.py`): no TAKEOVER of a higher version before it.
* Of a ledger's valid records the last one in the log counts. Each has a key of its own, so no late record makes
  compaction drop another one.
* REMOVED takes a ledger off its list like any other change, so a former owner cannot do it any more; tombstones only
  follow: of records that a later valid one has replaced, and of a REMOVED that is the last that is left.

An owner whose append has an unknown outcome takes over anew: late records are then void.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pulsar_on_kafka.broker.managed_ledger.model import Ledger, LedgerPlace
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka.statelog.take_over import Owner, TakeOverFence
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.ids.ledger_ids import unpack_ledger_id
from pulsar_on_kafka_mapping.state.metadata.ledger_records import (
    LedgerRecord,
    LedgerState,
    MaintenanceTakenOver,
    decode_ledger_value,
)
from pulsar_on_kafka_mapping.state.state_keys import LedgerKey, MaintenanceTakeoverKey, decode_key

FOLLOWS: Final = frozenset(
    {
        (None, LedgerState.OPEN),
        (None, LedgerState.CLOSED),
        (LedgerState.OPEN, LedgerState.OPEN),  # it has grown
        (LedgerState.OPEN, LedgerState.CLOSED),
        (LedgerState.OPEN, LedgerState.REMOVED),  # its topic is gone, or the partition lost its end
        (LedgerState.CLOSED, LedgerState.CLOSED),  # Kafka deleted its beginning, or it was measured again
        (LedgerState.CLOSED, LedgerState.OPEN),  # the partition lost its end
        (LedgerState.CLOSED, LedgerState.DELETING),
        (LedgerState.CLOSED, LedgerState.REMOVED),  # Kafka deleted it, or its topic is gone
        (LedgerState.DELETING, LedgerState.DELETING),
        (LedgerState.DELETING, LedgerState.CLOSED),  # a subscription was made that needs it
        (LedgerState.DELETING, LedgerState.OPEN),  # the partition lost its end
        (LedgerState.DELETING, LedgerState.REMOVED),
    }
)
"""The changes that an owner may write after each state (None: it is not listed). Folding does not check them: every
valid record counts."""


class LedgerLists:
    """A fold for `LogView`. Judge only at the end of the log.

    Memory: about 1 kB a record, of which each ledger has one, and a second one until it is cleaned.
    """

    def __init__(self, state_partition: int) -> None:
        self._state_partition = state_partition
        self._fence = TakeOverFence()
        self._records: dict[int, dict[bytes, LedgerRecord]] = {}
        """The valid records of each ledger by key, in log order: the last one counts."""
        self._homes: dict[bytes, int] = {}
        self._places: dict[LedgerPlace, set[int]] = {}
        """The ledgers that are listed."""
        self._replaced: dict[bytes, None] = {}
        """Keys of valid records that later ones have replaced."""
        self._alone: dict[bytes, None] = {}
        """Keys of REMOVED records beside which their ledger has no other."""

    # Folding ------------------------------------------------------------------------------------------------------

    def apply(self, record: LogRecord) -> None:
        """Raises CorruptRecord, and then nothing has changed."""
        key = decode_key(record.key)
        if isinstance(key, LedgerKey):
            unpack_ledger_id(key.ledger_id)
        elif not isinstance(key, MaintenanceTakeoverKey) or key.state_partition != self._state_partition:
            raise CorruptRecord(f"{key} in partition {self._state_partition} of the ledgers")
        if record.value is None:
            self._forget(record.key)
            return
        by, value = decode_ledger_value(record.value)
        match key, value:
            case MaintenanceTakeoverKey(), MaintenanceTakenOver():
                self._forget(record.key)
                self._fence.takeover(record.key, key.session, key.version)
            case LedgerKey(), LedgerRecord():
                self._forget(record.key)  # a key is written once; if it was not, the last record counts
                if self._fence.record(record.key, by):
                    self._put(key.ledger_id, record.key, value)
            case _:
                raise CorruptRecord(f"{type(value).__name__} under {key}, which is for another kind of record")

    def _put(self, ledger_id: int, key: bytes, value: LedgerRecord) -> None:
        records = self._records.setdefault(ledger_id, {})
        before = _place(ledger_id, records)
        records[key] = value
        self._homes[key] = ledger_id
        self._settle(ledger_id, before)

    def _forget(self, key: bytes) -> None:
        self._fence.tombstone(key)
        ledger_id = self._homes.pop(key, None)
        if ledger_id is None:
            return
        records = self._records[ledger_id]
        before = _place(ledger_id, records)
        del records[key]
        self._replaced.pop(key, None)
        self._alone.pop(key, None)
        self._settle(ledger_id, before)

    def _settle(self, ledger_id: int, before: LedgerPlace | None) -> None:
        records = self._records[ledger_id]
        place = _place(ledger_id, records)
        if before is not None and before != place:
            self._places[before].discard(ledger_id)
            if not self._places[before]:
                del self._places[before]
        if place is not None:
            self._places.setdefault(place, set()).add(ledger_id)
        if not records:
            del self._records[ledger_id]
            return
        *replaced, last = records
        for key in replaced:
            self._replaced[key] = None
            self._alone.pop(key, None)
        self._replaced.pop(last, None)
        if not replaced and records[last].state is LedgerState.REMOVED:
            self._alone[last] = None

    # Judging, at the end of the log -------------------------------------------------------------------------------

    @property
    def owner(self) -> Owner | None:
        return self._fence.owner

    @property
    def next_version(self) -> int:
        return self._fence.next_version

    def __len__(self) -> int:
        return sum(map(len, self._places.values()))

    def places(self) -> Iterator[LedgerPlace]:
        """Every partition that has a list."""
        return iter(self._places)

    def ledgers(self, place: LedgerPlace) -> list[Ledger]:
        """A partition's list, in the order of its offsets; empty when there is none."""
        return [Ledger(each, _last(self._records[each])) for each in sorted(self._places.get(place, ()))]

    def ledger(self, ledger_id: int) -> Ledger | None:
        """None for one that is not listed (any more)."""
        records = self._records.get(ledger_id)
        if records is None or _last(records).state is LedgerState.REMOVED:
            return None
        return Ledger(ledger_id, _last(records))

    def to_clean(self, owner: Owner) -> list[bytes]:
        """Keys that `owner` should tombstone now; empty for any other owner. Call again after they are read back."""
        if owner != self._fence.owner:
            return []
        return [*self._replaced, *self._alone, *self._fence.to_clean(owner)]


def _last(records: dict[bytes, LedgerRecord]) -> LedgerRecord:
    return records[next(reversed(records))]


def _place(ledger_id: int, records: dict[bytes, LedgerRecord]) -> LedgerPlace | None:
    if not records or (last := _last(records)).state is LedgerState.REMOVED:
        return None
    return Ledger(ledger_id, last).place
