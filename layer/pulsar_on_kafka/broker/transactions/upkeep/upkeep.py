"""Upkeep keeps the state of transactions small: it tombstones entries that are no longer needed.

Coordinators and the owners of cursors clean their own records. This module cleans the rest: buffer entries whose
records left the log (`broker/transactions/buffer/cleaning.py`), pending acks of deleted topics and subscriptions or
behind the last reading of a cursor's owner (`broker/transactions/pending_acks/log.py`), and low-water marks of ended
sessions.

Partition i of both state topics is cleaned by the process that serves coordinator i, so ordinarily by one. Two
processes at once do no harm: a tombstone only deletes a key, and a key named here is never written again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.base.worker import Retry, Worker
from pulsar_on_kafka.broker.cursor.identity import CursorName
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.metadata.topics import LastLife, Topic
from pulsar_on_kafka.broker.transactions.buffer.cleaning import BufferCleaning
from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition
from pulsar_on_kafka.broker.transactions.pending_acks.log import PendingAckLog, left_over
from pulsar_on_kafka.broker.transactions.records.views import TransactionViews
from pulsar_on_kafka.broker.transactions.upkeep.sealing import Sealing
from pulsar_on_kafka.statelog.api import StateLog, tombstone
from pulsar_on_kafka.statelog.view import LogFold
from pulsar_on_kafka.statelog.views import LogViews
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.state_keys import encode_key
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_BUFFER_SNAPSHOT, TRANSACTION_PENDING_ACK, StateTopic
from pulsar_on_kafka_mapping.state.transactions.pending_acks import CursorIncarnation

_log: Final = logging.getLogger(__name__)
F = TypeVar("F", bound=LogFold)
_MAX_TOMBSTONES: Final = 20_000
_MARK_KEPT_MS: Final = 86_400_000
_TOPIC_S: Final = 10.0
FIRST_S: Final = 60.0
EVERY_S: Final = 300.0
_ROUND_S: Final = 60.0
WARN_AT: Final = 100_000
"""Records of one partition of a state topic; the warning repeats each time the number doubles. Every process with
transactions keeps these in memory, some 500 bytes each."""


_WHAT_GROWS: Final = {
    TRANSACTION_BUFFER_SNAPSHOT: "open and aborted transactions whose messages are still kept: retention lets them go",
    TRANSACTION_PENDING_ACK: (
        "acknowledgements of transactions that their subscriptions have not taken in: have they consumers?"
    ),
}


class UpkeepTopics(Protocol):
    """The call of `metadata.topics.UpkeepTopics` that upkeep uses."""

    def last_life(self, name: TopicName, deadline: Deadline) -> LastLife | None: ...


class UpkeepSubscriptions(Protocol):
    """The call of `metadata.subscriptions.registry.UpkeepSubscriptions` that upkeep uses."""

    def find(self, topic: Topic, name: str, deadline: Deadline) -> Subscription | None: ...


class LogRanges(Protocol):
    """The calls of `KafkaAdmin` that upkeep uses."""

    def start_offsets(self, topic: str, partitions: Sequence[int], deadline: Deadline) -> dict[int, int]: ...

    def end_offsets(self, topic: str, partitions: Sequence[int], deadline: Deadline) -> dict[int, int]: ...


class _Cursor(NamedTuple):
    """Records of a cursor that speak of lives that are over."""

    name: CursorName
    dead: list[CursorIncarnation]


class Upkeep:
    """The cleaner, for one thread. Memory: a number for each aborted transaction's entry that the log start has
    passed."""

    def __init__(
        self,
        log: StateLog,
        views: TransactionViews,
        topics: UpkeepTopics,
        subscriptions: UpkeepSubscriptions,
        log_ranges: LogRanges,
        clock: Clock,
    ) -> None:
        self._log = log
        self._views = views
        self._topics = topics
        self._subscriptions = subscriptions
        self._log_ranges = log_ranges
        self._clock = clock
        self._cleanings: dict[DataPartition, BufferCleaning] = {}
        self._next_topic: dict[tuple[str, int], str] = {}
        self._reported: set[str] = set()
        self.sizes = StateSizes()

    def run(self, partitions: Collection[int], deadline: Deadline) -> int:
        """Cleans these partitions of both state topics; returns the number of tombstones.

        At most 20,000 at once, and nothing begins after the deadline: the next call continues at the same place. A
        topic that cannot be queried is left for the next call, and logged once.

        Raises:
            LayerError: a state topic cannot be read or written.
        """
        self.sizes.keep(partitions)
        done = 0
        for partition in sorted(partitions):
            for clean in (self._buffers, self._pending_acks):
                if deadline.passed() or done >= _MAX_TOMBSTONES:
                    return done
                done += clean(partition, _MAX_TOMBSTONES - done, deadline)
        return done

    def _buffers(self, partition: int, most: int, deadline: Deadline) -> int:
        now_ms = self._clock.now_ms()

        def look(entries: BufferEntries) -> tuple[dict[str, list[int]], list[bytes]]:
            self.sizes.note(TRANSACTION_BUFFER_SNAPSHOT, partition, entries.count())
            marks = entries.superseded_low_waters(now_ms - _MARK_KEPT_MS)
            return _by_topic(entries.places()), [encode_key(key) for key in marks]

        places, superseded = self._views.buffers.query_partition(partition, look, deadline)
        done = tombstone(self._log, TRANSACTION_BUFFER_SNAPSHOT, partition, superseded[:most], deadline)
        known = {(topic, number) for topic, numbers in places.items() for number in numbers}
        here = TRANSACTION_BUFFER_SNAPSHOT.partition_for
        for where in [each for each in self._cleanings if here(each.topic) == partition]:
            if (where.topic, where.partition) not in known:
                del self._cleanings[where]

        def due_of(topic: str, until: Deadline) -> Callable[[BufferEntries], list[bytes]]:
            return partial(self._due, ranges=self._ranges(topic, places[topic], until), now_ms=now_ms)

        return done + self._each_topic(self._views.buffers, partition, places, due_of, most - done, deadline)

    def _ranges(
        self, topic: str, partitions: Sequence[int], deadline: Deadline
    ) -> dict[DataPartition, tuple[int, int] | None]:
        """The log start and end of these partitions; None for deleted ones."""
        life = self._topics.last_life(TopicName.parse(topic), deadline)
        if life is None:
            return {}
        there = [] if life.topic is None else [p for p in partitions if p < life.topic.partitions]
        starts: dict[int, int] = {}
        ends: dict[int, int] = {}
        if life.topic is not None and there:
            starts = self._log_ranges.start_offsets(life.topic.kafka_topic, there, deadline)
            ends = self._log_ranges.end_offsets(life.topic.kafka_topic, there, deadline)
        return {
            DataPartition(topic, p, life.incarnation): (starts.get(p, 0), ends.get(p, 0)) if p in there else None
            for p in partitions
        }

    def _due(
        self, entries: BufferEntries, ranges: dict[DataPartition, tuple[int, int] | None], now_ms: int
    ) -> list[bytes]:
        found: list[bytes] = []
        for where, log in ranges.items():
            of_partition = self._cleanings.setdefault(where, BufferCleaning(where))
            start, end = (None, 0) if log is None else log
            found += [encode_key(key) for key in of_partition.due(entries, start, now_ms, end)]
        return found

    def _pending_acks(self, partition: int, most: int, deadline: Deadline) -> int:
        now_ms = self._clock.now_ms()

        def look(log: PendingAckLog) -> dict[str, dict[CursorName, list[CursorIncarnation]]]:
            self.sizes.note(TRANSACTION_PENDING_ACK, partition, log.count())
            found: dict[str, dict[CursorName, list[CursorIncarnation]]] = {}
            for name, acks in log.cursors().items():
                found.setdefault(name.topic, {})[name] = list(acks.lives)
            return found

        places = self._views.pending_acks.query_partition(partition, look, deadline)

        def due_of(topic: str, until: Deadline) -> Callable[[PendingAckLog], list[bytes]]:
            cursors = self._over(topic, places[topic], until)
            return lambda log: [key for n, dead in cursors for key in left_over(n, log.cursor(n), dead, now_ms)]

        return self._each_topic(self._views.pending_acks, partition, places, due_of, most, deadline)

    def _over(
        self, topic: str, seen: Mapping[CursorName, list[CursorIncarnation]], deadline: Deadline
    ) -> list[_Cursor]:
        life = self._topics.last_life(TopicName.parse(topic), deadline)
        if life is None:
            return []
        found: list[_Cursor] = []
        for name, lives in seen.items():
            alive: CursorIncarnation | None = None
            if life.topic is not None:
                subscription = self._subscriptions.find(life.topic, name.subscription, deadline)
                if subscription is not None and name.partition in subscription.served:
                    alive = CursorIncarnation(life.incarnation, subscription.life(name.partition))
            found.append(_Cursor(name, [each for each in lives if each != alive]))
        return found

    def _each_topic(
        self,
        views: LogViews[F],
        partition: int,
        topics: Iterable[str],
        due_of: Callable[[str, Deadline], Callable[[F], list[bytes]]],
        most: int,
        deadline: Deadline,
    ) -> int:
        """Tombstone what is due of each topic, beginning with the one at which the last call ended."""
        done = 0
        first = self._next_topic.pop((views.topic.name, partition), "")
        for topic in sorted(topics, key=lambda topic: (topic < first, topic)):
            if deadline.passed() or done >= most:
                self._next_topic[views.topic.name, partition] = topic
                break
            try:
                question = due_of(topic, deadline.at_most(_TOPIC_S))
            except LayerError as failure:
                level = logging.DEBUG if topic in self._reported else logging.WARNING
                self._reported.add(topic)
                _log.log(level, "topic=%s what is left of its transactions cannot be cleaned now: %s", topic, failure)
                continue
            keys = views.query_partition(partition, question, deadline)
            done += tombstone(self._log, views.topic, partition, keys[: most - done], deadline)
        return done


def _by_topic(places: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in places:
        found.setdefault(topic, []).append(partition)
    return found


class StateSizes:
    """Sizes of the state of transactions in the partitions that this process cleans; logs a warning when one is large.
    Thread-safe. Memory: two numbers for each partition of two state topics."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sizes: dict[tuple[StateTopic, int], int] = {}
        self._warned: dict[tuple[StateTopic, int], int] = {}

    def note(self, topic: StateTopic, partition: int, records: int) -> None:
        """Records the number of entries, or of acks and ENDs, in one partition."""
        with self._lock:
            self._sizes[topic, partition] = records
            reported = self._warned.get((topic, partition), WARN_AT // 2)
            if records < WARN_AT:
                self._warned.pop((topic, partition), None)
                return
            if records < 2 * reported:
                return
            self._warned[topic, partition] = records
        _log.warning("partition=%s-%d has %d records of %s", topic.name, partition, records, _WHAT_GROWS[topic])

    def keep(self, partitions: Collection[int]) -> None:
        """Forget the others: another process cleans them."""
        with self._lock:
            self._sizes = {where: size for where, size in self._sizes.items() if where[1] in partitions}

    def totals(self) -> tuple[int, int]:
        """Sums over buffers, and over pending acks, in all partitions that are cleaned here."""
        with self._lock:
            return self._total(TRANSACTION_BUFFER_SNAPSHOT), self._total(TRANSACTION_PENDING_ACK)

    def _total(self, topic: StateTopic) -> int:
        return sum(size for (of, _), size in self._sizes.items() if of is topic)


class UpkeepRounds(Worker):
    """The thread that seals and cleans for the coordinators that this process serves. A round a minute after it is
    made, then one every five minutes; nothing is read as long as nothing is served."""

    def __init__(
        self,
        upkeep: Upkeep,
        sealing: Sealing,
        served: Callable[[], Collection[int]],
        *,
        first_s: float = FIRST_S,
        every_s: float = EVERY_S,
    ) -> None:
        self._upkeep = upkeep
        self._sealing = sealing
        self._served = served
        self._every_s = every_s
        failed = "state of transactions could not be cleaned"
        super().__init__("pok-transaction-upkeep", self._round, failed, first_s=first_s, retry=Retry(every_s))
        self.start()

    def _round(self) -> float:
        with self.turns.one():
            sealed = self._sealing.run(self._served(), Deadline.after(_ROUND_S))
            done = self._upkeep.run(self._served(), Deadline.after(_ROUND_S))
        level = logging.INFO if done or sealed else logging.DEBUG
        _log.log(level, "state of transactions: %d entries sealed, %d records cleaned", sealed, done)
        return self._every_s
