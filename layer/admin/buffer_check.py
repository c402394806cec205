"""The buffer check reads a topic's data to its end, and compares it with what is on record of transactions in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.metadata.topics import Topic
from pulsar_on_kafka.node.node import Node
from pulsar_on_kafka.transactions.buffer.model import DataPartition, Met, look_over
from pulsar_on_kafka.transactions.buffer.verify import Difference, Rebuilt, compare, rebuild

_PIECE: Final = 50_000
_PIECE_S: Final = 300.0
_ASKING_S: Final = 30.0
_ROUNDS: Final = 4
"""A transaction that ended between a look at the log and one at the buffer differs in the first of two rounds."""


@dataclass(frozen=True, slots=True)
class VerifiedBuffer:
    """One partition whose log, from `start` to `end`, was compared with its transaction buffer.

    `records` are the transactional ones that were read, of `transactions`.
    """

    where: DataPartition
    start: int
    end: int
    transactions: int
    records: int
    differences: tuple[Difference, ...]

    @property
    def harmful(self) -> tuple[Difference, ...]:
        """Those that are not explained by a transaction that is just being ended."""
        return tuple(difference for difference in self.differences if not difference.finding.is_harmless)


class BufferCheck:
    """The check compares one topic's log with its transaction buffer, partition by partition. It reads the log from its
    start to its end, then what is on record; whatever differs then is looked at again, with what the log got meanwhile:
    only what stays is a difference."""

    def __init__(self, node: Node, topic: Topic, progress: Callable[[int, int], None], deadline: Deadline) -> None:
        """`progress` hears how many offsets of all are done."""
        self._node = node
        self._topic = topic
        self._progress = progress
        partitions = range(topic.partitions)
        self._starts = node.admin.start_offsets(topic.kafka_topic, partitions, deadline)
        self._ends = node.admin.end_offsets(topic.kafka_topic, partitions, deadline)
        self._total = sum(self._ends[partition] - self._starts[partition] for partition in partitions)
        self._done = 0

    def verified(self, partition: int) -> VerifiedBuffer:
        where = DataPartition(str(self._topic.name), partition, self._topic.layout.incarnation)
        start, end = self._starts[partition], self._ends[partition]
        log = rebuild(self._met(partition, start, end))
        found = self._differences(where, log, start)
        for _ in range(_ROUNDS - 1):
            if not found:
                break
            before = {difference.txn for difference in found}
            began, end = end, self._end(partition)
            rebuild(self._met(partition, began, end), log)
            found = [each for each in self._differences(where, log, start) if each.txn in before]
        records = sum(len(each.offsets) + len(each.late) for each in log.values())
        return VerifiedBuffer(where, start, end, len(log), records, tuple(found))

    def _differences(self, where: DataPartition, log: dict[TxnId, Rebuilt], start: int) -> list[Difference]:
        return self._node.looking.buffers.ask(
            where.topic, lambda entries: compare(where, log, start, entries), Deadline.after(_ASKING_S)
        )

    def _end(self, partition: int) -> int:
        ends = self._node.admin.end_offsets(self._topic.kafka_topic, [partition], Deadline.after(_ASKING_S))
        return ends[partition]

    def _met(self, partition: int, start: int, end: int) -> Iterator[Met]:
        """The transactional records and markers in [start, end), a piece in memory at a time."""
        for first in range(start, end, _PIECE):
            last = min(end, first + _PIECE)
            batches = self._node.fetcher.read(self._topic.kafka_topic, partition, first, last, Deadline.after(_PIECE_S))
            for records in batches:
                yield from look_over([record.offset() for record in records], records).met
            self._done += last - first
            self._progress(self._done, max(self._total, self._done))
