"""Packed headers hold what most records have - a producer, and perhaps a schema version or a transaction - as one
`bytes` in place of a list of tuples. They live in memory only: nothing of this is ever stored or sent.

A consumer has thousands of records at hand, and Python's garbage collector walks through each list and tuple while they
live. One object less for it to see is worth more than the microsecond of asking for the headers again, which are seldom
asked for. Bytes are none of its concern.
"""

from __future__ import annotations

from typing import Final

from pulsar_on_kafka.mapping.records.record_headers import PRODUCER, SCHEMA_VERSION, TXN

ALONE: Final = b"\x00"
"""A producer and nothing else: this and the header's value are the packed headers. Likewise with what `and_version` and
`and_transaction` give."""

_VERSION: Final = b"\x01"
_TRANSACTION: Final = b"\x02"
_VERSION_END: Final = 1 + 8


def and_version(schema_version: bytes) -> bytes:
    """Before a producer's header of a record with this schema version, of 8 bytes."""
    return _VERSION + schema_version


def and_transaction(txn: bytes) -> bytes:
    """Before a producer's header of a record in this transaction; its header's value has no NUL in it."""
    return _TRANSACTION + txn + b"\x00"


def unpack(headers: bytes) -> list[tuple[str, bytes | None]]:
    """Give the headers as they were."""
    kind = headers[:1]
    if kind == ALONE:
        return [(PRODUCER, headers[1:])]
    if kind == _VERSION:
        return [(PRODUCER, headers[_VERSION_END:]), (SCHEMA_VERSION, headers[1:_VERSION_END])]
    txn, _, producer = headers[1:].partition(b"\x00")
    return [(PRODUCER, producer), (TXN, txn)]
