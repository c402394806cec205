"""`pok top`: all subscriptions, live."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Annotated, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.admin.overview.ordering import Only, Order
from pulsar_on_kafka.admin.overview.records import Overview, SubscriptionOverview, SubscriptionPlace
from pulsar_on_kafka.base.errors import StoreError
from pulsar_on_kafka.cli.overview.background import BackgroundCall, LatestOverview
from pulsar_on_kafka.cli.overview.overview import NamespaceOption, OnlyOption, OrderOption, TenantOption, gathering
from pulsar_on_kafka.cli.overview.rows import COLUMNS, age_text, caveats, cells, compact, end_of, remarks, totals_text
from pulsar_on_kafka.cli.overview.view import HELP, MOVES, View, split_keys
from pulsar_on_kafka.cli.shared.cursors import LEGEND, drawn
from pulsar_on_kafka.cli.shared.output import CommandFailed, cell_text, one_line
from pulsar_on_kafka.client.values.texts import member_text, printable, process_text
from pulsar_on_kafka.exceptions import PulsarException

_AROUND: Final = 7
"""Lines that are neither rows nor the age of the data."""
_DRAW_S: Final = 1.0
"""The longest time until the shown age grows."""
_LOOK_S: Final = 0.1
"""The interval at which the end of a pass is noticed."""
_NUMBERS: Final = 6
"""Columns of numbers, to the right: those behind the first and before the last."""
_NUMBERS_WIDTH: Final = 50
"""The width of the numbers and of the space between all columns."""


def top(
    admin: AdminClient,
    tenant: TenantOption = None,
    namespace: NamespaceOption = None,
    sort: OrderOption = Order.BACKLOG,
    only: OnlyOption = Only.ALL,
    every: Annotated[
        float, typer.Option("--every", min=0.5, max=3600, metavar="SECONDS", help="How often to look.")
    ] = 2.0,
) -> None:
    """Show all subscriptions live: sort them by a key, open one for its holes, members and ledgers; q ends it."""
    console = Console(highlight=False, emoji=False)
    if not (console.is_terminal and sys.stdin.isatty()):
        raise CommandFailed("pok top needs a terminal; pok overview shows the same once")
    with gathering(admin, tenant, namespace) as gather, typed_keys() as keys:
        latest, view = LatestOverview(gather()), View(sort, only)
        passes: BackgroundCall[Overview] = BackgroundCall("pok-top-overview")
        details: BackgroundCall[tuple[SubscriptionPlace, RenderableType]] = BackgroundCall("pok-top-detail")
        detail: RenderableType = ""
        began_ms = 0
        with Live(console=console, screen=True, auto_refresh=False) as live:
            due_s = time.monotonic() + every
            while not view.ended:
                clock = admin.node.clock
                age = latest.lines(clock.now_ms())
                lines = max(1, console.height - _AROUND - len(age))
                shown = detail if view.opened else _all(latest.seen, view, lines, console.width)
                live.update(Group(*map(_line, age), shown), refresh=True)
                before = view
                waits_s = _LOOK_S if passes.under_way or details.under_way else _DRAW_S
                for key in keys(min(waits_s, max(_LOOK_S, due_s - time.monotonic()))):
                    view = view.pressed(key, latest.seen, lines)
                if (view.look or time.monotonic() >= due_s) and not passes.under_way:
                    began_ms = clock.now_ms()
                    passes.begin(gather)
                if (made := passes.taken()) is not None:
                    latest, due_s = _after(latest, made, began_ms), time.monotonic() + every
                if (read := details.taken()) is not None:
                    name, detail = read.result()
                    before = replace(before, opened=name)
                if view.opened is not None and (view.look or view.opened != before.opened):
                    detail = detail if view.opened == before.opened else _line("reading ...")
                    details.begin(partial(_one, admin, latest.seen, view.opened, console.width))


@contextmanager
def typed_keys() -> Iterator[Callable[[float], list[str]]]:
    """Gives what waits for so many seconds for keys of the terminal at standard input, which shows them no more and
    hands each on at once. A Ctrl-C interrupts, as ever."""
    import termios  # a system without terminals of this kind has everything but this command
    import tty

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)

    def keys(wait_s: float) -> list[str]:
        if not select.select([fd], [], [], max(0.0, wait_s))[0]:
            return []
        typed = os.read(fd, 1024)
        return split_keys(typed.decode("utf-8", "replace")) if typed else ["q"]  # the terminal is gone

    try:
        tty.setcbreak(fd)
        yield keys
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _after(latest: LatestOverview, made: Future[Overview], began_ms: int) -> LatestOverview:
    """The data after a pass. Raises CommandFailed: the tenant or the namespace does not exist any more."""
    try:
        return LatestOverview(made.result())
    except (StoreError, PulsarException) as away:
        return latest.failed(one_line(away), began_ms)


def _all(seen: Overview, view: View, lines: int, width: int) -> RenderableType:
    rows = view.rows(seen)
    table = _table(COLUMNS, range(1, 1 + _NUMBERS))
    table.box = None
    table.columns[0].ratio, table.columns[-1].ratio = 3, 2
    room = (width - _NUMBERS_WIDTH) * 3 // 5
    for at in view.window(rows, lines):
        reported = cells(rows[at], seen.gathered_ms, by_commits=seen.by_commits)
        row = [compact(cell) if isinstance(cell, int) else str(cell) for cell in reported]
        row[0] = end_of(row[0], room)
        table.add_row(*map(Text, row), style="reverse" if at == view.place(rows) else "")
    table.expand = True
    number, backlog = totals_text(seen)
    head = f"by {view.order.value}" if view.only is Only.ALL else f"{view.only.value} by {view.order.value}"
    return Group(_line(number, head), _line(backlog, *caveats(seen)), table, _line(HELP), _line(MOVES))


def _one(
    admin: AdminClient, seen: Overview, requested: SubscriptionPlace, width: int
) -> tuple[SubscriptionPlace, RenderableType]:
    """One subscription: read now, with the replies of its consumers."""
    topic, subscription = requested
    row = seen.subscription(topic, subscription)
    if row is None:
        return requested, Group(_line(f"{subscription} of {topic} is gone"), _line(MOVES))
    parts: list[RenderableType] = [
        _line(f"{row.subscription} of {row.topic}, {row.type}"),
        _line(_facts(row, seen.gathered_ms)),
        _line(remarks(row, seen.gathered_ms)),
    ]
    try:
        parts += [*_cursors(admin, row, width), *_members(admin, row)]
    except PulsarException as failure:
        parts.append(_line(one_line(failure)))
    return requested, Group(*parts, _line(MOVES))


def _facts(row: SubscriptionOverview, now_ms: int) -> str:
    reported = [f"backlog {row.backlog:,}", f"{row.holes:,} holes", f"{row.dead_letters:,} dead letters"]
    if row.oldest_ms is not None:
        reported.append(f"oldest {age_text(now_ms - row.oldest_ms)}")
    if row.idle_since_ms is not None:
        reported.append(f"nothing acknowledged for {age_text(now_ms - row.idle_since_ms)}")
    return ", ".join(reported)


def _cursors(admin: AdminClient, row: SubscriptionOverview, width: int) -> Iterator[RenderableType]:
    ledgers = _table(("partition", "ledger", "offsets", "acked", "holes", "record"), (3, 4))
    for cursor in admin.subscription_cursors(row.topic, row.subscription):
        yield _line(f"partition {cursor.partition}: backlog {cursor.backlog:,}, {cursor.holes:,} holes")
        yield from map(_line, drawn(cursor, width - 1))
        for ledger in cursor.ledgers:
            offsets = f"{ledger.start:,} - {ledger.end - 1:,}"
            reported = (str(cursor.partition), str(ledger.ledger_id), offsets, ledger.acknowledged, ledger.holes)
            ledgers.add_row(*map(cell_text, (*reported, ledger.record)))
    yield _line(LEGEND)
    if ledgers.row_count:
        yield ledgers


def _members(admin: AdminClient, row: SubscriptionOverview) -> Iterator[RenderableType]:
    owners = _table(("partition", "owner"), ())
    for partition in row.partitions:
        owners.add_row(str(partition.partition), member_text(partition.owner) if partition.owner else "none")
    yield owners
    if row.processes:
        consumers = _table(("consumer", "permits", "unacked", "delivered", "per s", "process"), (1, 2, 3))
        for reported in admin.subscription_consumers(row.topic, row.subscription):
            silent = reported.permits < 0
            numbers = (
                ("", "", "", "")
                if silent
                else (reported.permits, reported.unacked, reported.delivered, f"{reported.rate:.0f}")
            )
            name = "(no reply)" if silent else reported.consumer_name
            consumers.add_row(*map(cell_text, (name, *numbers, process_text(reported.process))))
        yield consumers


def _table(columns: tuple[str, ...], numbers: range | tuple[int, ...]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for at, name in enumerate(columns):
        table.add_column(name, justify="right" if at in numbers else "left", no_wrap=True, overflow="ellipsis")
    return table


def _line(*texts: str) -> Text:
    return Text(printable("   ".join(texts)), no_wrap=True, overflow="ellipsis")
