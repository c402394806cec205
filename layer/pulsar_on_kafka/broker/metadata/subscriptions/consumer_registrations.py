"""Registrations: the names of V5 consumers that share the partitions of a topic, one record for each subscription.

They survive the gateway that assigns the partitions, so that the next one assigns them alike. Source: Pulsar's
ConsumerRegistration, 5.0.1. Decision: mapping/decisions/0032.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.entities import Entities, EntityKeys, Versioned
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka_mapping.state.metadata.metadata_records import (
    RegistrationsRecord,
    decode_registrations,
    encode_registrations,
)
from pulsar_on_kafka_mapping.state.state_keys import RegistrationsKey

MAX_CONSUMERS: Final = 1_000
"""Registered consumers of one subscription."""
MAX_NAME_BYTES: Final = 500

REGISTRATION_KEYS: Final[EntityKeys[tuple[str, str]]] = EntityKeys(RegistrationsKey)


class Registrations(NamedTuple):
    """The registered consumers of a subscription. `version` grows with each change."""

    version: int
    names: tuple[str, ...]


class ConsumerRegistrations:
    """Thread-safe. Memory: the records of the partitions of `subscriptions` in use."""

    def __init__(self, entities: Entities[tuple[str, str]]) -> None:
        self._entities = entities

    def add(self, topic: Topic, subscription: str, names: Collection[str], deadline: Deadline) -> Registrations:
        """Register consumers. Writes nothing if all of them are registered. Names of an earlier incarnation of the
        topic are dropped.

        Raises:
            NoSuchTopic: this incarnation of the topic was deleted.
            InvalidOption: a name is empty or has more than `MAX_NAME_BYTES` bytes.
            Refused: the subscription would have more than `MAX_CONSUMERS` consumers.
        """
        for name in names:
            if not 0 < len(name.encode()) <= MAX_NAME_BYTES:
                raise errors.InvalidOption(f"consumer name is {name!r:.100}, expected 1 to {MAX_NAME_BYTES} bytes")
        place = str(topic.name.base), subscription

        def added(current: Versioned | None) -> bytes | None:
            record = None if current is None else decode_registrations(current.value)
            incarnation = topic.layout.incarnation
            if record is not None and record.topic_incarnation > incarnation:
                raise errors.NoSuchTopic(f"topic {topic.name} was deleted")
            if record is None or record.topic_incarnation < incarnation:
                record = RegistrationsRecord(*place, incarnation)
            consumers = tuple(sorted({*record.consumers, *names}))
            if len(consumers) > MAX_CONSUMERS:
                raise errors.Refused(
                    f"{place[0]}/{subscription} has {len(record.consumers)} registered consumers, at most "
                    f"{MAX_CONSUMERS} may share its partitions"
                )
            changed = replace(record, consumers=consumers)
            return None if changed == record and current is not None else encode_registrations(changed)

        return _registrations(self._entities.update(place, added, deadline))

    def remove(
        self, topic: Topic, subscription: str, names: Collection[str], deadline: Deadline
    ) -> Registrations | None:
        """Remove consumers. None: nothing is on record for this incarnation of the topic."""

        def removed(current: Versioned) -> bytes | None:
            record = decode_registrations(current.value)
            left = tuple(name for name in record.consumers if name not in names)
            if record.topic_incarnation != topic.layout.incarnation or left == record.consumers:
                return None
            return encode_registrations(replace(record, consumers=left))

        current = self._entities.amend((str(topic.name.base), subscription), removed, deadline)
        if current is None or decode_registrations(current.value).topic_incarnation != topic.layout.incarnation:
            return None
        return _registrations(current)

    def on_record(
        self, partition: int, deadline: Deadline
    ) -> dict[tuple[str, str], tuple[Versioned, RegistrationsRecord]]:
        """The records in one partition of `subscriptions`, by topic and subscription."""
        return self._entities.in_partition(partition, decode_registrations, deadline)

    def remove_dead(self, partition: int, dead: Mapping[tuple[str, str], Versioned], deadline: Deadline) -> int:
        """Remove these records from the log, unless they were written again. Returns the number of removed ones."""
        return self._entities.remove_dead(partition, dead, deadline)


def _registrations(current: Versioned) -> Registrations:
    return Registrations(current.version, decode_registrations(current.value).consumers)
