"""What of the records of a partition a reader is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from layer.cursor.batch_acks import BatchAckSet
from layer.dispatch.compaction import CompactedRange
from layer.dispatch.fences import Fences
from layer.dispatch.reader_chunks import ReaderChunks
from mapping.message_record import is_plain


class Readable:
    """Everything but void records, chunked messages put together, and of what was compacted what compaction leaves.

    Memory: what `Fences`, `ReaderChunks` and `CompactedRange` say.
    """

    def __init__(
        self,
        fences_of: Callable[[int], Iterable[tuple[int, int]]],
        partitions: Iterable[int],
        chunks: ReaderChunks,
        compacted: Mapping[int, CompactedRange] = MappingProxyType({}),
    ) -> None:
        """`fences_of` asks for the fences of a partition as they are now (see `Fences`)."""
        self._chunks = chunks
        self._fences_of = fences_of
        self._fences = {partition: Fences(fences_of(partition)) for partition in partitions}
        self._compacted = compacted

    def of(self, partition: int, records: list[Any]) -> list[Any]:
        """Those of a run of records in offset order; markers are not looked for."""
        left = self._chunks.together(partition, self._valid(partition, records))
        folded = self._compacted.get(partition)
        return left if folded is None else folded.remaining(left)

    def left_out(self, partition: int) -> Mapping[int, BatchAckSet]:
        """Which messages of batch entries, by offset, are not delivered though their entry is."""
        folded = self._compacted.get(partition)
        return MappingProxyType({}) if folded is None else folded.parts

    def skip(self, partitions: Iterable[int]) -> None:
        """What lies between here and where these partitions are read next is not looked at."""
        for partition in partitions:
            self._fences.setdefault(partition, Fences()).add(self._fences_of(partition))

    def forget(self, partitions: Iterable[int]) -> None:
        """They are read from other places."""
        for partition in partitions:
            self._chunks.forget(partition)

    def _valid(self, partition: int, records: list[Any]) -> list[Any]:
        fences = self._fences.setdefault(partition, Fences())
        odd = [i for i, record in enumerate(records) if not is_plain(record.headers())]
        if not odd and not fences:
            return records
        return fences.valid(records, odd)
