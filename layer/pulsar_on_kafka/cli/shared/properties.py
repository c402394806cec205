"""Properties of topics, namespaces and subscriptions on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, TypeAlias

import typer

from pulsar_on_kafka.cli.shared.output import show_pairs, write_json
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.client.values.texts import parse_properties, printable

SET: Final = "--set"
SetOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(SET, metavar="NAME=VALUE", help="Set a property first, repeatable.", show_default=False),
]
RemoveOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--remove", metavar="NAME", help="Remove a property first, repeatable.", show_default=False),
]


def given_properties(given: Sequence[str] | None, option: str) -> dict[str, str]:
    """Raises typer.BadParameter: one is not NAME=VALUE."""
    try:
        return parse_properties(given or ())
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def show_properties(settings: Settings, found: Mapping[str, str]) -> None:
    if settings.json:
        write_json(dict(found))
    else:
        show_pairs({printable(name): printable(value) for name, value in sorted(found.items())})
