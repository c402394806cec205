"""One partition on its way to another cluster: what was read and may be copied, what is under way, and the place, an
ordinary cursor without holes that is saved in the group's commits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NoReturn

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity, new_session
from pulsar_on_kafka.broker.cursor.saved_cursor import RecoveredCursor, SavedCursor
from pulsar_on_kafka.broker.cursor.store import CursorStore
from pulsar_on_kafka.broker.node.cross_cluster.copies_in_flight import CopiesUnderWay, raise_ours
from pulsar_on_kafka.broker.node.cross_cluster.target_topic import CopiedMessages, Target
from pulsar_on_kafka.broker.subscriptions.records.read_committed import ReadCommitted
from pulsar_on_kafka.broker.subscriptions.records.reader_filter import Readable
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.service.replication.copying import Copying, Headers
from pulsar_on_kafka_mapping.records.epoch_fences import Fence

_VERSION_BITS: Final = 32
ANSWER_S: Final = 30.0
"""The time-out of a reply. librdkafka gives a commit up sooner; this code does not rely on its report."""


class ReplicationCursor:
    """The cursor of one owner, which is over as soon as Kafka's group refuses a commit. For one thread."""

    def __init__(self, identity: CursorIdentity, found: RecoveredCursor) -> None:
        self.identity = identity
        self._state = found.state
        self._version = found.version + 1
        self._next = identity.lineage(new_session(), self._version, 0)
        self._saved = found.saved or SavedCursor(self._next)

    @property
    def next_offset(self) -> int:
        """Everything below it is copied, or is not to be."""
        return self._state.next_unacked

    @property
    def epoch(self) -> int:
        """Higher than that of all owners before, also of former lives of the subscription: a life's number is the place
        of its record in a log, and each owner's version one more than the one before, by a commit that the group
        accepts of the owner alone."""
        return self.identity.subscription_incarnation << _VERSION_BITS | self._version

    def prepare(self, store: CursorStore, next_offset: int, deadline: Deadline) -> CommittedOffset:
        """The commit which records that everything below `next_offset` is copied."""
        if next_offset > self._state.next_unacked:
            self._state.acknowledge_cumulative(next_offset - 1)
        save = store.prepare(self.identity, self._state, self._saved, self._next, deadline)
        self._next = replace(self._next, save=self._next.save + 1)
        self._saved = save.saved  # it names no segments, so nothing depends on whether it is accepted
        return save.commit


class PlaceSaves:
    """Saves of a replicator's places in its group: requested and confirmed ones. A place is the source offset, by
    partition, below which everything is copied. One save is under way at a time. For one thread.

    A save that the group rejected, or did not answer, is due again, also when nothing was copied since.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[int, int] = {}
        self._sent: dict[int, int] | None = None
        self._sent_s = 0.0

    def kept(self, places: Mapping[int, int]) -> None:
        """Records places that the group confirmed to another caller."""
        self._kept.update(places)

    def forget(self, partitions: Iterable[int]) -> None:
        """Forgets partitions of another owner; late replies about them are ignored."""
        for partition in partitions:
            self._kept.pop(partition, None)
            if self._sent is not None:
                self._sent.pop(partition, None)

    def due(self, done: Mapping[int, int]) -> dict[int, int]:
        """The places of `done` to save now; none while a reply is outstanding."""
        if self._sent is not None:
            return {}
        return {partition: place for partition, place in done.items() if place > self._kept.get(partition, -1)}

    def sent(self, places: Mapping[int, int]) -> None:
        self._sent = dict(places)
        self._sent_s = self._clock.monotonic()

    def answered(self, *, accepted: bool) -> None:
        if accepted and self._sent is not None:
            self._kept.update(self._sent)
        self._sent = None

    def is_unanswered(self) -> bool:
        """Whether the reply has timed out: the save then counts as rejected. A later save names a later place, or the
        same, so its outcome does not matter."""
        if self._sent is None or self._clock.monotonic() - self._sent_s < ANSWER_S:
            return False
        self.answered(accepted=False)
        return True


_STEP: Final = 50
"""Records per step, of which some thousands are under way: a step is reported as one, followed by a poll for reports.
With larger steps the producer's own thread would wait for the GIL at each report."""
_FULL_S: Final = 30.0


class RecordsAsTheyAre:
    """Chunks are copied as the records that they are: this stands in the place of `ReaderChunks`."""

    def together(self, _partition: int, records: list[Any]) -> list[Any]:
        return records

    def forget(self, _partition: int) -> None:
        """Nothing is kept."""


class Lane:
    """Copies one partition to another cluster. Owned by the replicator's thread; delivery reports come from the thread
    that serves the producer.

    Memory: see `CopiesUnderWay`, and the open transactions in `ReadCommitted`.
    """

    def __init__(
        self,
        partition: int,
        cursor: ReplicationCursor,
        target_topic: str,
        fences: Callable[[int], Iterable[Fence]],
        committed: Callable[[int], ReadCommitted],
    ) -> None:
        self.partition = partition
        self.cursor = cursor
        self.copies = CopiesUnderWay(target_topic, partition, _FULL_S)
        self.readable = Readable(fences, committed, (partition,), RecordsAsTheyAre())
        self.read_position = cursor.next_offset
        self.saved_upto = cursor.next_offset
        self.copying: Copying | None = None
        """None until the target is ready."""
        self.copied = CopiedMessages(-1, 0)
        self._stopped_at: int | None = None
        """The source offset that could not be handed over; nothing is after it."""

    def begin(self, copying: Copying, copied: CopiedMessages) -> int:
        """The target is ready; gives where to read."""
        self.copying, self.copied = copying, copied
        self.copies.next_offset = copied.upto
        self.read_position = max(self.cursor.next_offset, copied.highest + 1)
        self.saved_upto = self.read_position
        return self.read_position

    def send(self, records: list[Any], producer: KafkaProducer) -> None:
        """Hand records that may be read to the producer, in order. The lane is of no more use once this has failed.

        Raises:
            LayerError: a record cannot be copied now, or the producer does not take it.
        """
        for at in range(0, len(records), _STEP):
            step = records[at : at + _STEP]
            try:
                copied, headers = self._copies(step)
            except Exception as failure:  # a record's content may raise anything; where it stops must be known
                if len(step) > 1:  # what is before the one that cannot be copied can
                    for record in step:
                        self.send([record], producer)
                    continue
                self._stop(step[0].offset(), failure)
            if copied:
                self._send_step(copied, headers, producer)
            if len(step) == _STEP:
                producer.poll_inline()

    def _copies(self, records: list[Any]) -> tuple[list[Any], list[Headers]]:
        assert self.copying is not None  # noqa: S101 - nothing is read before
        present = self.copied.present
        if present:
            records = [record for record in records if record.offset() not in present]
        found = list(self.copying.headers_of(records))
        headers = [each for each in found if each is not None]
        if len(headers) < len(found):
            records = [record for record, each in zip(records, found, strict=True) if each is not None]
        return records, headers

    def _send_step(self, records: list[Any], headers: list[Headers], producer: KafkaProducer) -> None:
        step = [(record.value(), record.key(), each) for record, each in zip(records, headers, strict=True)]
        refused = self.copies.send(producer, records[0].offset(), step, sum(map(len, records)))
        if refused is not None:
            self._stop(records[refused.taken].offset(), refused.why)

    def _stop(self, offset: int, failure: Exception) -> NoReturn:
        self._stopped_at = offset
        raise_ours(failure, f"copying offset {offset} to {self.copies}")

    def done_upto(self) -> CopiedMessages:
        """The present copies, in the form of a snapshot. Only for the replicator's thread."""
        upto = self.copies.next_offset  # first: what is not done by then lies there or behind
        return self.copied.passed(self._next_undone() - 1, upto)

    def save_snapshot(self, target: Target, deadline: Deadline) -> None:
        """Put what is copied on record, if that is more than before. Only for the replicator's thread."""
        now = self.done_upto()
        if now.highest + 1 > self.saved_upto:
            target.save(self.partition, self.cursor.epoch, now, deadline, final=False)
            self.saved_upto = now.highest + 1
            self.copied.present.remove_range(0, self.saved_upto)

    def save_last_snapshot(self, target: Target, deadline: Deadline) -> None:
        """Put what is copied on record for the next owner, where this one sends no more. Only for the replicator's
        thread."""
        final = self.copies.records == 0 and self.copies.failure is None
        target.save(self.partition, self.cursor.epoch, self.done_upto(), deadline, final=final)

    def _next_undone(self) -> int:
        first = self.copies.first(self.read_position if self._stopped_at is None else self._stopped_at)
        committed = self.readable.committed.get(self.partition)
        waits_from = None if committed is None else committed.waits_from
        return first if waits_from is None else min(first, waits_from)
