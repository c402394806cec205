"""`pok permissions`: permissions of the roles that log in to gateways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pulsar_on_kafka.broker.metadata.permissions import AuthAction, SubscriptionAuthMode
from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.output import show_list, show_result
from pulsar_on_kafka.cli.shared.settings import Settings

if TYPE_CHECKING:
    from pulsar_on_kafka.admin import AdminClient

app = typer.Typer(no_args_is_help=True)

WhereArgument = Annotated[
    str, typer.Argument(metavar="WHERE", help="A namespace (tenant/namespace) or a topic (tenant/namespace/topic).")
]
NamespaceArgument = Annotated[str, typer.Argument(metavar="NAMESPACE", help="tenant/namespace.")]
RoleArgument = Annotated[
    str, typer.Argument(metavar="ROLE", help="The subject of a token, or the common name of a certificate.")
]
SubscriptionArgument = Annotated[str, typer.Argument(metavar="SUBSCRIPTION")]


@command(app, "list")
def list_permissions(settings: Settings, admin: AdminClient, where: WhereArgument) -> None:
    """List the permissions in a namespace, or those on a topic with those on its namespace."""
    rows: list[tuple[str, str, str]]
    if _is_namespace(where):
        found = admin.permissions(where)
        rows = [(where, role, ", ".join(actions)) for role, actions in sorted(found.namespace.items())]
        rows += [
            (topic, role, ", ".join(actions))
            for topic, roles in sorted(found.topics.items())
            for role, actions in sorted(roles.items())
        ]
        rows += [
            (f"subscription {name}", role, "use")
            for name, roles in sorted(found.subscriptions.items())
            for role in roles
        ]
    else:
        rows = [(where, role, ", ".join(actions)) for role, actions in admin.topic_permissions(where).items()]
    columns = ("where", "role", "actions")
    show_list(settings, [dict(zip(columns, row, strict=True)) for row in rows], columns, rows)


@command(app, "grant")
def grant(
    settings: Settings,
    admin: AdminClient,
    where: WhereArgument,
    role: RoleArgument,
    actions: Annotated[
        list[AuthAction], typer.Option("--action", help="The role may do this, and nothing else. May be repeated.")
    ],
) -> None:
    """Let a role produce to or consume from a topic, or all topics of a namespace."""
    names = [each.value for each in actions]
    if _is_namespace(where):
        admin.grant_permission(where, role, names)
    else:
        admin.grant_topic_permission(where, role, names)
    reported = {"where": where, "role": role, "actions": names}
    show_result(settings, f"role {role} may {' and '.join(names)} on {where}", reported)


@command(app, "revoke")
def revoke(settings: Settings, admin: AdminClient, where: WhereArgument, role: RoleArgument) -> None:
    """Revoke a role's permissions on a namespace, or on a topic. Its producers and consumers are closed within 5 s."""
    if _is_namespace(where):
        admin.revoke_permission(where, role)
    else:
        admin.revoke_topic_permission(where, role)
    show_result(settings, f"revoked permissions of role {role} on {where}", {"where": where, "revoked": role})


@command(app, "grant-subscription")
def grant_subscription(
    settings: Settings,
    admin: AdminClient,
    namespace: NamespaceArgument,
    subscription: SubscriptionArgument,
    roles: Annotated[list[str], typer.Argument(metavar="ROLE...", help="Roles that may consume, too.")],
) -> None:
    """Restrict a subscription of a namespace's topics to these roles."""
    admin.grant_subscription_permission(namespace, subscription, roles)
    show_result(
        settings,
        f"subscription {subscription} in {namespace} is restricted to {', '.join(roles)}",
        {"where": namespace, "subscription": subscription, "roles": roles},
    )


@command(app, "revoke-subscription")
def revoke_subscription(
    settings: Settings,
    admin: AdminClient,
    namespace: NamespaceArgument,
    subscription: SubscriptionArgument,
    role: RoleArgument,
) -> None:
    """Remove a role from a restricted subscription. Without any role it is open to all that may consume."""
    admin.revoke_subscription_permission(namespace, subscription, role)
    reported = {"where": namespace, "subscription": subscription, "revoked": role}
    show_result(settings, f"revoked subscription {subscription} in {namespace} from role {role}", reported)


@command(app, "subscription-auth-mode")
def subscription_auth_mode(
    settings: Settings,
    admin: AdminClient,
    namespace: NamespaceArgument,
    mode: Annotated[
        SubscriptionAuthMode | None, typer.Argument(metavar="[MODE]", help="None, or Prefix. Left out: show it.")
    ] = None,
) -> None:
    """With Prefix, the names of a role's subscriptions begin with the role."""
    if mode is not None:
        admin.set_subscription_auth_mode(namespace, mode.value)
    found = admin.get_subscription_auth_mode(namespace)
    show_result(settings, f"subscription auth mode of {namespace} is {found}", {"where": namespace, "mode": found})


def _is_namespace(where: str) -> bool:
    return "://" not in where and where.count("/") == 1
