"""Options of the commands with an HTTP server: address, access and encryption."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

import typer

from pulsar_on_kafka.base.http_server import HttpGuard, ServerTls, read_token

LOCAL: Final = "127.0.0.1"
"""The default address admits this machine's programs alone: every caller sees the names of topics and programs."""


@dataclass(frozen=True)
class ListenOptions:
    """The address besides the port, and what encrypts the connections."""

    host: Annotated[
        str, typer.Option("--host", help="The address to listen on; 0.0.0.0: all of this machine's.", metavar="ADDRESS")
    ] = LOCAL
    tls_certificate: Annotated[
        str, typer.Option("--tls-certificate", metavar="FILE", help="Encrypt connections, with this certificate (PEM).")
    ] = ""
    tls_key: Annotated[
        str, typer.Option("--tls-key", metavar="FILE", help="Its key (PEM); left out: it is in the certificate's file.")
    ] = ""

    def tls(self) -> ServerTls:
        if self.tls_key and not self.tls_certificate:
            raise typer.BadParameter("it goes with --tls-certificate", param_hint="--tls-key")
        return ServerTls(self.tls_certificate, self.tls_key)


@dataclass(frozen=True)
class HttpOptions(ListenOptions):
    """The same options for an HTTP server, with the requirements for callers."""

    token_file: Annotated[
        str,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="A file with the token that callers have to send: Authorization: Bearer ...",
        ),
    ] = ""

    def guard(self) -> HttpGuard:
        """Raises InvalidOption: the file of the token cannot be read."""
        tls = self.tls()
        return HttpGuard(tls.certificate, tls.key, read_token(self.token_file) if self.token_file else "")


CONSOLE_PORT: Final = 9466


@dataclass(frozen=True)
class ConsoleOptions:
    """The console's address, and its token; what encrypts connections is that of `HttpOptions`."""

    console_host: Annotated[
        str,
        typer.Option(
            "--console-host",
            metavar="ADDRESS",
            help="The address that the console listens on; others than this machine's own need --console-token-file.",
        ),
    ] = LOCAL
    console_port: Annotated[
        int, typer.Option("--console-port", min=0, max=65535, help="The console's port; 0: a free one.")
    ] = CONSOLE_PORT
    console_token_file: Annotated[
        str,
        typer.Option(
            "--console-token-file",
            metavar="FILE",
            help="A file with the token of those who may look (or Authorization: Bearer ...).",
        ),
    ] = ""
    console_operators_file: Annotated[
        str,
        typer.Option(
            "--console-operators-file",
            metavar="FILE",
            help="A file with a line NAME TOKEN for each operator: who logs in with such a token may also skip, reset, "
            "clear, cancel and redrive.",
        ),
    ] = ""

    def guard(self, http: HttpOptions) -> HttpGuard:
        """Raises InvalidOption: the file of the token cannot be read."""
        token = read_token(self.console_token_file) if self.console_token_file else ""
        return HttpGuard(http.tls_certificate, http.tls_key, token)
