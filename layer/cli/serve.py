"""`pok serve`: a process that keeps what a cluster needs kept."""

from __future__ import annotations

import typer

from layer.cli.command import command
from layer.cli.connection import admin_of
from layer.cli.output import news, show_result
from layer.cli.settings import Settings
from layer.cli.stopping import told_to_stop
from layer.client.errors import pulsar_errors
from layer.deadline import Deadline
from layer.ledgers.maintenance import Maintenance

_JOIN_S = 30.0
_CLOSE_S = 10.0


def register(app: typer.Typer) -> None:
    command(app, "serve")(serve)


def serve(settings: Settings) -> None:
    """Keep lists of ledgers, expire messages (TTL) and serve transactions until Ctrl-C. Several share the work.

    They take over from each other. Transactions need no such process: programs that use them serve them too. Nobody
    else does the other things.
    """
    with admin_of(settings) as admin, told_to_stop() as stop:
        with pulsar_errors():
            admin.node.transactions.join(Deadline.after(_JOIN_S))
            maintenance = Maintenance(admin.node)
        try:
            maintenance.wait_for_round(Deadline.after(_JOIN_S))
            show_result(settings, f"serving {settings.url}", {"serving": settings.url})
            stop.wait()
            news("stopping ...")
        finally:
            maintenance.close(Deadline.after(_CLOSE_S))
