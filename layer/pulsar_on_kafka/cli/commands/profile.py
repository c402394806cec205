"""`pok profile`: the profiles of the user's configuration."""

from __future__ import annotations

from typing import Annotated

import typer

from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.completing import complete_profile
from pulsar_on_kafka.cli.shared.output import CommandFailed, show_list, show_one, show_result
from pulsar_on_kafka.cli.shared.settings import Given, OutputFormat, Settings
from pulsar_on_kafka.client.connection.profiles import Profiles

app = typer.Typer(no_args_is_help=True)

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The profile's name.", autocompletion=complete_profile)
]


def _output(said: Given) -> Settings:
    return Settings(output=said.output or OutputFormat.TABLE)


@command(app, "list")
def list_profiles(said: Given) -> None:
    """List the profiles, and which one counts here."""
    profiles = Profiles()
    chosen = said.profile or profiles.default
    found = [(name, profiles.named(name)) for name in profiles.names()]
    rows = [(name, "*" if name == chosen else "", profile.shown().get("url", "")) for name, profile in found]
    value = [{"name": name, "chosen": bool(mark), "url": url} for name, mark, url in rows]
    show_list(_output(said), value, ("profile", "chosen", "url"), rows)


@command(app, "use")
def use(said: Given, name: NameArgument) -> None:
    """Make a profile the default."""
    profiles = Profiles()
    profiles.use(name)
    show_result(_output(said), f"{name} counts from now on ({profiles.path})", {"default": name})


@command(app, "show")
def show(
    said: Given,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Left out: the one that counts here.",
            show_default=False,
            autocompletion=complete_profile,
        ),
    ] = None,
) -> None:
    """Show a profile without its secrets."""
    profiles = Profiles()
    chosen = name or said.profile or profiles.default
    if not chosen:
        raise CommandFailed(f"no profile counts here: {profiles.path} has no default, and none is named")
    shown = {"profile": chosen, **profiles.named(chosen).shown()}
    show_one(_output(said), shown, shown)
