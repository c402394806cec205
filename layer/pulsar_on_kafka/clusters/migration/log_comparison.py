"""Reads the logs of a tenant's topics on the source and the target cluster, in step, and compares the messages.

A record has another offset on the other cluster; its copy contains the place of the original (decision 0017).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.cross_cluster.subscription_reader import LogRead, SideReading
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.replication_state.origin_index import CopiedOriginal
from pulsar_on_kafka.kafka.records import KafkaRecord
from pulsar_on_kafka_mapping.records.message_record import goes_to
from pulsar_on_kafka_mapping.records.record_headers import (
    FENCE,
    ORIGINAL_ID,
    PUBLISH_TIME,
    REPLICATED_FROM,
    SCHEMA_VERSION,
    TXN,
)
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import Origin


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """`cursors_differ`: subscriptions whose acknowledgements are not the same on both sides."""

    topic: str
    partition: int
    compared: Compared
    cursors_differ: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """`lacking`: metadata of the source that the target lacks, one sentence each. `not_moved`: tasks for an operator,
    which do not prevent the switch."""

    lacking: tuple[str, ...]
    partitions: tuple[PartitionReport, ...]
    not_moved: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return not self.lacking and all(each.compared.good and not each.cursors_differ for each in self.partitions)

    def problems(self) -> list[str]:
        """One sentence each."""
        found = list(self.lacking)
        for each in self.partitions:
            if not each.compared.good:
                found.append(
                    f"{each.topic} partition {each.partition}: {each.compared.missing} messages are missing, "
                    f"{each.compared.changed} differ, the first at offset {each.compared.first}"
                )
            if each.cursors_differ:
                names = ", ".join(each.cursors_differ)
                found.append(f"{each.topic} partition {each.partition}: acknowledgements of {names} differ")
        return found


Headers = Iterable[tuple[str, bytes | None]]

_OF_ONE_SIDE: Final = frozenset({REPLICATED_FROM, ORIGINAL_ID, PUBLISH_TIME, SCHEMA_VERSION, FENCE, TXN})
"""Headers that differ between a copy and its original."""
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
    """Compares the source's messages with the copies that count; each side is added in the order of its log, in any
    turns.

    Memory: 250 bytes for each message without its counterpart, `waiting` originals and `early` copies. The caller keeps
    both small: it continues with the side that is behind, and makes room where that does not help.
    """

    def __init__(self, other: str) -> None:
        self._other = other
        self._reported_upto = 0
        """Originals below this offset were added, or do not exist."""
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
        return len(self._waiting)

    @property
    def early(self) -> int:
        """Copies without their originals so far."""
        return len(self._early)

    @property
    def lags(self) -> bool:
        """Whether the target has to be read before the source."""
        return bool(self._waiting) and self._newest_copy < self._last_waiting

    def original(self, record: KafkaRecord, headers: Headers) -> None:
        """Adds a message of the source. Messages from elsewhere, and those whose sender excluded the target, are not to
        be copied."""
        offset = record.offset()
        self._reported_upto = offset + 1
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
        if original >= self._reported_upto:
            self._early[original] = digest_of(original, record, headers)
        elif (waiting := self._waiting.pop(original, None)) is not None:
            self._judge(original, waiting[0], digest_of(original, record, headers))

    def reached(self, end: int) -> None:
        """Marks every original below `end` as added: other copies have originals that were deleted."""
        self._reported_upto = max(self._reported_upto, end)
        for gone in [original for original in self._early if original < self._reported_upto]:
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
        firsts = [
            *missing[:1],
            *([self._first] if self._first >= 0 else []),
            *([self._reported_upto] if unread else []),
        ]
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


_APART: Final = 50_000
"""Messages of one topic that one side is read ahead of the other, about."""
_MAX_WAITING: Final = 50_000
"""Messages of all topics that wait for their copies, and as many copies for their originals."""
_FEWEST: Final = 1_000
"""The share of one partition, however many others there are."""
_Headers = list[tuple[str, bytes | None]]


@dataclass(slots=True)
class _Pair:
    here: str
    there: str
    origin: Origin
    partitions: dict[int, SideBySide] = field(default_factory=dict)


class BothSides:
    """Reads both logs, in one thread, until `close`. Each record is read once: a second look reads the records since
    the first.

    Reading pauses in a log that is far ahead of the other one: of originals without copies, or of copies whose
    originals were not read yet.

    Memory: two `SideReading`s of all topics in use; and a `SideBySide` for each of their partitions. In these 100,000
    originals wait for their copies, and as many copies for their originals, and 2,000 more of each in any partition,
    250 bytes each, however long the logs are and whatever their order is: 50 MB, and 1 MB a partition.
    """

    def __init__(self, left: Node, from_cluster: str, reached: Node, to_cluster: str) -> None:
        self.here = SideReading(left, self._original, every_topic=True)
        self.there = SideReading(reached, self._copy, every_topic=True)
        self._from_cluster = from_cluster
        self._to_cluster = to_cluster
        self._pairs: dict[str, _Pair] = {}
        self._of: dict[str, _Pair] = {}
        """Pairs by Kafka's id of the topic, here or there."""

    def close(self) -> None:
        """A second call does nothing."""
        self.here.close()
        self.there.close()

    def read_on(self, topic: Topic, other: Topic, deadline: Deadline, *, settled: bool = False) -> dict[int, Compared]:
        """Read both logs to where they end now; gives what all of it comes to, by partition of `topic`.

        Where more is not copied than is kept here, the rest is not read, and is missing until a later look finds it.
        `settled`: nothing more is copied, so what has no copy by now will never have one, and all is read.

        Raises:
            Refused: the topic was made anew since the last look.
            DeadlineExceeded, StoreError: one side cannot be read in time.
        """
        pair = self._pair(topic, other)
        most = max(_FEWEST, (_MAX_WAITING - self._held_beside(pair)) // topic.partitions)
        step = max(_FEWEST, min(_APART // topic.partitions, most))
        both = range(min(topic.partitions, other.partitions))
        ends = self.here.node.admin.end_offsets(topic.kafka_topic, [*pair.partitions], deadline)
        there_ends = self.there.node.admin.end_offsets(other.kafka_topic, [*both], deadline)
        here = self.here.read_on(topic, ends, deadline, 0)
        there = self.there.read_on(other, there_ends, deadline, 0)
        for partition, each in pair.partitions.items():
            each.reached(here[partition].end)  # what lies below it is not there any more
        while True:
            deadline.check(f"{topic.name} to be read on both clusters")
            unread = {p: end for p, end in ends.items() if here[p].end < end}
            takes = {p: end for p, end in there_ends.items() if there[p].end < end and pair.partitions[p].early < most}
            behind = {p: end for p, end in takes.items() if pair.partitions[p].lags}
            ahead = {p: end for p, end in unread.items() if p not in behind and pair.partitions[p].waiting < most}
            if ahead:
                self.here.read_on(topic, ahead, deadline, step)
                for partition in ahead:
                    pair.partitions[partition].reached(here[partition].end)
            if behind or (takes and not ahead):
                self.there.read_on(other, behind or takes, deadline, step)
            elif not ahead and not [p for p in unread if pair.partitions[p].make_room(settled=settled)]:
                left = {p: end - here[p].end for p, end in unread.items()}
                return {number: each.result(left.get(number, 0)) for number, each in pair.partitions.items()}

    def logs(self, topic: Topic, other: Topic, deadline: Deadline) -> tuple[LogRead, LogRead]:
        """The beginnings of messages on both clusters, as far as they were read. Raises the errors of `read_on`."""
        return self.here.known(topic, deadline), self.there.known(other, deadline)

    def _held_beside(self, pair: _Pair) -> int:
        sides = [each for other in self._pairs.values() if other is not pair for each in other.partitions.values()]
        return max(sum(each.waiting for each in sides), sum(each.early for each in sides))

    def _pair(self, topic: Topic, other: Topic) -> _Pair:
        name, ids = str(topic.name), (topic.kafka_topic_id, other.kafka_topic_id)
        origin = Origin(self._from_cluster, topic.layout.incarnation)
        pair = self._pairs.setdefault(name, _Pair(*ids, origin))
        if (pair.here, pair.there) != ids:
            raise errors.Refused(f"topic {name} was deleted and recreated meanwhile: repeat the command")
        self._of.update(dict.fromkeys(ids, pair))
        for number in range(topic.partitions):
            self._of_partition(pair, number)
        return pair

    def _of_partition(self, pair: _Pair, number: int) -> SideBySide:
        known = pair.partitions.get(number)
        if known is None:
            known = pair.partitions[number] = SideBySide(self._to_cluster)
        return known

    def _original(self, topic: Topic, partition: int, record: Any, headers: _Headers, _: CopiedOriginal | None) -> None:
        self._of_partition(self._of[topic.kafka_topic_id], partition).original(record, headers)

    def _copy(
        self, topic: Topic, partition: int, record: Any, headers: _Headers, copied: CopiedOriginal | None
    ) -> None:
        pair = self._of[topic.kafka_topic_id]
        if copied is not None and copied.origin == pair.origin:
            self._of_partition(pair, partition).copy(copied.there, record, headers)
