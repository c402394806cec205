"""Options of the gateway, which `pok gateway` and `pok serve --with gateway` share.

`pok serve` imports this module also where it runs no gateway: what a gateway needs is imported where it is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.http_server import Guard
from pulsar_on_kafka.cli.shared.http_options import LOCAL
from pulsar_on_kafka.cli.shared.output import CommandFailed

if TYPE_CHECKING:
    from pulsar_on_kafka.admin import AdminClient
    from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings

GATEWAY_PORT: Final = 6650
"""Pulsar's."""


@dataclass(frozen=True)
class GatewayOptions:
    """What a gateway tells its clients; where it listens is said beside it."""

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

    def settings(self, host: str, port: int, guard: Guard) -> GatewaySettings:
        """Raises CommandFailed: the extra is not installed."""
        try:
            from pulsar_on_kafka.gateway.server import GatewaySettings
        except ModuleNotFoundError as missing:
            raise CommandFailed(f"a gateway needs {missing.name}: pip install 'pulsar-on-kafka[gateway]'") from missing
        return GatewaySettings(host, port, self.advertised, guard, self.fleet)


@dataclass(frozen=True)
class GatewayPlace:
    """Where the gateway of `pok serve --with gateway` listens."""

    gateway_host: Annotated[
        str, typer.Option("--gateway-host", metavar="ADDRESS", help="The address that the gateway listens on.")
    ] = LOCAL
    gateway_port: Annotated[
        int, typer.Option("--gateway-port", min=0, max=65535, help="The gateway's port; 0: a free one.")
    ] = GATEWAY_PORT


@contextmanager
def gateway_of(admin: AdminClient, settings: GatewaySettings, stop_timeout_s: float) -> Iterator[Gateway]:
    """A gateway that serves meanwhile. Raises InvalidOption: it cannot listen there."""
    from pulsar_on_kafka.gateway.server import Gateway

    serving = Gateway(admin.node, settings)
    try:
        yield serving
    finally:
        serving.close(Deadline.after(stop_timeout_s))
