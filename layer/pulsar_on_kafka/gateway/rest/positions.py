"""Positions of entries as Pulsar's REST writes them: `ledger:entry`."""

from __future__ import annotations

from typing import NamedTuple

from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId


class EntryPosition(NamedTuple):
    """Entry -1 lies before the ledger's first one."""

    ledger: int
    entry: int

    @staticmethod
    def at(layout: LedgerLayout, partition: int, offset: int) -> EntryPosition:
        """The position of an offset; of -1, the one before the first entry."""
        return (
            EntryPosition(*layout.position(partition, offset))
            if offset >= 0
            else EntryPosition(layout.ledger_id(partition, 0), -1)
        )

    @staticmethod
    def of(message_id: NativeMessageId) -> EntryPosition:
        return EntryPosition(message_id.ledger_id(), message_id.entry_id())

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}"

    def parts(self) -> dict[str, int]:
        return {"ledgerId": self.ledger, "entryId": self.entry}
