"""Entries at hand are noted before they are handed out: which are batches, which are in chunks, and whether some are
encrypted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pulsar_on_kafka.subscriptions.records.batches import batch_size
from pulsar_on_kafka.subscriptions.records.chunks import ChunkAssembly
from pulsar_on_kafka.subscriptions.records.sealed import is_sealed


class EntriesAtHand:
    """Memory: one small entry for each batch entry that was read and not handed out, and what ChunkAssembly says."""

    def __init__(self, chunks: ChunkAssembly) -> None:
        self.batches: dict[int, int] = {}
        """Batch entries, and how many messages each has."""
        self.chunks = chunks
        self.sealed = False
        """Some record was encrypted, so that every record is looked at before it is handed out."""

    @property
    def are_plain(self) -> bool:
        """Each entry is one message, and one record."""
        return not self.batches and not self.sealed and not self.chunks

    def note(self, offset: int, record: Any) -> None:
        """Look at the headers of a record that has some beside ours.

        Raises:
            CorruptRecord: they cannot be read.
        """
        self.sealed = self.sealed or is_sealed(record)
        size = batch_size(record)
        if size:
            self.batches[offset] = size

    def fitting(self, offsets: Sequence[int], limit: int) -> int:
        """How many of these entries have `limit` messages together; the last one may exceed it, as in Pulsar."""
        if not self.batches:
            return min(limit, len(offsets))
        messages = 0
        for number, offset in enumerate(offsets, 1):
            messages += self.batches.get(offset, 1)
            if messages >= limit:
                return number
        return len(offsets)

    def forget(self, offsets: Iterable[int]) -> None:
        """These are not at hand any more."""
        if self.batches:
            for offset in offsets:
                self.batches.pop(offset, None)
