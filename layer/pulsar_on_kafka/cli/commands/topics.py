"""`pok topics`: make, look at and delete topics."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.completing import complete_topic
from pulsar_on_kafka.cli.shared.connection import admin_of
from pulsar_on_kafka.cli.shared.output import (
    CommandFailed,
    YesOption,
    confirm,
    show_further_table,
    show_names,
    show_pairs,
    show_result,
    show_table,
    write_json,
    write_line,
)
from pulsar_on_kafka.cli.shared.policies import policies_of
from pulsar_on_kafka.cli.shared.properties import (
    SET,
    RemoveOption,
    SetOption,
    given_properties,
    show_properties,
)
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.client.values.texts import message_id_text, printable, time_text
from pulsar_on_kafka_mapping.names.topic_name import TopicName

if TYPE_CHECKING:
    from pulsar_on_kafka.admin import AdminClient, PublisherStats, TopicStats

app = typer.Typer(no_args_is_help=True)

_DEFAULT_NAMESPACE: Final = "public/default"

TopicArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC", help="orders, or persistent://tenant/namespace/orders.", autocompletion=complete_topic
    ),
]

policies_of(app, TopicArgument, "Policies of a topic, which count before those of its namespace.")


@command(app, "list")
def list_topics(
    settings: Settings,
    admin: AdminClient,
    namespace: Annotated[str, typer.Argument(metavar="NAMESPACE", help="tenant/namespace.")] = _DEFAULT_NAMESPACE,
    everywhere: Annotated[bool, typer.Option("--all", help="Of all tenants and namespaces of the cluster.")] = False,
) -> None:
    """List the topics of a namespace or of the cluster, one a line (partitioned ones once)."""
    if everywhere and namespace != _DEFAULT_NAMESPACE:
        raise typer.BadParameter(f"it goes without a namespace, got {namespace:.60}", param_hint="--all")
    show_names(settings, admin.list_all_topics() if everywhere else admin.list_topics(namespace))


@command(app, "create")
def create(
    settings: Settings,
    admin: AdminClient,
    topic: TopicArgument,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", help="1 to 8192; left out: a non-partitioned topic.", show_default=False),
    ] = None,
    entries_per_ledger: Annotated[
        int | None,
        typer.Option(
            "--entries-per-ledger", help="Size of a ledger, fixed for the topic's life.", show_default="50000"
        ),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property", metavar="NAME=VALUE", help="A property of the topic, repeatable.", show_default=False
        ),
    ] = None,
) -> None:
    """Make a topic."""
    given = given_properties(properties, "--property")
    if partitions is None:
        admin.create_topic(topic, entries_per_ledger=entries_per_ledger, properties=given)
    else:
        admin.create_partitioned_topic(topic, partitions, entries_per_ledger=entries_per_ledger, properties=given)
    made = _full_name(topic)
    kind = "non-partitioned" if partitions is None else counted(partitions, "partition")
    show_result(settings, f"created {made} ({kind})", {"created": made, "partitions": partitions or 0})


@command(app, "delete")
def delete(
    settings: Settings,
    topic: TopicArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Also with subscriptions, which are lost too, and with live producers.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Delete a topic with its data."""
    name = TopicName.parse(topic)
    if name.partition >= 0:
        raise CommandFailed(f"{name} is a partition: only the whole topic {name.base} can be deleted")
    with admin_of(settings) as admin:
        stats = admin.topic_stats(topic)
        if stats.subscriptions and not force:
            raise CommandFailed(
                f"topic {stats.topic} has subscriptions: {', '.join(stats.subscriptions)}; unsubscribe them, or --force"
            )
        confirm(_deletion_plan(stats), yes)
        admin.delete_topic(topic, force=force)
        show_result(settings, f"deleted {stats.topic}", {"deleted": stats.topic})


@command(app, "stats")
def show_stats(settings: Settings, admin: AdminClient, topic: TopicArgument) -> None:
    """Show a topic's size and producers, and the backlog of each subscription."""
    stats = admin.topic_stats(topic)
    if settings.json:
        write_json(asdict(stats))
        return
    show_pairs(
        {
            "topic": stats.topic,
            "kafka topic": f"{stats.kafka_topic}{' (bound)' if stats.bound else ''}",
            "partitions": stats.partitions if stats.partitioned else "non-partitioned",
            "entries": stats.entries,
            "entries per ledger": stats.entries_per_ledger,
            **_transactions(stats),
            **({"producers": stats.backlog_exceeded} if stats.backlog_exceeded else {}),
            **_keys(stats),
        }
    )
    write_line("")
    starts, ends = stats.start_offsets, stats.end_offsets
    show_table(("partition", "start", "end", "entries"), [(p, starts[p], ends[p], ends[p] - starts[p]) for p in ends])
    show_further_table(("subscription", "backlog"), list(stats.subscriptions.items()))
    show_further_table(
        ("copied to", "backlog", "by"),
        [(cluster, found.backlog, found.connected or "-") for cluster, found in stats.replication.items()],
    )
    show_further_table(
        ("producer", "access mode", "sent", "failed", "held back", "since", "process", "properties"),
        [_publisher_row(publisher) for publisher in stats.publishers],
    )
    if stats.unlisted_publishers:
        write_line(f"and {counted(stats.unlisted_publishers, 'producer')} more")


@command(app, "partitions")
def show_partitions(
    settings: Settings,
    admin: AdminClient,
    topic: TopicArgument,
    grow: Annotated[
        int | None,
        typer.Option("--grow", metavar="N", help="Raise the number of partitions to N first.", show_default=False),
    ] = None,
) -> None:
    """List the names of a topic's partitions, or add some with --grow. There is no way back from --grow."""
    if grow is not None:
        admin.update_partitions(topic, grow)
    show_names(settings, admin.list_partitions(topic))


@command(app, "compact")
def compact(settings: Settings, admin: AdminClient, topic: TopicArgument) -> None:
    """Let compacted reads return only the newest message of each key, of those in the topic now. Removes nothing."""
    admin.compact(topic)
    show_result(settings, f"compacted {_full_name(topic)}", {"compacted": _full_name(topic)})


@command(app, "compaction-status")
def compaction_status(settings: Settings, admin: AdminClient, topic: TopicArgument) -> None:
    """Show up to where compacted reads give only the newest message of each key."""
    status = admin.compaction_status(topic)
    if settings.json:
        write_json({"compacted_to": status})
    elif not status:
        write_line("never compacted")
    else:
        show_table(("partition", "compacted to"), sorted(status.items()))


@command(app, "properties")
def properties(
    settings: Settings,
    admin: AdminClient,
    topic: TopicArgument,
    updated: SetOption = None,
    removed: RemoveOption = None,
) -> None:
    """Show the properties of a topic, or change some with --set and --remove."""
    given = given_properties(updated, SET)
    if given:
        admin.update_topic_properties(topic, given)
    for name in removed or ():
        admin.remove_topic_property(topic, name)
    show_properties(settings, admin.topic_properties(topic))


@command(app, "truncate")
def truncate(settings: Settings, topic: TopicArgument, yes: YesOption = False) -> None:
    """Delete all messages of a topic. Its subscriptions move to the end."""
    with admin_of(settings) as admin:
        stats = admin.topic_stats(topic)
        confirm(f"delete {counted(stats.entries, 'entry', 'entries')} of topic {stats.topic}{_backlogs(stats)}", yes)
        admin.truncate_topic(topic)
        show_result(settings, f"truncated {stats.topic}", {"truncated": stats.topic})


@command(app, "terminate")
def terminate(settings: Settings, topic: TopicArgument, yes: YesOption = False) -> None:
    """Terminate a topic: it takes no further message, and consumers receive what it has. There is no way back."""
    with admin_of(settings) as admin:
        stats = admin.topic_stats(topic)
        confirm(f"terminate topic {stats.topic}: it takes no further message", yes)
        last = {partition: message_id_text(found) for partition, found in admin.terminate_topic(topic).items()}
        if settings.json:
            write_json({"terminated": stats.topic, "last": last})
        else:
            write_line(f"terminated {stats.topic}")
            show_further_table(("partition", "last message"), sorted(last.items()))


@command(app, "bind")
def bind(
    settings: Settings,
    admin: AdminClient,
    topic: TopicArgument,
    kafka_topic: Annotated[str, typer.Argument(metavar="KAFKA_TOPIC", help="A Kafka topic that is there already.")],
) -> None:
    """Give an existing Kafka topic a Pulsar name; its data and its configuration stay as they are."""
    forbids = admin.bind_topic(topic, kafka_topic)
    bound = _full_name(topic)
    reported = f"; {forbids}" if forbids else ""
    show_result(
        settings,
        f"bound {bound} to {kafka_topic}{reported}",
        {"bound": bound, "kafka_topic": kafka_topic, "forbids": forbids},
    )


def _transactions(stats: TopicStats) -> dict[str, object]:
    if not stats.ongoing_txn_count and not stats.aborted_txn_count:
        return {}
    return {"transactions": f"{stats.ongoing_txn_count:,} ongoing, {stats.aborted_txn_count:,} aborted"}


def _keys(stats: TopicStats) -> dict[str, object]:
    if not stats.hashing_schemes:
        return {}
    first, *others = stats.hashing_schemes
    mixed = f", and by {', '.join(others)}: a key may lie in two partitions" if others else ""
    return {"keys": f"by {first}{mixed}"}


def _publisher_row(publisher: PublisherStats) -> tuple[object, ...]:
    since = time_text(publisher.connected_since_ms)
    properties = ", ".join(f"{printable(name)}={printable(value)}" for name, value in publisher.properties.items())
    return (
        printable(publisher.producer_name), publisher.access_mode, publisher.sent, publisher.failed,
        publisher.rate_limited_times, since, publisher.process.rpartition(":")[0], properties,
    )  # fmt: skip


def _full_name(topic: str) -> str:
    return str(TopicName.parse(topic))


def _deletion_plan(stats: TopicStats) -> str:
    what = f"delete topic {stats.topic}"
    if stats.bound:
        data = f"the Kafka topic {stats.kafka_topic} stays, with its {counted(stats.entries, 'record')}"
    else:
        data = f"with {counted(stats.entries, 'entry', 'entries')} in {counted(stats.partitions, 'partition')}"
    return f"{what}: {data}{_backlogs(stats)}"


def _backlogs(stats: TopicStats) -> str:
    return "".join(f", subscription {name} (backlog {backlog:,})" for name, backlog in stats.subscriptions.items())
