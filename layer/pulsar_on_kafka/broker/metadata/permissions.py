"""Permissions in a namespace: who may produce and consume, and how grants change. Pure.

Source: Pulsar's AuthAction, AuthPolicies and PulsarAuthorizationProvider, 4.0.7. Roles have no wildcards, as there by
default (`authorizationAllowWildcardsMatching`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Final, TypeVar

from pulsar_on_kafka.base import errors
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import AuthPolicies

T = TypeVar("T")

NO_PERMISSIONS: Final = AuthPolicies()


class AuthAction(str, Enum):
    """Actions that a role may be granted."""

    PRODUCE = "produce"
    CONSUME = "consume"


_WITHOUT_SERVICE: Final = {
    "functions": "functions worker",
    "sources": "functions worker",
    "sinks": "functions worker",
    "packages": "package management",
}
"""Pulsar's other actions, and the service that they permit to use. This project has none of them."""


class SubscriptionAuthMode(str, Enum):
    """Subscription names that a role may use."""

    NONE = "None"
    """All."""
    PREFIX = "Prefix"
    """Those that begin with the role."""


def actions_named(names: Iterable[str]) -> tuple[str, ...]:
    """Actions in Pulsar's order, each once. Raises InvalidOption: no action; NotSupportedYet: an action of a service
    that this project does not have."""
    requested = set(names)
    for name in sorted(requested):
        if name in _WITHOUT_SERVICE:
            raise errors.NotSupportedYet(f"{name}: this cluster has no {_WITHOUT_SERVICE[name]} to use")
    known = [each.value for each in AuthAction]
    unknown = requested - set(known)
    if unknown:
        raise errors.InvalidOption(f"actions are {', '.join(known)}, got {', '.join(sorted(unknown))!r:.120}")
    return tuple(each for each in known if each in requested)


def subscription_auth_mode(name: str) -> SubscriptionAuthMode:
    """The mode of this name, in any case. Raises InvalidOption."""
    for mode in SubscriptionAuthMode:
        if mode.value.lower() == name.lower():
            return mode
    raise errors.InvalidOption(f"a subscription auth mode is None or Prefix, got {name!r:.60}")


# Changes ------------------------------------------------------------------------------------------------------------


def granted(auth: AuthPolicies, role: str, actions: Iterable[str]) -> AuthPolicies:
    """These actions, and no others, on all topics of the namespace."""
    return replace(auth, namespace={**auth.namespace, _role(role): actions_named(actions)})


def revoked(auth: AuthPolicies, role: str) -> AuthPolicies:
    """As in Pulsar a role without a grant is no error."""
    return replace(auth, namespace=_without(auth.namespace, role)) if role in auth.namespace else auth


def granted_on_topic(auth: AuthPolicies, topic: TopicName, role: str, actions: Iterable[str]) -> AuthPolicies:
    """These actions on a topic, besides those on its namespace. A partition's name grants them on the whole topic."""
    name = str(topic.base)
    roles = {**auth.topics.get(name, {}), _role(role): actions_named(actions)}
    return replace(auth, topics={**auth.topics, name: roles})


def revoked_on_topic(auth: AuthPolicies, topic: TopicName, role: str) -> AuthPolicies:
    """Raises Refused: the role has no grant on the topic itself."""
    name = str(topic.base)
    roles = auth.topics.get(name, {})
    if role not in roles:
        raise errors.Refused("Permissions are not set at the topic level")
    left = _without(roles, role)
    return replace(auth, topics={**auth.topics, name: left} if left else _without(auth.topics, name))


def without_topic(auth: AuthPolicies, topic: TopicName) -> AuthPolicies:
    """No grants on a topic that was deleted."""
    name = str(topic.base)
    return replace(auth, topics=_without(auth.topics, name)) if name in auth.topics else auth


def granted_on_subscription(auth: AuthPolicies, subscription: str, roles: Iterable[str]) -> AuthPolicies:
    """These roles, and no others, may use the subscription, on topics that they may consume. No role: all may."""
    if not subscription:
        raise errors.InvalidOption("Subscription should not be empty")
    named = tuple(sorted({_role(each) for each in roles}))
    return replace(auth, subscriptions={**auth.subscriptions, subscription: named})


def revoked_on_subscription(auth: AuthPolicies, subscription: str, role: str) -> AuthPolicies:
    """As in Pulsar a subscription whose last role is revoked is open to all roles that may consume.

    Raises NoSuchSubscription: no roles were granted on it."""
    if subscription not in auth.subscriptions:
        raise errors.NoSuchSubscription(f"no permissions are set on subscription {subscription}")
    left = tuple(each for each in auth.subscriptions[subscription] if each != role)
    found = {**auth.subscriptions, subscription: left} if left else _without(auth.subscriptions, subscription)
    return replace(auth, subscriptions=found)


def with_mode(auth: AuthPolicies, mode: SubscriptionAuthMode) -> AuthPolicies:
    return replace(auth, subscription_auth_mode=mode.value)


def _role(name: str) -> str:
    if not name.strip():
        raise errors.InvalidOption("Role should not be empty")
    return name


def _without(found: Mapping[str, T], name: str) -> dict[str, T]:
    return {key: value for key, value in found.items() if key != name}


# Decisions ----------------------------------------------------------------------------------------------------------


def may(auth: AuthPolicies, role: str, action: AuthAction, topic: TopicName | None = None) -> bool:
    """Whether a role was granted an action on the namespace, or on this topic of it."""
    if action.value in auth.namespace.get(role, ()):
        return True
    return topic is not None and action.value in auth.topics.get(str(topic.base), {}).get(role, ())


def refusal_of_subscription(auth: AuthPolicies, role: str, topic: TopicName, subscription: str) -> str | None:
    """The reason why a role that may consume a topic may not use this subscription; None if it may."""
    roles = auth.subscriptions.get(subscription)
    if roles and role not in roles:
        return f"{role} is not authorized to access subscription {subscription} on topic {topic}"
    if auth.subscription_auth_mode == SubscriptionAuthMode.PREFIX.value and not subscription.startswith(role):
        return (
            "Failed to create consumer - The subscription name needs to be prefixed by the authentication role, like "
            f"{role}-xxxx for topic: {topic}"
        )
    return None


def topic_permissions(auth: AuthPolicies, topic: TopicName) -> dict[str, tuple[str, ...]]:
    """Actions by role on one topic: those on its namespace, and those on the topic."""
    own = auth.topics.get(str(topic.base), {})
    found = {role: set(auth.namespace.get(role, ())) | set(own.get(role, ())) for role in {*auth.namespace, *own}}
    return {role: tuple(each.value for each in AuthAction if each.value in found[role]) for role in sorted(found)}
