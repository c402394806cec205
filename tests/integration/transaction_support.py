"""A plain Kafka program sees transactions: data partitions with their headers, and the state topics."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient as KafkaTool
from confluent_kafka.admin import ConfigResource, ResourceType

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.broker.transactions.coordinator.state import CoordinatorState, LoggedTransaction
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.record_headers import MarkerType
from pulsar_on_kafka_mapping.records.transaction_headers import in_transaction
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_BUFFER_SNAPSHOT, TRANSACTION_LOG
from tests.kafka_records import headers_of, place_of

PATIENCE_S = 60.0


def _end(consumer: Consumer, where: TopicPartition, deadline: Deadline) -> int:
    """Where it ends; a handle that has just been made may not know the partition yet."""
    while True:
        try:
            return int(consumer.get_watermark_offsets(where, timeout=PATIENCE_S)[1])
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError._UNKNOWN_PARTITION or deadline.passed():
                raise
        consumer.poll(0.1)


def read_all(bootstrap: str, kafka_topic: str, partition: int = 0) -> list[Message]:
    """Everything that a partition holds up to where it ends now."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "plain-reader", "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "enable.partition.eof": True, "allow.auto.create.topics": False,
    })  # fmt: skip
    found: list[Message] = []
    try:
        where = TopicPartition(kafka_topic, partition, 0)
        deadline = Deadline.after(PATIENCE_S)
        end = _end(consumer, where, deadline)
        consumer.assign([where])
        while end > 0:
            deadline.check(f"{kafka_topic}-{partition} to be read to {end}")
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(message)
                if place_of(message)[1] >= end - 1:
                    break
            elif error.code() == KafkaError._PARTITION_EOF:
                break
    finally:
        consumer.close()
    return found


@dataclass(frozen=True)
class Seen:
    """A record of a data partition; `ended` is True for a commit marker, False for an abort marker, else None."""

    offset: int
    value: bytes | None
    txn: TxnId | None
    ended: bool | None


def data_of(bootstrap: str, kafka_topic: str, partition: int = 0) -> list[Seen]:
    found = []
    for message in read_all(bootstrap, kafka_topic, partition):
        named = in_transaction(headers_of(message))
        ended = None if named is None or named.ended is None else named.ended is MarkerType.TXN_COMMIT
        found.append(Seen(place_of(message)[1], message.value(), None if named is None else named.txn, ended))
    return found


def markers_of(bootstrap: str, kafka_topic: str, partition: int = 0) -> dict[TxnId, set[bool]]:
    """By transaction: which ends its markers tell of (True: committed)."""
    found: dict[TxnId, set[bool]] = {}
    for seen in data_of(bootstrap, kafka_topic, partition):
        if seen.txn is not None and seen.ended is not None:
            found.setdefault(seen.txn, set()).add(seen.ended)
    return found


def log_record(message: Message) -> LogRecord:
    return LogRecord(place_of(message)[1], message.key() or b"", message.value(), message.timestamp()[1])


def buffer_of(bootstrap: str, topic: str) -> BufferEntries:
    """What is on record of transactions in `topic`, given by its full name."""
    entries = BufferEntries()
    state_topic = TRANSACTION_BUFFER_SNAPSHOT
    for message in read_all(bootstrap, Instance().state_topic(state_topic), state_topic.partition_for(topic)):
        entries.apply(log_record(message))
    return entries


def on_record(bootstrap: str, txn: TxnId) -> LoggedTransaction | None:
    """What its coordinator's log says of a transaction."""
    state = CoordinatorState(txn.coordinator)
    for message in read_all(bootstrap, Instance().state_topic(TRANSACTION_LOG), txn.coordinator):
        state.apply(log_record(message))
    return state.transaction(txn)


def topic_config(bootstrap: str, kafka_topic: str, name: str) -> str | None:
    resource = ConfigResource(ResourceType.TOPIC, kafka_topic)
    tool = KafkaTool({"bootstrap.servers": bootstrap})
    found = tool.describe_configs([resource])[resource].result(PATIENCE_S)
    return None if found[name].value is None else str(found[name].value)
