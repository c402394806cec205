"""Statistics describe topics and subscriptions to an operator. Plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pulsar_on_kafka_mapping.state.cursors.cursor_requests import ReportedThrottling
from pulsar_on_kafka_mapping.state.traffic import Traffic


@dataclass(frozen=True, slots=True)
class PartitionCursorStats:
    """One subscription on one partition, as last saved (at most the persist interval old).

    `mark_delete` is the last offset below which everything is acknowledged (-1: nothing), `end` the log's end,
    `backlog` counts unacknowledged entries, `individually_deleted` acknowledged ones above mark-delete, `holes` ranges
    that are unacknowledged below the highest acknowledged one.
    """

    partition: int
    mark_delete: int
    start: int
    end: int
    backlog: int
    individually_deleted: int
    holes: int
    saved_in: str
    """The place of the state: `commit` (all of it in the group commit), `segments`, `checkpoint` or `start`."""
    owner: str
    """Client id and host of the process that owns the partition; '' without an owner."""
    unreadable: str = ""
    """Why what is acknowledged above mark-delete cannot be read, and is not counted; '' when it can. The partition is
    not served until `reset_cursor` or `clear_backlog`."""
    suspects: int = 0
    """Entries that are delivered few at a time, because a consumer that died may have had them (dead letter policy)."""


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """One subscription. `consumers` names the live processes in its group (a process may hold many consumers)."""

    topic: str
    subscription: str
    type: str
    group: str
    backlog: int
    individually_deleted: int
    consumers: tuple[str, ...]
    partitions: tuple[PartitionCursorStats, ...]
    properties: Mapping[str, str]
    """The `properties` of its consumers."""
    replicated: bool
    """Whether a consumer requested `replicate_subscription_state_enabled`."""
    by_partition: bool = False
    """Its consumers are those of single partitions (now, or the last ones)."""
    partition_groups: Mapping[int, str] = field(default_factory=dict)
    """The consumer groups of partitions that were ever consumed by themselves."""
    replicated_by: str = ""
    """`acknowledgements`; '' if it is not replicated."""
    durable: bool = True
    """Messages are kept for it; False: it ends with its last consumer."""


@dataclass(frozen=True, slots=True)
class WaitingKeysStats:
    """Keys of one partition whose later messages wait for a refused one (`ordered_redelivery`). On Exclusive and
    Failover the whole partition counts as one key."""

    partition: int
    keys: int
    """Hash slots: keys of one slot wait together."""
    messages: int
    """Messages that were read and wait."""
    oldest: int
    """The offset of the refused message of the key that has waited longest."""
    waiting_s: float
    """The time since that key's first refusal, under the partition's present owner."""


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """One consumer of a subscription, from the reply of its process. Source: Pulsar's `ConsumerStats`.

    A process without a reply (it hangs, or may not read `pulsar.system.deliveries`) has one entry, without a name and
    with -1 for every number.
    """

    consumer_name: str
    process: str
    """Client id of its membership in the Kafka group, which ends in host, process id and start time."""
    priority: int
    permits: int
    """Messages that its inbox takes now."""
    unacked: int
    """Messages in its hands (Shared and Key_Shared)."""
    delivered: int
    """Messages that it got, redeliveries included."""
    rate: float
    """The same for each of the last seconds, 5 to 10."""
    lease_age_s: float
    """The time since it was leased a message of a partition that another process owns; -1 without one."""
    waiting: int = 0
    """Messages that wait for it, to take them or to be done with their keys (Key_Shared)."""
    waiting_s: float = 0.0
    """The time since the last moment at which no message waited for it; 0 when none does."""
    traffic: Traffic | None = None
    """The traffic of a consumer at a gateway."""
    metadata: Mapping[str, str] | None = None
    """The properties of the consumer; None where its process did not reply."""
    active_in: tuple[int, ...] = ()
    """The partitions whose active consumer it is (Exclusive, Failover)."""
    blocked_s: float = -1.0
    """The time since it reached its limit of unacknowledged messages, until it has at most half of them; -1 otherwise.
    Pulsar's `blockedConsumerOnUnackedMsgs`."""
    subscription_blocked_s: float = -1.0
    """The time since the subscription reached its limit on the partitions that its process owns; -1 below it. Pulsar's
    `blockedSubscriptionOnUnackedMsgs`."""
    throttling: tuple[ReportedThrottling, ...] = ()
    """The number of times that dispatch rates held back the partitions that its process owns. Pulsar's
    `dispatchThrottled...`."""
    waiting_keys: tuple[WaitingKeysStats, ...] = ()
    """The keys that wait for refused messages, on the partitions that its process owns (see
    `AdminClient.waiting_keys`)."""


def waiting_keys_of(consumers: Iterable[ConsumerStats]) -> list[WaitingKeysStats]:
    """The keys that wait on a subscription with these consumers, by partition."""
    found = {each.partition: each for consumer in consumers for each in consumer.waiting_keys}
    return [found[partition] for partition in sorted(found)]


@dataclass(frozen=True, slots=True)
class EntryHolder:
    """The consumer that an entry was handed to, and that has neither acknowledged nor refused it."""

    consumer_name: str
    process: str
    """See `ConsumerStats.process`."""
    owner: str
    """The process that owns the partition; another one where the entry was leased."""


@dataclass(frozen=True, slots=True)
class PublisherStats:
    """One producer, from the last report of its process (at most 3 s ago). Source: Pulsar's `PublisherStats`.

    `sent` and `failed` count messages since `connected_since_ms` (Unix time).
    """

    producer_name: str
    access_mode: str
    """Pulsar's name: Shared, Exclusive, WaitForExclusive or ExclusiveWithFencing."""
    epoch: int
    connected_since_ms: int
    sent: int
    failed: int
    process: str
    """Host, process id and start time of its process."""
    properties: Mapping[str, str]
    """The `properties` of `create_producer`; Pulsar's `metadata`."""
    traffic: Traffic | None = None
    """The traffic of a producer at a gateway."""
    rate_limited_times: int = 0
    """The number of times that the topic's publish rate has held it back since then."""


@dataclass(frozen=True, slots=True)
class ReplicationStats:
    """A topic on its way to another cluster. `backlog` counts entries that are not there yet, as last saved (at most a
    second ago). `connected`: the process that copies, '' when none does."""

    backlog: int
    connected: str


@dataclass(frozen=True, slots=True)
class TopicStats:
    """One topic. `entries` counts what is in Kafka now; `subscriptions` maps names to backlogs.

    At most 100 producers of each process are in `publishers`; `unlisted_publishers` counts the others.
    `ongoing_txn_count` and `aborted_txn_count` are transactions in its partitions (one in two partitions counts twice):
    open ones, and aborted ones whose messages Kafka still has; 0 where this user may not read
    `__transaction_buffer_snapshot`. Source: Pulsar's `TopicStats`; its count of committed ones is not kept anywhere.
    """

    topic: str
    kafka_topic: str
    partitions: int
    partitioned: bool
    bound: bool
    entries: int
    start_offsets: dict[int, int]
    end_offsets: dict[int, int]
    entries_per_ledger: int
    subscriptions: dict[str, int]
    publishers: tuple[PublisherStats, ...] = ()
    unlisted_publishers: int = 0
    ongoing_txn_count: int = 0
    aborted_txn_count: int = 0
    backlog_exceeded: str = ""
    """Why no further producer may be made now: a backlog quota is exceeded; '' otherwise."""
    replication: dict[str, ReplicationStats] = field(default_factory=dict)
    """Replication by cluster. Source: Pulsar's `TopicStats.replication`; rates are metrics of the process that
    copies."""
    created_ms: int = 0
    """The Unix time at which it was made; 0: not on record."""
    last_publish_ms: Mapping[int, int] = field(default_factory=dict)
    """The publish time (Unix ms) of the newest message of each partition that has any."""
    hashing_schemes: tuple[str, ...] = ()
    """The hashing schemes of its producers, the first one first; with more than one, a key may lie in two
    partitions."""
