"""A tree of tenants and namespaces, and the topics of its chosen part, from an overview. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.admin.overview.records import Overview, TopicOverview
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.state_topics import SYSTEM_NAMESPACE

MAX_NAMESPACES: Final = 200
"""The limit of the listed namespaces; the filter finds topics of others."""


@dataclass(frozen=True, slots=True)
class NamespaceBranch:
    """A namespace of the tree, with the numbers of its topics and of the messages that Kafka keeps of them."""

    name: str
    """As tenant/namespace."""
    topics: int
    entries: int

    @property
    def short(self) -> str:
        """The name without the tenant's."""
        return self.name.partition("/")[2]


@dataclass(frozen=True, slots=True)
class TenantBranch:
    """A tenant of the tree. `topics`: those of all of its namespaces, listed or not."""

    name: str
    topics: int
    namespaces: tuple[NamespaceBranch, ...]


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic, the number of its subscriptions, and the largest of their backlogs."""

    topic: TopicOverview
    subscriptions: int
    backlog: int


@dataclass(frozen=True, slots=True)
class TopicTree:
    """The tree, and the topics of the chosen part that have all words. Namespaces above the limit are `unlisted`."""

    tenants: Sequence[TenantBranch]
    unlisted: int
    rows: Sequence[TopicRow]


def topic_tree(overview: Overview, chosen: str = "", words: str = "") -> TopicTree:
    """`chosen` is a tenant, a tenant/namespace, or '' for the whole cluster. Tenants and topics come by name, those of
    the system last."""
    topics, entries = Counter[str](), Counter[str]()
    for each in overview.topics:
        namespace = namespace_of(each.topic)
        topics[namespace] += 1
        entries[namespace] += each.entries
    names = sorted({*overview.namespaces, *topics}, key=_place)
    listed = names[:MAX_NAMESPACES]
    tenants = [
        TenantBranch(
            tenant,
            sum(count for name, count in topics.items() if _tenant(name) == tenant),
            tuple(NamespaceBranch(name, topics[name], entries[name]) for name in listed if _tenant(name) == tenant),
        )
        for tenant in dict.fromkeys(map(_tenant, listed))
    ]
    return TopicTree(tenants, len(names) - len(listed), list(_rows(overview, chosen, words.lower().split())))


def namespace_of(topic: str) -> str:
    """The tenant/namespace of a topic's full name."""
    return TopicName.parse(topic).namespace_name


def _rows(overview: Overview, chosen: str, words: Sequence[str]) -> Iterator[TopicRow]:
    kept = [
        each
        for each in overview.topics
        if chosen in ("", namespace_of(each.topic), _tenant(namespace_of(each.topic)))
        and all(word in each.topic.lower() for word in words)
    ]
    counts, backlogs = Counter[str](), dict[str, int]()
    for each in overview.subscriptions:
        counts[each.topic] += 1
        backlogs[each.topic] = max(backlogs.get(each.topic, 0), each.backlog)
    for topic in sorted(kept, key=lambda each: (*_place(namespace_of(each.topic)), each.topic)):
        yield TopicRow(topic, counts[topic.topic], backlogs.get(topic.topic, 0))


def _tenant(namespace: str) -> str:
    return namespace.partition("/")[0]


def _place(namespace: str) -> tuple[bool, str]:
    return namespace == SYSTEM_NAMESPACE, namespace
