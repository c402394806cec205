"""Markers tell clusters how far a replicated subscription is in one another; they are records of the topic itself.

marker = key null, header __pulsar.marker, value a JSON object:

    snapshot_request     {"v":1,"id":"<32 hex>","from":"west","round":1}
    snapshot_response    {"v":1,"id":"<32 hex>","to":"west","round":1,"cluster":"east","life":17,"upto":120}
    snapshot             {"v":1,"id":"<32 hex>","of":"west","local":118,"upto":[["east",17,120]]}
    subscription_update  {"v":1,"subscription":"s","from":"west","life":[17,42],"upto":[["east",17,120]]}

Positions are Kafka offsets, inclusive, of the partition of the same number in the cluster that they name; the number
beside it is the life of the topic there. A request and an update are copied to every cluster, a response to the one
that asked (`__pulsar.replicate_to`), a snapshot to none.

Source: Pulsar's `Markers` and PulsarMarkers.proto. Decision: mapping/decisions/0023.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

import msgspec

from pulsar_on_kafka_mapping.errors import NewerFormat
from pulsar_on_kafka_mapping.records.message_record import Headers, MessageMetadata, encode_headers
from pulsar_on_kafka_mapping.records.record_headers import MARKER, MarkerType
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import Origin
from pulsar_on_kafka_mapping.state.codecs.json_records import Count, FromMinusOne, json_record


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """The cluster `source` asks all clusters how far their logs are. `round`: 1, or 2 where the answers of the first
    one have to get about before they count."""

    snapshot_id: str
    source: str
    round: int


@dataclass(frozen=True, slots=True)
class SnapshotResponse:
    """A cluster answers `source`: the log of `origin` went up to the offset `upto`, before this was appended to it."""

    snapshot_id: str
    source: str
    round: int
    origin: Origin
    upto: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A subscription that has done with everything up to the offset `local` of `source` has done with everything up to
    these offsets of other clusters' logs."""

    snapshot_id: str
    source: str
    local: int
    upto: Mapping[Origin, int]


@dataclass(frozen=True, slots=True)
class SubscriptionUpdate:
    """A subscription of `source` has done with everything up to these offsets of other clusters' logs. `life`: the
    incarnations of topic and subscription in `source`."""

    subscription: str
    source: str
    life: tuple[int, int]
    upto: Mapping[Origin, int]


SubscriptionMarker = SnapshotRequest | SnapshotResponse | Snapshot | SubscriptionUpdate

_CARRIED: Final = frozenset(
    kind.value.encode("ascii")
    for kind in (MarkerType.SNAPSHOT_REQUEST, MarkerType.SNAPSHOT_RESPONSE, MarkerType.SUBSCRIPTION_UPDATE)
)


def is_carried(headers: Iterable[tuple[str, bytes | None]] | None) -> bool:
    """Whether a record is a marker that replicators copy."""
    return any(name == MARKER and value in _CARRIED for name, value in headers or ())


_Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
_Places: TypeAlias = tuple[tuple[_Name, Count, FromMinusOne], ...]


class _Request(msgspec.Struct, rename={"source": "from"}):
    id: _Name
    source: _Name
    round: Count


class _Response(msgspec.Struct):
    id: _Name
    to: _Name
    round: Count
    cluster: _Name
    life: Count
    upto: FromMinusOne


class _Snapshot(msgspec.Struct):
    id: _Name
    of: _Name
    local: Count
    upto: _Places


class _Update(msgspec.Struct, rename={"source": "from"}):
    subscription: _Name
    source: _Name
    life: tuple[Count, Count]
    upto: _Places


_REQUESTS: Final = json_record("snapshot request", _Request)
_RESPONSES: Final = json_record("snapshot response", _Response)
_SNAPSHOTS: Final = json_record("snapshot", _Snapshot)
_UPDATES: Final = json_record("subscription update", _Update)


def encode_marker(marker: SubscriptionMarker) -> tuple[Headers, bytes]:
    """Headers and value of its record.

    Raises:
        MappingError: the name of a cluster has lone surrogates, or is ''.
    """
    to = None
    match marker:
        case SnapshotRequest(snapshot_id, source, number):
            kind, value = MarkerType.SNAPSHOT_REQUEST, _REQUESTS.encode(_Request(snapshot_id, source, number))
        case SnapshotResponse(snapshot_id, source, number, origin, upto):
            kind, to = MarkerType.SNAPSHOT_RESPONSE, (source,)
            value = _RESPONSES.encode(_Response(snapshot_id, source, number, *origin, upto))
        case Snapshot(snapshot_id, source, local, ends):
            kind, value = MarkerType.SNAPSHOT, _SNAPSHOTS.encode(_Snapshot(snapshot_id, source, local, _places(ends)))
        case SubscriptionUpdate(name, source, life, ends):
            kind, value = MarkerType.SUBSCRIPTION_UPDATE, _UPDATES.encode(_Update(name, source, life, _places(ends)))
    return encode_headers(MessageMetadata(marker=kind, replicate_to=to)), value


def decode_marker(headers: Iterable[tuple[str, bytes | None]] | None, value: bytes | None) -> SubscriptionMarker | None:
    """What a record says, if it is one of these markers; None for any other, and for one of a later version.

    Raises:
        CorruptRecord: it says that it is one, and cannot be read.
    """
    kind = next((value for name, value in headers or () if name == MARKER), None)
    data = value or b""
    try:
        match kind:
            case b"snapshot_request":
                asked = _REQUESTS.decode(data)
                return SnapshotRequest(asked.id, asked.source, asked.round)
            case b"snapshot_response":
                said = _RESPONSES.decode(data)
                return SnapshotResponse(said.id, said.to, said.round, Origin(said.cluster, said.life), said.upto)
            case b"snapshot":
                found = _SNAPSHOTS.decode(data)
                return Snapshot(found.id, found.of, found.local, _ends(found.upto))
            case b"subscription_update":
                told = _UPDATES.decode(data)
                return SubscriptionUpdate(told.subscription, told.source, told.life, _ends(told.upto))
            case _:
                return None
    except NewerFormat:
        return None


def _places(ends: Mapping[Origin, int]) -> _Places:
    return tuple((*origin, offset) for origin, offset in sorted(ends.items()))


def _ends(places: _Places) -> dict[Origin, int]:
    return {Origin(cluster, life): offset for cluster, life, offset in places}
