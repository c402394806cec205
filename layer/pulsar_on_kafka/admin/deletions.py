"""Deletions of ledgers: the part of `AdminClient` that shows requested and failed ones."""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_on_kafka.admin.context import AdminContext, raising_pulsar_errors
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.managed_ledger.deletion import DELETIONS_SHOWN
from pulsar_on_kafka.broker.managed_ledger.deletion_topics import (
    DEAD_LETTERS,
    EVENTS,
    OPERATOR,
    REASON,
    RETRIES,
    WORKER,
    event_in,
    event_schema,
)
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.client.consumer.dead_letters import RECONSUMETIMES
from pulsar_on_kafka.kafka.records import KafkaRecord, headers_of
from pulsar_on_kafka_mapping.encoding.decimals import decimal_or_none
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.message_record import decode_headers


@dataclass(frozen=True, slots=True)
class Deletion:
    """An event that requests the deletion of a ledger's data.

    Attributes:
        event: its partition and offset in its topic.
        ledger_id, topic, partition: its ledger; -1 and "" for a message that is no event.
        asked_ms: Unix time at which it was published, of a retry that of the retry.
        retries: the number of times that it was postponed.
        reason: why it was postponed, or given up; "" for a new one.
    """

    event: str
    ledger_id: int
    topic: str
    partition: int
    asked_ms: int
    retries: int
    reason: str


@dataclass(frozen=True, slots=True)
class Deletions:
    """A list of deletions has the oldest ones in `first`; `count` is the number of all, messages of others in these
    topics among them."""

    count: int
    first: list[Deletion]


@raising_pulsar_errors
class DeletionAdmin(AdminContext):
    """Deletions are shown as last saved, up to a second old. Ours, not Pulsar's."""

    def list_deletions(self, limit: int = DELETIONS_SHOWN) -> Deletions:
        """Requested deletions that are not done: new events, then those that wait for their next attempt."""
        deadline = self._deadline()
        new = self._unacknowledged(EVENTS, WORKER, limit, deadline)
        put_off = self._unacknowledged(RETRIES, WORKER, limit - len(new.first), deadline)
        return Deletions(new.count + put_off.count, new.first + put_off.first)

    def dead_deletions(self, limit: int = DELETIONS_SHOWN) -> Deletions:
        """Deletions that were given up, and not replayed."""
        return self._unacknowledged(DEAD_LETTERS, OPERATOR, limit, self._deadline())

    def _unacknowledged(self, topic: str, subscription: str, limit: int, deadline: Deadline) -> Deletions:
        if limit < 0:
            raise errors.InvalidOption(f"limit is {limit}, expected 0 or more")
        opened = self.node.topics.find(TopicName.parse(topic), deadline)
        found = None if opened is None else self.node.subscriptions.find(opened, subscription, deadline)
        return Deletions(0, []) if found is None else self._left(found, limit, deadline)

    def _left(self, subscription: Subscription, limit: int, deadline: Deadline) -> Deletions:
        node, topic = self.node, subscription.topic
        starts, ends = self._log_ends(topic, deadline, subscription.served)
        count = 0
        first: list[Deletion] = []
        for partition, cursor in node.memberships.cursors.read_whole(subscription, deadline).items():
            begin = max(cursor.state.next_unacked, starts[partition])
            left = cursor.state.unacknowledged(begin, ends[partition])
            count += len(left)
            requested = list(left[: max(0, limit - len(first))])
            for batch in node.fetcher.read_at(topic.kafka_topic, partition, requested, deadline) if requested else ():
                first += [_deletion_in(topic.name, partition, record) for record in batch]
        return Deletions(count, first)


def _deletion_in(topic: TopicName, partition: int, record: KafkaRecord) -> Deletion:
    properties: dict[str, str] = {}
    reason = ""
    about = None
    try:
        properties = dict(decode_headers(headers_of(record), lambda _: None).properties)
        about = event_in(event_schema().decode(record.value() or b""))
    except CorruptRecord as unreadable:
        reason = str(unreadable)
    except Exception as unreadable:  # whatever bytes may do to a decoder
        reason = f"no event: {unreadable}"
    times = properties.get(RECONSUMETIMES, "0")
    return Deletion(
        f"{topic.local_name}-partition-{partition}:{record.offset()}",
        -1 if about is None else about.ledger_id,
        "" if about is None else about.topic,
        -1 if about is None else about.partition,
        record.timestamp()[1],
        decimal_or_none(times) or 0,
        properties.get(REASON, reason),
    )
