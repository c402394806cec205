"""`pok subscriptions`: make, look at, move and delete subscriptions."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

import typer

from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.cli.commands.topics import TopicArgument
from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.completing import complete_subscription
from pulsar_on_kafka.cli.shared.connection import admin_of
from pulsar_on_kafka.cli.shared.cursors import LEGEND, cursors_as_json, drawn, save_png, show_costs
from pulsar_on_kafka.cli.shared.output import (
    CommandFailed,
    YesOption,
    confirm,
    news,
    show_further_table,
    show_list,
    show_names,
    show_pairs,
    show_result,
    show_table,
    write_json,
    write_line,
)
from pulsar_on_kafka.cli.shared.properties import given_properties, show_properties
from pulsar_on_kafka.cli.shared.settings import ClusterConfigOption, Settings, read_cluster_config
from pulsar_on_kafka.client.values.texts import (
    member_text,
    message_id_text,
    parse_message_id,
    parse_time,
    printable,
    process_text,
    ranges_of,
    ranges_text,
    time_text,
)
from pulsar_on_kafka_mapping.errors import InvalidSubscriptionName
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.names.subscription_group import check_subscription_name

if TYPE_CHECKING:
    from pulsar_on_kafka.admin import AdminClient, ConsumerStats, SubscriptionStats, WaitingKeysStats

app = typer.Typer(no_args_is_help=True)


def _checked_name(subscription: str) -> str:
    """Raises typer.BadParameter for what no subscription can be called."""
    try:
        check_subscription_name(subscription)
    except InvalidSubscriptionName as error:
        raise typer.BadParameter(str(error)) from error
    return subscription


SubscriptionOption = Annotated[
    str,
    typer.Option(
        "--subscription",
        "-s",
        help="Name of the subscription.",
        callback=_checked_name,
        autocompletion=complete_subscription,
    ),
]


Initial: TypeAlias = Literal["earliest", "latest"]
"""Start of a new subscription."""


@command(app, "list")
def list_subscriptions(settings: Settings, admin: AdminClient, topic: TopicArgument) -> None:
    """List the subscriptions of a topic, one a line."""
    show_names(settings, admin.list_subscriptions(topic))


@command(app, "create")
def create(
    settings: Settings,
    admin: AdminClient,
    topic: TopicArgument,
    subscription: SubscriptionOption,
    initial: Annotated[Initial, typer.Option("--initial", help="Where it starts.")] = "latest",
) -> None:
    """Make a subscription."""
    admin.create_subscription(topic, subscription, from_earliest=initial == "earliest")
    show_result(
        settings,
        f"created {printable(subscription)} at the {initial} message",
        {"created": subscription, "initial": initial},
    )


@command(app, "replicate")
def replicate(
    settings: Settings,
    admin: AdminClient,
    topic: TopicArgument,
    subscription: SubscriptionOption,
    off: Annotated[
        bool, typer.Option("--off", help="Stop its replication in this cluster; it stays as it is.")
    ] = False,
) -> None:
    """Replicate a subscription to the clusters that its topic is copied to, or stop that."""
    if off:
        admin.stop_replicating_subscription(topic, subscription)
        show_result(
            settings,
            f"{printable(subscription)} is not replicated here any more",
            {"subscription": subscription, "replicated_by": ""},
        )
        return
    admin.replicate_subscription(topic, subscription)
    show_result(
        settings,
        f"{printable(subscription)} is replicated",
        {"subscription": subscription, "replicated_by": "acknowledgements"},
    )


@command(app, "stats")
def show_stats(settings: Settings, admin: AdminClient, topic: TopicArgument, subscription: SubscriptionOption) -> None:
    """Show backlog, mark-delete, holes and owner of each partition, as last saved, and every consumer in every
    process."""
    stats = admin.subscription_stats(topic, subscription)
    consumers = admin.subscription_consumers(topic, subscription) if stats.consumers else []
    if settings.json:
        write_json({**asdict(stats), "consumers_told": [asdict(consumer) for consumer in consumers]})
        return
    show_pairs(
        {
            "subscription": stats.subscription,
            "topic": stats.topic,
            "type": stats.type + ("" if stats.durable else ", not durable"),
            "group": stats.group,
            "backlog": stats.backlog,
            "acked above mark-delete": stats.individually_deleted,
            "replicated": "yes" if stats.replicated else "no",
            "consumers": ", ".join(map(member_text, stats.consumers)) or "none",
        }
    )
    write_line("")
    show_table(
        ("partition", "end", "mark-delete", "backlog", "acked", "holes", "saved in"),
        [
            (p.partition, p.end, p.mark_delete, p.backlog, p.individually_deleted, p.holes, p.saved_in)
            for p in stats.partitions
        ],
    )
    show_further_table(("owner", "of partitions"), _owners(stats))
    for line in suspects_text(stats):
        write_line(line)
    for p in stats.partitions:
        if p.unreadable:
            write_line(f"partition {p.partition} is not served until the subscription is reset: {p.unreadable}")
    show_further_table(
        ("consumer", "level", "permits", "unacked", "delivered", "per s", "lease, s", "process"),
        [
            ("(no reply)", "", "", "", "", "", "", process_text(c.process))
            if c.permits < 0
            else (
                c.consumer_name, c.priority, c.permits, c.unacked, c.delivered, c.rate,
                "" if c.lease_age_s < 0 else c.lease_age_s, process_text(c.process),
            )
            for c in consumers
        ],
    )  # fmt: skip
    keys = (each for c in consumers for each in c.waiting_keys)
    for line in (*blocked_text(consumers), *held_back_text(consumers), *waiting_keys_text(keys)):
        write_line(line)
    for c in sorted(consumers, key=lambda each: -each.waiting)[:_MAX_AWAITED]:
        if c.waiting:
            waits = "1 message waits" if c.waiting == 1 else f"{c.waiting:,} messages wait"
            write_line(f"{waits} for consumer {printable(c.consumer_name)}, for {c.waiting_s} s")


_MAX_AWAITED: Final = 10


def _owners(stats: SubscriptionStats) -> list[tuple[str, str]]:
    found: dict[str, list[int]] = {}
    for p in stats.partitions:
        if p.owner:
            found.setdefault(p.owner, []).append(p.partition)
    return [(member_text(owner), ranges_text(ranges_of(partitions))) for owner, partitions in found.items()]


@command(app, "show")
def show(
    settings: Settings,
    admin: AdminClient,
    topic: TopicArgument,
    subscription: SubscriptionOption,
    png: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="Draw it into a PNG file, too.", show_default=False)
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Have live consumers' processes save first.")] = False,
) -> None:
    """Draw the acknowledged messages of each partition, and show the size of each ledger. Read-only."""
    cursors = admin.subscription_cursors(topic, subscription, fresh=fresh)
    stats = None if settings.json and png is None else admin.subscription_stats(topic, subscription)
    if png is not None and stats is not None:
        try:
            state = _state(stats, admin.node.clock.now_ms())
            save_png(cursors, f"{printable(subscription)} of {printable(topic)}", state, png)
        except ModuleNotFoundError as error:
            raise CommandFailed("--png is drawn by Pillow: pip install 'pulsar-on-kafka[png]'") from error
        except OSError as error:
            raise CommandFailed(f"--png: {error}") from error
    if settings.json:
        write_json(cursors_as_json(cursors, admin.read_positions(topic, subscription)))
        return
    width = shutil.get_terminal_size((100, 24)).columns
    for cursor in cursors:
        write_line(
            f"partition {cursor.partition}: backlog {cursor.backlog:,}, mark-delete {cursor.mark_delete:,}, "
            f"{cursor.acknowledged:,} acknowledged above it, {counted(cursor.holes, 'hole')}"
        )
        for line in drawn(cursor, width):
            write_line(line)
        write_line("")
    for reported in [] if stats is None else suspects_text(stats):
        write_line(reported)
    for reported in waiting_keys_text(admin.waiting_keys(topic, subscription)):
        write_line(reported)
    write_line(LEGEND)
    write_line("")
    show_costs(cursors)
    if png is not None:
        news(f"drawn to {png}")


def _state(stats: SubscriptionStats, now_ms: int) -> str:
    """One line for a picture: when it was drawn, and how the subscription is."""
    return f"{time_text(now_ms)}   {stats.type}   backlog {stats.backlog:,}   {len(stats.consumers)} processes consume"


@command(app, "reset")
def reset(
    settings: Settings,
    topic: TopicArgument,
    subscription: SubscriptionOption,
    moment: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="TIME",
            help="The first message published at or after it comes next: ISO 8601 (local time unless it has an "
            "offset), Unix milliseconds, or so long ago (90s, 1h, 2d).",
            show_default=False,
        ),
    ] = None,
    message_id: Annotated[
        str | None,
        typer.Option(
            "--message-id",
            metavar="ID",
            help="This message comes next: ledger:entry[:partition[:index]] as it is printed; earliest; latest.",
            show_default=False,
        ),
    ] = None,
    yes: YesOption = False,
) -> None:
    """Set a subscription to a place, live consumers with it. What was acknowledged on it is forgotten."""
    _place(moment, message_id, lambda: 0)  # what cannot be read is refused before the cluster is reached
    with admin_of(settings) as admin:
        timestamp_ms, requested, place = _place(moment, message_id, admin.node.clock.now_ms)
        stats = admin.subscription_stats(topic, subscription)
        lost = admin.unreadable_cursors(topic, subscription)
        confirm(f"set {_description(stats)} to {place}{_lost(lost)}", yes)
        admin.reset_cursor(topic, subscription, timestamp_ms=timestamp_ms, message_id=requested)
        _show_backlog(settings, admin, stats, f"set to {place}", {"reset_to": place})


@command(app, "skip")
def skip(
    settings: Settings,
    admin: AdminClient,
    topic: TopicArgument,
    subscription: SubscriptionOption,
    count: Annotated[int, typer.Option("--count", "-n", help="Unacknowledged messages to skip, in each partition.")],
    yes: YesOption = False,
) -> None:
    """Acknowledge the next messages unread. Live consumers still get what is in their inboxes."""
    stats = admin.subscription_stats(topic, subscription)
    confirm(f"skip up to {counted(count, 'message')} of each partition of {_description(stats)}", yes)
    skipped = admin.skip(topic, subscription, count)
    _show_backlog(settings, admin, stats, f"{counted(skipped, 'message')} skipped", {"skipped": skipped})


@command(app, "clear-backlog")
def clear_backlog(
    settings: Settings,
    admin: AdminClient,
    topic: TopicArgument,
    subscription: SubscriptionOption,
    yes: YesOption = False,
) -> None:
    """Acknowledge everything up to the end unread. Live consumers still get what is in their inboxes."""
    stats = admin.subscription_stats(topic, subscription)
    lost = admin.unreadable_cursors(topic, subscription)
    confirm(f"acknowledge the whole backlog of {_description(stats)}{_lost(lost)}", yes)
    admin.clear_backlog(topic, subscription)
    _show_backlog(settings, admin, stats, "cleared", {"cleared": stats.backlog})


@command(app, "expire")
def expire(
    settings: Settings,
    admin: AdminClient,
    topic: TopicArgument,
    subscription: SubscriptionOption,
    older_than_s: Annotated[
        int | None,
        typer.Option(
            "--older-than", metavar="SECONDS", min=1, help="Messages published before that.", show_default=False
        ),
    ] = None,
    message_id: Annotated[
        str | None,
        typer.Option(
            "--message-id", metavar="ID", help="Messages up to this one, ledger:entry[:partition].", show_default=False
        ),
    ] = None,
    yes: YesOption = False,
) -> None:
    """Acknowledge old messages unread. Live consumers still get what is in their inboxes."""
    if (older_than_s is None) == (message_id is None):
        raise typer.BadParameter("name the messages: either --older-than or --message-id")
    try:
        upto = None if message_id is None else parse_message_id(message_id)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--message-id") from error
    which = f"older than {older_than_s} s" if upto is None else f"up to {message_id_text(upto)}"
    stats = admin.subscription_stats(topic, subscription)
    confirm(f"acknowledge the messages {which} of {_description(stats)}", yes)
    expired = sum(admin.expire_messages(topic, subscription, older_than_s=older_than_s, message_id=upto).values())
    _show_backlog(settings, admin, stats, f"{counted(expired, 'message')} expired", {"expired": expired})


@command(app, "properties")
def properties(
    settings: Settings,
    admin: AdminClient,
    topic: TopicArgument,
    subscription: SubscriptionOption,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            "-p",
            metavar="NAME=VALUE",
            help="Replace the properties by these. May be repeated.",
            show_default=False,
        ),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the properties.")] = False,
) -> None:
    """Show the properties of a subscription, or replace them."""
    if given and clear:
        raise typer.BadParameter("name either --property or --clear")
    wanted = given_properties(given, "--property")
    if wanted or clear:
        admin.update_subscription_properties(topic, subscription, wanted)
    show_properties(settings, admin.subscription_properties(topic, subscription))


@command(app, "unsubscribe")
def unsubscribe(
    settings: Settings,
    admin: AdminClient,
    topic: TopicArgument,
    subscription: SubscriptionOption,
    force: Annotated[bool, typer.Option("--force", help="End its live consumers before.")] = False,
    yes: YesOption = False,
) -> None:
    """Delete a subscription with everything acknowledged on it; one with live consumers only by force."""
    stats = admin.subscription_stats(topic, subscription)
    live = counted(len(stats.consumers), "live process", "live processes")
    confirm(f"delete {_description(stats)}{f', with {live}' if force and stats.consumers else ''}", yes)
    admin.unsubscribe(topic, subscription, force=force)
    show_result(
        settings,
        f"deleted {printable(subscription)} of {stats.topic}",
        {"deleted": subscription, "topic": stats.topic},
    )


def _place(
    moment: str | None, message_id: str | None, now_ms: Callable[[], int]
) -> tuple[int | None, NativeMessageId | None, str]:
    """(time, message id, the same in words); exactly one of the first two is there."""
    if (moment is None) == (message_id is None):
        raise typer.BadParameter("name the position: either --time or --message-id")
    try:
        if moment is not None:
            timestamp_ms = parse_time(moment, now_ms())
            return timestamp_ms, None, time_text(timestamp_ms)
        requested = parse_message_id(message_id or "")
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--message-id" if moment is None else "--time") from error
    return None, requested, message_id_text(requested)


def suspects_text(stats: SubscriptionStats) -> list[str]:
    """A line for each partition whose messages come slowly because their consumer died."""
    return [
        f"partition {p.partition}: {counted(p.suspects, 'message')} delivered few at a time because their consumer died"
        for p in stats.partitions
        if p.suspects
    ]


def waiting_keys_text(found: Iterable[WaitingKeysStats]) -> list[str]:
    """A line for each partition with keys that wait for refused messages; partitions may be repeated."""
    by_partition = {each.partition: each for each in found}
    return [
        f"partition {each.partition}: waiting for refused messages: {counted(each.keys, 'key')} with "
        f"{counted(each.messages, 'message')}, the longest for {each.waiting_s} s (offset {each.oldest:,})"
        for _, each in sorted(by_partition.items())
    ]


def blocked_text(consumers: Sequence[ConsumerStats]) -> list[str]:
    """Lines about limits of unacknowledged messages that are reached."""
    subscription_s = max((c.subscription_blocked_s for c in consumers), default=-1.0)
    what = f"the subscription is blocked by unacknowledged messages, for {subscription_s} s"
    lines = [] if subscription_s < 0 else [what]
    blocked = sorted((c for c in consumers if c.blocked_s >= 0), key=lambda each: -each.blocked_s)[:_MAX_AWAITED]
    return lines + [
        f"consumer {printable(c.consumer_name)} is blocked by {counted(c.unacked, 'unacknowledged message')}, "
        f"for {c.blocked_s} s"
        for c in blocked
    ]


def held_back_text(consumers: Sequence[ConsumerStats]) -> list[str]:
    """A line about dispatch rates that held messages back."""
    found = {each.partition: each for c in consumers for each in c.throttling}.values()
    own = sum(each.subscription_messages + each.subscription_bytes for each in found)
    of_topic = sum(each.topic_messages + each.topic_bytes for each in found)
    if not own and not of_topic:
        return []
    by_topic = counted(of_topic, "time")
    return [f"held back by the subscription's dispatch rate {counted(own, 'time')}, by the topic's {by_topic}"]


def _description(stats: SubscriptionStats) -> str:
    return (
        f"subscription {printable(stats.subscription)} of {stats.topic} "
        f"(backlog {stats.backlog:,}, {stats.individually_deleted:,} acknowledged above mark-delete)"
    )


def _lost(unreadable: Mapping[int, str]) -> str:
    """The state that moving these cursors deletes."""
    return "".join(
        f"\npartition {partition}: what is acknowledged above mark-delete cannot be read and is forgotten ({reason})"
        for partition, reason in unreadable.items()
    )


def _show_backlog(
    settings: Settings, admin: AdminClient, before: SubscriptionStats, what: str, result: dict[str, object]
) -> None:
    backlog = admin.subscription_stats(before.topic, before.subscription).backlog
    show_result(
        settings,
        f"{printable(before.subscription)} of {before.topic}: {what}, backlog {before.backlog:,} -> {backlog:,}",
        {"subscription": before.subscription, "topic": before.topic, **result, "backlog": backlog},
    )


@command(app, "compare")
def compare(
    settings: Settings,
    topic: TopicArgument,
    subscription: SubscriptionOption,
    cluster: Annotated[str, typer.Option("--with", metavar="CLUSTER", help="A registered cluster.")],
    cluster_config: ClusterConfigOption = None,
) -> None:
    """Compare the subscription's acknowledgements here and there; exit code 1 when they differ."""
    secrets = read_cluster_config(cluster_config or ())
    with admin_of(settings) as admin:
        found = admin.compare_subscription(topic, subscription, cluster, kafka_config=secrets.get(cluster))
    equal = all(partition.equal for partition in found)
    show_list(
        settings,
        {"equal": equal, "partitions": [{"equal": each.equal, **asdict(each)} for each in found]},
        ("partition", "equal", "in both logs", "acked here only", "acked there only", "batches differ", "digest"),
        [
            (each.partition, each.equal, each.common, each.only_here, each.only_there, each.in_part,
             each.here.digest if each.equal else f"{each.here.digest} {each.there.digest}")
            for each in found
        ],
    )  # fmt: skip
    if not equal:
        raise typer.Exit(1)
