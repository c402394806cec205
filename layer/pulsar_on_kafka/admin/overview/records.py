"""An overview describes all subscriptions of a cluster at one time. Plain values."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from pulsar_on_kafka.admin.letters import REDRIVE
from pulsar_on_kafka.admin.overview.consumption import CHECKPOINT_STUCK_S, STUCK_S, ConsumptionState, catch_up_s
from pulsar_on_kafka_mapping.names.subscription_group import cluster_of
from pulsar_on_kafka_mapping.names.topic_name import TopicName

SubscriptionPlace: TypeAlias = tuple[str, str]
"""Topic and subscription."""


@dataclass(frozen=True, slots=True)
class PartitionOverview:
    """One subscription on one partition. Its log is as of the overview, its cursor as it was last saved."""

    partition: int
    start: int
    end: int
    mark_delete: int
    """The last offset below which everything is acknowledged; -1: nothing."""
    backlog: int
    """Unacknowledged entries."""
    acknowledged: int
    """Entries that are acknowledged above `mark_delete`."""
    holes: int
    """Ranges that are unacknowledged below the highest acknowledged entry."""
    suspects: int
    """Entries that are delivered few at a time, because a consumer that died may have had them."""
    oldest_ms: int | None
    """The oldest unacknowledged entry was published at this Unix time, or before; None without a backlog."""
    idle_since_ms: int | None
    """There is a backlog, and nothing was acknowledged since this Unix time at least; None without a backlog."""
    acknowledged_per_s: float | None
    """Entries between this overview and the one before; None in the first one."""
    published_per_s: float | None
    acknowledged_total: int
    """Entries since this gathering began; only grows."""
    open_transactions: int
    """Transactions that hold acknowledgements here and are not ended."""
    saved_ms: int
    """The time of the cursor's last save, Unix time; 0 without one."""
    owner: str
    """Client id and host of the process that owns the partition; '' without an owner, or if it is unknown."""
    seen_ms: int
    """The time of these figures, Unix time: the last pass that read both the log's end and the saved cursor."""
    recent_acknowledged_per_s: float | None
    """Entries a second in the last one to two minutes; None while less than 30 s are known."""
    recent_published_per_s: float | None
    unreadable: str = ""
    """Why what is acknowledged above `mark_delete` cannot be read, and is not counted; '' when it can."""

    @property
    def idle_s(self) -> float:
        """The time without progress, up to `seen_ms`; 0 without a backlog."""
        return 0.0 if self.idle_since_ms is None else max(0, self.seen_ms - self.idle_since_ms) / 1000

    @property
    def catch_up_s(self) -> float | None:
        """See `consumption.catch_up_s`."""
        age_ms = None if self.oldest_ms is None else self.seen_ms - self.oldest_ms
        return catch_up_s(self.backlog, age_ms, self.recent_acknowledged_per_s, self.recent_published_per_s)


@dataclass(frozen=True)
class SubscriptionOverview:
    """One subscription. Figures over all of its partitions are computed once, at the first use."""

    topic: str
    subscription: str
    type: str
    durable: bool
    replicated: bool
    processes: tuple[str, ...]
    """Client ids and hosts of the live members of its group (a process may hold many consumers)."""
    dead_letters: int
    """Entries in its dead letter topics, as they are named by default, that were neither put back nor dropped."""
    partitions: tuple[PartitionOverview, ...]
    processes_known: bool = True
    """False: this user may not see the members of groups."""
    missing_partitions: int = 0
    """Partitions without numbers so far: no broker reported the log's end, or the cursor was not read yet."""

    @property
    def place(self) -> SubscriptionPlace:
        return self.topic, self.subscription

    @cached_property
    def backlog(self) -> int:
        return sum(each.backlog for each in self.partitions)

    @cached_property
    def acknowledged(self) -> int:
        return sum(each.acknowledged for each in self.partitions)

    @cached_property
    def holes(self) -> int:
        return sum(each.holes for each in self.partitions)

    @cached_property
    def suspects(self) -> int:
        return sum(each.suspects for each in self.partitions)

    @cached_property
    def open_transactions(self) -> int:
        return sum(each.open_transactions for each in self.partitions)

    @cached_property
    def oldest_ms(self) -> int | None:
        return min((each.oldest_ms for each in self.partitions if each.oldest_ms is not None), default=None)

    @cached_property
    def idle_since_ms(self) -> int | None:
        """The earliest such time of the partitions with a backlog."""
        return min((each.idle_since_ms for each in self.partitions if each.idle_since_ms is not None), default=None)

    @cached_property
    def unconsumed(self) -> bool:
        """There is a backlog, and no process to work it off. Never true of the subscription that counts the dead
        letters of a topic, which has no consumers."""
        has_consumers = bool(self.processes) or not self.processes_known or self.subscription == REDRIVE
        return bool(self.backlog) and not has_consumers

    @cached_property
    def state(self) -> ConsumptionState | None:
        """The gravest word that applies; None while the subscription needs no attention."""
        if self.unconsumed:
            return ConsumptionState.UNCONSUMED
        if self.subscription == REDRIVE:
            return None
        stuck_s = STUCK_S if self.processes_known else CHECKPOINT_STUCK_S
        if any(each.idle_s >= stuck_s for each in self.partitions):
            return ConsumptionState.STUCK
        return None if self.catch_up_s is None else ConsumptionState.SLOW

    @cached_property
    def catch_up_s(self) -> float | None:
        """The longest time that one of its slow partitions needs to work off the backlog, in seconds; infinite where
        the backlog does not shrink. None if no partition is slow."""
        return max((each.catch_up_s for each in self.partitions if each.catch_up_s is not None), default=None)

    @cached_property
    def stuck_since_ms(self) -> int | None:
        """`idle_since_ms` of a subscription that has consumers: they hang. None of one without."""
        return None if self.unconsumed or self.subscription == REDRIVE else self.idle_since_ms

    @cached_property
    def acknowledged_per_s(self) -> float | None:
        return _together(each.acknowledged_per_s for each in self.partitions)

    @cached_property
    def published_per_s(self) -> float | None:
        return _together(each.published_per_s for each in self.partitions)

    @cached_property
    def acknowledged_total(self) -> int:
        return sum(each.acknowledged_total for each in self.partitions)

    @cached_property
    def saved_ms(self) -> int:
        return max((each.saved_ms for each in self.partitions), default=0)

    @cached_property
    def seen_ms(self) -> int | None:
        """The time of its oldest figures, Unix time; None without a partition. A partition that was not reached keeps
        its figures, which are older than the overview."""
        return min((each.seen_ms for each in self.partitions), default=None)

    @cached_property
    def unreadable(self) -> int:
        """Partitions of which what is acknowledged above mark-delete cannot be read."""
        return sum(bool(each.unreadable) for each in self.partitions)

    @cached_property
    def copies_to(self) -> str | None:
        """The cluster that this subscription copies its topic to; None for one of programs."""
        return cluster_of(self.subscription)

    @cached_property
    def text(self) -> str:
        """The text that filters search, in lower case."""
        return f"{self.topic}\n{self.subscription}\n{self.type}\n{' '.join(self.processes)}".lower()


def _together(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class TopicOverview:
    """One topic. `entries` counts what is in Kafka now, `published_total` since this gathering began, which only
    grows; `open_transactions` those with messages in its partitions (one in two partitions counts twice)."""

    topic: str
    partitions: int
    entries: int
    published_total: int
    published_per_s: float | None
    open_transactions: int


@dataclass(frozen=True, slots=True)
class Overview:
    """All subscriptions of a cluster, or of a part of it, by topic and name.

    `gathered_ms` is the time of gathering (Unix time), `took_s` its duration. Not `by_commits`: this user may not read
    Kafka's topic of commits, so cursors are up to a minute old, and owners are unknown. `incomplete` describes the
    unreadable parts in words. `metadata_failures` has the reasons why topics or subscriptions may be missing: their
    state topics were not read to the end.
    """

    cluster: str
    gathered_ms: int
    took_s: float
    by_commits: bool
    tenants: tuple[str, ...]
    namespaces: tuple[str, ...]
    topics: tuple[TopicOverview, ...]
    subscriptions: tuple[SubscriptionOverview, ...]
    incomplete: tuple[str, ...] = field(default=())
    metadata_failures: tuple[str, ...] = ()

    def subscription(self, topic: str, name: str) -> SubscriptionOverview | None:
        """The subscription; None: it is not in this overview."""
        return next((each for each in self.subscriptions if each.place == (topic, name)), None)

    def of(
        self, *, tenant: str | None = None, namespace: str | None = None, topics: Collection[str] | None = None
    ) -> Overview:
        """The part of one tenant, of one namespace, or of some topics."""

        def matches(found: str) -> bool:
            return (namespace is None or found == namespace) and (tenant is None or found.partition("/")[0] == tenant)

        def kept(topic: str) -> bool:
            return (topics is None or topic in topics) and matches(TopicName.parse(topic).namespace_name)

        names = {each.topic for each in self.topics if kept(each.topic)}
        return replace(
            self,
            tenants=tuple(dict.fromkeys(each.partition("/")[0] for each in self.namespaces if matches(each))),
            namespaces=tuple(each for each in self.namespaces if matches(each)),
            topics=tuple(each for each in self.topics if each.topic in names),
            subscriptions=tuple(each for each in self.subscriptions if each.topic in names),
        )
