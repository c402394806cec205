"""`pok ledgers deletions`: what is asked for to be deleted, what was given up, and having that tried again."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.admin.deletions import DEFAULT_LIMIT, Deletion, Deletions
from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.confirm import YesOption, confirm
from pulsar_on_kafka.cli.shared.connection import client_of
from pulsar_on_kafka.cli.shared.output import news, progress_bar, show_list, show_result
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.cli.shared.values import printable, time_text
from pulsar_on_kafka.service.ledgers.deletion_events import replay

app = typer.Typer(help="Deletions of ledgers' data: asked for, given up, tried again.", no_args_is_help=True)

LimitOption = Annotated[int, typer.Option("--limit", min=0, help="At most so many, the oldest ones.")]


@command(app, "list")
def list_deletions(settings: Settings, admin: AdminClient, limit: LimitOption = DEFAULT_LIMIT) -> None:
    """List deletions that are asked for and not done yet. `pok serve` does them."""
    _show(settings, admin.list_deletions(limit))


@command(app, "dlq")
def list_given_up(settings: Settings, admin: AdminClient, limit: LimitOption = DEFAULT_LIMIT) -> None:
    """List deletions that were given up after ten attempts, or refused at once, and why."""
    _show(settings, admin.dead_deletions(limit))


@command(app, "replay")
def replay_given_up(settings: Settings, admin: AdminClient, yes: YesOption = False) -> None:
    """Ask again for all deletions that were given up. Nothing is deleted that is listed or needed, whatever is asked
    for."""
    with client_of(settings) as client:
        there = admin.dead_deletions(0).count
        done = 0
        if there:
            confirm(f"ask again for {there:,} deletions that were given up", yes)
            with progress_bar("asking again", there, shown=not settings.json) as told:
                done = replay(client, there, told)
        show_result(settings, f"asked again for {done:,} deletions", {"replayed": done})


def _show(settings: Settings, found: Deletions) -> None:
    columns = ("event", "ledger", "topic", "partition", "asked for", "put off", "reason")
    show_list(settings, asdict(found), columns, [_row(each) for each in found.first])
    if not settings.json and found.count > len(found.first):
        news(f"{len(found.first):,} of {found.count:,} are shown (--limit)")


def _row(deletion: Deletion) -> tuple[object, ...]:
    return (
        deletion.event,
        str(deletion.ledger_id) if deletion.ledger_id >= 0 else "-",
        printable(deletion.topic) or "-",
        deletion.partition if deletion.partition >= 0 else "-",
        time_text(deletion.asked_ms),
        f"{deletion.retries} times" if deletion.retries else "-",
        printable(deletion.reason) or "-",
    )
