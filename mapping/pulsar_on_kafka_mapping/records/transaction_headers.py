"""A header names the transaction of a record, and markers end a transaction in a data partition.

marker = key __pulsar.marker, value null, headers __pulsar.txn <most>:<least> and __pulsar.marker txn_commit or
txn_abort

The headers identify a marker; the key is for readers without headers. (Former versions wrote markers without a key,
into topics that are never read without headers.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.message_record import Headers, MessageMetadata, encode_headers
from pulsar_on_kafka_mapping.records.record_headers import MARKER, TXN, MarkerType

MARKER_KEY: Final = MARKER.encode()
"""A record with this key and no value is taken for a marker by readers without headers, where there are markers."""

_ENDS: Final = {
    MarkerType.TXN_COMMIT.value.encode("ascii"): MarkerType.TXN_COMMIT,
    MarkerType.TXN_ABORT.value.encode("ascii"): MarkerType.TXN_ABORT,
}


class InTransaction(NamedTuple):
    """The transaction of a record. `ended` is None for a message; for a marker it is the outcome of the transaction."""

    txn: TxnId
    ended: MarkerType | None


def marker_headers(txn: TxnId, *, committed: bool) -> Headers:
    """Headers of the record that ends a transaction in a partition; its key is `MARKER_KEY`, its value null.

    Raises:
        MappingError: the id is invalid.
    """
    marker = MarkerType.TXN_COMMIT if committed else MarkerType.TXN_ABORT
    return encode_headers(MessageMetadata(txn=txn, marker=marker))


def in_transaction(headers: Sequence[tuple[str, bytes | None]] | None) -> InTransaction | None:
    """The transaction in a record's headers; None without one.

    Of several headers of one name the last counts. Other markers belong to no transaction.

    Raises:
        CorruptRecord: the id cannot be read, or the marker of a transaction has none.
    """
    txn: bytes | None = None
    marker: bytes | None = None
    found = False
    for name, value in headers or ():
        if name == TXN:
            txn, found = value, True
        elif name == MARKER:
            marker = value
    ended = None if marker is None else _ENDS.get(marker)
    if not found:
        if ended is not None:
            raise CorruptRecord(f"marker {ended.value} has no header {TXN}, expected the transaction that it ends")
        return None
    if marker is not None and ended is None:
        return None
    if txn is None:
        raise CorruptRecord(f"header {TXN} is null, expected a value")
    try:
        return InTransaction(TxnId.from_bytes(txn), ended)
    except MappingError as error:
        raise CorruptRecord(f"header {TXN} is {txn[:100]!r}: {error}") from error
