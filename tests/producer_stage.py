"""Producers without a broker: librdkafka is a list."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

from pulsar_on_kafka.client.producer.batching_producer import BatchingOptions, BatchingProducer
from pulsar_on_kafka.client.producer.chunking import ChunkingProducer
from pulsar_on_kafka.client.producer.producer import Producer
from pulsar_on_kafka.client.values.enums import BatchingType, PartitionsRoutingMode
from pulsar_on_kafka.mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka.mapping.records.record_headers import SCHEMA_VERSION
from pulsar_on_kafka.metadata.topics import Topic
from pulsar_on_kafka.sending.outgoing_schema import OutgoingSchema
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
        self.fatal: Exception | None = None
        self._reports: list[Any] = []

    def produce(
        self, topic: str, value: Any, key: Any, partition: int, callback: Any, alias: Any, timestamp: int,
        headers: list[tuple[str, Any]],
    ) -> None:  # fmt: skip
        if self.fatal is not None:
            raise self.fatal
        self.records.append(Produced(value, key, list(headers)))
        self._reports.append(callback)

    def poll_inline(self, timeout_s: float = 0.0) -> None:
        reports, self._reports = self._reports, []
        for report in reports:
            report(None, SimpleNamespace(offset=lambda: 0))

    def wake(self) -> None: ...

    @contextmanager
    def reports_held(self) -> Iterator[None]:
        yield


class Stage:
    def __init__(self) -> None:
        self.kafka = Kafka()
        self.next = Kafka()
        """What comes after the first was given up."""
        self.timer: Any = SimpleNamespace(call_at=lambda due_s, action: None)

    def producer(
        self, schema: OutgoingSchema, kind: type[Producer] = Producer, *, exclusive: bool = False, **more: Any
    ) -> Any:
        if kind is BatchingProducer:
            more |= {"batching": BatchingOptions(100, 100_000, 1000.0, BatchingType.Default), "timer": self.timer}
        elif kind is ChunkingProducer:
            more |= {"record_bytes": 100_000}
        membership: Any = SimpleNamespace(
            epoch=0, claim=SimpleNamespace(exclusive=exclusive), when_thrown_out=lambda tell: None
        )
        room = {"max_pending": 1000, "block_if_full": True, **more}
        kafka: Any = self.kafka
        following: Any = self.next
        deduplication: Any = SimpleNamespace(active=False, highest=-1, refused=lambda *_: None)
        return kind(
            OPENED, kafka, name="p", schema=schema, initial_sequence_id=None,
            routing=PartitionsRoutingMode.UseSinglePartition, router=None, fixed_partition=None, encryptor=None,
            renew=lambda: following, membership=membership, cluster_id="c",
            deduplication=deduplication, on_close=lambda producer: None, **room,
        )  # fmt: skip
