"""Options of commands that speak to a Pulsar cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from pulsar_on_kafka.cli.shared.output import CommandFailed
from pulsar_on_kafka.clusters.migration.from_pulsar.reading import PulsarAddress
from pulsar_on_kafka_mapping.state.clusters.tenant_records import ImportRecord

BROKER_SCHEMES: Final = ("pulsar", "pulsar+ssl")
WEB_SCHEMES: Final = ("http", "https")

TenantArgument = Annotated[str, typer.Argument(metavar="TENANT", help="Its name, in Pulsar and here.")]


@dataclass(frozen=True)
class AccessOptions:
    """Login at Pulsar, and the way its connections and messages are protected."""

    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="A JSON Web Token for Pulsar.", exists=True, dir_okay=False),
    ] = None
    trust_certs: Annotated[
        Path | None,
        typer.Option(
            "--trust-certs",
            metavar="FILE",
            help="The authorities that signed Pulsar's certificates.",
            exists=True,
            dir_okay=False,
        ),
    ] = None


PrivateKeyOption = Annotated[
    Path | None,
    typer.Option(
        "--private-key", metavar="FILE", exists=True, dir_okay=False,
        help="Decrypts encrypted messages, which are stored in clear then.",
    ),
]  # fmt: skip


def pulsar_address(
    option: str,
    service_url: str | None,
    admin_url: str | None,
    known: ImportRecord | None,
    access: AccessOptions,
    private_key: Path | None,
) -> PulsarAddress:
    """The address by the options, or that of the tenant's import. `option` is the name of that of `service_url`. Raises
    CommandFailed."""
    service_url = service_url or (known.service_url if known is not None else None)
    admin_url = admin_url or (known.admin_url if known is not None else None)
    if service_url is None or admin_url is None:
        raise CommandFailed(f"name Pulsar's address: {option} pulsar://HOST:6650 --admin http://HOST:8080")
    for url, schemes in ((service_url, BROKER_SCHEMES), (admin_url, WEB_SCHEMES)):
        require_scheme(url, schemes, "Pulsar")
    token = access.token_file.read_text(encoding="utf-8").strip() if access.token_file is not None else ""
    return PulsarAddress(service_url, admin_url, token, str(access.trust_certs or ""), str(private_key or ""))


def require_scheme(url: str, schemes: tuple[str, str], whose: str) -> None:
    """Raises CommandFailed: the address has another scheme."""
    if url.partition("://")[0] not in schemes:
        raise CommandFailed(f"{url} is no address of {whose}, expected {schemes[0]}:// or {schemes[1]}://")
