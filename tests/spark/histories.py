"""Random histories of topics and subscriptions, and the rows of what their next consumers get."""

from __future__ import annotations

import pickle
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import Any, Final

from confluent_kafka import KafkaException
from cryptography.hazmat.primitives import serialization

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.message_record import key_text
from pulsar_on_kafka_spark.source.record_batches import record_batches
from pulsar_on_kafka_spark.source.source_plans import batch_plans, columns_now, source_options
from tests.foreign_records import ForeignProducer, some_absurd_records
from tests.integration.client.test_void_records import a_paused_producer_writes
from tests.pulsar_entries import Case, cases, private_key
from tests.pulsar_entries.stored import records_of, write
from tests.spark.streams import receive_all

Row = tuple[object, ...]
OPEN_MS: Final = 900_000
"""The time-out of a history's transactions: one that timed out between two readings would make them differ."""
KINDS: Final = (pulsar.ConsumerType.Shared, pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.KeyShared)
_READING: Final = Lock()
"""A process reads the records of one task at a time."""
_SILENCE_MS: Final = 150
"""For a step that acknowledges some of what is there, it does not matter how much."""
_ENTRIES: Final = [each for each in cases() if each.schema is None and "in a transaction" not in each.name]
_IN_TRANSACTION: Final = [each for each in cases() if "in a transaction" in each.name]
_HOUR: Final = timedelta(hours=1)
_PROPERTIES: Final[Sequence[dict[str, str]]] = (
    {}, {"n": "1", "__pulsar.x": "y"}, {"": "no name", "\u00e9\U0001f600": "\x00\x7f"}, {"empty": ""},
)  # fmt: skip


def row_of(values: Mapping[str, Any]) -> Row:
    """A row with all columns, of Spark or of Arrow, in the form of `row_of_message`."""

    def millis(time: Any) -> int | None:
        return None if time is None else round(time.timestamp() * 1000)

    def data(name: str) -> bytes | None:
        return None if values[name] is None else bytes(values[name])

    properties = values["__messageProperties"]
    return (
        data("__messageId"),
        data("value"),
        data("__key"),
        values["__topic"],
        millis(values["__publishTime"]),
        millis(values["__eventTime"]) or 0,
        tuple(sorted(properties.items() if isinstance(properties, dict) else properties)),
        key_text(data("__orderingKey")),
        max(values["__partition"], 0),
        values["__offset"],
        -1 if values["__batchIndex"] is None else values["__batchIndex"],
        values["__producerName"] or "",
    )


def row_of_message(message: Any) -> Row:
    """By what the SDK's message says."""
    placed = message.message_id()
    return (
        placed.serialize(),
        None if message.has_null_value() else message.data(),
        None if message.record_key() is None else bytes(message.record_key()),
        message.topic_name(),
        message.publish_timestamp(),
        message.event_timestamp(),
        tuple(sorted(message.properties().items())),
        message.ordering_key(),
        max(placed.partition(), 0),
        message.offset,
        placed.batch_index(),
        message.producer_name(),
    )


def difference(found: Counter[Row], wanted: Counter[Row]) -> str:
    """'' for none; else some of what is missing and some that was not expected."""
    missing, more = wanted - found, found - wanted
    return (
        f"{sum(missing.values())} missing: {_some(missing)}; {sum(more.values())} too many: {_some(more)}"
        if (missing or more)
        else ""
    )


def _some(rows: Counter[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (str(row[3]), str(row[9])))[:3]


def entry_keys(folder: Path) -> pulsar.CryptoKeyReader:
    """The pair with which the official clients' entries are encrypted; `private.pem` is the private one."""
    private = private_key()
    public = serialization.load_pem_private_key(private, None).public_key()
    (folder / "private.pem").write_bytes(private)
    (folder / "public.pem").write_bytes(
        public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return pulsar.CryptoKeyReader(str(folder / "public.pem"), str(folder / "private.pem"))


@dataclass(frozen=True)
class Stage:
    """The cluster of all histories, and the key of what is encrypted in them."""

    client: pulsar.Client
    """With transactions."""
    admin: AdminClient
    service_url: str
    bootstrap: str
    keys: pulsar.CryptoKeyReader
    foreign: ForeignProducer

    def history(self, topic: str, seed: int) -> History:
        return History(self, topic, random.Random(seed), KINDS[seed % 3], seed % 5 if seed % 3 else 0)


class History:
    """Things that happen to one topic and its subscription `s`, at random."""

    def __init__(
        self, stage: Stage, topic: str, chance: random.Random, kind: pulsar.ConsumerType, partitions: int
    ) -> None:
        """`partitions`: 0 for a topic that is not partitioned."""
        self.stage = stage
        self.topic = topic
        self.kind = kind
        self.chance = chance
        self.partitions = partitions
        self.number = 0
        self.open: list[Any] = []
        self.acknowledged: set[bytes] = set()
        """The ids that were acknowledged, unless in a transaction that is open or was aborted."""
        self.passed: dict[str, int] = {}
        """By partition's topic name: the offset up to which everything was acknowledged cumulatively, also messages
        that an open transaction held."""
        self.by_index = chance.random() < 0.5
        self.voids = False
        self.delays = True
        if partitions:
            stage.admin.create_partitioned_topic(topic, partitions, entries_per_ledger=10)
        else:
            stage.admin.create_topic(topic, entries_per_ledger=10)
        self.kafka_topic = f"public.default.{topic}"
        if not partitions and chance.random() < 0.3:
            self.begin_with_void_records()
        self.plain = stage.client.create_producer(topic)
        self.batching = stage.client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1)
        self.consumer().close()

    def play(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
        self.stop_sending()

    def step(self, *, seeks: bool = True) -> str:
        """One step, whose name it returns."""
        steps: list[Callable[[], None]] = [
            self.send, self.send_batches, self.send_batches, self.acknowledge, self.acknowledge, self.acknowledge,
            self.in_transaction, self.seek if seeks else self.send,
            self.send_entries, self.send_entries, self.send_foreign,
            self.send_encrypted, self.send_void,
        ]  # fmt: skip
        chosen = self.chance.choice(steps)
        chosen()
        return chosen.__name__

    def stop_sending(self) -> None:
        self.plain.close()
        self.batching.close()

    def end(self) -> None:
        """Ends what is open, and deletes the topic."""
        for txn in self.open:
            txn.abort()
        self.stage.admin.delete_topic(self.topic, force=True)

    def message(self) -> dict[str, Any]:
        self.number += 1
        chance = self.chance
        return {
            "content": None if chance.random() < 0.05 else f"m{self.number}".encode(),
            "partition_key": chance.choice([None, f"k{self.number % 7}"]),
            "ordering_key": f"o{self.number % 3}" if chance.random() < 0.1 else None,
            "event_timestamp": chance.choice([None, 1_700_000_000_000 + self.number]),
            "properties": chance.choice(_PROPERTIES),
            "deliver_after": _HOUR if self.delays and chance.random() < 0.05 else None,
        }

    def send(self) -> None:
        for _ in range(self.chance.randrange(1, 20)):
            self.plain.send_async(callback=None, **self.message())
        self.plain.flush()

    def send_batches(self, producer: Any = None) -> None:
        producer = producer or self.batching
        for _ in range(self.chance.randrange(1, 4)):
            for _ in range(self.chance.randrange(1, 40)):
                producer.send_async(callback=None, **self.message())
            producer.flush()

    def send_encrypted(self) -> None:
        producer = self.stage.client.create_producer(
            self.topic, encryption_key="k", crypto_key_reader=self.stage.keys, batching_max_publish_delay_ms=1,
            batching_enabled=self.chance.random() < 0.5,
        )  # fmt: skip
        self.send_batches(producer)
        producer.close()

    def some_partition(self) -> int:
        return self.chance.randrange(max(1, self.partitions))

    def expect_all_kinds(self) -> None:
        """As a gateway announces the entries of its clients."""
        topic, deadline = self.stage.admin.node.topics.open(TopicName.parse(self.topic), Deadline.after(60)), 60
        self.stage.admin.node.producers.more_than_plain(topic, Deadline.after(deadline), chunks=True, raw=True)
        self.stage.admin.node.producers.marked(topic, Deadline.after(deadline))

    def send_entries(self) -> None:
        """As the official clients write them through a gateway; of chunks, sometimes not all."""
        self.expect_all_kinds()
        partition = self.some_partition()
        for _ in range(self.chance.randrange(1, 4)):
            records = self.records(self.chance.choice(_ENTRIES))
            if len(records) > 1 and self.chance.random() < 0.2:
                del records[self.chance.randrange(len(records))]
            write(self.stage.bootstrap, self.kafka_topic, records, partition)

    def records(self, case: Case, txn: TxnId | None = None) -> list[Any]:
        return records_of(case, txn, now_ms=int(time.time() * 1000))

    def send_foreign(self) -> None:
        self.expect_all_kinds()
        records = some_absurd_records(self.chance, self.chance.randrange(1, 12))
        self.stage.foreign.send(self.kafka_topic, records, self.some_partition())

    def begin_with_void_records(self) -> None:
        """Some record of a producer that an exclusive one has fenced."""
        client, url = self.stage.client, self.stage.service_url
        first = client.create_producer(self.topic)
        first.send(b"before")
        first.close()
        exclusive = client.create_producer(self.topic, access_mode=pulsar.ProducerAccessMode.Exclusive)
        exclusive.send(b"first of its epoch")
        a_paused_producer_writes(url, self.topic, b"void", epoch=0)
        exclusive.send(b"after")
        exclusive.close()
        self.voids = True

    def send_void(self) -> None:
        if self.voids:
            a_paused_producer_writes(self.stage.service_url, self.topic, b"void", epoch=0)

    def consumer(self) -> pulsar.Consumer:
        return self.stage.client.subscribe(
            self.topic, "s", consumer_type=self.kind, initial_position=pulsar.InitialPosition.Earliest,
            crypto_key_reader=self.stage.keys, batch_index_ack_enabled=self.by_index,
        )  # fmt: skip

    def acknowledge(self) -> None:
        """Some of what comes, in a transaction or without one, one by one or all up to one."""
        consumer = self.consumer()
        txn = self.stage.client.new_transaction(OPEN_MS) if self.chance.random() < 0.3 else None
        in_txn: dict[str, Any] = {} if txn is None else {"txn": txn}
        got = self.received(consumer)
        upto: dict[str, int] = {}
        some = got[: self.chance.randrange(len(got) + 1)]
        if some and self.kind is pulsar.ConsumerType.Exclusive and self.chance.random() < 0.3:
            consumer.acknowledge_cumulative(some[-1], **in_txn)
            some = [message for message in some if message.topic_name() == some[-1].topic_name()]
            upto[some[-1].topic_name()] = some[-1].offset
        else:
            some = [message for message in some if self.chance.random() < 0.6]
            for message in some:
                consumer.acknowledge(message, **in_txn)
        if txn is None or self.decide(txn):
            self.acknowledged.update(message.message_id().serialize() for message in some)
            self.passed.update((name, max(offset, self.passed.get(name, -1))) for name, offset in upto.items())
        consumer.flush()
        consumer.close()

    def received(self, consumer: pulsar.Consumer) -> list[pulsar.Message]:
        found: list[pulsar.Message] = []
        try:
            for _ in range(self.chance.randrange(1, 150)):
                found.append(consumer.receive(_SILENCE_MS if found else 5 * _SILENCE_MS))
        except pulsar.Timeout:
            pass
        return found

    def in_transaction(self) -> None:
        txn = self.stage.client.new_transaction(OPEN_MS)
        for _ in range(self.chance.randrange(1, 8)):
            placed = self.plain.send(txn=txn, **self.message())
            if self.chance.random() < 0.2:
                self.expect_all_kinds()
                records = self.records(self.chance.choice(_IN_TRANSACTION), TxnId(*txn.txn_id))
                write(self.stage.bootstrap, self.kafka_topic, records, max(0, placed.partition()))
        self.decide(txn)

    def decide(self, txn: Any) -> bool:
        """Whether it is committed."""
        outcome = self.chance.random()
        if outcome < 0.5:
            txn.commit()
        elif outcome < 0.85 or self.open:
            txn.abort()
        else:
            self.open.append(txn)
        return outcome < 0.5

    def left(self, count: int) -> list[pulsar.Message]:
        """The messages that the subscription's next consumer receives; so many are expected."""
        consumer = self.consumer()
        found = receive_all(consumer, count)
        consumer.close()
        return found

    def seek(self) -> None:
        if self.chance.random() < 0.3:
            consumer = self.consumer()
            got = self.received(consumer)
            if got:
                consumer.seek(self.chance.choice(got).message_id())
            consumer.close()


def play(stage: Stage, threads: ThreadPoolExecutor, topics: Mapping[int, str], steps: int) -> list[History]:
    """Histories by seed, side by side: most of that is waiting."""

    def one(seed: int) -> History:
        try:
            history = stage.history(topics[seed], seed)
            history.play(steps)
        except (pulsar.PulsarException, KafkaException) as failure:
            raise AssertionError(f"history {seed}: {failure!r}") from failure
        return history

    return list(threads.map(one, topics))


def by_topic(rows: Iterable[Row]) -> dict[str, Counter[Row]]:
    """Rows by the topic's name, without tenant, namespace and partition."""
    found: dict[str, Counter[Row]] = {}
    for row in rows:
        name = str(row[3]).rpartition("/")[2].partition("-partition-")[0]
        found.setdefault(name, Counter())[row] += 1
    return found


def options_of(stage: Stage, histories: Sequence[History]) -> dict[str, str]:
    return {
        "service.url": stage.service_url,
        "topics": ",".join(history.topic for history in histories),
        "subscription": "s",
        "columns": "all",
        "schema": "bytes",
        "cryptoPrivateKeyPath": stage.keys._private_key_path,
    }


def rows_of_source(options: Mapping[str, str]) -> list[Row]:
    """The rows of all tasks: what Spark's executors do, without Spark."""
    return rows_of_plans(batch_plans(source_options(options), columns_now(options)))


def rows_of_plans(plans: Iterable[Any]) -> list[Row]:
    """The rows of tasks, whose plans were pickled on their way."""
    plans = pickle.loads(pickle.dumps(list(plans)))  # noqa: S301
    with _READING:
        return [row_of(values) for plan in plans for batch in record_batches(plan) for values in batch.to_pylist()]
