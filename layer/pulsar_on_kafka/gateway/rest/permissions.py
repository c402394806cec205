"""Permissions over REST. Source: Pulsar's NamespacesBase and PersistentTopicsBase, 4.0.7."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pulsar_on_kafka.admin.permissions import shown_permissions
from pulsar_on_kafka.broker.metadata import permissions
from pulsar_on_kafka.gateway.rest.request import RestError, RestRequest
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import AuthPolicies

AUTH_FIELDS: Final = ("auth_policies", "subscription_auth_mode")
"""Fields of a namespace's policies that hold its permissions."""


def of_namespace(request: RestRequest) -> Mapping[str, object]:
    """Actions by role on the whole namespace."""
    return shown_permissions(request.admin.permissions(request.namespace))["namespace_auth"]


def of_subscriptions(request: RestRequest) -> Mapping[str, object]:
    """Roles by subscription."""
    return shown_permissions(request.admin.permissions(request.namespace))["subscription_auth_roles"]


def of_topic(request: RestRequest) -> dict[str, list[str]]:
    """Actions by role on one topic, with those on its namespace."""
    return {role: list(actions) for role, actions in request.admin.topic_permissions(request.topic).items()}


def grant(request: RestRequest) -> None:
    request.admin.grant_permission(request.namespace, request.names["role"], _names_of(request, "actions"))


def revoke(request: RestRequest) -> None:
    request.admin.revoke_permission(request.namespace, request.names["role"])


def grant_on_topic(request: RestRequest) -> None:
    request.admin.grant_topic_permission(request.topic, request.names["role"], _names_of(request, "actions"))


def revoke_on_topic(request: RestRequest) -> None:
    request.admin.revoke_topic_permission(request.topic, request.names["role"])


def grant_on_subscription(request: RestRequest) -> None:
    roles = _names_of(request, "roles")
    request.admin.grant_subscription_permission(request.namespace, request.names["subscription"], roles)


def revoke_on_subscription(request: RestRequest) -> None:
    names = request.names
    request.admin.revoke_subscription_permission(request.namespace, names["subscription"], names["role"])


def subscription_auth_mode(request: RestRequest) -> str:
    return request.admin.get_subscription_auth_mode(request.namespace)


def set_subscription_auth_mode(request: RestRequest) -> None:
    """As in Pulsar no mode is the mode `None`."""
    mode = request.json()
    if not isinstance(mode, (str, type(None))):
        raise RestError(400, f"expected a subscription auth mode, got {mode!r:.120}")
    request.admin.set_subscription_auth_mode(request.namespace, mode or permissions.SubscriptionAuthMode.NONE.value)


def auth_policies(request: RestRequest, body: Mapping[str, Any]) -> AuthPolicies:
    """The permissions in the policies of a new namespace. Raises RestError, InvalidOption, NotSupportedYet: they are
    none."""
    found = permissions.NO_PERMISSIONS
    mode = body.get("subscription_auth_mode")
    if mode is not None:
        if not isinstance(mode, str):
            raise RestError(400, f"expected a subscription auth mode, got {mode!r:.120}")
        found = permissions.with_mode(found, permissions.subscription_auth_mode(mode))
    given = _mapping("auth_policies", body.get("auth_policies"))
    for role, actions in _mapping("namespace_auth", given.get("namespace_auth")).items():
        found = permissions.granted(found, role, request.names_in("actions", actions))
    for topic, roles in _mapping("destination_auth", given.get("destination_auth")).items():
        name = TopicName.parse(topic)
        if name.namespace_name != request.namespace:
            raise RestError(400, f"topic {topic} is not in namespace {request.namespace}")
        for role, actions in _mapping(topic, roles).items():
            found = permissions.granted_on_topic(found, name, role, request.names_in("actions", actions))
    for subscription, named in _mapping("subscription_auth_roles", given.get("subscription_auth_roles")).items():
        found = permissions.granted_on_subscription(found, subscription, request.names_in("roles", named))
    return found


def _names_of(request: RestRequest, where: str) -> frozenset[str]:
    """The names in the body. Raises RestError: the body has no list of names."""
    body = request.json()
    if body is None:
        raise RestError(400, f"expected a list of {where}, got nothing")
    return request.names_in(where, body)


def _mapping(where: str, value: object) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RestError(400, f"{where} is {value!r:.120}, expected an object")
    return value
