"""`pok migrate`: a tenant moves to another cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Final

import typer

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.cli.migrate.migrate_export import app as export_app
from pulsar_on_kafka.cli.migrate.migrate_import import app as import_app
from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.connection import admin_at, admin_of
from pulsar_on_kafka.cli.shared.output import CommandFailed, YesOption, confirm, news, show_names, show_one, write_json
from pulsar_on_kafka.cli.shared.settings import ClusterConfigOption, Settings, read_cluster_config
from pulsar_on_kafka.clusters.migration.acls import carry
from pulsar_on_kafka.clusters.migration.inventory import inventory, lacking, not_persistent
from pulsar_on_kafka.clusters.migration.log_comparison import MigrationReport
from pulsar_on_kafka.clusters.migration.worker import MigrationWorker
from pulsar_on_kafka_mapping.state.clusters.tenant_records import MigrationRecord

app = typer.Typer(no_args_is_help=True)

app.add_typer(import_app, name="import")
app.add_typer(export_app, name="export")

_CALL_S: Final = 60.0

Secrets = Mapping[str, Mapping[str, str]]
"""librdkafka's options by cluster."""

TenantArgument = Annotated[str, typer.Argument(metavar="TENANT")]
ToOption = Annotated[str, typer.Option("--to", metavar="CLUSTER", help="The cluster that it moves to.")]
PatienceOption = Annotated[
    float, typer.Option("--timeout", min=1, help="How long to wait for replication, and for programs, in seconds.")
]


@command(app, "plan")
def plan(settings: Settings, tenant: TenantArgument, to: ToOption, cluster_config: ClusterConfigOption = None) -> None:
    """Show what would be created on the other cluster; change nothing."""
    secrets = read_cluster_config(cluster_config or ())
    with admin_of(settings) as home, _side(settings, home, _cluster_of(home, tenant), secrets) as source:
        with _side(settings, home, to, secrets) as target:
            deadline = Deadline.after(_CALL_S)
            here, there = inventory(source, tenant, deadline), inventory(target, tenant, deadline)
            missing = lacking(here, there)
            missing += not_persistent(source, tenant, deadline) + carry(source, target, tenant, deadline, dry=True)
        namespaces = counted(len(here.namespaces), "namespace")
        news(f"tenant {tenant} has {namespaces} and {counted(len(here.topics), 'topic')}")
        show_names(settings, missing)


@command(app, "run")
def run(
    settings: Settings,
    tenant: TenantArgument,
    to: ToOption,
    timeout: PatienceOption = 3600.0,
    cluster_config: ClusterConfigOption = None,
) -> None:
    """Copy metadata, messages and progress, until the switch may be made. Continues a killed run.

    Messages are copied by `pok serve` of the tenant's cluster. Programs continue meanwhile.
    """
    secrets = read_cluster_config(cluster_config or ())
    with admin_of(settings) as home:
        deadline = Deadline.after(_CALL_S)
        home.node.migrations.begin(tenant, _source_of(home, tenant, to), to, deadline)
        with _worker(settings, home, tenant, timeout, secrets) as worker:
            record = worker.run(lambda now: news(f"{now.step.value} ..."))
        _show(settings, record)


@command(app, "status")
def status(settings: Settings, home: AdminClient, tenant: TenantArgument) -> None:
    """Show how far a tenant's migration is."""
    _show(settings, home.node.migrations.require(tenant, Deadline.after(_CALL_S)))


@command(app, "verify")
def verify(settings: Settings, tenant: TenantArgument, cluster_config: ClusterConfigOption = None) -> None:
    """Read both sides, and compare every message and acknowledgement; exits with 1 if anything differs.

    While programs produce and consume the last moments differ.
    """
    with _migration(settings, tenant, _CALL_S, cluster_config) as worker:
        report = worker.compare()
    _show_report(settings, report)
    if not report.good:
        raise CommandFailed(f"{counted(len(report.problems()), 'difference')}, the first: {report.problems()[0]}")


@command(app, "switch")
def switch(
    settings: Settings,
    tenant: TenantArgument,
    timeout: PatienceOption = 120.0,
    yes: YesOption = False,
    cluster_config: ClusterConfigOption = None,
) -> None:
    """Send the tenant's programs to the new cluster. A switch that fails on the way leaves them on the old one."""
    with _migration(settings, tenant, timeout, cluster_config) as worker:
        confirm(f"send the programs of tenant {tenant} from {worker.record.source} to {worker.record.target}", yes)
        record = worker.switch()
        _show(settings, record)


@command(app, "rollback")
def rollback(
    settings: Settings,
    tenant: TenantArgument,
    timeout: PatienceOption = 120.0,
    yes: YesOption = False,
    cluster_config: ClusterConfigOption = None,
) -> None:
    """Return the tenant to the old cluster, with what was sent and acknowledged on the new one since. Possible until
    `clean`."""
    with _migration(settings, tenant, timeout, cluster_config) as worker:
        confirm(f"have tenant {tenant} on {worker.record.source}, and end its migration to {worker.record.target}", yes)
        record = worker.roll_back()
        _show(settings, record)


@command(app, "clean")
def clean(
    settings: Settings,
    tenant: TenantArgument,
    yes: YesOption = False,
    cluster_config: ClusterConfigOption = None,
) -> None:
    """Delete the tenant's topics and messages on the old cluster. There is no way back after that."""
    with _migration(settings, tenant, _CALL_S, cluster_config) as worker:
        topics = len(inventory(worker.source, tenant, Deadline.after(_CALL_S)).topics)
        confirm(f"delete {counted(topics, 'topic')} of tenant {tenant} on {worker.record.source}", yes)
        record = worker.clean()
        _show(settings, record)


@contextmanager
def _migration(
    settings: Settings, tenant: str, patience_s: float, cluster_config: list[str] | None
) -> Iterator[MigrationWorker]:
    secrets = read_cluster_config(cluster_config or ())
    with admin_of(settings) as home, _worker(settings, home, tenant, patience_s, secrets) as worker:
        yield worker


@contextmanager
def _worker(
    settings: Settings, home: AdminClient, tenant: str, patience_s: float, secrets: Secrets
) -> Iterator[MigrationWorker]:
    record = home.node.migrations.require(tenant, Deadline.after(_CALL_S))
    with (
        _side(settings, home, record.source, secrets) as source,
        _side(settings, home, record.target, secrets) as target,
    ):
        yield MigrationWorker(home, source, target, record, patience_s, news)


def _side(settings: Settings, home: AdminClient, cluster: str, secrets: Secrets) -> AdminClient:
    """A registered cluster; the command's options for all clusters, and for this one, go on top of the registry's."""
    registry = {info.name: info for info in home.clusters()}
    info = registry.get(cluster)
    if info is None:
        raise CommandFailed(
            f"cluster {cluster} is not registered here (pok clusters create); there are: {', '.join(sorted(registry))}"
        )
    options = {**info.kafka_config, **settings.kafka_config, **secrets.get(cluster, {})}
    return admin_at(info.service_url, options, info.instance)


def _source_of(home: AdminClient, tenant: str, to: str) -> str:
    """The source of the migration to that cluster which is under way, or where the tenant is."""
    known = home.node.migrations.record(tenant, Deadline.after(_CALL_S))
    under_way = known is not None and known.target == to and known.source != _cluster_of(home, tenant) == to
    return known.source if known is not None and under_way else _cluster_of(home, tenant)


def _cluster_of(home: AdminClient, tenant: str) -> str:
    record = home.tenant_place(tenant)
    if record is None:
        raise CommandFailed(f"tenant {tenant} is on no cluster: set it with pok tenants set {tenant} CLUSTER")
    return record.cluster


def _show(settings: Settings, record: MigrationRecord) -> None:
    reported = {
        "tenant": record.tenant,
        "from": record.source,
        "to": record.target,
        "step": record.step.value,
        "started_ms": record.started_ms,
        "problem": record.problem,
    }
    show_one(settings, reported, {name: value or "-" for name, value in reported.items()})


def _show_report(settings: Settings, report: MigrationReport) -> None:
    if settings.json:
        write_json(
            {
                "good": report.good,
                "problems": report.problems(),
                "not_moved": list(report.not_moved),
                "partitions": [
                    {
                        "topic": each.topic,
                        "partition": each.partition,
                        "equal": each.compared.equal,
                        "changed": each.compared.changed,
                        "missing": each.compared.missing,
                        "excused": each.compared.excused,
                        "digest": each.compared.digest,
                    }
                    for each in report.partitions
                ],
            }
        )
        return
    for each in report.partitions:
        news(f"{each.topic} partition {each.partition}: {each.compared.equal} equal, digest {each.compared.digest}")
    for left in report.not_moved:
        news(left)
    show_names(settings, report.problems())
