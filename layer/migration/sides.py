"""The messages of one partition on the two clusters, compared by their places. Pure but for what it is given.

A record is on the other cluster under another offset; its copy says where the original lies (decision 0017).
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from layer.kafka.records import KafkaRecord, headers_of
from layer.replication.origins import is_marker
from mapping.fence import begun_by
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
from mapping.original_position import copy_headers, decode_original

_OF_ONE_SIDE: Final = frozenset({REPLICATED_FROM, ORIGINAL_ID, PUBLISH_TIME, SCHEMA_VERSION, FENCE, TXN})
"""What a copy has and its original has not, or otherwise."""
_DIGEST_BYTES: Final = 8


class CopiedRecords:
    """What the copies of one cluster's partition are, by the offsets of their originals.

    Memory: 16 bytes for each; 150 for one that does not lie behind those of earlier originals, which a few do after a
    replicator's death.
    """

    def __init__(self) -> None:
        self._originals = array("q")
        self._digests = array("Q")
        self._late: dict[int, int] = {}

    def add(self, original: int, digest: int) -> None:
        """Of several copies of one original the first counts."""
        if not self._originals or original > self._originals[-1]:
            self._originals.append(original)
            self._digests.append(digest)
        elif self.digest(original) is None:
            self._late[original] = digest

    def digest(self, original: int) -> int | None:
        """None: there is no copy."""
        place = bisect_left(self._originals, original)
        if place < len(self._originals) and self._originals[place] == original:
            return self._digests[place]
        return self._late.get(original)


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
    """The copies of this life of the source's topic among these records, but for those that nobody receives: what a
    replicator wrote behind its successor's marker."""
    found = CopiedRecords()
    name, newest = source.encode("utf-8"), 0
    for batch in batches:
        for record in batch:
            headers = headers_of(record)
            if is_marker(headers):
                begun = begun_by(headers)
                if begun is not None and begun.origin == source:
                    newest = max(newest, begun.epoch)
                continue
            copy = copy_headers(headers)
            if copy is not None and copy.cluster == name:
                original = decode_original(copy.position)
                if original.incarnation == incarnation and original.epoch >= newest:
                    found.add(original.kafka_offset, digest_of(record))
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
    for name, value in headers_of(record) or ():
        if name not in _OF_ONE_SIDE:
            yield name.encode("utf-8")
            yield value


def compared(batches: Iterable[list[KafkaRecord]], copied: CopiedRecords, other: str) -> Compared:
    """The source's records beside their copies on the cluster `other`. What came from elsewhere, markers, and what its
    sender kept from going there are nobody's to copy."""
    result = Compared()
    whole = hashlib.blake2b(digest_size=16)
    for batch in batches:
        for record in batch:
            headers = dict(headers_of(record) or ())
            if MARKER in headers or REPLICATED_FROM in headers or not _goes_to(headers, other):
                continue
            offset, digest = record.offset(), digest_of(record)
            there = copied.digest(offset)
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
