"""A command that destroys prints its plan first, and asks for confirmation."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pulsar_on_kafka.cli.shared.failure import CommandFailed
from pulsar_on_kafka.cli.shared.output import news

YesOption = Annotated[bool, typer.Option("--yes", help="Do it without asking.")]


def confirm(plan: str, yes: bool) -> None:
    """Print the plan on standard error. Returns with `--yes`, or when the person at the terminal agrees.

    Raises:
        CommandFailed: neither.
    """
    news(f"pok will {plan}")
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandFailed("nothing was done: say --yes to do it")
    if not typer.confirm("Do it?", err=True):
        raise CommandFailed("nothing was done")
