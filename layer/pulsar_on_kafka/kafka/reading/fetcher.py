"""The fetcher reads ranges of partitions, for any thread: state topics, and records that are read again."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaException

from pulsar_on_kafka.base.deadline import Deadline, pause
from pulsar_on_kafka.base.errors import Closed, DeadlineExceeded, LayerError, NoLeaderNow, NoSuchTopic
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.kafka.errors import is_of_old_metadata
from pulsar_on_kafka.kafka.reading.assigned_reader import LOG_END, LOG_START, AssignedReader
from pulsar_on_kafka.kafka.reading.events import EndOfLog, Failed, KafkaPartition, Records
from pulsar_on_kafka.kafka.reading.fair_lock import FairLock
from pulsar_on_kafka.kafka.records import KafkaRecord

_log = logging.getLogger(__name__)

_BATCH: Final = 1000
_POLL_S: Final = 0.1
"""Questions wait so long for a reading for which nothing comes."""
READ_THROUGH: Final = 2000
"""A gap below so many records is read through."""
_STALE_S: Final = 2.0
_SILENT_S: Final = 5.0
"""Longer, because a new handle first connects: on a busy machine that alone takes a second."""
_JUST_MADE_S: Final = 2.0
_RETRY_INTERVAL_S: Final = 0.02


@dataclass(eq=False, slots=True)
class _Question:
    """A request for an offset of a partition, by `AssignedReader.offsets`."""

    where: KafkaPartition
    timestamp: int
    answer: int | LayerError | None = None
    alone: bool = False
    """Whether a request for several partitions failed, for an unknown one of them."""

    def is_answered(self) -> bool:
        return self.answer is not None


@dataclass(eq=False, slots=True)
class _Reading:
    where: KafkaPartition
    position: int
    """The offset of the next record."""
    end: int
    arrived: list[KafkaRecord] = field(default_factory=list)
    failure: LayerError | None = None

    def has_news(self) -> bool:
        return bool(self.arrived) or self.position >= self.end or self.failure is not None

    def is_read(self) -> bool:
        """The position is looked at first: who moves it hands the records over before."""
        return self.position >= self.end and not self.arrived


class Fetcher(OfOneProcess):
    """One librdkafka handle, which one thread uses at a time, in order of arrival, and for all threads: it requests the
    offsets for all of them with one request, and hands polled records to their readings.

    All readings are assigned at once. (Readings that took the assignment from each other also discarded each other's
    records under way: while a broker took half a second to reply, two of them were seen to do so until their
    deadlines.) Requests are not sent in parallel: a hundred threads that did so were seen to wake each other a thousand
    times a second, for half an hour (librdkafka 2.16).

    Memory: one librdkafka fetch queue, bounded by the `queued.max.messages.kbytes` of its configuration, and as much
    for each reading whose batch was not taken yet: records behind it are dropped, and fetched again.
    """

    def __init__(self, config: dict[str, Any], *, reserved: bool = True) -> None:
        """`reserved`: see `handles.opened`."""
        self._consumer = AssignedReader(config, "fetcher", reserved=reserved)
        self._lock = FairLock()
        self._closed = False
        self._renew = False
        """The handle is to be given up."""
        self._unknown_since_s: dict[str, float] = {}
        """The time, by topic, since when librdkafka does not know a requested partition, or its leader, or does not
        reply."""
        self._questions: list[_Question] = []
        self._readings: list[_Reading] = []
        """The waiting readings."""
        self._assigned: dict[KafkaPartition, _Reading] = {}
        """The assigned readings; only for the holder of the lock."""
        self._left: list[_Reading] = []
        """Abandoned readings that may still be assigned."""

    def open(self) -> None:
        """Make the librdkafka handle, which the first reading else does."""
        if self._lock.take_unless(lambda: False, Deadline.never()):
            with self._releasing():
                self._reader().open()

    def _reader(self) -> AssignedReader:
        if self._closed:
            raise Closed("the fetcher is closed")
        return self._consumer

    @contextmanager
    def _releasing(self) -> Iterator[None]:
        """Releases the lock; for its holder."""
        try:
            if self._renew:
                self._give_handle_up()
            yield
        finally:
            self._drop_what_was_left()
            while not self._lock.release(unless=lambda: bool(self._left)):
                self._drop_what_was_left()

    def _give_handle_up(self) -> None:
        self._renew = False
        self._assigned.clear()
        self._consumer.release()

    def close(self) -> None:
        if self._lock.take_unless(lambda: False, Deadline.never()):
            with self._releasing():
                self._give_handle_up()
                self._closed = True

    # Questions ----------------------------------------------------------------------------------------------------

    def log_start(self, topic: str, partition: int, deadline: Deadline) -> int:
        """The log start as the leader reports now.

        Brokers, and librdkafka, receive a new partition one after the other: an unknown partition, or one without a
        leader, is requested again for two seconds.

        Raises:
            NoSuchTopic, NoLeaderNow: the state lasted for two seconds, or until the deadline. Other StoreErrors at
                once.
        """
        return self._request_offset(topic, partition, LOG_START, deadline)

    def log_end(self, topic: str, partition: int, deadline: Deadline) -> int:
        """The high watermark as the leader reports now. Retries, and raises, like `log_start`."""
        return self._request_offset(topic, partition, LOG_END, deadline)

    def watermarks(self, topic: str, partition: int, deadline: Deadline) -> tuple[int, int]:
        """(log start, high watermark), from two requests in sequence."""
        return self.log_start(topic, partition, deadline), self.log_end(topic, partition, deadline)

    def offset_at_time(self, topic: str, partition: int, timestamp_ms: int, deadline: Deadline) -> int | None:
        """Offset of the first record whose timestamp is at or above `timestamp_ms`; None when there is none. Patient,
        and raises, as `log_start`."""
        found = self._request_offset(topic, partition, timestamp_ms, deadline)
        return None if found < 0 else found

    def _request_offset(self, topic: str, partition: int, timestamp: int, deadline: Deadline) -> int:
        where = KafkaPartition(topic, partition)
        patience = deadline.at_most(_JUST_MADE_S)
        while True:
            try:
                return self._request_once(where, timestamp, deadline)
            except (NoSuchTopic, NoLeaderNow):
                pause(min(_RETRY_INTERVAL_S, patience.remaining_s()))
                if patience.passed():
                    raise
            if self._lock.take_unless(lambda: False, patience):
                with self._releasing():
                    self._reader().learn(topic, max(0.001, patience.remaining_s()))

    def _request_once(self, where: KafkaPartition, timestamp: int, deadline: Deadline) -> int:
        began_s = time.monotonic()
        try:
            answer = self._answer(_Question(where, timestamp), deadline)
        except LayerError as failure:
            if is_of_old_metadata(failure):
                self._renew_when_stale(where.topic, began_s, _STALE_S)
            elif isinstance(failure, DeadlineExceeded):
                self._renew_when_stale(where.topic, began_s, _SILENT_S)
            raise
        self._unknown_since_s.pop(where.topic, None)
        return answer

    def _answer(self, question: _Question, deadline: Deadline) -> int:
        with self._lock.mutex:
            self._questions.append(question)
        try:
            while (answer := question.answer) is None:
                if self._lock.take_unless(question.is_answered, deadline):
                    with self._releasing():
                        self._send_requests(question, deadline)
                elif not question.is_answered():
                    raise DeadlineExceeded(
                        f"the deadline passed during other requests, before {question.where} was requested"
                    )
        finally:
            with self._lock.mutex:
                self._questions.remove(question)
        if isinstance(answer, LayerError):
            raise answer
        return answer

    def _send_requests(self, mine: _Question, deadline: Deadline) -> None:
        """Sends the requests of all waiting threads, one for each partition."""
        requested, together = {mine.where: mine.timestamp}, [mine]
        if not mine.alone:
            with self._lock.mutex:
                waiting = [each for each in self._questions if not each.alone and not each.is_answered()]
            together = [each for each in waiting if requested.setdefault(each.where, each.timestamp) == each.timestamp]
        time_s = max(0.001, min(deadline.remaining_s(), 3600))
        try:
            answers = self._reader().offsets(requested, time_s if len(together) == 1 else time_s / 2)
        except LayerError as failure:
            if len(together) == 1:
                mine.answer = failure
            for each in together:
                each.alone = True
            return
        for each in together:
            each.answer = answers[each.where]

    def _renew_when_stale(self, topic: str, since_s: float, after_s: float) -> None:
        """Continues with another handle once this one has not known a partition of `topic`, or its leader, or not
        replied, for `after_s`. `since_s`: the beginning of the call that got this result.

        A handle's metadata of a topic that was created, or grew, during its look-up may stay stale until it expires
        (seen with librdkafka 2.16: for more than a minute, while other processes had newer metadata).
        """
        now_s = time.monotonic()
        if now_s - self._unknown_since_s.setdefault(topic, since_s) < after_s:
            return
        self._unknown_since_s.clear()
        _log.info("librdkafka does not know %s or its leaders, or does not reply: retrying with a new handle", topic)
        self._renew = True

    # Reading ------------------------------------------------------------------------------------------------------

    def read(self, topic: str, partition: int, start: int, end: int, deadline: Deadline) -> Iterator[list[KafkaRecord]]:
        """Batches of the records in [start, end), in offset order; compacted offsets are simply missing.

        An unfinished iterator blocks no other. Two of the same partition take turns, batch by batch, and fetch their
        prefetched records again.

        Raises:
            OffsetOutOfRange: `start` lies below the log start.
            DeadlineExceeded: the position did not reach `end` in time.
        """
        reading = _Reading(KafkaPartition(topic, partition), start, end)
        began_s = time.monotonic()
        try:
            while not reading.is_read():
                if not self._wait_for_news(reading, deadline):
                    if reading.position == start:  # nothing came at all
                        self._renew_when_stale(topic, began_s, _SILENT_S)
                    deadline.check(f"{reading.where} to be read to {end}, now at {reading.position}")
                if reading.failure is not None:
                    raise reading.failure
                records, reading.arrived = reading.arrived, []
                if records:
                    yield records
        finally:
            self._leave(reading)

    def _wait_for_news(self, reading: _Reading, deadline: Deadline) -> bool:
        """False: the deadline passed first."""
        with self._lock.mutex:
            self._readings.append(reading)
        try:
            while not reading.has_news():
                if deadline.passed():
                    return False
                if self._lock.take_unless(reading.has_news, deadline):
                    with self._releasing():
                        self._poll(deadline)
            return True
        finally:
            with self._lock.mutex:
                self._readings.remove(reading)

    def _leave(self, reading: _Reading) -> None:
        """Also called when an iterator is finalized, which happens anywhere: then who has the lock sees to it."""
        with self._lock.mutex:
            self._left.append(reading)
        if self._lock.take_if_free():
            with self._releasing():
                pass

    def _drop_what_was_left(self) -> None:
        with self._lock.mutex:
            left, self._left = self._left, []
        self._drop([each for each in left if self._assigned.get(each.where) is each])

    def _drop(self, readings: Sequence[_Reading]) -> None:
        for each in readings:
            del self._assigned[each.where]
        try:
            if readings:
                self._consumer.drop([each.where for each in readings])
        except KafkaException as failure:
            _log.warning(
                "%s cannot be left, going on with a new handle: %s", [str(each.where) for each in readings], failure
            )
            self._renew = True

    def _poll(self, deadline: Deadline) -> None:
        """Polls, and hands the records to their readings."""
        self._assign_those_who_wait()
        full = [each for each in self._assigned.values() if each.arrived]
        came: dict[KafkaPartition, _Came] = {}
        for event in self._reader().poll(_BATCH, min(deadline.remaining_s(), _POLL_S)):
            where = event.where
            if not isinstance(event, Failed):
                if where in self._assigned:
                    came.setdefault(where, _Came()).apply(event)
            elif where.topic:  # else it is about a topic that was read before, perhaps
                for each in self._assigned.values():
                    if where in (each.where, KafkaPartition(each.where.topic, -1)):
                        each.failure = event.failure
        for where, received in came.items():
            reading = self._assigned[where]
            if reading not in full:
                received.hand_to(reading)
                self._unknown_since_s.pop(where.topic, None)
        over = [each for each in self._assigned.values() if each.position >= each.end or each.failure is not None]
        self._drop([*over, *(each for each in full if each.where in came and each not in over)])

    def _assign_those_who_wait(self) -> None:
        """Assigns one reading for each partition; the next one as soon as the first works on a batch."""
        with self._lock.mutex:
            waiting = [each for each in self._readings if not each.has_news()]
        new: dict[KafkaPartition, _Reading] = {}
        for each in waiting:
            if self._assigned.get(each.where) not in waiting:
                new.setdefault(each.where, each)
        self._drop([self._assigned[where] for where in new if where in self._assigned])
        if new:
            self._reader().add({where: each.position for where, each in new.items()})
            self._assigned.update(new)

    def read_at(
        self, topic: str, partition: int, offsets: Sequence[int], deadline: Deadline
    ) -> Iterator[list[KafkaRecord]]:
        """The records at exactly these offsets, given in ascending order; the missing ones are simply missing.

        Neighbours are read in one go: a gap below 2,000 records is read through, a wider one is jumped over (a jump
        takes as long as 5,000 small records).
        """
        for run in near_ones(offsets):
            requested = set(run)
            for batch in self.read(topic, partition, run[0], run[-1] + 1, deadline):
                hits = [record for record in batch if record.offset() in requested]
                if hits:
                    yield hits


@dataclass(slots=True)
class _Came:
    """The records of one partition, from one poll."""

    records: list[KafkaRecord] = field(default_factory=list)
    position: int = 0

    def apply(self, event: Records | EndOfLog) -> None:
        match event:
            case Records(_, records):
                self.records += records
                self.position = records[-1].offset() + 1
            case EndOfLog(_, offset):
                self.position = max(self.position, offset)

    def hand_to(self, reading: _Reading) -> None:
        """The records first: their thread may look at any moment, also while it works on those before."""
        end = reading.end
        inside = self.position <= end
        reading.arrived = self.records if inside else [each for each in self.records if each.offset() < end]
        reading.position = max(reading.position, self.position)


def near_ones(offsets: Sequence[int]) -> Iterator[list[int]]:
    """Parts of ascending offsets within which reading through is cheaper than jumping."""
    run: list[int] = []
    for offset in offsets:
        if run and offset - run[-1] >= READ_THROUGH:
            yield run
            run = []
        run.append(offset)
    if run:
        yield run
