"""`pok peek`: print messages without a subscription."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pulsar_on_kafka.base.shutdown import stop_on_signals
from pulsar_on_kafka.cli.commands.topics import TopicArgument
from pulsar_on_kafka.cli.shared.messages import print_message
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.client.values.texts import parse_message_id, parse_time
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId

if TYPE_CHECKING:
    from pulsar_on_kafka.admin import AdminClient

_COUNT: Final = 10
_LOOK_EVERY_MS: Final = 200  # how long a Ctrl-C may go unnoticed


def peek(
    settings: Settings,
    admin: AdminClient,
    topic: TopicArgument,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="ID|TIME",
            help="The first message that counts: its id, as printed; ISO 8601, Unix milliseconds, or so long ago "
            "(90s, 1h, 2d); earliest; latest.",
        ),
    ] = "earliest",
    count: Annotated[
        int | None,
        typer.Option(
            "--num-messages", "-n", min=0, help="How many at most; 0: all.", show_default=f"{_COUNT}; 0 with --follow"
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for further ones until Ctrl-C.")] = False,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Only with this key.", show_default=False)] = None,
) -> None:
    """Print messages without a subscription, as `pok consume` does.

    Nothing is created or acknowledged.
    """
    most = count if count is not None else 0 if follow else _COUNT
    place = _place(start, admin.node.clock.now_ms)
    printed = 0
    with stop_on_signals(interruptible=True) as stop, admin.read_messages(topic, start=place) as reading:
        while not stop.is_set() and (not most or printed < most) and (follow or reading.is_more()):
            message = reading.next(_LOOK_EVERY_MS)
            if message is not None and (key is None or message.key == key):
                print_message(settings, message)
                printed += 1


def _place(text: str, now_ms: Callable[[], int]) -> NativeMessageId | int:
    """Raises typer.BadParameter."""
    try:
        return parse_message_id(text)
    except ValueError as no_id:
        try:
            return parse_time(text, now_ms())
        except ValueError as no_time:
            reason = no_id if text.count(":") in (1, 2, 3) and "T" not in text else no_time
            raise typer.BadParameter(str(reason), param_hint="--from") from None
