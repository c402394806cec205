"""Values of the `topics`, `namespaces` and `subscriptions` state topics: JSON objects with a format number `v`.

They are read by people with Kafka's own tools, hence JSON. An unknown field is kept out of the way (ignored), a missing
or mistyped one is corrupt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Final

import orjson

from mapping.errors import CorruptRecord

FORMAT: Final = 1


class LifeState(str, Enum):
    """CREATING: the intent is written, the Kafka topic perhaps not there yet. DELETING: the other way round."""

    CREATING = "CREATING"
    ACTIVE = "ACTIVE"
    DELETING = "DELETING"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """One life of a topic. `partitions` is 0 for a non-partitioned topic; `bound` topics belong to somebody else.

    `incarnation` is 0 in the creation record itself: it follows from that record's own offset, and every later version
    names it.
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


@dataclass(frozen=True, slots=True)
class NamespaceRecord:
    """One namespace and its policies (Pulsar's names in snake case)."""

    name: str
    state: LifeState
    policies: Mapping[str, Any] = field(default_factory=dict)
    created_ms: int = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """Who may serve an Exclusive subscription.

    It holds until `deadline_ms` (Unix time) and, beyond that, while a member with `client_id` is in the group.
    `process` names the claimant's process so that a dead one on the same machine is known to be dead.
    """

    session: str
    client_id: str
    deadline_ms: int
    consumer_name: str = ""
    process: str = ""


@dataclass(frozen=True, slots=True)
class SubscriptionRecord:
    """One life of a subscription. `start_offsets` maps a partition ("0", "1" ...) to the first offset it wants.

    `incarnation` is -1 in the creation record itself, and named by every later version, as a topic's.
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


def encode(record: TopicRecord | NamespaceRecord | SubscriptionRecord) -> bytes:
    return orjson.dumps({"v": FORMAT, **asdict(record)}, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)


def decode_topic(value: bytes) -> TopicRecord:
    """Raises CorruptRecord."""
    fields = _fields(value, TopicRecord)
    for name in ("partitions", "entries_per_ledger", "incarnation"):
        _expect(fields, name, int)
    return TopicRecord(**fields)


def decode_namespace(value: bytes) -> NamespaceRecord:
    """Raises CorruptRecord."""
    return NamespaceRecord(**_fields(value, NamespaceRecord))


def decode_subscription(value: bytes) -> SubscriptionRecord:
    """Raises CorruptRecord."""
    fields = _fields(value, SubscriptionRecord)
    _expect(fields, "start_offsets", dict)
    claim = fields.get("claim")
    if claim is not None:
        try:
            fields["claim"] = Claim(**claim)
        except TypeError as error:
            raise CorruptRecord(f"subscription record has claim {claim!r}: {error}") from error
    return SubscriptionRecord(**fields)


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
