"""The readers of a process, which follow a topic without a subscription; and what compacted reading leaves of it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.open_files import warn_when_files_run_out
from pulsar_on_kafka.broker.metadata.incarnation_checks import IncarnationCheck
from pulsar_on_kafka.broker.metadata.policies import COMPACTION_EMPTY_PAYLOADS, PULSAR_5, applied
from pulsar_on_kafka.broker.metadata.producers.fences import Fences
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.services import FETCH_QUEUE_KBYTES, Services
from pulsar_on_kafka.broker.subscriptions.records.batches import Begun
from pulsar_on_kafka.broker.subscriptions.records.compaction import CompactedRange
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint, PartitionAcks
from pulsar_on_kafka.broker.subscriptions.records.open_transactions import TransactionWaits
from pulsar_on_kafka.broker.subscriptions.records.read_committed import ReadCommitted
from pulsar_on_kafka.broker.subscriptions.records.reader_filter import Readable, ReaderChunks
from pulsar_on_kafka.broker.subscriptions.records.reader_thread import Tail
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition, MetRecord, look_over
from pulsar_on_kafka.broker.transactions.records.views import BufferAccess

_log = logging.getLogger(__name__)

_FENCES_S: Final = 10.0
_REREAD_TIMEOUT_S: Final = 10.0
_LOG_END_S: Final = 2.0


class Readers:
    """Thread-safe."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._tails: dict[Tail, str] = {}
        """The tails, each with the name of its topic."""

    def open_tail(
        self,
        topic: Topic,
        starts: Mapping[int, int],
        endpoint: Endpoint,
        compacted: Mapping[int, CompactedRange] = MappingProxyType({}),
        begun: Mapping[int, Begun] = MappingProxyType({}),
    ) -> Tail:
        """Read these partitions from these offsets on, into `endpoint`; of what is `compacted` only what is left."""
        slots: dict[int, PartitionAcks] = {}

        def read_again(partition: int, offsets: Sequence[int]) -> dict[int, Any]:
            batches = self._services.fetcher.read_at(
                topic.kafka_topic, partition, offsets, Deadline.after(_REREAD_TIMEOUT_S)
            )
            return {record.offset(): record for batch in batches for record in batch}

        def log_end(partition: int) -> int:
            return self._services.fetcher.log_end(topic.kafka_topic, partition, Deadline.after(_LOG_END_S))

        readable = Readable(
            lambda p: self._services.producers.fences(topic, p, Deadline.after(_FENCES_S)),
            lambda p: ReadCommitted(data_partition(topic, p), self._services.clock.monotonic_ms),
            starts,
            ReaderChunks(endpoint.name, read_again, log_end, self._services.clock.monotonic),
            compacted,
        )
        config = self._services.settings.tail(client_id=endpoint.name, fetch_queue_kbytes=FETCH_QUEUE_KBYTES)
        tail = Tail(
            topic.kafka_topic,
            config,
            lambda p: slot_of(topic, p, slots),
            starts,
            endpoint,
            readable,
            TransactionWaits(
                f"reader={endpoint.name} topic={topic.name}", buffer_access(self._services, topic), self._services.clock
            ),
            IncarnationCheck(self._services.incarnations, topic),
            begun,
        )
        tail.start()
        self._tails[tail] = str(topic.name)
        self._services.meters.reader(str(topic.name)).opened(tail)
        warn_when_files_run_out()
        return tail

    def close_tail(self, tail: Tail, deadline: Deadline) -> None:
        """End it; a second call does nothing."""
        topic = self._tails.pop(tail, None)
        if topic is not None:
            self._services.meters.reader(topic).closed(tail)
        tail.stop(deadline)

    def tails(self) -> list[tuple[str, Tail]]:
        return [(topic, tail) for tail, topic in self._tails.copy().items()]

    def close(self, deadline: Deadline) -> None:
        for tail in list(self._tails):
            try:
                self.close_tail(tail, deadline)
            except errors.LayerError as failure:
                _log.warning("cluster=%s closing: %s", self._services.cluster_id, failure)


def compacted_ranges(
    services: Services, topic: Topic, partitions: Iterable[int], deadline: Deadline
) -> dict[int, CompactedRange]:
    """The messages of these partitions that a compacted read keeps; reads the compacted ranges."""
    ranges: dict[int, CompactedRange] = {}
    removes = bool(topic.compacted_to) and _empty_removes_key(services, topic, deadline)
    for partition in partitions:
        end = topic.compacted_to.get(partition, 0)
        low = services.fetcher.log_start(topic.kafka_topic, partition, deadline)
        if end <= low:
            continue
        fences = Fences(services.producers.fences(topic, partition, deadline))
        ranges[partition] = folded = CompactedRange(end, fences, empty_removes_key=removes)
        committed = ReadCommitted(data_partition(topic, partition), services.clock.monotonic_ms)
        for batch in services.fetcher.read(topic.kafka_topic, partition, low, end, deadline):
            folded.fold(_committed(batch, committed, buffer_access(services, topic), deadline))
            if committed.waits_from is not None:
                folded.end = committed.waits_from
                break
        folded.seal()
    return ranges


def _empty_removes_key(services: Services, topic: Topic, deadline: Deadline) -> bool:
    return bool(applied(COMPACTION_EMPTY_PAYLOADS, *services.policies_when_opened(topic, deadline)) == PULSAR_5)


def _committed(batch: list[Any], committed: ReadCommitted, access: BufferAccess, deadline: Deadline) -> list[Any]:
    """The records of a run up to the first one of an open transaction, without those of aborted ones."""
    looked = look_over(range(len(batch)), batch)
    if not looked.met:
        return batch
    offsets = [record.offset() for record in batch]
    passed = committed.take(offsets, batch, look_over(offsets, batch), offsets[-1] + 1)
    if committed.waits_from is None:
        return passed.records
    access.query(lambda entries: committed.learn(committed.unsettled(), entries), deadline)
    return passed.records + committed.release().records


def data_partition(topic: Topic, partition: int) -> DataPartition:
    """The partition as transactions know it."""
    return DataPartition(str(topic.name), partition, topic.layout.incarnation)


def buffer_access(services: Services, topic: Topic) -> BufferAccess:
    return BufferAccess(str(topic.name), services.transaction_views, services.log, services.hold_up)


def transactional_records(
    services: Services, topic: Topic, partition: int, start: int, end: int, deadline: Deadline
) -> Iterator[MetRecord]:
    """The records in [start, end) in order, read on demand."""
    for batch in services.fetcher.read(topic.kafka_topic, partition, start, end, deadline):
        yield from look_over([record.offset() for record in batch], batch).met


def slot_of(topic: Topic, partition: int, slots: dict[int, PartitionAcks]) -> PartitionAcks:
    """The slot of a partition out of `slots`, put in there when it is new."""
    found = slots.get(partition)
    if found is None:
        name = str(topic.name.with_partition(partition)) if topic.partitioned else str(topic.name)
        made = PartitionAcks(name, partition, topic.partition_field(partition), topic.layout)
        found = slots.setdefault(partition, made)  # two threads at once get the same one
    return found
