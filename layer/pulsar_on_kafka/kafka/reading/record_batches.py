"""Decodes Kafka's record batches, as a Fetch returns them, into records with the methods of confluent-kafka's.

A batch is decoded when the caller reaches it. Its records keep none of the fetched bytes alive. The reader in C of
aiokafka decodes a batch of several records. A decoder in Python decodes smaller batches, and each batch that this
reader refuses. Source: Kafka's `DefaultRecordBatch` and `DefaultRecord` (message format 2).
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import islice
from operator import attrgetter, lt
from struct import Struct as ByteLayout
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

from pulsar_on_kafka.base.errors import Corrupt, NotSupportedYet
from pulsar_on_kafka.kafka.reading.batch_compression import decompressed
from pulsar_on_kafka.kafka.reading.events import KafkaPartition
from pulsar_on_kafka.kafka.records import log_left_out
from pulsar_on_kafka.kafka.wire.fetch_messages import AbortedRange
from pulsar_on_kafka_mapping.errors import CorruptRecord

if TYPE_CHECKING:
    from pulsar_on_kafka_mapping.records.message_record import Headers

_HEADER: Final = ByteLayout(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, format, CRC, attributes, last offset delta, first and largest timestamp, producer
id and epoch, base sequence, count."""
_LENGTH_BYTES: Final = 12
"""The bytes of offset and length, which the length does not count."""
_FORMAT_AT: Final = 16
_LAST_DELTA_AT: Final = 23
_CHECKED_FROM: Final = 21
"""The first byte that the CRC covers: the attributes."""
_FORMAT: Final = 2
_MIN_RECORD_BYTES: Final = 7
_MAX_NUMBER_BYTES: Final = 10
_NUMBER_BITS: Final = 2**64 - 1
"""Kafka drops the bits of a number beyond these."""

_CODEC: Final = 0x07
_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_TIMESTAMP_CREATE, _TIMESTAMP_APPEND = 1, 2
"""confluent-kafka's numbers."""
_ABORT: Final = b"\0\0"
"""The type of the marker of an aborted transaction, behind two bytes of a version in the marker's key."""

_MIN_RECORDS_IN_C: Final = 5
"""A smaller batch takes less time in Python: each call of the reader in C has a fixed cost."""
_END_VALUE: Final = b"behind the last record"
_END_BODY: Final = bytes((0, 0, 0, 1, 2 * len(_END_VALUE))) + _END_VALUE + b"\0"
_END: Final = bytes((2 * len(_END_BODY),)) + _END_BODY
"""A record behind those of the batch. aiokafka compares only the first byte of a number with the end of its input. Each
number that begins in this record ends with its first byte."""

_CACHED_NAMES: Final = 1024
_CACHED_NAME_BYTES: Final = 64
_names: Final[dict[bytes, str]] = {}
"""Header names by their bytes; bounded by the two numbers above."""


class Decoded(NamedTuple):
    """The records of one batch in offset order, possibly none, and the position behind the batch."""

    records: list[FetchedRecord]
    position: int
    leader_epoch: int
    """The epoch of the leader that appended the batch; -1 where it is unknown."""


class _Source(NamedTuple):
    where: KafkaPartition
    timestamp_type: int


class FetchedRecord(Struct, gc=False, eq=False):
    """One record of a partition, with the methods of confluent-kafka's `Message` that this project calls."""

    _source: _Source
    _offset: int
    _timestamp_ms: int
    _key: bytes | None
    _value: bytes | None
    _headers: Headers | bytes | None

    def topic(self) -> str:
        return self._source.where.topic

    def partition(self) -> int:
        return self._source.where.partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> Headers | bytes | None:
        return self._headers

    def set_headers(self, headers: Headers | bytes | None) -> None:
        self._headers = headers

    def timestamp(self) -> tuple[int, int]:
        """confluent-kafka's number of the timestamp's type, and the timestamp in ms."""
        return self._source.timestamp_type, self._timestamp_ms

    def error(self) -> None:
        return None

    def __len__(self) -> int:
        """The size of the value in bytes, as confluent-kafka's."""
        return 0 if self._value is None else len(self._value)


class _Malformed(Exception):
    pass


def decode(
    where: KafkaPartition,
    data: bytes,
    position: int,
    aborted: Sequence[AbortedRange] = (),
    checksum: Callable[[bytes], int] | None = None,
) -> Iterator[Decoded]:
    """Decodes one batch after the other, and leaves out records before `position`, markers, and the records of
    `aborted` transactions, which a Fetch with read_committed returns. A truncated batch at the end is left out.

    `checksum` (CRC-32C) verifies each batch; None skips this, as librdkafka does by default. Memory: the records of
    one batch; a compressed one may have `MAX_UNCOMPRESSED_BYTES`.

    Raises:
        Corrupt: bytes that are no batch, a batch that fails its checksum, or nothing but a truncated batch.
        NotSupportedYet: message format 0 or 1, of Kafka before 0.11.
    """
    transactions = _Transactions(aborted) if aborted else None
    for at, end in _frames(where, data, position):
        if checksum is not None:
            _verify(where, data, at, end, checksum)
        try:
            found = _batch(where, data, at, end, position, transactions)
        except (_Malformed, CorruptRecord) as reason:
            raise _corrupt(where, data, at, str(reason)) from reason
        position = max(position, found.position)
        yield found._replace(position=position)


class FetchedEnd(NamedTuple):
    """The position behind the last whole batch, and the epoch of the leader that appended the batch."""

    position: int
    leader_epoch: int


def end_of(where: KafkaPartition, data: bytes, position: int) -> FetchedEnd:
    """The end of what `decode` will return, from the batches' headers only.

    Raises:
        Corrupt: as `decode`, or no batch reaches beyond `position`.
        NotSupportedYet: as `decode`.
    """
    last, epoch = -1, -1
    for at, _ in _frames(where, data, position):
        delta = int.from_bytes(data[at + _LAST_DELTA_AT : at + _LAST_DELTA_AT + 4], "big", signed=True)
        last = _base_offset(data, at) + delta
        epoch = int.from_bytes(data[at + _LENGTH_BYTES : at + _FORMAT_AT], "big", signed=True)
    if last < position:
        raise Corrupt(f"{where} offset {position}: the fetched batches end at offset {last}, before the requested one")
    return FetchedEnd(last + 1, epoch)


def _frames(where: KafkaPartition, data: bytes, position: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each whole batch; at least one, unless there are no bytes."""
    at, size = 0, len(data)
    while size - at > _FORMAT_AT:
        length = int.from_bytes(data[at + 8 : at + _LENGTH_BYTES], "big", signed=True)
        _check_format(where, data, at)
        if length < _HEADER.size - _LENGTH_BYTES:
            raise _corrupt(where, data, at, f"batch has the length {length}, expected at least {_HEADER.size - 12}")
        end = at + _LENGTH_BYTES + length
        if end > size:
            break
        yield at, end
        at = end
    if size and not at:
        raise Corrupt(f"{where} offset {position}: {size} bytes have no whole batch of records, expected at least one")


def _check_format(where: KafkaPartition, data: bytes, at: int) -> None:
    found = data[at + _FORMAT_AT]
    if found < _FORMAT:
        raise NotSupportedYet(
            f"{where} offset {_base_offset(data, at)}: message format {found}, which Kafka wrote before 0.11, is not "
            f"supported, expected {_FORMAT}"
        )
    if found > _FORMAT:
        raise _corrupt(where, data, at, f"message format is {found}, expected {_FORMAT}")


def _verify(where: KafkaPartition, data: bytes, at: int, end: int, checksum: Callable[[bytes], int]) -> None:
    stored = int.from_bytes(data[at + _FORMAT_AT + 1 : at + _CHECKED_FROM], "big")
    computed = checksum(data[at + _CHECKED_FROM : end])
    if computed != stored:
        raise _corrupt(where, data, at, f"batch has the CRC-32C {computed:08x}, expected {stored:08x}")


def _base_offset(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "big", signed=True)


def _corrupt(where: KafkaPartition, data: bytes, at: int, reason: str) -> Corrupt:
    return Corrupt(f"{where} offset {_base_offset(data, at)}: {reason}")


class _Transactions:
    """The aborted transactions that are open at the current batch. Memory: the aborted ones of one Fetch."""

    def __init__(self, aborted: Sequence[AbortedRange]) -> None:
        self._later = sorted(aborted, key=attrgetter("first_offset"), reverse=True)
        self._open: set[int] = set()

    def is_aborted(self, producer_id: int, last_offset: int) -> bool:
        """Whether a transactional batch of this producer, which ends at `last_offset`, was aborted."""
        while self._later and self._later[-1].first_offset <= last_offset:
            self._open.add(self._later.pop().producer_id)
        return producer_id in self._open

    def end(self, producer_id: int) -> None:
        self._open.discard(producer_id)


def _batch(
    where: KafkaPartition, data: bytes, at: int, end: int, position: int, transactions: _Transactions | None
) -> Decoded:
    header = _HEADER.unpack_from(data, at)
    base, _, epoch, _, _, attributes, last_delta, first_ms, largest_ms, producer_id, _, _, count = header
    if base < 0 or last_delta < 0 or count < 0:
        raise _Malformed(f"batch has {count} records up to offset {base} + {last_delta}, expected numbers from 0")
    last = base + last_delta
    skipped = Decoded([], last + 1, epoch)
    if count == 0 or last < position:
        return skipped
    aborted = transactions is not None and attributes & _TRANSACTIONAL and transactions.is_aborted(producer_id, last)
    if aborted and not attributes & _CONTROL:
        return skipped
    at += _HEADER.size
    if codec := attributes & _CODEC:
        data = decompressed(codec, data[at:end])
        at, end = 0, len(data)
    if count * _MIN_RECORD_BYTES > end - at:
        raise _Malformed(f"batch has {count} records in {end - at} bytes, expected {_MIN_RECORD_BYTES} or more each")
    appended = bool(attributes & _APPEND_TIME)
    source = _Source(where, _TIMESTAMP_APPEND if appended else _TIMESTAMP_CREATE)
    if attributes & _CONTROL:
        marker = _records(source, data, at, end, count, base, first_ms, base)
        if aborted and transactions is not None and (marker[0].key() or b"")[2:4] == _ABORT:
            transactions.end(producer_id)
        return skipped
    records = _records_in_c(source, data, at, end, count, base, last, (first_ms, largest_ms), position)
    if records is None:
        records = _records(source, data, at, end, count, base, first_ms, position)
        if records and records[-1].offset() > last:
            raise _Malformed(f"batch has a record at offset {records[-1].offset()}, expected up to {last}")
        if appended:
            for record in records:
                record._timestamp_ms = largest_ms
    return Decoded(records, last + 1, epoch)


@cache
def _reader_in_c() -> Callable[[bytes], Iterator[Any]] | None:
    """aiokafka's reader of a batch; None where it is not compiled.

    The import loads all of aiokafka, so the first batch causes it.
    """
    if sys.maxsize < _NUMBER_BITS >> 1:  # the reader cuts lengths to the bits of a pointer
        return None
    try:
        from aiokafka.record._crecords.default_records import DefaultRecordBatch
    except ImportError:
        return None
    reader: Callable[[bytes], Iterator[Any]] = DefaultRecordBatch
    return reader


def _records_in_c(
    source: _Source,
    data: bytes,
    at: int,
    limit: int,
    count: int,
    base: int,
    last: int,
    timestamps_ms: tuple[int, int],
    position: int,
) -> list[FetchedRecord] | None:
    """The records from `position` on, without a line of Python for each; None where `_records` must judge the batch.

    The result equals that of `_records`, except for record attributes of 128 or more, which Kafka does not define:
    aiokafka reads the next byte as a part of them.
    """
    if count < _MIN_RECORDS_IN_C or timestamps_ms[0] < 0 or (reader := _reader_in_c()) is None:
        return None
    attributes = _APPEND_TIME if source.timestamp_type == _TIMESTAMP_APPEND else 0
    header = _HEADER.pack(base, 0, 0, _FORMAT, 0, attributes, 0, *timestamps_ms, 0, 0, 0, count + 1)
    try:
        found = list(reader(b"".join((header, memoryview(data)[at:limit], _END))))
    except Exception:  # of aiokafka, or of Python for a length or a name: `_records` raises a clear one
        return None
    end = found.pop()
    if end.value != _END_VALUE or end.key is not None or end.headers:
        return None
    offsets = list(map(attrgetter("offset"), found))
    if offsets[0] < base or offsets[-1] > last or not all(map(lt, offsets, islice(offsets, 1, None))):
        return None
    if begin := bisect_left(offsets, position):
        del found[:begin], offsets[:begin]
    times = list(map(attrgetter("timestamp"), found))
    if min(times, default=0) < 0:  # a sum that overflows is negative, if the first timestamp is not
        return None
    headers = [each or None for each in map(attrgetter("headers"), found)]
    keys, values = map(attrgetter("key"), found), map(attrgetter("value"), found)
    return list(map(partial(FetchedRecord, source), offsets, times, keys, values, headers))


def _records(  # noqa: C901 - a call costs more than a branch
    source: _Source, data: bytes, at: int, limit: int, count: int, base: int, first_ms: int, position: int
) -> list[FetchedRecord]:
    """The records from `position` on. Runs for every record, so numbers of one or two bytes are decoded in place.

    A number is unsigned here: twice a length, or odd for null, as Kafka reads each negative length. `first_ms` is the
    time of the batch, to which each record's delta is added.
    """
    records: list[FetchedRecord] = []
    append, name_of = records.append, _names.get
    try:
        for _ in range(count):
            number = data[at]
            if number < 0x80:
                at += 1
            elif (high := data[at + 1]) < 0x80:
                number += (high << 7) - 0x80
                at += 2
            else:
                number, at = _number(data, at)
            end = at + (number >> 1)
            at += 1  # attributes, which Kafka does not use
            number = data[at]
            if number < 0x80:
                at += 1
            elif (high := data[at + 1]) < 0x80:
                number += (high << 7) - 0x80
                at += 2
            else:
                number, at = _number(data, at)
            timestamp_ms = first_ms + (number >> 1 ^ -(number & 1))
            number = data[at]
            if number < 0x80:
                at += 1
            elif (high := data[at + 1]) < 0x80:
                number += (high << 7) - 0x80
                at += 2
            else:
                number, at = _number(data, at)
            offset = base + (number >> 1)
            if offset < position or number & 1:
                _check_skipped(number, offset, records)
                at = end
                continue
            position = offset + 1
            number = data[at]
            at += 1
            if number >= 0x80:
                number, at = _number(data, at - 1)
            if number & 1:
                key = None
            else:
                begin, at = at, at + (number >> 1)
                key = data[begin:at]
            number = data[at]
            if number < 0x80:
                at += 1
            elif (high := data[at + 1]) < 0x80:
                number += (high << 7) - 0x80
                at += 2
            else:
                number, at = _number(data, at)
            if number & 1:
                value = None
            else:
                begin, at = at, at + (number >> 1)
                value = data[begin:at]
            headers: Headers | None = None
            number = data[at]
            at += 1
            if number >= 0x80:
                number, at = _number(data, at - 1)
            if number:
                headers, left_out = [], 0
                for _ in range(number >> 1):
                    number = data[at]
                    at += 1
                    if number >= 0x80:
                        number, at = _number(data, at - 1)
                    begin, at = at, at + (number >> 1)
                    raw = data[begin:at]
                    number = data[at]
                    at += 1
                    if number >= 0x80:
                        number, at = _number(data, at - 1)
                    if number & 1:
                        content = None
                    else:
                        begin, at = at, at + (number >> 1)
                        content = data[begin:at]
                    if (name := name_of(raw) or _name(raw)) is None:
                        left_out += 1
                    else:
                        headers.append((name, content))
                if left_out:
                    log_left_out(*source.where, offset, len(headers))
            if at != end:
                raise _Malformed(f"the fields of record {offset} end at byte {at}, expected {end}")
            append(FetchedRecord(source, offset, timestamp_ms, key, value, headers))
    except IndexError:
        raise _Malformed(f"batch ends at byte {limit}, within a record") from None
    if at != limit:
        raise _Malformed(f"batch ends at byte {limit}, its records end at byte {at}")
    return records


def _number(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned number of up to ten bytes, lowest first, and the place behind it."""
    number = shift = 0
    for _ in range(_MAX_NUMBER_BYTES):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & _NUMBER_BITS, at
        shift += 7
    raise _Malformed(f"a number before byte {at} has more than {_MAX_NUMBER_BYTES} bytes")


def _check_skipped(number: int, offset: int, records: list[FetchedRecord]) -> None:
    if records or number & 1:
        raise _Malformed(f"offset {offset} has the delta {number >> 1 ^ -(number & 1)}, expected ascending ones from 0")


def _name(raw: bytes) -> str | None:
    """A header's name; None if it is not UTF-8."""
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        return None
    if len(raw) <= _CACHED_NAME_BYTES and len(_names) < _CACHED_NAMES:
        _names[raw] = name
    return name
