"""Messages as commands print them: a line with tabs, or a JSON object."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.cli.shared.output import write_json, write_line
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.client.values.texts import message_id_text, payload_fields, payload_text, printable

if TYPE_CHECKING:
    from pulsar_on_kafka.admin import ShownMessage

_MAX_CHARS: Final = 4096
"""The limit of a value's characters on a line; JSON has the whole value."""


def print_message(settings: Settings, message: ShownMessage) -> None:
    if settings.json:
        write_json(message_fields(message))
    else:
        write_line(message_line(message))


def message_fields(message: ShownMessage) -> dict[str, Any]:
    """`payload` is null for a message without one. `value` is there when the schema that the message was written with
    reads it, `undecoded` when it cannot, and `encrypted` when the payload is."""
    fields: dict[str, Any] = {
        "message_id": message_id_text(message.message_id),
        "topic": message.topic,
        "key": message.key or None,
        "ordering_key": message.ordering_key or None,
        "properties": dict(message.properties),
        "publish_time_ms": message.publish_time_ms,
        "event_time_ms": message.event_time_ms or None,
        "producer": message.producer,
        "redelivery_count": message.redelivery_count,
    }
    if message.encrypted:
        fields["encrypted"] = True
    if message.decoded:
        fields["value"] = message.value
    if message.undecoded:
        fields["undecoded"] = message.undecoded
    return fields | ({"payload": None} if message.payload is None else {**payload_fields(message.payload)})


def message_line(message: ShownMessage) -> str:
    """Id, key, properties and value with tabs between; `-` for what is not there."""
    return "\t".join(
        (
            message_id_text(message.message_id),
            printable(message.key) or "-",
            printable(",".join(f"{name}={value}" for name, value in message.properties.items())) or "-",
            value_text(message),
        )
    )


def value_text(message: ShownMessage) -> str:
    """The decoded value as JSON; without a schema the payload. At most `_MAX_CHARS` of it."""
    if message.payload is None:
        return "-"
    size = counted(len(message.payload), "byte")
    if message.encrypted:
        return f"(encrypted, {size})"
    if message.decoded:
        text = printable(
            message.value if isinstance(message.value, str) else json.dumps(message.value, ensure_ascii=False)
        )
    else:
        text = payload_text(message.payload)
    if len(text) > _MAX_CHARS:
        text = f"{text[:_MAX_CHARS]}... ({size})"
    return f"{text} (not decoded: {printable(message.undecoded)})" if message.undecoded else text
