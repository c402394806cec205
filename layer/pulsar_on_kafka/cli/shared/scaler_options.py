"""Options of `pok serve --with scaler`. What a scaler needs is imported where it is made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.http_server import ServerTls
from pulsar_on_kafka.cli.shared.http_options import LOCAL
from pulsar_on_kafka.cli.shared.output import CommandFailed

if TYPE_CHECKING:
    from pulsar_on_kafka.scaler.server import ScalerServer

SCALER_PORT: Final = 9467
_ENDING_S: Final = 3.0


@dataclass(frozen=True)
class ScalerOptions:
    """The scaler's address and limits; the certificate is that of `ListenOptions`."""

    scaler_host: Annotated[
        str, typer.Option("--scaler-host", metavar="ADDRESS", help="The address that the scaler for KEDA listens on.")
    ] = LOCAL
    scaler_port: Annotated[
        int, typer.Option("--scaler-port", min=0, max=65535, help="The scaler's port; 0: a free one.")
    ] = SCALER_PORT
    scaler_interval: Annotated[
        float,
        typer.Option(
            "--scaler-interval",
            metavar="SECONDS",
            min=0.2,
            max=300,
            help="Backlogs that the scaler reports are at most this old, and one pass over the cluster.",
        ),
    ] = 5.0
    scaler_tls_trust: Annotated[
        str,
        typer.Option(
            "--scaler-tls-trust",
            metavar="FILE",
            help="The scaler requires a certificate that an authority of this file (PEM) signed.",
        ),
    ] = ""

    @contextmanager
    def serving(self, tls: ServerTls) -> Iterator[ScalerServer]:
        """A scaler that listens; it replies UNAVAILABLE until its gatherer is connected.

        Raises:
            CommandFailed: the extra is not installed.
            InvalidOption: it cannot listen there, or a file of TLS is none.
            typer.BadParameter: options that do not go together.
        """
        if self.scaler_tls_trust and not tls.certificate:
            raise typer.BadParameter("it goes with --tls-certificate", param_hint="--scaler-tls-trust")
        try:
            from pulsar_on_kafka.scaler.gathering import BacklogGatherer
            from pulsar_on_kafka.scaler.server import ScalerServer, ScalerTls
        except ModuleNotFoundError as missing:
            library = (missing.name or "").partition(".")[0]
            raise CommandFailed(f"--with scaler needs {library}: pip install 'pulsar-on-kafka[scaler]'") from missing
        gatherer = BacklogGatherer(self.scaler_interval)
        files = ScalerTls(tls.certificate, tls.key, self.scaler_tls_trust)
        server = ScalerServer(self.scaler_host, self.scaler_port, gatherer, files)
        try:
            yield server
        finally:
            deadline = Deadline.after(_ENDING_S)
            server.close(deadline)
            gatherer.close(deadline)
