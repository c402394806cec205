"""Options of `pok serve --with schema-registry`. What a registry needs is imported where it is made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pulsar_on_kafka.base.http_server import ServerTls, read_tokens
from pulsar_on_kafka.cli.shared.http_options import LOCAL
from pulsar_on_kafka.cli.shared.output import CommandFailed

if TYPE_CHECKING:
    from pulsar_on_kafka.integrations.schema_registry.server import SchemaRegistryServer

SCHEMA_REGISTRY_PORT: Final = 8081


@dataclass(frozen=True)
class SchemaRegistryOptions:
    """The address of the schema registry, and its users; the certificate is that of `ListenOptions`."""

    schema_registry_host: Annotated[
        str,
        typer.Option(
            "--schema-registry-host",
            metavar="ADDRESS",
            help="The address that the schema registry listens on; others than this machine's own need "
            "--schema-registry-users-file.",
        ),
    ] = LOCAL
    schema_registry_port: Annotated[
        int, typer.Option("--schema-registry-port", min=0, max=65535, help="The schema registry's port; 0: a free one.")
    ] = SCHEMA_REGISTRY_PORT
    schema_registry_users_file: Annotated[
        str,
        typer.Option(
            "--schema-registry-users-file",
            metavar="FILE",
            help="A file with a line NAME TOKEN for each user of the schema registry (basic auth).",
        ),
    ] = ""

    @contextmanager
    def serving(self, tls: ServerTls) -> Iterator[SchemaRegistryServer]:
        """A schema registry that listens; it replies 50001 until it is connected.

        Raises:
            CommandFailed: the extra is not installed.
            InvalidOption: it cannot listen there, or a file is none.
        """
        try:
            from pulsar_on_kafka.integrations.schema_registry.server import SchemaRegistryServer
        except ModuleNotFoundError as missing:
            library = (missing.name or "").partition(".")[0]
            raise CommandFailed(
                f"--with schema-registry needs {library}: pip install 'pulsar-on-kafka[schema-registry]'"
            ) from missing
        users = read_tokens(self.schema_registry_users_file, "user") if self.schema_registry_users_file else None
        server = SchemaRegistryServer(self.schema_registry_host, self.schema_registry_port, tls, users)
        try:
            yield server
        finally:
            server.close()
