"""Redelivers single messages of batch entries (Shared, Key_Shared), while their consumer holds others of the entry.

Only negatively acknowledged or timed-out messages are redelivered. They go to the same consumer, because an entry has
one holder. When nothing else of the entry is held, the entry is redelivered to any consumer. Differs from Pulsar, which
redelivers all unacknowledged messages of the entry (docs/differences.md).

The consumer's process decides this, whichever process owns the partition; the owner is not involved. Redeliveries of a
message are counted here as long as the entry stays with its consumer. A message above the limit of the consumer's dead
letter policy is dead-lettered.

All of it runs in the member's thread.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any, Final, NamedTuple

from pyroaring import BitMap64

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.subscriptions.partition.in_flight import DeliveriesInFlight
from pulsar_on_kafka.broker.subscriptions.records.batches import unpack
from pulsar_on_kafka.broker.subscriptions.records.compressed import uncompressed_size
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import (
    Delivery,
    Endpoint,
    PartitionAcks,
    PartitionConsumer,
)
from pulsar_on_kafka.kafka.reading.fetcher import Fetcher
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.wire.ack_sets import indexes_of

_TIMEOUT_S: Final = 2.0
_RETRY_INTERVAL_S: Final = 0.2
_DEAD_LETTER_RETRY_INTERVAL_S: Final = 1.0
_MAX_AT_ONCE: Final = 500
_ROOM_INTERVAL_S: Final = 0.02

_log = logging.getLogger(__name__)


class HeldHere(NamedTuple):
    """The entries of a partition, of any owner, that this process's consumers hold. `acked`: the messages of a batch
    entry that are acknowledged, or held by a transaction."""

    slot: PartitionAcks
    in_flight: DeliveriesInFlight
    acked: Callable[[int], BatchAckSet | None]
    redeliveries: dict[int, int]


class _Entry(NamedTuple):
    partition: int
    offset: int
    endpoint: Endpoint


class _Refused:
    """Negatively acknowledged messages of one entry, as bits: `waiting` until they are due, or `ready` to be delivered;
    `counts`: deliveries by batch index."""

    __slots__ = ("counts", "forgotten", "ready", "size", "waiting")

    def __init__(self, size: int, forgotten: int) -> None:
        self.size = size
        self.forgotten = forgotten
        self.waiting = 0
        self.ready = 0
        self.counts: dict[int, int] = {}


class BatchNacks:
    """The negative acknowledgements of messages in batch entries. `held` returns the held entries of a partition, None
    for an unknown one. `give_back` redelivers a whole entry that its consumer holds.

    Memory: bits of each such entry, and a number for each such message, as long as the consumer holds the entry.
    """

    def __init__(
        self,
        kafka_topic: str,
        fetcher: Fetcher,
        clock: Clock,
        held: Callable[[int], HeldHere | None],
        give_back: Callable[[int, BitMap64, Endpoint], None],
    ) -> None:
        self._kafka_topic = kafka_topic
        self._fetcher = fetcher
        self._clock = clock
        self._held = held
        self._give_back = give_back
        self._entries: dict[_Entry, _Refused] = {}
        self._due: list[tuple[float, int, _Entry, int]] = []
        self._numbers = count()
        self._ready: set[_Entry] = set()
        self._not_before_s = 0.0

    def drain(self, slots: Iterable[PartitionAcks]) -> list[tuple[int, int]]:
        """Apply negative acknowledgements; returns partition and offset of the entries. An entry without other held
        messages goes to `PartitionAcks.nacks`."""
        found: list[tuple[int, int]] = []
        for slot in slots:
            if slot.nacks_in_batch:
                found += [(slot.number, offset) for offset in self._drain(slot)]
        return found

    def _drain(self, slot: PartitionAcks) -> set[int]:
        last: dict[_Entry, tuple[float, float]] = {}
        for _ in range(len(slot.nacks_in_batch)):
            said_s, delay_s, offset, endpoint, index, size = slot.nacks_in_batch.popleft()
            entry = _Entry(slot.number, offset, endpoint)
            if self._add(entry, 1 << index, size, said_s + delay_s):
                last[entry] = said_s, delay_s
            else:  # its consumer holds the entry no longer, or only this message of it
                slot.nacks.append((said_s, delay_s, offset, endpoint))
        for entry, when in last.items():
            known, held = self._entries[entry], self._holds(entry)
            if held is not None and known.waiting | known.ready == self._unacknowledged(held, entry.offset, known.size):
                self._count_together(entry, known, held)
                slot.nacks.append((*when, entry.offset, entry.endpoint))
        return {entry.offset for entry in last}

    def _count_together(self, entry: _Entry, known: _Refused, held: HeldHere) -> None:
        """Treat as one entry again: all its held messages were negatively acknowledged."""
        most = max(known.counts.values(), default=0)
        if most > held.redeliveries.get(entry.offset, 0):
            held.redeliveries[entry.offset] = most
        self._forget(entry)

    def late(self, partition: int, offsets: BitMap64, endpoint: Endpoint) -> BitMap64:
        """Redeliver received messages of batch entries that timed out, where other messages of the entry wait in the
        inbox or were negatively acknowledged. Returns the other entries."""
        held = self._held(partition)
        if held is None or not held.in_flight.unacked_in:
            return offsets
        inbox = _indexes_in(endpoint, partition)
        whole = BitMap64(offsets)
        for offset in offsets:
            entry = _Entry(partition, offset, endpoint)
            known = self._entries.get(entry)
            waiting, size = inbox.get(offset, (0, 0 if known is None else known.size))
            if not size:
                continue
            if known is not None:
                waiting |= known.waiting | known.ready
            late = self._unacknowledged(held, offset, size) & ~waiting
            if waiting:
                whole.discard(offset)
                if late:
                    self._add(entry, late, size, self._clock.monotonic())
        return whole

    def refused(self, partition: int, offset: int, endpoint: Endpoint) -> int:
        """The number of messages of an entry that the consumer negatively acknowledged, and that wait for delivery."""
        known = self._entries.get(_Entry(partition, offset, endpoint))
        return 0 if known is None else (known.waiting | known.ready).bit_count()

    def forget_consumer(self, endpoint: Endpoint) -> None:
        """Forget a consumer that is detached, or whose entries are all redelivered."""
        for entry in [entry for entry in self._entries if entry.endpoint is endpoint]:
            self._forget(entry)

    def _add(self, entry: _Entry, bits: int, size: int, due_s: float) -> bool:
        held = self._holds(entry)
        if held is None:
            return False
        known = self._entries.get(entry)
        if known is None or known.forgotten != held.slot.forgotten:
            known = self._entries[entry] = _Refused(size, held.slot.forgotten)
        bits &= self._unacknowledged(held, entry.offset, size) & ~known.waiting & ~known.ready
        if bits and size == known.size:
            known.waiting |= bits
            heapq.heappush(self._due, (due_s, next(self._numbers), entry, bits))
        return True

    def __bool__(self) -> bool:
        return bool(self._entries)

    def next_due(self) -> float | None:
        """The time, on the monotonic clock, of the next redelivery, or of the next look for room in an inbox."""
        due_s = self._due[0][0] if self._due else None
        if not self._ready:
            return due_s
        room_s = max(self._not_before_s, self._clock.monotonic() + _ROOM_INTERVAL_S)
        return room_s if due_s is None else min(due_s, room_s)

    def step(self) -> None:
        """Redeliver due messages to inboxes with room."""
        now_s = self._clock.monotonic()
        while self._due and self._due[0][0] <= now_s:
            _, _, entry, bits = heapq.heappop(self._due)
            known = self._entries.get(entry)
            if known is not None and bits & known.waiting:
                known.ready |= bits & known.waiting
                known.waiting &= ~bits
                self._ready.add(entry)
        if self._ready and now_s >= self._not_before_s:
            self._hand_out_ready()

    def sweep(self) -> None:
        """Forget entries that their consumers no longer hold. Call it regularly."""
        for entry, known in list(self._entries.items()):
            held = self._holds(entry)
            if held is None or held.slot.forgotten != known.forgotten:
                self._forget(entry)

    def _hand_out_ready(self) -> None:
        by_partition: dict[int, dict[int, tuple[_Entry, HeldHere]]] = {}
        for entry in sorted(self._ready, key=lambda entry: entry[:2])[:_MAX_AT_ONCE]:
            known, held = self._entries[entry], self._holds(entry)
            left = 0 if held is None else self._unacknowledged(held, entry.offset, known.size)
            known.ready &= left
            if held is None or held.slot.forgotten != known.forgotten or not known.ready:
                self._ready.discard(entry)
                if held is None:
                    self._forget(entry)
            elif known.ready == left:  # no other message of the entry is held
                self._count_together(entry, known, held)
                self._give_back(entry.partition, BitMap64((entry.offset,)), entry.endpoint)
            elif entry.endpoint.permits() > 0:
                by_partition.setdefault(entry.partition, {})[entry.offset] = entry, held
        for partition, entries in by_partition.items():
            self._hand_out(partition, entries)

    def _hand_out(self, partition: int, entries: Mapping[int, tuple[_Entry, HeldHere]]) -> None:
        records: dict[int, Any] = {}
        deadline = Deadline.after(_TIMEOUT_S)
        try:
            for batch in self._fetcher.read_at(self._kafka_topic, partition, sorted(entries), deadline):
                records.update((record.offset(), record) for record in batch)
        except errors.OffsetOutOfRange:
            _log.info("%s-%d: negatively acknowledged messages of batches are gone", self._kafka_topic, partition)
        except errors.StoreError as failure:
            _log.warning("%s-%d: cannot read messages of batches again yet: %s", self._kafka_topic, partition, failure)
            self._not_before_s = self._clock.monotonic() + _RETRY_INTERVAL_S
            return
        for offset, (entry, held) in entries.items():
            if entry.endpoint.permits() <= 0:
                continue  # earlier entries have filled the inbox
            known = self._entries[entry]
            bits, known.ready = known.ready, 0
            self._ready.discard(entry)
            if offset in records:
                self._deliver(entry, known, records[offset], bits, held)
            else:  # Kafka has deleted the record
                held.slot.acks_in_batch.extend((offset, index, known.size) for index in indexes_of(bits))

    def _deliver(self, entry: _Entry, known: _Refused, record: Any, bits: int, held: HeldHere) -> None:
        endpoint, feed = entry.endpoint, entry.endpoint.feed(held.slot)
        base = held.redeliveries.get(entry.offset, 0)
        for index in indexes_of(bits):
            known.counts[index] = known.counts.get(index, base) + 1
        messages: list[Delivery] = []
        for counted in sorted({known.counts[index] for index in indexes_of(bits)}):
            of_count = sum(1 << index for index in indexes_of(bits) if known.counts[index] == counted)
            messages += _messages(record, feed, entry.offset, known.size, of_count, counted)
        endpoint.bytes_here.add(len(messages), uncompressed_size(record) or len(record))
        endpoint.deliver_or_bury(messages, self._not_stored)

    def _not_stored(self, letter: Delivery) -> None:
        """Redeliver a dead letter that could not be stored, after a second. Any thread."""
        now_s, feed = self._clock.monotonic(), letter.feed
        index, size = _place(letter)
        feed.slot.nacks_in_batch.append(
            (now_s, _DEAD_LETTER_RETRY_INTERVAL_S, letter.offset, feed.endpoint, index, size)
        )
        feed.slot.wake()

    # Inside -------------------------------------------------------------------------------------------------------

    def _holds(self, entry: _Entry) -> HeldHere | None:
        """The held entries of its partition, if its consumer holds the entry, and the entry is a batch."""
        held = self._held(entry.partition)
        if held is None or entry.endpoint.closed or entry.offset not in held.in_flight.unacked_in:
            return None
        feed = held.in_flight.holders.get(entry.offset)
        return held if feed is not None and feed.endpoint is entry.endpoint else None

    def _unacknowledged(self, held: HeldHere, offset: int, size: int) -> int:
        acked = held.acked(offset)
        return ((1 << size) - 1) & ~(0 if acked is None else acked.acked)

    def _forget(self, entry: _Entry) -> None:
        self._entries.pop(entry, None)
        self._ready.discard(entry)


def _messages(
    record: Any, feed: PartitionConsumer, offset: int, size: int, bits: int, redeliveries: int
) -> list[Delivery]:
    """The messages of a batch entry that was delivered before, so it is readable."""
    body, readable = feed.decrypted(record)
    if body is None or not readable:
        return []
    left_out = BatchAckSet(size, ((1 << size) - 1) & ~bits)
    try:
        return unpack(body, size, feed, offset, redeliveries, left_out)[0]
    except CorruptRecord as reason:
        _log.error("%s offset %d is no longer readable: %s", feed.slot.topic_name, offset, reason)
        return []


def _place(message: Delivery) -> tuple[int, int]:
    """Batch index, and the entry's number of messages."""
    found: Any = message
    return found.batch_index, found.entry.size


def _indexes_in(endpoint: Endpoint, partition: int) -> dict[int, tuple[int, int]]:
    """Batch entries with messages in this inbox: bits and size, by offset."""
    found: dict[int, tuple[int, int]] = {}
    for message in list(endpoint.queue):
        if message.feed.slot.number == partition and hasattr(message, "batch_index"):
            index, size = _place(message)
            found[message.offset] = (found.get(message.offset, (0, 0))[0] | 1 << index, size)
    return found
