"""librdkafka's options for registered clusters that a process is given: above all secrets, which no registry holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Optional

import typer

from pulsar_on_kafka.cli.shared.settings import read_kafka_config

ClusterConfigOption = Annotated[
    Optional[list[str]],  # noqa: UP045 - evaluated by typer, also on Python 3.10
    typer.Option(
        "--cluster-config",
        metavar="NAME:FILE|NAME:KEY=VALUE",
        help="librdkafka's options for a registered cluster, above all secrets. May be repeated.",
    ),
]


def read_cluster_config(given: Sequence[str]) -> dict[str, dict[str, str]]:
    """Options by cluster, from `NAME:KEY=VALUE` and `NAME:FILE`; later ones win.

    Raises:
        typer.BadParameter: neither, or a reserved option.
    """
    options: dict[str, dict[str, str]] = {}
    for item in given:
        # A name may hold colons, and a key none.
        name, separator, _ = item.partition("=")[0].rpartition(":")
        if not name:
            raise typer.BadParameter("expected NAME:KEY=VALUE or NAME:FILE", param_hint="--cluster-config")
        option = item[len(name) + len(separator) :]
        options.setdefault(name, {}).update(read_kafka_config([option]))
    return options
