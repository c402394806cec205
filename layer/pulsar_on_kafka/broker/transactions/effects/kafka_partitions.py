"""Data topics as a coordinator sees them: where they end, which life they live, and the markers that it appends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from pyroaring import BitMap64

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.base.errors import LayerError, NoSuchTopic, NotAuthorized, StoreError
from pulsar_on_kafka.broker.metadata.topics import Topic, Topics
from pulsar_on_kafka.broker.transactions.buffer.model import MetRecord
from pulsar_on_kafka.broker.transactions.buffer.verify import Rebuilt, rebuild
from pulsar_on_kafka.broker.transactions.effects.outcome_writer import MAX_LATE_MS, PartitionScan
from pulsar_on_kafka.broker.transactions.records.outcomes import PartitionsFailed
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.kafka.appends import Group, NewRecord, SomeNotAppended, append_apart
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka.kafka.reading.fetcher import Fetcher
from pulsar_on_kafka.kafka.reading.range_reader import OffsetRange, RangeReader
from pulsar_on_kafka.kafka.records import KafkaRecord, headers_of
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.record_headers import MarkerType
from pulsar_on_kafka_mapping.records.transaction_headers import MARKER_KEY, in_transaction, marker_headers
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TopicPartition

_log: Final = logging.getLogger(__name__)

_BEFORE_MAX: Final = "message.timestamp.before.max.ms"
_TIMESTAMP_TYPE: Final = "message.timestamp.type"
_LOOKED_AT_FOR_S: Final = 1.0
_ENDS_THERE_FOR_S: Final = 0.03
"""The lifetime of a known end as a lower bound; an abort reads records appended meanwhile in vain."""
_FORGOTTEN_AFTER_S: Final = 600.0
_ENDS_S: Final = 2.0
"""Time-out for the ends of many unresponsive partitions; half the deadline at most."""
_FETCHED_APART: Final = 4
"""Up to this many partitions are scanned in sequence: the reader that scans more in parallel is an additional
consumer."""


@dataclass(slots=True)
class _Life:
    """One life of a topic, as it was last seen. `ends`: by partition the highest end seen, and when; it never falls
    within one life."""

    topic: Topic
    looked_s: float
    ends: dict[int, tuple[int, float]] = field(default_factory=dict)
    prepared: bool = False

    def end_of(self, partition: int) -> int:
        """The highest one seen; 0 where none was."""
        return self.ends.get(partition, (0, 0.0))[0]


class KafkaDataPartitions:
    """Implements `DataPartitions`. Thread-safe; one for all coordinators of a process.

    The incarnation of a topic in use is looked up once a second, and again when it seems deleted, or when a partition
    ends before its known end. Memory: some numbers for each partition used in the last ten minutes, the bitmaps that
    `find` and `look_through` give, and the fetch queue of a reader once many partitions were looked through together.
    """

    def __init__(
        self,
        topics: Topics,
        admin: KafkaAdmin,
        fetcher: Fetcher,
        producer: Callable[[], KafkaProducer],
        clock: Clock,
        reader_config: dict[str, Any],
    ) -> None:
        """`producer` gives the one to append markers with now; `reader_config` is for a reader of many partitions."""
        self._topics = topics
        self._admin = admin
        self._fetcher = fetcher
        self._producer = producer
        self._clock = clock
        self._lock = threading.Lock()
        self._lives: dict[str, _Life] = {}
        self._reading = threading.Lock()
        self._range_settings = reader_config
        self._reader: RangeReader | None = None

    def incarnation(self, topic: str, deadline: Deadline) -> int | None:
        life = self._life(topic, deadline)
        return None if life is None else life.topic.layout.incarnation

    def _life(self, topic: str, deadline: Deadline) -> _Life | None:
        now_s = self._clock.monotonic()
        with self._lock:
            known = self._lives.get(topic)
        if known is not None and now_s - known.looked_s < _LOOKED_AT_FOR_S:
            return known
        found = self._topics.find(TopicName.parse(topic), deadline)
        with self._lock:
            if found is None:
                self._lives.pop(topic, None)
                return None
            life = _Life(found, now_s)
            if known is not None and known.topic.layout.incarnation == found.layout.incarnation:
                life.ends, life.prepared = known.ends, known.prepared
            self._lives[topic] = life
            for name in [n for n, each in self._lives.items() if now_s - each.looked_s > _FORGOTTEN_AFTER_S]:
                del self._lives[name]
            return life

    def _opened(self, topic: str, deadline: Deadline) -> _Life:
        life = self._life(topic, deadline)
        if life is None:
            raise NoSuchTopic(f"topic {topic} does not exist")
        return life

    @contextmanager
    def _forgetting_on_failure(self, topic: str) -> Iterator[None]:
        """Forgets the topic on a failure, because it may be another incarnation: the next call queries the cluster."""
        try:
            yield
        except LayerError:
            with self._lock:
                self._lives.pop(topic, None)
            raise

    def prepare(self, topic: str, deadline: Deadline) -> None:
        """Lifts the bound on the age of records that earlier versions set at a topic's first transaction
        (`message.timestamp.before.max.ms`): it refused what any producer sent after an outage.

        Once in each incarnation of the topic; a topic that is only bound to a Pulsar name keeps its configuration.
        """
        life = self._opened(topic, deadline)
        if life.prepared:
            return
        if not life.topic.bound:
            try:
                self._lift_bound(life.topic.kafka_topic, deadline)
            except NotAuthorized as missing:
                _log.info("topic=%s whether it refuses old records is not known: %s", topic, missing)
        life.prepared = True

    def _lift_bound(self, kafka_topic: str, deadline: Deadline) -> None:
        if self._admin.topic_configs(kafka_topic, deadline).get(_BEFORE_MAX) == str(MAX_LATE_MS):
            self._admin.reset_topic_config(kafka_topic, _BEFORE_MAX, deadline)

    def bounds_lateness(self, topic: str, deadline: Deadline) -> bool:
        """Whether the brokers reject records of the topic that are older than `MAX_LATE_MS`, by the records' own
        times."""
        configs = self._admin.topic_configs(self._opened(topic, deadline).topic.kafka_topic, deadline)
        refused_ms = configs.get(_BEFORE_MAX)
        return (
            refused_ms is not None
            and int(refused_ms) <= MAX_LATE_MS
            and configs.get(_TIMESTAMP_TYPE, "CreateTime") == "CreateTime"
        )

    def end_offset(self, topic: str, partition: int, deadline: Deadline) -> int:
        life = self._opened(topic, deadline)
        with self._forgetting_on_failure(topic):
            before = life.end_of(partition)
            end = self._fetcher.log_end(life.topic.kafka_topic, partition, deadline)
            self._note_end(life, partition, end, before)
        return end

    def _note_end(self, life: _Life, partition: int, end: int, before: int) -> None:
        """Updates the known end. `before`: the end known at the time of the request; another thread may have raised it
        since."""
        if end < before:
            where = f"{life.topic.name}-{partition}"
            raise StoreError(f"{where} ends at {end}, it ended at {before}: was it made anew?")
        self._ended_at(life, partition, end)

    def _ended_at(self, life: _Life, partition: int, end: int) -> None:
        """The current end; lower than `end` when another thread has seen more since, or when fewer records are left."""
        with self._lock:
            if end >= life.end_of(partition):
                life.ends[partition] = end, self._clock.monotonic()

    def end_offsets(self, partitions: Collection[TopicPartition], deadline: Deadline) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        if len(partitions) == 1:
            ((topic, partition),) = partitions
            with self._left_out(TopicPartition(topic, partition)):
                found[TopicPartition(topic, partition)] = self.end_offset(topic, partition, deadline)
            return found
        lives = {topic: self._opened(topic, deadline) for topic in dict.fromkeys(topic for topic, _ in partitions)}
        places = {(lives[each.topic].topic.kafka_topic, each.partition): each for each in partitions}
        patience = Deadline.after(min(_ENDS_S, deadline.remaining_s() / 2))

        def all_answered() -> bool:
            requested = [where for where, each in places.items() if each not in found]
            before = {where: lives[places[where].topic].end_of(places[where].partition) for where in requested}
            for where, end in self._admin.ends_now(requested, patience).items():
                each = places[where]
                with self._left_out(each), self._forgetting_on_failure(each.topic):
                    self._note_end(lives[each.topic], each.partition, end, before[where])
                    found[each] = end
            return len(found) == len(places)

        wait_until(all_answered, patience)  # what was made just now is known to one broker after the other
        return found

    @contextmanager
    def _left_out(self, each: TopicPartition) -> Iterator[None]:
        try:
            yield
        except (StoreError, NoSuchTopic) as failure:  # the next caller finds that a topic was deleted
            _log.info("%s-%d end offset is requested later: %s", *each, failure)

    def known_ends(self, partitions: Collection[TopicPartition], deadline: Deadline) -> dict[TopicPartition, int]:
        now_s = self._clock.monotonic()
        found: dict[TopicPartition, int] = {}
        for each in partitions:
            end, seen_s = self._opened(each.topic, deadline).ends.get(each.partition, (0, -inf))
            if now_s - seen_s < _ENDS_THERE_FOR_S:
                found[each] = end
        requested = [each for each in partitions if each not in found]
        return found | self.end_offsets(requested, deadline) if requested else found

    def append_markers(
        self, markers: Mapping[TopicPartition, Sequence[tuple[TxnId, bool]]], deadline: Deadline
    ) -> None:
        where = list(markers)
        groups: list[Group] = []
        lives: list[_Life] = []
        for (topic, partition), ended in markers.items():
            life = self._opened(topic, deadline)
            records = [
                NewRecord(MARKER_KEY, None, marker_headers(txn, committed=committed)) for txn, committed in ended
            ]
            groups.append((life.topic.kafka_topic, partition, records))
            lives.append(life)
        with ExitStack() as forgetting:
            for topic in dict.fromkeys(topic for topic, _ in markers):
                forgetting.enter_context(self._forgetting_on_failure(topic))
            try:
                written = append_apart(self._producer, groups, deadline)
            except SomeNotAppended as failure:
                raise PartitionsFailed([where[number] for number in failure.groups], str(failure)) from failure
            except StoreError as failure:
                raise PartitionsFailed(where, str(failure)) from failure
        for life, (_, partition), offsets in zip(lives, where, written, strict=True):
            self._ended_at(life, partition, max(offsets) + 1)

    def look_through(
        self, looks: Sequence[PartitionScan], deadline: Deadline
    ) -> dict[TopicPartition, Mapping[TxnId, Rebuilt]]:
        if len(looks) > _FETCHED_APART:
            return self._look_through_together(looks, deadline)
        found: dict[TopicPartition, Mapping[TxnId, Rebuilt]] = {}
        for look in looks:
            try:
                met = self._in_transactions(*look.where, look.start, look.end, look.txns, deadline)
                found[look.where] = rebuild(met)
            except (StoreError, NoSuchTopic) as failure:
                _log.info("%s-%d is looked through later: %s", *look.where, failure)
        return found

    def _look_through_together(
        self, looks: Sequence[PartitionScan], deadline: Deadline
    ) -> dict[TopicPartition, Mapping[TxnId, Rebuilt]]:
        """Scans with requests for many partitions at once."""
        topics = {look.where.topic: self._opened(look.where.topic, deadline).topic.kafka_topic for look in looks}
        places = [(topics[look.where.topic], look.where.partition) for look in looks]
        starts = {where: start for where, (start, _) in self._admin.log_ranges(places, deadline).items()}
        ranges = [
            OffsetRange(*where, max(look.start, starts.get(where, 0)), look.end)
            for where, look in zip(places, looks, strict=True)
        ]
        found: list[dict[TxnId, Rebuilt]] = [{} for _ in looks]

        def take(number: int, records: list[KafkaRecord]) -> None:
            rebuild(_met(records, looks[number].txns), found[number])

        with self._reading:
            if self._reader is None:
                self._reader = RangeReader(self._range_settings)
            failed = self._reader.read(ranges, take, deadline)
        for number, failure in failed.items():
            _log.info("%s-%d is looked through later: %s", *looks[number].where, failure)
        return {look.where: found[number] for number, look in enumerate(looks) if number not in failed}

    def close(self) -> None:
        """End what reads many partitions at once; a second call does nothing."""
        with self._reading:
            if self._reader is not None:
                self._reader.close()
                self._reader = None

    def find(
        self, topic: str, partition: int, start: int, end: int, txns: Set[TxnId], deadline: Deadline
    ) -> Mapping[TxnId, BitMap64]:
        found = rebuild(self._in_transactions(topic, partition, start, end, txns, deadline))
        return {txn: of_it.offsets | of_it.late for txn, of_it in found.items()}

    def _in_transactions(
        self, topic: str, partition: int, start: int, end: int, txns: Set[TxnId], deadline: Deadline
    ) -> Iterator[MetRecord]:
        kafka_topic = self._opened(topic, deadline).topic.kafka_topic
        with self._forgetting_on_failure(topic):
            low = self._fetcher.log_start(kafka_topic, partition, deadline)
            for batch in self._fetcher.read(kafka_topic, partition, max(start, low), end, deadline):
                yield from _met(batch, txns)


def _met(records: Iterable[KafkaRecord], txns: Set[TxnId]) -> Iterator[MetRecord]:
    for record in records:
        headers = headers_of(record)
        if headers:
            try:
                named = in_transaction(headers)
            except CorruptRecord:  # no reader takes it for one of these
                continue
            if named is not None and named.txn in txns:
                ended = None if named.ended is None else named.ended is MarkerType.TXN_COMMIT
                yield MetRecord(record.offset() or 0, named.txn, ended)
