"""Producers without a broker: librdkafka is a list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from types import SimpleNamespace
from typing import Any, NamedTuple

from confluent_kafka import KafkaError

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import AppendOutcomeUnknown
from pulsar_on_kafka.base.reentry import Callbacks
from pulsar_on_kafka.broker.metadata.rates.publish_rates import PublishRates
from pulsar_on_kafka.broker.metadata.record_limits import RecordLimits
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.publishing.batching import Batching, BatchingOptions
from pulsar_on_kafka.broker.publishing.deduplication import Deduplication
from pulsar_on_kafka.broker.publishing.outgoing_schema import OutgoingSchema
from pulsar_on_kafka.broker.publishing.outlet import Admitted, Limits
from pulsar_on_kafka.broker.publishing.routing import MessageRouter
from pulsar_on_kafka.broker.publishing.sender import Sender, SenderOptions
from pulsar_on_kafka.client.producer.producer import Producer
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.records.record_headers import SCHEMA_VERSION
from tests.registries import TOPIC

OPENED = Topic(TOPIC, "t", "id", 1, False, LedgerLayout(1), partition_names=(str(TOPIC),))


class Produced(NamedTuple):
    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, Any]]

    @property
    def versions(self) -> list[bytes]:
        return [value for name, value in self.headers if name == SCHEMA_VERSION]


class Kafka:
    """Takes every record and reports it stored at the next poll."""

    asleep = False

    def __init__(self) -> None:
        self.records: list[Produced] = []
        self.callbacks = Callbacks()
        self.fatal: Exception | None = None
        self.refusal: Exception | None = None
        """What it refuses records with."""
        self.error: KafkaError | None = None
        """What it reports of records."""
        self._reports: list[Any] = []

    def produce(
        self, topic: str, value: Any, key: Any, partition: int, callback: Any, alias: Any, timestamp: int,
        headers: list[tuple[str, Any]],
    ) -> None:  # fmt: skip
        if self.fatal is not None:
            raise self.fatal
        if self.refusal is not None:
            raise self.refusal
        self.records.append(Produced(value, key, list(headers)))
        self._reports.append(callback)

    def poll_inline(self, timeout_s: float = 0.0, *, calls: bool = True) -> None:
        reports, self._reports = self._reports, []
        for report in reports:
            report(self.error, SimpleNamespace(offset=lambda: 0))

    def why_refused(self, error: KafkaError, topic: str, what: str) -> Exception:
        return AppendOutcomeUnknown(f"{what}: {error}")

    def wake(self) -> None: ...

    def call_later(self, call: Callable[[], object]) -> None:
        call()

    def make_calls(self) -> None: ...

    def check_may_wait(self) -> None: ...

    def report(self, report: Callable[[], object]) -> None:
        report()


class Kind(Enum):
    """What a producer makes records of."""

    SINGLE = "single messages"
    BATCHES = "batches"
    CHUNKS = "single messages, large ones in chunks"


class Stage:
    def __init__(self) -> None:
        self.kafka = Kafka()
        self.next = Kafka()
        """What comes after the first was given up."""
        self.fenced: list[tuple[int, int] | None] = []
        """Where exclusive producers said that their records begin; None: that no more come."""
        self.unsettled: list[int] = []
        """How many records of each closed producer may still be stored."""
        self.timer: Any = SimpleNamespace(call_at=lambda due_s, action: None)

    def confirm(self, deadline: Deadline) -> None:
        """The claim of an exclusive producer stands."""

    def producer(
        self, schema: OutgoingSchema, kind: Kind = Kind.SINGLE, *, exclusive: bool = False, max_pending: int = 1000,
        block_if_full: bool = True, send_timeout_ms: int = 0, router: MessageRouter | None = None,
        deduplicated: bool = False,
    ) -> Producer:  # fmt: skip
        membership: Any = SimpleNamespace(
            epoch=0,
            claim=SimpleNamespace(exclusive=exclusive),
            when_thrown_out=lambda tell: None,
            leave=lambda deadline, unsettled: self.unsettled.append(unsettled),
            make_sure=lambda timeout_s: None,
            make_sure_of_report=lambda: None,
            confirm=self.confirm,
            fence=lambda topic, partition, first, deadline: self.fenced.append((partition, first)),
            no_more_records=lambda topic, deadline: self.fenced.append(None),
        )
        journal: Any = SimpleNamespace(
            ends=lambda topic, partitions, deadline: dict.fromkeys(partitions, 0),
            firsts=lambda topic, partition, name, begin, deadline: (frozenset(), 0),
        )
        deduplication = Deduplication(OPENED, "p", membership, journal, lasting=False)
        if deduplicated:
            deduplication.open([0], Deadline.never())
            deduplication.active = True
        given: Iterator[Any] = iter([self.kafka, self.next])
        admitted = Admitted(
            topic=OPENED, fixed_partition=None, membership=membership, name="p", deduplication=deduplication,
            kafka=lambda: next(given), more_than_plain=lambda **_: None,
            routes_keys=lambda scheme: None, cluster_id="c", now_ms=SystemClock().now_ms,
            limits=RecordLimits(OPENED.kafka_topic), publish_rates=PublishRates(SystemClock()),
        )  # fmt: skip
        options = SenderOptions(
            limits=Limits(max_pending, 0, block_if_full, send_timeout_ms),
            to_one=True,
            router=router,
            batching=BatchingOptions(100, 100_000, 1000.0, by_key=False) if kind is Kind.BATCHES else None,
            record_bytes=100_000 if kind is Kind.CHUNKS else None,
        )
        return Producer(Sender(admitted, schema, options, self.timer), lambda producer: None)


def sender_of(producer: Producer) -> Sender:
    assert isinstance(producer.sender, Sender)
    return producer.sender


def hand_over_batches(producer: Producer) -> None:
    """Those that are not full are over, too."""
    way = sender_of(producer).way
    assert isinstance(way, Batching)
    with way._gate:
        way._seal_all()
    way._publish_ready()
