"""`pok schemas`, what needs no cluster: may this schema follow those?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.output import CommandFailed, show_table, write_json, write_line
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.client.values.texts import parse_properties
from pulsar_on_kafka_schema_compat import (
    CompatibilityResult,
    CompatibilityStrategy,
    Direction,
    Incompatibility,
    SchemaInfo,
    SchemaType,
    check_compatibility,
)

_Choice = TypeVar("_Choice")

app = typer.Typer(no_args_is_help=True)

_TYPES: Final = {kind.name: kind for kind in SchemaType if not kind.name.startswith("AUTO_")}
_STRATEGIES: Final = {one.name: one for one in CompatibilityStrategy if one is not CompatibilityStrategy.UNDEFINED}


def schema_type(text: str) -> SchemaType:
    """The type that a `--type` names, as `avro` or `protobuf-native`."""
    return _one_of(_TYPES, text)


def read_properties(given: Sequence[str] | None) -> dict[str, str]:
    """Raises typer.BadParameter: one is not of the form NAME=VALUE."""
    try:
        return parse_properties(given or [])
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--property") from error


def _strategy(given: str | CompatibilityStrategy) -> CompatibilityStrategy:
    return _one_of(_STRATEGIES, given) if isinstance(given, str) else given  # the default comes here too


def _one_of(choices: Mapping[str, _Choice], text: str) -> _Choice:
    name = text.upper().replace("-", "_")
    if name not in choices:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(map(str.lower, choices))}")
    return choices[name]


@command(app, "check")
def check(
    settings: Settings,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="OLD... NEW",
            exists=True,
            dir_okay=False,
            readable=True,
            help="Definitions, one a file: existing versions, oldest first, then the new one.",
        ),
    ],
    kind: Annotated[
        SchemaType,
        typer.Option("--type", parser=schema_type, metavar="TYPE", help="Their type: avro, json, protobuf_native ..."),
    ],
    strategy: Annotated[
        CompatibilityStrategy,
        typer.Option("--strategy", parser=_strategy, metavar="STRATEGY", help="full, backward, full_transitive ..."),
    ] = CompatibilityStrategy.FULL,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            "-p",
            metavar="NAME=VALUE",
            help="A property of every schema, as key.schema.type=AVRO. May be repeated.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Short for --output json.")] = False,
) -> None:
    """Check whether the last definition may follow the others: exit code 0, or 1 with every place that forbids it."""
    if len(files) < 2:
        raise typer.BadParameter("expected an existing definition and the new one behind it", param_hint="OLD... NEW")
    common = read_properties(properties)
    *existing, new = [SchemaInfo(kind, path.read_bytes(), properties=common) for path in files]
    result = check_compatibility(new, existing, strategy)
    if settings.json or as_json:
        write_json(_as_json(result, files, kind, strategy))
    elif result.is_compatible:
        write_line(f"{files[-1]} may follow {files[-2]}: {strategy.name}")
    else:
        show_table(
            ("version", "direction", "rule", "path", "reason"),
            [
                (_file(one, files) or "-", _direction(one.direction) or "-", one.rule, one.path or "-", one.message)
                for one in result.incompatibilities
            ],
        )
    if not result.is_compatible:
        refusal = f"{files[-1]} may not follow {files[-2]}: {strategy.name}"
        count = len(result.incompatibilities)
        raise CommandFailed(f"{refusal}, {count} {'reasons' if count > 1 else 'reason'}")


def _as_json(
    result: CompatibilityResult, files: Sequence[Path], kind: SchemaType, strategy: CompatibilityStrategy
) -> dict[str, Any]:
    return {
        "compatible": result.is_compatible,
        "type": kind.name,
        "strategy": strategy.name,
        "incompatibilities": [
            {"version": one.version, "file": _file(one, files), **reason_as_json(one)}
            for one in result.incompatibilities
        ],
    }


def reason_as_json(one: Incompatibility) -> dict[str, Any]:
    return {
        "version": one.version,
        "direction": _direction(one.direction),
        "rule": one.rule,
        "path": one.path,
        "message": one.message,
    }


def _file(one: Incompatibility, files: Sequence[Path]) -> str | None:
    return None if one.version is None else str(files[one.version])


def _direction(direction: Direction | None) -> str | None:
    return direction.value if direction else None
