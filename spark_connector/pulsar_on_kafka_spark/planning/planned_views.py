"""A stream takes from a snapshot which entries a partition shows, and makes one that shows exactly some. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from struct import pack
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka_spark.planning.batch_plan import Entries
from pulsar_on_kafka_spark.planning.chunked_messages import ChunkedMessages
from pulsar_on_kafka_spark.planning.excluded_offsets import BLOCK, BLOCK_BITS, ExcludedOffsets, members
from pulsar_on_kafka_spark.planning.offset_ranges import Range
from pulsar_on_kafka_spark.planning.visibility import PartitionView, TopicView

_HALF_BITS: Final = 32
_LOWER_HALF: Final = (1 << _HALF_BITS) - 1


def visible(view: PartitionView, start: int, end: int) -> BitMap64:
    """The offsets in [start, end) that a reader of the snapshot gets, but for records of `view.unsealed`."""
    low, high = max(start, view.whole.start), min(end, view.whole.end)
    found = BitMap64()
    if low >= high:
        return found
    found.add_range(low, high)
    for block, bits in view.excluded.blocks.items():
        base = block << BLOCK_BITS
        if base < high and base + BLOCK > low:
            found -= _members_of(base, bits)
    return found


def known_batches(view: PartitionView) -> Mapping[int, tuple[int, int]]:
    """Batch entries of which some messages are acknowledged: how many it has, and which, as bits."""
    return {offset: (acks.batch_size, acks.acked) for offset, acks in view.excluded.batches.items()}


def view_of(entries: Entries) -> PartitionView:
    """A snapshot that shows these entries and no others."""
    parts = BitMap64(offset for message in entries.chunked.values() for offset in message.offsets)
    every = entries.whole | parts
    start, end = int(every.min()), int(every.max()) + 1
    others = BitMap64()
    others.add_range(start, end)
    others -= entries.whole - parts
    excluded = ExcludedOffsets()
    excluded.add_all(others)
    excluded.batches.update({offset: BatchAckSet(*acks) for offset, acks in entries.batches.items()})
    return PartitionView(Range(start, end), excluded, entries.unsealed, chunked=entries.chunked)


def with_chunks(view: TopicView, found: Mapping[int, ChunkedMessages]) -> TopicView:
    """The same snapshot with its chunked messages; it does not show the chunks as records any more."""
    partitions = dict(view.partitions)
    for partition, together in found.items():
        if together:
            one = partitions[partition]
            one.excluded.add_all(together.parts)
            partitions[partition] = replace(one, chunked=together.messages)
    return replace(view, partitions=partitions)


def _members_of(base: int, bits: int) -> BitMap64:
    """The members of one block, without a step for each member."""
    if bits + 1 >> BLOCK:
        found = BitMap64()
        found.add_range(base, base + BLOCK)
        return found
    low = members(bits).shift(base & _LOWER_HALF)
    return BitMap64.deserialize(pack("<QI", 1, base >> _HALF_BITS) + low.serialize())
