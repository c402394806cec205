"""Options of the gateway, which `pok gateway` and `pok serve --with gateway` share.

`pok serve` imports this module also where it runs no gateway: what a gateway needs is imported where it is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.base.http_server import ServerTls
from pulsar_on_kafka.cli.shared.http_options import LOCAL
from pulsar_on_kafka.cli.shared.output import CommandFailed
from pulsar_on_kafka.kafka.settings import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from pulsar_on_kafka.admin import AdminClient
    from pulsar_on_kafka.cli.shared.settings import Settings
    from pulsar_on_kafka.gateway.server import GatewaySettings
    from pulsar_on_kafka.gateway.tenants.served_tenants import TenantFollower

GATEWAY_PORT: Final = 6650
"""Pulsar's."""
REST_PORT: Final = 8080
"""The same."""
_REST: Final = "pulsar_on_kafka.gateway.rest.server"


@dataclass(frozen=True)
class GatewayOptions:
    """Options of a gateway for its clients and their logins; its address has separate options."""

    advertised: Annotated[
        str,
        typer.Option(
            "--advertised",
            metavar="HOST",
            help="The name by which clients of the gateway reach this host; left out: the address it listens on.",
        ),
    ] = ""
    fleet: Annotated[
        str,
        typer.Option("--fleet", metavar="NAME", help="Gateways of one fleet share the topics; each fleet serves all."),
    ] = ""
    token_secret_key: Annotated[
        str,
        typer.Option(
            "--token-secret-key",
            metavar="FILE",
            help="Clients log in with a token (JWT) that was signed with this secret key, of 32 bytes or more.",
        ),
    ] = ""
    token_public_key: Annotated[
        str,
        typer.Option(
            "--token-public-key",
            metavar="FILE",
            help="The same with a token whose signature this public key (PEM or DER) proves.",
        ),
    ] = ""
    tls_trust: Annotated[
        str,
        typer.Option(
            "--tls-trust",
            metavar="FILE",
            help="Clients log in with a certificate that an authority of this file (PEM) signed.",
        ),
    ] = ""
    super_users: Annotated[
        list[str] | None,
        typer.Option(
            "--super-user",
            metavar="ROLE",
            help="A role that may do everything, also over REST: the token's subject or the certificate's common name. "
            "May be repeated.",
        ),
    ] = None
    anonymous_role: Annotated[
        str,
        typer.Option(
            "--anonymous-role",
            metavar="ROLE",
            help="The role of clients without a token or a certificate. Without it such clients may not connect.",
        ),
    ] = ""
    authorization: Annotated[
        bool,
        typer.Option(
            "--authorization",
            help="Roles may do only what `pok permissions` granted, also operators of the console. Without it every "
            "role that logs in may produce and consume everything.",
        ),
    ] = False
    session_grace: Annotated[
        float,
        typer.Option(
            "--session-grace",
            metavar="SECONDS",
            min=0,
            max=86_400,
            help="How long a V5 stream consumer whose connection is lost keeps its partitions.",
        ),
    ] = 60.0
    http_port: Annotated[
        int, typer.Option("--http-port", min=0, max=65535, help="Where the gateway answers REST; 0: a free one.")
    ] = REST_PORT

    max_message_size: Annotated[
        int,
        typer.Option(
            "--max-message-size",
            metavar="BYTES",
            min=1024,
            max=MAX_MESSAGE_BYTES,
            help="Clients send larger messages in chunks, or fail them.",
        ),
    ] = MAX_MESSAGE_BYTES

    def settings(self, host: str, port: int, tls: ServerTls) -> GatewaySettings:
        """Raises CommandFailed: the extra is not installed. InvalidOption: a key is none. typer.BadParameter: options
        that do not go together."""
        if self.token_secret_key and self.token_public_key:
            raise typer.BadParameter("tokens are proven by one key", param_hint="--token-public-key")
        if self.tls_trust and not tls.certificate:
            raise typer.BadParameter("it goes with --tls-certificate", param_hint="--tls-trust")
        try:
            from pulsar_on_kafka.gateway.login.access import GatewayAccess, TokenKey
            from pulsar_on_kafka.gateway.server import GatewaySettings

            import_module(_REST)
        except ModuleNotFoundError as missing:
            library = (missing.name or "").partition(".")[0]
            raise CommandFailed(f"a gateway needs {library}: pip install 'pulsar-on-kafka[gateway]'") from missing
        tokens = None
        if self.token_secret_key:
            tokens = TokenKey.secret(self.token_secret_key)
        elif self.token_public_key:
            tokens = TokenKey.public(self.token_public_key)
        for option, is_given in (
            ("--super-user", bool(self.super_users)),
            ("--authorization", self.authorization),
            ("--anonymous-role", bool(self.anonymous_role)),
        ):
            if is_given and not (tokens or self.tls_trust):
                raise typer.BadParameter(
                    "no client logs in: it requires a key of tokens or --tls-trust", param_hint=option
                )
        users = frozenset(self.super_users or ())
        access = GatewayAccess(tokens, bool(self.tls_trust), users, self.authorization, self.anonymous_role)
        return GatewaySettings(
            host,
            port,
            self.advertised,
            tls,
            self.fleet,
            self.tls_trust,
            access,
            self.http_port,
            session_grace_s=self.session_grace,
            max_message_bytes=self.max_message_size,
        )


@dataclass(frozen=True)
class GatewayPlace:
    """The address of the gateway of `pok serve --with gateway`."""

    gateway_host: Annotated[
        str, typer.Option("--gateway-host", metavar="ADDRESS", help="The address that the gateway listens on.")
    ] = LOCAL
    gateway_port: Annotated[
        int, typer.Option("--gateway-port", min=0, max=65535, help="The gateway's port; 0: a free one.")
    ] = GATEWAY_PORT


@contextmanager
def served_cluster(settings: Settings, cluster: str) -> Iterator[tuple[str, TenantFollower | None]]:
    """The service URL of a gateway's Kafka cluster, and the map that the gateway follows; None without a map.

    Raises:
        typer.BadParameter: a map without the cluster's name, or a name without a map.
        LookupFailed: the map cannot be read, or has no such cluster.
    """
    from pulsar_on_kafka.client.failover.tenant_connections import directory_of
    from pulsar_on_kafka.clusters.cluster_admins import ClusterAdmins
    from pulsar_on_kafka.gateway.tenants.served_tenants import TenantFollower

    if not settings.follows_tenants:
        if cluster:
            reason = f"it goes with a map of tenants as --url, pok+lookup:// or pok+map://, got {settings.url}"
            raise typer.BadParameter(reason, param_hint="--cluster")
        yield settings.url, None
        return
    try:
        directory = directory_of(settings.url)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--url") from error
    if directory is None:
        raise typer.BadParameter(f"expected pok+lookup:// or pok+map://, got {settings.url}", param_hint="--url")
    if not cluster:
        raise typer.BadParameter(
            f"a gateway serves one cluster of the map {settings.url}: name it", param_hint="--cluster"
        )
    admins = ClusterAdmins(settings.kafka_config, settings.instance)
    try:
        yield directory.tenant_map().service_url(cluster), TenantFollower(cluster, directory, admins)
    finally:
        directory.close()
        admins.close()


@contextmanager
def gateway_of(
    admin: AdminClient, settings: GatewaySettings, stop_timeout_s: float, follower: TenantFollower | None = None
) -> Iterator[tuple[str, str]]:
    """The URLs of a gateway and of its REST, which serve meanwhile. Raises InvalidOption: one cannot listen there, or
    the cluster has another name than its tenants' map gives it."""
    from pulsar_on_kafka.gateway.rest.server import RestServer
    from pulsar_on_kafka.gateway.server import Gateway

    if follower is not None and (name := admin.local_cluster() or follower.cluster) != follower.cluster:
        raise InvalidOption(f"cluster {follower.cluster} of the map calls itself {name} (pok clusters local)")
    serving = Gateway(admin.node, settings, follower)
    try:
        rest = RestServer(admin, serving, settings)
        try:
            yield serving.address(), rest.url()
        finally:
            rest.close()
    finally:
        serving.close(Deadline.after(stop_timeout_s))
