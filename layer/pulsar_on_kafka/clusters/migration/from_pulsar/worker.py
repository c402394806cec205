"""The worker that imports a tenant: it compares Pulsar with this cluster, and does the rest of the work.

It may be killed at any instant, and run any number of times: each run copies the messages since the last one. Programs
continue in Pulsar meanwhile; the last run follows their end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.cross_cluster.target_topic import Target
from pulsar_on_kafka.broker.publishing.chunking import record_limit
from pulsar_on_kafka.broker.replication_state.progress import SubscriptionSide, without_acknowledged, without_message
from pulsar_on_kafka.broker.subscriptions.requests.cursor_admin import acknowledge_ledgers
from pulsar_on_kafka.clusters.migration.from_pulsar.admin import (
    EntryNotReturned,
    PulsarAdmin,
    PulsarPartition,
    PulsarTopic,
)
from pulsar_on_kafka.clusters.migration.from_pulsar.comparing import (
    ComparedEntries,
    ComparedMessages,
    ComparedSubscription,
    compared_subscription,
)
from pulsar_on_kafka.clusters.migration.from_pulsar.copying import CopiedCounts, PartitionCopy
from pulsar_on_kafka.clusters.migration.from_pulsar.entries import INCARNATION, Entry, OriginOfCopies, copies, digest_of
from pulsar_on_kafka.clusters.migration.from_pulsar.entry_positions import (
    Acknowledged,
    place_of,
    position_at,
)
from pulsar_on_kafka.clusters.migration.from_pulsar.existing_copies import CopiesHere, copies_here
from pulsar_on_kafka.clusters.migration.from_pulsar.reading import IncompleteMessage, PulsarAddress, PulsarReading
from pulsar_on_kafka.clusters.migration.from_pulsar.schemas import SchemasHere
from pulsar_on_kafka.clusters.migration.inventory import create_apart
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import Origin as CopyOrigin
from pulsar_on_kafka_mapping.state.clusters.tenant_records import ImportRecord, ImportStep, ImportSwitch
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import SaveNow

_log: Final = logging.getLogger(__name__)

_CALL_S: Final = 60.0
_READ_S: Final = 24 * 3_600.0
_BACK_ENTRIES: Final = 10_000
"""A run begins to read so many entries before the last one that is here: the chunks of a message that was not complete
then lie there."""
_COMPRESSION: Final = "lz4"


@dataclass(frozen=True, slots=True)
class ImportedPartition:
    topic: str
    partition: int
    messages: ComparedMessages
    subscriptions: tuple[ComparedSubscription, ...]
    given_up: tuple[IncompleteMessage, ...] = ()
    """Messages in Pulsar that its client does not return: they cannot be copied."""


@dataclass(frozen=True, slots=True)
class ImportReport:
    lacking: tuple[str, ...]
    partitions: tuple[ImportedPartition, ...]

    @property
    def good(self) -> bool:
        return not self.problems()

    def problems(self) -> list[str]:
        """One sentence each."""
        found = list(self.lacking)
        for each in self.partitions:
            place, messages = f"{each.topic} partition {each.partition}", each.messages
            if not messages.good:
                found.append(
                    f"{place}: {messages.missing} entries are missing, {messages.changed} differ, the first at "
                    f"{messages.first} of Pulsar"
                )
            if each.given_up:
                found.append(f"{place}: {_incomplete_text(each.given_up)}")
            found += [
                f"{place}: subscription {one.name} has {one.only_there} entries left in Pulsar alone, {one.only_here} "
                "here alone"
                for one in each.subscriptions
                if not one.good
            ]
        return found


class ImportWorker:
    """The import worker, for one thread. Memory: see `PartitionCopy`, and of one partition `CopiesHere`."""

    def __init__(
        self,
        here: AdminClient,
        pulsar: PulsarAdmin,
        address: PulsarAddress,
        record: ImportRecord,
        reported: Callable[[str], None],
        *,
        delivery_times: bool = False,
    ) -> None:
        """`reported` receives progress lines. `delivery_times`: request the due times of messages, which takes a
        request for each single unacknowledged message."""
        self._delivery_times = delivery_times
        self._node = here.node
        self._pulsar = pulsar
        self._address = address
        self.record = record
        self._report = reported

    def run(self) -> ImportRecord:
        """Bring everything that Pulsar has now.

        Raises:
            Refused: a later run has begun; or something has to be put right first.
            Corrupt: a message cannot be taken over; names it.
            StoreError: one of the clusters cannot be read or written.
        """
        with self.noting():
            if self.record.switch is not ImportSwitch.NOT_BEGUN:
                raise errors.Refused(
                    f"the switch of tenant {self.record.tenant} has begun ({self.record.switch.value}): finish it with "
                    "pok migrate import switch. Then its messages are here, and Pulsar shows nothing of it"
                )
            topics = self.bring_messages()
            self._advance(ImportStep.PROGRESS)
            for topic in topics:
                self._bring_progress(topic)
            self.finish()
        return self.record

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Records the problem that ends the work."""
        try:
            yield
        except errors.LayerError as failure:
            self._note(failure)
            raise

    def bring_messages(self) -> list[PulsarTopic]:
        """Bring the metadata and messages that Pulsar has now; returns its topics. Raises as `run`."""
        self._report("metadata ...")
        topics = self._bring_metadata()
        self._advance(ImportStep.MESSAGES)
        with closing(PulsarReading(self._address)) as reading:
            for topic, schemas in topics:
                self._bring_messages(topic, schemas, reading)
        return [topic for topic, _ in topics]

    def finish(self) -> None:
        self._advance(ImportStep.IMPORTED)

    def advance_switch(self, to: ImportSwitch) -> None:
        self.record = self._node.imports.switch(self.record, to, self._call())

    def _bring_metadata(self) -> list[tuple[PulsarTopic, SchemasHere]]:
        node, found = self._node, []
        known = set(node.namespaces.list(self.record.tenant, self._call()))
        for name, namespace in self._pulsar.namespaces(self.record.tenant).items():
            if name not in known:
                node.namespaces.find_or_create(name, self._call())
            node.namespaces.change_policies(name, partial(_with, requested=namespace.policies), self._call())
            for topic in self._pulsar.topics(name):
                found.append((topic, self._bring_topic(topic)))
        return found

    def _bring_topic(self, topic: PulsarTopic) -> SchemasHere:
        node = self._node
        sides = "here", "in Pulsar: delete it here"
        create = partial(node.topics.find_or_create_like, topic.name, topic.partitions, self._call(), sides=sides)
        missing = node.topics.find(topic.name, self._call()) is None
        here = create_apart(node, create, INCARNATION, self._call()) if missing else create()
        schemas = self._schemas(topic)
        for name, reported in topic.subscriptions.items():
            found = node.subscriptions.find_or_create(here, name, self._call())
            if reported.properties or reported.replicated:
                node.subscriptions.remember(found, reported.properties, reported.replicated, self._call())
        return schemas

    def _bring_messages(self, topic: PulsarTopic, schemas: SchemasHere, reading: PulsarReading) -> None:
        here = self._open(topic)
        max_bytes = record_limit(self._node.admin, here.kafka_topic, self._call())
        self._node.producers.more_than_plain(here, self._call())
        for number, name in enumerate(topic.partition_names()):
            there = self._pulsar.partition(name, topic.subscriptions)
            if there.last.entry_id < 0:
                continue
            origin = OriginOfCopies(self.record.origin, number, self.record.run)
            target = Target(self._node, here, origin.cluster, INCARNATION, _COMPRESSION)
            copy = PartitionCopy(target, number, origin, schemas, max_bytes)
            highest = copy.take_over(self._still_mine, Deadline.after(_READ_S))
            start = None if highest < 0 else there.before(position_at(highest), _BACK_ENTRIES)
            more_comes = partial(self._pulsar.more_comes, name, there)
            entries = reading.entries(name, start, there.last, more_comes, Deadline.after(_READ_S))
            copy.copy(self._with_times(name, there, entries) if self._delivery_times else entries)
            self._report_copied(name, there, copy.counts)
            given_up = [each for each in _given_up(reading, there) if place_of(each.position) > highest]
            if given_up:
                self._report(f"{name}: {_incomplete_text(given_up)}")

    def _with_times(self, name: str, there: PulsarPartition, entries: Iterator[Entry]) -> Iterator[Entry]:
        """The entries with due times, for those that may be delayed and are unacknowledged on some subscription."""
        of_chunks = True
        for entry in entries:
            place = place_of(entry.position)
            left = not there.cursors or any(place not in done for done in there.cursors.values())
            if left and len(entry.messages) == 1 and (of_chunks or not entry.in_chunks):
                try:
                    entry = replace(entry, deliver_at_ms=self._pulsar.deliver_at_ms(name, entry.position))
                except EntryNotReturned:
                    if not entry.in_chunks:
                        raise
                    of_chunks = False
                    self._report(
                        f"{name}: Pulsar does not report when messages in chunks are due (at {entry.position}): they "
                        "come at once"
                    )
            yield entry

    def _report_copied(self, name: str, there: PulsarPartition, counts: CopiedCounts) -> None:
        self._report(
            f"{name}: {counts.entries} entries copied with {counts.messages} messages, {counts.bytes} bytes; Pulsar "
            f"has {there.entries}, up to {there.last}"
        )

    def _bring_progress(self, topic: PulsarTopic) -> None:
        """Acknowledge here what is acknowledged there, of what is here."""
        here = self._open(topic)
        for number, name in enumerate(topic.partition_names()):
            # First what is acknowledged, then what is here: nothing is passed over that has no copy yet.
            cursors = self._pulsar.partition(name, topic.subscriptions).cursors
            if not cursors:
                continue
            copied = self.copies(here, number)
            for subscription, done in cursors.items():
                found = self._node.subscriptions.find(here, subscription, self._call())
                if found is not None:
                    self.acknowledge(found, number, copied, done)

    def acknowledge(self, subscription: Subscription, number: int, copied: CopiesHere, done: Acknowledged) -> None:
        """Acknowledge the copies in a partition whose originals are in `done`."""
        node, deadline = self._node, Deadline.after(_READ_S)
        acks = copied.acknowledged(done, subscription.topic.layout.entries_per_ledger)
        self._still_mine()
        cursor = node.memberships.cursors.read(subscription, deadline)[number].state
        side = SubscriptionSide(CopyOrigin("", 0), cursor, copied.index, copied.index.end)
        acks.join(without_message(side))
        left = without_acknowledged(acks, cursor)
        if left:
            live = node.memberships.live_cursors
            acknowledge_ledgers(live, node.admin, subscription, {number: left.blocks()}, deadline)

    def lacking(self) -> list[str]:
        """Pulsar's metadata that are not here, or otherwise, one sentence each."""
        node, found = self._node, []
        known = set(node.namespaces.list(self.record.tenant, self._call()))
        for name, namespace in self._pulsar.namespaces(self.record.tenant).items():
            if name not in known:
                found.append(f"namespace {name} is not here")
            else:
                policies = node.namespaces.policies(name, self._call())
                found += [
                    f"policy {policy} of namespace {name} is {policies.get(policy)!r} here, {value!r} in Pulsar"
                    for policy, value in namespace.policies.items()
                    if policies.get(policy) != value
                ]
            for topic in self._pulsar.topics(name):
                found += self._lacking_of(topic)
        return found

    def left_out(self) -> list[str]:
        """Settings of Pulsar that have no counterpart here, one sentence each."""
        namespaces = self._pulsar.namespaces(self.record.tenant).items()
        return [
            f"{what} of namespace {name} has no counterpart here" for name, ns in namespaces for what in ns.left_out
        ]

    def _lacking_of(self, topic: PulsarTopic) -> list[str]:
        node = self._node
        here = node.topics.find(topic.name, self._call())
        if here is None:
            return [f"topic {topic.name} is not here"]
        found = []
        partitions = here.partitions if here.partitioned else 0
        if partitions != topic.partitions:
            found.append(f"topic {topic.name} has {partitions} partitions here, {topic.partitions} in Pulsar (0: none)")
        schemas = {stored.info.schema for stored in node.schemas.versions(topic.name, self._call())}
        if gone := [version for version, info in topic.schemas.items() if info.schema not in schemas]:
            found.append(f"topic {topic.name} lacks the schema versions {', '.join(map(str, gone))} of Pulsar")
        for name in topic.subscriptions:
            if node.subscriptions.find(here, name, self._call()) is None:
                found.append(f"subscription {name} of {topic.name} is not here")
        return found

    def verify(self) -> ImportReport:
        """Both sides beside each other. Reads every message of both."""
        lacking = self.lacking()
        reports: list[ImportedPartition] = []
        with closing(PulsarReading(self._address)) as reading:
            for topic in self._topics():
                here = self._node.topics.find(topic.name, self._call())
                if here is not None:
                    reports += self._verify(topic, here, reading)
        return ImportReport(tuple(lacking), tuple(reports))

    def _verify(self, topic: PulsarTopic, here: Topic, reading: PulsarReading) -> Iterator[ImportedPartition]:
        max_bytes = record_limit(self._node.admin, here.kafka_topic, self._call())
        schemas = self._schemas(topic)
        for number, name in enumerate(topic.partition_names()[: here.partitions]):
            there = self._pulsar.partition(name, topic.subscriptions)
            copied = self.copies(here, number, digests=True)
            entries = ComparedEntries(copied)
            origin = OriginOfCopies(self.record.origin, number, self.record.run)
            more_comes = partial(self._pulsar.more_comes, name, there)
            for entry in reading.entries(name, None, there.last, more_comes, Deadline.after(_READ_S)):
                records = copies(entry, origin, *schemas.of(entry.schema_version), max_bytes, "any")
                entries.add(place_of(entry.position), digest_of(records), len(entry.messages))
            given_up = tuple(_given_up(reading, there))
            subscriptions = tuple(self._verify_subscriptions(here, number, there, copied, entries))
            yield ImportedPartition(str(here.name), number, entries.result(), subscriptions, given_up)

    def _verify_subscriptions(
        self, here: Topic, number: int, there: PulsarPartition, copied: CopiesHere, entries: ComparedEntries
    ) -> Iterator[ComparedSubscription]:
        node = self._node
        for name, done in there.cursors.items():
            found = node.subscriptions.find(here, name, self._call())
            if found is not None:
                node.memberships.live_cursors.change(found, {number: SaveNow()}, self._call())
                cursor = node.memberships.cursors.read(found, self._call())[number].state
                yield compared_subscription(name, done, cursor, copied, entries.places)

    def _topics(self) -> list[PulsarTopic]:
        return [each for name in self._pulsar.namespaces(self.record.tenant) for each in self._pulsar.topics(name)]

    def _open(self, topic: PulsarTopic) -> Topic:
        return self._node.topics.open(topic.name, self._call())

    def _schemas(self, topic: PulsarTopic) -> SchemasHere:
        schemas = SchemasHere(self._node, topic.name, partial(self._pulsar.schemas, str(topic.name)))
        schemas.register(topic.schemas)
        return schemas

    def copies(self, here: Topic, partition: int, *, digests: bool = False) -> CopiesHere:
        """Read the copies of one partition."""
        deadline = Deadline.after(_READ_S)
        return copies_here(self._node, here, partition, self.record.origin, deadline, digests=digests)

    def _still_mine(self) -> None:
        self._node.imports.check(self.record, self._call())

    def _advance(self, step: ImportStep) -> None:
        self.record = self._node.imports.advance(self.record, step, self._call())
        self._report(f"{step.value} ...")

    def _note(self, failure: Exception) -> None:
        try:
            self._node.imports.note(self.record, str(failure), self._call())
        except errors.LayerError as unnoted:
            _log.warning("tenant=%s its problem is not on record: %s", self.record.tenant, unnoted)

    @staticmethod
    def _call() -> Deadline:
        return Deadline.after(_CALL_S)


def _given_up(reading: PulsarReading, there: PulsarPartition) -> list[IncompleteMessage]:
    """Dropped messages of the last reading, without those whose beginning cannot be in Pulsar any more."""
    return [each for each in reading.given_up() if there.index_of(each.position) >= each.chunks_before]


def _incomplete_text(given_up: Sequence[IncompleteMessage]) -> str:
    return (
        f"{counted(len(given_up), 'message')} in chunks cannot be read, the first with a chunk at "
        f"{given_up[0].position} of Pulsar: its client puts ten together at a time, each from its first chunk on"
    )


def _with(now: Mapping[str, Any], requested: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**now, **requested}
