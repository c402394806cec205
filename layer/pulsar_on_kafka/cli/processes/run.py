"""`pok run`: programs that were written for Pulsar, unchanged."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from pulsar_on_kafka.cli.shared.settings import DEFAULT_URL, Given, chosen_profile
from pulsar_on_kafka.client.connection.profile_file import PROFILE_VARIABLE, URL_VARIABLE
from pulsar_on_kafka_mapping.state.instances import INSTANCE_VARIABLE

_PATH_VARIABLE: Final = "PYTHONPATH"
_IMPORT_PATH: Final = str(Path(__file__).parents[2] / "import_path")
"""The folder whose modules stand in for the official client."""


def run(
    given: Given,
    program: Annotated[list[str], typer.Argument(metavar="PROGRAM [ARGUMENT]...", show_default=False)],
    module: Annotated[bool, typer.Option("-m", help="PROGRAM is a module, as with python -m.")] = False,
) -> None:
    """Run a Python program that imports pulsar, unchanged, on Kafka.

    Its pulsar:// URLs stand for the cluster of --url, else of the profile. Child processes run the same way.
    """
    if given.kafka_config:
        how = "put options of librdkafka into a profile (docs/profiles.md)"
        raise typer.BadParameter(how, param_hint="--kafka-config")
    name, *arguments = program
    if not module and not Path(name).exists():
        raise typer.BadParameter(f"{name} is not a file", param_hint="PROGRAM")
    python = [sys.executable, *(["-m"] if module else []), name, *arguments]
    os.execve(sys.executable, python, _environment(given))  # noqa: S606 - arguments of its own, no shell


def _environment(given: Given) -> dict[str, str]:
    """The environment in which `import pulsar` finds this package, and Pulsar's URLs find the cluster."""
    url = given.url or (DEFAULT_URL if chosen_profile(given.profile) is None else None)
    chosen = {URL_VARIABLE: url, PROFILE_VARIABLE: given.profile, INSTANCE_VARIABLE: given.instance}
    path = [_IMPORT_PATH, *filter(None, [os.environ.get(_PATH_VARIABLE)])]
    return {
        **os.environ,
        **{name: value for name, value in chosen.items() if value is not None},
        _PATH_VARIABLE: os.pathsep.join(path),
    }
