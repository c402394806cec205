"""Records become entries of Pulsar's protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka.mapping.errors import CorruptRecord
from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.mapping.records.batch_entry import FORMAT_VERSION, decode_batch
from pulsar_on_kafka.mapping.records.message_record import batch_info
from pulsar_on_kafka.mapping.wire.batch_payloads import pulsar_batch
from pulsar_on_kafka.mapping.wire.entries import WireEntry, write_entry
from pulsar_on_kafka.mapping.wire.message_metadata import encode_metadata
from pulsar_on_kafka.mapping.wire.single_messages import MOST_IN_BATCH
from pulsar_on_kafka.mapping.wire.stored_entries import EntryRecord, metadata_of
from pulsar_on_kafka.subscriptions.records.batches import batch_size
from pulsar_on_kafka.subscriptions.records.chunks import WholeMessage


class OutgoingEntry(NamedTuple):
    offset: int
    entry: bytes
    size: int
    """Messages of a batch; 0 of any other."""


def entries_of(record: Any, offset: int) -> Iterator[OutgoingEntry]:
    """The entry of a record; of a message in chunks, that of each chunk.

    Raises:
        MappingError: it cannot be read, or no client could read it.
    """
    if type(record) is WholeMessage:
        for chunk in record.chunks():
            yield OutgoingEntry(chunk.offset(), _entry(chunk, 0), 0)
        return
    size = batch_size(record)
    if size > MOST_IN_BATCH:
        raise CorruptRecord(f"a batch entry has {size} messages, expected up to {MOST_IN_BATCH}")
    yield OutgoingEntry(offset, _entry(record, size), size)


def _entry(record: Any, size: int) -> bytes:
    headers = headers_of(record) or []
    value = record.value()
    metadata = metadata_of(EntryRecord(record.key(), value, headers, record.timestamp()[1]))
    if metadata.txn_most is not None and metadata.txn_least is not None:
        metadata.txn_most = TxnId(metadata.txn_most, metadata.txn_least).coordinator  # as on the wire (`txn_fields`)
    if size and (info := batch_info(headers)) is not None and info.format_version == FORMAT_VERSION:
        if metadata.encryption:
            raise CorruptRecord("a batch entry of format 1 is encrypted: no client of Pulsar's can take it apart")
        columns = decode_batch(value or b"", size)
        value = pulsar_batch(columns.message(index) for index in range(size))
    return write_entry(WireEntry(encode_metadata(metadata), value or b""))
