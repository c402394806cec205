"""`pok schemas`, what needs a cluster: the schemas of topics."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.broker.metadata.policies import SCHEMA_COMPATIBILITY_STRATEGY
from pulsar_on_kafka.cli.schemas.files import read_schema
from pulsar_on_kafka.cli.schemas.offline import read_properties, reason_as_json, schema_type
from pulsar_on_kafka.cli.shared.completing import complete_topic
from pulsar_on_kafka.cli.shared.connection import admin_of
from pulsar_on_kafka.cli.shared.output import (
    CommandFailed,
    YesOption,
    confirm,
    show_pairs,
    show_result,
    show_table,
    write_json,
    write_line,
)
from pulsar_on_kafka.cli.shared.policies import set_policy
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.client.values.texts import printable, time_text
from pulsar_on_kafka.exceptions import BrokerMetadataError
from pulsar_on_kafka_schema_compat import SchemaInfo, SchemaType

if TYPE_CHECKING:
    from pulsar_on_kafka.admin import AdminClient
    from pulsar_on_kafka.broker.schema_registry.model import StoredSchema

TopicArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC", help="orders, or persistent://tenant/namespace/orders.", autocompletion=complete_topic
    ),
]
WhereArgument = Annotated[str, typer.Argument(metavar="WHERE", help="tenant/namespace, or a topic.")]


@dataclass(frozen=True)
class DefinitionOptions:
    """A schema in a file, and its properties that the file lacks."""

    filename: Annotated[
        Path,
        typer.Option("--filename", "-f", metavar="FILE", help="A definition, or the file pulsar-admin would upload."),
    ]
    kind: Annotated[
        SchemaType | None,
        typer.Option(
            "--type",
            parser=schema_type,
            metavar="TYPE",
            help="The definition's type: avro, json, protobuf_native ... Default: the type in the file.",
            show_default=False,
        ),
    ] = None
    name: Annotated[str, typer.Option("--name", help="Name of the schema.", show_default=False)] = ""
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", "-p", metavar="NAME=VALUE", help="A property of the schema. May be repeated."),
    ] = None
    message: Annotated[
        str | None,
        typer.Option("--message", help="Root message of a descriptor set (.desc), by full name.", show_default=False),
    ] = None

    def schema(self) -> SchemaInfo:
        return read_schema(self.filename, self.kind, self.name, read_properties(self.properties), self.message)


_HASH_CHARS: Final = 12


def get(
    settings: Settings,
    topic: TopicArgument,
    version: Annotated[
        int | None, typer.Option("--version", "-v", min=0, help="Also one that was deleted.", show_default="the latest")
    ] = None,
    every: Annotated[bool, typer.Option("--all-version", "-a", help="Every live version, oldest first.")] = False,
) -> None:
    """The schema of a topic. With --output json its output can be uploaded again."""
    if every and version is not None:
        raise typer.BadParameter("--version and --all-version exclude each other")
    with admin_of(settings) as admin:
        found = admin.get_all_schemas(topic) if every else [admin.get_schema_info_with_version(topic, version)]
    if settings.json:
        write_json([_as_json(one) for one in found] if every else _as_json(found[0]))
        return
    for number, one in enumerate(found):
        if number:
            write_line("")
        _show(one)


def list_versions(settings: Settings, admin: AdminClient, topic: TopicArgument) -> None:
    """The live versions of a topic's schema, oldest first."""
    found = admin.list_schema_versions(topic)
    if settings.json:
        write_json(
            [
                {
                    "version": one.version.number,
                    "type": one.type_name,
                    "bytes": one.definition_bytes,
                    "timestamp_ms": one.timestamp_ms,
                    "sha256": one.sha256,
                }
                for one in found
            ]
        )
    elif found:
        rows = [
            (
                one.version.number,
                one.type_name,
                one.definition_bytes,
                time_text(one.timestamp_ms),
                one.sha256[:_HASH_CHARS],
            )
            for one in found
        ]  # fmt: skip
        show_table(("version", "type", "bytes", "registered", "sha256"), rows)


def upload(
    settings: Settings,
    topic: TopicArgument,
    definition: DefinitionOptions,
) -> None:
    """Register a schema. What is registered already keeps its version."""
    schema, filename = definition.schema(), definition.filename
    with admin_of(settings) as admin:
        version = admin.create_schema(topic, schema)
        sentence = f"{filename} is version {version} of the schema of {topic}"
        show_result(settings, sentence, {"topic": topic, "version": version, "type": schema.type.name})


def delete(
    settings: Settings,
    admin: AdminClient,
    topic: TopicArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Remove the definitions: messages that name them cannot be read any more.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """End a topic's schemas: the next producer or consumer brings a new one, whatever it is."""
    try:
        live = len(admin.list_schema_versions(topic))
        if live == 0 and not force:
            raise CommandFailed(f"topic {topic} has no schema")
        what = counted(live, "live version")
    except BrokerMetadataError as unreadable:
        what = f"which cannot be read: {unreadable}"
    lost = "; with all definitions: messages that name them cannot be read any more" if force else ""
    confirm(f"delete the schemas of {topic}: {what}{lost}", yes)
    version = admin.delete_schema(topic, force=force)
    done = f"removed all schemas of {topic}" if force else f"deleted the schemas of {topic}"
    show_result(settings, done, {"topic": topic, "deletion": version, "removed": force})


def check_compatibility(
    settings: Settings,
    topic: TopicArgument,
    definition: DefinitionOptions,
) -> None:
    """Check whether a topic would accept a schema: exit code 0, or 1 with every place that forbids it. Registers
    nothing."""
    schema, filename = definition.schema(), definition.filename
    with admin_of(settings) as admin:
        strategy = admin.get_schema_compatibility_strategy(topic, applied=True)
        result = admin.test_compatibility(topic, schema)
    reasons = result.incompatibilities
    if settings.json:
        write_json(
            {
                "compatible": result.is_compatible,
                "type": schema.type.name,
                "strategy": strategy.name,
                "incompatibilities": [reason_as_json(one) for one in reasons],
            }
        )
    elif result.is_compatible:
        write_line(f"{topic} takes {filename}: {strategy.name}")
    else:
        columns = ("version", "direction", "rule", "path", "message")
        shown = [reason_as_json(one) for one in reasons]
        show_table(
            columns,
            [tuple("-" if row[column] in (None, "") else row[column] for column in columns) for row in shown],
        )
    if not result.is_compatible:
        count = f"{len(reasons)} {'reasons' if len(reasons) > 1 else 'reason'}"
        raise CommandFailed(f"{topic} does not take {filename}: {strategy.name}, {count}")


def set_compatibility(
    settings: Settings,
    where: WhereArgument,
    strategy: Annotated[str, typer.Argument(metavar="STRATEGY", help="full, backward_transitive ...; undefined.")],
) -> None:
    """Set the compatibility check for the next schemas of a namespace's topics, or of one topic."""
    set_policy(settings, where, SCHEMA_COMPATIBILITY_STRATEGY.name, strategy)


def get_compatibility(
    settings: Settings,
    admin: AdminClient,
    where: WhereArgument,
    applied: Annotated[
        bool, typer.Option("--applied", help="Show the strategy that counts here, wherever it is set.")
    ] = False,
) -> None:
    """Show the strategy that is set here (UNDEFINED: nothing), or with --applied the one that counts here."""
    found = admin.get_schema_compatibility_strategy(where, applied=applied)
    show_result(settings, found.name, found.name)


def _show(one: StoredSchema) -> None:
    show_pairs(
        {
            "version": one.version.number,
            "type": one.info.type.name,
            "name": one.info.name or "-",
            "registered": time_text(one.timestamp_ms) + (f" by {one.user}" if one.user else ""),
            "sha256": one.sha256,
            **{f"property {name}": value for name, value in one.info.properties.items()},
        }
    )
    definition = _definition(one.info)
    for line in definition.get("schema", f"base64:{definition.get('schema_base64', '')}").splitlines():
        write_line(printable(line))


def _as_json(one: StoredSchema) -> dict[str, Any]:
    return {
        "version": one.version.number,
        "type": one.info.type.name,
        "name": one.info.name,
        **_definition(one.info),
        "properties": dict(one.info.properties),
        "user": one.user,
        "timestamp_ms": one.timestamp_ms,
        "sha256": one.sha256,
    }


def _definition(info: SchemaInfo) -> Mapping[str, str]:
    """`schema` when it is UTF-8, `schema_base64` otherwise."""
    try:
        return {"schema": info.schema.decode("utf-8")}
    except UnicodeDecodeError:
        return {"schema_base64": base64.b64encode(info.schema).decode("ascii")}
