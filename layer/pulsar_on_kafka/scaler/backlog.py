"""The backlog that a trigger selects in an overview, and what is reported for it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.admin.overview.records import Overview, SubscriptionOverview
from pulsar_on_kafka.base.errors import NoLeaderNow, NoSuchNamespace, NoSuchSubscription, NoSuchTopic
from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.scaler.trigger import Trigger
from pulsar_on_kafka_mapping.names.topic_name import TopicName

_MAX_NAMES: Final = 5
_DELAYING: Final = frozenset(each.value for each in SubscriptionType if each.is_shared)


@dataclass(frozen=True, slots=True)
class MeasuredBacklog:
    """The backlog of one trigger: unacknowledged entries, and partitions that consumers can own."""

    entries: int
    partitions: int

    def reported(self, trigger: Trigger) -> int:
        """The value of the metric, which KEDA divides by the target for each replica."""
        if trigger.max_by_partitions:
            return min(self.entries, self.partitions * trigger.per_replica)
        return self.entries

    def is_active(self, trigger: Trigger) -> bool:
        return self.entries > trigger.activation


def measured(found: Iterable[SubscriptionOverview], due: Mapping[str, int]) -> MeasuredBacklog:
    """The backlog of these subscriptions; by topic in `due` where it was counted without delayed messages."""
    rows = list(found)
    entries = sum(due.get(each.topic, each.backlog) for each in rows)
    return MeasuredBacklog(entries, sum(len(each.partitions) for each in rows))


def may_wait(row: SubscriptionOverview) -> bool:
    """Whether delayed messages may wait there. Exclusive and Failover deliver them at once, as in Pulsar."""
    return bool(row.backlog) and row.type in _DELAYING


class Backlogs:
    """The backlogs of an overview, by topic and by subscription. Memory: an entry for each subscription."""

    def __init__(self, overview: Overview) -> None:
        self._overview = overview
        self._by_name: dict[str, dict[str, SubscriptionOverview]] = defaultdict(dict)
        for each in overview.subscriptions:
            self._by_name[each.subscription][each.topic] = each

    def selected(self, trigger: Trigger) -> Sequence[SubscriptionOverview]:
        """The subscriptions of a trigger, at least one.

        Raises:
            NoLeaderNow: a number is missing or older than the overview, so the sum could be too small.
            NoSuchTopic, NoSuchNamespace, NoSuchSubscription: nothing is selected.
        """
        if self._overview.metadata_failures:
            raise NoLeaderNow(f"topics and subscriptions are not all known: {self._overview.metadata_failures[0]}")
        found = self._selected(trigger)
        now_ms = self._overview.gathered_ms
        unknown = sum(each.missing_partitions + sum(one.seen_ms < now_ms for one in each.partitions) for each in found)
        if unknown:
            raise NoLeaderNow(f"the backlog of {counted(unknown, 'partition')} of {trigger.place} is not known now")
        return found

    def _selected(self, trigger: Trigger) -> Sequence[SubscriptionOverview]:
        of_name = self._by_name.get(trigger.subscription, {})
        if trigger.topic:
            if trigger.topic not in of_name:
                raise self._missing(trigger)
            return [of_name[trigger.topic]]
        found = [each for topic, each in of_name.items() if _selects(trigger, TopicName.parse(topic))]
        if not found:
            raise self._missing(trigger)
        return found

    def _missing(self, trigger: Trigger) -> NoSuchTopic | NoSuchNamespace | NoSuchSubscription:
        if trigger.namespace and trigger.namespace not in self._overview.namespaces:
            return NoSuchNamespace(f"namespace {trigger.namespace} does not exist")
        if trigger.topic and not any(each.topic == trigger.topic for each in self._overview.topics):
            return NoSuchTopic(f"topic {trigger.topic} does not exist")
        others = {
            each.subscription
            for each in self._overview.subscriptions
            if (each.topic == trigger.topic if trigger.topic else _selects(trigger, TopicName.parse(each.topic)))
        }
        what = trigger.place if trigger.topic else f"no topic of {trigger.place}"
        has = "has no" if trigger.topic else "has the"
        return NoSuchSubscription(f"{what} {has} subscription {trigger.subscription}; {_names(others)}")


def _selects(trigger: Trigger, name: TopicName) -> bool:
    if trigger.pattern is not None:
        return trigger.pattern.matches(name)
    return name.namespace_name == trigger.namespace


def _names(found: Iterable[str]) -> str:
    names = sorted(found)
    if not names:
        return "there is none"
    more = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
    return f"there are: {', '.join(names[:_MAX_NAMES])}{more}"
