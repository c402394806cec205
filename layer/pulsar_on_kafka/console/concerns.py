"""Concerns are the findings of an overview that need an operator, the gravest first, and one sentence about all. Pure.

The kinds are those of the alerts (docker/prometheus/alerts.yml), with shorter times: an alert wakes an operator, a page
is read. Each kind has one concern, which names the worst case and the number of the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from pulsar_on_kafka.admin import ConsumerStats
from pulsar_on_kafka.admin.overview.consumption import STUCK_S, ConsumptionState
from pulsar_on_kafka.admin.overview.records import Overview, SubscriptionOverview, SubscriptionPlace
from pulsar_on_kafka.base.role_state import RoleName
from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.broker.managed_ledger.deletion_topics import DEAD_LETTERS, OPERATOR, RETRIES, WORKER
from pulsar_on_kafka.client.values.texts import duration_text, member_text
from pulsar_on_kafka.console.formatting import link, short_topic
from pulsar_on_kafka.console.view_model import OpenTransaction
from pulsar_on_kafka_mapping.state.state_topics import SYSTEM_NAMESPACE

MAX_SHOWN: Final = 3
COPY_LAG_MS: Final = 300_000
DELETIONS_WAIT_MS: Final = 30 * 60_000
TRANSACTION_AGE_MS: Final = 10 * 60_000
"""An open transaction that blocks a subscription for so long is a concern."""
_OVERDUE_MS: Final = 60_000
"""The time after its time-out within which a transaction should have ended."""
_SYSTEM: Final = f"persistent://{SYSTEM_NAMESPACE}/"


class ConcernKind(str, Enum):
    """The kinds of concerns, the gravest first."""

    UNREADABLE = "unreadable"
    STUCK = "stuck"
    REPLICATION = "replication"
    TRANSACTION = "transaction"
    UNCONSUMED = "unconsumed"
    DEAD_LETTERS = "dead letters"
    DELETIONS_GIVEN_UP = "deletions given up"
    ROLE = "role"
    SLOW = "slow"
    DELETIONS_WAIT = "deletions wait"


@dataclass(frozen=True, slots=True)
class Concern:
    """A finding that needs an operator: what is so, what helps, and the page that shows it."""

    kind: ConcernKind
    what: str
    advice: str
    path: str
    command: tuple[str, ...] = ()
    """Words of a `pok` command that shows or solves it."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The data that concerns are found in. None: the cluster did not reply to that question."""

    overview: Overview
    grown: Mapping[SubscriptionPlace, int] = field(default_factory=dict)
    transactions: Sequence[OpenTransaction] | None = None
    roles: Mapping[RoleName, Collection[object]] | None = None
    consumers: Sequence[ConsumerStats] = ()
    """The consumers of `longest_stuck`, where they are known."""

    @property
    def now_ms(self) -> int:
        """The time as of which all is judged: data do not get worse by their age."""
        return self.overview.gathered_ms

    @property
    def unchecked(self) -> list[str]:
        """The parts of which nothing is known."""
        found = [name for name, part in (("transactions", self.transactions), ("roles", self.roles)) if part is None]
        if any(not each.processes_known for each in self.overview.subscriptions):
            found.append("consumers")
        return found + list(self.overview.incomplete)


def concerns_of(found: Findings) -> list[Concern]:
    """One concern of each kind that there is, the gravest first."""
    rules = {
        ConcernKind.UNREADABLE: _unreadable,
        ConcernKind.STUCK: _stuck,
        ConcernKind.REPLICATION: _replication,
        ConcernKind.TRANSACTION: _transaction,
        ConcernKind.UNCONSUMED: _unconsumed,
        ConcernKind.DEAD_LETTERS: _dead_letters,
        ConcernKind.DELETIONS_GIVEN_UP: _given_up,
        ConcernKind.ROLE: _role,
        ConcernKind.SLOW: _slow,
        ConcernKind.DELETIONS_WAIT: _deletions_wait,
    }
    return [concern for kind in ConcernKind for concern in rules[kind](found)]


def longest_stuck(overview: Overview) -> SubscriptionOverview | None:
    """The stuck subscription of a program that has stood still longest."""
    return min(_of_state(overview, ConsumptionState.STUCK), key=_since_ms, default=None)


def sentence(found: Findings, concerns: Sequence[Concern]) -> str:
    """The state of the cluster in one sentence."""
    overview = found.overview
    size = f"{counted(len(overview.subscriptions), 'subscription')} of {counted(len(overview.topics), 'topic')}"
    if concerns:
        return f"{counted(len(concerns), 'thing')} {'needs' if len(concerns) == 1 else 'need'} an operator."
    if found.unchecked:
        return f"No problem is known of {size}, but not all could be checked."
    return f"All is well: {size}, and none of them needs an operator."


# The rules, one a kind ------------------------------------------------------------------------------------------------


def _unreadable(found: Findings) -> Iterator[Concern]:
    rows = sorted((e for e in found.overview.subscriptions if e.unreadable), key=lambda each: -each.backlog)
    if rows:
        count = counted(rows[0].unreadable, "partition")
        yield Concern(
            ConcernKind.UNREADABLE,
            f"{_name(rows[0])} is not served on {count}: its acknowledgements cannot be read{_others(rows)}.",
            "The page has the reason. A reset to a time or a message lets it continue.",
            _path(rows, "unreadable"),
            ("doctor", "--state"),
        )


def _stuck(found: Findings) -> Iterator[Concern]:
    rows = sorted(_of_state(found.overview, ConsumptionState.STUCK), key=_since_ms)
    if rows:
        blocked = sum(each.blocked_s >= 0 for each in found.consumers)
        all_blocked = any(each.subscription_blocked_s >= 0 for each in found.consumers)
        advice = "Its program hangs, or refuses every message: read its log."
        if all_blocked:
            advice = "It reached its limit of unacknowledged messages: its program must acknowledge or refuse them."
        elif blocked:
            holds = f"{counted(blocked, 'consumer')} {'holds' if blocked == 1 else 'hold'}"
            advice = f"{holds} as many unacknowledged messages as allowed: its program must acknowledge or refuse them."
        yield Concern(
            ConcernKind.STUCK,
            f"{_name(rows[0])} is stuck: it acknowledged nothing for {_for(found, _since_ms(rows[0]))}, and "
            f"{_wait(rows[0])}{_others(rows)}.",
            advice,
            _path(rows, "stuck"),
        )


def _replication(found: Findings) -> Iterator[Concern]:
    copies = [each for each in found.overview.subscriptions if each.copies_to is not None and each.oldest_ms]
    late = [each for each in copies if found.now_ms - (each.oldest_ms or 0) > COPY_LAG_MS]
    rows = sorted(late, key=lambda each: each.oldest_ms or 0)
    if rows:
        worst = rows[0]
        others = f" ({counted(len(rows) - 1, 'copy', 'copies')} more)" if len(rows) > 1 else ""
        runs = f"Copied by {', '.join(map(member_text, worst.processes[:3]))}: the log there has the reason."
        yield Concern(
            ConcernKind.REPLICATION,
            f"{short_topic(worst.topic)} is {_for(found, worst.oldest_ms)} behind in cluster "
            f"{worst.copies_to}{others}.",
            runs if worst.processes else "No process copies it: start pok serve with the role replication.",
            "/replication",
            ("topics", "stats", worst.topic),
        )


def _transaction(found: Findings) -> Iterator[Concern]:
    rows = [each for each in found.transactions or () if _is_late(each, found.now_ms)]
    if rows:
        worst = min(rows, key=lambda each: each.info.opened_at_ms)
        blocks = f", and blocks {worst.blocks[0][1]} of {short_topic(worst.blocks[0][0])}" if worst.blocks else ""
        others = f" ({len(rows) - 1:,} more)" if len(rows) > 1 else ""
        overdue = worst.left_ms is None or worst.left_ms < 0
        yield Concern(
            ConcernKind.TRANSACTION,
            f"Transaction {worst.info.id} began {_for(found, worst.info.opened_at_ms)} ago{blocks}{others}.",
            "It should have ended: no process runs its coordinator, or the coordinator cannot write."
            if overdue
            else "Messages behind it wait until its program ends it, or an operator aborts it.",
            "/transactions",
            ("transactions", "abort", str(worst.info.id)),
        )


def _is_late(each: OpenTransaction, now_ms: int) -> bool:
    is_open = each.left_ms is not None
    overdue = now_ms - each.info.timeout_at_ms > _OVERDUE_MS
    return overdue or (is_open and bool(each.blocks) and now_ms - each.info.opened_at_ms > TRANSACTION_AGE_MS)


def _unconsumed(found: Findings) -> Iterator[Concern]:
    rows = [
        each
        for each in _of_state(found.overview, ConsumptionState.UNCONSUMED)
        if found.now_ms - _since_ms(each) >= STUCK_S * 1000
    ]
    rows.sort(key=_since_ms)
    if rows:
        yield Concern(
            ConcernKind.UNCONSUMED,
            f"{_name(rows[0])} has no consumer for {_for(found, _since_ms(rows[0]))}, and "
            f"{_wait(rows[0])}{_others(rows)}.",
            "Start its program, or delete the subscription if no program needs it.",
            _path(rows, "unconsumed"),
        )


def _dead_letters(found: Findings) -> Iterator[Concern]:
    by_key = {each.place: each for each in found.overview.subscriptions}
    keys = sorted((key for key in found.grown if key in by_key), key=lambda key: (-found.grown[key], key))
    if keys:
        rows = [by_key[key] for key in keys]
        new = counted(found.grown[keys[0]], "message")
        yield Concern(
            ConcernKind.DEAD_LETTERS,
            f"{_name(rows[0])} gave up {new} within 15 minutes{_others(rows)}.",
            "Each dead letter has its reason. Redrive or drop the letters when the cause is solved.",
            "/dead-letters",
            ("dlq", "list"),
        )


def _given_up(found: Findings) -> Iterator[Concern]:
    row = found.overview.subscription(DEAD_LETTERS, OPERATOR)
    if row is not None and row.backlog:
        count = counted(row.backlog, "deletion")
        yield Concern(
            ConcernKind.DELETIONS_GIVEN_UP,
            f"{count} of ledgers {'was' if row.backlog == 1 else 'were'} given up: their messages stay in Kafka.",
            "The command shows the reasons; pok ledgers deletions replay requests them again.",
            _subscription(row),
            ("ledgers", "deletions", "dlq"),
        )


def _deletions_wait(found: Findings) -> Iterator[Concern]:
    row = found.overview.subscription(RETRIES, WORKER)
    if row is not None and row.oldest_ms is not None and found.now_ms - row.oldest_ms > DELETIONS_WAIT_MS:
        count, time = counted(row.backlog, "deletion"), _for(found, row.oldest_ms)
        yield Concern(
            ConcernKind.DELETIONS_WAIT,
            f"{count} of ledgers {'is' if row.backlog == 1 else 'are'} retried, the oldest for {time}.",
            "Their messages are still in use, or Kafka refuses the deletion.",
            _subscription(row),
            ("ledgers", "deletions", "list"),
        )


def _role(found: Findings) -> Iterator[Concern]:
    if found.roles is not None and not found.roles.get(RoleName.MAINTENANCE):
        yield Concern(
            ConcernKind.ROLE,
            "No process has the role maintenance: nothing expires, and no ledger is deleted.",
            "Start pok serve, or one without --without maintenance.",
            "/roles",
            ("serve",),
        )


def _slow(found: Findings) -> Iterator[Concern]:
    rows = sorted(_of_state(found.overview, ConsumptionState.SLOW), key=lambda each: -(each.catch_up_s or 0.0))
    if rows:
        needs_s = rows[0].catch_up_s or 0.0
        grows = needs_s == float("inf")
        pace = "its backlog grows" if grows else f"it needs {duration_text(round(needs_s * 1000))} for its backlog"
        yield Concern(
            ConcernKind.SLOW,
            f"{_name(rows[0])} is slow: {pace}, and {_wait(rows[0])}{_others(rows)}.",
            "More consumers, or faster ones, work the backlog off.",
            _path(rows, "slow"),
        )


# Inside ---------------------------------------------------------------------------------------------------------------


def _of_state(overview: Overview, state: ConsumptionState) -> list[SubscriptionOverview]:
    """Subscriptions of programs; those of replicators and of the system have kinds of their own."""
    return [
        each
        for each in overview.subscriptions
        if each.state is state and each.copies_to is None and not each.topic.startswith(_SYSTEM)
    ]


def _since_ms(row: SubscriptionOverview) -> int:
    return row.idle_since_ms or 0


def _for(found: Findings, since_ms: int | None) -> str:
    return duration_text(max(0, found.now_ms - (since_ms or found.now_ms)))


def _name(row: SubscriptionOverview) -> str:
    return f"{row.subscription} of {short_topic(row.topic)}"


def _wait(row: SubscriptionOverview) -> str:
    return f"{counted(row.backlog, 'message')} {'waits' if row.backlog == 1 else 'wait'}"


def _others(rows: Sequence[SubscriptionOverview]) -> str:
    return f" ({counted(len(rows) - 1, 'subscription')} more)" if len(rows) > 1 else ""


def _subscription(row: SubscriptionOverview) -> str:
    return link("/subscription", topic=row.topic, name=row.subscription)


def _path(rows: Sequence[SubscriptionOverview], only: str) -> str:
    """The page of the only subscription, or the list of all of this kind."""
    sort = "stuck" if only == "stuck" else "oldest"
    return _subscription(rows[0]) if len(rows) == 1 else link("/subscriptions", only=only, sort=sort)
