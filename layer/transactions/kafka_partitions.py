"""Data topics as a coordinator sees them: where they end, which life they live, and the markers that it appends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Final

from pyroaring import BitMap64

from layer.clock import Clock
from layer.deadline import Deadline
from layer.errors import LayerError, NoSuchTopic, NotAuthorized, StoreError
from layer.kafka.admin import KafkaAdmin
from layer.kafka.appends import Group, NewRecord, SomeNotAppended, append_apart
from layer.kafka.fetcher import Fetcher
from layer.kafka.producer import KafkaProducer
from layer.kafka.records import headers_of
from layer.metadata.topics import Topic, Topics
from layer.transactions.logged_outcomes import LATE_MOST_MS
from layer.transactions.outcomes import PartitionsFailed
from mapping.errors import CorruptRecord
from mapping.state_records.transaction_log import TopicPartition
from mapping.topic_name import TopicName
from mapping.transaction_headers import MARKER_KEY, InTransaction, in_transaction, marker_headers
from mapping.txn_id import TxnId

_log: Final = logging.getLogger(__name__)

_BEFORE_MAX: Final = "message.timestamp.before.max.ms"
_TIMESTAMP_TYPE: Final = "message.timestamp.type"
_LOOKED_AT_FOR_S: Final = 1.0
_ENDS_THERE_FOR_S: Final = 0.03
"""How long an end is good enough for a lower bound; what came meanwhile is read in vain at an abort."""
_FORGOTTEN_AFTER_S: Final = 600.0


@dataclass(slots=True)
class _Life:
    """What is known of a topic. `ends`: by partition the highest end seen, and when; it never falls within one life."""

    topic: Topic
    looked_s: float
    ends: dict[int, tuple[int, float]] = field(default_factory=dict)
    prepared: bool = False


class KafkaDataPartitions:
    """Implements `DataPartitions`. Thread-safe; one for all coordinators of a process.

    Which life a topic lives is looked up once a second while it is asked about, and anew when it seems gone, or when a
    partition ends before where it ended. Memory: some numbers for each partition asked about in the last ten minutes,
    and the bitmaps that `find` gives.
    """

    def __init__(
        self, topics: Topics, admin: KafkaAdmin, fetcher: Fetcher, producer: Callable[[], KafkaProducer], clock: Clock
    ) -> None:
        """`producer` gives the one to append markers with now."""
        self._topics = topics
        self._admin = admin
        self._fetcher = fetcher
        self._producer = producer
        self._clock = clock
        self._lock = threading.Lock()
        self._lives: dict[str, _Life] = {}

    # Lives --------------------------------------------------------------------------------------------------------

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
    def _looking_again(self, topic: str) -> Iterator[None]:
        """When the topic may be another one than it was: who asks next, asks the cluster."""
        try:
            yield
        except LayerError:
            with self._lock:
                self._lives.pop(topic, None)
            raise

    def prepare(self, topic: str, deadline: Deadline) -> None:
        """Bounds how late records of transactions may come: `message.timestamp.before.max.ms` of the topic.

        Once in each of its lives; a topic that is only bound to a name of ours keeps its configuration.
        """
        life = self._opened(topic, deadline)
        if life.prepared:
            return
        if not life.topic.bound:
            try:
                self._bound_lateness(life.topic.kafka_topic, deadline)
            except NotAuthorized as missing:
                _log.warning("topic=%s late records of transactions will be told by header: %s", topic, missing)
        life.prepared = True

    def _bound_lateness(self, kafka_topic: str, deadline: Deadline) -> None:
        now = self._admin.topic_configs(kafka_topic, deadline).get(_BEFORE_MAX)
        if now is None or int(now) > LATE_MOST_MS:
            self._admin.set_topic_configs(kafka_topic, {_BEFORE_MAX: str(LATE_MOST_MS)}, deadline)

    def bounds_lateness(self, topic: str, deadline: Deadline) -> bool:
        """Whether the brokers refuse records of the topic that are older than `LATE_MOST_MS`, by their own times."""
        configs = self._admin.topic_configs(self._opened(topic, deadline).topic.kafka_topic, deadline)
        refused_ms = configs.get(_BEFORE_MAX)
        return (
            refused_ms is not None
            and int(refused_ms) <= LATE_MOST_MS
            and configs.get(_TIMESTAMP_TYPE, "CreateTime") == "CreateTime"
        )

    # Records ------------------------------------------------------------------------------------------------------

    def end_offset(self, topic: str, partition: int, deadline: Deadline) -> int:
        life = self._opened(topic, deadline)
        before, _ = life.ends.get(partition, (0, 0.0))
        with self._looking_again(topic):
            _, end = self._fetcher.watermarks(life.topic.kafka_topic, partition, deadline)
            if end < before:
                raise StoreError(f"{topic}-{partition} ends at {end}, it ended at {before}: was it made anew?")
        self._ended_at(life, partition, end)
        return end

    def _ended_at(self, life: _Life, partition: int, end: int) -> None:
        """Where it ended just now; less when another thread has seen more since, or when less is left."""
        with self._lock:
            if end >= life.ends.get(partition, (0, 0.0))[0]:
                life.ends[partition] = end, self._clock.monotonic()

    def known_end(self, topic: str, partition: int, deadline: Deadline) -> int:
        end, seen_s = self._opened(topic, deadline).ends.get(partition, (0, -inf))
        if self._clock.monotonic() - seen_s < _ENDS_THERE_FOR_S:
            return end
        return self.end_offset(topic, partition, deadline)

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
        with ExitStack() as looking_again:
            for topic in dict.fromkeys(topic for topic, _ in markers):
                looking_again.enter_context(self._looking_again(topic))
            try:
                written = append_apart(self._producer, groups, deadline)
            except SomeNotAppended as failure:
                raise PartitionsFailed([where[number] for number in failure.groups], str(failure)) from failure
            except StoreError as failure:
                raise PartitionsFailed(where, str(failure)) from failure
        for life, (_, partition), offsets in zip(lives, where, written, strict=True):
            self._ended_at(life, partition, max(offsets) + 1)

    def ends(
        self, topic: str, partition: int, start: int, end: int, txns: Set[TxnId], deadline: Deadline
    ) -> Mapping[TxnId, BitMap64]:
        found: dict[TxnId, BitMap64] = {}
        for offset, named in self._in_transactions(topic, partition, start, end, txns, deadline):
            if named.ended is not None:
                found.setdefault(named.txn, BitMap64())
            elif named.txn in found:
                found[named.txn].add(offset)
        return found

    def find(
        self, topic: str, partition: int, start: int, end: int, txns: Set[TxnId], deadline: Deadline
    ) -> Mapping[TxnId, BitMap64]:
        found: dict[TxnId, BitMap64] = {}
        for offset, named in self._in_transactions(topic, partition, start, end, txns, deadline):
            if named.ended is None:
                found.setdefault(named.txn, BitMap64()).add(offset)
        return found

    def _in_transactions(
        self, topic: str, partition: int, start: int, end: int, txns: Set[TxnId], deadline: Deadline
    ) -> Iterator[tuple[int, InTransaction]]:
        """Offsets and headers of the messages and markers of these in [start, end)."""
        kafka_topic = self._opened(topic, deadline).topic.kafka_topic
        with self._looking_again(topic):
            low, _ = self._fetcher.watermarks(kafka_topic, partition, deadline)
            for batch in self._fetcher.read(kafka_topic, partition, max(start, low), end, deadline):
                for record in batch:
                    try:
                        named = in_transaction(headers_of(record))
                    except CorruptRecord:  # no reader takes it for one of these
                        continue
                    if named is not None and named.txn in txns:
                        yield record.offset() or 0, named
