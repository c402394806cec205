"""The messages of one partition on the two clusters, compared as they are read. Pure but for what it is given.

A record is on the other cluster under another offset; its copy says where the original lies (decision 0017).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from pulsar_on_kafka.kafka.records import KafkaRecord
from pulsar_on_kafka.mapping.records.message_record import goes_to
from pulsar_on_kafka.mapping.records.record_headers import (
    FENCE,
    ORIGINAL_ID,
    PUBLISH_TIME,
    REPLICATED_FROM,
    SCHEMA_VERSION,
    TXN,
)

Headers = Iterable[tuple[str, bytes | None]]

_OF_ONE_SIDE: Final = frozenset({REPLICATED_FROM, ORIGINAL_ID, PUBLISH_TIME, SCHEMA_VERSION, FENCE, TXN})
"""What a copy has and its original has not, or otherwise."""
_DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Compared:
    """Counts of one partition: how many messages of the source are on the target, the same (`equal`), changed, or not
    at all (`missing`).

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

    @property
    def complete(self) -> bool:
        """Everything of the source is on the target, be it the same or not."""
        return not self.missing and not self.excused


class SideBySide:
    """Is told of the source's messages and of the copies that count, each side in the order of its log, in any turns.

    Memory: 250 bytes for each message that the other side was not told of yet, `waiting` originals and `early` copies.
    Whoever tells keeps both small: it goes on with the side that is behind, and makes room where that does not help.
    """

    def __init__(self, other: str) -> None:
        """`other`: the target's name."""
        self._other = other
        self._told = 0
        """Originals below it were told of, or are not there."""
        self._waiting: dict[int, tuple[int, bool]] = {}
        """Digests by offset, and whether it may be without a copy."""
        self._last_waiting = self._newest_copy = -1
        self._early: dict[int, int] = {}
        """Digests of copies, by the offsets of their originals."""
        self._equal = self._changed = self._missing = self._excused = 0
        self._first = -1
        self._sum = 0

    @property
    def waiting(self) -> int:
        """Originals whose copies were not told of."""
        return len(self._waiting)

    @property
    def early(self) -> int:
        """Copies of what was not told of yet."""
        return len(self._early)

    @property
    def lags(self) -> bool:
        """Whether the target has to be read on before the source."""
        return bool(self._waiting) and self._newest_copy < self._last_waiting

    def original(self, record: KafkaRecord, headers: Headers) -> None:
        """A message of the source. What came from elsewhere, and what its sender kept from going to the target, is
        nobody's to copy."""
        offset = record.offset()
        self._told = offset + 1
        named = dict(headers)
        if REPLICATED_FROM in named or not goes_to(headers, self._other):
            return
        digest, there = digest_of(offset, record, headers), self._early.pop(offset, None)
        if there is not None:
            self._judge(offset, digest, there)
            return
        self._waiting[offset] = (digest, TXN in named or FENCE in named)
        self._last_waiting = offset

    def copy(self, original: int, record: KafkaRecord, headers: Headers) -> None:
        """The copy that counts of the source's offset `original`, on the target."""
        self._newest_copy = max(self._newest_copy, original)
        if original >= self._told:
            self._early[original] = digest_of(original, record, headers)
        elif (waiting := self._waiting.pop(original, None)) is not None:
            self._judge(original, waiting[0], digest_of(original, record, headers))

    def reached(self, end: int) -> None:
        """Every original below `end` was told of: copies of others are copies of what is not there any more."""
        self._told = max(self._told, end)
        for gone in [original for original in self._early if original < self._told]:
            del self._early[gone]

    def make_room(self, *, settled: bool) -> bool:
        """Wait no longer for the copies of the older half of what waits: of what copies of later messages have passed
        (replicators keep the order), or, `settled`, of any. They are missing for good, or excused. Whether there were
        such.
        """
        given_up = [
            offset
            for offset in islice(self._waiting, (len(self._waiting) + 1) // 2)
            if settled or offset < self._newest_copy
        ]
        for offset in given_up:
            self._give_up(offset, excused=self._waiting.pop(offset)[1])
        return bool(given_up)

    def result(self, unread: int = 0) -> Compared:
        """The comparison as far as both sides were read; messages that wait for their copy are missing, and so are
        those `unread` of the source, which is read in the order of its log."""
        waiting = {offset: excused for offset, (_, excused) in self._waiting.items()}
        missing = [offset for offset, excused in waiting.items() if not excused]
        firsts = [*missing[:1], *([self._first] if self._first >= 0 else []), *([self._told] if unread else [])]
        return Compared(
            self._equal,
            self._changed,
            self._missing + len(missing) + unread,
            self._excused + len(waiting) - len(missing),
            min(firsts, default=-1),
            f"{self._sum:0{2 * _DIGEST_BYTES}x}",
        )

    def _judge(self, offset: int, digest: int, there: int) -> None:
        if digest == there:
            self._equal += 1
            self._sum = (self._sum + digest) % (1 << 8 * _DIGEST_BYTES)
        else:
            self._changed += 1
            self._note(offset)

    def _give_up(self, offset: int, *, excused: bool) -> None:
        if excused:
            self._excused += 1
        else:
            self._missing += 1
            self._note(offset)

    def _note(self, offset: int) -> None:
        self._first = offset if self._first < 0 else min(self._first, offset)


def digest_of(place: int, record: KafkaRecord, headers: Headers) -> int:
    """A digest of the original's offset, and of key, value and the headers that a copy keeps: 128 bits of BLAKE2b."""
    key, value = record.key(), record.value()
    kept = [header for header in headers if header[0] not in _OF_ONE_SIDE]
    sizes = [None if part is None else len(part) for part in (key, value)]
    digest = hashlib.blake2b(f"{place} {sizes} {kept}".encode(), digest_size=_DIGEST_BYTES)
    digest.update(key or b"")
    digest.update(value or b"")
    return int.from_bytes(digest.digest(), "big")
