"""Topics: the part of `AdminClient` that changes, truncates and terminates existing ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pulsar_on_kafka.admin.context import MAX_RECORD_PROPERTIES_BYTES, checked_properties, raising_pulsar_errors
from pulsar_on_kafka.admin.subscriptions import SubscriptionAdmin
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.log_needs import needs_of
from pulsar_on_kafka.broker.node.topic_termination import terminate
from pulsar_on_kafka.client.receiving.start_position import TopicPositions
from pulsar_on_kafka_mapping.ids.ledger_ids import DEFAULT_ENTRIES_PER_LEDGER
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import SaveNow
from pulsar_on_kafka_mapping.state.metadata.metadata_records import TopicRecord


@raising_pulsar_errors
class TopicAdmin(SubscriptionAdmin):
    """Methods raise `TopicNotFound` for a topic that does not exist."""

    def create_topic(
        self, topic: str, *, entries_per_ledger: int | None = None, properties: Mapping[str, str] | None = None
    ) -> None:
        """Make a non-partitioned topic. Raises NotAllowedError when it exists."""
        self._create(topic, 0, entries_per_ledger, properties)

    def create_partitioned_topic(
        self,
        topic: str,
        partitions: int,
        *,
        entries_per_ledger: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Make a topic of 1 to 8,192 partitions. Raises NotAllowedError when it exists."""
        if partitions < 1:
            raise errors.InvalidOption(f"partitions must be 1 to 8192, got {partitions}")
        self._create(topic, partitions, entries_per_ledger, properties)

    def _create(
        self, topic: str, partitions: int, entries_per_ledger: int | None, properties: Mapping[str, str] | None
    ) -> None:
        name, deadline = TopicName.parse(topic), self._deadline()
        self.node.topics.create(
            name,
            partitions,
            deadline,
            entries_per_ledger=DEFAULT_ENTRIES_PER_LEDGER if entries_per_ledger is None else entries_per_ledger,
            properties=_checked(properties or {}),
        )

    def topic_properties(self, topic: str) -> dict[str, str]:
        """The properties of a topic, which all its partitions share."""
        deadline = self._deadline()
        name = self._topic_around(topic, deadline).name
        record = self.node.topics.records.of([name], deadline)[name]
        return {} if record is None else dict(record.properties)

    def update_topic_properties(self, topic: str, properties: Mapping[str, str]) -> None:
        """Add properties to a topic, or replace their values; other properties stay.

        Raises:
            InvalidConfiguration: all properties together exceed 64 KiB.
        """
        deadline = self._deadline()
        opened = self._topic_around(topic, deadline)
        _checked(properties)

        def updated(record: TopicRecord) -> TopicRecord:
            return replace(record, properties=_checked({**record.properties, **properties}))

        self.node.topics.records.change(opened, updated, deadline)

    def remove_topic_property(self, topic: str, name: str) -> None:
        """Remove a property of a topic; nothing happens without such a property."""
        deadline = self._deadline()

        def removed(record: TopicRecord) -> TopicRecord:
            return replace(
                record, properties={each: value for each, value in record.properties.items() if each != name}
            )

        self.node.topics.records.change(self._topic_around(topic, deadline), removed, deadline)

    def truncate_topic(self, topic: str) -> None:
        """Move all subscriptions to the topic's present end, and delete the messages before it. Messages that arrive
        meanwhile may stay, and so do those that open transactions or deduplication need.

        Raises:
            NotAllowedError: the topic is not persistent, or bound: its Kafka topic belongs to other programs.
            Timeout: the owners of cursors did not reply in time; some subscriptions may be moved.
        Differs from Pulsar: there the messages of the open ledger stay.
        """
        deadline = self._deadline()
        opened = self._persistent_topic(topic, deadline)
        if opened.bound:
            raise errors.Refused(
                f"topic {opened.name} is bound to Kafka topic {opened.kafka_topic}, from which nothing is deleted"
            )
        starts, ends = self._log_ends(opened, deadline)
        for found in self.node.subscriptions.durable(opened, deadline):
            self.clear_backlog(topic, found.name)
            self._move(found, dict.fromkeys(found.served, SaveNow()), deadline)
        read_cursors = self.node.memberships.cursors.read
        before: dict[int, int] = {}
        for partition, needs in needs_of(self.node, read_cursors, opened, list(ends), deadline).items():
            needed = replace(needs, compacted=False).first_needed()
            end = ends[partition] if needed is None else min(needed, ends[partition])
            if end > starts[partition]:
                before[partition] = end
        if before:
            self.node.topics.removals.delete_records(opened, before, deadline)

    def terminate_topic(self, topic: str) -> dict[int, NativeMessageId]:
        """Terminate a topic: it takes no further message, and consumers and readers receive what it has. Returns the id
        of each partition's last message; entry -1 if there is none. A second call returns the same.

        Open producers, in all processes, get `TopicTerminated` within some seconds; messages with a receipt stay. The
        caller needs the rights of a producer of the topic.

        Raises:
            NotAllowedError: the topic is not persistent, or Kafka compacts its Kafka topic.
            Timeout: producers of a process that does not reply may still send. No producer is admitted; call again.
        """
        deadline = self._deadline()
        opened = self._persistent_topic(topic, deadline)
        self.node.limits.of(opened, deadline).refuse("it cannot be terminated, since the marker of its end would go")
        ends = terminate(self.node, opened, deadline)
        positions = TopicPositions(self.node, replace(opened, terminated=ends))
        return {p: _id_of(opened, p, positions.last_message(p, deadline)) for p in sorted(ends)}

    def _persistent_topic(self, topic: str, deadline: Deadline) -> Topic:
        opened = self._topic(topic, deadline)
        if not opened.name.is_persistent:
            raise errors.Refused(f"topic {opened.name} is not persistent")
        return opened


def _checked(properties: Mapping[str, str]) -> dict[str, str]:
    """Raises InvalidOption."""
    return checked_properties("a topic", properties, MAX_RECORD_PROPERTIES_BYTES)


def _id_of(topic: Topic, partition: int, offset: int) -> NativeMessageId:
    if offset < 0:
        return NativeMessageId(topic.partition_field(partition), topic.layout.ledger_id(partition, 0), -1, -1)
    ledger, entry = topic.layout.position(partition, offset)
    return NativeMessageId(topic.partition_field(partition), ledger, entry, -1)
