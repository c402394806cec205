"""The worker that exports a tenant to a running Pulsar: it compares both sides, and does the rest of the work.

It may be killed at any instant, and run any number of times: Pulsar's deduplication has the progress. Programs continue
here meanwhile; the last run follows their end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.schema_registry.model import StoredSchema
from pulsar_on_kafka.clusters.migration.from_pulsar.admin import PulsarAdmin, PulsarTopic
from pulsar_on_kafka.clusters.migration.from_pulsar.entry_positions import Position
from pulsar_on_kafka.clusters.migration.from_pulsar.imported import imported_upto
from pulsar_on_kafka.clusters.migration.from_pulsar.reading import PulsarAddress, PulsarReading, connect
from pulsar_on_kafka.clusters.migration.inventory import not_persistent, subscriptions
from pulsar_on_kafka.clusters.migration.to_pulsar.exported_copies import OriginalsInPulsar
from pulsar_on_kafka.clusters.migration.to_pulsar.partition_export import ComparedExport, PartitionExport
from pulsar_on_kafka.clusters.migration.to_pulsar.pulsar_topics import PulsarTopics
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.clusters.tenant_records import ImportRecord
from pulsar_on_kafka_schema_compat import SchemaInfo

_CALL_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Exported:
    """A topic of the tenant, as it is here."""

    here: Topic
    schemas: tuple[StoredSchema, ...]
    subscriptions: list[Subscription]

    @property
    def there(self) -> PulsarTopic:
        """Its form in Pulsar."""
        return PulsarTopic(self.here.name, self.here.partitions if self.here.partitioned else 0)


@dataclass(frozen=True, slots=True)
class ExportedPartition:
    """Counts of a run. `left_out`: messages that were imported from there, and which it has.
    `acknowledged`: entries, by subscription."""

    topic: str
    partition: int
    messages: int
    bytes: int
    left_out: int
    open_transaction: int | None
    acknowledged: dict[str, int]


class ExportWorker:
    """The export worker, for one thread. Memory: see `PartitionExport`."""

    def __init__(
        self,
        here: AdminClient,
        pulsar: PulsarAdmin,
        address: PulsarAddress,
        tenant: str,
        imported: ImportRecord | None,
        reported: Callable[[str], None],
    ) -> None:
        """`imported`: the import of the tenant from this Pulsar, if it comes from there. `reported` receives progress
        lines."""
        self._here = here
        self._node = here.node
        self._pulsar = pulsar
        self._address = address
        self._tenant = tenant
        self._topics = PulsarTopics(pulsar)
        self._imported: dict[tuple[str, int], Position | None] = {}
        self._origin = ""
        if imported is not None:
            self._origin = imported.origin
            progress = imported_upto(self._node, imported, self._call())
            self._imported = {(each.topic, each.partition): each.position for each in progress}
        self._report = reported

    def plan(self) -> list[str]:
        """Topics that Pulsar lacks or has otherwise, and those that cannot be exported, one sentence each.

        Raises Refused: there is no such tenant.
        """
        known = self._topics.known(self._tenant)
        found: list[str] = []
        for topic in self._exported():
            name = str(topic.here.name)
            partitions = known.get(name)
            if partitions is None:
                found.append(f"topic {name} is not in Pulsar")
            elif partitions != topic.there.partitions:
                found.append(
                    f"topic {name} has {partitions} partitions in Pulsar and {topic.there.partitions} here (0: not "
                    "partitioned)"
                )
            else:
                problems = {self._topics.problem_of(each) for _, each in _partitions(topic)} - {None}
                found += [f"topic {name} {problem}" for problem in problems]
        return found + not_persistent(self._here, self._tenant, self._call())

    def run(self, deadline: Deadline) -> list[ExportedPartition]:
        """Brings everything that is here now. `deadline`: for Pulsar, to load topics and switch deduplication on.

        Raises:
            Refused: something has to be put right first, or a message cannot be exported; says what.
            StoreError: one of the clusters cannot be read or written.
            DeadlineExceeded: Pulsar does not load a topic in time.
        """
        self._report("metadata ...")
        topics = self._bring_metadata(deadline)
        found = []
        with closing(connect(self._address)) as client, closing(PulsarReading(self._address)) as reading:
            for topic in topics:
                self._report(f"{topic.here.name} ...")
                found += [self._bring(topic, number, name, client, reading) for number, name in _partitions(topic)]
        return found

    def compare(self) -> tuple[list[str], list[ComparedExport]]:
        """Differences of the metadata, one sentence each, and of each partition. Reads every message of both sides."""
        known, lacking, found = self._topics.known(self._tenant), [], []
        with closing(PulsarReading(self._address)) as reading:
            for topic in self._exported():
                if known.get(str(topic.here.name)) != topic.there.partitions:
                    lacking.append(f"topic {topic.here.name} is not in Pulsar with as many partitions")
                    continue
                for number, name in _partitions(topic):
                    export = self._partition(topic, number, name)
                    found.append(export.compare(reading, topic.subscriptions, self._address.private_key))
        return lacking, found

    def _exported(self) -> list[_Exported]:
        node, found = self._node, []
        for namespace in self._namespaces():
            for record in node.topics.list(namespace, self._call()):
                topic = node.topics.find(TopicName.parse(record.name), self._call())
                if topic is not None and topic.name.is_persistent:
                    versions = node.schemas.versions(topic.name, self._call())
                    found.append(_Exported(topic, versions, subscriptions(node, topic, self._call())))
        return found

    def _namespaces(self) -> list[str]:
        found = self._node.namespaces.list(self._tenant, self._call())
        if not found:
            raise errors.Refused(f"tenant {self._tenant} has no namespace here")
        return found

    def _bring_metadata(self, deadline: Deadline) -> list[_Exported]:
        node, topics = self._node, self._exported()
        policies = {name: node.namespaces.policies(name, self._call()) for name in self._namespaces()}
        created = self._topics.create_namespaces(self._tenant, policies)
        if created:
            self._report(f"{counted(len(created), 'namespace')} created: {', '.join(created)}")
        known = self._topics.known(self._tenant)
        for topic in topics:
            self._topics.create_topic(topic.there, known.get(str(topic.here.name)))
        self._require_open(topics, deadline)
        for topic in topics:
            self._topics.upload_schemas(topic.here.name, topic.schemas)
            for _, name in _partitions(topic):
                self._topics.await_deduplication(name, deadline)
            for number, name in _partitions(topic):
                known_there = self._pulsar.partition(name, [each.name for each in topic.subscriptions]).cursors
                for each in topic.subscriptions:
                    if each.name not in known_there and number in each.served:
                        self._topics.create_subscription(name, each)
        return topics

    def _require_open(self, topics: list[_Exported], deadline: Deadline) -> None:
        terminated = [
            str(topic.here.name)
            for topic in topics
            if any(self._topics.is_terminated(name, deadline) for _, name in _partitions(topic))
        ]
        if terminated:
            raise errors.Refused(
                f"Pulsar has terminated {counted(len(terminated), 'topic')}, which take no message any more. Their "
                "messages are here: delete them there (pulsar-admin topics delete -f, or delete-partitioned-topic -f), "
                f"and run this again: {', '.join(terminated)}"
            )

    def _bring(
        self, topic: _Exported, number: int, name: str, client: Any, reading: PulsarReading
    ) -> ExportedPartition:
        export = self._partition(topic, number, name)
        schemas: dict[bytes | None, SchemaInfo] = {stored.version.header(): stored.info for stored in topic.schemas}
        sent = export.send(client, schemas, reading, self._address.private_key)
        if sent.open_transaction is not None:
            self._report(
                f"{name}: ends at offset {sent.open_transaction}, whose transaction is open: run this again when the "
                "transaction has ended"
            )
        applied = export.acknowledge(reading, client, topic.subscriptions)
        self._report(
            f"{name}: {counted(sent.messages, 'message')} sent, {sent.left_out} that Pulsar has left out; "
            f"{counted(sum(applied.values()), 'acknowledgement')} applied"
        )
        return ExportedPartition(
            str(topic.here.name), number, sent.messages, sent.bytes, sent.left_out, sent.open_transaction, applied
        )

    def _partition(self, topic: _Exported, number: int, name: str) -> PartitionExport:
        return PartitionExport(self._node, topic.here, number, name, self._pulsar, self._originals(topic, number, name))

    def _originals(self, topic: _Exported, number: int, name: str) -> OriginalsInPulsar:
        upto = self._imported.get((str(topic.here.name), number))
        if upto is None:
            return OriginalsInPulsar()
        ledgers = {each.ledger_id: each.entries for each in self._pulsar.partition(name, ()).ledgers}
        return OriginalsInPulsar(self._origin, number, ledgers, upto)

    @staticmethod
    def _call() -> Deadline:
        return Deadline.after(_CALL_S)


def _partitions(topic: _Exported) -> Iterator[tuple[int, str]]:
    return enumerate(topic.there.partition_names())
