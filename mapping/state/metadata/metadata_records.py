"""Values of the `topics`, `namespaces` and `subscriptions` state topics are JSON objects with a format number `v`.

They are read by people with Kafka's own tools, hence JSON. An unknown field is kept out of the way (ignored), a missing
or mistyped one is corrupt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Final

import orjson

from pulsar_on_kafka.mapping.errors import CorruptRecord

FORMAT: Final = 1


class LifeState(str, Enum):
    """A life begins as CREATING: the intent is written, the Kafka topic perhaps not there yet. DELETING is the other
    way round."""

    CREATING = "CREATING"
    ACTIVE = "ACTIVE"
    DELETING = "DELETING"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class BacklogExceeded:
    """Maintenance says this to producers of a topic with too much that is not acknowledged.

    It counts until `until_ms` (Unix time), lest a topic stays closed when nobody maintains it any more. `holds`: they
    wait; else they are refused. `limit` says in words which limit of which partition.
    """

    holds: bool
    limit: str
    until_ms: int

    def __str__(self) -> str:
        return f"the backlog quota is exceeded: {self.limit}"


@dataclass(frozen=True, slots=True)
class Unused:
    """Maintenance has seen a topic or a subscription unused since then (Unix time); `mark` changes with every use."""

    since_ms: int
    mark: str


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A record describes one life of a topic. `partitions` is 0 for a non-partitioned topic; `bound` topics belong to
    somebody else. `compacted_to` maps a partition ("0", "1" ...) to the end, exclusive, of what a compacted read folds.

    `incarnation` is 0 in the creation record itself: it follows from that record's own offset, and every later version
    names it. `former` is that of the life before, 0 for none: its data is gone. `deletion_ends` maps the partitions of
    a DELETING topic to where their logs ended when the deletion of each ledger was asked for; empty before that.
    """

    name: str
    state: LifeState
    kafka_topic: str
    partitions: int
    entries_per_ledger: int
    incarnation: int = 0
    kafka_topic_id: str = ""
    bound: bool = False
    created_ms: int = 0
    policies: Mapping[str, Any] = field(default_factory=dict)
    compacted_to: Mapping[str, int] = field(default_factory=dict)
    backlog_exceeded: BacklogExceeded | None = None
    unused: Mapping[str, Unused] = field(default_factory=dict)
    """By subscription; "" for the topic itself."""
    former: int = 0
    deletion_ends: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NamespaceRecord:
    """A record holds one namespace and its policies (Pulsar's names in snake case)."""

    name: str
    state: LifeState
    policies: Mapping[str, Any] = field(default_factory=dict)
    created_ms: int = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim says who may serve an Exclusive subscription.

    It holds until `deadline_ms` (Unix time) and, beyond that, while a member with `client_id` is in the group.
    `process` names the claimant's process so that a dead one on the same machine is known to be dead.
    """

    session: str
    client_id: str
    deadline_ms: int
    consumer_name: str = ""
    process: str = ""


@dataclass(frozen=True, slots=True)
class PartitionSeat:
    """A seat says how a subscription is, or was, served on one partition by itself. `rebirths` counts how often it was
    removed there: what a cursor saved before is of another life."""

    type: str
    claim: Claim | None = None
    rebirths: int = 0


class ReplicatedBy(str, Enum):
    """A replicated subscription tells other clusters in this way what it has done with in this one."""

    ACKNOWLEDGEMENTS = "acknowledgements"
    """Every acknowledgement, by the positions of original messages (decision 0021)."""
    SNAPSHOTS = "snapshots"
    """Mark-delete alone, by snapshots that are exchanged in the topic, as Pulsar does (decision 0023)."""


@dataclass(frozen=True, slots=True)
class SubscriptionRecord:
    """A record describes one life of a subscription. `start_offsets` maps a partition ("0", "1" ...) to the first
    offset it wants.

    `incarnation` is -1 in the creation record itself, and named by every later version, as a topic's.

    It is served as a whole (`type` and `claim` count, one consumer group) or, `by_partition`, each partition by itself
    (`seats` count, a group each). A partition that was ever served by itself keeps its seat. `partitions` are those
    that have the subscription; None for all, also those to come.
    """

    topic: str
    subscription: str
    state: LifeState
    type: str
    start_offsets: Mapping[str, int] = field(default_factory=dict)
    incarnation: int = -1
    topic_incarnation: int = 0
    claim: Claim | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    replicated: bool = False
    created_ms: int = 0
    by_partition: bool = False
    seats: Mapping[str, PartitionSeat] = field(default_factory=dict)
    partitions: Sequence[int] | None = None
    replicated_by: ReplicatedBy = ReplicatedBy.ACKNOWLEDGEMENTS
    """Where it is `replicated`."""
    follows: bool = False
    """It was made because other clusters have it: what lies before their beginnings is not wanted here either."""
    non_durable: bool = False
    """It ends with its last consumer, and keeps nothing from being deleted."""


def encode(record: TopicRecord | NamespaceRecord | SubscriptionRecord) -> bytes:
    return orjson.dumps({"v": FORMAT, **asdict(record)}, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)


def decode_topic(value: bytes) -> TopicRecord:
    """Raises CorruptRecord."""
    fields = _fields(value, TopicRecord)
    for name in ("partitions", "entries_per_ledger", "incarnation", "former"):
        _expect(fields, name, int)
    for name in ("compacted_to", "deletion_ends"):
        _expect(fields, name, dict)
    exceeded, unused = fields.get("backlog_exceeded"), fields.get("unused", {})
    try:
        fields["backlog_exceeded"] = None if exceeded is None else BacklogExceeded(**exceeded)
        fields["unused"] = {name: Unused(**found) for name, found in unused.items()}
    except (AttributeError, TypeError) as error:
        raise CorruptRecord(
            f"topic record has backlog_exceeded {exceeded!r:.200} and unused {unused!r:.200}: {error}"
        ) from error
    return TopicRecord(**fields)


def decode_namespace(value: bytes) -> NamespaceRecord:
    """Raises CorruptRecord."""
    return NamespaceRecord(**_fields(value, NamespaceRecord))


def decode_subscription(value: bytes) -> SubscriptionRecord:
    """Raises CorruptRecord."""
    fields = _fields(value, SubscriptionRecord)
    _expect(fields, "start_offsets", dict)
    fields["claim"] = _claim(fields.get("claim"))
    _expect(fields, "seats", dict)
    fields["seats"] = {partition: _seat(seat) for partition, seat in fields.get("seats", {}).items()}
    if fields.get("partitions") is not None:
        _expect(fields, "partitions", list)
        fields["partitions"] = tuple(fields["partitions"])
    if "replicated_by" in fields:
        try:
            fields["replicated_by"] = ReplicatedBy(fields["replicated_by"])
        except ValueError as error:
            raise CorruptRecord(f"subscription record is replicated_by {fields['replicated_by']!r:.60}") from error
    return SubscriptionRecord(**fields)


def _claim(claim: Any) -> Claim | None:
    try:
        return None if claim is None else Claim(**claim)
    except TypeError as error:
        raise CorruptRecord(f"subscription record has claim {claim!r}: {error}") from error


def _seat(seat: Any) -> PartitionSeat:
    try:
        return PartitionSeat(**{**seat, "claim": _claim(seat.get("claim"))})
    except (AttributeError, TypeError) as error:
        raise CorruptRecord(f"subscription record has seat {seat!r}: {error}") from error


def _fields(value: bytes, kind: type[Any]) -> dict[str, Any]:
    try:
        parsed = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise CorruptRecord(f"{kind.__name__} is no JSON: {value[:60]!r} ({error})") from error
    if not isinstance(parsed, dict) or parsed.get("v") != FORMAT:
        raise CorruptRecord(f"{kind.__name__} is no object with v={FORMAT}: {value[:60]!r}")
    known = {name: parsed[name] for name in kind.__dataclass_fields__ if name in parsed}
    try:
        known["state"] = LifeState(known["state"])
        kind(**known)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptRecord(f"{kind.__name__} {value[:200]!r} lacks or mistypes a field: {error}") from error
    return known


def _expect(fields: Mapping[str, Any], name: str, wanted: type[Any]) -> None:
    found = fields.get(name)
    if name in fields and not isinstance(found, wanted):
        raise CorruptRecord(f"field {name} is {found!r}, expected {wanted.__name__}")
