"""Values of the `producers` state topic are JSON objects with a format number `v`, as in `metadata_records`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import orjson

from pulsar_on_kafka.mapping.errors import CorruptRecord

FORMAT: Final = 1
MAX_PUBLISHERS: Final = 100
MAX_PROPERTIES_BYTES: Final = 256 * 1024
"""Of all producers that one sign of life lists; far below what Kafka takes as one record."""


@dataclass(frozen=True, slots=True)
class ProducerClaim:
    """A claim is one producer's, or that of all unnamed Shared ones of a process. It holds while its process is not
    known to be dead and `deadline_ms` (Unix time), or that of the session's last sign of life, has not passed."""

    session: str
    process: str
    deadline_ms: int
    exclusive: bool
    epoch: int


@dataclass(frozen=True, slots=True)
class ProducerClaims:
    """Claims say who produces to one life of a topic, by producer name (`*<session>` for unnamed ones).

    `epoch` only grows, over all lives of the name; each exclusive claim gets the next one, Shared producers have the
    one they found. After the first record of an epoch that is `exclusive_epoch`, or was it, records of lower epochs are
    void.

    `plain`: every record that producers of ours wrote to this life of the topic, and every one that they write without
    taking this back first, is one message with the partition key as its key and the payload as its value, for
    everybody, at once. So who reads it needs no headers. Only true where it was kept from the topic's beginning.

    `unchunked`: likewise, no record is a chunk of a message.

    `unmarked`: likewise, no record is the marker of a transaction. A `plain` topic may have markers, which are known by
    their key (see `mapping.records.transaction_headers`).
    """

    topic: str
    topic_incarnation: int
    epoch: int = 0
    exclusive_epoch: int = 0
    claims: Mapping[str, ProducerClaim] = field(default_factory=dict)
    plain: bool = False
    unchunked: bool = False
    unmarked: bool = False


@dataclass(frozen=True, slots=True)
class Publisher:
    """Operators see this of one producer. `sent` and `failed` count messages since `connected_since_ms` (Unix time)."""

    producer_name: str
    access_mode: str
    epoch: int
    connected_since_ms: int
    sent: int
    failed: int
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProducerHeartbeat:
    """A session, and its producers, count as alive on one topic until then (Unix time in ms).

    At most `MAX_PUBLISHERS`, and `MAX_PROPERTIES_BYTES` of properties, are listed; `unlisted` counts the others.
    """

    deadline_ms: int
    process: str = ""
    publishers: tuple[Publisher, ...] = ()
    unlisted: int = 0


def producer_heartbeat(deadline_ms: int, process: str, publishers: Iterable[Publisher]) -> ProducerHeartbeat:
    """One that lists as many of the publishers as it may."""
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


def encode_claims(record: ProducerClaims) -> bytes:
    return orjson.dumps({"v": FORMAT, **asdict(record)}, option=orjson.OPT_SORT_KEYS)


def decode_claims(value: bytes) -> ProducerClaims:
    """Raises CorruptRecord."""
    fields = _object(value, "producer claims")
    try:
        claims = {str(name): ProducerClaim(**claim) for name, claim in fields["claims"].items()}
        return ProducerClaims(
            str(fields["topic"]), int(fields["topic_incarnation"]), int(fields["epoch"]),
            int(fields["exclusive_epoch"]), claims, fields.get("plain", False) is True,
            fields.get("unchunked", False) is True, fields.get("unmarked", False) is True,
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptRecord(f"producer claims {value[:200]!r} lack or mistype a field: {error}") from error


def encode_producer_heartbeat(sign: ProducerHeartbeat) -> bytes:
    return orjson.dumps({"v": FORMAT, **asdict(sign)})


def decode_producer_heartbeat(value: bytes) -> ProducerHeartbeat:
    """Raises CorruptRecord."""
    fields = _object(value, "sign of life")
    deadline_ms, publishers = fields.get("deadline_ms"), fields.get("publishers", [])
    if not isinstance(deadline_ms, int) or not isinstance(publishers, list):
        raise CorruptRecord(f"sign of life {value[:200]!r}: expected deadline_ms, an int, and publishers, a list")
    try:
        listed = tuple(Publisher(**publisher) for publisher in publishers)
    except TypeError as error:
        raise CorruptRecord(f"sign of life {value[:200]!r} has a publisher that cannot be read: {error}") from error
    return ProducerHeartbeat(deadline_ms, str(fields.get("process", "")), listed, int(fields.get("unlisted", 0)))


def encode_fence(topic_incarnation: int, first: int) -> bytes:
    return orjson.dumps({"v": FORMAT, "topic_incarnation": topic_incarnation, "first": first})


def decode_fence(value: bytes) -> tuple[int, int]:
    """The topic's life, and the offset of an exclusive epoch's first record in a partition. Raises CorruptRecord."""
    found = _object(value, "fence")
    incarnation, first = found.get("topic_incarnation"), found.get("first")
    if not isinstance(incarnation, int) or not isinstance(first, int):
        raise CorruptRecord(f"fence {value[:200]!r}: expected the ints topic_incarnation and first")
    return incarnation, first


def encode_bounds(topic_incarnation: int, ends: Sequence[int]) -> bytes:
    return orjson.dumps({"v": FORMAT, "topic_incarnation": topic_incarnation, "ends": list(ends)})


def decode_bounds(value: bytes) -> tuple[int, tuple[int, ...]]:
    """The topic's life, and by partition the offset at or behind which an exclusive epoch begins, if it does; 0 for
    partitions beyond. Raises CorruptRecord."""
    found = _object(value, "bounds of an epoch")
    incarnation, ends = found.get("topic_incarnation"), found.get("ends")
    if not isinstance(incarnation, int) or not isinstance(ends, list) or not all(type(end) is int for end in ends):
        raise CorruptRecord(f"bounds {value[:200]!r}: expected the int topic_incarnation and the ints ends")
    return incarnation, tuple(ends)


@dataclass(frozen=True, slots=True)
class ReplicatorFence:
    """The marker of a replicator's epoch lies at `offset`; where it is not `exact`, there or behind, if at all."""

    topic_incarnation: int
    offset: int
    exact: bool


def encode_replicator_fence(fence: ReplicatorFence) -> bytes:
    return orjson.dumps({"v": FORMAT, **asdict(fence)})


def decode_replicator_fence(value: bytes) -> ReplicatorFence:
    """Raises CorruptRecord."""
    found = _object(value, "replicator's fence")
    life, offset, exact = (found.get(name) for name in ("topic_incarnation", "offset", "exact"))
    if not (isinstance(life, int) and isinstance(offset, int) and isinstance(exact, bool)):
        raise CorruptRecord(
            f"replicator's fence {value[:200]!r}: expected the ints topic_incarnation, offset and the bool exact"
        )
    return ReplicatorFence(life, offset, exact)


@dataclass(frozen=True, slots=True)
class SequenceSnapshot:
    """A producer name has stored this highest sequence id below the offset `upto`; -1 for none.

    `final`: nothing of it can lie beyond `upto`, because its producer closed in good order.
    """

    topic_incarnation: int
    highest: int
    upto: int
    final: bool


def encode_snapshot(snapshot: SequenceSnapshot) -> bytes:
    return orjson.dumps({"v": FORMAT, **asdict(snapshot)})


def decode_snapshot(value: bytes) -> SequenceSnapshot:
    """Raises CorruptRecord."""
    fields = _object(value, "sequence snapshot")
    life, highest, upto = (fields.get(name) for name in ("topic_incarnation", "highest", "upto"))
    final = fields.get("final")
    if not (isinstance(life, int) and isinstance(highest, int) and isinstance(upto, int) and isinstance(final, bool)):
        raise CorruptRecord(
            f"sequence snapshot {value[:200]!r}: expected the ints topic_incarnation, highest, upto and the bool final"
        )
    return SequenceSnapshot(life, highest, upto, final)


def _object(value: bytes, what: str) -> dict[str, Any]:
    try:
        parsed = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise CorruptRecord(f"{what} {value[:60]!r}: no JSON ({error})") from error
    if not isinstance(parsed, dict) or parsed.get("v") != FORMAT:
        raise CorruptRecord(f"{what} {value[:60]!r}: no object with v={FORMAT}")
    return parsed
