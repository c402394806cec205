"""A fold over the keys of the state topic `subscription_progress` finds the head that counts for each subject. Pure.

Each subject (a cluster's report on one partition of one subscription) has one writer at a time. A new one takes a
version above all that it finds, and a session of its own; the head of the highest (version, session) counts, whatever
the order of the records and whatever compaction deleted. So a writer that was paused and wakes up is ignored. It
detects that before it removes anything: it must read its own head back as the one that counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pulsar_on_kafka.statelog.api import LogRecord, put
from pulsar_on_kafka_mapping.state.state_keys import ProgressHeadKey, ProgressSegmentKey, decode_key


class Subject(NamedTuple):
    """The subject of a head: one cluster's report on a subscription in one partition; `about` is `SAYS` or `KNOWS`."""

    topic: str
    partition: int
    subscription: str
    cluster: str
    about: str


class HeadWriter(NamedTuple):
    """Compared as tuples: the highest counts."""

    version: int
    session: str


class HeadAt(NamedTuple):
    """The head that counts, and where it lies."""

    writer: HeadWriter
    offset: int


class ProgressHeads:
    """Memory: about 400 bytes for each head, and 300 for each segment, that is not tombstoned. Values are not kept."""

    def __init__(self) -> None:
        self._heads: dict[Subject, dict[HeadWriter, int]] = {}
        self._segments: dict[Subject, dict[HeadWriter, dict[bytes, int]]] = {}

    def apply(self, record: LogRecord) -> None:
        key = decode_key(record.key)
        if not isinstance(key, ProgressHeadKey | ProgressSegmentKey):
            return
        subject = Subject(key.topic, key.partition, key.subscription, key.cluster, key.about)
        writer = HeadWriter(key.version, key.session)
        offset = None if record.value is None else record.offset
        if isinstance(key, ProgressHeadKey):
            heads = self._heads.setdefault(subject, {})
            put(heads, writer, offset)
            if not heads:
                del self._heads[subject]
            return
        written = self._segments.setdefault(subject, {}).setdefault(writer, {})
        put(written, record.key, offset)
        if not written:
            del self._segments[subject][writer]
            if not self._segments[subject]:
                del self._segments[subject]

    def newest(self, subject: Subject) -> HeadAt | None:
        heads = self._heads.get(subject)
        if not heads:
            return None
        writer = max(heads)
        return HeadAt(writer, heads[writer])

    def next_version(self, subject: Subject) -> int:
        writers = [*self._heads.get(subject, ()), *self._segments.get(subject, ())]
        return max((writer.version for writer in writers), default=0) + 1

    def subjects(self) -> Iterator[tuple[Subject, HeadAt]]:
        for subject, heads in self._heads.items():
            writer = max(heads)
            yield subject, HeadAt(writer, heads[writer])

    def others_keys(self, subject: Subject, mine: HeadWriter) -> list[tuple[HeadWriter, bytes | None]]:
        """Keys of writers below `mine`: (writer, key of a segment; None: its head)."""
        found: list[tuple[HeadWriter, bytes | None]] = [
            (writer, key) for writer, keys in self._segments.get(subject, {}).items() if writer < mine for key in keys
        ]
        return [*found, *((writer, None) for writer in self._heads.get(subject, ()) if writer < mine)]

    def segments_of(self, subject: Subject, writer: HeadWriter) -> Mapping[bytes, int]:
        return self._segments.get(subject, {}).get(writer, {})
