"""Commands are registered here, with options that all share, and errors that end in one line."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Any, Final, get_type_hints

import typer

from pulsar_on_kafka.cli.shared.completing import complete_profile
from pulsar_on_kafka.cli.shared.output import failures
from pulsar_on_kafka.cli.shared.service_log import level
from pulsar_on_kafka.cli.shared.settings import (
    DEBUG_HELP,
    INSTANCE_HELP,
    KAFKA_CONFIG_HELP,
    OUTPUT_HELP,
    PROFILE_HELP,
    URL_HELP,
    Given,
    OutputFormat,
    Settings,
    tenant_of,
)
from pulsar_on_kafka.kafka.settings import LIBRDKAFKA_LOG

_PANEL: Final = "Options of every command"
_LOG: Final = logging.getLogger("pulsar_on_kafka")
_DEBUG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def _everywhere(
    *,
    url: Annotated[str | None, typer.Option("--url", help=URL_HELP, rich_help_panel=_PANEL, show_default=False)] = None,
    kafka_config: Annotated[
        list[str] | None,
        typer.Option("--kafka-config", help=KAFKA_CONFIG_HELP, rich_help_panel=_PANEL, metavar="FILE|KEY=VALUE"),
    ] = None,
    output: Annotated[
        OutputFormat | None, typer.Option("--output", help=OUTPUT_HELP, rich_help_panel=_PANEL, show_default=False)
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help=DEBUG_HELP, rich_help_panel=_PANEL)] = False,
    instance: Annotated[
        str | None,
        typer.Option("--instance", help=INSTANCE_HELP, rich_help_panel=_PANEL, metavar="NAME", show_default=False),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            help=PROFILE_HELP,
            rich_help_panel=_PANEL,
            metavar="NAME",
            show_default=False,
            autocompletion=complete_profile,
        ),
    ] = None,
) -> None:
    """The signature of options that are accepted after the verb as well as before the noun."""


SHARED: Final = inspect.signature(_everywhere, eval_str=True).parameters


class _Administrator:
    """Stands for `AdminClient` in signatures: the class itself is loaded when a command runs."""


_CONTEXT: Final = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)


def command(
    app: typer.Typer,
    name: str,
    *,
    negative_numbers: bool = False,
    passes_on: bool = False,
    fixed: Mapping[str, object] = MappingProxyType({}),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as `name` of `app`. A parameter of type `Settings` gets the settings, one of type
    `AdminClient` a client that is connected while the command runs, one of type `Given` the given settings, before any
    profile is read; the others are typer's. One whose type is another dataclass stands for all of its fields, which
    several commands may share.

    `negative_numbers`: whether its arguments may be negative, which otherwise look like options. `passes_on`: whether
    everything behind its first argument is an argument. `fixed`: parameters with constant values.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        known = inspect.signature(function, eval_str=True, locals={"AdminClient": _Administrator}).parameters.values()
        parameters = [p for p in known if p.name not in fixed]
        provided = {p.name: p.annotation for p in parameters if p.annotation in (Settings, _Administrator, Given)}
        own = [p for p in parameters if p.name not in provided]
        groups: dict[str, Any] = {p.name: p.annotation for p in own if dataclasses.is_dataclass(p.annotation)}
        flat = [each for p in own for each in (_fields(p.annotation) if p.name in groups else [p])]

        @functools.wraps(function)
        def run(**given: Any) -> None:
            context: typer.Context = given.pop("ctx")
            shared = {option: given.pop(option) for option in SHARED}
            reported: Given = context.obj.overridden(**shared)
            with log_on_stderr(reported.debug), failures(reported.debug), ExitStack() as opened:
                for group, kind in groups.items():
                    given[group] = kind(**{field.name: given.pop(field.name) for field in dataclasses.fields(kind)})
                if {Settings, _Administrator} & set(provided.values()):
                    settings = replace(reported.settings(), tenant=tenant_of({**given, **fixed}))
                for parameter, kind in provided.items():
                    if kind is _Administrator:
                        from pulsar_on_kafka.cli.shared.connection import admin_of

                        given[parameter] = opened.enter_context(admin_of(settings))
                    else:
                        given[parameter] = settings if kind is Settings else reported
                function(**fixed, **given)

        del run.__wrapped__
        all_of_them = [_CONTEXT, *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in flat), *SHARED.values()]
        run.__signature__ = inspect.Signature(all_of_them)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in all_of_them}
        context = {"ignore_unknown_options": negative_numbers, "allow_interspersed_args": not passes_on}
        app.command(name, context_settings=context)(run)
        return function

    return register


def _fields(kind: type) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [p.replace(annotation=hints[p.name]) for p in inspect.signature(kind).parameters.values()]


@contextmanager
def log_on_stderr(debug: bool, log: logging.Handler | None = None, least: int = logging.WARNING) -> Iterator[None]:
    """Logs of this package go to standard error, or to a service's `log`, from the level `least` on, unless the
    environment's POK_LOG_LEVEL sets another; librdkafka's own lines, and all others, only with `debug`."""
    least = logging.DEBUG if debug else level(least)
    if log is None:
        log = logging.StreamHandler(sys.stderr)
        log.setFormatter(logging.Formatter(_DEBUG_FORMAT if debug else "pok: %(message)s"))
    kinds: dict[logging.Logger, logging.Handler]
    kinds = {_LOG: log, LIBRDKAFKA_LOG: log if debug else logging.NullHandler()}
    before = [(logger, logger.handlers[:], logger.propagate, logger.level) for logger in kinds]
    for logger, its_handler in kinds.items():
        logger.handlers[:], logger.propagate = [its_handler], False
        logger.setLevel(least)
    try:
        yield
    finally:
        for logger, handlers, propagate, former in before:
            logger.handlers[:], logger.propagate = handlers, propagate
            logger.setLevel(former)
