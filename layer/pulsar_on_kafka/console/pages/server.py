"""The console's server answers HTTP in a thread of its own."""

from __future__ import annotations

from collections.abc import Mapping

from pulsar_on_kafka.base.asgi_server import Address, AsgiServer
from pulsar_on_kafka.base.http_server import HttpGuard
from pulsar_on_kafka.console.access import ConsoleAccess
from pulsar_on_kafka.console.operators import OperatorRights
from pulsar_on_kafka.console.pages.app import pages_app
from pulsar_on_kafka.console.pages.renderer import PageRenderer
from pulsar_on_kafka.console.view_model import Site


class ConsoleServer(AsgiServer):
    """Listens from when it is made until `close`."""

    def __init__(
        self,
        host: str,
        port: int,
        site: Site,
        guard: HttpGuard,
        operators: Mapping[str, str] | None = None,
        rights: OperatorRights | None = None,
    ) -> None:
        """`port` 0: a free one. `guard` has the token of readers and the certificate, `operators` their tokens by name.
        Without `rights` they may do everything that this process may.

        Raises InvalidOption: others could reach it and there is no token, a token is used twice, the port is taken, the
            address is not one of this machine's, or the certificate is none.
        """
        access = ConsoleAccess.checked(host, guard.token, operators)
        app = pages_app(PageRenderer(site, access, rights or OperatorRights(), secure=bool(guard.certificate)))
        super().__init__("pok-console-http", Address(host, port, "--console-port"), app, guard)
