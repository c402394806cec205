"""A member's acknowledgements and refusals of what was leased to it wait here, until a report tells the owners."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.mapping.state.cursors.lease_records import Nack, Report
from pulsar_on_kafka.subscriptions.leases.leased_partition import LeasedPartition, LeasedPartitions, merged_acks
from pulsar_on_kafka.subscriptions.leases.saves import Acks
from pulsar_on_kafka.subscriptions.records.batches import gathered, up_to
from pulsar_on_kafka.subscriptions.records.endpoint import Endpoint, PartitionSlot

_MOST_NACKS: Final = 20_000

BatchAcks = dict[int, dict[int, tuple[int, int]]]
"""By partition and offset: (batch size, bits)."""


class LeaseAcks:
    """An acknowledgement counts whoever holds the message, a refusal while its consumer does. `numbers` are those of
    the consumers that were announced, seen from here.

    Memory: of what was said since the last report bitmaps of offsets, an ack set for each batch entry, and an entry for
    each refusal. Refusals are of messages that were held; a report takes 20,000 of them.
    """

    def __init__(self, holdings: LeasedPartitions, numbers: Mapping[Endpoint, int], *, in_order: bool = False) -> None:
        self._in_order = in_order
        self._holdings = holdings
        self._numbers = numbers
        self._acks: dict[int, BitMap64] = {}
        self._batch_acks: dict[int, dict[int, BatchAckSet]] = {}
        self._nacks: dict[int, list[Nack]] = {}

    def __bool__(self) -> bool:
        return bool(self.acknowledges or self._nacks)

    @property
    def acknowledges(self) -> bool:
        return bool(self._acks or self._batch_acks)

    @property
    def refuses(self) -> bool:
        return bool(self._nacks)

    # What consumers say -------------------------------------------------------------------------------------------

    def drain(self, slot: PartitionSlot, now_s: float) -> None:
        if slot.has_acknowledgements():
            self._drain_acks(self._holdings.of(slot))
        if slot.nacks:
            self._drain_nacks(self._holdings.of(slot), now_s)

    def _drain_acks(self, leased: LeasedPartition) -> None:
        slot = leased.slot
        self._drain_cumulative(leased)
        offsets = [slot.acks.popleft() for _ in range(len(slot.acks))]
        if offsets:
            in_chunks = [each for o in offsets if o in leased.chunks for each in leased.chunks[o].offsets]
            self._acknowledge(slot.number, offsets + in_chunks)
            leased.let_go(offsets)
            leased.held_before.acknowledged(offsets)
        single = slot.acks_in_batch
        if single:
            batches = self._batch_acks.setdefault(slot.number, {})
            for offset, acks in gathered([single.popleft() for _ in range(len(single))]).items():
                batches[offset] = merged_acks(batches.get(offset), acks)
                if offset in leased.in_flight.holders:
                    leased.acknowledge_in_batch(offset, acks)
                elif acks.complete:
                    leased.let_go([offset])

    def _drain_cumulative(self, leased: LeasedPartition) -> None:
        """What is acknowledged up to a message is all that consumers were handed up to there."""
        slot = leased.slot
        plain = [slot.cumulative.popleft() for _ in range(len(slot.cumulative))]
        in_batch = [slot.cumulative_in_batch.popleft() for _ in range(len(slot.cumulative_in_batch))]
        upto = max(plain, default=-1)
        if in_batch:
            offset, acks = up_to(in_batch)
            upto = max(upto, offset - 1)
            slot.acks_in_batch.extend((offset, index, size) for index, size in _messages(acks[offset]))
        acked = leased.acknowledge_up_to(upto) if upto >= 0 else None
        if acked:
            self._acknowledge(slot.number, acked)

    def _drain_nacks(self, leased: LeasedPartition, now_s: float) -> None:
        slot = leased.slot
        timed: dict[Endpoint, list[int]] = {}
        for _ in range(len(slot.nacks)):
            said_s, delay_s, offset, endpoint = slot.nacks.popleft()
            feed = leased.in_flight.holders.get(offset)
            if feed is None or feed.endpoint is not endpoint or endpoint not in self._numbers:
                continue
            self.refuse(leased, [offset], endpoint, max(0.0, said_s + delay_s - now_s))
            timed.setdefault(endpoint, []).append(offset)
        for endpoint, offsets in timed.items():
            if endpoint.ack_timeouts is not None:
                endpoint.ack_timeouts.forget(slot.number, BitMap64(offsets))

    def refuse(self, leased: LeasedPartition, offsets: Sequence[int], endpoint: Endpoint, delay_s: float) -> None:
        """This consumer, which was announced, gives them back. In order it has them until all of it comes again: what
        it acknowledges up to a later message counts for them."""
        number, delay_ms = self._numbers[endpoint], round(delay_s * 1000)
        nacks = self._nacks.setdefault(leased.slot.number, [])
        seen = leased.redeliveries
        nacks += [Nack(number, offset, delay_ms, seen.get(offset, 0)) for offset in offsets]
        leased.refused = True
        if not self._in_order:
            leased.let_go(offsets)

    def gone(self, leased: LeasedPartition, offsets: Sequence[int]) -> None:
        """There is nothing to read there (any more), or it cannot be read: it counts as acknowledged."""
        self._acknowledge(leased.slot.number, offsets)
        leased.let_go(offsets)

    def _acknowledge(self, partition: int, offsets: Iterable[int]) -> None:
        acked = self._acks.setdefault(partition, BitMap64())
        acked |= BitMap64(offsets)
        self._acks[partition] = acked

    def tell_again(self, partition: int, acks: Acks) -> None:
        """This was told, and the partition's owner has not heard it."""
        self._acknowledge(partition, acks.whole)
        if acks.batches:
            batches = self._batch_acks.setdefault(partition, {})
            for offset, each in acks.batches.items():
                batches[offset] = merged_acks(batches.get(offset), each)

    def forget_refusals(self) -> None:
        """What was held is given up, so it comes again anyway."""
        self._nacks.clear()

    # What owners are told -----------------------------------------------------------------------------------------

    def take(self) -> tuple[dict[int, BitMap64], BatchAcks, dict[int, tuple[Nack, ...]]]:
        """What one report takes, by partition; refusals that are too many for it stay for the next."""
        acks, self._acks = self._acks, {}
        batches, self._batch_acks = self._batch_acks, {}
        nacks, self._nacks = _split(self._nacks)
        said = {n: {o: (a.batch_size, a.acked) for o, a in acked.items()} for n, acked in batches.items()}
        return acks, said, nacks

    def add_untold(self, number: int, report: Report | None, found: Acks) -> None:
        """To `found`, what is acknowledged of a partition here and in this report."""
        found.add(self._acks.get(number, BitMap64()), self._batch_acks.get(number, {}))
        if report is not None:
            batches = {o: BatchAckSet(*each) for o, each in report.batch_acks.get(number, {}).items()}
            found.add(BitMap64(report.acks.get(number, ())), batches)

    def refused(self, number: int, report: Report | None) -> dict[int, Nack]:
        """By offset, what is refused of a partition here and in this report."""
        nacks = list(self._nacks.get(number, ()))
        if report is not None:
            nacks += report.nacks.get(number, ())
        return {nack.offset: nack for nack in nacks}


def _messages(acks: BatchAckSet) -> list[tuple[int, int]]:
    """(batch index, size) of each."""
    return [(index, acks.batch_size) for index in range(acks.acked.bit_length()) if acks.acked >> index & 1]


def _split(nacks: Mapping[int, list[Nack]]) -> tuple[dict[int, tuple[Nack, ...]], dict[int, list[Nack]]]:
    """The refusals that one report takes, and the rest."""
    now: dict[int, tuple[Nack, ...]] = {}
    later: dict[int, list[Nack]] = {}
    room = _MOST_NACKS
    for partition, each in nacks.items():
        if room:
            now[partition] = tuple(each[:room])
        if len(each) > room:
            later[partition] = each[room:]
        room -= min(room, len(each))
    return now, later
