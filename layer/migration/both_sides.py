"""Reads the logs of a tenant's topics on the cluster that it leaves and on the one that it gets to, in step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.mapping.state.clusters.subscription_progress import Origin
from pulsar_on_kafka.metadata.topics import Topic
from pulsar_on_kafka.migration.sides import Compared, SideBySide
from pulsar_on_kafka.node.node import Node
from pulsar_on_kafka.node.sides.side_reading import LogRead, SideReading
from pulsar_on_kafka.replicated.origins import Copied

_APART: Final = 50_000
"""Messages of one topic that one side is read ahead of the other, about."""
_MOST: Final = 50_000
"""Messages of all topics that wait for their copies, and as many copies for their originals."""
_FEWEST: Final = 1_000
"""Of one partition, whatever there is of others."""
_Headers = list[tuple[str, bytes | None]]


@dataclass(slots=True)
class _Pair:
    """A topic on both clusters, by Kafka's ids."""

    here: str
    there: str
    origin: Origin
    partitions: dict[int, SideBySide] = field(default_factory=dict)


class BothSides:
    """For one thread, until `close`. Each record is read once: a second look reads what came since.

    A log that is far ahead of the other one is not read on: neither originals that were not copied yet, nor copies of
    what was not read yet.

    Memory: two `SideReading`s of all topics that were looked at; and a `SideBySide` for each of their partitions. In
    these 100,000 originals wait for their copies, and as many copies for their originals, and 2,000 more of each in any
    partition, 250 bytes each, however long the logs are and whatever their order is: 50 MB, and 1 MB a partition.
    """

    def __init__(self, left: Node, from_cluster: str, reached: Node, to_cluster: str) -> None:
        self.here = SideReading(left, self._original, every_topic=True)
        self.there = SideReading(reached, self._copy, every_topic=True)
        self._from_cluster = from_cluster
        self._to_cluster = to_cluster
        self._pairs: dict[str, _Pair] = {}
        self._of: dict[str, _Pair] = {}
        """By the id that Kafka has for the topic, here or there."""

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
        most = max(_FEWEST, (_MOST - self._held_beside(pair)) // topic.partitions)
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
        """Where messages began, on both clusters, as far as they were read. Raises as `read_on`."""
        return self.here.known(topic, deadline), self.there.known(other, deadline)

    def _held_beside(self, pair: _Pair) -> int:
        """What waits, or came early, of other topics: the more of the two."""
        sides = [each for other in self._pairs.values() if other is not pair for each in other.partitions.values()]
        return max(sum(each.waiting for each in sides), sum(each.early for each in sides))

    def _pair(self, topic: Topic, other: Topic) -> _Pair:
        name, ids = str(topic.name), (topic.kafka_topic_id, other.kafka_topic_id)
        origin = Origin(self._from_cluster, topic.layout.incarnation)
        pair = self._pairs.setdefault(name, _Pair(*ids, origin))
        if (pair.here, pair.there) != ids:
            raise errors.Refused(f"topic {name} was deleted and made anew meanwhile: say it again")
        self._of.update(dict.fromkeys(ids, pair))
        for number in range(topic.partitions):
            self._of_partition(pair, number)
        return pair

    def _of_partition(self, pair: _Pair, number: int) -> SideBySide:
        known = pair.partitions.get(number)
        if known is None:
            known = pair.partitions[number] = SideBySide(self._to_cluster)
        return known

    def _original(self, topic: Topic, partition: int, record: Any, headers: _Headers, _: Copied | None) -> None:
        self._of_partition(self._of[topic.kafka_topic_id], partition).original(record, headers)

    def _copy(self, topic: Topic, partition: int, record: Any, headers: _Headers, copied: Copied | None) -> None:
        pair = self._of[topic.kafka_topic_id]
        if copied is not None and copied.origin == pair.origin:
            self._of_partition(pair, partition).copy(copied.there, record, headers)
