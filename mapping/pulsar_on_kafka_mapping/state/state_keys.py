"""Keys of the state topics have exactly one byte form each, because compaction compares bytes.

    ["t","persistent://public/default/orders",3,"9f86d081"]      a short tag of the kind, then the fields in order

Compact JSON (text as UTF-8, no spaces), readable with Kafka's own tools. One key never carries two facts, so
what is written by owners names their session, and takeovers name session and version. Decision:
mapping/decisions/0005.

`topic` is always the full name of the partitioned topic, `partition` the Kafka partition (0 for a non-partitioned
topic), `session` and `attempt` are hexadecimal text.
"""

from __future__ import annotations

import re
from typing import Final, Union

import msgspec

from pulsar_on_kafka_mapping.errors import MappingError, UnreadableKey


class Key(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A key is one of the kinds below, whose fields are text and whole numbers of 64 bits.

    Never give a tag to another kind: old records keep it. "sc" is taken: schemas without a Kafka topic's id, before any
    release.
    """


class TopicKey(Key, frozen=True, tag="t"):
    """A record of `topics` has this key: the version that this attempt would create."""

    topic: str
    version: int
    attempt: str


class EpochKey(Key, frozen=True, tag="ep"):
    """The key of an epoch in `topics` and `subscriptions`: entities were removed from this partition before it, and new
    ones have higher versions than all of them (decision 0026)."""

    epoch: int


class NamespaceKey(Key, frozen=True, tag="n"):
    """A record of `namespaces` has this key; `namespace` is `tenant/namespace`."""

    namespace: str
    version: int
    attempt: str


class ClusterRegistryKey(Key, frozen=True, tag="cr"):
    """The one registry of clusters has this key in `namespaces`; it lies where the policies of the cluster do."""

    version: int
    attempt: str


class SubscriptionKey(Key, frozen=True, tag="s"):
    """A record of `subscriptions` has this key."""

    topic: str
    subscription: str
    version: int
    attempt: str


class RegistrationsKey(Key, frozen=True, tag="sr"):
    """The key in `subscriptions` of the V5 consumers of a subscription, by compare-and-set (decision 0032)."""

    topic: str
    subscription: str
    version: int
    attempt: str


class SchemaKey(Key, frozen=True, tag="sv"):
    """A record of `schemas` has this key: a topic's schemas live as long as the Kafka topic, whose id is Kafka's
    own."""

    topic: str
    kafka_topic_id: str
    version: int
    attempt: str


class CursorSegmentKey(Key, frozen=True, tag="c"):
    """A record of `cursors` has this key: one segment of one save; segment -1 is the save's marker, -2, -3 ... are the
    pages of its index."""

    topic: str
    partition: int
    subscription: str
    session: str
    save: int
    segment: int


class CursorCheckpointKey(Key, frozen=True, tag="cc"):
    """A record of `cursor_checkpoints` has this key."""

    topic: str
    partition: int
    subscription: str
    session: str


class LedgerKey(Key, frozen=True, tag="l"):
    """The key of a record of `ledgers`: operation number `op` of a session, about one ledger; the id contains the
    topic's incarnation and the partition.

    No key is written twice, or a former owner's late append would make compaction drop its earlier record.
    """

    ledger_id: int
    session: str
    op: int


class DeliveryKey(Key, frozen=True, tag="d"):
    """The key of a record of `deliveries`; the topic is not compacted, so the key only names the cursor."""

    topic: str
    partition: int
    subscription: str


class ProducerKey(Key, frozen=True, tag="p"):
    """A record of `producers` has this key."""

    topic: str
    partition: int
    producer_name: str
    epoch: int


class ProducerClaimsKey(Key, frozen=True, tag="pc"):
    """The key in `producers` of a topic's producer claims, by compare-and-set."""

    topic: str
    version: int
    attempt: str


class ProducerSessionKey(Key, frozen=True, tag="ps"):
    """The key in `producers` of the heartbeat of a process with producers on a topic."""

    topic: str
    session: str


class ProducerBoundsKey(Key, frozen=True, tag="pb"):
    """The key in `producers` of an exclusive epoch's lower bounds."""

    topic: str
    producer_name: str
    epoch: int


class TakeOverKey(Key, frozen=True, tag="rf"):
    """The key in `producers` of the beginning of an epoch in a partition that took over from another of its origin, see
    `mapping.records.epoch_fences.Fence`."""

    topic: str
    partition: int
    origin: str
    epoch: int


class ProducerSequenceKey(Key, frozen=True, tag="pq"):
    """A record of `producers` under this key holds the highest sequence id of a producer name in a partition, as its
    holder of one epoch knows it."""

    topic: str
    partition: int
    producer_name: str
    epoch: int


class TransactionLogKey(Key, frozen=True, tag="tl"):
    """A record of `__transaction_log` has this key: operation number `op` of one transaction by one session."""

    coordinator: int
    txn_most: int
    txn_least: int
    session: str
    op: int


class TransactionAnswerKey(Key, frozen=True, tag="ta"):
    """A record of `__transaction_log` under this key, operation number `op` of a session, is its answer to a
    request."""

    coordinator: int
    request: str
    session: str
    op: int


class TransactionRequestKey(Key, frozen=True, tag="tr"):
    """A record of `transaction_requests` has this key; it is not compacted, and the request's id is hexadecimal
    text."""

    coordinator: int
    request: str


class TransactionBufferKey(Key, frozen=True, tag="tb"):
    """A record of `__transaction_buffer_snapshot` has this key: `kind` is OPEN, ABORTED or VOID; `part` counts from 0
    the records over which a large bitmap is spread (0 for OPEN)."""

    topic: str
    partition: int
    txn_most: int
    txn_least: int
    kind: str
    session: str
    part: int


class LowWaterKey(Key, frozen=True, tag="lw"):
    """A coordinator's low-water mark has this key in `__transaction_buffer_snapshot`."""

    coordinator: int
    session: str


class PendingAckKey(Key, frozen=True, tag="pa"):
    """A record of `__transaction_pending_ack` has this key: ack number `ack` of a transaction, as one session took
    it."""

    topic: str
    partition: int
    subscription: str
    txn_most: int
    txn_least: int
    session: str
    ack: int


class PendingAckEndKey(Key, frozen=True, tag="pe"):
    """The outcome of a transaction has this key in `__transaction_pending_ack`."""

    topic: str
    partition: int
    subscription: str
    txn_most: int
    txn_least: int


class CursorTakeoverKey(Key, frozen=True, tag="ct"):
    """A new owner of a cursor claims it under this key, in `__transaction_pending_ack` and `deliveries`.

    The session is in it because two owners may claim one version: two facts.
    """

    topic: str
    partition: int
    subscription: str
    session: str
    version: int


class CoordinatorTakeoverKey(Key, frozen=True, tag="tt"):
    """A new owner of a coordinator claims it under this key, in `__transaction_log`."""

    coordinator: int
    session: str
    version: int


class MaintenanceTakeoverKey(Key, frozen=True, tag="mt"):
    """A new maintenance owner of a partition of `ledgers` claims it under this key."""

    state_partition: int
    session: str
    version: int


class TenantKey(Key, frozen=True, tag="tn"):
    """The key in `tenants` of a tenant's cluster, by compare-and-set; `*` stands for tenants without a record of their
    own."""

    tenant: str
    version: int
    attempt: str


class TenantInfoKey(Key, frozen=True, tag="ti"):
    """The key in `tenants` of a tenant's admin roles and clusters, by compare-and-set."""

    tenant: str
    version: int
    attempt: str


class MigrationKey(Key, frozen=True, tag="mg"):
    """The key in `tenants` of a tenant's migration, by compare-and-set."""

    tenant: str
    version: int
    attempt: str


class ImportKey(Key, frozen=True, tag="im"):
    """The key in `tenants` of a tenant's import from Pulsar, by compare-and-set."""

    tenant: str
    version: int
    attempt: str


class ProgressHeadKey(Key, frozen=True, tag="sp"):
    """The key in `subscription_progress` of a report of `cluster` on a subscription, or of its known progress
    (`about`); see `subscription_progress.SAYS`. The highest (version, session) counts."""

    topic: str
    partition: int
    subscription: str
    cluster: str
    about: str
    version: int
    session: str


class ProgressSegmentKey(Key, frozen=True, tag="sg"):
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


_KEYS: Final[msgspec.json.Decoder[Key]] = msgspec.json.Decoder(Union[tuple(Key.__subclasses__())])  # noqa: UP007 - of all kinds
_ENCODER: Final = msgspec.json.Encoder()
_EPOCH: Final = b'["ep",'
_LONG: Final = re.compile(rb",-?\d{19,}")


def encode_key(key: Key) -> bytes:
    """The key's only byte form.

    Raises:
        MappingError: text with lone surrogates, or a number beyond 64 bits.
    """
    try:
        data = _ENCODER.encode(key)
    except ValueError as error:
        raise MappingError(f"{key!r} cannot be written: {error}") from error
    if _LONG.search(data) is not None and not all(
        -(2**63) <= each < 2**64 for each in msgspec.structs.astuple(key) if isinstance(each, int)
    ):
        raise MappingError(f"{key!r:.200} cannot be written: a number has more than 64 bits")
    return data


def decode_key(data: bytes) -> Key:
    """The inverse of `encode_key`.

    Raises:
        UnreadableKey: the bytes are the form of no key (only canonical ones are taken).
    """
    try:
        key = _KEYS.decode(data)
        canonical = encode_key(key)
    except (ValueError, RecursionError) as error:
        raise UnreadableKey(f"state key {data[:100]!r} cannot be read: {error}") from error
    if canonical != data:
        raise UnreadableKey(f"state key {data[:100]!r} is not canonical, expected {canonical!r}")
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
    """The epoch of an `EpochKey`; None for every other key. Raises UnreadableKey for one that only begins like it."""
    key = decode_key(data) if data.startswith(_EPOCH) else None
    return key.epoch if isinstance(key, EpochKey) else None
