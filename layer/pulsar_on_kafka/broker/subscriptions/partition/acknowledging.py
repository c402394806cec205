"""Applies the acknowledgements of consumers to the cursor of one partition. No I/O but the calls that it is given.

All of it runs in the member's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from pulsar_on_kafka.base.meters import SubscriptionMeter
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.subscriptions.partition.in_flight import DeliveriesInFlight
from pulsar_on_kafka.broker.subscriptions.records.batches import gathered, up_to
from pulsar_on_kafka.broker.subscriptions.records.chunks import ChunkAssembly
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import PartitionAcks

_T = TypeVar("_T")


class Acknowledging:
    """Applies acknowledgements; `settle` receives the entries that are acknowledged as a whole."""

    def __init__(
        self,
        slot: PartitionAcks,
        cursor: CursorState,
        chunks: ChunkAssembly,
        in_flight: DeliveriesInFlight,
        settle: Callable[[list[int]], None],
    ) -> None:
        self._slot = slot
        self._chunks = chunks
        self._cursor = cursor
        self._in_flight = in_flight
        self._settle = settle

    def drain(self, read_position: int, log_end: Callable[[], int], meter: SubscriptionMeter) -> bool:
        """Applies what consumers acknowledged since the last call; True when the cursor changed.

        `log_end` is called only if an id made by hand lies beyond what was read, because no entry beyond the log's end
        can be acknowledged. If it raises StoreError, or the cursor's state is out of memory and cannot be read, the
        acknowledgements wait where they were.
        """
        slot, cursor = self._slot, self._cursor
        changed = False
        if slot.acks_in_batch or slot.ack_sets or slot.cumulative_in_batch:
            changed = self._drain_batches(meter)
        if slot.cumulative:
            pending = _below_end(slot.cumulative, read_position, log_end)
            with _kept_on_failure(slot.cumulative, pending):
                cursor.need((max(pending) + 1,) if pending else ())
            before = cursor.next_unacked
            changed = (bool(pending) and self.up_to(max(pending))) or changed
            meter.acknowledged += cursor.next_unacked - before
        if slot.acks:
            offsets = _below_end(slot.acks, read_position, log_end)
            with _kept_on_failure(slot.acks, offsets):
                cursor.need(offsets)
            changed = (bool(offsets) and self._entries(offsets, meter)) or changed
        return changed

    def elsewhere(self, offsets: list[int], batches: Mapping[int, tuple[int, int]], meter: SubscriptionMeter) -> None:
        """Applies what another process reports; for batch entries (batch size, bits). Raises StoreError, and then
        changed nothing."""
        cursor = self._cursor
        cursor.need((*offsets, *batches))
        if batches:
            self._in_batches({o: BatchAckSet(size, bits) for o, (size, bits) in batches.items()}, meter)
        if offsets:
            self._entries(offsets, meter)

    def _entries(self, offsets: list[int], meter: SubscriptionMeter) -> bool:
        meter.acknowledged += len(offsets)
        if self._chunks.known:
            offsets = self._chunks.acknowledged(offsets)
        changed = self._cursor.acknowledge(offsets)
        self._settle(offsets)
        return changed

    def _in_batches(self, acks: Mapping[int, BatchAckSet], meter: SubscriptionMeter) -> bool:
        newly = self._cursor.acknowledge_batches(acks)
        for offset, count in newly.items():
            self._in_flight.acknowledged_in_batch(offset, count)
        complete = [offset for offset in newly if self._cursor.is_acknowledged(offset)]
        meter.acknowledged += len(complete)
        self._settle(complete)
        return bool(newly)

    def up_to(self, upto: int) -> bool:
        """Acknowledges all messages at or before `upto`, without chunks of a message that ends behind it."""
        cursor = self._cursor
        kept = self._chunks.unacknowledged_below(upto + 1) if self._chunks else []
        if not kept:
            return cursor.acknowledge_cumulative(upto)
        changed = False
        start = cursor.next_unacked
        for offset in (*kept, upto + 1):
            changed = cursor.acknowledge_range(start, offset) or changed
            start = offset + 1
        return changed

    def _drain_batches(self, meter: SubscriptionMeter) -> bool:
        cursor = self._cursor
        changed = False
        waiting = self._slot.cumulative_in_batch
        if waiting:
            positions = [waiting.popleft() for _ in range(len(waiting))]
            offset, acks = up_to(positions)
            with _kept_on_failure(waiting, positions):
                cursor.need((offset, *acks))
            before = cursor.next_unacked
            changed = self.up_to(offset - 1)
            changed = bool(cursor.acknowledge_batches(acks)) or changed
            meter.acknowledged += cursor.next_unacked - before
        single, sets = self._slot.acks_in_batch, self._slot.ack_sets
        if not single and not sets:
            return changed
        positions = [single.popleft() for _ in range(len(single))]
        taken = [sets.popleft() for _ in range(len(sets))]
        gathered_acks = gathered(positions, taken)
        with _kept_on_failure(single, positions), _kept_on_failure(sets, taken):
            cursor.need(gathered_acks)
        return self._in_batches(gathered_acks, meter) or changed


def _below_end(pending: deque[int], read_position: int, log_end: Callable[[], int]) -> list[int]:
    offsets = [pending.popleft() for _ in range(len(pending))]
    if max(offsets) < read_position:
        return offsets
    with _kept_on_failure(pending, offsets):
        end = log_end()
    return [offset for offset in offsets if offset < end]


@contextmanager
def _kept_on_failure(pending: deque[_T], taken: Sequence[_T]) -> Iterator[None]:
    """Puts what was taken out back where it was if the block raises."""
    try:
        yield
    except Exception:  # put back, and raised again
        pending.extendleft(reversed(taken))
        raise
