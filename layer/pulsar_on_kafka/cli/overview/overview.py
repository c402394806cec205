"""`pok overview`: all subscriptions at a glance, once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated

import typer

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.admin.overview.gathering import Gatherer
from pulsar_on_kafka.admin.overview.ordering import Only, Order, ordered
from pulsar_on_kafka.admin.overview.progress import MIN_RECENT_S
from pulsar_on_kafka.admin.overview.records import Overview
from pulsar_on_kafka.base.deadline import Deadline, pause
from pulsar_on_kafka.cli.overview.rows import COLUMNS, as_json, caveats, cells, totals_text
from pulsar_on_kafka.cli.shared.output import CommandFailed, news, show_pairs, show_table, write_json, write_line
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.client.values.texts import printable

PASS_S = 60.0
"""The longest that one pass may take."""
_CLOSE_S = 2.0
_ASKING = 12
"""The limit of requests to Kafka for publish times: enough for any age."""

TenantOption = Annotated[
    str | None, typer.Option("--tenant", help="Of this tenant alone.", metavar="TENANT", show_default=False)
]
NamespaceOption = Annotated[
    str | None, typer.Option("--namespace", help="Of this tenant/namespace alone.", show_default=False)
]
OrderOption = Annotated[Order, typer.Option("--sort", help="What comes first is worst in this.")]
OnlyOption = Annotated[
    Only, typer.Option("--only", help="These alone: with a backlog, unconsumed, stuck, slow (docs/operating.md) ...")
]


def overview(
    settings: Settings,
    admin: AdminClient,
    tenant: TenantOption = None,
    namespace: NamespaceOption = None,
    sort: OrderOption = Order.BACKLOG,
    only: OnlyOption = Only.ALL,
    rates: Annotated[
        float | None,
        typer.Option(
            "--rates", min=0.1, max=3600, metavar="SECONDS", show_default=False,
            help="Look a second time after this time, and show the rates of messages and acknowledgements.",
        ),
    ] = None,
) -> None:  # fmt: skip
    """Show all subscriptions: backlog, holes, age, processes and what is wrong (docs/operating.md)."""
    if only is Only.SLOW and (rates is None or rates < MIN_RECENT_S):
        raise CommandFailed(f"--only slow compares two looks: add --rates {MIN_RECENT_S:.0f}, or more")
    with gathering(admin, tenant, namespace) as gather:
        seen = gather()
        if rates is not None:
            pause(rates)
            seen = gather()
    rows = ordered(filter(only.applies, seen.subscriptions), sort)
    if settings.json:
        write_json(as_json(replace(seen, subscriptions=tuple(rows))))
        return
    existing = {"tenants": ", ".join(seen.tenants), "namespaces": ", ".join(seen.namespaces)}
    number, backlog = totals_text(seen)
    show_pairs({**existing, "in all": number, "": backlog})
    if rows:
        write_line("")
        lines = [cells(row, seen.gathered_ms, by_commits=seen.by_commits) for row in rows]
        shown = [at for at, name in enumerate(COLUMNS) if rates is not None or not name.endswith("/s")]
        show_table([COLUMNS[at] for at in shown], [[line[at] for at in shown] for line in lines])
    for line in caveats(seen):
        news(line)


@contextmanager
def gathering(admin: AdminClient, tenant: str | None, namespace: str | None) -> Iterator[Callable[[], Overview]]:
    """Gives what takes an overview of a cluster, or of a part of it, in any one thread. What it gives raises
    CommandFailed for a tenant or a namespace that does not exist."""
    gatherer, under_way = Gatherer(admin.node), threading.Lock()

    def gather() -> Overview:
        with under_way:
            seen = gatherer.gather(Deadline.after(PASS_S), requesting=_ASKING)
        if tenant is not None and tenant not in seen.tenants:
            raise CommandFailed(f"tenant {printable(tenant)} does not exist; there are {', '.join(seen.tenants)}")
        if namespace is not None and namespace not in seen.namespaces:
            raise CommandFailed(f"namespace {printable(namespace)} does not exist (pok namespaces list)")
        return seen.of(tenant=tenant, namespace=namespace)

    try:
        yield gather
    finally:
        if under_way.acquire(timeout=_CLOSE_S):  # otherwise a thread is in a pass, and ends with the process
            gatherer.close()
