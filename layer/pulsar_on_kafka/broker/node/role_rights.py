"""The rights of roles in a namespace: what an operation requires, and why a role may not do it. Source: Pulsar's
PulsarAuthorizationProvider, 4.0.7.

An admin role of the tenant may do everything in a namespace. All other roles need a grant.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.permissions import AuthAction, may, refusal_of_subscription
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import AuthPolicies


class Requirement(Enum):
    """The right that an operation requires."""

    LOOKUP = "LOOKUP"
    """To produce or to consume."""
    PRODUCE = "PRODUCE"
    CONSUME = "CONSUME"
    GET_TOPICS = "GET_TOPICS"
    """To consume from the whole namespace."""
    ADMINISTER = "ADMINISTER"
    """An admin role of the tenant."""


class Operation(NamedTuple):
    """One operation of a client. `words` are the reply if the role has no right."""

    requirement: Requirement
    namespace: str
    words: str
    topic: TopicName | None = None
    subscription: str = ""


def on_topic(requirement: Requirement, topic: TopicName, words: str, subscription: str = "") -> Operation:
    return Operation(requirement, topic.namespace_name, words, topic, subscription)


class NamespaceRights(NamedTuple):
    """Rights in one namespace. `auth` is None if the namespace does not exist."""

    auth: AuthPolicies | None
    admin_roles: frozenset[str]

    def refusal(self, role: str, operation: Operation) -> str | None:
        """The reason why a role may not do this; None if it may. Pure."""
        if role in self.admin_roles:
            return None
        auth, topic = self.auth, operation.topic
        if auth is None:
            return operation.words
        produces = may(auth, role, AuthAction.PRODUCE, topic)
        consumes = may(auth, role, AuthAction.CONSUME, topic)
        allowed = {
            Requirement.LOOKUP: produces or consumes,
            Requirement.PRODUCE: produces,
            Requirement.CONSUME: consumes,
            Requirement.GET_TOPICS: consumes,
            Requirement.ADMINISTER: False,
        }[operation.requirement]
        if not allowed:
            return operation.words
        if operation.requirement is Requirement.CONSUME and topic is not None and operation.subscription:
            return refusal_of_subscription(auth, role, topic, operation.subscription)
        return None


def read_rights(node: Node, namespaces: Iterable[str], deadline: Deadline) -> dict[str, NamespaceRights]:
    """The rights in each namespace, as they are in the node's cluster now. May block. Raises StoreErrors."""
    names = list(namespaces)
    auth = node.namespaces.permissions_of(names, deadline)
    tenants = {name: name.partition("/")[0] for name in names}
    admins = node.tenant_infos.admin_roles(set(tenants.values()), deadline)
    return {name: NamespaceRights(auth[name], admins[tenants[name]]) for name in names}
