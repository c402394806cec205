"""`pok transactions`: look at transactions, their coordinators and what they hold; abort one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.broker.transactions.buffer.verify import BufferFinding
from pulsar_on_kafka.cli.commands.subscriptions import SubscriptionOption
from pulsar_on_kafka.cli.commands.topics import TopicArgument
from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.output import (
    CommandFailed,
    YesOption,
    confirm,
    progress_towards,
    show_further_table,
    show_list,
    show_pairs,
    show_result,
    show_table,
    write_json,
    write_line,
)
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.client.values.texts import duration_text, parse_duration, printable, ranges_text, time_text
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.ids.txn_id import TxnId

if TYPE_CHECKING:
    from pulsar_on_kafka.admin import (
        AdminClient,
        CoordinatorStats,
        TransactionDetails,
        TransactionInBuffer,
        TransactionInfo,
        TransactionInPendingAck,
        VerifiedBuffer,
    )

MEANINGS: Final[Mapping[BufferFinding, str]] = {
    BufferFinding.TWO_OUTCOMES: "Readers may have seen it and may not: this must never happen; "
    "keep the topic and report it.",
    BufferFinding.COMMITTED_BUT_ABORTED: "Its records are hidden although it was committed: they are lost to readers.",
    BufferFinding.ABORTED_BUT_READABLE: "Its records are delivered although it was aborted.",
    BufferFinding.NO_OUTCOME: "Its records are delivered although no record shows that it was committed.",
    BufferFinding.STILL_OPEN: "Harmless while it is being ended; readers wait at its first record. If it stays, "
    "look at its coordinator: pok transactions show.",
    BufferFinding.BOUND_TOO_HIGH: "Readers without headers (Spark) deliver these records although it is open or "
    "aborted.",
    BufferFinding.OFFSETS_MISSING: "Readers without headers (Spark) deliver these records although it was aborted.",
    BufferFinding.OFFSETS_TOO_MANY: "These records are hidden although they are not its own: they are lost to readers.",
    BufferFinding.LATE_NOT_VOID: "Readers that begin behind its marker deliver these records, others do not.",
    BufferFinding.VOID_NOT_LATE: "These records are hidden although they came in time: they are lost to readers.",
}


def fields_as_json(value: Any) -> dict[str, Any]:
    """The fields of a flat dataclass; ids of transactions as Pulsar prints them."""
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}


def _plain(value: object) -> Any:
    if isinstance(value, TxnId):
        return str(value)
    return value.value if isinstance(value, Enum) else value


def info_as_json(info: TransactionInfo) -> dict[str, Any]:
    return {
        "txn_id": str(info.id),
        "status": info.status.value,
        "opened_at_ms": info.opened_at_ms,
        "timeout_at_ms": info.timeout_at_ms,
        "owner": info.owner,
        "partitions": [each._asdict() for each in info.partitions],
        "subscriptions": [each._asdict() for each in info.subscriptions],
    }


def details_as_json(details: TransactionDetails) -> dict[str, Any]:
    return {
        **info_as_json(details.info),
        "left_ms": details.left_ms,
        "buffers": [fields_as_json(each) for each in details.buffers],
        "pending_acks": [fields_as_json(each) for each in details.pending_acks],
        "gone": [each._asdict() for each in details.gone],
    }


def coordinator_as_json(stats: CoordinatorStats) -> dict[str, Any]:
    owner = None if stats.owner is None else {"session": stats.owner[0], "version": stats.owner[1]}
    return {**fields_as_json(stats), "owner": owner}


def verified_as_json(verified: VerifiedBuffer) -> dict[str, Any]:
    return {
        "partition": verified.where.partition,
        "start": verified.start,
        "end": verified.end,
        "transactions": verified.transactions,
        "records": verified.records,
        "differences": [
            {
                "txn": str(each.txn),
                "finding": each.finding.name,
                "text": each.finding.value,
                "means": MEANINGS[each.finding],
                "harmless": each.finding.is_harmless,
                "offsets": list(each.offsets[:100]),
                "records": len(each.offsets),
            }
            for each in verified.differences
        ],
    }


app = typer.Typer(no_args_is_help=True)


def _parsed_id(text: str | TxnId) -> TxnId:
    try:
        return text if isinstance(text, TxnId) else TxnId.parse(text)
    except MappingError as error:
        raise typer.BadParameter(str(error)) from error


def _parsed_duration(text: str | int) -> int:
    try:
        return text if isinstance(text, int) else parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


TxnArgument = Annotated[
    TxnId, typer.Argument(metavar="TXNID", parser=_parsed_id, help="(most,least), as Pulsar prints it, or most:least.")
]
CoordinatorOption = Annotated[
    int | None, typer.Option("--coordinator-id", "-c", min=0, help="Only of this coordinator.", show_default=False)
]

_IN_BUFFER: Final = ("on record", "from offset", "records", "offsets")
_IN_PENDING_ACK: Final = ("entries", "parts of batches", "up to", "offsets", "ended")


@command(app, "list")
def list_transactions(
    settings: Settings,
    admin: AdminClient,
    coordinator: CoordinatorOption = None,
    status: Annotated[
        Literal["open", "committing", "committed", "aborting", "aborted"] | None,
        typer.Option("--status", help="Only those of this status.", show_default=False),
    ] = None,
    finished: Annotated[
        bool, typer.Option("--all", help="Also those that ended in the last minute, before they are forgotten.")
    ] = False,
) -> None:
    """List transactions that are not finished, the oldest first."""
    finished = finished or status in ("committed", "aborted")
    found = admin.list_transactions(coordinator, finished=finished)
    requested = [each for each in found if status is None or each.status.value == status.upper()]
    _show_infos(settings, requested, admin.node.clock.now_ms())


@command(app, "slow")
def slow(
    settings: Settings,
    admin: AdminClient,
    at_least_ms: Annotated[
        int,
        typer.Option(
            "--time",
            "-t",
            parser=_parsed_duration,
            metavar="DURATION",
            help="Not finished for so long: 90s, 5m, 1h30m.",
        ),
    ] = 60_000,
    coordinator: CoordinatorOption = None,
) -> None:
    """List transactions that are not finished after a while, the oldest first: open ones, and those that do not get
    done."""
    _show_infos(settings, admin.get_slow_transactions(at_least_ms, coordinator), admin.node.clock.now_ms())


@command(app, "show")
def show(settings: Settings, admin: AdminClient, txn: TxnArgument) -> None:
    """Show one transaction, and its state in each partition and subscription."""
    details = admin.get_transaction_metadata(txn)
    if settings.json:
        write_json(details_as_json(details))
        return
    info = details.info
    show_pairs(
        {
            "transaction": str(info.id),
            "coordinator": info.id.coordinator,
            "status": info.status.value,
            **({"owner": printable(info.owner)} if info.owner else {}),
            "opened": time_text(info.opened_at_ms),
            "times out": f"{time_text(info.timeout_at_ms)}{_left(details)}",
        }
    )
    show_further_table(
        ("topic", "partition", *_IN_BUFFER),
        [(each.topic, each.partition, *_in_buffer(each)) for each in details.buffers],
    )
    show_further_table(
        ("topic", "partition", "subscription", *_IN_PENDING_ACK),
        [(each.topic, each.partition, each.subscription, *_in_pending_ack(each)) for each in details.pending_acks],
    )
    if details.gone:
        write_line("")
        write_line("deleted since: " + ", ".join(printable("/".join(map(str, each))) for each in details.gone))


@command(app, "abort")
def abort(settings: Settings, admin: AdminClient, txn: TxnArgument, yes: YesOption = False) -> None:
    """Abort a transaction: its messages are never seen, what it acknowledged is delivered again."""
    details = admin.get_transaction_metadata(txn)
    confirm(f"abort transaction {_description(details.info)}", yes)
    admin.abort_transaction(txn)
    show_result(settings, f"aborted {txn}", {"aborted": str(txn)})


@command(app, "coordinators")
def coordinators(settings: Settings, admin: AdminClient, coordinator: CoordinatorOption = None) -> None:
    """List coordinators, with the transactions that each has begun and not finished, and the session that served it
    last."""
    found = admin.list_transaction_coordinators() if coordinator is None else [admin.get_coordinator_stats(coordinator)]
    show_list(
        settings,
        [coordinator_as_json(each) for each in found],
        ("coordinator", "open", "ending", "last id", "all over up to", "taken over"),
        [(each.coordinator, each.open, each.ending, each.highest_id, each.low_water, _owner(each)) for each in found],
    )


@command(app, "scale-coordinators")
def scale_coordinators(
    settings: Settings,
    admin: AdminClient,
    count: Annotated[int, typer.Argument(metavar="COUNT", min=1, help="How many there are to be: never fewer.")],
) -> None:
    """Add coordinators: each appends to a log of its own."""
    admin.scale_transaction_coordinators(count)
    show_result(settings, f"there are {count} coordinators", {"coordinators": count})


@command(app, "buffer")
def show_buffer(
    settings: Settings,
    admin: AdminClient,
    topic: TopicArgument,
    each: Annotated[bool, typer.Option("--transactions", help="Every transaction that is on record, too.")] = False,
) -> None:
    """Show the transaction buffer of each partition of a topic."""
    stats = admin.get_transaction_buffer_stats(topic)
    listed = admin.list_transactions_in_buffer(topic) if each else []
    if settings.json:
        _write_places(stats, listed if each else None)
        return
    show_table(
        ("partition", "ongoing", "from offset", "aborted", "not sealed", "left out", "entries", "to be cleaned"),
        [
            (found.partition, found.ongoing, found.bound, found.aborted, found.unsealed,
             found.excluded, found.entries, found.waiting)
            for found in stats
        ],
    )  # fmt: skip
    if each:
        write_line("")
        rows = [(found.txn, found.partition, *_in_buffer(found)) for found in listed]
        show_table(("transaction", "partition", *_IN_BUFFER), rows)


@command(app, "pending-acks")
def show_pending_acks(
    settings: Settings,
    admin: AdminClient,
    topic: TopicArgument,
    subscription: SubscriptionOption,
    each: Annotated[bool, typer.Option("--transactions", help="Every transaction that holds something, too.")] = False,
) -> None:
    """Show the pending acks of a subscription: acknowledged when their transactions commit, delivered again when they
    do not."""
    stats = admin.get_pending_ack_stats(topic, subscription)
    listed = admin.list_transactions_in_pending_ack(topic, subscription) if each else []
    if settings.json:
        _write_places(stats, listed if each else None)
        return
    show_table(
        ("partition", "ongoing", "entries", "parts of batches", "up to", "ended", "of former lives"),
        [
            (found.partition, found.ongoing, found.entries, found.batches,
             found.cumulative, found.ended, found.former_lives)
            for found in stats
        ],
    )  # fmt: skip
    if each:
        write_line("")
        rows = [(found.txn, found.partition, *_in_pending_ack(found)) for found in listed]
        show_table(("transaction", "partition", *_IN_PENDING_ACK), rows)


@command(app, "verify")
def verify(settings: Settings, admin: AdminClient, topic: TopicArgument) -> None:
    """Read a topic's data, rebuild its transaction buffers from the markers there, and compare them with what is on
    record: exit code 1 when something differs."""
    with progress_towards("reading", shown=True) as progress:
        found = list(admin.verify_transaction_buffer(topic, progress=progress))
    harmful = sum(len(each.harmful) for each in found)
    if settings.json:
        write_json({"agrees": not harmful, "partitions": [verified_as_json(each) for each in found]})
    else:
        _show_verified(found)
    if harmful:
        raise CommandFailed(f"{counted(harmful, 'difference')} between the log of {printable(topic)} and its buffer")


def _write_places(stats: Sequence[object], listed: Sequence[object] | None) -> None:
    """Writes the places; `transactions` exists only if it was requested."""
    found = {"partitions": [fields_as_json(each) for each in stats]}
    if listed is not None:
        found["transactions"] = [fields_as_json(each) for each in listed]
    write_json(found)


def _show_verified(found: list[VerifiedBuffer]) -> None:
    show_table(
        ("partition", "from", "to", "transactions", "records", "differences"),
        [(v.where.partition, v.start, v.end, v.transactions, v.records, len(v.differences)) for v in found],
    )
    for each in found:
        for difference in each.differences:
            write_line("")
            write_line(f"partition {each.where.partition}, {difference}")
            write_line(f"    {MEANINGS[difference.finding]}")


def _show_infos(settings: Settings, found: list[TransactionInfo], now_ms: int) -> None:
    show_list(
        settings,
        [info_as_json(each) for each in found],
        ("transaction", "status", "opened", "ago", "time left", "partitions", "subscriptions"),
        [
            (str(each.id), each.status.value, time_text(each.opened_at_ms), duration_text(now_ms - each.opened_at_ms),
             duration_text(each.timeout_at_ms - now_ms) if each.status.value == "OPEN" else "",
             len(each.partitions), len(each.subscriptions))
            for each in found
        ],
    )  # fmt: skip


def _description(info: TransactionInfo) -> str:
    places = f"{counted(len(info.partitions), 'partition')}, {counted(len(info.subscriptions), 'subscription')}"
    return f"{info.id} ({info.status.value}, opened {time_text(info.opened_at_ms)}, {places})"


def _left(details: TransactionDetails) -> str:
    if details.left_ms is None:
        return ""
    if details.left_ms >= 0:
        return f" (in {duration_text(details.left_ms)})"
    return f" ({duration_text(-details.left_ms)} ago: no process runs its coordinator, or clocks differ)"


def _in_buffer(found: TransactionInBuffer) -> tuple[object, ...]:
    entry = found.on_record.value
    on_record = f"{entry}, not sealed" if entry == "ABORTED" and not found.sealed else entry
    return on_record, found.lower_bound, found.records, ranges_text(found.ranges)


def _in_pending_ack(found: TransactionInPendingAck) -> tuple[object, ...]:
    return found.entries, found.batches, found.cumulative, ranges_text(found.ranges), found.ended


def _owner(stats: CoordinatorStats) -> str:
    return "never" if stats.owner is None else f"{counted(stats.owner[1], 'time')}, last by {stats.owner[0]}"
