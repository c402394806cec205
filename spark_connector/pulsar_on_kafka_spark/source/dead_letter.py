"""`dead_letter` publishes the messages of a DataFrame as dead letters and acknowledges them on their subscription.

Rows only name the messages. The driver reads these again from Kafka, so a letter has its message's payload, keys,
properties, schema version and encryption, whatever columns the DataFrame has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from pyroaring import BitMap64
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.publishing.in_flight import SendResult
from pulsar_on_kafka.client.connection.connection import ClientOptions
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.consumer.dead_letters import (
    DLQ_SUFFIX,
    LetterProducers,
    check_letter_topic,
    letter_properties,
    origin_as_java,
)
from pulsar_on_kafka.client.values.message import BatchedMessage, Message
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_spark.acknowledging.acknowledge import acknowledge_entries, until, with_what_goes_along
from pulsar_on_kafka_spark.acknowledging.located_messages import located, message_id_parts
from pulsar_on_kafka_spark.base.errors import InvalidReadOption
from pulsar_on_kafka_spark.options.letter_options import LetterOptions, parse_letter_options
from pulsar_on_kafka_spark.options.read_options import CONSUME, EARLIEST, LATEST
from pulsar_on_kafka_spark.planning.batch_plan import Entries, both
from pulsar_on_kafka_spark.planning.planned_views import known_batches, visible
from pulsar_on_kafka_spark.planning.visibility import (
    SNAPSHOT_S,
    RequestedView,
    TopicView,
    find_subscription,
    find_topic,
    view_topics,
)
from pulsar_on_kafka_spark.reading.connection import driver_settings, node_of
from pulsar_on_kafka_spark.reading.named_topics import schemas_of
from pulsar_on_kafka_spark.reading.tenant_cluster import on_cluster
from pulsar_on_kafka_spark.source.partition_plan import PartitionPlan, planned_topic
from pulsar_on_kafka_spark.source.source_messages import MessageMaker
from pulsar_on_kafka_spark.source.source_plans import looked_for

ENTRIES_AT_ONCE: Final = 500
"""Entries whose letters are published before they are acknowledged: so many letters a crash may have repeated."""
_MAX_REASON: Final = 1_000

_Place = tuple[int, int, int]
"""Ledger, entry, and index in a batch or -1."""


def dead_letter(messages: DataFrame, **options: Any) -> int:
    """Publish the messages of a DataFrame to the dead letter topic of a subscription, and acknowledge them there.
    Returns the number of letters written. Everything is durable when it returns.

    The rows are found as by `acknowledge`. A message that is acknowledged on the subscription already gets no letter.
    So a batch that Spark repeats writes each letter once, unless the driver died between at most `ENTRIES_AT_ONCE`
    letters and their acknowledgement; an SDK's consumer repeats its letter likewise. A stream that acknowledges its
    batches may acknowledge the same messages again, which changes nothing.

    A letter is written as Java's client does, with the properties `REAL_TOPIC`, `REAL_SUBSCRIPTION`,
    `ORIGIN_MESSAGE_ID`, and `REFUSAL_REASON` where there is a reason. `pok dlq` lists and redrives letters. Letters
    pass through the driver, some thousands a second; the DataFrame is evaluated as often as by `acknowledge`, and once
    more for reasons.

    Options: those of `acknowledge`; `deadLetterTopic` (default `<topic>-<subscription>-DLQ`),
    `initialSubscriptionName`; `reason`, a text for all letters; `reasonColumn`, the name of a column with the reason of
    each, which requires `__messageId`. Reasons are cut at 1,000 characters.

    Memory of the driver: `ENTRIES_AT_ONCE` messages; with `reasonColumn` one reason for each row.

    Raises:
        InvalidReadOption, NotReadable: see `spark.base.errors`. Some letters may be written and acknowledged.
        PulsarException: a letter was refused; its message is not acknowledged.
    """
    own = parse_letter_options(options)
    own = replace(own, stream=replace(own.stream, read=on_cluster(own.stream.read)))
    reasons = _reasons(messages, own)
    with node_of(own.stream.read) as node, _session(own) as session:
        topics = [
            find_topic(node, TopicName.parse(name), Deadline.after(SNAPSHOT_S)) for name in own.stream.read.topics
        ]
        by_name = {str(topic.name): topic for topic in topics}
        count = 0
        for name, named in located(messages, topics).items():
            letters = _Letters(node, session, own, by_name[name], reasons)
            try:
                done = letters.write(named)
            finally:
                letters.close()
            count += letters.count
            if done:
                whole = with_what_goes_along(messages.sparkSession, node, own.stream, name, done)
                acknowledge_entries(node, own.stream, {name: whole})
    return count


@contextmanager
def _session(options: LetterOptions) -> Iterator[Session]:
    """Producers of letters, closed at the end."""
    settings = driver_settings(options.stream.read, InvalidReadOption)
    session = Session(ClientOptions(stats_interval_in_seconds=0, stand_in=False), settings)
    try:
        yield session
    finally:
        session.close()


def _reasons(messages: DataFrame, options: LetterOptions) -> dict[_Place, str]:
    """The reason of each row. Raises InvalidReadOption: a column is missing."""
    column = options.reason_column
    if not column:
        return {}
    for name in (column, "__messageId"):
        if name not in messages.columns:
            raise InvalidReadOption(
                f"reasonColumn is {column!r}, and the columns are {', '.join(messages.columns)}: expected {name} "
                "among them"
            )
    text = F.substring(messages[column].cast("string"), 1, _MAX_REASON)
    rows = messages.select(messages["__messageId"].alias("id"), text.alias("reason")).where("reason is not null")
    found = {}
    for row in rows.toLocalIterator():
        parts = message_id_parts(row["id"])
        found[parts.ledger_id, parts.entry_id, parts.batch_index] = row["reason"]
    return found


class _Letters:
    """The letters of one topic's messages. For one thread."""

    def __init__(
        self, node: Node, session: Session, options: LetterOptions, topic: Topic, reasons: Mapping[_Place, str]
    ) -> None:
        self.count = 0
        self._node = node
        self._options = options
        self._topic = topic
        self._reasons = reasons
        subscription = options.subscription
        self._to = options.dead_letter_topic or f"{topic.name.base}-{subscription}{DLQ_SUFFIX}"
        check_letter_topic(session, f"dead letters of subscription {subscription!r}", self._to)
        self._producers = LetterProducers(session, subscription)

    def close(self) -> None:
        self._producers.close()

    def write(self, named: Mapping[int, Entries]) -> dict[int, Entries]:
        """Publishes and acknowledges the messages that are not acknowledged yet; gives the entries of those."""
        view = self._view(named)
        read = replace(self._options.stream.read, schema="bytes", crypto_failure_action=CONSUME)
        (schemas,) = schemas_of(self._node, read, [self._topic.name])
        settings = driver_settings(read, InvalidReadOption)
        topic = planned_topic(settings, view, schemas, read, StructType())
        done: dict[int, Entries] = {}
        for partition, one in view.partitions.items():
            plan = PartitionPlan(
                topic, partition, b"", known_batches(one), one.unsealed, one.whole.start, {}, None, None
            )
            maker, entries = MessageMaker(plan), named[partition]
            left = visible(one, one.whole.start, one.whole.end) & (entries.whole | BitMap64(entries.batches))
            for start in range(0, len(left), ENTRIES_AT_ONCE):
                made = maker.messages(self._records(partition, list(left[start : start + ENTRIES_AT_ONCE])))
                messages = [message for message in made if _is_named(message, entries)]
                self._publish(partition, messages, _entries_of(messages, entries), done)
            for last, message in one.chunked.items():
                if last in entries.whole:
                    chunks = self._records(partition, message.offsets)
                    messages = maker.chunked(message.offsets, message.total_bytes, chunks)
                    self._publish(partition, messages, Entries(BitMap64(message.offsets)), done)
        return done

    def _view(self, named: Mapping[int, Entries]) -> TopicView:
        """The unacknowledged messages up to the last named one."""
        subscription = find_subscription(
            self._node, self._topic, self._options.subscription, Deadline.after(SNAPSHOT_S)
        )
        read = replace(self._options.stream.read, starting=EARLIEST, ending=LATEST, fail_on_data_loss=False)
        (view,) = view_topics(self._node, [RequestedView(self._topic, subscription, sorted(named))], read)
        upto = {p: replace(one, whole=until(one.whole, named[p])) for p, one in view.partitions.items()}
        return looked_for(self._node, replace(view, partitions=upto, delayed_until_ms=None))

    def _records(self, partition: int, offsets: Sequence[int]) -> list[Any]:
        read = self._node.fetcher.read_at(self._topic.kafka_topic, partition, offsets, Deadline.after(SNAPSHOT_S))
        return list(chain.from_iterable(read))

    def _publish(
        self, partition: int, messages: Sequence[Message[Any]], entries: Entries, done: dict[int, Entries]
    ) -> None:
        """Acknowledges the entries of these messages when every in-sync replica has their letters."""
        if not messages:
            return
        for answer in [self._send(message) for message in messages]:
            answer.answer()
        self.count += len(messages)
        name = str(self._topic.name)
        acknowledge_entries(self._node, self._options.stream, {name: {partition: entries}})
        done.update(both({name: done}, {name: {partition: entries}})[name])

    def _send(self, message: Message[Any]) -> SendResult:
        answer = SendResult()
        own = origin_as_java(message, self._options.subscription, put_off=False)
        found = message.message_id()
        place = found.ledger_id(), found.entry_id(), found.batch_index()
        reason = self._reasons.get(place, self._options.reason)
        properties = letter_properties(message, own, reason)
        initial = self._options.initial_subscription
        self._producers.send_copy(message, self._to, properties, answer, initial_subscription=initial)
        return answer


def _is_named(message: Message[Any], named: Entries) -> bool:
    if message.offset in named.whole:
        return True
    _, bits = named.batches.get(message.offset, (0, 0))
    return isinstance(message, BatchedMessage) and bool(bits >> message.batch_index & 1)


def _entries_of(messages: Sequence[Message[Any]], named: Entries) -> Entries:
    """The part of `named` that these messages are."""
    offsets = BitMap64(message.offset for message in messages)
    return Entries(named.whole & offsets, {offset: bits for offset, bits in named.batches.items() if offset in offsets})
