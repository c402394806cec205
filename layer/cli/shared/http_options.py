"""Options of the commands that answer HTTP: where, to whom, and encrypted or not."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from pulsar_on_kafka.base.http_server import Guard, read_token

LOCAL: Final = "127.0.0.1"
"""This machine's programs alone, unless told otherwise: whoever asks learns which topics and programs there are."""

HostOption = Annotated[
    str, typer.Option("--host", help="The address to listen on; 0.0.0.0: all of this machine's.", metavar="ADDRESS")
]
CertificateOption = Annotated[
    str, typer.Option("--tls-certificate", metavar="FILE", help="Answer HTTPS, with this certificate (PEM).")
]
KeyOption = Annotated[
    str, typer.Option("--tls-key", metavar="FILE", help="Its key (PEM); left out: it is in the certificate's file.")
]
TokenOption = Annotated[
    str,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="A file with the token that callers have to send: Authorization: Bearer ...",
    ),
]


def guard_of(certificate: str, key: str, token_file: str) -> Guard:
    """Raises InvalidOption: the file of the token cannot be read."""
    if key and not certificate:
        raise typer.BadParameter("it goes with --tls-certificate", param_hint="--tls-key")
    return Guard(certificate, key, read_token(token_file) if token_file else "")
