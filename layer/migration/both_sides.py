"""Reads the logs of a tenant's topics on the cluster that it leaves and on the one that it gets to, in step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from layer import errors
from layer.deadline import Deadline
from layer.metadata.topics import Topic
from layer.migration.sides import Compared, SideBySide
from layer.node import Node
from layer.replication.origins import Copied
from layer.replication.side_reading import SideReading
from mapping.state_records.subscription_progress import Origin

_APART: Final = 20_000
"""Messages of one topic that one side is read ahead of the other, about."""
_FEWEST: Final = 1_000
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

    Memory: two `SideReading`s of all topics that were looked at; a `SideBySide` for each of their partitions, which are
    about 20,000 messages of the topic that is being read, and what is missing of the others.
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

    def read_on(self, topic: Topic, other: Topic, deadline: Deadline) -> dict[int, Compared]:
        """Read both logs to where they end now; gives what all of it comes to, by partition of `topic`.

        Raises:
            Refused: the topic was made anew since the last look.
            DeadlineExceeded, StoreError: one side cannot be read in time.
        """
        pair = self._pair(topic, other)
        step = max(_FEWEST, _APART // topic.partitions)
        both = range(min(topic.partitions, other.partitions))
        ends = self.here.node.admin.end_offsets(topic.kafka_topic, [*pair.partitions], deadline)
        there_ends = self.there.node.admin.end_offsets(other.kafka_topic, [*both], deadline)
        here = self.here.read_on(topic, ends, deadline, 0)
        there = self.there.read_on(other, there_ends, deadline, 0)
        while True:
            deadline.check(f"{topic.name} to be read on both clusters")
            open_there = {p: end for p, end in there_ends.items() if there[p].end < end}
            behind = {p: end for p, end in open_there.items() if pair.partitions[p].lags}
            ahead = {p: end for p, end in ends.items() if here[p].end < end and p not in behind}
            if ahead:
                self.here.read_on(topic, ahead, deadline, step)
                for partition in ahead:
                    pair.partitions[partition].reached(here[partition].end)
            if behind or not ahead:
                if not open_there:
                    return {number: each.result() for number, each in pair.partitions.items()}
                self.there.read_on(other, behind or open_there, deadline, step)

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
