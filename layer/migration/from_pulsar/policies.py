"""The policies of a Pulsar namespace under our names. Pure. Source of names: Pulsar's `Policies`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.metadata.policies import (
    BACKLOG_QUOTA_LIMIT_SIZE,
    BACKLOG_QUOTA_LIMIT_SIZE_ACTION,
    BACKLOG_QUOTA_LIMIT_TIME,
    BACKLOG_QUOTA_LIMIT_TIME_ACTION,
    COMPACTION_THRESHOLD,
    DEDUPLICATION,
    DELETE_WHILE_INACTIVE,
    INACTIVE_TOPIC_DELETE_MODE,
    IS_ALLOW_AUTO_UPDATE_SCHEMA,
    MAX_INACTIVE_DURATION_SECONDS,
    MESSAGE_TTL_IN_SECONDS,
    RETENTION_SIZE_IN_MB,
    RETENTION_TIME_IN_MINUTES,
    SCHEMA_COMPATIBILITY_STRATEGY,
    SCHEMA_VALIDATION_ENFORCED,
    SUBSCRIPTION_EXPIRATION_TIME_MINUTES,
    Policy,
    with_policy,
)

_PLACES: Final[tuple[tuple[Policy, tuple[str, ...]], ...]] = (
    (RETENTION_TIME_IN_MINUTES, ("retention_policies", "retentionTimeInMinutes")),
    (RETENTION_SIZE_IN_MB, ("retention_policies", "retentionSizeInMB")),
    (MESSAGE_TTL_IN_SECONDS, ("message_ttl_in_seconds",)),
    (DEDUPLICATION, ("deduplicationEnabled",)),
    (COMPACTION_THRESHOLD, ("compaction_threshold",)),
    (SUBSCRIPTION_EXPIRATION_TIME_MINUTES, ("subscription_expiration_time_minutes",)),
    (SCHEMA_COMPATIBILITY_STRATEGY, ("schema_compatibility_strategy",)),
    (SCHEMA_VALIDATION_ENFORCED, ("schema_validation_enforced",)),
    (IS_ALLOW_AUTO_UPDATE_SCHEMA, ("is_allow_auto_update_schema",)),
    (DELETE_WHILE_INACTIVE, ("inactive_topic_policies", "deleteWhileInactive")),
    (INACTIVE_TOPIC_DELETE_MODE, ("inactive_topic_policies", "inactiveTopicDeleteMode")),
    (MAX_INACTIVE_DURATION_SECONDS, ("inactive_topic_policies", "maxInactiveDurationSeconds")),
    (BACKLOG_QUOTA_LIMIT_SIZE, ("backlog_quota_map", "destination_storage", "limitSize")),
    (BACKLOG_QUOTA_LIMIT_SIZE_ACTION, ("backlog_quota_map", "destination_storage", "policy")),
    (BACKLOG_QUOTA_LIMIT_TIME, ("backlog_quota_map", "message_age", "limitTime")),
    (BACKLOG_QUOTA_LIMIT_TIME_ACTION, ("backlog_quota_map", "message_age", "policy")),
)
_UNSET: Final[Mapping[str, tuple[object, ...]]] = {
    SCHEMA_COMPATIBILITY_STRATEGY.name: ("UNDEFINED",),
    SCHEMA_VALIDATION_ENFORCED.name: (False,),
}
"""What stands there where nobody set anything, beside null."""
_NO_COUNTERPART: Final = (
    "encryption_required",
    "max_producers_per_topic",
    "max_consumers_per_topic",
    "max_consumers_per_subscription",
    "max_unacked_messages_per_consumer",
    "max_unacked_messages_per_subscription",
    "max_topics_per_namespace",
    "max_subscriptions_per_topic",
    "topicDispatchRate",
    "subscriptionDispatchRate",
    "publishMaxMessageRate",
    "clusterSubscribeRate",
    "delayed_delivery_policies",
    "offload_policies",
    "entryFilters",
)


def namespace_policies(told: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(Policies that are set there and act here, names of those that are set and do not)."""
    found: Mapping[str, Any] = {}
    left_out = [name for name in _NO_COUNTERPART if told.get(name)]
    for policy, path in _PLACES:
        value: Any = told
        for step in path:
            value = value.get(step) if isinstance(value, Mapping) else None
        if value is None or value in _UNSET.get(policy.name, ()):
            continue
        try:
            found = with_policy(found, policy.name, value)
        except InvalidOption:
            left_out.append(f"{'.'.join(path)} {value!r:.40}")
    return dict(found), tuple(left_out)
