"""`pok schemas diff`: two definitions field by field, and which strategies accept each change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from pulsar_on_kafka.cli.schemas.files import read_schema
from pulsar_on_kafka.cli.schemas.offline import read_properties, schema_type
from pulsar_on_kafka.cli.shared.connection import admin_of
from pulsar_on_kafka.cli.shared.output import CommandFailed, show_table, write_json, write_line
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka_schema_compat import (
    CompatibilityStrategy,
    Incompatibility,
    SchemaInfo,
    SchemaType,
    check_compatibility,
)
from pulsar_on_kafka_schema_compat.base.schema_model import UnreadableSchema
from pulsar_on_kafka_schema_compat.outline import Outline, OutlineChange, changes, outline

_ASKED: Final = (CompatibilityStrategy.BACKWARD, CompatibilityStrategy.FORWARD)
Reasons = Mapping[CompatibilityStrategy, Sequence[Incompatibility]]


def diff(
    settings: Settings,
    old: Annotated[str, typer.Argument(metavar="OLD", help="A definition's file; with --topic a version's number.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The definition that would follow it, or did.")],
    kind: Annotated[
        SchemaType | None,
        typer.Option(
            "--type",
            parser=schema_type,
            metavar="TYPE",
            help="The type of the files: avro, json, protobuf_native ... Default: the type in the files.",
            show_default=False,
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Two versions of this topic's schemas.", show_default=False)
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", "-p", metavar="NAME=VALUE", help="A property of both files. May be repeated."),
    ] = None,
) -> None:
    """Compare two definitions, field by field, and show whether BACKWARD and FORWARD accept the change.

    A file is a definition of --type, or the output of `pok schemas get`; no cluster is needed.
    """
    if topic is not None and (kind is not None or properties):
        raise typer.BadParameter("the versions of a topic have their own type and properties", param_hint="--topic")
    if topic is not None:
        before, after = _versions(settings, topic, old, new)
        names = (f"version {old}", f"version {new}")
    else:
        given = read_properties(properties)
        before, after = (read_schema(Path(path), kind, "", given, None) for path in (old, new))
        names = (old, new)
    show_difference(settings, before, after, names)


def _versions(settings: Settings, topic: str, *given: str) -> list[SchemaInfo]:
    for text in given:
        if not (text.isascii() and text.isdecimal()):
            raise typer.BadParameter(f"{text!r:.60} is not the number of a version, as 0 or 12", param_hint="OLD NEW")
    with admin_of(settings) as admin:
        return [admin.get_schema_info(topic, int(text)) for text in given]


def show_difference(settings: Settings, old: SchemaInfo, new: SchemaInfo, names: tuple[str, str]) -> None:
    """Print how `new` differs from `old`; `names` are what a person calls them.

    Raises:
        CommandFailed: one of them is no schema of its type.
    """
    outlines = [_outline(schema, name) for schema, name in zip((old, new), names, strict=True)]
    found = changes(*outlines)
    reasons = {strategy: check_compatibility(new, [old], strategy).incompatibilities for strategy in _ASKED}
    readers = dict(zip(_ASKED, reversed(outlines), strict=True))
    rows = [
        (change, {strategy: _rules(change, reasons[strategy], readers[strategy]) for strategy in _ASKED})
        for change in found
    ]
    if settings.json:
        write_json(_as_json(old, new, rows, reasons))
        return
    if rows:
        columns = ("field", "change", names[0], names[1], *(strategy.name for strategy in _ASKED))
        show_table(columns, [_row(change, rules) for change, rules in rows])
    elif old.schema == new.schema and old.type is new.type:
        write_line("the two are the same")
    else:
        write_line("no field differs; the texts do, in order, names, documentation or layout")
    for strategy in _ASKED:
        for one in reasons[strategy]:
            write_line(f"{strategy.name}: {one}")
    write_line(", ".join(f"{name}: {'accepted' if yes else 'refused'}" for name, yes in _accepted(reasons).items()))


def _outline(schema: SchemaInfo, name: str) -> Outline:
    try:
        return outline(schema)
    except UnreadableSchema as error:
        raise CommandFailed(f"{name} is no {schema.type.name} schema: {error}") from error


def _rules(change: OutlineChange, reasons: Sequence[Incompatibility], reader: Outline) -> list[str]:
    """Why a strategy refuses this change; nothing when the change by itself is no reason."""
    return list(dict.fromkeys(one.rule for one in reasons if _is_at(change.name, reader.line_of(one.path))))


def _is_at(name: str, line: str) -> bool:
    """True for the place itself, and in a document for what lies below it."""
    return name == line or (line.startswith("#") and name.startswith(f"{line}/"))


def _row(change: OutlineChange, rules: Mapping[CompatibilityStrategy, Sequence[str]]) -> tuple[str, ...]:
    verdicts = (", ".join(rules[strategy]) or "yes" for strategy in _ASKED)
    return (change.name, _kind(change), change.old or "", change.new or "", *verdicts)


def _kind(change: OutlineChange) -> str:
    return "added" if change.old is None else "removed" if change.new is None else "changed"


def _accepted(reasons: Reasons) -> dict[str, bool]:
    backward, forward = (not reasons[strategy] for strategy in _ASKED)
    return {"BACKWARD": backward, "FORWARD": forward, "FULL": backward and forward}


def _as_json(
    old: SchemaInfo,
    new: SchemaInfo,
    rows: Sequence[tuple[OutlineChange, Mapping[CompatibilityStrategy, Sequence[str]]]],
    reasons: Reasons,
) -> dict[str, Any]:
    return {
        "types": [old.type.name, new.type.name],
        "changes": [
            {
                "field": change.name,
                "change": _kind(change),
                "old": change.old,
                "new": change.new,
                **{strategy.name.lower(): list(rules[strategy]) for strategy in _ASKED},
            }
            for change, rules in rows
        ],
        "accepted": _accepted(reasons),
        "reasons": [
            {"strategy": strategy.name, "rule": one.rule, "path": one.path, "message": one.message}
            for strategy in _ASKED
            for one in reasons[strategy]
        ],
    }
