"""`pok ledgers`: look at the ledgers of topics, and have their lists made anew."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.cli.commands import deletions
from pulsar_on_kafka.cli.commands.topics import TopicArgument
from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.confirm import YesOption, confirm
from pulsar_on_kafka.cli.shared.output import progress_towards, show_list, show_one, show_result
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.cli.shared.values import time_text
from pulsar_on_kafka.ledgers.inspection import LedgerInfo

app = typer.Typer(help="Look at the ledgers of topics; have their lists made anew.", no_args_is_help=True)
app.add_typer(deletions.app, name="deletions")


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
    with progress_towards("partitions of ledgers", shown=not settings.json) as told:
        written = admin.rebuild_ledgers(told)
    show_result(settings, f"rebuilt {written:,} ledgers", {"rebuilt": written})


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
