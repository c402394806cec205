"""Messages that consumers in other clusters have acknowledged; a cursor's owner skips them.

The service applies their reports to the cursors (`subscription_sync`). This module covers the time before that: the
first records after a switch, and messages copied later than they were acknowledged. Its results become acknowledgements
of the owner itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Final

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.replication_state.acks import BatchSet, ReplicatedAcks, in_both, news
from pulsar_on_kafka.broker.replication_state.origin_index import copied
from pulsar_on_kafka.broker.replication_state.progress import without_begun
from pulsar_on_kafka.broker.replication_state.progress_heads import HeadAt, ProgressHeads, Subject
from pulsar_on_kafka.broker.replication_state.progress_log import ProgressLog, Superseded
from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import (
    BEGINS,
    BLOCK,
    KNOWS,
    SAYS,
    Origin,
    ProgressHead,
)

_LOOK_EVERY_S: Final = 1.0
_LOOK_TIMEOUT_S: Final = 10.0


class _Word:
    """One cluster's report, or its known progress: its newest head, and blocks on demand."""

    def __init__(self, log: ProgressLog, subject: Subject) -> None:
        self._log = log
        self.subject = subject
        self.at: HeadAt | None = None
        self._head: ProgressHead | None = None

    def look(self, at: HeadAt | None, deadline: Deadline) -> None:
        if at != self.at:
            self._head = None if at is None else self._log.head(self.subject, at, deadline)
            self.at = at

    @property
    def origins(self) -> Mapping[Origin, object]:
        return {} if self._head is None else self._head.origins

    @property
    def life(self) -> tuple[int, int] | None:
        return None if self._head is None else self._head.life

    def acks(self, origin: Origin, blocks: set[int], deadline: Deadline) -> ReplicatedAcks:
        saved = self._head.origins.get(origin) if self._head is not None else None
        if saved is None:
            return ReplicatedAcks(BLOCK)
        found = ReplicatedAcks(BLOCK, saved.below, {block: saved.here[block] for block in blocks & saved.here.keys()})
        apart = {block: saved.apart[block] for block in blocks & saved.apart.keys()}
        for block, holes in self._log.blocks(self.subject, apart, deadline):
            found.join(ReplicatedAcks(BLOCK, 0, {block: holes}))
        return found


class RemoteAcks:
    """Acknowledgements of other clusters for one owned partition, in the member's thread. It reads once a second, when
    records arrive.

    After a seek it waits until the service has applied the earlier reports, which must not count any more. Memory: the
    heads of other clusters, 1 MB each at most; for blocks see `ProgressLog`.
    """

    def __init__(
        self,
        log: ProgressLog,
        origin: Origin,
        topic: str,
        partition: int,
        name: str,
        clock: Clock,
        *,
        follows: bool = False,
    ) -> None:
        """`origin`: this cluster, and the topic's life in it; `name`: the subscription; `follows`: see
        `SubscriptionRecord`."""
        self._log = log
        self._origin = origin
        self._place = (topic, partition, name)
        self._clock = clock
        self._follows = follows
        self._reports: dict[str, _Word] = {}
        self._knows: dict[str, _Word] = {}
        self._begins: dict[str, _Word] = {}
        self._looked_s: float | None = None
        self._resets: int | None = None
        self._void: dict[str, HeadAt | None] = {}
        """The known head of each cluster when the cursor was sought."""

    def of(
        self, cursor: CursorState, offsets: Sequence[int], records: Sequence[Any]
    ) -> tuple[list[int], dict[int, BatchSet]]:
        """The offsets of entries, and the messages of batch entries, that other clusters are done with, of these
        records.

        Raises:
            StoreError: it cannot be found out now.
        """
        deadline = Deadline.after(_LOOK_TIMEOUT_S)
        try:
            self._look(cursor, deadline)
            return self._found(offsets, records, deadline)
        except Superseded:
            self._looked_s = None
            self._look(cursor, deadline)
            return self._found(offsets, records, deadline)

    def _look(self, cursor: CursorState, deadline: Deadline) -> None:
        now_s = self._clock.monotonic()
        sought = self._resets is not None and cursor.resets != self._resets
        if not sought and self._looked_s is not None and now_s - self._looked_s < _LOOK_EVERY_S:
            return

        def ours(heads: ProgressHeads) -> list[tuple[Subject, HeadAt]]:
            return [found for found in heads.subjects() if found[0][:3] == self._place]

        found = self._log.heads.query(self._place[0], ours, deadline)
        for words, about in ((self._reports, SAYS), (self._knows, KNOWS), (self._begins, BEGINS)):
            at = {subject.cluster: (subject, where) for subject, where in found if subject.about == about}
            for cluster in words.keys() - at.keys():
                del words[cluster]
            for cluster, (subject, where) in at.items():
                words.setdefault(cluster, _Word(self._log, subject)).look(where, deadline)
        if sought:
            self._void = {cluster: self._known_at(cluster) for cluster in self._reports}
        self._resets = cursor.resets
        self._looked_s = now_s

    def _known_at(self, cluster: str) -> HeadAt | None:
        word = self._knows.get(cluster)
        return None if word is None else word.at

    def _found(
        self, offsets: Sequence[int], records: Sequence[Any], deadline: Deadline
    ) -> tuple[list[int], dict[int, BatchSet]]:
        entries: list[int] = []
        batches: dict[int, BatchSet] = {}
        clusters = [
            c
            for c in self._reports
            if (c not in self._void or self._known_at(c) != self._void[c])
            and (c not in self._begins or self._begins[c].life == self._reports[c].life)
        ]
        if not clusters:
            return entries, batches
        for origin, places in self._by_origin(offsets, records).items():
            start, end = min(places), max(places) + 1
            blocks = {there // BLOCK for there in places}
            begun = {
                c: self._begins[c].acks(origin, blocks, deadline) if c in self._begins else ReplicatedAcks(BLOCK)
                for c in self._reports
            }
            follows = reduce(in_both, begun.values()) if self._follows else None
            for cluster in clusters:
                if origin not in self._reports[cluster].origins:
                    continue
                known = self._knows.get(cluster)
                acked, sets = news(
                    self._reports[cluster].acks(origin, blocks, deadline),
                    known.acks(origin, blocks, deadline) if known is not None else ReplicatedAcks(BLOCK),
                    start,
                    end,
                )
                acked, sets = without_begun(acked, sets, start, end, begun[cluster], follows)
                entries += [here for there, here in places.items() if there - start in acked]
                for there, found in sets.items():
                    if there in places:
                        size, bits = batches.get(places[there], (found[0], 0))
                        batches[places[there]] = (size, bits | found[1])
        return sorted(set(entries)), batches

    def _by_origin(self, offsets: Sequence[int], records: Sequence[Any]) -> dict[Origin, dict[int, int]]:
        """Offsets here by offsets there. Finding copies costs one header per record; topics without copies are skipped,
        except where others report messages that were published here."""
        requested = {origin for word in self._reports.values() for origin in word.origins}
        found: dict[Origin, dict[int, int]] = {}
        elsewhere = requested - {self._origin}
        for offset, record in zip(offsets, records, strict=True):
            try:
                copy = copied(headers_of(record), self._place[1]) if elsewhere else None
            except CorruptRecord:
                continue  # the delivery reports the error
            if copy is None:
                if self._origin in requested:
                    found.setdefault(self._origin, {})[offset] = offset
            elif copy.origin in requested:
                found.setdefault(copy.origin, {}).setdefault(copy.there, offset)  # a second copy is void
        return found
