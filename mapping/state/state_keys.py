"""Keys of the state topics have exactly one byte form each, because compaction compares bytes.

    ["t","persistent://public/default/orders",3,"9f86d081"]      a short tag of the kind, then the fields in order

Compact JSON by orjson (text as UTF-8, no spaces), readable with Kafka's own tools. One key never carries two facts, so
what is written by owners names their session, and takeovers name session and version. Decision:
mapping/decisions/0005.

`topic` is always the full name of the partitioned topic, `partition` the Kafka partition (0 for a non-partitioned
topic), `session` and `attempt` are hexadecimal text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Final, cast

import orjson

from pulsar_on_kafka.mapping.errors import MappingError, UnreadableKey


@dataclass(frozen=True, slots=True)
class TopicKey:
    """A record of `topics` has this key: the version that this attempt would create."""

    topic: str
    version: int
    attempt: str


@dataclass(frozen=True, slots=True)
class EpochKey:
    """An epoch ends others in `topics` and `subscriptions`: entities were removed from this partition before it, and
    whatever begins there has versions behind all of theirs (decision 0026)."""

    epoch: int


@dataclass(frozen=True, slots=True)
class NamespaceKey:
    """A record of `namespaces` has this key; `namespace` is `tenant/namespace`."""

    namespace: str
    version: int
    attempt: str


@dataclass(frozen=True, slots=True)
class ClusterRegistryKey:
    """The one registry of clusters has this key in `namespaces`; it lies where the policies of the cluster do."""

    version: int
    attempt: str


@dataclass(frozen=True, slots=True)
class SubscriptionKey:
    """A record of `subscriptions` has this key."""

    topic: str
    subscription: str
    version: int
    attempt: str


@dataclass(frozen=True, slots=True)
class SchemaKey:
    """A record of `schemas` has this key: a topic's schemas live as long as the Kafka topic, whose id is Kafka's
    own."""

    topic: str
    kafka_topic_id: str
    version: int
    attempt: str


@dataclass(frozen=True, slots=True)
class CursorSegmentKey:
    """A record of `cursors` has this key: one segment of one save; segment -1 is the save's marker, -2, -3 ... are the
    pages of its index."""

    topic: str
    partition: int
    subscription: str
    session: str
    save: int
    segment: int


@dataclass(frozen=True, slots=True)
class CursorCheckpointKey:
    """A record of `cursor_checkpoints` has this key."""

    topic: str
    partition: int
    subscription: str
    session: str


@dataclass(frozen=True, slots=True)
class LedgerKey:
    """A record of `ledgers` has this key: operation number `op` of a session, about one ledger; the id tells the
    topic's life and the partition.

    No key is written twice, or what a former owner appends late would make compaction drop what it said in time.
    """

    ledger_id: int
    session: str
    op: int


@dataclass(frozen=True, slots=True)
class DeliveryKey:
    """A record of `deliveries` has this key; it is not compacted, so it names only whom the record concerns."""

    topic: str
    partition: int
    subscription: str


@dataclass(frozen=True, slots=True)
class ProducerKey:
    """A record of `producers` has this key."""

    topic: str
    partition: int
    producer_name: str
    epoch: int


@dataclass(frozen=True, slots=True)
class ProducerClaimsKey:
    """A record of `producers` under this key says who may produce to a topic, by compare-and-set."""

    topic: str
    version: int
    attempt: str


@dataclass(frozen=True, slots=True)
class ProducerSessionKey:
    """A process with producers on a topic says in `producers`, under this key, that it lives."""

    topic: str
    session: str


@dataclass(frozen=True, slots=True)
class ProducerBoundsKey:
    """A record of `producers` under this key says where an exclusive epoch can begin at the earliest."""

    topic: str
    producer_name: str
    epoch: int


@dataclass(frozen=True, slots=True)
class ReplicatorFenceKey:
    """A record of `producers` under this key says where a replicator's epoch begins in a partition; `origin` is the
    cluster that it copies from."""

    topic: str
    partition: int
    origin: str
    epoch: int


@dataclass(frozen=True, slots=True)
class ProducerSequenceKey:
    """A record of `producers` under this key holds the highest sequence id of a producer name in a partition, as its
    holder of one epoch knows it."""

    topic: str
    partition: int
    producer_name: str
    epoch: int


@dataclass(frozen=True, slots=True)
class TransactionLogKey:
    """A record of `__transaction_log` has this key: operation number `op` of one transaction by one session."""

    coordinator: int
    txn_most: int
    txn_least: int
    session: str
    op: int


@dataclass(frozen=True, slots=True)
class TransactionAnswerKey:
    """A record of `__transaction_log` under this key, operation number `op` of a session, is its answer to a
    request."""

    coordinator: int
    request: str
    session: str
    op: int


@dataclass(frozen=True, slots=True)
class TransactionRequestKey:
    """A record of `transaction_requests` has this key; it is not compacted, and the request's id is hexadecimal
    text."""

    coordinator: int
    request: str


@dataclass(frozen=True, slots=True)
class TransactionBufferKey:
    """A record of `__transaction_buffer_snapshot` has this key: `kind` is OPEN, ABORTED or VOID; `part` counts from 0
    the records over which a large bitmap is spread (0 for OPEN)."""

    topic: str
    partition: int
    txn_most: int
    txn_least: int
    kind: str
    session: str
    part: int


@dataclass(frozen=True, slots=True)
class LowWaterKey:
    """A coordinator's low-water mark has this key in `__transaction_buffer_snapshot`."""

    coordinator: int
    session: str


@dataclass(frozen=True, slots=True)
class PendingAckKey:
    """A record of `__transaction_pending_ack` has this key: ack number `ack` of a transaction, as one session took
    it."""

    topic: str
    partition: int
    subscription: str
    txn_most: int
    txn_least: int
    session: str
    ack: int


@dataclass(frozen=True, slots=True)
class PendingAckEndKey:
    """The outcome of a transaction has this key in `__transaction_pending_ack`."""

    topic: str
    partition: int
    subscription: str
    txn_most: int
    txn_least: int


@dataclass(frozen=True, slots=True)
class CursorTakeoverKey:
    """A new owner of a cursor claims it under this key, in `__transaction_pending_ack` and `deliveries`.

    The session is in it because two owners may claim one version: two facts.
    """

    topic: str
    partition: int
    subscription: str
    session: str
    version: int


@dataclass(frozen=True, slots=True)
class CoordinatorTakeoverKey:
    """A new owner of a coordinator claims it under this key, in `__transaction_log`."""

    coordinator: int
    session: str
    version: int


@dataclass(frozen=True, slots=True)
class MaintenanceTakeoverKey:
    """A new maintenance owner of a partition of `ledgers` claims it under this key."""

    state_partition: int
    session: str
    version: int


@dataclass(frozen=True, slots=True)
class TenantKey:
    """A record of `tenants` under this key says which cluster has a tenant, by compare-and-set; `*` stands for tenants
    without a record of theirs."""

    tenant: str
    version: int
    attempt: str


@dataclass(frozen=True, slots=True)
class MigrationKey:
    """A record of `tenants` under this key says how far a tenant's migration is, by compare-and-set."""

    tenant: str
    version: int
    attempt: str


@dataclass(frozen=True, slots=True)
class ImportKey:
    """A record of `tenants` under this key says how far a tenant's import from Pulsar is, by compare-and-set."""

    tenant: str
    version: int
    attempt: str


@dataclass(frozen=True, slots=True)
class ProgressHeadKey:
    """A record of `subscription_progress` under this key is what `cluster` says of a subscription, or is known to know
    of it (`about`); see `subscription_progress.SAYS`. The highest (version, session) counts."""

    topic: str
    partition: int
    subscription: str
    cluster: str
    about: str
    version: int
    session: str


@dataclass(frozen=True, slots=True)
class ProgressSegmentKey:
    """A record of `subscription_progress` under this key is segment `number` of save `save` of the head of the same
    version and session."""

    topic: str
    partition: int
    subscription: str
    cluster: str
    about: str
    version: int
    session: str
    save: int
    number: int


Key = (
    TopicKey
    | EpochKey
    | NamespaceKey
    | ClusterRegistryKey
    | SubscriptionKey
    | SchemaKey
    | CursorSegmentKey
    | CursorCheckpointKey
    | LedgerKey
    | DeliveryKey
    | ProducerKey
    | ProducerClaimsKey
    | ProducerSessionKey
    | ProducerBoundsKey
    | ReplicatorFenceKey
    | ProducerSequenceKey
    | TransactionLogKey
    | TransactionAnswerKey
    | TransactionRequestKey
    | TransactionBufferKey
    | LowWaterKey
    | PendingAckKey
    | PendingAckEndKey
    | CursorTakeoverKey
    | CoordinatorTakeoverKey
    | MaintenanceTakeoverKey
    | TenantKey
    | MigrationKey
    | ImportKey
    | ProgressHeadKey
    | ProgressSegmentKey
)

TAGS: Final[Mapping[str, type[Key]]] = {
    "t": TopicKey,
    "ep": EpochKey,
    "n": NamespaceKey,
    "cr": ClusterRegistryKey,
    "s": SubscriptionKey,
    "sv": SchemaKey,
    "c": CursorSegmentKey,
    "cc": CursorCheckpointKey,
    "l": LedgerKey,
    "d": DeliveryKey,
    "p": ProducerKey,
    "pc": ProducerClaimsKey,
    "ps": ProducerSessionKey,
    "pb": ProducerBoundsKey,
    "rf": ReplicatorFenceKey,
    "pq": ProducerSequenceKey,
    "tl": TransactionLogKey,
    "ta": TransactionAnswerKey,
    "tr": TransactionRequestKey,
    "tb": TransactionBufferKey,
    "lw": LowWaterKey,
    "pa": PendingAckKey,
    "pe": PendingAckEndKey,
    "ct": CursorTakeoverKey,
    "tt": CoordinatorTakeoverKey,
    "mt": MaintenanceTakeoverKey,
    "tn": TenantKey,
    "mg": MigrationKey,
    "im": ImportKey,
    "sp": ProgressHeadKey,
    "sg": ProgressSegmentKey,
}
"""Never give a tag to another kind: old records keep it. "sc" is taken: schemas without a Kafka topic's id, before any
release."""

_EPOCH: Final = b'["ep",'
_TYPES: Final[Mapping[str, type[object]]] = {"str": str, "int": int}  # annotations are text here
_FIELD_TYPES: Final[Mapping[type[Key], tuple[type[object], ...]]] = {
    kind: tuple(_TYPES[cast("str", field.type)] for field in fields(kind)) for kind in TAGS.values()
}


def _values_of(names: Sequence[str]) -> Callable[[Key], tuple[Any, ...]]:
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda key: (get(key),)


_WRITERS: Final[Mapping[type[Key], tuple[str, Callable[[Key], tuple[Any, ...]]]]] = {
    kind: (tag, _values_of([field.name for field in fields(kind)])) for tag, kind in TAGS.items()
}


def encode_key(key: Key) -> bytes:
    """The key's only byte form.

    Raises:
        MappingError: text with lone surrogates, or a number beyond 64 bits.
    """
    # What orjson 3.13 makes has room for 4 kB as long as it lives, and keys live long: a copy has just what it needs.
    return b"".join((_dumped(key), b""))


def _dumped(key: Key) -> bytes:
    tag, values = _WRITERS[type(key)]
    try:
        return orjson.dumps((tag, *values(key)))
    except TypeError as error:
        raise MappingError(f"{key!r} cannot be written: {error}") from error


def decode_key(data: bytes) -> Key:
    """The inverse of `encode_key`.

    Raises:
        UnreadableKey: the bytes are the form of no key (only canonical ones are taken).
    """
    try:
        parsed = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise UnreadableKey(f"state key {data[:100]!r} is no JSON: {error}") from error
    tag = parsed[0] if isinstance(parsed, list) and parsed else None
    kind = TAGS.get(tag) if isinstance(tag, str) else None
    if kind is None:
        raise UnreadableKey(f"state key {data[:100]!r} does not begin with a known tag")
    values = parsed[1:]
    if tuple(type(value) for value in values) != _FIELD_TYPES[kind]:
        expected = ", ".join(f"{field.name}: {field.type}" for field in fields(kind))
        raise UnreadableKey(f"state key {data[:100]!r} does not have the fields of {kind.__name__}: {expected}")
    key = kind(*values)
    if _dumped(key) != data:
        raise UnreadableKey(f"state key {data[:100]!r} is not canonical, expected {encode_key(key)!r}")
    return key


def entity_of(data: bytes) -> str | None:
    """The topic that a key is about, else its namespace or tenant; None for a key that cannot be read, or is about none
    of these."""
    try:
        key = decode_key(data)
    except UnreadableKey:
        return None
    for name in ("topic", "namespace", "tenant"):
        found = getattr(key, name, None)
        if isinstance(found, str):
            return found
    return None


def epoch_of(data: bytes) -> int | None:
    """Of an `EpochKey`; None for every other key. Raises UnreadableKey for one that only begins like it."""
    key = decode_key(data) if data.startswith(_EPOCH) else None
    return key.epoch if isinstance(key, EpochKey) else None
