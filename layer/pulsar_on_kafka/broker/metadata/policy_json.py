"""Pulsar's JSON of policies: the fields of its `Policies`, and the policies that each of them holds. Pure.

The REST of a gateway reads and writes this JSON, and an import from Pulsar reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.broker.metadata import policies
from pulsar_on_kafka.broker.metadata.policies import Policy, applied

_VALUE: Final = ""
"""The part of a field whose value is that of its only policy."""


@dataclass(frozen=True, slots=True)
class PolicyField:
    """A field of Pulsar's `Policies`: the value of one policy, or an object of several."""

    path: tuple[str, ...]
    """Steps from the top of the JSON."""
    parts: Mapping[str, Policy]
    """The policies of an object, by the name of the part; `_VALUE` alone where the field is no object."""
    unset: tuple[object, ...] = (None,)
    """Values that Pulsar returns for an unset policy; the first one is written for it."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the policies."""
        return tuple(policy.name for policy in self.parts.values())

    def in_policies(self, reported: Mapping[str, Any]) -> Any:
        """The field's value in Pulsar's `Policies`; None without one, or an unset one."""
        value: Any = reported
        for step in self.path:
            value = value.get(step) if isinstance(value, Mapping) else None
        return None if value in self.unset else value

    def each(self, value: Any) -> Iterator[tuple[str, Policy, Any]]:
        """(Part, policy, value) of each part that has a value, unchecked."""
        for part, policy in self.parts.items():
            found = value if part == _VALUE else value.get(part) if isinstance(value, Mapping) else None
            if found is not None:
                yield part, policy, found

    def read(self, value: Any) -> dict[str, Any]:
        """Policies by name; parts that are missing have their defaults. Raises InvalidOption."""
        if _VALUE not in self.parts and not isinstance(value, Mapping):
            raise errors.InvalidOption(f"{self.path[-1]} takes {', '.join(self.parts)}, got {value!r:.120}")
        found = {policy.name: policy.default for policy in self.parts.values()}
        found |= {policy.name: policy.taken(given) for _, policy, given in self.each(value)}
        return found

    def write(self, own: Mapping[str, Any]) -> Any:
        """The field's value where these policies are set; the unset one where none of its own is."""
        if all(own.get(policy.name, policy.undefined) == policy.undefined for policy in self.parts.values()):
            return self.unset[0]
        found = {part: applied(policy, own) for part, policy in self.parts.items()}
        return found.get(_VALUE, found)


_ALLOWED: Final = "allowAutoTopicCreation"
_PARTITIONS: Final = "defaultNumPartitions"


class _AutoTopics(PolicyField):
    """The creation of topics by clients. Source: Pulsar's AutoTopicCreationOverride.validateOverride."""

    def read(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Mapping):
            if value.get(_ALLOWED) is False:
                return super().read({_ALLOWED: False})
            partitions, wrong = value.get(_PARTITIONS), ""
            if value.get("topicType") != policies.PARTITIONED:
                wrong = "is not allowed to be set when the type is non-partition." if partitions is not None else ""
            elif partitions is None:
                wrong = "cannot be null when the type is partitioned."
            elif isinstance(partitions, int) and partitions < 1:
                wrong = "cannot be less than 1 for partition type."
            if wrong:
                reason = f"Invalid configuration for autoTopicCreationOverride. the detail is [{_PARTITIONS}] {wrong}"
                raise errors.InvalidOption(reason)
        return super().read(value)

    def write(self, own: Mapping[str, Any]) -> Any:
        found = super().write(own)
        if found is not None and found["topicType"] != policies.PARTITIONED:
            del found[_PARTITIONS]
        return found


def _field(name: str, policy: Policy, *unset: object) -> PolicyField:
    return PolicyField((name,), {_VALUE: policy}, unset or (None,))


RETENTION: Final = PolicyField(
    ("retention_policies",),
    {
        "retentionTimeInMinutes": policies.RETENTION_TIME_IN_MINUTES,
        "retentionSizeInMB": policies.RETENTION_SIZE_IN_MB,
    },
)
MESSAGE_TTL: Final = _field("message_ttl_in_seconds", policies.MESSAGE_TTL_IN_SECONDS)
DEDUPLICATION: Final = _field("deduplicationEnabled", policies.DEDUPLICATION)
COMPACTION_THRESHOLD: Final = _field("compaction_threshold", policies.COMPACTION_THRESHOLD)
SUBSCRIPTION_EXPIRATION: Final = _field(
    "subscription_expiration_time_minutes", policies.SUBSCRIPTION_EXPIRATION_TIME_MINUTES
)
SCHEMA_STRATEGY: Final = _field(
    "schema_compatibility_strategy",
    policies.SCHEMA_COMPATIBILITY_STRATEGY,
    policies.SCHEMA_COMPATIBILITY_STRATEGY.undefined,
    None,
)
SCHEMA_VALIDATION: Final = _field("schema_validation_enforced", policies.SCHEMA_VALIDATION_ENFORCED, False, None)
AUTO_UPDATE_SCHEMA: Final = _field("is_allow_auto_update_schema", policies.IS_ALLOW_AUTO_UPDATE_SCHEMA)
INACTIVE_TOPICS: Final = PolicyField(
    ("inactive_topic_policies",),
    {
        "inactiveTopicDeleteMode": policies.INACTIVE_TOPIC_DELETE_MODE,
        "maxInactiveDurationSeconds": policies.MAX_INACTIVE_DURATION_SECONDS,
        "deleteWhileInactive": policies.DELETE_WHILE_INACTIVE,
    },
)
BACKLOG_QUOTAS: Final[Mapping[str, PolicyField]] = {
    "destination_storage": PolicyField(
        ("backlog_quota_map", "destination_storage"),
        {
            "limitSize": policies.BACKLOG_QUOTA_LIMIT_SIZE,
            "policy": policies.BACKLOG_QUOTA_LIMIT_SIZE_ACTION,
        },
    ),
    "message_age": PolicyField(
        ("backlog_quota_map", "message_age"),
        {
            "limitTime": policies.BACKLOG_QUOTA_LIMIT_TIME,
            "policy": policies.BACKLOG_QUOTA_LIMIT_TIME_ACTION,
        },
    ),
}
AUTO_TOPICS: Final = _AutoTopics(
    ("autoTopicCreationOverride",),
    {
        _ALLOWED: policies.ALLOW_AUTO_TOPIC_CREATION,
        "topicType": policies.ALLOW_AUTO_TOPIC_CREATION_TYPE,
        _PARTITIONS: policies.DEFAULT_NUM_PARTITIONS,
    },
)
AUTO_SUBSCRIPTIONS: Final = PolicyField(
    ("autoSubscriptionCreationOverride",),
    {"allowAutoSubscriptionCreation": policies.ALLOW_AUTO_SUBSCRIPTION_CREATION},
)
MAX_PRODUCERS: Final = _field("max_producers_per_topic", policies.MAX_PRODUCERS_PER_TOPIC)
MAX_CONSUMERS: Final = _field("max_consumers_per_topic", policies.MAX_CONSUMERS_PER_TOPIC)
MAX_CONSUMERS_PER_SUBSCRIPTION: Final = _field(
    "max_consumers_per_subscription", policies.MAX_CONSUMERS_PER_SUBSCRIPTION
)
MAX_SUBSCRIPTIONS: Final = _field("max_subscriptions_per_topic", policies.MAX_SUBSCRIPTIONS_PER_TOPIC)
MAX_UNACKED_ON_CONSUMER: Final = _field("max_unacked_messages_per_consumer", policies.MAX_UNACKED_MESSAGES_ON_CONSUMER)
MAX_UNACKED_ON_SUBSCRIPTION: Final = _field(
    "max_unacked_messages_per_subscription", policies.MAX_UNACKED_MESSAGES_ON_SUBSCRIPTION
)
ORDERED_REDELIVERY: Final = _field("ordered_redelivery", policies.ORDERED_REDELIVERY)
"""Not in Pulsar's `Policies`."""
MAX_TOPICS: Final = _field("max_topics_per_namespace", policies.MAX_TOPICS_PER_NAMESPACE)


def _dispatch_rate(name: str, rate: policies.DispatchRatePolicies) -> PolicyField:
    return PolicyField(
        (name,),
        {
            "dispatchThrottlingRateInMsg": rate.in_msg,
            "dispatchThrottlingRateInByte": rate.in_byte,
            "relativeToPublishRate": rate.relative_to_publish_rate,
            "ratePeriodInSecond": rate.period_in_second,
        },
    )


PUBLISH_RATE: Final = PolicyField(
    ("publishMaxMessageRate",),
    {
        "publishThrottlingRateInMsg": policies.PUBLISH_THROTTLING_RATE_IN_MSG,
        "publishThrottlingRateInByte": policies.PUBLISH_THROTTLING_RATE_IN_BYTE,
    },
)
DISPATCH_RATE: Final = _dispatch_rate("topicDispatchRate", policies.DISPATCH_RATE)
SUBSCRIPTION_DISPATCH_RATE: Final = _dispatch_rate("subscriptionDispatchRate", policies.SUBSCRIPTION_DISPATCH_RATE)
REPLICATOR_DISPATCH_RATE: Final = _dispatch_rate("replicatorDispatchRate", policies.REPLICATOR_DISPATCH_RATE)
RATES: Final = (PUBLISH_RATE, DISPATCH_RATE, SUBSCRIPTION_DISPATCH_RATE, REPLICATOR_DISPATCH_RATE)
"""Fields that `Policies` has by the name of a cluster: `with_rates_of`, `rates_by_cluster`."""


def with_rates_of(cluster: str | None, reported: Mapping[str, Any]) -> Mapping[str, Any]:
    """Pulsar's `Policies` with the rates of this cluster in the place of those by cluster. None: the only cluster."""
    found: dict[str, Any] = {}
    for each in RATES:
        by_cluster = each.in_policies(reported)
        rates = by_cluster if isinstance(by_cluster, Mapping) else {}
        only = next(iter(rates)) if len(rates) == 1 else None
        found[each.path[0]] = rates.get(only if cluster is None else cluster)
    return {**reported, **found}


def rates_by_cluster(cluster: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """These policies' rates, as `Policies` has them: empty where none is set."""
    found = {each.path[0]: each.write(own) for each in RATES}
    return {name: {} if rate is None else {cluster: rate} for name, rate in found.items()}


REPLICATION: Final = _field("replication_clusters", policies.REPLICATION_CLUSTERS)

FIELDS: Final = (
    RETENTION,
    MESSAGE_TTL,
    DEDUPLICATION,
    COMPACTION_THRESHOLD,
    SUBSCRIPTION_EXPIRATION,
    SCHEMA_STRATEGY,
    SCHEMA_VALIDATION,
    AUTO_UPDATE_SCHEMA,
    INACTIVE_TOPICS,
    *BACKLOG_QUOTAS.values(),
    AUTO_TOPICS,
    AUTO_SUBSCRIPTIONS,
    MAX_PRODUCERS,
    MAX_CONSUMERS,
    MAX_CONSUMERS_PER_SUBSCRIPTION,
    MAX_SUBSCRIPTIONS,
    MAX_UNACKED_ON_CONSUMER,
    MAX_UNACKED_ON_SUBSCRIPTION,
    MAX_TOPICS,
    *RATES,
)
"""The fields whose values mean the same in another cluster; `REPLICATION` names clusters."""
