"""Values of the `topics`, `namespaces` and `subscriptions` state topics are JSON objects with a format number `v`.

They are read by people with Kafka's own tools, hence JSON. An unknown field is kept out of the way (ignored), a missing
or mistyped one is corrupt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pulsar_on_kafka_mapping.state.codecs.json_records import Count, Int64, json_record


class LifeState(str, Enum):
    """A life begins as CREATING: the intent is written, the Kafka topic perhaps not there yet. DELETING is the other
    way round."""

    CREATING = "CREATING"
    ACTIVE = "ACTIVE"
    DELETING = "DELETING"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class BacklogExceeded:
    """Maintenance's notice to producers of a topic whose backlog exceeds its quota.

    It counts until `until_ms` (Unix time), so that a topic without a maintainer does not stay closed. `holds`:
    producers wait; otherwise they are refused. `limit` describes the limit and the partition in words.
    """

    holds: bool
    limit: str
    until_ms: Int64

    def __str__(self) -> str:
        return f"the backlog quota is exceeded: {self.limit}"


@dataclass(frozen=True, slots=True)
class Unused:
    """Maintenance has seen a topic or a subscription unused since then (Unix time); `mark` changes with every use."""

    since_ms: Int64
    mark: str


@dataclass(frozen=True, slots=True)
class DeletionMark:
    """A deletion without force marks a topic while it looks for producers and consumers. The topic lives on.

    After `until_ms` (Unix time) the deletion counts as given up, and any process that opens the topic removes the mark.
    """

    attempt: str
    until_ms: Int64


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """The record of one incarnation of a topic. `partitions` is 0 for a non-partitioned topic; `bound` topics belong to
    other programs. `compacted_to` maps a partition ("0", "1" ...) to the end, exclusive, of the range that a compacted
    read folds.

    `incarnation` is 0 in the creation record itself: it follows from that record's own offset, and every later version
    names it. `former` is the previous incarnation, 0 for none: its data was deleted. `deletion_ends` maps the
    partitions of a DELETING topic to their log ends when the deletion of each ledger was requested; empty before that.

    `unanswered` holds requests by Kafka's name of the topic that may still be executed, each by an id of its own, with
    the Unix time (ms) at which it was sent: a new incarnation gets another Kafka topic while there are any.

    `properties` are Pulsar's properties of a topic. `terminated` maps each partition of a terminated topic to the
    offset of the marker that ends its log; empty otherwise. A process of version 0.2.0 forgets both when it changes the
    record.
    """

    name: str
    state: LifeState
    kafka_topic: str
    partitions: Count
    entries_per_ledger: Count
    incarnation: Count = 0
    kafka_topic_id: str = ""
    bound: bool = False
    created_ms: Int64 = 0
    policies: Mapping[str, Any] = field(default_factory=dict)
    compacted_to: Mapping[str, Count] = field(default_factory=dict)
    backlog_exceeded: BacklogExceeded | None = None
    unused: Mapping[str, Unused] = field(default_factory=dict)
    """Unused since, by subscription; "" for the topic itself."""
    former: Count = 0
    deletion_ends: Mapping[str, Count] = field(default_factory=dict)
    unanswered: Mapping[str, Int64] = field(default_factory=dict)
    deletion_mark: DeletionMark | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    terminated: Mapping[str, Count] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuthPolicies:
    """Permissions in one namespace. Source: Pulsar's AuthPolicies, 4.0.7."""

    namespace: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Actions by role, on all topics of the namespace."""
    topics: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """Actions by role, by topic. A partitioned topic has them as a whole."""
    subscriptions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Roles by subscription. A subscription without an entry is open to all roles that may consume."""
    subscription_auth_mode: str = "None"
    """`None`, or `Prefix`: a subscription's name begins with the consumer's role."""


@dataclass(frozen=True, slots=True)
class NamespaceRecord:
    """A record holds one namespace, its policies (Pulsar's names in snake case) and permissions."""

    name: str
    state: LifeState
    policies: Mapping[str, Any] = field(default_factory=dict)
    created_ms: Int64 = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties that operators set and see."""
    auth: AuthPolicies = field(default_factory=AuthPolicies)


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim names the process that may serve an Exclusive subscription.

    It holds until `deadline_ms` (Unix time) and, beyond that, while a member with `client_id` is in the group.
    `process` names the claimant's process, so that its death can be detected on the same machine.
    """

    session: str
    client_id: str
    deadline_ms: Int64
    consumer_name: str = ""
    process: str = ""


@dataclass(frozen=True, slots=True)
class Joining:
    """A consumer has opened the subscription as a whole, or one `partition` of it; its group may not show it yet.

    The entry counts until `deadline_ms` (Unix time). After that the consumer has to be a member of the group.
    """

    deadline_ms: Int64
    partition: Int64 = -1


@dataclass(frozen=True, slots=True)
class PartitionSeat:
    """The state of a subscription that is, or was, served on one partition by itself. `rebirths` counts its removals
    there: earlier saves of a cursor belong to another incarnation."""

    type: str
    claim: Claim | None = None
    rebirths: Count = 0


@dataclass(frozen=True, slots=True)
class SubscriptionRecord:
    """The record of one incarnation of a subscription. `start_offsets` maps a partition ("0", "1" ...) to its first
    offset.

    `incarnation` is -1 in the creation record itself, and named by every later version, as a topic's.

    It is served as a whole (`type` and `claim` count, one consumer group) or, `by_partition`, each partition by itself
    (`seats` count, a group each). A partition that was ever served by itself keeps its seat. `partitions` are those
    that have the subscription; None for all, also those to come.
    """

    topic: str
    subscription: str
    state: LifeState
    type: str
    start_offsets: Mapping[str, Int64] = field(default_factory=dict)
    incarnation: Int64 = -1
    topic_incarnation: Count = 0
    claim: Claim | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    replicated: bool = False
    created_ms: Int64 = 0
    by_partition: bool = False
    seats: Mapping[str, PartitionSeat] = field(default_factory=dict)
    partitions: tuple[Count, ...] | None = None
    follows: bool = False
    """Whether it was created for other clusters: messages before their beginnings are skipped here, too."""
    non_durable: bool = False
    """Whether it ends with its last consumer, and retains no messages."""
    joining: Mapping[str, Joining] = field(default_factory=dict)
    """Consumers that keep it from being deleted without force, by the client id of their group membership."""


@dataclass(frozen=True, slots=True)
class RegistrationsRecord:
    """The names of V5 consumers that share the partitions of a topic's incarnation, sorted. `subscription` may be the
    group of checkpoint consumers, for which no subscription exists."""

    topic: str
    subscription: str
    topic_incarnation: Count
    consumers: tuple[str, ...] = ()


encode_topic, decode_topic = json_record("topic record", TopicRecord).both
encode_namespace, decode_namespace = json_record("namespace record", NamespaceRecord).both
encode_subscription, decode_subscription = json_record("subscription record", SubscriptionRecord).both
encode_registrations, decode_registrations = json_record("consumer registrations", RegistrationsRecord).both
