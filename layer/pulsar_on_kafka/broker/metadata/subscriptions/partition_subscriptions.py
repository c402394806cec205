"""Seats: a subscription is served as a whole or each partition by itself, by its record. Pure.

A *seat* is the part that one consumer group serves: the whole subscription (partition None), or one partition of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pulsar_on_kafka_mapping.names.subscription_group import group_id, partition_group_id
from pulsar_on_kafka_mapping.state.metadata.metadata_records import Claim, PartitionSeat, SubscriptionRecord


def seat_group(kafka_topic: str, subscription: str, partition: int | None) -> str:
    if partition is None:
        return group_id(kafka_topic, subscription)
    return partition_group_id(kafka_topic, subscription, partition)


def serves(record: SubscriptionRecord, partition: int | None) -> bool:
    """Whether the subscription is served in this seat's way."""
    return record.by_partition is (partition is not None)


def seat_of(record: SubscriptionRecord, partition: int | None) -> PartitionSeat | None:
    """Type and claim of a seat; None for a partition that never was served by itself."""
    if partition is None:
        return PartitionSeat(record.type, record.claim)
    return record.seats.get(str(partition))


def other_seats(record: SubscriptionRecord, partition: int | None) -> list[int | None]:
    """The seats of the other way of serving: they must have no live consumers while this seat has one."""
    return [None] if partition is not None else list(served_partitions(record))


def served_partitions(record: SubscriptionRecord) -> Iterable[int]:
    """The partitions that have, or had, a group of their own."""
    return sorted(map(int, record.seats))


def taken(record: SubscriptionRecord, partition: int | None, kind: str, claim: Claim | None) -> SubscriptionRecord:
    """The record with this seat taken; the seats of the other way of serving lose their claims."""
    if partition is None:
        seats = {name: replace(seat, claim=None) for name, seat in record.seats.items()}
        return replace(record, type=kind, claim=claim, by_partition=False, seats=seats)
    before = record.seats.get(str(partition))
    seat = PartitionSeat(kind, claim, before.rebirths if before is not None else 0)
    return replace(record, claim=None, by_partition=True, seats={**record.seats, str(partition): seat})


def claimed(record: SubscriptionRecord, partition: int | None, claim: Claim | None) -> SubscriptionRecord:
    """The record with another claim on this seat; the same record without such a seat."""
    if partition is None:
        return replace(record, claim=claim)
    seat = record.seats.get(str(partition))
    if seat is None:
        return record
    return replace(record, seats={**record.seats, str(partition): replace(seat, claim=claim)})


def missing(record: SubscriptionRecord, partition: int | None, all_partitions: Iterable[int]) -> list[int]:
    """The partitions of this seat that do not have the subscription yet."""
    if record.partitions is None:
        return []
    return [p for p in (all_partitions if partition is None else [partition]) if p not in record.partitions]


def spread(record: SubscriptionRecord, partition: int | None, starts: Mapping[int, int]) -> SubscriptionRecord:
    """The record with the subscription on those partitions of the seat that were `missing`, from these offsets on."""
    if record.partitions is None:
        return record
    offsets = {**record.start_offsets, **{str(p): offset for p, offset in starts.items()}}
    partitions = None if partition is None else tuple(sorted({*record.partitions, *starts}))
    return replace(record, start_offsets=offsets, partitions=partitions)


def removed(record: SubscriptionRecord, partition: int, all_partitions: Iterable[int]) -> SubscriptionRecord:
    """The record without the subscription on one partition; `partitions` is empty when no partition is left."""
    have = all_partitions if record.partitions is None else record.partitions
    seat = record.seats.get(str(partition)) or PartitionSeat(record.type)
    offsets = {name: offset for name, offset in record.start_offsets.items() if name != str(partition)}
    return replace(
        record,
        partitions=tuple(p for p in have if p != partition),
        start_offsets=offsets,
        seats={**record.seats, str(partition): replace(seat, claim=None, rebirths=seat.rebirths + 1)},
    )
