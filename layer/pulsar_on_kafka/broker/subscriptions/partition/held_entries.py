"""Entries of a partition that consumers hold: for its next owner, and as the former one left them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyroaring import BitMap64

from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.records.chunks import Known
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import PartitionConsumer
from pulsar_on_kafka_mapping.state.cursors.lease_records import LeasedEntry


def still_held(
    owned: OwnedPartition, consumer: PartitionConsumer, messages: Mapping[int, int], chunked: Mapping[int, Known]
) -> None:
    """The partition was taken over, and this consumer holds these entries, each with its number of messages;
    `chunked` are the chunked ones of them."""
    offsets = still_out(owned, messages, chunked)
    plain = [offset for offset, number in messages.items() if number == 1]
    owned.in_flight.hold(plain, consumer)
    for offset, number in messages.items():
        if number != 1:
            owned.in_flight.hold_batch(offset, consumer, number)
    owned.in_flight.set_apart(messages)
    owned.redeliveries.taken(offsets)
    if owned.guard is not None:
        owned.guard.still_held(offsets)


def still_out(owned: OwnedPartition, messages: Iterable[int], chunked: Mapping[int, Known]) -> BitMap64:
    """Has reading pass over entries that consumers hold; returns them with all chunks."""
    offsets = BitMap64(messages)
    for last, known in chunked.items():
        owned.chunks.known[last] = known
        offsets |= BitMap64(known.offsets)
    owned.intake.passed_over.update(offsets)
    return offsets


def received(owned: OwnedPartition) -> dict[PartitionConsumer, list[LeasedEntry]]:
    """Returns what this process's consumers hold, as leased entries."""
    found: dict[PartitionConsumer, list[LeasedEntry]] = {}
    unacked, known = owned.in_flight.unacked_in, owned.chunks.known
    for offset, consumer in owned.holders.items():
        if consumer.endpoint.is_remote:
            continue
        chunks = known.get(offset)
        acked = None if chunks is not None else owned.held.acked_of(offset)
        found.setdefault(consumer, []).append(
            LeasedEntry(
                offset,
                owned.redeliveries.count(offset),
                unacked.get(offset, 1),
                acked,
                () if chunks is None else tuple(chunks.offsets),
                0 if chunks is None else chunks.total_bytes,
            )
        )
    return found


def out_in_order(owned: OwnedPartition) -> BitMap64:
    """Returns what the active consumer was given and has not acknowledged (Failover), with all chunks."""
    apart, end = owned.intake.passed_over, owned.intake.taken_upto
    out = owned.cursor.unacknowledged(owned.cursor.next_unacked, end)
    out |= BitMap64(offset for offset in apart if not owned.cursor.is_acknowledged(offset))
    out -= owned.held.among(out)
    return out - (BitMap64(owned.chunks.ending_behind(end - 1)) - apart)


def received_in_order(owned: OwnedPartition) -> list[LeasedEntry]:
    """Returns the same as leased entries. The number of messages of a batch entry is not known any more."""
    out = out_in_order(owned)
    found: list[LeasedEntry] = []
    for last, known in owned.chunks.known.items():
        if last in out:
            out -= BitMap64(known.offsets)
            found.append(LeasedEntry(last, 0, len(known.offsets), None, tuple(known.offsets), known.total_bytes))
    for offset in out:
        acked = owned.held.acked_of(offset)
        found.append(LeasedEntry(offset, 0, 1 if acked is None else acked.left, acked))
    return found
