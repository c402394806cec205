"""Options that select messages, which several commands have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import typer

from pulsar_on_kafka.client.values.texts import parse_message_id, parse_properties
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId


@dataclass(frozen=True)
class MessageSelection:
    """Messages by id, key and properties: all that are given must hold."""

    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="Only this one, by its id. May be repeated.", show_default=False),
    ] = None
    key: Annotated[str | None, typer.Option("--key", "-k", help="Only those with this key.", show_default=False)] = None
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--filter", metavar="NAME=VALUE", help="Only those with this property. May be repeated, all must hold."
        ),
    ] = None

    def message_ids(self) -> list[NativeMessageId]:
        """Raises typer.BadParameter."""
        return parsed_ids(self.ids or (), "--id")

    def named_properties(self) -> dict[str, str]:
        """Raises typer.BadParameter."""
        try:
            return parse_properties(self.properties or ())
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--filter") from error


def parsed_ids(texts: Iterable[str], option: str) -> list[NativeMessageId]:
    """The message ids that an option names. Raises typer.BadParameter."""
    try:
        return [parse_message_id(text) for text in texts]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
