"""`pok acls`: what Kafka's ACLs have to allow."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import typer

from pulsar_on_kafka.broker.metadata.acl_roles import ProgramFeature, command_line, rights_of
from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.output import write_json, write_line
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.instances import Instance

_USER: Final = "User:"

app = typer.Typer(no_args_is_help=True)


@command(app, "print")
def print_rights(
    settings: Settings,
    role: Annotated[
        Literal["producer", "consumer", "reader", "admin", "service"],
        typer.Option("--role", help="The program's role."),
    ],
    principal: Annotated[str, typer.Option("--principal", metavar="NAME", help="Who: alice, or User:CN=alice.")],
    topic: Annotated[
        str,
        typer.Option(
            "--topic", help="The program's topic; for admin and service any topic of the namespace that they serve."
        ),
    ],
    subscription: Annotated[str, typer.Option("--subscription", metavar="NAME", help="Of a consumer.")] = "",
    also: Annotated[
        list[ProgramFeature] | None, typer.Option("--also", help="A feature that it uses besides. May be repeated.")
    ] = None,
) -> None:
    """Print the kafka-acls lines for exactly the rights that a program needs (docs/acls.md), in the instance of
    --instance.

    Contacts no cluster; add --bootstrap-server.
    """
    try:
        rights = rights_of(role, TopicName.parse(topic), subscription, also or (), Instance(settings.instance))
    except MappingError as error:
        raise typer.BadParameter(str(error), param_hint="--topic") from error
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--subscription") from error
    who = principal if ":" in principal else _USER + principal
    if settings.json:
        write_json([{**right._asdict(), "principal": who} for right in rights])
        return
    for right in rights:
        write_line(command_line(right, who))
