"""Transaction holds keep entries of a partition from being handed out while transactions are open. No I/O, no threads.

Held entries stay where they are; each is put `back` when it would go out, or when it was out already. What is put back
comes again when its transaction is aborted; the others come by themselves.
"""

from __future__ import annotations

from typing import Any

from pyroaring import BitMap64

from pulsar_on_kafka.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.transactions.pending_acks.holdings import Holdings


class TransactionHolds:
    """Memory: compressed bitmaps, besides what Holdings says."""

    def __init__(self) -> None:
        self.holdings = Holdings()
        """Those of the partition's `PendingAcks`, once there are any."""
        self.back = BitMap64()

    def __bool__(self) -> bool:
        return bool(self.holdings)

    def __contains__(self, offset: int) -> bool:
        """Held as a whole."""
        return self.holdings.is_held(offset)

    def without(self, offsets: list[int], records: list[Any]) -> tuple[list[int], list[Any]]:
        """Of these, by ascending offset and not empty, what is not held as a whole; the others are put back."""
        held = self.holdings.whole_in(offsets[0], offsets[-1] + 1)
        held &= BitMap64(offsets)
        if not held:
            return offsets, records
        self.back |= held
        keep = [i for i, offset in enumerate(offsets) if offset not in held]
        return [offsets[i] for i in keep], [records[i] for i in keep]

    def take_from(self, waiting: BitMap64) -> None:
        """Put back what is held of these."""
        if not self.holdings or not waiting:
            return
        held = self.among(waiting)
        if held:
            self.back |= held
            waiting -= held

    def among(self, offsets: BitMap64) -> BitMap64:
        """Of these, what is held as a whole."""
        if not self.holdings or not offsets:
            return BitMap64()
        return self.holdings.whole_in(int(offsets.min()), int(offsets.max()) + 1) & offsets

    def with_held(self, offset: int, acked: BatchAckSet | None) -> BatchAckSet | None:
        """Messages of a batch entry that are not to be handed out: `acked` ones, and held ones."""
        held = self.holdings.batch(offset) if self.holdings else None
        if held is None or acked is None or held.batch_size != acked.batch_size:
            return acked if held is None else held
        return BatchAckSet(held.batch_size, held.acked | acked.acked)
