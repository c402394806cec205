"""Commands on demand: a group knows the names of its commands and what they are for, and imports one when it is called.

So `pok --version`, `pok --help` and a shell that completes a noun load none of them.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from pulsar_on_kafka.cli.shared.output import CommandFailed

_OF_A_CHECKOUT: Final = "tests"
"""The package that is in the repository, and not in an installed distribution."""


class OnDemand(NamedTuple):
    """`where` as module:name is a `typer.Typer` with further commands, or a function, whose docstring begins with
    `help`. `passes_on`: the function takes all that follows its first argument, options too."""

    where: str
    help: str
    passes_on: bool = False


@contextmanager
def _plain_words() -> Iterator[None]:
    """Names the rejected value, and omits the words of typer's validator (pydantic)."""
    try:
        yield
    except typer.BadParameter as refused:
        message = refused.message.removeprefix("Value error, ")
        reported: list[Any] = getattr(refused.__cause__, "errors", list)()  # pydantic's, where typer has it
        given = repr(reported[0]["input"]) if reported else ""
        refused.message = message if given in message else f"{message}, got {given:.60}"
        raise


def _take_as_typed(command: Any) -> None:
    """Values are not judged while a shell completes: typer's validator, pydantic, takes longest of all to load."""
    known = command.get_params

    def taken(ctx: Any) -> Any:
        found = known(ctx)  # the option --help among them
        for parameter in found:
            parameter.process_value = lambda ctx, value: value
        return found

    command.get_params = taken
    for inner in getattr(command, "commands", {}).values():
        _take_as_typed(inner)


def _show_flags_as_flags(command: Any) -> Any:
    """Help shows `--yes`, and not `--yes <bool>` as typer 0.29 does: a flag takes no value. Gives the command."""
    known = command.get_params

    def shown(ctx: Any) -> Any:
        found = known(ctx)  # the option --help among them
        for parameter in found:
            if getattr(parameter, "is_flag", False):
                parameter.display_type_rich = lambda ctx: None
        return found

    command.get_params = shown
    for inner in getattr(command, "commands", {}).values():
        _show_flags_as_flags(inner)
    return command


class OnDemandGroup(TyperGroup):
    """Derive from it with `on_demand`, commands by name in the order in which they are listed."""

    on_demand: ClassVar[Mapping[str, OnDemand]]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name, reported in self.on_demand.items():
            self.add_command(TyperCommand(name, help=reported.help))
        _show_flags_as_flags(self)

    def make_context(self, *given: Any, **options: Any) -> Any:
        if options.get("resilient_parsing"):
            _take_as_typed(self)
        with _plain_words():
            return super().make_context(*given, **options)

    def invoke(self, ctx: Any) -> Any:
        with _plain_words():
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that is to run, or in which a shell completes."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            command = loaded(name, self.on_demand[name])
            if ctx.resilient_parsing:
                _take_as_typed(command)
        return name, command, rest


def loaded(name: str, reported: OnDemand) -> Any:
    """The command itself. Typer has Click in a module of its own or as a library, by its version."""
    try:
        found = pkgutil.resolve_name(reported.where)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != _OF_A_CHECKOUT:
            raise
        raise CommandFailed(f"pok {name} runs in a checkout of the repository only (docs/compat.md)") from missing
    if isinstance(found, typer.Typer):
        group = get_group(found)
        group.name, group.help = name, reported.help
        return _show_flags_as_flags(group)
    from pulsar_on_kafka.cli.shared.command import command

    alone = typer.Typer(add_completion=False)
    command(alone, name, passes_on=reported.passes_on)(found)
    return _show_flags_as_flags(get_command(alone))
