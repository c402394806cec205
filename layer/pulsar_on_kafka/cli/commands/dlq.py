"""`pok dlq`: find dead letters, look at them, put them back where they came from, or drop them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pulsar_on_kafka.base.shutdown import stop_on_signals
from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.completing import complete_topic
from pulsar_on_kafka.cli.shared.messages import message_fields, value_text
from pulsar_on_kafka.cli.shared.output import (
    CommandFailed,
    CommandInterrupted,
    YesOption,
    confirm,
    news,
    progress_bar,
    show_list,
    show_result,
    write_json,
    write_line,
)
from pulsar_on_kafka.cli.shared.selection import MessageSelection
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.client.values.texts import (
    duration_text,
    message_id_text,
    printable,
    time_text,
)

if TYPE_CHECKING:
    from pulsar_on_kafka.admin import AdminClient, DeadLetter, LetterFilter, Redriven

app = typer.Typer(no_args_is_help=True)

LettersArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC", help="The dead letter topic, as `pok dlq list` names it.", autocompletion=complete_topic
    ),
]
CountOption = Annotated[
    int | None, typer.Option("--num-messages", "-n", min=1, help="How many letters at most.", show_default=False)
]


@dataclass(frozen=True)
class LetterSelection(MessageSelection):
    """Options that select letters."""

    def filter(self) -> LetterFilter:
        """Raises typer.BadParameter."""
        from pulsar_on_kafka.admin import LetterFilter

        return LetterFilter.of(self.message_ids(), self.key, self.named_properties())

    def check_found(self, letters: int) -> None:
        """Raises CommandFailed: some of the ids are those of no letter that is left."""
        requested = len(set(self.ids or ()))
        if letters < requested:
            raise CommandFailed(f"{counted(requested - letters, 'id')} of {requested:,} named no remaining letter")


@command(app, "list")
def list_topics(
    settings: Settings,
    admin: AdminClient,
    topic: Annotated[
        str,
        typer.Argument(
            metavar="[TOPIC]", help="Whose dead letters, or a dead letter topic.", autocompletion=complete_topic
        ),
    ] = "",
    namespace: Annotated[
        str, typer.Option("--namespace", help="tenant/namespace, or a tenant for all of its namespaces.")
    ] = "public/default",
) -> None:
    """List dead letter topics, with what is left in them: what was neither put back nor dropped."""
    found = admin.dead_letter_topics(namespace, topic=topic)
    now_ms = admin.node.clock.now_ms()
    show_list(
        settings,
        [
            {
                "topic": each.topic,
                "origin": each.origin or None,
                "subscription": each.subscription or None,
                "left": each.left,
                "oldest_ms": each.oldest_ms,
            }
            for each in found
        ],
        ("dead letter topic", "left", "subscription", "oldest"),
        [
            (
                _short(each.topic),
                each.left,
                each.subscription,
                "" if each.oldest_ms is None else duration_text(now_ms - each.oldest_ms),
            )
            for each in found
        ],
    )


@command(app, "show")
def show(
    settings: Settings,
    admin: AdminClient,
    topic: LettersArgument,
    chosen: LetterSelection,
    count: Annotated[int, typer.Option("--num-messages", "-n", min=1, help="How many letters at most.")] = 10,
) -> None:
    """Show the remaining letters, oldest first: their origin, the reason, the delivery count, and the content. A JSON
    object each with --output json."""
    found = admin.dead_letters(topic, count, chosen.filter())
    for number, letter in enumerate(found):
        if settings.json:
            write_json(_as_json(letter))
            continue
        if number:
            write_line("")
        for line in _lines(letter):
            write_line(line)
    if found and not any(letter.origin_topic for letter in found):
        news(f"none of them names the topic it came from: is {topic} a dead letter topic? `pok dlq list` lists those")
    if chosen.ids:
        chosen.check_found(len(found))


@command(app, "redrive")
def redrive(
    settings: Settings,
    admin: AdminClient,
    topic: LettersArgument,
    chosen: LetterSelection,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="TOPIC",
            help="Where they go, instead of where they came from.",
            show_default=False,
            autocompletion=complete_topic,
        ),
    ] = None,
    count: CountOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be put back.")] = False,
) -> None:
    """Put letters back to the topics they came from, each once, also when it is killed in the middle and called again.

    Ctrl-C ends it between two transactions.
    """
    if dry_run:
        planned = admin.plan_redrive(topic, chosen.filter(), to=to, count=count)
        _show(settings, planned, "would be put back")
        chosen.check_found(planned.letters)
        return
    with stop_on_signals(interruptible=True) as stop, progress_bar("putting back", count, shown=True) as advance:
        done = admin.redrive_dead_letters(topic, chosen.filter(), to=to, count=count, told=advance, stop=stop.is_set)
    _show(settings, done, "put back")
    if stop.is_set():
        raise CommandInterrupted(f"interrupted; {counted(done.letters, 'letter')} put back")
    chosen.check_found(done.letters)


@command(app, "drop")
def drop(
    settings: Settings,
    admin: AdminClient,
    topic: LettersArgument,
    chosen: LetterSelection,
    count: CountOption = None,
    yes: YesOption = False,
) -> None:
    """Drop letters: they are no longer shown and can no longer be put back."""
    requested = chosen.filter()
    there = admin.count_dead_letters(topic, requested, most=count)
    if there:
        confirm(f"drop {counted(there, 'dead letter')} of {printable(topic)}", yes)
    with stop_on_signals(interruptible=True) as stop, progress_bar("dropping", there, shown=True) as advance:
        done = admin.drop_dead_letters(topic, requested, count=there, told=advance, stop=stop.is_set) if there else 0
    show_result(settings, f"{counted(done, 'letter')} dropped", {"dropped": done})
    if stop.is_set():
        raise CommandInterrupted(f"interrupted; {counted(done, 'letter')} dropped")
    chosen.check_found(done)


def _show(settings: Settings, done: Redriven, what: str) -> None:
    to = dict(done.to.most_common())
    where = ", ".join(f"{number:,} to {printable(_short(target))}" for target, number in to.items())
    show_result(
        settings,
        f"{counted(done.letters, 'letter')} {what}{f': {where}' if where else ''}",
        {what.replace(" ", "_"): done.letters, "to": to, "without_origin": done.without_origin},
    )
    if done.without_origin and not settings.json:
        many = done.without_origin != 1
        news(f"{counted(done.without_origin, 'letter')} {'name' if many else 'names'} no topic: use --to")


def _as_json(letter: DeadLetter) -> dict[str, Any]:
    return {
        **message_fields(letter.message),
        "origin_topic": letter.origin_topic or None,
        "origin_message_id": letter.origin_message_id or None,
        "subscription": letter.subscription or None,
        "reason": letter.reason or None,
        "deliveries": letter.deliveries,
    }


def _lines(letter: DeadLetter) -> list[str]:
    """A letter for a terminal: what is known of it, a line each."""
    message = letter.message
    deliveries = "" if letter.deliveries is None else counted(letter.deliveries, "time")
    pairs = {
        "from": _short(letter.origin_topic),
        "origin id": letter.origin_message_id,
        "subscription": letter.subscription,
        "delivered": deliveries,
        "why": letter.reason,
        "key": message.key,
        "properties": ",".join(f"{name}={value}" for name, value in letter.properties.items()),
    }
    reported = [f"  {name:<12}  {printable(value)}" for name, value in pairs.items() if value]
    first = f"{message_id_text(message.message_id)}  {time_text(message.publish_time_ms)}"
    return [first, *reported, f"  {'value':<12}  {value_text(message)}"]


def _short(topic: str) -> str:
    """The topic's name without the default domain."""
    return topic.removeprefix("persistent://")
