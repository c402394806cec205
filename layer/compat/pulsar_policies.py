"""Policies of a namespace under our names, as the requests that set them in Pulsar's REST API. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pulsar_on_kafka.metadata.policies import (
    BACKLOG_QUOTA_LIMIT_SIZE,
    BACKLOG_QUOTA_LIMIT_SIZE_ACTION,
    BACKLOG_QUOTA_LIMIT_TIME,
    BACKLOG_QUOTA_LIMIT_TIME_ACTION,
    DELETE_WHILE_INACTIVE,
    INACTIVE_TOPIC_DELETE_MODE,
    MAX_INACTIVE_DURATION_SECONDS,
    MESSAGE_TTL_IN_SECONDS,
    SUBSCRIPTION_EXPIRATION_TIME_MINUTES,
    Policy,
)


class Request(NamedTuple):
    """A POST to `/namespaces/<namespace>/<path>`."""

    path: str
    body: Any


_NUMBERS: Final = {
    "messageTTL": MESSAGE_TTL_IN_SECONDS,
    "subscriptionExpirationTime": SUBSCRIPTION_EXPIRATION_TIME_MINUTES,
}
_OBJECTS: Final[Mapping[str, Mapping[str, Policy]]] = {
    "backlogQuota?backlogQuotaType=destination_storage": {
        "limitSize": BACKLOG_QUOTA_LIMIT_SIZE,
        "policy": BACKLOG_QUOTA_LIMIT_SIZE_ACTION,
    },
    "backlogQuota?backlogQuotaType=message_age": {
        "limitTime": BACKLOG_QUOTA_LIMIT_TIME,
        "policy": BACKLOG_QUOTA_LIMIT_TIME_ACTION,
    },
    "inactiveTopicPolicies": {
        "deleteWhileInactive": DELETE_WHILE_INACTIVE,
        "inactiveTopicDeleteMode": INACTIVE_TOPIC_DELETE_MODE,
        "maxInactiveDurationSeconds": MAX_INACTIVE_DURATION_SECONDS,
    },
}


def requests_for(policies: Mapping[str, Any]) -> list[Request]:
    """What sets these; of an object that is set in part the other parts have their defaults, as in ours.

    Raises:
        ValueError: one of them is not known here.
    """
    known = {each.name for each in _NUMBERS.values()}.union(*({p.name for p in o.values()} for o in _OBJECTS.values()))
    if strange := sorted(policies.keys() - known):
        raise ValueError(f"no request is known that sets {', '.join(strange)}; those known: {', '.join(sorted(known))}")
    found = [Request(path, policies[policy.name]) for path, policy in _NUMBERS.items() if policy.name in policies]
    for path, parts in _OBJECTS.items():
        if any(policy.name in policies for policy in parts.values()):
            body = {part: policies.get(policy.name, policy.default) for part, policy in parts.items()}
            found.append(Request(path, body))
    return found
