"""Entries that Pulsar's clients wrote, as the records that they become."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import Producer

from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.message_record import Headers
from pulsar_on_kafka_mapping.wire.entries import MAX_ENTRY_BYTES, read_entry
from pulsar_on_kafka_mapping.wire.message_metadata import decode_metadata
from pulsar_on_kafka_mapping.wire.native_messages import NativeMessage, taken_apart
from pulsar_on_kafka_mapping.wire.stored_entries import EntryRecord, record_of
from tests.pulsar_entries import Case, payload_text

EPOCH = 3


def records_of(
    case: Case, txn: TxnId | None = None, now_ms: int | None = None, *, native: bool = False
) -> list[EntryRecord]:
    """The records of a case, written at that time (None: when it was sent), in `txn` instead of its own transaction.
    `native`: with one of its own for each message, as far as that can be."""
    found = []
    for data in case.entries:
        entry = read_entry(data)
        try:
            metadata = decode_metadata(entry.metadata)
        except CorruptRecord as error:
            raise AssertionError(f"{case}: {error}") from error
        metadata.txn_most, metadata.txn_least = (None, None) if txn is None else txn
        written_ms = metadata.publish_time_ms or 0 if now_ms is None else now_ms
        apart = taken_apart(metadata, entry.payload, MAX_ENTRY_BYTES) if native else None
        for said, payload in apart or [NativeMessage(metadata, entry.payload)]:
            found.append(record_of(said, payload, epoch=EPOCH, now_ms=written_ms))
    return found


class PlacedRecord:
    """A record in the form in which a consumer has it."""

    def __init__(self, record: EntryRecord, offset: int) -> None:
        self._record, self._offset = record, offset

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._record.key

    def value(self) -> bytes | None:
        return self._record.value

    def headers(self) -> Headers:
        return self._record.headers

    def timestamp(self) -> tuple[int, int]:
        return 1, self._record.timestamp_ms

    def topic(self) -> str:
        return "public.default.t"

    def partition(self) -> int:
        return 0

    def __len__(self) -> int:
        return len(self._record.value or b"")


def write(bootstrap: str, kafka_topic: str, records: Iterable[EntryRecord], partition: int = 0) -> None:
    """Put them into a partition, in order, and wait until they are there."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    failures: list[Any] = []
    for key, value, headers, timestamp_ms in records:
        producer.produce(
            kafka_topic, value, key, partition, headers=[*headers], timestamp=timestamp_ms,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )  # fmt: skip
    assert producer.flush(60) == 0
    assert not failures, failures


def told(message: Any, like: dict[str, Any]) -> dict[str, Any]:
    """What our client says of a message, in the form of the file: `like` is what the official client said."""
    found: dict[str, Any] = {
        "data": payload_text(None if message.has_null_value() else message.data()),
        "properties": message.properties(),
        "event_timestamp": message.event_timestamp(),
        "publish_timestamp": message.publish_timestamp(),
        "producer_name": message.producer_name(),
        "batch_index": message.message_id().batch_index(),
    }
    if "key" in like:  # Java's
        key = message.record_key()
        found["key"] = None if key is None else base64.b64encode(key).decode()
        ordering_key = message.ordering_key()
        found["ordering_key"] = base64.b64encode(ordering_key.encode()).decode() if ordering_key else None
    else:
        found |= {"partition_key": message.partition_key(), "ordering_key": message.ordering_key()}
    if "value" in like:
        found["value"] = like["value"]
    return found


def differences(found: Sequence[Any], case: Case) -> list[str]:
    """Where what our client read is not what the official one read; [] for nowhere."""
    ours = [told(message, like) for message, like in zip(found, case.messages, strict=False)]
    said = [f"{case}: {len(found)} messages, expected {len(case.messages)}"] if len(found) != len(case.messages) else []
    for number, (one, like) in enumerate(zip(ours, case.messages, strict=False)):
        said += [f"{case}: {number}: {name} is {one[name]!r:.80}, expected {like[name]!r:.80}" for name in like
                 if one[name] != like[name]]  # fmt: skip
    return said
