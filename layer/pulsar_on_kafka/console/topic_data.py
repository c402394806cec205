"""Requests about topics and their schemas, for the pages of topics. Each raises Unanswered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pulsar_on_kafka.admin import AdminClient, LedgerInfo, RegisteredSchema, TopicStats
from pulsar_on_kafka.admin.schemas import MAX_VERSIONS
from pulsar_on_kafka.broker.schema_registry.model import SchemaEntry
from pulsar_on_kafka.console.response_cache import CachedResponse
from pulsar_on_kafka.console.schema_texts import NumberedSchema, SchemaTexts, schema_texts
from pulsar_on_kafka.console.view_model import Site
from pulsar_on_kafka.exceptions import BrokerMetadataError, NotAllowedError, TopicNotFound
from pulsar_on_kafka_schema_compat import CompatibilityStrategy


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Facts about a topic that no overview has. `size_bytes`: an estimate before compression; None for a topic without
    ledgers. `schema`: the latest one."""

    size_bytes: int | None
    producers: int
    schema: SchemaEntry | None
    failure: str = ""
    """Why the schemas cannot be read; '' if they can."""


@dataclass(frozen=True, slots=True)
class TopicDetails:
    """A topic, its latest schema, and the policies that are set for the topic itself."""

    stats: TopicStats
    facts: TopicFacts
    strategy: CompatibilityStrategy
    policies: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class SchemaVersions:
    """The last versions of a topic's schemas, newest first, and the rule for the next one."""

    versions: Sequence[RegisteredSchema]
    strategy: CompatibilityStrategy
    more: bool
    """Whether there are earlier ones."""


def facts_of(site: Site, topics: Sequence[str]) -> CachedResponse[Mapping[str, TopicFacts]]:
    """By topic; a topic that was deleted since is missing. Sizes are those that maintenance has measured."""

    def request(admin: AdminClient) -> Mapping[str, TopicFacts]:
        found: dict[str, TopicFacts] = {}
        for topic in topics:
            try:
                found[topic] = _facts(admin, topic, admin.count_producers(topic), admin.list_ledgers)
            except TopicNotFound:
                continue
        return found

    return site.query(("topic facts", *topics), request)


def details_of(site: Site, topic: str) -> CachedResponse[TopicDetails]:
    def request(admin: AdminClient) -> TopicDetails:
        stats = admin.topic_stats(topic)
        return TopicDetails(
            stats,
            _facts(admin, topic, len(stats.publishers) + stats.unlisted_publishers, admin.measured_ledgers),
            admin.get_schema_compatibility_strategy(topic, applied=True),
            admin.policies(topic),
        )

    return site.query(("topic", topic), request)


def schema_versions(site: Site, topic: str) -> CachedResponse[SchemaVersions]:
    """`MAX_VERSIONS` at most."""

    def request(admin: AdminClient) -> SchemaVersions:
        found = admin.schema_history(topic)
        strategy = admin.get_schema_compatibility_strategy(topic, applied=True)
        return SchemaVersions(found, strategy, len(found) == MAX_VERSIONS and found[-1].number > 0)

    return site.query(("schemas", topic), request)


def texts_of(site: Site, topic: str, number: int, before: int | None) -> CachedResponse[SchemaTexts]:
    """A version's definition, and its difference from another one."""

    def request(admin: AdminClient) -> SchemaTexts:
        new = NumberedSchema(number, admin.get_schema_info(topic, number))
        return schema_texts(
            new, None if before is None else NumberedSchema(before, admin.get_schema_info(topic, before))
        )

    return site.query(("schema texts", topic, number, before), request)


def _facts(
    admin: AdminClient, topic: str, producers: int, ledgers: Callable[[str], Sequence[LedgerInfo]]
) -> TopicFacts:
    try:
        size = sum(each.size for each in ledgers(topic))
    except NotAllowedError:  # it is not persistent
        size = None
    try:
        entries = admin.list_schema_versions(topic)
    except BrokerMetadataError as unreadable:
        return TopicFacts(size, producers, None, str(unreadable))
    return TopicFacts(size, producers, entries[-1] if entries else None)
