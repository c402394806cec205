"""The program `pok`: its nouns, and the options that come before them."""

from __future__ import annotations

import io
import platform
import sys
from collections.abc import Mapping
from typing import Annotated, ClassVar

import typer

from pulsar_on_kafka.base.text import installed_version
from pulsar_on_kafka.cli.shared.completing import complete_profile
from pulsar_on_kafka.cli.shared.on_demand import OnDemand, OnDemandGroup
from pulsar_on_kafka.cli.shared.output import is_coloured
from pulsar_on_kafka.cli.shared.settings import (
    DEBUG_HELP,
    INSTANCE_HELP,
    KAFKA_CONFIG_HELP,
    OUTPUT_HELP,
    PROFILE_HELP,
    URL_HELP,
    Given,
    OutputFormat,
)
from pulsar_on_kafka.client.connection.profile_file import PROFILE_VARIABLE, URL_VARIABLE
from pulsar_on_kafka_mapping.state.instances import INSTANCE_VARIABLE


class _Commands(OnDemandGroup):
    on_demand: ClassVar[Mapping[str, OnDemand]] = {
        "run": OnDemand(
            "pulsar_on_kafka.cli.processes.run:run",
            "Run a Python program that imports pulsar, unchanged, on Kafka.",
            passes_on=True,
        ),
        "standalone": OnDemand(
            "pulsar_on_kafka.cli.processes.standalone:standalone",
            "Run a Kafka broker until Ctrl-C.",
        ),
        "produce": OnDemand(
            "pulsar_on_kafka.cli.commands.produce:produce",
            "Publish messages and print their ids (ledger:entry[:partition]), one a line, once they are stored.",
        ),
        "consume": OnDemand(
            "pulsar_on_kafka.cli.commands.consume:consume",
            "Print messages as id, key, properties and value with tabs between, or as a JSON object each.",
        ),
        "peek": OnDemand(
            "pulsar_on_kafka.cli.commands.peek:peek",
            "Print messages without a subscription, as `pok consume` does.",
        ),
        "dlq": OnDemand(
            "pulsar_on_kafka.cli.commands.dlq:app", "Find dead letters, look at them, put them back or drop them."
        ),
        "messages": OnDemand(
            "pulsar_on_kafka.cli.commands.messages:app",
            "Find messages that wait for delivery, and cancel or reschedule them.",
        ),
        "overview": OnDemand(
            "pulsar_on_kafka.cli.overview.overview:overview",
            "Show all subscriptions: backlog, holes, age, processes and what is wrong (docs/operating.md).",
        ),
        "top": OnDemand(
            "pulsar_on_kafka.cli.overview.top:top",
            "Show all subscriptions live: sort them by a key, open one for its holes, members and ledgers; q ends it.",
        ),
        "doctor": OnDemand(
            "pulsar_on_kafka.cli.doctor.command:doctor",
            "Examine this machine, this cluster and these rights: ok, warn or fail, and advice.",
        ),
        "metrics": OnDemand(
            "pulsar_on_kafka.cli.commands.metrics:metrics",
            "Print the metrics of every topic and subscription, for Prometheus (docs/metrics.md).",
        ),
        "serve": OnDemand(
            "pulsar_on_kafka.cli.processes.serve:serve",
            "Run a cluster's roles until SIGTERM or Ctrl-C.",
        ),
        "profile": OnDemand(
            "pulsar_on_kafka.cli.commands.profile:app", "Profiles of the configuration: clusters and the ways to them."
        ),
        "topics": OnDemand("pulsar_on_kafka.cli.commands.topics:app", "Make, look at and delete topics."),
        "acls": OnDemand("pulsar_on_kafka.cli.commands.acls:app", "Rights that programs need."),
        "namespaces": OnDemand("pulsar_on_kafka.cli.commands.namespaces:app", "Make, list and delete namespaces."),
        "cluster": OnDemand("pulsar_on_kafka.cli.commands.clusters:this_cluster", "Policies of the whole cluster."),
        "clusters": OnDemand(
            "pulsar_on_kafka.cli.commands.clusters:app", "This cluster's name, and the others that it replicates with."
        ),
        "tenants": OnDemand(
            "pulsar_on_kafka.cli.commands.tenants:app",
            "Tenants, their admin roles, and which cluster has which: what lookup services answer.",
        ),
        "permissions": OnDemand(
            "pulsar_on_kafka.cli.commands.permissions:app", "Permissions of the roles that log in to gateways."
        ),
        "lookup": OnDemand("pulsar_on_kafka.cli.processes.lookup:app", "Return the cluster of a tenant to clients."),
        "gateway": OnDemand(
            "pulsar_on_kafka.cli.processes.gateway:gateway",
            "Serve Pulsar's binary protocol until SIGTERM or Ctrl-C: official clients connect to pulsar://host:port.",
        ),
        "migrate": OnDemand(
            "pulsar_on_kafka.cli.migrate.migrate:app",
            "Move a tenant to another cluster: --url names the cluster with the map of tenants.",
        ),
        "subscriptions": OnDemand(
            "pulsar_on_kafka.cli.commands.subscriptions:app", "Make, look at, move and delete subscriptions."
        ),
        "transactions": OnDemand(
            "pulsar_on_kafka.cli.commands.transactions:app",
            "Look at transactions, their coordinators and what they hold; abort one.",
        ),
        "ledgers": OnDemand(
            "pulsar_on_kafka.cli.commands.ledgers:app", "Look at the ledgers of topics; have their lists made anew."
        ),
        "schemas": OnDemand("pulsar_on_kafka.cli.schemas.commands:app", "Schemas of topics, and what may follow them."),
        "compat": OnDemand("tests.compat.harness.command:app", "Compare with a real Pulsar."),
        "spark": OnDemand("pulsar_on_kafka.cli.commands.spark:app", "Read, count and export topics with Spark."),
    }


app = typer.Typer(
    name="pok",
    cls=_Commands,
    help="Pulsar semantics on Kafka.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        missing = "(not installed)"
        typer.echo(
            f"pok {installed_version() or missing} "
            f"(confluent-kafka {installed_version('confluent-kafka') or missing}, Python {platform.python_version()})"
        )
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    url: Annotated[str | None, typer.Option("--url", envvar=URL_VARIABLE, help=URL_HELP, show_default=False)] = None,
    kafka_config: Annotated[
        list[str] | None, typer.Option("--kafka-config", help=KAFKA_CONFIG_HELP, metavar="FILE|KEY=VALUE")
    ] = None,
    output: Annotated[OutputFormat | None, typer.Option("--output", help=OUTPUT_HELP, show_default=False)] = None,
    debug: Annotated[bool, typer.Option("--debug", help=DEBUG_HELP)] = False,
    instance: Annotated[
        str | None,
        typer.Option("--instance", envvar=INSTANCE_VARIABLE, help=INSTANCE_HELP, metavar="NAME", show_default=False),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            envvar=PROFILE_VARIABLE,
            help=PROFILE_HELP,
            metavar="NAME",
            show_default=False,
            autocompletion=complete_profile,
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    ctx.obj = Given().overridden(url, kafka_config, output, debug, instance, profile)


def main() -> None:
    """Entry point. Exit codes: 0 done, 1 refused or failed, 2 not understood, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8 shows what it can
    if not is_coloured():
        from typer import rich_utils  # only then: rich takes long to load

        rich_utils.COLOR_SYSTEM = None
    app(prog_name="pok")


if __name__ == "__main__":
    main()
