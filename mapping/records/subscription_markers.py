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

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from pulsar_on_kafka.mapping.errors import CorruptRecord
from pulsar_on_kafka.mapping.records.message_record import Headers, MessageMetadata, encode_headers
from pulsar_on_kafka.mapping.records.record_headers import MARKER, MarkerType
from pulsar_on_kafka.mapping.state.clusters.subscription_progress import Origin

FORMAT: Final = 1


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


def encode_marker(marker: SubscriptionMarker) -> tuple[Headers, bytes]:
    """Headers and value of its record.

    Raises:
        MappingError: the name of a cluster has lone surrogates, or is ''.
    """
    match marker:
        case SnapshotRequest():
            kind, to = MarkerType.SNAPSHOT_REQUEST, None
            said: dict[str, Any] = {"id": marker.snapshot_id, "from": marker.source, "round": marker.round}
        case SnapshotResponse():
            kind, to = MarkerType.SNAPSHOT_RESPONSE, (marker.source,)
            said = {
                "id": marker.snapshot_id, "to": marker.source, "round": marker.round,
                "cluster": marker.origin.cluster, "life": marker.origin.incarnation, "upto": marker.upto,
            }  # fmt: skip
        case Snapshot():
            kind, to = MarkerType.SNAPSHOT, None
            said = {"id": marker.snapshot_id, "of": marker.source, "local": marker.local, "upto": _places(marker.upto)}
        case SubscriptionUpdate():
            kind, to = MarkerType.SUBSCRIPTION_UPDATE, None
            said = {
                "subscription": marker.subscription, "from": marker.source, "life": list(marker.life),
                "upto": _places(marker.upto),
            }  # fmt: skip
    return encode_headers(MessageMetadata(marker=kind, replicate_to=to)), orjson.dumps({"v": FORMAT, **said})


def decode_marker(headers: Iterable[tuple[str, bytes | None]] | None, value: bytes | None) -> SubscriptionMarker | None:
    """What a record says, if it is one of these markers; None for any other, and for one of a later version.

    Raises:
        CorruptRecord: it says that it is one, and cannot be read.
    """
    kind = next((value for name, value in headers or () if name == MARKER), None)
    read = None if kind is None else _READERS.get(kind)
    if read is None:
        return None
    try:
        said = orjson.loads(value or b"")
        if said["v"] != FORMAT:
            return None
        return read(said)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptRecord(f"marker {kind!r} with value {value!r:.200}: {type(error).__name__} {error}") from error


def _places(upto: Mapping[Origin, int]) -> list[list[str | int]]:
    return [[*origin, offset] for origin, offset in sorted(upto.items())]


def _request(said: Mapping[str, Any]) -> SnapshotRequest:
    return SnapshotRequest(_text(said["id"]), _text(said["from"]), _count(said["round"]))


def _response(said: Mapping[str, Any]) -> SnapshotResponse:
    origin = Origin(_text(said["cluster"]), _count(said["life"]))
    return SnapshotResponse(
        _text(said["id"]), _text(said["to"]), _count(said["round"]), origin, _count(said["upto"], least=-1)
    )


def _snapshot(said: Mapping[str, Any]) -> Snapshot:
    return Snapshot(_text(said["id"]), _text(said["of"]), _count(said["local"]), _read_places(said["upto"]))


def _update(said: Mapping[str, Any]) -> SubscriptionUpdate:
    topic, subscription = said["life"]
    life = (_count(topic), _count(subscription))
    return SubscriptionUpdate(_text(said["subscription"]), _text(said["from"]), life, _read_places(said["upto"]))


def _read_places(said: Iterable[tuple[Any, Any, Any]]) -> dict[Origin, int]:
    return {Origin(_text(name), _count(life)): _count(offset, least=-1) for name, life, offset in said}


def _text(said: object) -> str:
    if not isinstance(said, str) or not said:
        raise ValueError(f"{said!r:.60} is no text")
    return said


def _count(said: object, least: int = 0) -> int:
    if type(said) is not int or said < least:
        raise ValueError(f"{said!r:.60} is no whole number of {least} or more")
    return said


_READERS: Final[Mapping[bytes, Callable[[Mapping[str, Any]], SubscriptionMarker]]] = {
    MarkerType.SNAPSHOT_REQUEST.value.encode("ascii"): _request,
    MarkerType.SNAPSHOT_RESPONSE.value.encode("ascii"): _response,
    MarkerType.SNAPSHOT.value.encode("ascii"): _snapshot,
    MarkerType.SUBSCRIPTION_UPDATE.value.encode("ascii"): _update,
}
