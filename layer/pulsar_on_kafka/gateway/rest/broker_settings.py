"""Policies of the cluster and of tenants over REST: as Pulsar's dynamic configuration of brokers, and as a part of a
tenant, which Pulsar does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pulsar_on_kafka.admin import CLUSTER, AdminClient
from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.broker.metadata import policies
from pulsar_on_kafka.broker.metadata.policies import Policy, tenant_level
from pulsar_on_kafka.gateway.rest.request import RestError, RestRequest

_SETTINGS: Final[Mapping[str, Policy]] = {
    "maxUnackedMessagesPerConsumer": policies.MAX_UNACKED_MESSAGES_ON_CONSUMER,
    "maxUnackedMessagesPerSubscription": policies.MAX_UNACKED_MESSAGES_ON_SUBSCRIPTION,
    "replicatedSubscriptionsSnapshotFrequencyMillis": policies.REPLICATED_SUBSCRIPTIONS_SNAPSHOT_FREQUENCY_MILLIS,
    "reconsumeLaterOfTopicTwoPhaseDeletionInSeconds": policies.RECONSUME_LATER_OF_TOPIC_TWO_PHASE_DELETION_IN_SECONDS,
    "transactionCoordinatorEnabled": policies.TRANSACTION_COORDINATOR_ENABLED,
}
"""The policies of the cluster, by Pulsar's name of the broker's setting."""


def names(request: RestRequest) -> list[str]:
    return list(_SETTINGS)


def values(request: RestRequest) -> dict[str, str]:
    """The settings that are set."""
    own = request.admin.policies(CLUSTER)
    return {name: text_of(own[policy.name]) for name, policy in _SETTINGS.items() if policy.name in own}


def applied(admin: AdminClient) -> dict[str, str]:
    """The effective value of each setting."""
    found = admin.applied_policies(CLUSTER)
    return {name: text_of(found[policy.name]) for name, policy in _SETTINGS.items()}


def set_value(request: RestRequest) -> None:
    """Raises RestError: there is no such setting, or it does not take this value."""
    policy = _policy(request)
    try:
        value = policy.parse(request.names["value"])
    except InvalidOption as wrong:
        raise RestError(412, str(wrong)) from wrong
    request.admin.set_policy(CLUSTER, policy.name, value)


def remove_value(request: RestRequest) -> None:
    """Raises RestError: there is no such setting."""
    request.admin.remove_policy(CLUSTER, _policy(request).name)


def of_tenant(request: RestRequest) -> Any:
    """Whether a tenant has transactions; None: as the cluster. Raises NoSuchTenant."""
    request.admin.get_tenant_info(request.names["tenant"])
    where = tenant_level(request.names["tenant"])
    return request.admin.get_policy(where, policies.TRANSACTION_COORDINATOR_ENABLED.name)


def set_of_tenant(request: RestRequest) -> None:
    """Raises NoSuchTenant; RestError: the body is neither true nor false."""
    request.admin.get_tenant_info(request.names["tenant"])
    value = request.json()
    if not isinstance(value, bool):
        raise RestError(400, f"transactionCoordinatorEnabled takes true or false, got {value!r:.60}")
    where = tenant_level(request.names["tenant"])
    request.admin.set_policy(where, policies.TRANSACTION_COORDINATOR_ENABLED.name, value)


def remove_of_tenant(request: RestRequest) -> None:
    """Raises NoSuchTenant."""
    request.admin.get_tenant_info(request.names["tenant"])
    where = tenant_level(request.names["tenant"])
    request.admin.remove_policy(where, policies.TRANSACTION_COORDINATOR_ENABLED.name)


def text_of(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _policy(request: RestRequest) -> Policy:
    found = _SETTINGS.get(request.names["setting"])
    if found is None:
        raise RestError(412, f"{request.names['setting']!r:.120} is no dynamic setting: {', '.join(_SETTINGS)} are")
    return found
