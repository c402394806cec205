"""Values that readers of transactional topics share. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pyroaring import BitMap64

from pulsar_on_kafka.kafka.records import HEADERS, UNREADABLE, mend_headers
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.message_record import SCHEMA_VERSION_BYTES
from pulsar_on_kafka_mapping.records.record_headers import (
    ALONE,
    PREFIX,
    PRODUCER,
    SCHEMA_VERSION,
    TXN,
    MarkerType,
    and_transaction,
    and_version,
    unpack,
)
from pulsar_on_kafka_mapping.records.transaction_headers import in_transaction

_PREFIX_CHARS: Final = len(PREFIX)


class DataPartition(NamedTuple):
    """One partition of one life of a data topic; `topic` is the partitioned topic's full name."""

    topic: str
    partition: int
    incarnation: int


class MetRecord(NamedTuple):
    """A record of a transaction, or (`ended` is not None) the marker of its end: True for a commit.

    `more`: later records of the same transaction, ascending, with no marker of it between.
    """

    offset: int
    txn: TxnId
    ended: bool | None = None
    more: Sequence[int] = ()

    def offsets(self) -> list[int]:
        return [self.offset, *self.more]

    def from_offset(self, start: int) -> MetRecord | None:
        if self.offset >= start:
            return self
        at = bisect_left(self.more, start)
        return MetRecord(self.more[at], self.txn, self.ended, self.more[at + 1 :]) if at < len(self.more) else None


class Looked(NamedTuple):
    """Transactions found in the headers of a run of records.

    `odd`: ascending offsets of records with a header of this product other than producer, schema version and
    transaction, or with an unreadable one. `met`: the transactional records and markers, by (first) offset.
    """

    odd: list[int]
    met: list[MetRecord]


def look_over(offsets: Sequence[int], records: Sequence[Any]) -> Looked:
    """Scans the headers of a run of records. This runs for every record of every topic, so it tests the usual cases
    first: a producer alone, with a schema version, or with a transaction that was met before.

    The scan packs these headers (`mapping.records.record_headers`): callers read the headers of scanned records with
    `headers_of`.
    """
    try:
        return _look_over(offsets, records)
    except UNREADABLE:
        mend_headers(records)
        return _look_over(offsets, records)


def _look_over(offsets: Sequence[int], records: Sequence[Any]) -> Looked:  # noqa: C901 - a call costs more than a branch
    odd: list[int] = []
    met: list[MetRecord] = []
    more: dict[bytes, list[int]] = {}
    """Transactions without a marker so far: the lists that collect their next offsets."""
    last: bytes | None = None
    note = odd.append
    """Takes one more offset of the transaction `last`, while that is not None."""
    before = b""
    """The packed headers that precede one more record of `last`."""
    for offset, record, headers in zip(offsets, records, map(HEADERS, records), strict=True):
        if type(headers) is list and headers and headers[0][0] == PRODUCER:
            producer = headers[0][1]
            if len(headers) == 1:
                if producer is not None:
                    record.set_headers(ALONE + producer)
                continue
            if len(headers) == 2 and producer is not None:
                name, txn = headers[1]
                if name == SCHEMA_VERSION:
                    if txn is not None and len(txn) == SCHEMA_VERSION_BYTES:
                        record.set_headers(and_version(txn) + producer)
                    continue
                if name == TXN and txn is not None:
                    if txn == last:
                        note(offset)
                        record.set_headers(before + producer)
                        continue
                    if txn in more:
                        last, note, before = txn, more[txn].append, and_transaction(txn)
                        note(offset)
                        record.set_headers(before + producer)
                        continue
        if isinstance(headers, bytes):
            headers = unpack(headers)
        plain, txn = _glance(headers or ())
        if plain and txn is None:
            continue
        if plain and txn in more:
            last, note, before = txn, more[txn].append, and_transaction(txn)
            note(offset)
            continue
        found = _met_at(offset, headers)
        if found is None or not plain:
            odd.append(offset)
        if found is not None and found.ended is not None:
            ended = found.txn.to_bytes()
            more.pop(ended, None)
            last = None if last == ended else last
        elif found is not None and plain and txn == found.txn.to_bytes():  # else the marker may spell it otherwise
            last, more[txn] = txn, []
            note, before = more[txn].append, and_transaction(txn)
            found = found._replace(more=more[txn])
        if found is not None:
            met.append(found)
    return Looked(odd, met)


def _glance(headers: Sequence[tuple[str, bytes | None]]) -> tuple[bool, bytes | None]:
    """Whether all headers are a producer, a schema version and a transaction; and the transaction, as far as the scan
    read."""
    txn: bytes | None = None
    for name, value in headers:
        if name != PRODUCER and name != SCHEMA_VERSION:
            if name == TXN and value is not None:
                txn = value
            elif name[:_PREFIX_CHARS] == PREFIX:
                return False, txn
    return True, txn


def _met_at(offset: int, headers: Sequence[tuple[str, bytes | None]] | None) -> MetRecord | None:
    """None also when the transaction cannot be read."""
    try:
        reported = in_transaction(headers)
    except CorruptRecord:
        return None
    if reported is None:
        return None
    return MetRecord(offset, reported.txn, None if reported.ended is None else reported.ended is MarkerType.TXN_COMMIT)


@dataclass(frozen=True, slots=True)
class BufferSnapshot:
    """The state of a buffer that readers without headers filter by; plain values.

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

    def readable_end(self, end: int, from_bound: Iterator[MetRecord]) -> int:
        """`bound` lifted to the first record of an open transaction; `end` (exclusive, the data's end that was taken
        before this snapshot) when there is none.

        `from_bound`: the transactional records at or above `bound` and below `end`, in order; read only as far as
        needed, and not at all when nothing is open.
        """
        if not self.open_bounds:
            return end
        return next((met.offset for met in from_bound if met.ended is None and met.txn in self.open_bounds), end)

    def is_readable(self, offset: int, txn: TxnId | None) -> bool:
        """Whether a record below `readable_end` is delivered; `txn` is the transaction that its header names."""
        return offset not in self.excluded and (txn is None or txn not in self.unsealed)
