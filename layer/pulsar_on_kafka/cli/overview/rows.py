"""Subscriptions as rows of a table, in words. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any, Final

from pulsar_on_kafka.admin.overview.consumption import ConsumptionState
from pulsar_on_kafka.admin.overview.records import Overview, PartitionOverview, SubscriptionOverview
from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.client.values.texts import duration_text, time_text
from pulsar_on_kafka_mapping.names.topic_name import TopicName

COLUMNS: Final = ("subscription", "backlog", "holes", "oldest", "acked/s", "new/s", "run by", "")
"""`run by`: processes."""


def cells(row: SubscriptionOverview, now_ms: int, *, by_commits: bool) -> tuple[object, ...]:
    return (
        f"{short_name(row.topic)}/{row.subscription}",
        row.backlog,
        row.holes,
        "" if row.oldest_ms is None else age_text(now_ms - row.oldest_ms),
        rate_text(row.acknowledged_per_s),
        rate_text(row.published_per_s),
        len(row.processes) if by_commits else "?",
        remarks(row, now_ms),
    )


def remarks(row: SubscriptionOverview, now_ms: int) -> str:
    """Remarks on a subscription, the gravest first. `now_ms` is the overview's time."""
    reported = []
    if row.unreadable:
        reported.append(f"unreadable: {counted(row.unreadable, 'partition')}")
    if row.seen_ms is not None and row.seen_ms < now_ms:
        reported.append(f"as of {age_text(now_ms - row.seen_ms)} ago")
    if row.state is not None:
        reported.append(_state_text(row, row.state, now_ms))
    for count, word in (
        (row.dead_letters, "dead letter"),
        (row.suspects, "suspect"),
        (row.open_transactions, "transaction"),
    ):
        if count:
            reported.append(counted(count, word))
    if not row.durable:
        reported.append("not durable")
    return ", ".join(reported)


def _state_text(row: SubscriptionOverview, state: ConsumptionState, now_ms: int) -> str:
    """The word, with the time since when the subscription stands still, or that it needs for its backlog."""
    if state is ConsumptionState.SLOW:
        left_s = row.catch_up_s
        if left_s is None or left_s == float("inf"):
            return f"{state.value}, grows"
        return f"{state.value}, {age_text(round(left_s * 1000))} to go"
    since_ms = row.idle_since_ms
    return state.value if since_ms is None else f"{state.value} {age_text(now_ms - since_ms)}"


def short_name(topic: str) -> str:
    """The name without its default parts."""
    name = TopicName.parse(topic)
    return name.local_name if name.namespace_name == "public/default" else f"{name.namespace_name}/{name.local_name}"


def end_of(name: str, width: int) -> str:
    """The end of a name, which usually distinguishes it from others."""
    return name if len(name) <= width else f"…{name[1 - width :]}"


def age_text(milliseconds: int) -> str:
    """The largest unit alone once it is an hour or more: `42s`, `5m12s`, `3h`, `12d`."""
    seconds = max(0, milliseconds) // 1000
    for size, unit in ((86_400, "d"), (3_600, "h")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return duration_text(seconds * 1000)


def rate_text(rate: float | None) -> str:
    """`` where it is not known."""
    if rate is None:
        return ""
    return f"{rate:.1f}" if 0 < rate < 10 else compact(round(rate))


def compact(number: int) -> str:
    """The number in five characters at most: `9,999`, `12k`, `1.2M`."""
    if number < 10_000:
        return f"{number:,}"
    for size, unit in ((1_000_000_000_000, "T"), (1_000_000_000, "G"), (1_000_000, "M")):
        if number >= size:
            return f"{number / size:.1f}{unit}" if number < 100 * size else f"{number // size}{unit}"
    return f"{number // 1000}k"


def totals_text(overview: Overview) -> tuple[str, str]:
    """All of it in two lines."""
    rows = overview.subscriptions
    number = f"{counted(len(rows), 'subscription')} of {counted(len(overview.topics), 'topic')}"
    states = Counter(row.state for row in rows)
    number += "".join(f", {states[state]:,} {state.value}" for state in ConsumptionState if states[state])
    letters = counted(sum(row.dead_letters for row in rows), "dead letter")
    transactions = counted(sum(topic.open_transactions for topic in overview.topics), "open transaction")
    return number, f"backlog {sum(row.backlog for row in rows):,}, {letters}, {transactions}"


def caveats(overview: Overview) -> list[str]:
    """The gaps of the numbers, in lines."""
    reported = []
    if not overview.by_commits:
        reported.append(
            "cursors are up to a minute old, and owners are not known: this user may not read __consumer_offsets"
        )
    if overview.incomplete:
        reported.append(f"incomplete: {'; '.join(overview.incomplete[:3])}")
        more = len(overview.incomplete) - 3
        reported += [f"and {more} more, --output json has all"] if more > 0 else []
    return reported


def as_json(overview: Overview) -> dict[str, Any]:
    """Everything; times in ISO 8601, null where something is not known."""
    return {
        "cluster": overview.cluster,
        "gathered": time_text(overview.gathered_ms),
        "took_s": round(overview.took_s, 3),
        "by_commits": overview.by_commits,
        "tenants": list(overview.tenants),
        "namespaces": list(overview.namespaces),
        "topics": [asdict(topic) for topic in overview.topics],
        "subscriptions": [_subscription(row) for row in overview.subscriptions],
        "incomplete": list(overview.incomplete),
    }


_SUMS: Final = (
    "backlog", "acknowledged", "holes", "suspects", "open_transactions", "acknowledged_per_s", "published_per_s",
)  # fmt: skip


def _subscription(row: SubscriptionOverview) -> dict[str, Any]:
    return {
        "topic": row.topic,
        "subscription": row.subscription,
        "type": row.type,
        "durable": row.durable,
        "replicated": row.replicated,
        "copies_to": row.copies_to,
        "processes": list(row.processes),
        "dead_letters": row.dead_letters,
        **{name: getattr(row, name) for name in _SUMS},
        **_times(row),
        "state": None if row.state is None else row.state.value,
        "catch_up_s": None if row.catch_up_s in (None, float("inf")) else row.catch_up_s,
        "partitions": [_partition(each) for each in row.partitions],
    }


def _partition(found: PartitionOverview) -> dict[str, Any]:
    plain = ("partition", "start", "end", "mark_delete", *_SUMS, "owner", "unreadable")
    return {**{name: getattr(found, name) for name in plain}, **_times(found)}


def _times(found: SubscriptionOverview | PartitionOverview) -> dict[str, str | None]:
    reported = {
        "as_of": found.seen_ms,
        "oldest": found.oldest_ms,
        "idle_since": found.idle_since_ms,
        "saved": found.saved_ms or None,
    }
    return {name: None if unix_ms is None else time_text(unix_ms) for name, unix_ms in reported.items()}
