"""Values of the `producers` state topic are JSON objects with a format number `v`, as in `metadata_records`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
from pyroaring import BitMap64

from pulsar_on_kafka_mapping.state.codecs.json_records import Count, FromMinusOne, Int64, json_record
from pulsar_on_kafka_mapping.state.codecs.layouts import bitmap_of, compressed
from pulsar_on_kafka_mapping.state.traffic import Traffic

MAX_PUBLISHERS: Final = 100
MAX_PROPERTIES_BYTES: Final = 256 * 1024
"""The limit of all properties in one heartbeat; far below Kafka's limit of one record."""


_OF_PARTITION: Final = "\x1f"


def claim_name(producer: str, partition: int | None) -> str:
    """The name under which a producer of one partition (None: of the whole topic) claims."""
    if partition is not None:
        return f"{producer}{_OF_PARTITION}{partition}"
    return producer + _OF_PARTITION if _OF_PARTITION in producer else producer


def claimant(name: str) -> tuple[str, int | None]:
    """The producer's name, and its partition: the inverse of `claim_name`."""
    producer, separated, partition = name.rpartition(_OF_PARTITION)
    return (producer, int(partition) if partition else None) if separated else (name, None)


@dataclass(frozen=True, slots=True)
class ProducerClaim:
    """A claim is one producer's, or that of all unnamed Shared ones of a process. It holds while its process is not
    known to be dead and `deadline_ms` (Unix time), or that of the session's last sign of life, has not passed."""

    session: str
    process: str
    deadline_ms: Int64
    exclusive: bool
    epoch: Count


@dataclass(frozen=True, slots=True)
class ProducerClaims:
    """The claims of producers of one incarnation of a topic, by producer name (`*<session>` for unnamed ones) and
    partition (`claim_name`).

    `epoch` only grows, over all incarnations of the name; each exclusive claim gets the next one, Shared producers have
    the present one. After the first record of an epoch that is or was `exclusive_epoch`, records of lower epochs are
    void.

    `plain`: every record of this product's producers in this incarnation is one message with the partition key as its
    key and the payload as its value, visible at once. A producer of any other record must withdraw `plain` first. So
    readers need no headers. Only true if it held from the topic's beginning.

    `unchunked`: likewise, no record is a chunk of a message.

    `unmarked`: likewise, no record is the marker of a transaction. A `plain` topic may have markers, which are known by
    their key (see `mapping.records.transaction_headers`).

    `hashing_schemes`: the schemes that chose the partitions of keyed messages (`mapping.routing.key_hashes`), the first
    one first; of a topic with partitions, as far as known. With more than one, a key may lie in two partitions.

    `raw`: some record may have the batching or compression of a Pulsar client (`PayloadFormat`); set before the first
    one is sent. A process of version 0.2.0 forgets it when it changes the claims.

    `topic_epochs`: by partition ('' for the whole topic) Pulsar's topic epoch, as sent to the last exclusive producer.
    A producer keeps its first epoch when it reconnects, so one with a lower epoch was followed by another. Version
    0.2.0 forgets it, too: then no producer is known to have been followed.

    `terminated`: the epoch with which the topic was terminated, 0 for none. No producer is admitted any more. Version
    0.2.0 forgets it; the topic's record still has the end.

    `ended`: this incarnation of the topic is being deleted. Its claims no longer count and name the sessions that its
    deletion waits for; no producer is admitted to it.
    """

    topic: str
    topic_incarnation: Count
    epoch: Count = 0
    exclusive_epoch: Count = 0
    claims: Mapping[str, ProducerClaim] = field(default_factory=dict)
    plain: bool = False
    unchunked: bool = False
    unmarked: bool = False
    hashing_schemes: tuple[str, ...] = ()
    raw: bool = False
    topic_epochs: Mapping[str, Count] = field(default_factory=dict)
    ended: bool = False
    terminated: Count = 0


class Publisher(msgspec.Struct, frozen=True, omit_defaults=True):
    """The public data of one producer. `sent` and `failed` count messages since `connected_since_ms` (Unix time).
    `traffic` is reported by gateways. `limited_times`: how often a publish rate held it back."""

    producer_name: str
    access_mode: str
    epoch: Count
    connected_since_ms: Int64
    sent: Count
    failed: Count
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)
    traffic: Traffic | None = None
    limited_times: Count = 0


@dataclass(frozen=True, slots=True)
class ProducerHeartbeat:
    """A session, and its producers, count as alive on one topic until then (Unix time in ms).

    At most `MAX_PUBLISHERS`, and `MAX_PROPERTIES_BYTES` of properties, are listed; `unlisted` counts the others.
    """

    deadline_ms: Int64
    process: str = ""
    publishers: tuple[Publisher, ...] = ()
    unlisted: Count = 0


def producer_heartbeat(deadline_ms: int, process: str, publishers: Iterable[Publisher]) -> ProducerHeartbeat:
    """A heartbeat that lists as many of the publishers as fit."""
    listed: list[Publisher] = []
    room, unlisted = MAX_PROPERTIES_BYTES, 0
    for publisher in publishers:
        size = properties_bytes(publisher.properties)
        if len(listed) < MAX_PUBLISHERS and size <= room:
            listed.append(publisher)
            room -= size
        else:
            unlisted += 1
    return ProducerHeartbeat(deadline_ms, process, tuple(listed), unlisted)


def properties_bytes(properties: Mapping[str, str]) -> int:
    return sum(len(name.encode()) + len(value.encode()) for name, value in properties.items())


@dataclass(frozen=True, slots=True)
class EpochFence:
    """The first record of an exclusive epoch in a partition, in one incarnation of a topic, at the offset `first`."""

    topic_incarnation: Count
    first: Count


@dataclass(frozen=True, slots=True)
class EpochBounds:
    """The lower bounds of an exclusive epoch in each partition, in one incarnation of a topic: it begins at or behind
    the offset in `ends`, if at all; 0 for partitions beyond."""

    topic_incarnation: Count
    ends: tuple[Count, ...]


@dataclass(frozen=True, slots=True)
class TakeOverBound:
    """The marker of an epoch that began by a take-over lies at `offset`; where it is not `exact`, there or behind, if
    at all."""

    topic_incarnation: Count
    offset: Count
    exact: bool


@dataclass(frozen=True, slots=True)
class SequenceSnapshot:
    """A producer name has stored this highest sequence id below the offset `upto`; -1 for none.

    `final`: nothing of it can lie beyond `upto`, because its producer closed in good order. `absent`: ids
    whose messages failed and were not stored, or were in transactions that were aborted. `forgotten_upto`: up to this
    id the list of absent ids is incomplete; -1 where it is complete.
    """

    topic_incarnation: int
    highest: int
    upto: int
    final: bool
    absent: BitMap64 = field(default_factory=BitMap64)
    forgotten_upto: int = -1


@dataclass(frozen=True, slots=True)
class _SnapshotRecord:
    """`absent_ids`: a portable 64-bit roaring bitmap. Version 0.2.0 passes over the last two members."""

    topic_incarnation: Count
    highest: Int64
    upto: Count
    final: bool
    absent_ids: bytes = b""
    forgotten_upto: FromMinusOne = -1


def encode_snapshot(snapshot: SequenceSnapshot) -> bytes:
    return _SNAPSHOT.encode(
        _SnapshotRecord(
            snapshot.topic_incarnation, snapshot.highest, snapshot.upto, snapshot.final,
            compressed(snapshot.absent), snapshot.forgotten_upto,
        )
    )  # fmt: skip


def decode_snapshot(data: bytes) -> SequenceSnapshot:
    record = _SNAPSHOT.decode(data)
    absent = bitmap_of(record.absent_ids, "sequence snapshot")
    return SequenceSnapshot(
        record.topic_incarnation, record.highest, record.upto, record.final, absent, record.forgotten_upto
    )


encode_claims, decode_claims = json_record("producers' claims", ProducerClaims).both
encode_producer_heartbeat, decode_producer_heartbeat = json_record("producers' heartbeat", ProducerHeartbeat).both
encode_fence, decode_fence = json_record("fence", EpochFence).both
encode_bounds, decode_bounds = json_record("bounds of an epoch", EpochBounds).both
encode_take_over, decode_take_over = json_record("take-over", TakeOverBound).both
_SNAPSHOT: Final = json_record("sequence snapshot", _SnapshotRecord)
