"""The records of one partition on the two clusters, brought together by their places. Pure but for what it is given.

A record is on the other cluster under another offset; its copy says where the original lies (decision 0017).
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pyroaring import BitMap, BitMap64

from layer.cursor.ledger_acks import LedgerAcks, of_offsets
from layer.cursor.machine import CursorState
from layer.kafka.records import KafkaRecord
from mapping.headers import (
    FENCE,
    MARKER,
    ORIGINAL_ID,
    PUBLISH_TIME,
    REPLICATE_TO,
    REPLICATED_FROM,
    SCHEMA_VERSION,
    TXN,
)
from mapping.message_record import decode_headers
from mapping.original_position import decode_original

_OF_ONE_SIDE: Final = frozenset({REPLICATED_FROM, ORIGINAL_ID, PUBLISH_TIME, SCHEMA_VERSION, FENCE, TXN})
"""What a copy has and its original has not, or otherwise."""
_DIGEST_BYTES: Final = 8


class CopiedRecords:
    """The copies of one cluster's partition, in the order in which they lie on the other one.

    Memory: 24 bytes for each.
    """

    def __init__(self) -> None:
        self.originals = array("q")
        self.copies = array("q")
        self.digests = array("Q")

    def add(self, original: int, copy: int, digest: int) -> None:
        self.originals.append(original)
        self.copies.append(copy)
        self.digests.append(digest)

    def __len__(self) -> int:
        return len(self.originals)


@dataclass(slots=True)
class Compared:
    """Of one partition: how many messages of the source are on the target, the same (`equal`), changed, or not at all
    (`missing`).

    `excused`: not copied, of a transaction or an exclusive producer: aborted or void, perhaps. `first`: the offset of
    the first one that is changed or missing, -1 without one. `digest`: of places and contents of those that are equal.
    """

    equal: int = 0
    changed: int = 0
    missing: int = 0
    excused: int = 0
    first: int = -1
    digest: str = ""

    @property
    def good(self) -> bool:
        return not self.changed and not self.missing


def copied_records(batches: Iterable[list[KafkaRecord]], source: str, incarnation: int) -> CopiedRecords:
    """The copies of this life of the source's topic among these records."""
    found = CopiedRecords()
    name = source.encode("utf-8")
    for batch in batches:
        for record in batch:
            headers = record.headers() or ()
            origin = place = None
            for header, value in headers:
                if header == REPLICATED_FROM:
                    origin = value
                elif header == ORIGINAL_ID:
                    place = value
            if origin == name and place is not None:
                original = decode_original(place)
                if original.incarnation == incarnation:
                    found.add(original.kafka_offset, record.offset(), digest_of(record))
    return found


def digest_of(record: KafkaRecord) -> int:
    """Of key, value and the headers that a copy keeps: 64 bits of BLAKE2b."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in _parts(record):
        digest.update(b"-" if part is None else b"%d:" % len(part))
        digest.update(part or b"")
    return int.from_bytes(digest.digest(), "big")


def _parts(record: KafkaRecord) -> Iterator[bytes | None]:
    yield record.key()
    yield record.value()
    for name, value in record.headers() or ():
        if name not in _OF_ONE_SIDE:
            yield name.encode("utf-8")
            yield value


def compared(batches: Iterable[list[KafkaRecord]], copied: CopiedRecords, other: str) -> Compared:
    """The source's records beside their copies on the cluster `other`. What came from elsewhere, markers, and what its
    sender kept from going there are nobody's to copy.

    Copies are in their originals' order but for those that a replicator wrote again after a crash, which are the same.
    """
    digests = dict(zip(copied.originals, copied.digests, strict=True))
    result = Compared()
    whole = hashlib.blake2b(digest_size=16)
    for batch in batches:
        for record in batch:
            headers = dict(record.headers() or ())
            if MARKER in headers or REPLICATED_FROM in headers or not _goes_to(headers, other):
                continue
            offset, digest = record.offset(), digest_of(record)
            there = digests.get(offset)
            if there == digest:
                result.equal += 1
                whole.update(b"%d:%d;" % (offset, digest))
                continue
            if there is None and (TXN in headers or FENCE in headers):
                result.excused += 1
                continue
            result.changed += there is not None
            result.missing += there is None
            result.first = offset if result.first < 0 else result.first
    result.digest = whole.hexdigest()
    return result


def _goes_to(headers: Mapping[str, bytes | None], cluster: str) -> bool:
    named = headers.get(REPLICATE_TO)
    return named is None or cluster in (decode_headers([(REPLICATE_TO, named)]).replicate_to or ())


def carried_over(cursor: CursorState, copied: CopiedRecords, entries_per_ledger: int) -> LedgerAcks:
    """What a cursor has acknowledged, as places on the other cluster: individual acknowledgements, those below
    mark-delete, and ack sets of batch entries.

    `entries_per_ledger` is the other cluster's. Memory: a bitmap of the copies, and the ack sets.
    """
    size = cursor.deleted.entries_per_ledger
    below, known = cursor.next_unacked, -1
    ledger: BitMap = BitMap()
    acked: list[int] = []
    sets = {offset: (acks.batch_size, acks.acked) for offset, acks in cursor.batches.items()}
    batches: dict[int, tuple[int, int]] = {}
    for original, copy in zip(copied.originals, copied.copies, strict=True):
        if original < below:
            acked.append(copy)
            continue
        index, entry = divmod(original, size)
        if index != known:
            ledger, known = cursor.deleted.ledger(index) or BitMap(), index
        if entry in ledger:
            acked.append(copy)
        elif original in sets:
            batches[copy] = sets[original]
    return of_offsets(BitMap64(acked), batches, entries_per_ledger)
