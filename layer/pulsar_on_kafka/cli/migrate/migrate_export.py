"""`pok migrate export`: a tenant of this Kafka cluster is copied to a running Pulsar."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.garbage_collection import tune_collector
from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.cli.migrate.pulsar_options import (
    AccessOptions,
    PrivateKeyOption,
    TenantArgument,
    pulsar_address,
)
from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.output import CommandFailed, news, show_names, show_table, write_json
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.clusters.migration.from_pulsar.admin import PulsarAdmin
from pulsar_on_kafka.clusters.migration.from_pulsar.reading import PulsarAddress, official_client
from pulsar_on_kafka.clusters.migration.to_pulsar.partition_export import ComparedExport
from pulsar_on_kafka.clusters.migration.to_pulsar.worker import ExportWorker
from pulsar_on_kafka_mapping.state.clusters.tenant_records import ImportRecord

app = typer.Typer(help="Copy a tenant from this Kafka cluster to a running Apache Pulsar.", no_args_is_help=True)

_CALL_S: Final = 60.0


@dataclass(frozen=True)
class TargetOptions:
    """Addresses of Pulsar; those of the tenant's import by default."""

    service_url: Annotated[
        str | None,
        typer.Option("--to", metavar="URL", help="pulsar://host:6650; by default where the tenant was imported from."),
    ] = None
    admin_url: Annotated[
        str | None, typer.Option("--admin", metavar="URL", help="http://host:8080: Pulsar's admin API; as --to.")
    ] = None
    is_origin: Annotated[
        bool | None,
        typer.Option(
            "--same-pulsar/--other-pulsar",
            help="Whether the tenant was imported from this cluster, where only its name is that of the import's.",
            show_default=False,
        ),
    ] = None


@command(app, "plan")
def plan(
    settings: Settings, here: AdminClient, tenant: TenantArgument, target: TargetOptions, access: AccessOptions
) -> None:
    """Show what would be created in Pulsar, and what cannot be; change nothing."""
    show_names(settings, _worker(here, tenant, target, access, None).plan())


@command(app, "run")
def run(
    settings: Settings,
    here: AdminClient,
    tenant: TenantArgument,
    target: TargetOptions,
    access: AccessOptions,
    private_key: PrivateKeyOption = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, help="How long to wait for Pulsar to load the topics, in seconds.")
    ] = 120.0,
) -> None:
    """Copy metadata, messages and acknowledgements that are here now to Pulsar. Run it again for what came since; it
    continues where a killed run ended. Nothing here changes."""
    tune_collector()
    found = _worker(here, tenant, target, access, private_key).run(Deadline.after(timeout))
    if settings.json:
        write_json({"partitions": [asdict(each) for each in found]})
        return
    rows = [
        [each.topic, each.partition, each.messages, each.left_out, sum(each.acknowledged.values())] for each in found
    ]
    show_table(["topic", "partition", "messages sent", "left out", "acknowledgements"], rows)


@command(app, "verify")
def verify(
    settings: Settings,
    here: AdminClient,
    tenant: TenantArgument,
    target: TargetOptions,
    access: AccessOptions,
    private_key: PrivateKeyOption = None,
) -> None:
    """Read both sides, and compare every message and what each subscription has left; exits with 1 if they differ.

    While programs produce and consume the last moments differ.
    """
    lacking, found = _worker(here, tenant, target, access, private_key).compare()
    problems = [*lacking, *(problem for each in found for problem in each.problems())]
    _show_compared(settings, found, problems)
    if problems:
        raise CommandFailed(f"{counted(len(problems), 'difference')}, the first: {problems[0]}")


def _worker(
    here: AdminClient, tenant: str, target: TargetOptions, access: AccessOptions, private_key: Path | None
) -> ExportWorker:
    official_client()
    known = here.node.imports.record(tenant, Deadline.after(_CALL_S))
    address = pulsar_address("--to", target.service_url, target.admin_url, known, access, private_key)
    pulsar = PulsarAdmin(address)
    imported = known if known is not None and _is_its_origin(known, address, pulsar, target.is_origin) else None
    return ExportWorker(here, pulsar, address, tenant, imported, news)


def _is_its_origin(known: ImportRecord, address: PulsarAddress, pulsar: PulsarAdmin, told: bool | None) -> bool:
    """Whether the tenant was imported from this Pulsar, which then has what was imported. Many clusters have the same
    name, and the ledger ids of another one mean other messages: so the name alone does not decide.

    Raises:
        CommandFailed: the name is the same, the addresses are not, and the user did not tell.
    """
    if told is not None:
        return told
    if address.admin_url == known.admin_url or address.service_url == known.service_url:
        return True
    if known.origin != f"pulsar:{pulsar.cluster()}":
        return False
    raise CommandFailed(
        f"tenant {known.tenant} was imported from a Pulsar cluster of this name ({pulsar.cluster()}) at "
        f"{known.admin_url}: say whether {address.admin_url} is the same cluster, by --same-pulsar or --other-pulsar"
    )


def _show_compared(settings: Settings, found: list[ComparedExport], problems: list[str]) -> None:
    if settings.json:
        write_json({"good": not problems, "problems": problems, "partitions": [asdict(each) for each in found]})
        return
    for each in found:
        news(
            f"{each.topic} partition {each.partition}: {counted(each.equal, 'message')} equal"
            + (f", {each.trimmed} removed in Pulsar since" if each.trimmed else "")
        )
        for one in each.subscriptions:
            news(f"  {one.name}: {counted(one.left_there, 'message')} left in Pulsar, {one.left_here} here")
    show_names(settings, problems)
