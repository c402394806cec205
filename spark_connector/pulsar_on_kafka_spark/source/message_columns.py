"""Columns of messages as Arrow arrays, the value's excepted (`value_arrays`).

Records of topics with plain messages are read as they are; all others by way of the SDK's messages, whose methods give
what a consumer gets.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, itemgetter, methodcaller
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, MapType, StringType, TimestampType

from pulsar_on_kafka.client.values.message import BatchedMessage, Message
from pulsar_on_kafka.client.values.texts import message_id_text
from pulsar_on_kafka.kafka.records import packed_headers_of
from pulsar_on_kafka_mapping.encoding.varint import varint
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.records.message_record import SCHEMA_VERSION_BYTES, RecordHeaders, decode_headers
from pulsar_on_kafka_mapping.records.record_headers import PRODUCER, SCHEMA_VERSION, TXN
from pulsar_on_kafka_spark.options.read_options import TEXT_COLUMNS, ReadOptions
from pulsar_on_kafka_spark.reading.header_columns import YEAR_9999_MS
from pulsar_on_kafka_spark.source.arrow_columns import arrow_type
from pulsar_on_kafka_spark.source.partition_plan import PartitionPlan

_log = logging.getLogger(__name__)

COLUMN_TYPES: Final[Mapping[str, DataType]] = {
    "__key": BinaryType(),
    "__topic": StringType(),
    "__messageId": BinaryType(),
    "__publishTime": TimestampType(),
    "__eventTime": TimestampType(),
    "__messageProperties": MapType(StringType(), StringType(), valueContainsNull=True),
    "__orderingKey": BinaryType(),
    "__partition": IntegerType(),
    "__offset": LongType(),
    "__batchIndex": IntegerType(),
    "__producerName": StringType(),
    "__sequenceId": LongType(),
    "__schemaVersion": LongType(),
}
"""The Spark type of each column but `value`, without `textColumns`."""
_MS: Final = pa.timestamp("ms", tz="UTC")
_LEDGER, _ENTRY, _PARTITION = b"\x08", b"\x10", b"\x18"
"""Tags of the fields of a message id. Source: `mapping.ids.message_id`."""


def column_types(options: ReadOptions) -> Mapping[str, DataType]:
    """The Spark type of each column but `value`."""
    return {**COLUMN_TYPES, **dict.fromkeys(TEXT_COLUMNS, StringType())} if options.text_columns else COLUMN_TYPES


class RowColumns(ABC):
    """The columns of a partition's messages, made of rows: records, or the SDK's messages."""

    def __init__(self, plan: PartitionPlan) -> None:
        self._types = column_types(plan.topic.options)
        self._same: Mapping[str, Any] = {
            "__topic": pa.scalar(plan.slot().topic_name, pa.string()),
            "__partition": pa.scalar(plan.partition, pa.int32()),
        }

    @abstractmethod
    def payloads(self, rows: Sequence[Any]) -> list[bytes | None]: ...

    @abstractmethod
    def keys(self, rows: Sequence[Any]) -> list[bytes | None]:
        """The partition keys."""

    @abstractmethod
    def offsets(self, rows: Sequence[Any]) -> list[int]: ...

    @abstractmethod
    def versions(self, rows: Sequence[Any]) -> list[int | None]:
        """The numbers of the messages' schema versions; None for a message without schema."""

    def column(self, name: str, rows: Sequence[Any]) -> pa.Array:
        """One of `COLUMN_TYPES`."""
        if name in self._same:
            return pa.repeat(self._same[name], len(rows))
        kind = self._types[name]
        values = self._values(name, rows)
        if name in TEXT_COLUMNS and isinstance(kind, StringType):
            text = _id_text if name == "__messageId" else _key_text
            values = [None if value is None else text(value) for value in values]
        if isinstance(kind, TimestampType):
            return pa.array(values, _MS).cast(arrow_type(kind))
        return pa.array(values, arrow_type(kind))

    @abstractmethod
    def _values(self, name: str, rows: Sequence[Any]) -> Sequence[Any]:
        """Times are Unix times in ms."""


class RecordColumns(RowColumns):
    """Those of plain messages, of their records. Headers are read for the columns that need them alone, and
    mostly decoded only where there are others than the SDK always writes."""

    def __init__(self, plan: PartitionPlan) -> None:
        super().__init__(plan)
        opened = plan.topic.opened
        self._partition = plan.partition
        self._layout = opened.layout
        self._suffix = _PARTITION + varint(plan.partition) if opened.partitioned else b""
        self._makers: Mapping[str, Callable[[Sequence[Any]], Sequence[Any]]] = {
            "__key": self.keys,
            "__messageId": self._message_ids,
            "__publishTime": _timestamps,
            "__offset": self.offsets,
            "__batchIndex": _nothing,
            "__eventTime": lambda records: list(map(_event_time, self._headers(records, _unusual))),
            "__messageProperties": lambda records: list(map(_properties, self._headers(records, _unusual))),
            "__orderingKey": lambda records: [one.ordering_key for one in self._headers(records, _unusual)],
            "__producerName": lambda records: list(map(_producer_name, self._headers(records, _decoded))),
            "__sequenceId": lambda records: [_positive(one.sequence_id) for one in self._headers(records, _decoded)],
            "__schemaVersion": self.versions,
        }
        self._read_of: Sequence[Any] = ()
        self._read: dict[Callable[[Any], RecordHeaders], Sequence[RecordHeaders]] = {}

    def payloads(self, rows: Sequence[Any]) -> list[bytes | None]:
        return [record.value() for record in rows]

    def keys(self, rows: Sequence[Any]) -> list[bytes | None]:
        return [record.key() for record in rows]

    def offsets(self, rows: Sequence[Any]) -> list[int]:
        return [record.offset() for record in rows]

    def versions(self, rows: Sequence[Any]) -> list[int | None]:
        return [_version(one.schema_version) for one in self._headers(rows, _decoded)]

    def _headers(self, records: Sequence[Any], read: Callable[[Any], RecordHeaders]) -> Sequence[RecordHeaders]:
        """The results of `read` for these records, which all of their columns share."""
        if self._read_of is not records:
            self._read_of, self._read = records, {}
        if read not in self._read:
            self._read[read] = list(map(read, records))
        return self._read[read]

    def _values(self, name: str, rows: Sequence[Any]) -> Sequence[Any]:
        return self._makers[name](rows)

    def _message_ids(self, records: Sequence[Any]) -> list[bytes]:
        """As `Message.message_id().serialize()`; what the ids of a ledger have in common is made once."""
        size, suffix = self._layout.entries_per_ledger, self._suffix
        found: list[bytes] = []
        start, end, prefix = 0, -1, b""
        for offset in self.offsets(records):
            if offset >= end:
                ledger, entry = self._layout.position(self._partition, offset)
                start, end = offset - entry, offset - entry + size
                prefix = _LEDGER + varint(ledger) + _ENTRY
            entry = offset - start
            found.append(prefix + (_VARINTS[entry] if entry < _LISTED else varint(entry)) + suffix)
        return found


def _id_text(serialized: bytes) -> str:
    """The text of `textColumns`."""
    found = NativeMessageId.deserialize(serialized)
    size = found.batch_size()
    return f"{message_id_text(found)}:{size}" if size else message_id_text(found)


def _key_text(key: bytes) -> str:
    return key.decode("utf-8", "replace")


def _timestamps(records: Sequence[Any]) -> list[int]:
    return [record.timestamp()[1] for record in records]


def _nothing(records: Sequence[Any]) -> list[None]:
    return [None] * len(records)


_NO_HEADERS: Final = RecordHeaders()
_NAME: Final = itemgetter(0)
_USUAL: Final = frozenset({PRODUCER, SCHEMA_VERSION, TXN})


def _unusual(record: Any) -> RecordHeaders:
    """The headers of a record; of one with no others than those that the SDK always writes, no headers."""
    headers = packed_headers_of(record)
    usual = not headers or (not isinstance(headers, bytes) and _USUAL.issuperset(map(_NAME, headers)))
    return _NO_HEADERS if usual else _decoded(record)


def _decoded(record: Any) -> RecordHeaders:
    """An unreadable header counts as missing, as `Message` has it."""
    return decode_headers(packed_headers_of(record), _pass_over)


def _pass_over(reason: CorruptRecord) -> None:
    _log.debug("a header is left out: %s", reason)


_LISTED: Final = 1 << 14
_VARINTS: Final = [varint(number) for number in range(_LISTED)]


class DecodedColumns(RowColumns):
    """Those of messages of all kinds, by the methods of the SDK's messages."""

    def payloads(self, rows: Sequence[Any]) -> list[bytes | None]:
        return [message.payload() for message in rows]

    def keys(self, rows: Sequence[Any]) -> list[bytes | None]:
        return [message.record_key() for message in rows]

    def offsets(self, rows: Sequence[Any]) -> list[int]:
        return [message.offset for message in rows]

    def versions(self, rows: Sequence[Any]) -> list[int | None]:
        return [_version(message.written_with()) for message in rows]

    def _values(self, name: str, rows: Sequence[Any]) -> Sequence[Any]:
        return list(map(_OF_MESSAGE[name], rows))


def _headers(message: Any) -> RecordHeaders:
    found: RecordHeaders = message._headers()
    return found


def _batch_index(message: Message[Any]) -> int | None:
    return message.batch_index if isinstance(message, BatchedMessage) else None


def _time(millis: int | None, first: int = 0) -> int | None:
    """Null also for a time that no Spark session can show, as `header_columns.time` has it."""
    return millis if millis is not None and first <= millis <= YEAR_9999_MS else None


def _publish_time(message: Any) -> int:
    """The time at which the original of a replicated message was published, else the record's."""
    original = _time(_headers(message).publish_time_ms)
    return int(message.record.timestamp()[1]) if original is None else original


def _ordering_key(message: Any) -> bytes | None:
    if isinstance(message, BatchedMessage):
        return message.entry.columns.message(message.batch_index).ordering_key
    headers = _headers(message)
    return message.record.key() if headers.key_is_ordering_key else headers.ordering_key


def _event_time(headers: RecordHeaders) -> int | None:
    """None where the sender gave none."""
    return _time(headers.event_time_ms, 1)


def _properties(headers: RecordHeaders) -> Sequence[tuple[str, str]]:
    return list(headers.properties.items()) if headers.properties else ()


def _producer_name(headers: RecordHeaders) -> str | None:
    """None for a record of a plain Kafka client."""
    return None if headers.sequence_id < 0 else headers.producer_name


def _sequence_id(message: Any) -> int | None:
    """None for a record of a plain Kafka client."""
    base = _headers(message).sequence_id
    if isinstance(message, BatchedMessage):
        own = message.entry.columns.message(message.batch_index).sequence_id
        if own is not None:
            return _long(own)
        return None if base < 0 else _long(base + message.batch_index)
    return _positive(base)


def _positive(sequence_id: int) -> int | None:
    return None if sequence_id < 0 else _long(sequence_id)


def _version(written_with: bytes | None) -> int | None:
    known = written_with is not None and len(written_with) == SCHEMA_VERSION_BYTES
    return _long(int.from_bytes(written_with or b"", "big")) if known else None


def _long(number: int) -> int | None:
    """Null for a number that no bigint can be, as `header_columns.number` has it."""
    return number if number < 1 << 63 else None


_OF_MESSAGE: Final[Mapping[str, Callable[[Any], Any]]] = {
    "__key": methodcaller("record_key"),
    "__messageId": lambda message: message.message_id().serialize(),
    "__publishTime": _publish_time,
    "__eventTime": lambda message: _time(message.event_timestamp(), 1),
    "__messageProperties": lambda message: list(message.properties().items()),
    "__orderingKey": _ordering_key,
    "__offset": attrgetter("offset"),
    "__batchIndex": _batch_index,
    "__producerName": lambda message: _producer_name(_headers(message)),
    "__sequenceId": _sequence_id,
    "__schemaVersion": lambda message: _version(message.written_with()),
}
