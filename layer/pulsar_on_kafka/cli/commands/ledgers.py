"""`pok ledgers`: look at the ledgers of topics, have their lists made anew, and see to deletions of their data."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.broker.managed_ledger.deletion import DELETIONS_SHOWN
from pulsar_on_kafka.cli.commands.topics import TopicArgument
from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.connection import client_of
from pulsar_on_kafka.cli.shared.output import (
    YesOption,
    confirm,
    news,
    progress_bar,
    progress_towards,
    show_list,
    show_one,
    show_result,
)
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.client.values.texts import printable, time_text

if TYPE_CHECKING:
    from pulsar_on_kafka.admin import AdminClient
    from pulsar_on_kafka.admin.deletions import Deletion, Deletions
    from pulsar_on_kafka.broker.managed_ledger.inspection import LedgerInfo

deletions = typer.Typer(help="Deletions of ledgers' data: requested, given up, retried.", no_args_is_help=True)

LimitOption = Annotated[int, typer.Option("--limit", min=0, help="At most so many, the oldest ones.")]


@command(deletions, "list")
def list_deletions(settings: Settings, admin: AdminClient, limit: LimitOption = DELETIONS_SHOWN) -> None:
    """List requested deletions that are not done yet. `pok serve` does them."""
    _show_deletions(settings, admin.list_deletions(limit))


@command(deletions, "dlq")
def list_given_up(settings: Settings, admin: AdminClient, limit: LimitOption = DELETIONS_SHOWN) -> None:
    """List deletions that were given up after ten attempts, or refused at once, and why."""
    _show_deletions(settings, admin.dead_deletions(limit))


@command(deletions, "replay")
def replay_given_up(settings: Settings, admin: AdminClient, yes: YesOption = False) -> None:
    """Request all deletions again that were given up. Listed or needed ledgers are never deleted."""
    from pulsar_on_kafka.service.ledgers.deletion_events import replay

    with client_of(settings) as client:
        there = admin.dead_deletions(0).count
        done = 0
        if there:
            confirm(f"request {counted(there, 'deletion')} again that were given up", yes)
            with progress_bar("requesting again", there, shown=not settings.json) as reported:
                done = replay(client, there, reported)
        show_result(settings, f"requested {counted(done, 'deletion')} again", {"replayed": done})


def _show_deletions(settings: Settings, found: Deletions) -> None:
    columns = ("event", "ledger", "topic", "partition", "requested", "put off", "reason")
    show_list(settings, asdict(found), columns, [_deletion_row(each) for each in found.first])
    if not settings.json and found.count > len(found.first):
        news(f"{len(found.first):,} of {found.count:,} are shown (--limit)")


def _deletion_row(deletion: Deletion) -> tuple[object, ...]:
    return (
        deletion.event,
        str(deletion.ledger_id) if deletion.ledger_id >= 0 else "-",
        printable(deletion.topic) or "-",
        deletion.partition if deletion.partition >= 0 else "-",
        time_text(deletion.asked_ms),
        counted(deletion.retries, "time") if deletion.retries else "-",
        printable(deletion.reason) or "-",
    )


app = typer.Typer(no_args_is_help=True)
app.add_typer(deletions, name="deletions")


@command(app, "list")
def list_ledgers(settings: Settings, admin: AdminClient, topic: TopicArgument) -> None:
    """List the ledgers of a topic, or of one of its partitions, oldest first."""
    found = admin.list_ledgers(topic)
    columns = ("ledger", "partition", "state", "first", "entries", "size", "first published", "last published")
    show_list(settings, [_as_json(ledger) for ledger in found], columns, [_row(ledger) for ledger in found])


@command(app, "show")
def show(
    settings: Settings, admin: AdminClient, ledger_id: Annotated[int, typer.Argument(metavar="LEDGER_ID", min=0)]
) -> None:
    """Show one ledger, of whatever topic."""
    ledger = admin.get_ledger(ledger_id)
    show_one(
        settings,
        _as_json(ledger),
        {
            "ledger": str(ledger.ledger_id),
            "topic": ledger.topic,
            "partition": ledger.partition,
            "range": f"number {ledger.ledger_index:,} of its partition",
            "state": ledger.state.value,
            "offsets": f"{ledger.first_offset:,} to {ledger.end_offset:,} (exclusive)",
            "entries": ledger.entries,
            "size": _size(ledger),
            "measured to": ledger.measured_to,
            "first published": _time(ledger.first_publish_ms),
            "last published": _time(ledger.last_publish_ms),
            **{f"property {name}": value for name, value in ledger.properties.items()},
        },
    )


@command(app, "rebuild")
def rebuild(settings: Settings, admin: AdminClient, yes: YesOption = False) -> None:
    """Write the lists of all topics anew from what Kafka has."""
    confirm("write the lists of ledgers of all topics anew, measuring every ledger again", yes)
    with progress_towards("partitions of ledgers", shown=not settings.json) as reported:
        written = admin.rebuild_ledgers(reported)
    show_result(settings, f"rebuilt {counted(written, 'ledger')}", {"rebuilt": written})


def _row(ledger: LedgerInfo) -> tuple[object, ...]:
    return (
        str(ledger.ledger_id),
        ledger.partition,
        ledger.state.value,
        ledger.first_offset,
        ledger.entries,
        _size(ledger),
        _time(ledger.first_publish_ms),
        _time(ledger.last_publish_ms),
    )


def _size(ledger: LedgerInfo) -> str:
    """`-` for what was not measured; what is known of a part is known to be too little."""
    if ledger.measured_to == ledger.first_offset < ledger.end_offset:
        return "-"
    error = f" ±{ledger.size_error:,}" if ledger.size_error else ""
    more = " and more" if ledger.measured_to < ledger.end_offset else ""
    return f"{ledger.size:,}{error}{more}"


def _time(unix_ms: int) -> str:
    return time_text(unix_ms) if unix_ms else "-"


def _as_json(ledger: LedgerInfo) -> dict[str, Any]:
    return {**asdict(ledger), "state": ledger.state.value, "entries": ledger.entries}
