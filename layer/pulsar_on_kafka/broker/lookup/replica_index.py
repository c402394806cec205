"""Copies of another cluster's records are found in a partition that a replicator fills.

By bisection: a replicator keeps the order of its source, so the originals' places grow along the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.records import KafkaRecord, headers_of
from pulsar_on_kafka_mapping.records.original_position import OriginalPosition, copy_headers, decode_original

Life = tuple[int, int]
"""(incarnation, Kafka offset) of an original: grows in its partition, over all lives of the topic."""
_AT_ONCE: Final = 500
"""Records looked at by one reading; most often the first one is a copy."""
_NEAR: Final = 2_000
"""Records that are read on for the next one of several, before it is looked for by bisection."""


class ReplicaCopy(NamedTuple):
    """A copy's own offset, and the place of its original."""

    offset: int
    original: OriginalPosition


class Reads(Protocol):
    """The call of `Fetcher` that the search for copies uses."""

    def read(
        self, topic: str, partition: int, start: int, end: int, deadline: Deadline
    ) -> Iterator[list[KafkaRecord]]: ...


class Copies:
    """Copies of the records of one cluster, in one partition. Memory: one batch of records while it reads."""

    def __init__(self, reads: Reads, kafka_topic: str, partition: int, source: str) -> None:
        self._reads = reads
        self._topic = kafka_topic
        self._partition = partition
        self._source = source.encode("utf-8")

    def behind(self, original: Life, low: int, end: int, deadline: Deadline) -> int:
        """The offset behind the last copy in [low, end) of a record not behind `original`; `low` where there is none.

        Reads the logarithm of as many records; where many lie together that are no copies, those, too.

        Raises:
            DeadlineExceeded: Kafka did not answer in time.
        """
        first, beyond = low, end
        while first < beyond:
            middle = (first + beyond) // 2
            found = self._first(middle, beyond, deadline)
            if found is None or (found.original.incarnation, found.original.kafka_offset) > original:
                beyond = middle
            else:
                first = found.offset + 1
        return first

    def of(self, original: Life, low: int, end: int, deadline: Deadline) -> int | None:
        """The offset of the copy of exactly this record in [low, end); None when it is not there."""
        return self.of_each([original], low, end, deadline).get(original)

    def of_each(self, originals: Iterable[Life], low: int, end: int, deadline: Deadline) -> dict[Life, int]:
        """`of` for several; those that are not there are missing. What lies near each other is read on to, so the
        messages that a program has in hand take about as long as one of them.

        Raises:
            DeadlineExceeded: Kafka did not answer in time.
        """
        found: dict[Life, int] = {}
        left = sorted(set(originals))
        at = low
        while left and (at := self.behind((left[0][0], left[0][1] - 1), at, end, deadline)) < end:
            upto = min(end, at + _NEAR)
            furthest = self._find(left, at, upto, found, deadline)
            left = [each for each in left if each > furthest]
            at = upto
        return found

    def _find(self, required: list[Life], start: int, end: int, found: dict[Life, int], deadline: Deadline) -> Life:
        """Put into `found` what of these is copied in [start, end), until they are passed; gives how far that came."""
        requested, furthest = set(required), (-1, -1)
        for batch in self._reads.read(self._topic, self._partition, start, end, deadline):
            for record in batch:
                original = self._original(record)
                if original is None:
                    continue
                life = original.incarnation, original.kafka_offset
                furthest = max(furthest, life)
                if life in requested:
                    found[life] = record.offset()
                if life >= required[-1]:
                    return furthest
        return furthest

    def _first(self, start: int, end: int, deadline: Deadline) -> ReplicaCopy | None:
        while start < end:
            upto = min(end, start + _AT_ONCE)
            for batch in self._reads.read(self._topic, self._partition, start, upto, deadline):
                for record in batch:
                    original = self._original(record)
                    if original is not None:
                        return ReplicaCopy(record.offset(), original)
            start = upto
        return None

    def _original(self, record: KafkaRecord) -> OriginalPosition | None:
        found = copy_headers(headers_of(record))
        return decode_original(found.position) if found is not None and found.cluster == self._source else None
