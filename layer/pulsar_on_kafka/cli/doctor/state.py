"""The state topics, read through: formats of their records, those that cannot be read, and tombstones for these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

import orjson

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.cli.doctor.cluster import ANSWER_S, DoctorFinding, fail, ok, warn
from pulsar_on_kafka.cli.shared.output import one_line
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka.kafka.reading.fetcher import Fetcher
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka_mapping.errors import UnreadableKey
from pulsar_on_kafka_mapping.state import state_keys as keys
from pulsar_on_kafka_mapping.state.clusters.cluster_registry import decode_clusters
from pulsar_on_kafka_mapping.state.clusters.tenant_records import decode_import, decode_migration, decode_tenant
from pulsar_on_kafka_mapping.state.cursors.cursor_state import decode_checkpoint, decode_segment
from pulsar_on_kafka_mapping.state.metadata.ledger_records import decode_ledger_value
from pulsar_on_kafka_mapping.state.metadata.metadata_records import (
    decode_namespace,
    decode_registrations,
    decode_subscription,
    decode_topic,
)
from pulsar_on_kafka_mapping.state.metadata.producer_records import (
    decode_bounds,
    decode_claims,
    decode_fence,
    decode_producer_heartbeat,
    decode_snapshot,
    decode_take_over,
)
from pulsar_on_kafka_mapping.state.metadata.schema_records import decode_schema
from pulsar_on_kafka_mapping.state.state_topics import ALL, Cleanup, StateTopic
from pulsar_on_kafka_mapping.state.transactions.transaction_log import decode_log_value

_READ_S: Final = 300.0
_MAX_UNREADABLE: Final = 1000
"""The limit of unreadable records of one partition that are reported, and kept in memory, at a time."""
_SHOWN_BYTES: Final = 80

_DECODERS: Final[Mapping[type, Callable[[bytes], object]]] = {
    keys.TopicKey: decode_topic,
    keys.NamespaceKey: decode_namespace,
    keys.SubscriptionKey: decode_subscription,
    keys.RegistrationsKey: decode_registrations,
    keys.SchemaKey: decode_schema,
    keys.ClusterRegistryKey: decode_clusters,
    keys.TenantKey: decode_tenant,
    keys.MigrationKey: decode_migration,
    keys.ImportKey: decode_import,
    keys.CursorSegmentKey: decode_segment,
    keys.CursorCheckpointKey: decode_checkpoint,
    keys.LedgerKey: decode_ledger_value,
    keys.ProducerClaimsKey: decode_claims,
    keys.ProducerSessionKey: decode_producer_heartbeat,
    keys.ProducerSequenceKey: decode_snapshot,
    keys.ProducerKey: decode_fence,
    keys.ProducerBoundsKey: decode_bounds,
    keys.TakeOverKey: decode_take_over,
    keys.TransactionLogKey: decode_log_value,
}
"""Values under other keys are not looked at."""


Formats: TypeAlias = Counter[tuple[str, int]]
"""The number of records of each state topic in each format; in the logs, also those that compaction will delete."""


class Unreadable(NamedTuple):
    """A live record of a state topic whose key or value cannot be read."""

    topic: StateTopic
    kafka_name: str
    partition: int
    offset: int
    key: bytes
    reason: str
    is_key: bool


def check_state(settings: KafkaSettings, admin: KafkaAdmin, *, tombstone: bool) -> Iterator[DoctorFinding]:
    """One line for each unreadable record of the compacted state topics; with `tombstone` they are deleted. One more
    line reports the formats of all."""
    instance = settings.instance
    try:
        there = admin.list_topics(Deadline.after(ANSWER_S))
    except errors.LayerError as failure:
        yield warn("state records", one_line(failure), f"grant Describe on topics {instance.prefix}*")
        return
    fetcher = Fetcher(settings.of_state(settings.reader(fetch_queue_kbytes=4096)))
    found: list[Unreadable] = []
    formats: Formats = Counter()
    try:
        for topic in (each for each in ALL if each.cleanup is Cleanup.COMPACT):
            kafka_name = instance.state_topic(topic)
            try:
                for number in range(topic.partitions if kafka_name in there else 0):
                    found += _unreadable(fetcher, topic, kafka_name, number, formats)
            except errors.LayerError as failure:
                yield warn(f"state of {topic.name}", one_line(failure), f"grant Read on topic {kafka_name}")
    finally:
        fetcher.close()
    if tombstone and found:
        _tombstone(settings, found)
    for each in found:
        what = "key" if each.is_key else "value"
        place = f"{each.kafka_name}-{each.partition} offset {each.offset}"
        reported = f"the {what} at {place} cannot be read: {each.reason}"
        if tombstone:
            yield ok(f"state of {each.topic.name}", f"tombstone written: {reported}")
        elif each.is_key:
            yield warn(f"state of {each.topic.name}", reported, "it is not needed: pok doctor --state --tombstone")
        else:
            yield fail(
                f"state of {each.topic.name}",
                f"{reported}; it is under {each.key[:_SHOWN_BYTES]!r}",
                "its entity cannot be used; a newer version may have written it, else its content is lost: "
                "pok doctor --state --tombstone makes it as if it had never been there",
            )
    if not found:
        yield ok("state records", "all can be read")
    report = (
        f"{name} {number if number >= 0 else 'none'} ({count:,})" for (name, number), count in sorted(formats.items())
    )
    yield ok("state formats", ", ".join(report) or "no records")


def _unreadable(
    fetcher: Fetcher, topic: StateTopic, kafka_name: str, partition: int, formats: Formats
) -> list[Unreadable]:
    deadline = Deadline.after(_READ_S)
    start, end = fetcher.watermarks(kafka_name, partition, deadline)
    found: dict[bytes, Unreadable] = {}
    for batch in fetcher.read(kafka_name, partition, start, end, deadline):
        for record in batch:
            key, value = record.key() or b"", record.value()
            found.pop(key, None)
            if value is None or len(found) >= _MAX_UNREADABLE:
                continue
            try:
                decode = _DECODERS.get(type(keys.decode_key(key)))
                if decode is not None:
                    decode(value)
                formats[topic.name, format_of(value)] += 1
            except ValueError as reason:
                is_key = isinstance(reason, UnreadableKey)
                found[key] = Unreadable(topic, kafka_name, partition, record.offset(), key, str(reason), is_key)
    return list(found.values())


def format_of(value: bytes) -> int:
    """The number that a state record's value begins with, or has as `v` where it is JSON; -1 for one without."""
    if not value.startswith(b"{"):
        return value[0] if value else -1
    try:
        number = orjson.loads(value).get("v")
    except orjson.JSONDecodeError:
        return -1
    return number if type(number) is int else -1


def _tombstone(settings: KafkaSettings, found: list[Unreadable]) -> None:
    config = settings.producer(compression="none", message_timeout_ms=int(ANSWER_S * 1000), linger_ms=0)
    producer = KafkaProducer(config)
    try:
        for each in found:
            producer.append(each.kafka_name, each.partition, each.key, None, Deadline.after(ANSWER_S))
    finally:
        producer.close(Deadline.after(1.0))
