"""One partition on its way to another cluster: what was read and may be copied, and what is under way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka.mapping.records.epoch_fences import Fence
from pulsar_on_kafka.node.sides.target import Copied
from pulsar_on_kafka.node.sides.under_way import CopiesUnderWay, raise_ours
from pulsar_on_kafka.service.replication.copying import Copying, Headers
from pulsar_on_kafka.service.replication.cursor import ReplicationCursor
from pulsar_on_kafka.subscriptions.records.read_committed import ReadCommitted
from pulsar_on_kafka.subscriptions.records.readable import Readable

_STEP: Final = 50
"""Records, of which some thousands are under way: so many are reported as one, and then reports are asked for. Less
often, and the producer's own thread would wait for the GIL at each report."""
_FULL_S: Final = 30.0


class RecordsAsTheyAre:
    """Chunks are copied as the records that they are: this stands in the place of `ReaderChunks`."""

    def together(self, _partition: int, records: list[Any]) -> list[Any]:
        return records

    def forget(self, _partition: int) -> None:
        """Nothing is kept."""


class Lane:
    """Owned by the replicator's thread; delivery reports come from whichever thread serves the producer.

    Memory: what `CopiesUnderWay` says, and what `ReadCommitted` keeps of open transactions.
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
        self.copied = Copied(-1, 0)
        self._stopped_at: int | None = None
        """The source offset that could not be handed over; nothing is after it."""

    def begin(self, copying: Copying, copied: Copied) -> int:
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
        """Those that are to be copied, and the headers of each copy."""
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

    def done_upto(self) -> Copied:
        """What is copied now, as a snapshot says it. Only of the replicator's thread."""
        upto = self.copies.next_offset  # first: what is not done by then lies there or behind
        highest = self._next_undone() - 1
        present = self.copied.present
        if present and present.max() > highest:  # a former owner's, and not passed yet
            upto = self.copied.upto
        return Copied(highest, upto)

    def _next_undone(self) -> int:
        first = self.copies.first(self.read_position if self._stopped_at is None else self._stopped_at)
        committed = self.readable.committed.get(self.partition)
        waits_from = None if committed is None else committed.waits_from
        return first if waits_from is None else min(first, waits_from)
