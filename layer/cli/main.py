"""The program `pok`: its nouns, and the options that come before them."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Annotated

import typer

from pulsar_on_kafka.cli.commands import (
    acls,
    clusters,
    compat,
    consume,
    ledgers,
    lookup,
    metrics,
    namespaces,
    produce,
    serve,
    spark,
    standalone,
    subscriptions,
    tenants,
    topics,
    transactions,
)
from pulsar_on_kafka.cli.doctor import command as doctor
from pulsar_on_kafka.cli.migrate import migrate
from pulsar_on_kafka.cli.schemas import diff as schema_diff
from pulsar_on_kafka.cli.schemas import extract as schema_extract
from pulsar_on_kafka.cli.schemas import offline as schemas
from pulsar_on_kafka.cli.schemas import registry as schema_registry
from pulsar_on_kafka.cli.shared.command import (
    DEBUG_HELP,
    INSTANCE_HELP,
    KAFKA_CONFIG_HELP,
    OUTPUT_HELP,
    URL_HELP,
    command,
)
from pulsar_on_kafka.cli.shared.settings import DEFAULT_URL, OutputFormat, Settings
from pulsar_on_kafka.client.connection.connection import INSTANCE_VARIABLE

app = typer.Typer(
    name="pok",
    help="Pulsar semantics on Kafka.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(topics.app, name="topics")
app.add_typer(acls.app, name="acls")
app.add_typer(namespaces.app, name="namespaces")
app.add_typer(clusters.this_cluster, name="cluster")
app.add_typer(clusters.app, name="clusters")
app.add_typer(tenants.app, name="tenants")
app.add_typer(lookup.app, name="lookup")
app.add_typer(migrate.app, name="migrate")
app.add_typer(subscriptions.app, name="subscriptions")
app.add_typer(transactions.app, name="transactions")
app.add_typer(ledgers.app, name="ledgers")
schema_registry.register(schemas.app)
app.add_typer(schemas.app, name="schemas")
command(schemas.app, "extract")(schema_extract.extract)
command(schemas.app, "diff")(schema_diff.diff)
app.add_typer(compat.app, name="compat")
app.add_typer(spark.app, name="spark")
command(app, "standalone")(standalone.standalone)
command(app, "produce")(produce.produce)
command(app, "consume")(consume.consume)
command(app, "doctor")(doctor.doctor)
command(app, "metrics")(metrics.metrics)
command(app, "serve")(serve.serve)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(
            f"pok {_version('pulsar-on-kafka')} "
            f"(confluent-kafka {_version('confluent-kafka')}, Python {platform.python_version()})"
        )
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    url: Annotated[str, typer.Option("--url", envvar="POK_URL", help=URL_HELP)] = DEFAULT_URL,
    kafka_config: Annotated[
        list[str] | None, typer.Option("--kafka-config", help=KAFKA_CONFIG_HELP, metavar="FILE|KEY=VALUE")
    ] = None,
    output: Annotated[OutputFormat, typer.Option("--output", help=OUTPUT_HELP)] = OutputFormat.TABLE,
    debug: Annotated[bool, typer.Option("--debug", help=DEBUG_HELP)] = False,
    instance: Annotated[
        str, typer.Option("--instance", envvar=INSTANCE_VARIABLE, help=INSTANCE_HELP, metavar="NAME")
    ] = "",
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    ctx.obj = Settings().overridden(url, kafka_config, output, debug, instance)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(not installed)"


def main() -> None:
    """Entry point. Exit codes: 0 done, 1 refused or failed, 2 not understood."""
    app(prog_name="pok")


if __name__ == "__main__":
    main()
