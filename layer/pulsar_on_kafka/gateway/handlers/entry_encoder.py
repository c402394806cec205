"""Encodes records as entries of Pulsar's protocol. `MessageFrames` encodes common ones by hand."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

from pulsar_on_kafka.broker.subscriptions.records.batches import payload_form
from pulsar_on_kafka.broker.subscriptions.records.chunks import WholeMessage
from pulsar_on_kafka.broker.subscriptions.records.decryption import is_encrypted
from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.batch_entry import decode_batch
from pulsar_on_kafka_mapping.records.message_record import BatchInfo
from pulsar_on_kafka_mapping.records.record_headers import PayloadFormat
from pulsar_on_kafka_mapping.wire.batch_payloads import pulsar_batch
from pulsar_on_kafka_mapping.wire.entries import MAX_MESSAGE_ENTRY_BYTES, WireEntry, write_entry
from pulsar_on_kafka_mapping.wire.message_metadata import PulsarMetadata, encode_metadata
from pulsar_on_kafka_mapping.wire.single_messages import MAX_IN_BATCH
from pulsar_on_kafka_mapping.wire.stored_entries import EntryRecord, metadata_of

MAX_CONVERTED_BYTES: Final = 16 * 1024 * 1024
"""Bytes of converted batches in one gateway."""

_Place = tuple[str, int, int]
"""A partition's full name, which life of its topic, and the offset."""


class NotForPulsarsClients(MappingError):
    """A valid record that only the SDK's consumers can read."""


OutgoingEntry = tuple[int, bytes, int]
"""The offset, the entry, and the size of its batch; 0 of any other."""


class OutgoingEntries:
    """The entries of a gateway's consumers. Thread-safe.

    A batch of the SDK is converted to a Pulsar batch once, for all subscriptions, consumers and redeliveries while the
    cache has it. Memory: `MAX_CONVERTED_BYTES` of converted entries; the least recently used ones leave first.
    """

    def __init__(self, max_bytes: int = MAX_CONVERTED_BYTES) -> None:
        self._most_bytes = max_bytes
        self._known: OrderedDict[_Place, tuple[int, bytes]] = OrderedDict()
        """With the record's time, which tells apart records at the same place."""
        self._bytes = 0
        self._lock = threading.Lock()
        self.converted = 0
        """The number of conversions."""

    def of(self, record: Any, offset: int, topic_name: str, incarnation: int) -> Iterator[OutgoingEntry]:
        """The entry of a record in this life of a topic's partition; of a message in chunks, that of each chunk.

        Raises:
            CorruptRecord: it cannot be read.
            NotForPulsarsClients: a batch of the SDK is encrypted, or the entry is larger than a frame.
        """
        if type(record) is WholeMessage:
            for chunk in record.chunks():
                yield chunk.offset(), _entry(chunk, chunk.value()), 0
            return
        form = _form(record)
        if form is None or form.format_version == PayloadFormat.PULSAR_MESSAGE:
            yield offset, _entry(record, record.value()), 0
        elif form.format_version == PayloadFormat.PULSAR_BATCH:
            yield offset, _entry(record, record.value()), form.messages
        else:
            place = topic_name, incarnation, offset
            yield offset, self._converted(record, form.messages, place), form.messages

    def _converted(self, record: Any, size: int, place: _Place) -> bytes:
        """The lock is held during the conversion: several members' threads may need the batch at the same time."""
        written_ms = record.timestamp()[1]
        with self._lock:
            known = self._known.get(place)
            if known is not None and known[0] == written_ms:
                self._known.move_to_end(place)
                return known[1]
            made = _entry(record, _in_pulsars_form(record, size))
            self.converted += 1
            if len(made) <= self._most_bytes:
                self._keep(place, written_ms, made)
            return made

    def _keep(self, place: _Place, written_ms: int, made: bytes) -> None:
        known = self._known.pop(place, None)
        self._bytes += len(made) - (0 if known is None else len(known[1]))
        self._known[place] = written_ms, made
        while self._bytes > self._most_bytes:
            self._bytes -= len(self._known.popitem(last=False)[1][1])


def decoded_entry(record: Any) -> tuple[PulsarMetadata, bytes]:
    """The metadata and the payload of a record, as in Pulsar's protocol. Raises as `OutgoingEntries.of`."""
    form = _form(record)
    if form is None or form.format_version in (PayloadFormat.PULSAR_MESSAGE, PayloadFormat.PULSAR_BATCH):
        return _metadata(record, record.value()), record.value() or b""
    payload = _in_pulsars_form(record, form.messages)
    return _metadata(record, payload), payload


def _form(record: Any) -> BatchInfo | None:
    form = payload_form(record)
    if form is not None and form.messages > MAX_IN_BATCH:
        raise CorruptRecord(f"a batch entry has {form.messages} messages, expected up to {MAX_IN_BATCH}")
    return form


def _in_pulsars_form(record: Any, size: int) -> bytes:
    if is_encrypted(record):
        raise NotForPulsarsClients("a batch of the SDK is encrypted, which Pulsar's clients cannot decode")
    columns = decode_batch(record.value() or b"", size)
    return pulsar_batch(columns.message(index) for index in range(size))


def _entry(record: Any, value: bytes | None) -> bytes:
    """Its metadata, with this payload."""
    encoded = encode_metadata(_metadata(record, value))
    size = len(encoded) + len(value or b"")
    if size > MAX_MESSAGE_ENTRY_BYTES:
        raise NotForPulsarsClients(f"it has {size} bytes, of which a frame takes {MAX_MESSAGE_ENTRY_BYTES}")
    return write_entry(WireEntry(encoded, value or b""))


def _metadata(record: Any, value: bytes | None) -> PulsarMetadata:
    headers = headers_of(record) or []
    metadata = metadata_of(EntryRecord(record.key(), value, headers, record.timestamp()[1]))
    if metadata.txn_most is not None and metadata.txn_least is not None:
        metadata.txn_most = TxnId(metadata.txn_most, metadata.txn_least).coordinator  # as in commands
    return metadata
