"""Logs full of finished transactions, written by a plain producer as coordinators write them, and compacted."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition
from pulsar_on_kafka.broker.transactions.coordinator.state import txn_id
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_keys import (
    CoordinatorTakeoverKey,
    TransactionBufferKey,
    TransactionLogKey,
    encode_key,
)
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_BUFFER_SNAPSHOT, TRANSACTION_LOG, StateTopic
from pulsar_on_kafka_mapping.state.transactions.transaction_buffer import OpenEntry, encode_buffer_entry
from pulsar_on_kafka_mapping.state.transactions.transaction_log import (
    LogValue,
    NewTransaction,
    PartitionsAdded,
    StatusUpdated,
    TakenOver,
    TxnStatus,
    encode_log_value,
)
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TopicPartition as Participant

_SESSION: Final = "bench"
_COMPACT_S: Final = 600.0
_QUICKLY: Final = {
    "min.compaction.lag.ms": "0",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0",  # the second pass, which takes the tombstones, finds next to nothing dirty
    "delete.retention.ms": "0",
}
_CLEANER: Final = {"log.cleaner.dedupe.buffer.size": str(128 * 1024 * 1024), "log.cleaner.backoff.ms": "500"}
_FEW: Final = 1_000
_LOOK_EVERY_S: Final = 2.0

Record = tuple[StateTopic, int, bytes, bytes | None]


def records(count: int, coordinator: int, where: DataPartition) -> Iterator[Record]:
    """Of `count` committed transactions, tombstones behind them. The last NEW stays, as in a coordinator's log."""
    log_partition = TRANSACTION_LOG.partition_of_coordinator(coordinator)
    buffer_partition = TRANSACTION_BUFFER_SNAPSHOT.partition_for(where.topic)
    ops = itertools.count(1)
    claim = encode_key(CoordinatorTakeoverKey(coordinator, _SESSION, 1))
    yield TRANSACTION_LOG, log_partition, claim, encode_log_value(TakenOver(0))
    for number in range(count):
        txn = txn_id(coordinator, number)
        values: list[LogValue] = [
            NewTransaction(1, 1_700_000_000_000 + number, 60_000, number),
            PartitionsAdded(1, (Participant(where.topic, where.partition),)),
            StatusUpdated(1, TxnStatus.COMMITTING),
            StatusUpdated(1, TxnStatus.COMMITTED),
        ]
        keys = [
            encode_key(TransactionLogKey(coordinator, txn.most_bits, txn.least_bits, _SESSION, next(ops)))
            for _ in values
        ]
        opening = encode_key(
            TransactionBufferKey(where.topic, where.partition, txn.most_bits, txn.least_bits, "OPEN", _SESSION, 0)
        )
        entry = encode_buffer_entry(OpenEntry(where.incarnation, 0))
        for key, value in zip(keys, values, strict=True):
            yield TRANSACTION_LOG, log_partition, key, encode_log_value(value)
        yield TRANSACTION_BUFFER_SNAPSHOT, buffer_partition, opening, entry
        yield TRANSACTION_BUFFER_SNAPSHOT, buffer_partition, opening, None
        if number < count - 1:
            for key in keys:
                yield TRANSACTION_LOG, log_partition, key, None


def write(bootstrap: str, those: Iterator[Record]) -> int:
    """Gives how many were written."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    written = 0
    for topic, partition, key, value in those:
        while True:
            try:
                producer.produce(Instance().state_topic(topic), value, key, partition)
                break
            except BufferError:
                producer.poll(0.1)
        written += 1
        if written % 1000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("the broker did not take all records of finished transactions")
    return written


def compact(bootstrap: str, where: dict[StateTopic, int]) -> dict[StateTopic, int]:
    """Have the broker compact these partitions, tombstones too, and give how many records are left in each.

    The topics and the broker have their own settings again afterwards.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    _configure(admin, dict.fromkeys(where, _QUICKLY))
    _configure_cleaner(admin, AlterConfigOpType.SET)
    pause = threading.Event()
    deadline = Deadline.after(_COMPACT_S)
    roller = Producer({"bootstrap.servers": bootstrap})
    left: dict[StateTopic, int] = {}
    for topic, partition in where.items():
        while left.get(topic, _FEW) >= _FEW:
            deadline.check(f"{Instance().state_topic(topic)} to be compacted")
            pause.wait(_LOOK_EVERY_S)
            # An active segment is not compacted: one more record, once segment.ms has passed, begins another.
            roller.produce(
                Instance().state_topic(topic), None, encode_key(TransactionLogKey(0, 0, 0, "roller", 0)), partition
            )
            roller.flush(60)
            left[topic] = _count(bootstrap, Instance().state_topic(topic), partition)
    _configure(admin, {topic: {name: topic.configs[name] for name in _QUICKLY} for topic in where})
    _configure_cleaner(admin, AlterConfigOpType.DELETE)
    return left


def _configure_cleaner(admin: AdminClient, operation: AlterConfigOpType) -> None:
    """Room for the keys of a few million records in one pass, and no pause between passes."""
    entries = [ConfigEntry(name, value, incremental_operation=operation) for name, value in _CLEANER.items()]
    brokers = [
        ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=entries)
        for broker in admin.list_topics(timeout=60).brokers
    ]
    for done in admin.incremental_alter_configs(brokers).values():
        done.result(60)


def _configure(admin: AdminClient, settings: dict[StateTopic, dict[str, str]]) -> None:
    resources = [
        ConfigResource(
            ResourceType.TOPIC,
            Instance().state_topic(topic),
            incremental_configs=[
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()
            ],
        )
        for topic, configs in settings.items()
    ]
    for done in admin.incremental_alter_configs(resources).values():
        done.result(60)


def _count(bootstrap: str, kafka_topic: str, partition: int) -> int:
    """How many records there are, or that they are too many: reading all of them would hold up the broker."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "counter", "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "enable.partition.eof": True,
    })  # fmt: skip
    found = 0
    try:
        consumer.assign([TopicPartition(kafka_topic, partition, 0)])
        deadline = Deadline.after(120)
        while True:
            deadline.check(f"{kafka_topic}-{partition} to be read")
            for message in consumer.consume(10_000, 0.5):
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return found
                found += error is None
            if found >= _FEW:
                return found
    finally:
        consumer.close()
