"""Words of this package. Pure."""

from __future__ import annotations

from typing import NamedTuple

from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerIdFields, unpack_ledger_id
from pulsar_on_kafka_mapping.state.metadata.ledger_records import LedgerRecord, LedgerState


class LedgerPlace(NamedTuple):
    """One partition in one life of a topic: what has a list of ledgers, Pulsar's managed ledger."""

    topic: str
    incarnation: int
    partition: int


class Ledger(NamedTuple):
    """A ledger with the data of its list."""

    id: int
    record: LedgerRecord

    @property
    def fields(self) -> LedgerIdFields:
        return unpack_ledger_id(self.id)

    @property
    def ledger_index(self) -> int:
        """The number of the ledger's range of the partition's offsets."""
        return self.fields.ledger_index

    @property
    def place(self) -> LedgerPlace:
        incarnation, partition, _ = self.fields
        return LedgerPlace(self.record.topic, incarnation, partition)

    @property
    def state(self) -> LedgerState:
        return self.record.state

    @property
    def first(self) -> int:
        return self.record.first

    @property
    def end(self) -> int:
        return self.record.end
