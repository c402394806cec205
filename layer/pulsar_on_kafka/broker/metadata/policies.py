"""Policies of the cluster, of namespaces and topics: which there are, what they may be, which one applies. Pure.

A policy is here only if something acts on it. Source of names: Pulsar's `Policies` and `TopicPolicies`, in snake case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Any, Final, NamedTuple

from pulsar_on_kafka.base import errors
from pulsar_on_kafka_schema_compat import CompatibilityStrategy

CLUSTER: Final = "*"
"""The cluster's policies have this in the place of a namespace. No namespace has this name."""
_EACH_NAMESPACE: Final = "/*"
MAX_NUMBER: Final = 2**31 - 1
"""The largest number that Pulsar's policies hold."""
MAX_BYTES: Final = 2**63 - 1
MAX_PARTITIONS: Final = 8192
"""The partition field of a ledger id has 13 bits."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy: its values, their meaning and its default. A topic's own value counts, then its namespace's, the
    cluster's, and `default`.

    `choices` are all the values of a policy that takes a word; the `undefined` one is as if nothing were set.
    """

    name: str
    kind: type
    default: Any
    meaning: str
    choices: tuple[str, ...] = ()
    undefined: str | None = None
    minimum: int = 0
    """The smallest value of a numeric policy."""
    in_bytes: bool = False
    highest: int | None = None
    """The largest value, where it is below those that Pulsar's policies hold."""
    of_cluster: bool = False
    """Whether it can be set for the cluster alone."""
    of_tenants: bool = False
    """Whether it can be set for a tenant (`tenant_level`), too."""
    of_topics: bool = True
    """Whether it can be set for a topic."""
    together: str = ""
    """Policies with the same word here are inherited together: where one of them is set, those that are not have their
    defaults."""

    @property
    def takes(self) -> str:
        """The accepted values in words, for a message or a help text."""
        if self.kind is int:
            units = " (10K, 1.5M, 20G: times 1024 each)" if self.in_bytes else ""
            return f"a whole number of {self.minimum} to {self.maximum}{units}"
        return f"one of {', '.join(self.choices)}" if self.choices else _KIND_NAMES[self.kind]

    @property
    def maximum(self) -> int:
        return self.highest or (MAX_BYTES if self.in_bytes else MAX_NUMBER)

    def taken(self, value: object) -> Any:
        """`value` as it is kept: of a word in any spelling that `parse` knows, or a member of an enumeration by its
        name, the choice that it is. Raises InvalidOption."""
        if self.choices and isinstance(value, (str, Enum)):
            return self.parse(value.name if isinstance(value, Enum) else value)
        if self.kind is list and isinstance(value, (tuple, list, set, frozenset)):
            value = list(dict.fromkeys(value if isinstance(value, (tuple, list)) else sorted(value)))
        self.check(value)
        return value

    def check(self, value: object) -> None:
        """Raises InvalidOption for a value of another type, none of the choices, or a number out of range."""
        if self.kind is list and isinstance(value, tuple):
            value = list(value)
        legal = type(value) is self.kind and (not self.choices or value in self.choices)
        legal = legal and not (isinstance(value, list) and not all(type(name) is str and name for name in value))
        if not legal or (isinstance(value, int) and not self.minimum <= value <= self.maximum):
            raise errors.InvalidOption(
                f"policy {self.name} takes {self.takes}, got {type(value).__name__} {value!r:.60}"
            )

    def parse(self, text: str) -> Any:
        """A value as it is typed: `full_transitive`, `FULL-TRANSITIVE` and `FullTransitive` are one word, as Pulsar's
        tools have all of them. Raises InvalidOption."""
        if self.kind is bool and text.lower() in _BOOLEANS:
            return _BOOLEANS[text.lower()]
        if self.kind is list:
            return self.taken([name.strip() for name in text.split(",")] if text.strip() else [])
        if self.kind is int and _NUMBER.fullmatch(text):
            self.check(int(text))
            return int(text)
        if self.in_bytes and (size := _SIZE.fullmatch(text)):
            number = round(float(size[1]) * 1024 ** (1 + "KMGT".index(size[2].upper())))
            self.check(number)
            return number
        for word in self.choices:
            if _letters(word) == _letters(text):
                return word
        raise errors.InvalidOption(f"policy {self.name} takes {self.takes}, got {text!r:.60}")


def _letters(word: str) -> str:
    return word.upper().replace("-", "").replace("_", "")


_NUMBER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_SIZE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([KMGTkmgt])", re.ASCII)
_KIND_NAMES: Final[Mapping[type, str]] = {bool: "true or false", list: "names between ','"}
_BOOLEANS: Final[Mapping[str, bool]] = {"true": True, "false": False}

DEDUPLICATION: Final = Policy(
    "deduplication",
    bool,
    False,
    "a message is stored only if its sequence id is above all that its producer name stored before",
)

SCHEMA_COMPATIBILITY_STRATEGY: Final = Policy(
    "schema_compatibility_strategy",
    str,
    CompatibilityStrategy.FULL.name,
    "which existing schemas a new one must get on with, and in which directions",
    choices=tuple(strategy.name for strategy in CompatibilityStrategy),
    undefined=CompatibilityStrategy.UNDEFINED.name,
)
SCHEMA_VALIDATION_ENFORCED: Final = Policy(
    "schema_validation_enforced", bool, False, "producers without a schema are refused on topics that have one"
)
IS_ALLOW_AUTO_UPDATE_SCHEMA: Final = Policy(
    "is_allow_auto_update_schema", bool, True, "producers and consumers may register new schemas"
)

MESSAGE_TTL_IN_SECONDS: Final = Policy(
    "message_ttl_in_seconds",
    int,
    0,
    "messages older than this are acknowledged on every subscription; 0 for none",
)

QUOTA_ACTIONS: Final = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")
_BY_SIZE: Final = "destination_storage"
_BY_TIME: Final = "message_age"
BACKLOG_QUOTA_LIMIT_SIZE: Final = Policy(
    "backlog_quota_limit_size",
    int,
    -1,
    "bytes of a partition that its slowest subscription may have left; -1 for no limit",
    minimum=-1,
    in_bytes=True,
    together=_BY_SIZE,
)
BACKLOG_QUOTA_LIMIT_SIZE_ACTION: Final = Policy(
    "backlog_quota_limit_size_action",
    str,
    QUOTA_ACTIONS[0],
    "what happens when it has more left",
    choices=QUOTA_ACTIONS,
    together=_BY_SIZE,
)
BACKLOG_QUOTA_LIMIT_TIME: Final = Policy(
    "backlog_quota_limit_time",
    int,
    -1,
    "seconds that the oldest message may wait for the slowest subscription; -1 for no limit",
    minimum=-1,
    together=_BY_TIME,
)
BACKLOG_QUOTA_LIMIT_TIME_ACTION: Final = Policy(
    "backlog_quota_limit_time_action",
    str,
    QUOTA_ACTIONS[0],
    "what happens when it waits longer",
    choices=QUOTA_ACTIONS,
    together=_BY_TIME,
)

SUBSCRIPTION_EXPIRATION_TIME_MINUTES: Final = Policy(
    "subscription_expiration_time_minutes",
    int,
    0,
    "subscriptions without consumers that do not move for so long are deleted; 0 for none",
)
_INACTIVE: Final = "inactive topics"
DELETE_WHILE_INACTIVE: Final = Policy(
    "delete_while_inactive",
    bool,
    False,
    "unused topics are deleted",
    together=_INACTIVE,
)
INACTIVE_TOPIC_DELETE_MODES: Final = ("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up")
INACTIVE_TOPIC_DELETE_MODE: Final = Policy(
    "inactive_topic_delete_mode",
    str,
    INACTIVE_TOPIC_DELETE_MODES[0],
    "when a topic without producers and consumers counts as unused",
    choices=INACTIVE_TOPIC_DELETE_MODES,
    together=_INACTIVE,
)
MAX_INACTIVE_DURATION_SECONDS: Final = Policy(
    "max_inactive_duration_seconds",
    int,
    60,
    "how long a topic is unused before it is deleted",
    minimum=1,
    together=_INACTIVE,
)

COMPACTION_THRESHOLD: Final = Policy(
    "compaction_threshold",
    int,
    0,
    "a topic is compacted when a partition got so many bytes since the last time; 0 for never",
    in_bytes=True,
)
PULSAR_4: Final = "4"
PULSAR_5: Final = "5"
COMPACTION_EMPTY_PAYLOADS: Final = Policy(
    "compaction_empty_payloads",
    str,
    PULSAR_4,
    "a newest message without a payload stays in compacted reading unless it is in a batch, as in Pulsar 4 (4), or "
    "removes its key everywhere, as in Pulsar 5 (5)",
    choices=(PULSAR_4, PULSAR_5),
)

_RETENTION: Final = "retention"
RETENTION_TIME_IN_MINUTES: Final = Policy(
    "retention_time_in_minutes",
    int,
    0,
    "messages that every subscription has acknowledged are kept so long; -1 for ever",
    minimum=-1,
    together=_RETENTION,
)
RETENTION_SIZE_IN_MB: Final = Policy(
    "retention_size_in_mb",
    int,
    0,
    "so much of what every subscription has acknowledged is kept of each partition; -1 sets no bound",
    minimum=-1,
    together=_RETENTION,
)

LEDGER_ROLLOVER_MINUTES: Final = Policy(
    "managed_ledger_max_ledger_rollover_time_minutes",
    int,
    240,
    "messages that are older count as those of a closed ledger, which may be deleted",
    minimum=1,
)
LEDGER_MAX_MBYTES: Final = Policy(
    "managed_ledger_max_size_per_ledger_mbytes",
    int,
    2048,
    "what has so much behind it in its partition counts as a closed ledger, which may be deleted",
    minimum=1,
)
LEDGER_MAX_ENTRIES: Final = Policy(
    "managed_ledger_max_entries_per_ledger",
    int,
    50_000,
    "so many entries count as a closed ledger, which may be deleted",
    minimum=1,
)

RAW: Final = "raw"
NATIVE: Final = "native"
ENTRY_FORMAT: Final = Policy(
    "entry_format",
    str,
    RAW,
    "a gateway stores what Pulsar's clients batch or compress as it comes (raw), or as messages that any Kafka client "
    "reads (native)",
    choices=(RAW, NATIVE),
)

CONFLUENT_SCHEMA_IDS: Final = Policy(
    "confluent_schema_ids",
    bool,
    False,
    "records of producers that are opened from now on name their schema in the header of Confluent's serializers, and "
    "each message is a record",
)

_PUBLISH_RATE: Final = "publish rate"
PUBLISH_THROTTLING_RATE_IN_MSG: Final = Policy(
    "publish_throttling_rate_in_msg",
    int,
    -1,
    "messages a second that producers may publish to a partition; -1 for no limit",
    minimum=-1,
    together=_PUBLISH_RATE,
)
PUBLISH_THROTTLING_RATE_IN_BYTE: Final = Policy(
    "publish_throttling_rate_in_byte",
    int,
    -1,
    "bytes a second that they may publish to it; -1 for no limit",
    minimum=-1,
    in_bytes=True,
    together=_PUBLISH_RATE,
)


class DispatchRatePolicies(NamedTuple):
    """The policies of one dispatch rate, which are inherited together. Source: Pulsar's `DispatchRate`."""

    in_msg: Policy
    in_byte: Policy
    period_in_second: Policy
    relative_to_publish_rate: Policy

    @classmethod
    def of(cls, prefix: str, receiver: str) -> DispatchRatePolicies:
        together = f"{prefix}dispatch rate"
        return cls(
            Policy(
                f"{prefix}dispatch_throttling_rate_in_msg",
                int,
                -1,
                f"messages of a partition that {receiver} in each period; -1 for no limit",
                minimum=-1,
                together=together,
            ),
            Policy(
                f"{prefix}dispatch_throttling_rate_in_byte",
                int,
                -1,
                f"bytes of a partition that {receiver} in each period; -1 for no limit",
                minimum=-1,
                in_bytes=True,
                together=together,
            ),
            Policy(
                f"{prefix}dispatch_rate_period_in_second",
                int,
                1,
                "the period of these rates in seconds",
                minimum=1,
                together=together,
            ),
            Policy(
                f"{prefix}dispatch_rate_relative_to_publish_rate",
                bool,
                False,
                "these rates come on top of the rate at which the partition is published to",
                together=together,
            ),
        )


DISPATCH_RATE: Final = DispatchRatePolicies.of("", "all subscriptions together get")
SUBSCRIPTION_DISPATCH_RATE: Final = DispatchRatePolicies.of("subscription_", "each subscription gets")
REPLICATOR_DISPATCH_RATE: Final = DispatchRatePolicies.of("replicator_", "are copied to each other cluster")

REPLICATION_CLUSTERS: Final = Policy(
    "replication_clusters",
    list,
    (),
    "clusters that messages are copied to; this cluster's own name may be among them",
)

_AUTO_TOPICS: Final = "automatic topics"
NON_PARTITIONED: Final = "non-partitioned"
PARTITIONED: Final = "partitioned"
ALLOW_AUTO_TOPIC_CREATION: Final = Policy(
    "allow_auto_topic_creation",
    bool,
    True,
    "producers and consumers create missing topics",
    of_topics=False,
    together=_AUTO_TOPICS,
)
ALLOW_AUTO_TOPIC_CREATION_TYPE: Final = Policy(
    "allow_auto_topic_creation_type",
    str,
    NON_PARTITIONED,
    "the kind of topic that they create",
    choices=(NON_PARTITIONED, PARTITIONED),
    of_topics=False,
    together=_AUTO_TOPICS,
)
DEFAULT_NUM_PARTITIONS: Final = Policy(
    "default_num_partitions",
    int,
    1,
    "partitions of a partitioned topic that they create",
    minimum=1,
    highest=MAX_PARTITIONS,
    of_topics=False,
    together=_AUTO_TOPICS,
)
V5_DEFAULT_PARTITIONS: Final = Policy(
    "v5_default_partitions",
    int,
    4,
    "partitions of a missing topic that V5 clients or programs create by the name topic://...; 0 for a topic without "
    "partitions",
    highest=MAX_PARTITIONS,
    of_topics=False,
)
ALLOW_AUTO_SUBSCRIPTION_CREATION: Final = Policy(
    "allow_auto_subscription_creation", bool, True, "consumers create missing durable subscriptions"
)
MAX_PRODUCERS_PER_TOPIC: Final = Policy(
    "max_producers_per_topic",
    int,
    0,
    "producers that a partition may have when one is opened; 0 for no limit",
)
MAX_CONSUMERS_PER_TOPIC: Final = Policy(
    "max_consumers_per_topic",
    int,
    0,
    "consumers that a partition may have when one is opened, in all subscriptions; 0 for no limit",
)
MAX_CONSUMERS_PER_SUBSCRIPTION: Final = Policy(
    "max_consumers_per_subscription",
    int,
    0,
    "consumers that a subscription may have on a partition when one is opened; 0 for no limit",
)
MAX_SUBSCRIPTIONS_PER_TOPIC: Final = Policy(
    "max_subscriptions_per_topic",
    int,
    0,
    "durable subscriptions that a topic may have when one is created; 0 for no limit",
)
MAX_UNACKED_MESSAGES_ON_CONSUMER: Final = Policy(
    "max_unacked_messages_on_consumer",
    int,
    50_000,
    "unacknowledged messages of a Shared or Key_Shared consumer at which it gets no more, until half of them are left; "
    "0 for no limit",
)
MAX_UNACKED_MESSAGES_ON_SUBSCRIPTION: Final = Policy(
    "max_unacked_messages_on_subscription",
    int,
    200_000,
    "the same for the consumers of a Shared or Key_Shared subscription together, which then get redeliveries only; "
    "0 for no limit",
)
ORDERED_REDELIVERY: Final = Policy(
    "ordered_redelivery",
    bool,
    False,
    "messages behind a refused one of their key wait for its acknowledgement (Key_Shared; Exclusive and Failover: of "
    "their partition)",
)
MAX_TOPICS_PER_NAMESPACE: Final = Policy(
    "max_topics_per_namespace",
    int,
    0,
    "topics that a namespace may have after one is created or grows, each partition counts; 0 for no limit",
    of_topics=False,
)

TRANSACTION_COORDINATOR_ENABLED: Final = Policy(
    "transaction_coordinator_enabled",
    bool,
    True,
    "transactions may be begun, and topics take part in them; of a tenant: its topics take part in them",
    of_cluster=True,
    of_tenants=True,
)
REPLICATED_SUBSCRIPTIONS_SNAPSHOT_FREQUENCY_MILLIS: Final = Policy(
    "replicated_subscriptions_snapshot_frequency_millis",
    int,
    1_000,
    "how long services wait before they exchange the acknowledgements of replicated subscriptions with other clusters "
    "again",
    minimum=10,
    of_cluster=True,
)
RECONSUME_LATER_OF_TOPIC_TWO_PHASE_DELETION_IN_SECONDS: Final = Policy(
    "reconsume_later_of_topic_two_phase_deletion_in_seconds",
    int,
    600,
    "how long the deletion of a ledger waits before each of its ten retries",
    minimum=1,
    of_cluster=True,
)
MAX_ACTIVE_TRANSACTIONS_PER_COORDINATOR: Final = Policy(
    "max_active_transactions_per_coordinator",
    int,
    10_000,
    "open transactions that a coordinator may have; others are refused",
    minimum=1,
    of_cluster=True,
)
TRANSACTION_MAX_TIMEOUT_IN_SECONDS: Final = Policy(
    "transaction_max_timeout_in_seconds",
    int,
    86_400,
    "the longest time-out that a transaction may be begun with",
    minimum=1,
    of_cluster=True,
)
TRANSACTION_LOG_BATCHED_WRITE_MAX_RECORDS: Final = Policy(
    "transaction_log_batched_write_max_records",
    int,
    512,
    "records that a coordinator appends to its log at once",
    minimum=1,
    of_cluster=True,
)
TRANSACTION_LOG_BATCHED_WRITE_MAX_SIZE: Final = Policy(
    "transaction_log_batched_write_max_size",
    int,
    4 * 1024 * 1024,
    "bytes that a coordinator appends to its log at once; a larger record goes alone",
    minimum=1,
    in_bytes=True,
    of_cluster=True,
)
TRANSACTION_LOG_BATCHED_WRITE_MAX_DELAY_IN_MILLIS: Final = Policy(
    "transaction_log_batched_write_max_delay_in_millis",
    int,
    0,
    "how long a coordinator waits for others to be written with, at most",
    of_cluster=True,
)
OF_TRANSACTIONS: Final = (
    MAX_ACTIVE_TRANSACTIONS_PER_COORDINATOR,
    TRANSACTION_MAX_TIMEOUT_IN_SECONDS,
    TRANSACTION_LOG_BATCHED_WRITE_MAX_RECORDS,
    TRANSACTION_LOG_BATCHED_WRITE_MAX_SIZE,
    TRANSACTION_LOG_BATCHED_WRITE_MAX_DELAY_IN_MILLIS,
)
"""Limits of coordinators, see `transactions.coordinator.rules.coordinator_settings`."""

POLICIES: Final[Mapping[str, Policy]] = {
    each.name: each
    for value in [*globals().values()]
    for each in (value if isinstance(value, DispatchRatePolicies) else (value,))
    if isinstance(each, Policy)
}
"""All policies above, by name."""


def policy_named(name: str) -> Policy:
    """Raises InvalidOption for a name that is none of `POLICIES`."""
    found = POLICIES.get(name)
    if found is None:
        near = get_close_matches(name, POLICIES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(POLICIES)}"
        raise errors.InvalidOption(f"there is no policy {name!r:.60}; {hint}")
    return found


def tenant_level(tenant: str) -> str:
    """The place of a tenant's policies. No namespace has this name."""
    return tenant + _EACH_NAMESPACE


def is_tenant_level(place: str) -> bool:
    return place.endswith(_EACH_NAMESPACE)


def check_level(name: str, *, cluster: bool, topic: bool = False, tenant: bool = False) -> None:
    """Raises InvalidOption: there is no such policy, or topics or tenants have none, or it is the cluster's and set
    elsewhere."""
    if tenant:
        if not policy_named(name).of_tenants:
            raise errors.InvalidOption(f"policy {name} is none of tenants: set it for their namespaces")
        return
    if policy_named(name).of_cluster and not cluster:
        raise errors.InvalidOption(f"policy {name} is one of the cluster: set it with pok cluster policy")
    if topic and not policy_named(name).of_topics:
        raise errors.InvalidOption(f"policy {name} is one of namespaces: set it with pok namespaces policy")


def with_policies(policies: Mapping[str, Any], values: Mapping[str, object]) -> Mapping[str, Any]:
    """`policies` with these values by name; the same object when they are set already. Raises InvalidOption."""
    kept = {name: policy_named(name).taken(value) for name, value in values.items()}
    if all(name in policies and policies[name] == value for name, value in kept.items()):
        return policies
    return _checked_together({**policies, **kept})


def with_policy(policies: Mapping[str, Any], name: str, value: object) -> Mapping[str, Any]:
    """`with_policies` for one."""
    return with_policies(policies, {name: value})


def without_policies(policies: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """`policies` without these; the same object when none was set. Raises InvalidOption for an unknown name."""
    removed = {policy_named(name).name for name in names}
    return policies if removed.isdisjoint(policies) else {k: v for k, v in policies.items() if k not in removed}


def _checked_together(policies: Mapping[str, Any]) -> Mapping[str, Any]:
    """Raises InvalidOption for values that mean nothing beside each other."""
    minutes, megabytes = (policies.get(each.name) for each in (RETENTION_TIME_IN_MINUTES, RETENTION_SIZE_IN_MB))
    if minutes is not None and megabytes is not None and (minutes == 0) != (megabytes == 0):
        raise errors.InvalidOption(
            f"retention of {minutes} minutes and {megabytes} MB keeps nothing: set both to 0, or none (-1 sets no "
            f"bound), or remove {RETENTION_SIZE_IN_MB.name if minutes == 0 else RETENTION_TIME_IN_MINUTES.name} first"
        )
    return policies


def applied_retention(*levels: Mapping[str, Any]) -> tuple[int, int]:
    """(minutes, megabytes) of the first level (topic, then namespace) that sets any of the two; (0, 0) without one.

    Where a level sets one of them alone, the other one sets no bound: it is -1, or 0 beside a 0.
    """
    for policies in levels:
        minutes, megabytes = (policies.get(each.name) for each in (RETENTION_TIME_IN_MINUTES, RETENTION_SIZE_IN_MB))
        if minutes is None and megabytes is None:
            continue
        unset = 0 if 0 in (minutes, megabytes) else -1
        return unset if minutes is None else minutes, unset if megabytes is None else megabytes
    return RETENTION_TIME_IN_MINUTES.default, RETENTION_SIZE_IN_MB.default


def applied(policy: Policy, *levels: Mapping[str, Any]) -> Any:
    """The value that counts where these are set: a topic's own, then its namespace's, then the cluster's."""
    if policy.together == _RETENTION:
        return applied_retention(*levels)[policy is RETENTION_SIZE_IN_MB]
    for own in levels:
        if any(_is_set(each, own) for each in _with(policy)):
            return own[policy.name] if _is_set(policy, own) else policy.default
    return policy.default


def inherited(namespace: Mapping[str, Any], cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    """Policies that the topics of a namespace with these inherit in a cluster with those: one level made of two."""
    if not cluster:
        return namespace
    set_below = {each.name for policy in POLICIES.values() if _is_set(policy, namespace) for each in _with(policy)}
    return {**namespace, **{name: value for name, value in cluster.items() if name not in set_below}}


def _is_set(policy: Policy, own: Mapping[str, Any]) -> bool:
    return bool(own.get(policy.name, policy.undefined) != policy.undefined)


def _with(policy: Policy) -> tuple[Policy, ...]:
    """The policy, and those that are inherited together with it."""
    if not policy.together:
        return (policy,)
    return tuple(each for each in POLICIES.values() if each.together == policy.together)
