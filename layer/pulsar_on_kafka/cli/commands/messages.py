"""`pok messages`: find messages that subscriptions have not acknowledged, and take them back."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.cli.commands.topics import TopicArgument
from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.completing import complete_subscription
from pulsar_on_kafka.cli.shared.output import YesOption, confirm, show_result, write_json, write_line
from pulsar_on_kafka.cli.shared.selection import MessageSelection, parsed_ids
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.client.values.texts import message_id_text, parse_duration, parse_time, printable, time_text

if TYPE_CHECKING:
    from pulsar_on_kafka.admin import AdminClient, FoundMessage

app = typer.Typer(no_args_is_help=True)


@dataclass(frozen=True)
class PendingSelection(MessageSelection):
    """Options that select pending messages."""

    ids_file: Annotated[
        str | None,
        typer.Option(
            "--ids-file", metavar="FILE", help="Message ids, one a line; - for standard input.", show_default=False
        ),
    ] = None
    delayed: Annotated[bool, typer.Option("--delayed", help="Only those whose delivery time has not come.")] = False
    subscription: Annotated[
        str | None,
        typer.Option(
            "--subscription", "-s", help="On this subscription only.", show_default=False,
            autocompletion=complete_subscription,
        ),
    ] = None  # fmt: skip

    def arguments(self) -> dict[str, Any]:
        """The arguments of `AdminClient.find_messages`. Raises typer.BadParameter."""
        return {
            "subscription": self.subscription,
            "message_ids": [*self.message_ids(), *self._listed_ids()],
            "key": self.key,
            "properties": self.named_properties(),
            "delayed": self.delayed,
        }

    def _listed_ids(self) -> list[Any]:
        if self.ids_file is None:
            return []
        try:
            text = sys.stdin.read() if self.ids_file == "-" else Path(self.ids_file).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as failure:
            raise typer.BadParameter(f"{self.ids_file} cannot be read: {failure}", param_hint="--ids-file") from failure
        return parsed_ids(text.split(), "--ids-file")


@command(app, "find")
def find(
    settings: Settings,
    admin: AdminClient,
    topic: TopicArgument,
    chosen: PendingSelection,
    count: Annotated[
        int | None, typer.Option("--num-messages", "-n", min=1, help="How many at most.", show_default=False)
    ] = None,
) -> None:
    """Print the messages that a subscription has not acknowledged, oldest first in each partition: id, publish time,
    delivery time, key and subscriptions with tabs between, or a JSON object each."""
    for message in islice(admin.find_messages(topic, **chosen.arguments()), count):
        if settings.json:
            write_json(_fields(message))
        else:
            write_line(_line(message))


@command(app, "cancel")
def cancel(
    settings: Settings,
    admin: AdminClient,
    topic: TopicArgument,
    chosen: PendingSelection,
    yes: YesOption = False,
) -> None:
    """Acknowledge messages, so that they are not delivered any more. A consumer keeps those that it has received."""
    arguments = chosen.arguments()
    confirm(f"cancel {_what(admin, topic, arguments, counts=not yes)}", yes)
    done = admin.cancel_messages(topic, **arguments)
    show_result(settings, _sentence(done, "cancelled"), {"cancelled": done})


@command(app, "reschedule")
def reschedule(
    settings: Settings,
    admin: AdminClient,
    topic: TopicArgument,
    chosen: PendingSelection,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="The new time: ISO 8601, or Unix milliseconds.", show_default=False),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="DURATION", help="The time from now: 90s, 1h30m, 2d.", show_default=False),
    ] = None,
    yes: YesOption = False,
) -> None:
    """Give messages whose delivery time has not come another one: a copy with a new id replaces each."""
    arguments = chosen.arguments()
    at_ms = _time(at, after, admin.node.clock.now_ms())
    what = _what(admin, topic, {**arguments, "delayed": True} if not yes else arguments, counts=not yes)
    confirm(f"reschedule {what} to {time_text(at_ms)}", yes)
    done = admin.reschedule_messages(topic, deliver_at=at_ms, **arguments)
    show_result(settings, f"{counted(done, 'message')} rescheduled", {"rescheduled": done})


def _time(at: str | None, after: str | None, now_ms: int) -> int:
    """Raises typer.BadParameter."""
    if (at is None) == (after is None):
        raise typer.BadParameter("expected either --at or --after")
    if at is not None and _is_duration(at):
        raise typer.BadParameter(f"{at!r} is a duration, use --after", param_hint="--at")
    try:
        return parse_time(at, now_ms) if at is not None else now_ms + parse_duration(after or "")
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--after" if at is None else "--at") from error


def _is_duration(text: str) -> bool:
    try:
        parse_duration(text)
    except ValueError:
        return False
    return True


def _what(admin: AdminClient, topic: str, arguments: Mapping[str, Any], *, counts: bool) -> str:
    """The messages that a command is about, by subscription where they are counted."""
    if not counts:
        on = arguments["subscription"]
        return f"messages of {printable(topic)} on {'all subscriptions' if on is None else printable(on)}"
    found = Counter(name for each in admin.find_messages(topic, **arguments) for name in each.subscriptions)
    return f"{_listed(found) or 'no message'} of {printable(topic)}"


def _sentence(done: Mapping[str, int], what: str) -> str:
    return f"{_listed(done) or '0 messages'} {what}"


def _listed(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{counted(number, 'message')} on {printable(name)}" for name, number in sorted(numbers.items()))


def _fields(message: FoundMessage) -> dict[str, Any]:
    return {
        "message_id": message_id_text(message.message_id),
        "publish_time_ms": message.publish_time_ms,
        "deliver_at_ms": message.deliver_at_ms or None,
        "key": message.key or None,
        "subscriptions": list(message.subscriptions),
    }


def _line(message: FoundMessage) -> str:
    return "\t".join(
        (
            message_id_text(message.message_id),
            time_text(message.publish_time_ms),
            time_text(message.deliver_at_ms) if message.deliver_at_ms else "-",
            printable(message.key) or "-",
            ",".join(printable(name) for name in message.subscriptions),
        )
    )
