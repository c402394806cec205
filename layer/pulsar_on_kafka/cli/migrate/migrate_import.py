"""`pok migrate import`: a tenant of a Pulsar cluster is copied to this Kafka cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.garbage_collection import tune_collector
from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.cli.migrate.pulsar_options import (
    BROKER_SCHEMES,
    WEB_SCHEMES,
    AccessOptions,
    PrivateKeyOption,
    TenantArgument,
    pulsar_address,
    require_scheme,
)
from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.output import (
    CommandFailed,
    YesOption,
    confirm,
    news,
    show_names,
    show_pairs,
    show_table,
    write_json,
)
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.clusters.migration.from_pulsar.admin import PulsarAdmin
from pulsar_on_kafka.clusters.migration.from_pulsar.cluster_migration import MigrationTarget
from pulsar_on_kafka.clusters.migration.from_pulsar.comparing import ComparedSubscription
from pulsar_on_kafka.clusters.migration.from_pulsar.imported import ImportedUpTo, imported_upto
from pulsar_on_kafka.clusters.migration.from_pulsar.reading import PulsarAddress, official_client
from pulsar_on_kafka.clusters.migration.from_pulsar.switching import ImportSwitchWorker
from pulsar_on_kafka.clusters.migration.from_pulsar.worker import (
    ImportedPartition,
    ImportReport,
    ImportWorker,
)
from pulsar_on_kafka_mapping.state.clusters.tenant_records import ImportRecord, ImportStep

app = typer.Typer(help="Copy a tenant from Apache Pulsar to this Kafka cluster.", no_args_is_help=True)

_CALL_S: Final = 60.0
_ORIGIN: Final = "pulsar:"


@dataclass(frozen=True)
class WhereOptions:
    """Addresses of Pulsar, for those commands that may be the first to name it."""

    service_url: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="URL", help="pulsar://host:6650; required for the first run, recorded for later ones."
        ),
    ] = None
    admin_url: Annotated[
        str | None, typer.Option("--admin", metavar="URL", help="http://host:8080: Pulsar's admin API; as --from.")
    ] = None
    name: Annotated[
        str | None, typer.Option("--name", help="The Pulsar cluster's name; by default the one that it calls itself.")
    ] = None


@command(app, "plan")
def plan(
    settings: Settings,
    here: AdminClient,
    tenant: TenantArgument,
    where: WhereOptions,
    access: AccessOptions,
) -> None:
    """Show what would be created here, and what cannot be; change nothing."""
    known = here.node.imports.record(tenant, Deadline.after(_CALL_S))
    address = _address(known, where, access, None)
    pulsar = PulsarAdmin(address)
    record = known or ImportRecord(
        tenant, _origin(here, pulsar, where.name), address.service_url, address.admin_url, ImportStep.METADATA, 0, 0
    )
    worker = ImportWorker(here, pulsar, address, record, news)
    news(f"tenant {tenant} of {record.origin}")
    show_names(settings, [*worker.lacking(), *worker.left_out()])


@command(app, "run")
def run(
    settings: Settings,
    here: AdminClient,
    tenant: TenantArgument,
    where: WhereOptions,
    access: AccessOptions,
    private_key: PrivateKeyOption = None,
    delivery_times: Annotated[
        bool, typer.Option("--delivery-times", help="Request the due time of each message that was sent alone.")
    ] = False,
) -> None:
    """Copy metadata, messages and acknowledgements that Pulsar has now. Run it again for what came since; it continues
    where a killed run ended. Pulsar is only read."""
    official_client()
    known = here.node.imports.record(tenant, Deadline.after(_CALL_S))
    address = _address(known, where, access, private_key)
    pulsar = PulsarAdmin(address)
    origin = known.origin if known is not None and where.name is None else _origin(here, pulsar, where.name)
    record = here.node.imports.begin(tenant, origin, address.service_url, address.admin_url, Deadline.after(_CALL_S))
    tune_collector()
    _show(settings, ImportWorker(here, pulsar, address, record, news, delivery_times=delivery_times).run(), [])


@command(app, "switch")
def switch(
    settings: Settings,
    here: AdminClient,
    tenant: TenantArgument,
    where: WhereOptions,
    access: AccessOptions,
    gateway: Annotated[
        str, typer.Option("--gateway", metavar="URL", help="pulsar://host:6650: where Pulsar sends the programs.")
    ],
    gateway_admin: Annotated[
        str, typer.Option("--gateway-admin", metavar="URL", help="http://host:8080: the gateway's REST address.")
    ],
    private_key: PrivateKeyOption = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, help="How long to wait for Pulsar to terminate topics, in seconds.")
    ] = 120.0,
    yes: YesOption = False,
) -> None:
    """Do as `run`, and then have Pulsar send the tenant's programs to the gateway, for good: Pulsar terminates the
    topics. Continues a killed switch.

    Until it is done, programs that arrive at the gateway wait.
    """
    for url, schemes in ((gateway, BROKER_SCHEMES), (gateway_admin, WEB_SCHEMES)):
        require_scheme(url, schemes, "the gateway")
    official_client()
    known = here.node.imports.record(tenant, Deadline.after(_CALL_S))
    address = _address(known, where, access, private_key)
    pulsar = PulsarAdmin(address)
    confirm(f"terminate the topics of tenant {tenant} in Pulsar and send its programs to {gateway}", yes)
    origin = known.origin if known is not None and where.name is None else _origin(here, pulsar, where.name)
    record = here.node.imports.begin(tenant, origin, address.service_url, address.admin_url, Deadline.after(_CALL_S))
    tune_collector()
    importer = ImportWorker(here, pulsar, address, record, news)
    worker = ImportSwitchWorker(here, pulsar, importer, MigrationTarget(gateway, gateway_admin), news)
    _show(settings, worker.run(Deadline.after(timeout)), [])


@command(app, "status")
def status(settings: Settings, here: AdminClient, tenant: TenantArgument) -> None:
    """Show how far a tenant's import is, as this cluster knows it."""
    record = here.node.imports.require(tenant, Deadline.after(_CALL_S))
    _show(settings, record, imported_upto(here.node, record, Deadline.after(_CALL_S)))


@command(app, "verify")
def verify(
    settings: Settings,
    here: AdminClient,
    tenant: TenantArgument,
    access: AccessOptions,
    private_key: PrivateKeyOption = None,
) -> None:
    """Read both sides, and compare every message and what each subscription has left; exits with 1 if they differ.

    While programs produce and consume the last moments differ.
    """
    record = here.node.imports.require(tenant, Deadline.after(_CALL_S))
    address = _address(record, WhereOptions(), access, private_key)
    report = ImportWorker(here, PulsarAdmin(address), address, record, news).verify()
    _show_report(settings, report)
    if not report.good:
        raise CommandFailed(f"{counted(len(report.problems()), 'difference')}, the first: {report.problems()[0]}")


def _address(
    known: ImportRecord | None, where: WhereOptions, access: AccessOptions, private_key: Path | None
) -> PulsarAddress:
    return pulsar_address("--from", where.service_url, where.admin_url, known, access, private_key)


def _origin(here: AdminClient, pulsar: PulsarAdmin, name: str | None) -> str:
    origin = _ORIGIN + (name or pulsar.cluster())
    if any(info.name == origin for info in here.clusters()):
        raise CommandFailed(f"{origin} is a registered Kafka cluster: call the Pulsar cluster otherwise with --name")
    return origin


def _show(settings: Settings, record: ImportRecord, upto: list[ImportedUpTo]) -> None:
    reported = {
        "tenant": record.tenant,
        "from": record.origin,
        "service_url": record.service_url,
        "step": record.step.value,
        "run": record.run,
        "switch": record.switch.value,
        "started_ms": record.started_ms,
        "problem": record.problem,
    }
    if settings.json:
        partitions = [
            {"topic": each.topic, "partition": each.partition, "position": _text(each), "final": each.final}
            for each in upto
        ]
        write_json({**reported, "partitions": partitions} if upto else reported)
        return
    show_pairs({name: value or "-" for name, value in reported.items()})
    if upto:
        rows = [[each.topic, each.partition, _text(each), "yes" if each.final else "no"] for each in upto]
        show_table(["topic", "partition", "imported up to", "ended in order"], rows)


def _text(each: ImportedUpTo) -> str:
    return "-" if each.position is None else str(each.position)


def _show_report(settings: Settings, report: ImportReport) -> None:
    if settings.json:
        partitions = [_partition(each) for each in report.partitions]
        write_json({"good": report.good, "problems": report.problems(), "partitions": partitions})
        return
    for each in report.partitions:
        messages = each.messages
        news(
            f"{each.topic} partition {each.partition}: {messages.equal} entries with {messages.messages} messages "
            f"equal, digest {messages.digest}"
            + (f", {messages.trimmed} removed here since" if messages.trimmed else "")
        )
        for one in each.subscriptions:
            news(
                f"  {one.name}: {one.left_there} entries left in Pulsar, {one.left_here} here, digest {one.digest_here}"
            )
    show_names(settings, report.problems())


def _partition(each: ImportedPartition) -> dict[str, object]:
    messages = each.messages
    return {
        "topic": each.topic,
        "partition": each.partition,
        "equal": messages.equal,
        "messages": messages.messages,
        "changed": messages.changed,
        "missing": messages.missing,
        "trimmed": messages.trimmed,
        "unknown": messages.unknown,
        "given_up": len(each.given_up),
        "digest": messages.digest,
        "subscriptions": [_subscription(one) for one in each.subscriptions],
    }


def _subscription(one: ComparedSubscription) -> dict[str, object]:
    return {
        "name": one.name,
        "left_in_pulsar": one.left_there,
        "left_here": one.left_here,
        "only_in_pulsar": one.only_there,
        "only_here": one.only_here,
        "digest_in_pulsar": one.digest_there,
        "digest_here": one.digest_here,
    }
