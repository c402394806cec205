"""`pok cluster`: policies of the whole cluster."""

from __future__ import annotations

import typer

from pulsar_on_kafka.cli.shared.policies import policies_of

app = typer.Typer(help="Policies of the whole cluster.", no_args_is_help=True)

policies_of(app, None, "Policies of the cluster: for all topics for which neither they nor their namespaces have one.")
