"""Values that readers of transactional topics share. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyroaring import BitMap64

from mapping.errors import CorruptRecord
from mapping.headers import MarkerType
from mapping.transaction_headers import in_transaction
from mapping.txn_id import TxnId


class DataPartition(NamedTuple):
    """One partition of one life of a data topic; `topic` is the partitioned topic's full name."""

    topic: str
    partition: int
    incarnation: int


class Met(NamedTuple):
    """A record of a transaction, or (`ended` is not None) the marker of its end: True for a commit."""

    offset: int
    txn: TxnId
    ended: bool | None = None


def met_in(offsets: Sequence[int], records: Sequence[Any], odd: Iterable[int]) -> list[Met]:
    """The transactional records and markers of a run; `odd` are the ascending indices of those with headers of ours.

    Headers that cannot be read say nothing here: such a record is not delivered anyway.
    """
    found: list[Met] = []
    for i in odd:
        try:
            said = in_transaction(records[i].headers())
        except CorruptRecord:
            continue
        if said is not None:
            ended = None if said.ended is None else said.ended is MarkerType.TXN_COMMIT
            found.append(Met(offsets[i], said.txn, ended))
    return found


@dataclass(frozen=True, slots=True)
class BufferSnapshot:
    """What readers without headers filter by; plain values.

    Attributes:
        open_bounds: open transactions; none of their records lies below the bound.
        excluded: offsets that are not delivered: of aborted transactions, and void.
        unsealed: aborted transactions with more records than `excluded` holds, perhaps; all at or above the bound.
    """

    where: DataPartition
    open_bounds: dict[TxnId, int]
    excluded: BitMap64
    unsealed: dict[TxnId, int]

    @property
    def bound(self) -> int | None:
        """Everything below is readable without a look at headers (but for `unsealed`); None: everything is."""
        return min(self.open_bounds.values(), default=None)

    @property
    def headers_from(self) -> int | None:
        """From here on records must be compared with `unsealed`; None: nowhere."""
        return min(self.unsealed.values(), default=None)

    def readable_end(self, end: int, from_bound: Iterator[Met]) -> int:
        """`bound` lifted to the first record of an open transaction; `end` (exclusive, the data's end that was taken
        before this snapshot) when there is none.

        `from_bound`: the transactional records at or above `bound` and below `end`, in order; read only as far as
        needed, and not at all when nothing is open.
        """
        if not self.open_bounds:
            return end
        return next((met.offset for met in from_bound if met.ended is None and met.txn in self.open_bounds), end)

    def is_readable(self, offset: int, txn: TxnId | None) -> bool:
        """Whether a record below `readable_end` is delivered; `txn` is what its header names."""
        return offset not in self.excluded and (txn is None or txn not in self.unsealed)
