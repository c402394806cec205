"""Batch ack sets contain the acknowledged messages of partly acknowledged batch entries, grouped by ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

K = TypeVar("K")
A = TypeVar("A")

_ENTRY_BYTES: Final = 240


class BatchAckSet(NamedTuple):
    """The acknowledged messages of one batch entry: bit i of `acked` stands for batch index i."""

    batch_size: int
    acked: int

    @property
    def complete(self) -> bool:
        return self.acked == (1 << self.batch_size) - 1

    @property
    def left(self) -> int:
        """The number of unacknowledged messages."""
        return self.batch_size - self.acked.bit_count()

    def and_also(self, known: BatchAckSet | None) -> BatchAckSet:
        """The union with the earlier set of the entry; a set of another size is ignored."""
        if known is None or known.batch_size != self.batch_size:
            return self
        return BatchAckSet(self.batch_size, known.acked | self.acked)


class Ledgers(Generic[K, A]):
    """Data about offsets, by ledger index. Ledgers may be unloaded; then only a summary of each is in memory."""

    __slots__ = ("_away", "_bring_back", "_entries_per_ledger", "_ledgers")

    def __init__(self, entries_per_ledger: int, bring_back: Callable[[int], None]) -> None:
        """`bring_back` puts a ledger that is away back in its place (`put_ledger`)."""
        self._entries_per_ledger = entries_per_ledger
        self._ledgers: dict[int, K] = {}
        self._away: dict[int, A] = {}
        self._bring_back = bring_back

    def __bool__(self) -> bool:
        return bool(self._ledgers) or bool(self._away)

    def ledgers_here(self) -> set[int]:
        return set(self._ledgers)

    def ledger_indexes(self) -> set[int]:
        return self._ledgers.keys() | self._away.keys()

    def is_away(self, index: int) -> bool:
        return index in self._away

    @property
    def away(self) -> int:
        return len(self._away)


class BatchAckSets(Ledgers[dict[int, BatchAckSet], int]):
    """Batch ack sets by offset; of ledgers that are away only the number of their sets is known.

    Memory: about 240 bytes and a bit for each message of a batch, for each set that is here.
    """

    __slots__ = ()

    def __len__(self) -> int:
        return sum(map(len, self._ledgers.values())) + sum(self._away.values())

    def get(self, offset: int) -> BatchAckSet | None:
        index = offset // self._entries_per_ledger
        if index in self._away:
            self._bring_back(index)
        sets = self._ledgers.get(index)
        return None if sets is None else sets.get(offset)

    def put(self, offset: int, acks: BatchAckSet) -> None:
        """Replace what is known of one entry, whose ledger is here (`get` brings it)."""
        self._ledgers.setdefault(offset // self._entries_per_ledger, {})[offset] = acks

    def discard(self, offsets: Iterable[int]) -> None:
        if not self._ledgers:
            return
        for offset in offsets:
            index = offset // self._entries_per_ledger
            sets = self._ledgers.get(index)
            if sets is not None and sets.pop(offset, None) is not None and not sets:
                del self._ledgers[index]

    def drop_below(self, offset: int) -> None:
        """Forget everything below. The ledger of `offset` itself is taken to be here."""
        boundary = offset // self._entries_per_ledger
        for index in [index for index in self._ledgers if index < boundary]:
            del self._ledgers[index]
        for index in [index for index in self._away if index < boundary]:
            del self._away[index]
        sets = self._ledgers.get(boundary)
        if sets is not None:
            self.discard([below for below in sets if below < offset])

    def known_end(self) -> int:
        """The offset behind the highest entry, as far as known without loading a ledger; 0 without any."""
        highest = max(self.ledger_indexes(), default=None)
        if highest is None:
            return 0
        sets = self._ledgers.get(highest)
        return (highest * self._entries_per_ledger if sets is None else max(sets)) + 1

    def clear(self) -> None:
        self._ledgers.clear()
        self._away.clear()

    def items(self) -> Iterator[tuple[int, BatchAckSet]]:
        """Brings every ledger back."""
        for index in tuple(self._away):
            self._bring_back(index)
        for sets in self._ledgers.values():
            yield from sets.items()

    def ledger(self, index: int) -> Mapping[int, BatchAckSet]:
        if index in self._away:
            self._bring_back(index)
        return self._ledgers.get(index, {})

    def put_ledger(self, index: int, sets: Mapping[int, BatchAckSet]) -> None:
        self._away.pop(index, None)
        if sets:
            self._ledgers[index] = dict(sets)
        else:
            self._ledgers.pop(index, None)

    def send_away(self, index: int, sets: int) -> None:
        """Keep nothing but the number of sets of a ledger, which has some."""
        self._ledgers.pop(index, None)
        self._away[index] = sets

    def size_bytes(self, index: int) -> int:
        """Memory of a ledger's sets while they are here, taking all for as wide as the first one."""
        sets = self._ledgers.get(index)
        if not sets:
            return 0
        return len(sets) * (_ENTRY_BYTES + next(iter(sets.values())).batch_size // 8)
