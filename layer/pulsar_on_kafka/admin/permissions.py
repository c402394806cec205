"""Permissions of roles: a part of AdminClient."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pulsar_on_kafka.admin.context import AdminContext, raising_pulsar_errors
from pulsar_on_kafka.broker.metadata import permissions
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import AuthPolicies


@raising_pulsar_errors
class PermissionAdmin(AdminContext):
    """Permissions of the roles that log in to gateways. Gateways with `--authorization` apply them, within 5 s also to
    open producers and consumers. SDK programs need rights of Kafka (docs/acls.md).

    Actions are `produce` and `consume`. Every call raises TopicNotFound if the namespace does not exist,
    InvalidConfiguration for an unknown action or an empty name, and NotSupported for actions of Pulsar Functions. All
    permissions of a namespace fit into one record of 1 MiB. Source of names: Pulsar's `pulsar-admin`.
    """

    def permissions(self, namespace: str) -> AuthPolicies:
        """All permissions in a namespace."""
        return self.node.namespaces.permissions(namespace, self._deadline())

    def grant_permission(self, namespace: str, role: str, actions: Iterable[str]) -> None:
        """Grants these actions, and no others, on all topics of a namespace."""
        requested = permissions.actions_named(actions)
        self._change_permissions(namespace, lambda auth: permissions.granted(auth, role, requested))

    def revoke_permission(self, namespace: str, role: str) -> None:
        """Does nothing for a role without a grant on the namespace."""
        self._change_permissions(namespace, lambda auth: permissions.revoked(auth, role))

    def topic_permissions(self, topic: str) -> dict[str, tuple[str, ...]]:
        """Actions by role on one topic, with those on its namespace. The topic need not exist."""
        name = TopicName.parse(topic)
        return permissions.topic_permissions(self.permissions(name.namespace_name), name)

    def grant_topic_permission(self, topic: str, role: str, actions: Iterable[str]) -> None:
        """Grants these actions on a topic, besides those on its namespace. They end with the topic."""
        name, requested = TopicName.parse(topic), permissions.actions_named(actions)
        self._change_permissions(
            name.namespace_name, lambda auth: permissions.granted_on_topic(auth, name, role, requested)
        )

    def revoke_topic_permission(self, topic: str, role: str) -> None:
        """Raises NotAllowedError: the role has no grant on the topic itself."""
        name = TopicName.parse(topic)
        self._change_permissions(name.namespace_name, lambda auth: permissions.revoked_on_topic(auth, name, role))

    def grant_subscription_permission(self, namespace: str, subscription: str, roles: Iterable[str]) -> None:
        """Restricts a subscription of the namespace's topics to these roles, which must be allowed to consume."""
        named = tuple(roles)
        self._change_permissions(namespace, lambda auth: permissions.granted_on_subscription(auth, subscription, named))

    def revoke_subscription_permission(self, namespace: str, subscription: str, role: str) -> None:
        """Without any role the subscription is open again. Raises SubscriptionNotFound: it was not restricted."""
        self._change_permissions(namespace, lambda auth: permissions.revoked_on_subscription(auth, subscription, role))

    def get_subscription_auth_mode(self, namespace: str) -> str:
        """`None` or `Prefix`."""
        return self.permissions(namespace).subscription_auth_mode

    def set_subscription_auth_mode(self, namespace: str, mode: str) -> None:
        """With `Prefix` the names of a role's subscriptions have to begin with the role."""
        chosen = permissions.subscription_auth_mode(mode)
        self._change_permissions(namespace, lambda auth: permissions.with_mode(auth, chosen))

    def _change_permissions(self, namespace: str, change: Callable[[AuthPolicies], AuthPolicies]) -> None:
        self.node.namespaces.change_permissions(namespace, change, self._deadline())


def shown_permissions(auth: AuthPolicies) -> dict[str, Mapping[str, object]]:
    """Permissions in the form of Pulsar's `auth_policies`."""
    return {
        "namespace_auth": {role: list(actions) for role, actions in auth.namespace.items()},
        "destination_auth": {
            topic: {role: list(actions) for role, actions in roles.items()} for topic, roles in auth.topics.items()
        },
        "subscription_auth_roles": {name: list(roles) for name, roles in auth.subscriptions.items()},
    }
